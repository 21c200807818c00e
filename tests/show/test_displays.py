"""Displays: their arrays compared with NumPy and the learner, and the figures drawn from them."""

import builtins

import matplotlib.pyplot as plt
import numpy as np
import pytest

from tailored import (
    EffectsDisplay,
    EmpiricalBayesLearner,
    PriorPathDisplay,
    ShrinkageDisplay,
    TaskFitDisplay,
    TaskSet,
)
from tailored.show.displays import own_fits

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

#: Arguments of each display.
CALLS = {
    EffectsDisplay: {},
    ShrinkageDisplay: {},
    TaskFitDisplay: {},
    PriorPathDisplay: {"column": "s0"},
}


@pytest.mark.parametrize("display", CALLS)
def test_draws_on_given_axes_and_on_its_own(display, schools):
    _, ax = plt.subplots()
    found = display.from_estimator(*schools, **CALLS[display], ax=ax)
    assert found.ax_ is ax
    assert found.figure_ is ax.figure
    assert ax.get_xlabel()
    again = found.plot()
    assert again is found
    assert found.figure_ is not ax.figure
    found.figure_.canvas.draw()


def test_missing_matplotlib_is_an_error(schools, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **others):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install '.\[plot\]'"):
        EffectsDisplay.from_estimator(*schools)


def test_columns_and_tasks_that_do_not_exist(schools):
    learner, tasks = schools
    columns = "column must be one of 'x0', 'x1', '.intercept.'; got 'age'"
    for display, set_, options, message in [
        (EffectsDisplay, tasks, {"column": "age"}, columns),
        (TaskFitDisplay, tasks, {"task": "nobody"}, "there is no task 'nobody' in this set"),
        (ShrinkageDisplay, tasks, {"columns": ["x0", "zz"]}, "columns must be one of 'x0'"),
        (PriorPathDisplay, tasks, {"column": "age"}, "column must be one of 's0', 's1'"),
        (PriorPathDisplay, tasks, {"column": "s0", "coefficient": "age"}, "coefficient must be"),
        (PriorPathDisplay, tasks.replace(side_info=None), {"column": "s0"}, "no side information"),
    ]:
        with pytest.raises(ValueError, match=message):
            display.from_estimator(learner, set_, **options)


def drawn_markers(ax):
    return np.concatenate([line.get_xdata() for line in ax.lines if line.get_marker() == "o"])


def test_effects_are_those_of_the_learner(schools):
    learner, tasks = schools[0], schools[1][:45]
    found = EffectsDisplay.from_estimator(learner, tasks, "x0")
    frame = learner.effects(tasks)
    mine = frame[frame["column"] == "x0"]
    np.testing.assert_array_equal(found.lower, mine["lower"])
    np.testing.assert_array_equal(found.upper, mine["upper"])
    np.testing.assert_array_equal(found.effects, mine["effect"])
    common = learner.summary().tables["effects"].columns["fixed effect"][0]
    assert found.fixed_effect == pytest.approx(common)
    np.testing.assert_allclose(drawn_markers(found.ax_), np.sort(found.effects))


def test_differences_to_prior_means_that_depend_on_side_information():
    rng = np.random.default_rng(0)
    side, task = np.repeat([[0.0], [6.0]], 30, axis=0), np.repeat(np.arange(60), 10)
    y = (side[:, 0] + rng.normal(size=60))[task] + 0.5 * rng.normal(size=600)
    tasks = TaskSet(rng.normal(size=(600, 1)), y, task, side_info=side[task])
    learner = EmpiricalBayesLearner().fit(tasks)
    found = EffectsDisplay.from_estimator(learner, tasks, "(intercept)")
    assert np.ptp(found.prior) == pytest.approx(6.0, abs=1.0)
    differences = found.effects - found.prior
    ends = drawn_markers(found.ax_)[[0, -1]]
    np.testing.assert_allclose(ends, [differences.min(), differences.max()])
    assert "minus prior mean" in found.ax_.get_xlabel()


def test_at_most_45_tasks_are_drawn_with_their_names(schools):
    learner, tasks = schools
    few = EffectsDisplay.from_estimator(learner, tasks[:5])
    assert len(few.ax_.get_yticklabels()) == 5
    many = EffectsDisplay.from_estimator(learner, TaskSet.concat([tasks] * 9, relabel=True), "x0")
    names = [label.get_text() for label in many.ax_.get_yticklabels()]
    assert len(names) == 45
    shown = [many.effects[int(name)] for name in (names[0], names[-1])]
    assert shown == [many.effects.min(), many.effects.max()]
    assert many.ax_.get_ylabel() == "45 of 540 tasks, from the lowest to the highest"
    long = tasks[:2].replace(labels=np.array(["a" * 90, "b" * 90]))
    labels = EffectsDisplay.from_estimator(learner, long).ax_.get_yticklabels()
    assert max(len(label.get_text()) for label in labels) <= 22


def test_own_fits_are_least_squares(schools):
    """NaN for a constant column, which is collinear with the intercept, and for one row and two
    coefficients.
    """
    _, tasks = schools
    X = np.column_stack([tasks[7].X, np.ones(len(tasks[7].y))])
    expected = np.linalg.lstsq(X, tasks[7].y, rcond=None)[0]
    np.testing.assert_allclose(own_fits(tasks, True)[7], expected, rtol=1e-8)
    x = np.array([0.0, 1.0, 2.0, 4.0])
    rows = np.append(1e-6 * x, [1.0, 1.0, 5.0])[:, None]
    targets = np.append(3.0 * x + 1.0, [1.0, 2.0, 3.0])
    found = own_fits(TaskSet(rows, targets, [0] * 4 + [1, 1, 2]), True)
    np.testing.assert_allclose(found[0], [3e6, 1.0])
    assert np.isnan(found[1:]).all()


