"""Numbers of any size: results that follow the units, or an error that names the column."""

import numpy as np
import pandas as pd
import pytest

from odd_tasks import EVERYONE, LEARNERS, PAPERS, TASKS, D, bayes, make
from tailored import IndependentLearner, TaskRegressor, TaskSet

pytestmark = pytest.mark.usefixtures("nothing_on_the_terminal")


@pytest.fixture(scope="module")
def plain():
    return bayes(make())


@pytest.mark.filterwarnings("ignore:coverage")
@pytest.mark.parametrize(
    "powers",
    [(-40, 41, 39, 0), (40, -30, 45, -20)],
)
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
    with pytest.raises(
        ValueError, match=r"side_info has an infinite or very large value .* column 0"
    ):
        make([1.0, 1.0, 1.0, 1e160])


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_methods_in_user_units_have_a_limit(name):
    PAPERS[name]().fit(make([1e8, 1e-8, 1e7, 1e-7]))
    with pytest.raises(
        ValueError, match=r"X: column 0 has values too large .*limit 1e\+15\)\. Rescale"
    ):
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
    beyond = np.full(X.shape, 10**400, dtype=object)
    for call in (
        lambda: IndependentLearner().fit(beyond, tasks.y, groups=groups),
        lambda: TaskSet(beyond, tasks.y),
        lambda: TaskRegressor().fit(beyond, tasks.y),
        lambda: floats.predict(beyond, groups=groups),
    ):
        with pytest.raises(ValueError, match=r"X.* has an integer too large"):
            call()
    with pytest.raises(ValueError, match=r"y .*integer too large"):
        TaskSet(X, beyond[:, 0])
