"""Odd tasks: numbers of any size, few tasks, tasks without rows, and what a fuzzer of inputs found."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from folds import few_folds
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
    UnconditionalLearner,
)
from tailored.paper import ProjectedSGD
from tailored.paper.feature_maps import get_feature_map

pytestmark = pytest.mark.usefixtures("nothing_on_the_terminal")

D, TASKS, ROWS = 2, 8, 12


def make(factors=None, rows=ROWS, side=True):
    """Draw eight tasks of two columns; ``factors`` are the units of columns, targets and side
    information.
    """
    rng = np.random.default_rng(5)
    factors = np.ones(D + 2) if factors is None else np.asarray(factors)
    parts = []
    for _ in range(TASKS):
        X, s = rng.normal(size=(rows, D)) + 0.5, rng.normal(size=1)
        y = X @ rng.normal(1.0, 0.7, size=D) + s[0] + 0.3 * rng.normal(size=rows)
        parts.append((X * factors[:D], y * factors[D], s * factors[D + 1]))
    return TaskSet.from_tasks(parts if side else [part[:2] for part in parts])


def bayes(tasks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return EmpiricalBayesLearner().fit(tasks[:6], validation=tasks[6:])


PAPERS = {
    "conditional": lambda: ConditionalLearner(solver=ProjectedSGD(0.1)),
    "unconditional": lambda: UnconditionalLearner(solver=ProjectedSGD(step_sizes=[0.01, 1.0])),
    "independent": IndependentLearner,
}
LEARNERS = {"empirical Bayes": EmpiricalBayesLearner, **PAPERS}
EVERYONE = pytest.mark.parametrize("name", LEARNERS)


@pytest.fixture(scope="module")
def plain():
    return bayes(make())


@pytest.mark.filterwarnings("ignore:coverage")
@pytest.mark.parametrize("powers", [(-40, 41, 39, 0), (40, -30, 45, -20)])
def test_units_of_any_size_change_nothing(plain, powers):
    factors = 2.0 ** np.array(powers, dtype=float)
    tasks, others = make(), make(factors)
    learner = bayes(others)
    unit, back = factors[D], np.append(factors[:D], 1.0)

    def same(found, expected, rtol=1e-11, **options):
        np.testing.assert_allclose(found, expected, rtol=rtol, **options)

    ours, theirs = learner.predict_tasks(others, others), plain.predict_tasks(tasks, tasks)
    for column in ("prediction", "lower", "upper", "std"):
        same(ours[column] / unit, theirs[column])
    same(learner.validation_error_ / unit**2, plain.validation_error_)
    same(learner.score(others), plain.score(tasks), 1e-9)
    one, two = (
        k.adapt(t[0].X, t[0].y, side_info=t[0].side_info)
        for k, t in ((learner, others), (plain, tasks))
    )
    same(one.coef_ / unit * factors[:D], two.coef_)
    same(one.intercept_ / unit, two.intercept_)
    same((one.representation_ * back).T * back, two.representation_.T)
    assert np.isfinite(one.dual_gap_)
    mine, usual = (each.summary().to_frame() for each in (learner, plain))
    for name in ("fixed effect", "std. error", "random-effect std"):
        same(mine[name] / (unit / back), usual[name], 1e-9)
    same(mine["R² of side info"], usual["R² of side info"], 1e-9)
    mine, usual = (each.summary().to_frame("correlations") for each in (learner, plain))
    same(mine.iloc[:, 1:], usual.iloc[:, 1:], 1e-9)
    effects, expected = learner.effects(others), plain.effects(tasks)
    for name in ("effect", "std", "lower", "upper"):
        same(effects[name] / np.tile(unit / back, TASKS), expected[name], 1e-9, atol=1e-9)


@EVERYONE
def test_values_whose_squares_overflow_are_refused(name):
    X = make([1.0, 1e160, 1.0, 1.0])
    named = TaskSet(
        pd.DataFrame(X.X, columns=["height", "width"]), X.y, np.repeat(X.labels, X.sizes)
    )
    with pytest.raises(ValueError, match="X: column 'width' has values too large"):
        LEARNERS[name]().fit(named)
    with pytest.raises(ValueError, match="y: the targets have values too large"):
        LEARNERS[name]().fit(make([1.0, 1.0, 1e160, 1.0]))


def test_side_information_whose_squares_overflow_is_refused():
    message = r"side_info has an infinite or very large value .* column 0"
    with pytest.raises(ValueError, match=message):
        make([1.0, 1.0, 1.0, 1e160])


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_methods_in_user_units_have_a_limit(name):
    PAPERS[name]().fit(make([1e8, 1e-8, 1e7, 1e-7]))
    message = r"X: column 0 has values too large .*limit 1e\+15\)\. Rescale"
    with pytest.raises(ValueError, match=message):
        PAPERS[name]().fit(make([1e20, 1.0, 1.0, 1.0]))


@pytest.mark.filterwarnings("ignore:coverage")
def test_new_rows_that_dwarf_those_of_fit(plain):
    task = make()[0]
    X, y, s = task.X, task.y, task.side_info
    model = plain.adapt(X, y, side_info=s)
    large = X.copy()
    large[3, 1] = 1e90
    before, of_model = dict(vars(plain)), dict(vars(model))
    calls = [
        lambda: plain.adapt(large, y, side_info=s),
        lambda: plain.representation(large, y, side_info=s),
        lambda: plain.predict(large, groups=[0] * len(y)),
        lambda: model.predict(large),
        lambda: model.predict_interval(large),
        lambda: model.predict_std(large),
        lambda: model.update(large, y),
    ]
    many = TaskSet.from_tasks([(large, y, s)])
    methods = ("adapt_many", "predict_tasks", "score", "task_errors", "representation")
    calls += [lambda name=name: getattr(plain, name)(many) for name in methods]
    for call in calls:
        with pytest.raises(ValueError, match=r"X: column 1 has values too large .*\(1e\+90"):
            call()
    with pytest.raises(ValueError, match="y: the targets have values too large"):
        plain.adapt(X, np.full(len(y), 1e100), side_info=s)
    with pytest.raises(ValueError, match="side_info: "):
        plain.adapt(X, y, side_info=s * 1e40)
    assert vars(plain) == before
    assert all(vars(model)[k] is v for k, v in of_model.items())


@pytest.mark.filterwarnings("ignore:coverage")
@pytest.mark.filterwarnings("ignore:X. column 0 has the value")
def test_large_rows_have_finite_intervals(plain):
    """Next to 1e12, the identity of I + τXᵀX is rounding: pivots were the root of a negative
    number.
    """
    rng = np.random.default_rng(0)
    for size in 10.0 ** np.arange(1, 15):
        X = size * np.outer(rng.normal(size=6), [1.0, 1.0 + 1e-9])
        tasks = TaskSet.from_tasks([(X, rng.normal(size=6), np.zeros(1))])
        model = plain.adapt(tasks)
        ends = model.predict_interval(X)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(ends).all()
        assert (ends[:, 0] <= ends[:, 1]).all()
        table = plain.predict_tasks(tasks, tasks)
        assert all(np.isfinite(table[c]).all() for c in ("prediction", "lower", "upper", "std"))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_integers_beyond_floats():
    tasks = make(side=False)
    X, groups = np.round(tasks.X * 2.0**40), np.repeat(tasks.labels, tasks.sizes)
    integers, floats = (
        IndependentLearner().fit(rows, tasks.y, groups=groups) for rows in (X.astype(np.int64), X)
    )
    np.testing.assert_array_equal(integers.task_weights_, floats.task_weights_)


def empty(tasks):
    return tasks.with_rows(np.zeros(len(tasks.y), dtype=bool), np.zeros(len(tasks), dtype=np.int64))


@EVERYONE
def test_only_empty_tasks_are_refused(name):
    with pytest.raises(ValueError, match=r"(X|tasks): (none of the tasks|no task) has a row"):
        LEARNERS[name]().fit(empty(make()))


@EVERYONE
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_single_task_and_a_single_row(name):
    tasks = make()[:4]
    lonely = [(t.X[: int(i == 2)], t.y[: int(i == 2)], t.side_info) for i, t in enumerate(tasks)]
    for few in (tasks[:1], TaskSet.from_tasks(lonely)):
        learner = LEARNERS[name]().fit(few)
        errors = learner.task_errors(tasks, tasks)
        assert np.isfinite(errors).all()
        for number in ("validation_error_", "scale_"):
            assert np.isfinite(vars(learner).get(number) or 0.0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_draws_of_held_out_tasks_without_rows(seed):
    """Whichever tasks are held out: most have no rows."""
    tasks = make()
    few = [
        (t.X[: 6 * (i == seed)], t.y[: 6 * (i == seed)], t.side_info)
        for i, t in enumerate(tasks[:5])
    ]
    for name in ("unconditional", "empirical Bayes"):
        learner = LEARNERS[name]().set_params(random_state=seed)
        learner.fit(TaskSet.from_tasks(few))
        assert np.isfinite(learner.task_errors(tasks, tasks)).all()


def test_a_score_of_one_row():
    tasks = make()
    learner = IndependentLearner().fit(tasks)
    with pytest.raises(ValueError, match="X: R² needs at least two query rows"):
        learner.score(
            TaskSet.from_tasks([(tasks[0].X[:1], tasks[0].y[:1], tasks[0].side_info)]),
            n_support=0.5,
        )


def test_a_model_without_rows_is_that_of_the_summary_unless_it_says_otherwise():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        groups, x = np.repeat(np.arange(10), 5), rng.normal(size=(50, 1))
        y = 5.0 + rng.standard_t(2, 10)[groups] + x[:, 0] + 0.5 * rng.normal(size=50)
        for loss in ("squared", "absolute"):
            learner = few_folds(loss=loss, varying=[]).fit(x, y, groups=groups)
            model, summary = learner.adapt(), learner.summary()
            fixed = summary.to_frame("effects")["fixed effect"].to_numpy()
            is_equal = np.allclose([*model.coef_, model.intercept_], fixed, rtol=1e-6)
            assert is_equal != any("Groups without rows" in text for text in summary.text)


def test_steps_that_go_beyond_all_numbers():
    X, y = 9e14 * np.sign(make().X), 9e14 * np.sign(make().y)
    model = TaskRegressor(loss="squared", inner="online")
    message = r"online within-task algorithm overflowed: X has values up to 9e\+14"
    with pytest.raises(ValueError, match=message):
        model.fit(X[:7], y[:7])
    assert not hasattr(model, "coef_")


@pytest.mark.filterwarnings("ignore:The exact within-task algorithm")
@pytest.mark.parametrize("size", [1e7, 1e9, 1e14])
def test_a_penalty_that_is_rounding(size):
    """Fewer rows than columns, which are so large that nothing is left of the penalty: the rows are
    met all the same.
    """
    X, y = size * make().X[:3], size * make().y[:3]
    X = np.column_stack([X, X[:, ::-1] ** 2 / size, X[::-1]])
    model = TaskRegressor(loss="squared").fit(X, y)
    assert np.abs(model.predict(X) - y).max() < 1e-6 * size


def test_held_out_tasks_with_a_column_of_nothing():
    """A column of zeros is one of subnormal numbers in the held-out tasks: that is nothing, too."""
    tasks = make(side=False)
    found = [
        bayes(
            TaskSet.from_tasks(
                [
                    (np.insert(t.X, D, 0.0 if i < 6 else least, axis=1), t.y)
                    for i, t in enumerate(tasks)
                ]
            )
        )
        for least in (0.0, 1e-311)
    ]
    assert found[0].validation_error_ == pytest.approx(found[1].validation_error_, rel=1e-12)


def test_words_in_a_numeric_column_of_side_information_are_named():
    learner = ConditionalLearner(solver=ProjectedSGD(0.1)).fit(make())
    with pytest.raises(ValueError, match="side_info: could not convert string to float"):
        learner.adapt(make().X[:3], make().y[:3], side_info=np.array(["far"], dtype=object))


def test_a_missing_target_among_objects():
    X, y = np.ones((3, 1)), np.array([1.0, np.nan, 2], dtype=object)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        TaskRegressor().fit(X, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        EmpiricalBayesLearner().fit(X, y, groups=[0, 0, 1])


def test_held_out_tasks_far_beyond_the_others():
    tasks = make()
    far = make(np.array([1e100, 1.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="X: column 0 has values too large"):
        EmpiricalBayesLearner().fit(tasks[:6], validation=far[6:])


def test_no_warning_comes_before_an_error():
    tasks, empty = (
        make()[:2],
        TaskSet.from_tasks([(np.zeros((0, D)), np.zeros(0), make().side_info[0])]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="validation: none of its tasks has a row"):
            EmpiricalBayesLearner().fit(tasks, validation=empty)
        learner = bayes(make())
        with pytest.raises(ValueError, match="groups has a missing label"):
            learner.predict(1e3 * make().X[:2], groups=["new", None])
        far = make(factors=[1e3, 1.0, 1.0, 1.0])
        with pytest.raises(
            ValueError,
            match="labels: they are strings, such as '0', and the known labels are numbers",
        ):
            learner.predict_tasks(far.replace(labels=far.labels.astype(str)))
        wide = far.replace(labels=np.arange(20, 28), side_info=np.zeros((8, 3)), side_names=None)
        with pytest.raises(ValueError, match="side_info: expected 1 columns as in fit, got 3"):
            learner.predict_tasks(wide)


def test_a_rating_scale_of_no_rows():
    none = TaskSet.from_tasks([(np.zeros((0, 2)), np.zeros(0))] * 2)
    with pytest.raises(ValueError, match="feature_map: the tasks have no rows"):
        get_feature_map("angle", has_side_info=False).fit(none)


@pytest.mark.filterwarnings("ignore:.*within-task algorithm")
def test_sparse_rows_so_large_that_the_penalty_is_rounding():
    tasks = make(np.array([1e14, 1e14, 1e14, 1.0]), rows=2, side=False)
    learner = IndependentLearner(loss="squared").fit(tasks)
    rows = TaskSet(sparse.csr_array(tasks.X), tasks.y, np.repeat(tasks.labels, 2))
    found = np.asarray(learner.predict_tasks(rows, rows)["prediction"])
    assert np.abs(found - tasks.y).max() < 1e-6 * np.abs(tasks.y).max()