def test_shrinkage_from_own_to_tailored_fits(schools):
    learner, tasks = schools
    found = ShrinkageDisplay.from_estimator(learner, tasks, ["x0", "(intercept)"])
    frame = learner.effects(tasks)
    np.testing.assert_array_equal(found.tailored[:, 0], frame[frame["column"] == "x0"]["effect"])
    # Shrinkage reduces the spread of the coefficients.
    assert (found.tailored.std(axis=0) < found.own.std(axis=0)).all()
    line = found.ax_.lines[3]
    np.testing.assert_array_equal(line.get_xdata(), [found.own[3, 0], found.tailored[3, 0]])


def test_task_fit(schools):
    learner, tasks = schools
    found = TaskFitDisplay.from_estimator(learner, tasks, "school 3", "x0")
    task, side = tasks[3], tasks.side_info[3]
    model = learner.adapt(task.X, task.y, side_info=side)
    at = np.column_stack([found.grid, np.full(len(found.grid), task.X[:, 1].mean())])
    np.testing.assert_allclose(found.prediction, model.predict(at))
    bounds = np.stack([found.lower, found.upper], axis=1)
    np.testing.assert_allclose(bounds, model.predict_interval(at))
    np.testing.assert_allclose(found.prior, learner.adapt(side_info=side).predict(at))
    # The contribution of the other column is subtracted.
    other = model.coef_[1] * (task.X[:, 1] - task.X[:, 1].mean())
    np.testing.assert_allclose(found.y, task.y - other)
    assert "school 3" in found.ax_.get_title()
    few = TaskFitDisplay.from_estimator(learner, tasks, "school 3", "x1")
    np.testing.assert_array_equal(few.grid, [0.0, 1.0])


def test_a_task_fit_is_drawn_over_a_numeric_column():
    """The effect of a 0/1 column is larger and varies more, but a line over two values shows
    little.
    """
    rng = np.random.default_rng(1)
    sex, small, x = rng.integers(0, 2, 360), rng.normal(size=360), rng.uniform(0, 10, 360)
    task = np.repeat(np.arange(40), 9)
    y = x + 5.0 * rng.normal(size=40)[task] * sex + rng.normal(size=40)[task]
    tasks = TaskSet(np.column_stack([sex, small, x]), y + rng.normal(size=360), task)
    found = TaskFitDisplay.from_estimator(EmpiricalBayesLearner(varying=[0]).fit(tasks), tasks)
    assert found.column == "x2"


def test_task_fit_of_rates():
    """The band is that of the task's mean exposure: nearly all rows with exposure 1 have the count
    0.
    """
    rng = np.random.default_rng(4)
    exposure, x = rng.uniform(1e6, 2e6, 120), rng.normal(size=120)
    rates = 1e-4 * np.exp(0.1 * x + 0.2 * rng.normal(size=20).repeat(6))
    tasks = TaskSet(
        x[:, None], rng.poisson(exposure * rates), np.arange(20).repeat(6), exposure=exposure
    )
    learner = EmpiricalBayesLearner(loss="poisson", varying=[]).fit(tasks)
    found = TaskFitDisplay.from_estimator(learner, tasks, 3)
    np.testing.assert_allclose(found.y, tasks.y[18:24] / exposure[18:24])
    poisson = 2 * 1.645 * np.sqrt(found.prediction / exposure[18:24].mean())
    assert (found.lower < found.prediction).all()
    assert (found.prediction < found.upper).all()
    ratio = (found.upper - found.lower) / poisson
    assert ((ratio > 0.9) & (ratio < 1.6)).all()


def test_path_of_a_coefficient_along_side_information(schools):
    learner, tasks = schools
    found = PriorPathDisplay.from_estimator(learner, tasks, "s0")
    median = np.median(tasks.side_info[:, 1].astype(float))
    at = np.column_stack([found.grid, np.full(len(found.grid), median)])
    weights, errors = learner.coefficients(at, return_std=True)
    # The side information shifts the intercept by 1.5 per unit.
    assert found.coefficient == "(intercept)"
    np.testing.assert_allclose(found.values, weights[:, 2])
    np.testing.assert_allclose(found.errors, errors[:, 2])
    assert np.ptp(found.values) / np.ptp(found.grid) == pytest.approx(1.5, rel=0.25)
    (band,) = found.ax_.collections
    top = band.get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx((found.values + 1.96 * found.errors).max(), rel=1e-3)
    slope = PriorPathDisplay.from_estimator(learner, tasks, "s0", coefficient="x1")
    np.testing.assert_allclose(slope.values, weights[:, 1])


@pytest.mark.parametrize("names", [["a", "b", "rare"], ["1", "2", "3"]])
def test_path_along_categories(names):
    rng = np.random.default_rng(0)
    kinds, task = np.array(names)[np.append(np.arange(59) % 2, 2)], np.repeat(np.arange(60), 8)
    X = rng.normal(size=(480, 1))
    y = (1.0 + 2.0 * (kinds == names[1]))[task] * X[:, 0] + 0.3 * rng.normal(size=480)
    tasks = TaskSet(X, y, task, side_info=kinds[task, None])
    learner = EmpiricalBayesLearner().fit(tasks)
    found = PriorPathDisplay.from_estimator(learner, tasks, "s0")
    assert found.grid.tolist() == names
    assert [tick.get_text() for tick in found.ax_.get_xticklabels()] == names
    np.testing.assert_allclose(found.values[:2], [1.0, 3.0], atol=0.15)
    assert found.errors[2] > found.errors[0]
