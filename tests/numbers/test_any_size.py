"""Numbers of any size: results that follow the units, or a refusal that names the column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from odd_tasks import EVERYONE, LEARNERS, PAPERS, TASKS, D, bayes, make
from tailored import EmpiricalBayesLearner, IndependentLearner, TaskRegressor, TaskSet
from tailored.feature_maps import FEATURE_MAPS, get_feature_map


@pytest.fixture(scope="module")
def plain() -> EmpiricalBayesLearner:
    return bayes(make())


@pytest.mark.filterwarnings("ignore:coverage")
@pytest.mark.parametrize("powers", [(-40, 41, 39, 0), (40, -30, 45, -20)])
def test_units_of_any_size_change_nothing(plain: EmpiricalBayesLearner, powers: tuple[int, ...]) -> None:
    factors = 2.0 ** np.array(powers, dtype=float)
    tasks, others = make(), make(factors)
    learner = bayes(others)
    unit = factors[D]
    ours, theirs = learner.predict_tasks(others, others), plain.predict_tasks(tasks, tasks)
    for column in ("prediction", "lower", "upper", "std"):
        np.testing.assert_allclose(ours[column] / unit, theirs[column], rtol=1e-11)
    assert learner.validation_error_ / unit**2 == pytest.approx(plain.validation_error_, rel=1e-11)
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
        ("fixed effect", unit / back),
        ("std. error", unit / back),
        ("random-effect std", unit / back),
    ):
        np.testing.assert_allclose(mine["effects"][name] / size, usual["effects"][name], rtol=1e-9)
    np.testing.assert_allclose(
        mine["effects"]["R² of side info"], usual["effects"]["R² of side info"], rtol=1e-9
    )
    np.testing.assert_allclose(mine["correlations"].iloc[:, 1:], usual["correlations"].iloc[:, 1:], rtol=1e-9)
    effects = learner.effects(others), plain.effects(tasks)
    for name in ("effect", "std", "lower", "upper"):
        np.testing.assert_allclose(
            effects[0][name] / np.tile(unit / back, TASKS), effects[1][name], rtol=1e-9, atol=1e-9
        )
    assert learner.score(others) == pytest.approx(plain.score(tasks), rel=1e-9)


def test_a_constant_column_is_measured_by_itself(plain: EmpiricalBayesLearner) -> None:
    tasks = make(side=False)
    X = np.column_stack([tasks.X, np.full(len(tasks.y), 3.7e10)])
    learner = bayes(TaskSet.from_arrays(X, tasks.y, tasks.offsets, tasks.labels))
    model = learner.adapt(X[:5], tasks.y[:5])
    again = np.nextafter(X[:5], np.inf)
    assert np.abs(model.predict(again) - model.predict(X[:5])).max() < 1e-9


def test_targets_that_are_constant_and_huge() -> None:
    tasks = make(side=False)
    learner = bayes(TaskSet.from_arrays(tasks.X, np.full(len(tasks.y), -3.3e19), tasks.offsets, tasks.labels))
    np.testing.assert_allclose(learner.adapt().predict(tasks.X[:3]), -3.3e19, rtol=1e-9)


def frame(factors: Any) -> TaskSet:
    tasks = make(factors)
    table = pd.DataFrame(tasks.X, columns=["height", "width"])
    table["who"] = np.repeat(tasks.labels, tasks.sizes)
    table["y"] = tasks.y
    side = pd.DataFrame(tasks.side_info, index=tasks.labels, columns=["age"])
    return TaskSet.from_frame(table, task="who", target="y", side_info=side)


@EVERYONE
@pytest.mark.parametrize(
    ("place", "message"),
    [
        (1, "X: column 'width' has values too large"),
        (2, "y: the targets have values too large"),
        (3, "side_info has an infinite or very large value .* column 0"),
    ],
)
def test_values_whose_squares_overflow_are_refused(name: str, place: int, message: str) -> None:
    factors = np.ones(D + 2)
    factors[place] = 1e160
    with pytest.raises(ValueError, match=message):
        LEARNERS[name]().fit(frame(factors))


@pytest.mark.parametrize("name", [*PAPERS, "ridge per task", "pooled boosting"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_methods_in_user_units_have_a_limit(name: str) -> None:
    assert LEARNERS[name]().fit(make([1e8, 1e-8, 1e7, 1e-7])) is not None
    with pytest.raises(ValueError, match=r"X: column 0 has values too large .*limit 1e\+15.* rescale"):
        LEARNERS[name]().fit(make([1e20, 1.0, 1.0, 1.0]))


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
        with pytest.raises(ValueError, match=r"X: column 1 has values too large .*\(1e\+90"):
            call()
    with pytest.raises(ValueError, match="y: the targets have values too large"):
        plain.adapt(X, np.full(len(y), 1e100), side_info=s)
    with pytest.raises(ValueError, match="side_info: "):
        plain.adapt(X, y, side_info=s * 1e40)
    many = TaskSet.from_tasks([(large, y, s)])
    for method in (
        plain.adapt_many,
        plain.predict_tasks,
        plain.score,
        plain.task_errors,
        plain.representation,
    ):
        with pytest.raises(ValueError, match=r"X: column 1 has values too large .*\(1e\+90"):
            method(many)
    assert vars(plain) == before
    assert all(vars(model)[k] is v for k, v in of_model.items())


@pytest.mark.filterwarnings("ignore:coverage")
@pytest.mark.filterwarnings("ignore:X. column 0 has the value")
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
    X, groups = np.round(tasks.X * 2.0**40), np.repeat(tasks.labels, tasks.sizes)
    as_integers = IndependentLearner().fit(X.astype(np.int64), tasks.y, groups=groups)
    as_floats = IndependentLearner().fit(X, tasks.y, groups=groups)
    np.testing.assert_array_equal(as_integers.task_weights_, as_floats.task_weights_)
    beyond = np.full(X.shape, 10**400, dtype=object)
    for call in (
        lambda: IndependentLearner().fit(beyond, tasks.y, groups=groups),
        lambda: TaskSet(beyond, tasks.y),
        lambda: TaskRegressor().fit(beyond, tasks.y),
        lambda: as_floats.predict(beyond, groups=groups),
    ):
        with pytest.raises(ValueError, match=r"X.* has an integer too large"):
            call()
    with pytest.raises(ValueError, match=r"y .*integer too large"):
        TaskSet(X, np.full(len(X), 10**400, dtype=object))


@pytest.mark.parametrize("name", [n for n in FEATURE_MAPS if n not in ("posterior", "vector")])
def test_maps_of_rows_refuse_by_name(name: str) -> None:
    tasks = make([1e200, 1.0, 1.0, 1.0], side=False)
    with pytest.raises(ValueError, match="X: column 0 has values too large"):
        get_feature_map(name, has_side_info=False).fit(tasks).transform(tasks)


@pytest.mark.parametrize("loss", ["absolute", "squared"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_task_alone(loss: str) -> None:
    task = make()[0]
    model = TaskRegressor(loss=loss).fit(task.X * 1e9, task.y * 1e9)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.dual_gap_)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="X: column 1 has values too large"):
        model.fit(task.X * np.array([1.0, 1e100]), task.y)
    assert vars(model) == before
