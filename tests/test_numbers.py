"""Numbers of any size: results that follow the units, or a refusal that names the column."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
    UnconditionalLearner,
)
from tailored.baselines import BASELINES, EARLIER_METHODS, MixedModel, PooledBoosting, RidgePerTask, TaskMean
from tailored.baselines.trace_constrained import project_trace_ball
from tailored.feature_maps import FEATURE_MAPS, get_feature_map
from tailored.learners import MetaLearner
from tailored.losses import get_loss
from tailored.objectives import Query
from tailored.solvers import ProjectedSGD
from tailored.summaries import OWN
from tailored.summaries.building import errors_table
from tailored.summaries.words import strength
from tailored.tasks import Rows, Units

D, TASKS, ROWS = 2, 8, 12


def make(factors: Any = None, rows: int = ROWS, side: bool = True) -> TaskSet:
    """Eight tasks of two columns; ``factors`` are the units of the columns, the target and the description."""
    rng = np.random.default_rng(5)
    factors = np.ones(D + 2) if factors is None else np.asarray(factors)
    parts = []
    for _ in range(TASKS):
        X, s = rng.normal(size=(rows, D)) + 0.5, rng.normal(size=1)
        y = X @ rng.normal(1.0, 0.7, size=D) + s[0] + 0.3 * rng.normal(size=rows)
        parts.append((X * factors[:D], y * factors[D], s * factors[D + 1]))
    return TaskSet.from_tasks(parts if side else [part[:2] for part in parts])


@pytest.fixture(autouse=True)
def _nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """LAPACK writes its own messages."""
    yield
    assert "".join(capfd.readouterr()) == ""


def bayes(tasks: TaskSet) -> EmpiricalBayesLearner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return EmpiricalBayesLearner().fit(tasks[:6], validation=tasks[6:])


@pytest.fixture(scope="module")
def plain() -> EmpiricalBayesLearner:
    return bayes(make())


@pytest.mark.filterwarnings("ignore:coverage")
@pytest.mark.parametrize(
    "powers", [(-420, 410, 390, 0), (400, 400, -400, -420), (-425, -425, -425, -425), (425, -300, 425, 425)]
)
def test_units_of_any_size_change_nothing(plain: EmpiricalBayesLearner, powers: tuple[int, ...]) -> None:
    factors = 2.0 ** np.array(powers, dtype=float)
    tasks, others = make(), make(factors)
    learner = bayes(others)
    unit = factors[D]
    ours, theirs = learner.predict_tasks(others, others), plain.predict_tasks(tasks, tasks)
    for column in ("prediction", "lower", "upper", "std"):
        np.testing.assert_allclose(ours[column] / unit, theirs[column], rtol=1e-11)
    assert learner.validation_error_ / unit == pytest.approx(plain.validation_error_, rel=1e-11)
    one, two = (
        k.adapt(t[0].X, t[0].y, side_info=t[0].side_info) for k, t in ((learner, others), (plain, tasks))
    )
    np.testing.assert_allclose(one.coef_ / unit * factors[:D], two.coef_, rtol=1e-11)
    assert one.intercept_ / unit == pytest.approx(two.intercept_, rel=1e-11)
    assert one.representation_ is not None
    assert two.representation_ is not None
    back = np.append(factors[:D], 1.0)
    np.testing.assert_allclose((one.representation_ * back).T * back, two.representation_.T, rtol=1e-11)
    assert np.isfinite(one.dual_gap_)
    mine, usual = learner.summary().frames, plain.summary().frames
    assert mine.keys() == usual.keys()
    for name, size in (
        ("effect", unit / back),
        ("std. error", unit / back),
        ("std. between tasks", unit / back),
    ):
        np.testing.assert_allclose(mine["effects"][name] / size, usual["effects"][name], rtol=1e-9)
    np.testing.assert_allclose(mine["effects"]["explained"], usual["effects"]["explained"], rtol=1e-9)
    np.testing.assert_allclose(mine["correlations"].iloc[:, 1:], usual["correlations"].iloc[:, 1:], rtol=1e-9)
    effects = learner.effects(others), plain.effects(tasks)
    for name in ("effect", "std", "low", "high"):
        np.testing.assert_allclose(
            effects[0][name] / np.tile(unit / back, TASKS), effects[1][name], rtol=1e-9, atol=1e-9
        )
    assert learner.score(others) == pytest.approx(plain.score(tasks), rel=1e-9)


@pytest.mark.filterwarnings("ignore:coverage")
def test_mixed_powers_of_ten() -> None:
    factors = np.array([1e-120, 1e97, 1e-80, 1e113])
    tasks, others = make(rows=40), make(factors, rows=40)
    one, two = bayes(tasks).predict_tasks(tasks, tasks), bayes(others).predict_tasks(others, others)
    for column in ("prediction", "lower", "upper", "std"):
        assert np.abs(two[column] / factors[D] - one[column]).max() < 1e-6 * tasks.y.std()


def test_weights_at_the_edge_are_those_of_long_arithmetic() -> None:
    """(K + nI)a = y − Xb, w = b + θXᵀa, by elimination in eighty bits, at unit size."""
    factors = np.array([1e-50, 1e125, 1e70, 1.0])
    tasks, others = make(side=False), make(factors, side=False)
    small, large = MixedModel().fit(tasks), MixedModel().fit(others)
    b, W, noise = (np.longdouble(v) for v in (small.mean_, small.covariance_, small.noise_))
    found = large.adapt_many(others)
    for t, task in enumerate(tasks):
        Z = np.column_stack([task.X, np.ones(len(task.y))]).astype(np.longdouble)
        system = Z @ W @ Z.T + noise * np.eye(len(Z), dtype=np.longdouble)
        w = b + W @ Z.T @ eliminated(system, task.y - Z @ b)
        ours = found[t] / factors[D] * np.append(factors[:D], 1.0)
        np.testing.assert_allclose(ours, w.astype(float), rtol=1e-6)


def test_a_variance_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="X: column 0 has values of about 9e-126 beside targets"):
        MixedModel().fit(make([1e-125, 1.0, 1e125, 1.0], side=False))


def eliminated(A: Any, right: Any) -> Any:
    A, right = A.copy(), right.copy()
    n = len(A)
    for i in range(n):
        for j in range(i + 1, n):
            part = A[j, i] / A[i, i]
            A[j, i:] -= part * A[i, i:]
            right[j] -= part * right[i]
    for i in range(n - 1, -1, -1):
        right[i] = (right[i] - A[i, i + 1 :] @ right[i + 1 :]) / A[i, i]
    return right


def test_a_constant_column_is_measured_by_itself(plain: EmpiricalBayesLearner) -> None:
    tasks = make(side=False)
    X = np.column_stack([tasks.X, np.full(len(tasks.y), 3.7e100)])
    learner = bayes(TaskSet.from_arrays(X, tasks.y, tasks.offsets, tasks.labels))
    model = learner.adapt(X[:5], tasks.y[:5])
    again = np.nextafter(X[:5], np.inf)
    assert np.abs(model.predict(again) - model.predict(X[:5])).max() < 1e-9


def test_targets_that_are_constant_and_huge() -> None:
    tasks = make(side=False)
    learner = bayes(
        TaskSet.from_arrays(tasks.X, np.full(len(tasks.y), -3.3e119), tasks.offsets, tasks.labels)
    )
    np.testing.assert_allclose(learner.adapt().predict(tasks.X[:3]), -3.3e119, rtol=1e-9)


# --- what is refused

PAPERS: dict[str, Callable[[], Any]] = {
    "conditional": lambda: ConditionalLearner(solver=ProjectedSGD(0.1)),
    "unconditional": lambda: UnconditionalLearner(solver=ProjectedSGD(step_sizes=[0.01, 1.0])),
    "independent": IndependentLearner,
}
CHEAP: dict[str, dict[str, Any]] = {
    "trace-constrained": {"step_size": [0.1, 1.0], "regularization": 0.1},
    "unconditional bias": {"step_size": [0.1, 1.0], "regularization": 0.1},
    "conditional bias": {"step_size": [0.1, 1.0], "regularization": 0.1},
    "Frank-Wolfe": {"radius": [0.1, 1.0], "n_iterations": 3},
    "multi-task feature learning": {"regularization": [0.1, 1.0], "n_rounds": 3},
}
LEARNERS: dict[str, Callable[[], Any]] = {
    "empirical Bayes": EmpiricalBayesLearner,
    **PAPERS,
    **{k: v for k, v in BASELINES.items() if k != "item and user bias"},
    **{name: (lambda kind=kind, name=name: kind(**CHEAP[name])) for name, kind in EARLIER_METHODS.items()},
    "boosting": lambda: PooledBoosting(max_iter=3),
}
EVERYONE = pytest.mark.parametrize("name", LEARNERS)


def frame(factors: Any) -> TaskSet:
    tasks = make(factors)
    table = pd.DataFrame(tasks.X, columns=["height", "width"])
    table["who"] = np.repeat(tasks.labels, tasks.sizes)
    table["y"] = tasks.y
    side = pd.DataFrame(tasks.side_info, index=tasks.labels, columns=["age"])
    return TaskSet.from_frame(table, task="who", target="y", side_info=side)


@EVERYONE
@pytest.mark.parametrize(
    ("place", "words"),
    [
        (1, r"X: column 'width'.*rescale it"),
        (2, r"y: the targets.*rescale them"),
        (3, r"side_info: column 'age'.*rescale"),
    ],
)
@pytest.mark.parametrize("size", [1e160, 1e-160, 1e-310])
def test_beyond_what_squares_hold(name: str, place: int, words: str, size: float) -> None:
    factors = np.ones(D + 2)
    factors[place] = size
    with pytest.raises(ValueError, match=words):
        LEARNERS[name]().fit(frame(factors))


@pytest.mark.parametrize("name", [*PAPERS, "ridge per task", "boosting"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_users_units_are_taken_as_they_are_up_to_a_size(name: str) -> None:
    assert LEARNERS[name]().fit(make([1e25, 1e-25, 1e20, 1e-20])) is not None
    with pytest.raises(ValueError, match=r"X: column 0 has values up to .*e\+50.*rescale it"):
        LEARNERS[name]().fit(make([1e50, 1.0, 1.0, 1.0]))


@pytest.mark.filterwarnings("ignore:coverage")
def test_new_rows_that_dwarf_those_of_fit(plain: EmpiricalBayesLearner) -> None:
    tasks = make()
    task = tasks[0]
    X, y, s = task.X, task.y, task.side_info
    model = plain.adapt(X, y, side_info=s)
    large = X.copy()
    large[3, 1] = 1e90
    calls: dict[str, Callable[[], Any]] = {
        "adapt": lambda: plain.adapt(large, y, side_info=s),
        "representation": lambda: plain.representation(large, y, side_info=s),
        "predict": lambda: plain.predict(large, groups=[0] * len(y)),
        "predict of a model": lambda: model.predict(large),
        "predict_interval": lambda: model.predict_interval(large),
        "predict_std": lambda: model.predict_std(large),
        "update": lambda: model.update(large, y),
    }
    before, of_model = dict(vars(plain)), dict(vars(model))
    for call in calls.values():
        with pytest.raises(ValueError, match=r"X: column 1 has values up to 1e\+90"):
            call()
    with pytest.raises(ValueError, match="y: the targets have values up to 1e"):
        plain.adapt(X, np.full(len(y), 1e100), side_info=s)
    with pytest.raises(ValueError, match="side_info: "):
        plain.adapt(X, y, side_info=s * 1e100)
    many = TaskSet.from_tasks([(large, y, s)])
    for method in (
        plain.adapt_many,
        plain.predict_tasks,
        plain.score,
        plain.task_errors,
        plain.representations,
    ):
        with pytest.raises(ValueError, match=r"X: column 1 has values up to 1e\+90"):
            method(many)
    assert vars(plain) == before
    assert all(vars(model)[k] is v for k, v in of_model.items())


@pytest.mark.filterwarnings("ignore:coverage")
def test_rows_on_the_way_to_that_are_finite(plain: EmpiricalBayesLearner) -> None:
    """Beside 1e12 the identity of I + τXᵀX is rounding: pivots were the root of a negative number."""
    rng = np.random.default_rng(0)
    for size in 10.0 ** np.arange(1, 15):
        X = size * np.outer(rng.normal(size=6), [1.0, 1.0 + 1e-9])
        y = rng.normal(size=6)
        model = plain.adapt(X, y, side_info=np.zeros(1))
        ends = model.predict_interval(X)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(ends).all()
        assert (ends[:, 0] <= ends[:, 1]).all()
        tasks = TaskSet.from_tasks([(X, y, np.zeros(1))])
        table = plain.predict_tasks(tasks, tasks)
        assert all(np.isfinite(table[c]).all() for c in ("prediction", "lower", "upper", "std"))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_integers_beyond_what_floats_hold() -> None:
    tasks = make(side=False)
    X, groups = np.round(tasks.X * 2.0**58), np.repeat(tasks.labels, tasks.sizes)
    as_integers = IndependentLearner().fit(X.astype(np.int64), tasks.y, groups=groups)
    as_floats = IndependentLearner().fit(X, tasks.y, groups=groups)
    np.testing.assert_array_equal(as_integers.task_weights_, as_floats.task_weights_)
    beyond = np.full(X.shape, 10**400, dtype=object)
    for call in (
        lambda: IndependentLearner().fit(beyond, tasks.y, groups=groups),
        lambda: TaskSet(beyond, tasks.y),
        lambda: TaskRegressor().fit(beyond, tasks.y),
        lambda: as_floats.predict(beyond, groups=groups),
        lambda: TaskMean().fit(tasks).adapt(beyond, tasks.y),
    ):
        with pytest.raises(ValueError, match=r"X .*integer too large"):
            call()
    with pytest.raises(ValueError, match=r"y .*integer too large"):
        TaskSet(X, np.full(len(X), 10**400, dtype=object))


@pytest.mark.parametrize("name", [n for n in FEATURE_MAPS if n not in ("posterior", "vector")])
def test_maps_of_rows_refuse_by_name(name: str) -> None:
    tasks = make([1e200, 1.0, 1.0, 1.0], side=False)
    with pytest.raises(ValueError, match="X: column 0 has values up to"):
        get_feature_map(name, has_side_info=False).fit(tasks).transform(tasks)


@pytest.mark.parametrize("loss", ["absolute", "squared"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_task_alone(loss: str) -> None:
    task = make()[0]
    model = TaskRegressor(loss=loss).fit(task.X * 1e29, task.y * 1e29)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.dual_gap_)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="X: column 1 has values up to"):
        model.fit(task.X * np.array([1.0, 1e100]), task.y)
    assert vars(model) == before


# --- few tasks, and tasks without rows


def empty(tasks: TaskSet) -> TaskSet:
    return tasks.with_rows(np.zeros(len(tasks.y), dtype=bool), np.zeros(len(tasks), dtype=np.int64))


@EVERYONE
def test_only_empty_tasks_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"(X|tasks): (none of the tasks|no task) has a row"):
        LEARNERS[name]().fit(empty(make()))


@EVERYONE
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_single_task_and_a_single_row(name: str) -> None:
    tasks = make()[:4]
    lonely = [(t.X[: int(i == 2)], t.y[: int(i == 2)], t.side_info) for i, t in enumerate(tasks)]
    for few in (tasks[:1], TaskSet.from_tasks(lonely)):
        learner = LEARNERS[name]().fit(few)
        errors = learner.task_errors(tasks, tasks)
        assert np.isfinite(errors).all()
        for number in ("validation_error_", "scale_"):
            assert np.isfinite(vars(learner).get(number) or 0.0)


@pytest.mark.parametrize("name", [n for n in LEARNERS if n != "independent"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_held_out_tasks_without_rows(name: str) -> None:
    tasks = make()
    learner = LEARNERS[name]()
    if not isinstance(learner, MetaLearner):
        pytest.skip("takes no validation tasks")
    if name == "conditional":
        learner.set_params(solver=ProjectedSGD(step_sizes=[0.01, 1.0]))
    with pytest.raises(ValueError, match="validation: none of its tasks has a row"):
        learner.fit(tasks, validation=empty(tasks[:2]))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_draws_of_held_out_tasks_without_rows(seed: int) -> None:
    """Whichever tasks are held out: most have no rows."""
    tasks = make()
    few = [(t.X[: 6 * (i == seed)], t.y[: 6 * (i == seed)], t.side_info) for i, t in enumerate(tasks[:5])]
    for name in ("unconditional", "empirical Bayes", *EARLIER_METHODS):
        learner = LEARNERS[name]().set_params(random_state=seed)
        learner.fit(TaskSet.from_tasks(few))
        assert np.isfinite(learner.task_errors(tasks, tasks)).all()


def test_a_score_of_one_row() -> None:
    tasks = make()
    learner = IndependentLearner().fit(tasks)
    with pytest.raises(ValueError, match="X: R² takes at least two rows"):
        learner.score(TaskSet.from_tasks([(tasks[0].X[:1], tasks[0].y[:1], tasks[0].side_info)]), support=0.5)


# --- baselines read as learners do


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_check_what_they_are_given(name: str) -> None:
    tasks = make(side=False)
    if name == "item and user bias":
        one_hot = np.eye(D)[np.arange(len(tasks.y)) % D]
        tasks = TaskSet.from_arrays(one_hot, tasks.y, tasks.offsets, tasks.labels)
    baseline = BASELINES[name]().fit(tasks)
    X, y = tasks[0].X, tasks[0].y
    for call, words in (
        (lambda: baseline.adapt(X[:, :1], y), "X has 1 features"),
        (lambda: baseline.adapt(X[0], y), "2D array"),
        (lambda: baseline.adapt(np.full_like(X, np.nan), y), "X contains NaN"),
        (lambda: baseline.adapt(X, y[:3]), "X has 12 rows, y has 3"),
        (lambda: baseline.adapt(X, y).predict(X[:, :1]), "X has 1 features"),
        (lambda: baseline.task_errors(tasks, tasks[:3]), "query: expected the same 8 tasks, got 3"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="tasks: expected a TaskSet"):
        baseline.fit(X)  # type: ignore[arg-type]
    before = dict(vars(baseline))
    with pytest.raises(ValueError, match="X: column 0"):
        baseline.fit(make([1e200, 1.0, 1.0, 1.0], side=False))
    assert vars(baseline) == before


def test_ridge_beside_which_its_penalty_is_rounding() -> None:
    tasks = make([1e20, 1e20, 1.0, 1.0], side=False)
    twice = TaskSet.from_arrays(np.repeat(tasks.X[:, :1], 3, axis=1), tasks.y, tasks.offsets, tasks.labels)
    assert np.isfinite(RidgePerTask().fit(twice).adapt_many(twice)).all()


def test_steps_that_go_beyond_all_numbers() -> None:
    X, y = 9e18 * np.sign(make().X), 9e18 * np.sign(make().y)
    model = TaskRegressor(loss="squared", inner="online")
    with pytest.raises(
        ValueError, match=r"online within-task algorithm went beyond .* X has values up to 9e\+18"
    ):
        model.fit(X[:7], y[:7])
    assert not hasattr(model, "coef_")


@pytest.mark.filterwarnings("ignore:The exact within-task algorithm")
@pytest.mark.parametrize("size", [1e7, 1e9, 1e17])
def test_a_penalty_that_is_rounding(size: float) -> None:
    """Fewer rows than columns, which are so large that nothing is left of the penalty: the rows are met all the same."""
    X, y = size * make().X[:3], size * make().y[:3]
    X = np.column_stack([X, X[:, ::-1] ** 2 / size, X[::-1]])
    model = TaskRegressor(loss="squared").fit(X, y)
    assert np.abs(model.predict(X) - y).max() < 1e-6 * size


def test_the_trace_ball_far_away() -> None:
    found = project_trace_ball(np.diag([1e20, 3e19, 1e20]), 1.0)
    np.testing.assert_allclose(found, np.diag([0.5, 0.0, 0.5]), atol=1e-15)


def test_held_out_tasks_with_a_column_of_nothing() -> None:
    """A column of zeros is one of subnormal numbers in the held-out tasks: that is nothing, too."""
    tasks = make(side=False)
    found = [
        bayes(
            TaskSet.from_tasks(
                [(np.insert(t.X, D, 0.0 if i < 6 else least, axis=1), t.y) for i, t in enumerate(tasks)]
            )
        )
        for least in (0.0, 1e-311)
    ]
    assert found[0].validation_error_ == pytest.approx(found[1].validation_error_, rel=1e-12)


def test_words_that_look_like_numbers_are_words() -> None:
    learner = ConditionalLearner(solver=ProjectedSGD(0.1)).fit(make())
    with pytest.raises(ValueError, match=r"side_info: .* numeric in fit and has text now"):
        learner.adapt(make().X[:3], make().y[:3], side_info=np.array(["1e300"], dtype=object))


def test_a_missing_target_among_objects() -> None:
    X, y = np.ones((3, 1)), np.array([1.0, np.nan, 2], dtype=object)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        TaskRegressor().fit(X, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        EmpiricalBayesLearner().fit(X, y, groups=[0, 0, 1])


def test_held_out_tasks_far_beyond_the_others() -> None:
    tasks = make()
    far = make(np.array([1e17, 1.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match=r"X: column 0 has values up to .*beside those of fit"):
        EmpiricalBayesLearner().fit(tasks[:6], validation=far[6:])


def test_errors_whose_squares_are_no_numbers() -> None:
    own, other = np.array([1e160, 3e160, 2e160]), np.array([2e160, 7e160, 3e160])
    table = errors_table({OWN: own, "other": other}, "Errors", "")
    assert table is not None
    assert table.columns["std. error"][1] == pytest.approx(1e160)  # of 1, 4 and 1
    assert strength(3.0) == "mostly"


def test_a_rating_scale_of_no_rows() -> None:
    none = TaskSet.from_tasks([(np.zeros((0, 2)), np.zeros(0))] * 2)
    with pytest.raises(ValueError, match="feature_map: the tasks have no rows"):
        get_feature_map("angle", has_side_info=False).fit(none)


def test_an_iterate_that_has_gone_too_far_is_seen_in_the_value() -> None:
    """θ of 1e300 and rows of 1e10: products that no number holds."""
    rows = Rows(1e10 * make(side=False).X[:6], make(side=False).y[:6], np.array([0, 3, 6]))
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = Query(get_loss("squared"))(rows, rows, np.array([1e300 * np.eye(D)] * 2), None)
    assert np.isinf(found.value).all()


@pytest.mark.filterwarnings("ignore:.*within-task algorithm")
def test_sparse_rows_so_large_that_the_penalty_is_rounding() -> None:
    tasks = make(np.array([1e17, 1e17, 1e17, 1.0]), rows=2, side=False)
    learner = IndependentLearner(loss="squared").fit(tasks)
    rows = TaskSet(sparse.csr_array(tasks.X), tasks.y, np.repeat(tasks.labels, 2))
    found = np.asarray(learner.predict_tasks(rows, rows)["prediction"])
    assert np.abs(found - tasks.y).max() < 1e-6 * np.abs(tasks.y).max()


def test_a_variance_without_an_inverse() -> None:
    tasks = make(np.array([1e-155, 1e-155, 1.0, 1.0]), side=False)
    assert np.isfinite(get_feature_map("fourier", has_side_info=False).fit(tasks).transform(tasks)).all()


def test_weights_that_are_no_numbers() -> None:
    units = Units(np.array([1e-130]), 1e90, np.zeros(1))
    with pytest.raises(ValueError, match="X: rows are so large"):
        units.raw_weights(np.array([[1e100]]))
