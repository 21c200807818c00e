"""Displays: their arrays compared with NumPy and the learner, and the figures drawn from them."""

import builtins
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from tailored.show.task_displays import own_fits

from tailored import (
    EffectsDisplay,
    EmpiricalBayesLearner,
    PriorPathDisplay,
    RowsDisplay,
    ShrinkageDisplay,
    TaskFitDisplay,
    TaskSet,
)
from tailored.evaluation import Evaluation

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

#: Arguments of each display.
CALLS = {
    EffectsDisplay: {},
    ShrinkageDisplay: {},
    TaskFitDisplay: {},
    PriorPathDisplay: {"column": 0},
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


# ---------------------------------------------------------------- effects


def test_effects_are_those_of_the_learner(schools):
    learner, tasks = schools[0], schools[1][:45]
    found = EffectsDisplay.from_estimator(learner, tasks, "x0", coverage=0.8)
    frame = learner.effects(tasks, coverage=0.8)
    mine = frame[frame["column"] == "x0"]
    np.testing.assert_array_equal(found.lower, mine["lower"])
    np.testing.assert_array_equal(found.upper, mine["upper"])
    np.testing.assert_array_equal(found.effects, mine["effect"])
    common = learner.summary().tables["effects"].columns["fixed effect"][0]
    assert found.fixed_effect == pytest.approx(common)
    # Sorted, and filled if the interval excludes the fixed effect.
    filled = next(line for line in found.ax_.lines if line.get_label() == "interval excludes it")
    apart = (found.lower > common) | (found.upper < common)
    np.testing.assert_allclose(filled.get_xdata(), np.sort(found.effects[apart]))


def test_differences_to_prior_means_that_depend_on_side_information():
    rng = np.random.default_rng(0)
    side, task = np.repeat([[0.0], [6.0]], 30, axis=0), np.repeat(np.arange(60), 10)
    y = (side[:, 0] + rng.normal(size=60))[task] + 0.5 * rng.normal(size=600)
    tasks = TaskSet(rng.normal(size=(600, 1)), y, task, side_info=side[task])
    learner = EmpiricalBayesLearner().fit(tasks)
    found = EffectsDisplay.from_estimator(learner, tasks, "(intercept)")
    assert np.ptp(found.prior) == pytest.approx(6.0, abs=1.0)
    drawn = np.concatenate(
        [line.get_xdata() for line in found.ax_.lines if line.get_marker() == "o"]
    )
    order = np.argsort(found.effects - found.prior)
    np.testing.assert_allclose(
        np.sort(drawn)[[0, -1]], (found.effects - found.prior)[order[[0, -1]]]
    )
    assert "minus prior mean" in found.ax_.get_xlabel()


def test_at_most_45_tasks_are_drawn_with_their_names(schools):
    learner, tasks = schools
    few = EffectsDisplay.from_estimator(learner, tasks[:5])
    assert len(few.ax_.get_yticklabels()) == 5
    many = EffectsDisplay.from_estimator(learner, TaskSet.concat([tasks] * 9, relabel=True))
    names = [label.get_text() for label in many.ax_.get_yticklabels()]
    assert len(names) == 45
    ends = many.effects.argmin(), many.effects.argmax()
    assert [many.effects[int(name)] for name in (names[0], names[-1])] == [
        many.effects[end] for end in ends
    ]
    assert many.ax_.get_ylabel() == "45 of 540 tasks, from the lowest to the highest"
    long = tasks[:2].replace(labels=np.array(["a" * 90, "b" * 90]))
    labels = EffectsDisplay.from_estimator(learner, long).ax_.get_yticklabels()
    assert max(len(label.get_text()) for label in labels) <= 22


def test_columns_and_tasks_that_do_not_exist(schools):
    columns = r"column: there is no column 'age'. The columns are 'x0', 'x1', '\(intercept\)'."
    with pytest.raises(ValueError, match=columns):
        EffectsDisplay.from_estimator(*schools, "age")
    with pytest.raises(ValueError, match="labels: there is no task 'nobody' in this set"):
        TaskFitDisplay.from_estimator(*schools, "nobody")


def test_own_fits_are_least_squares(schools):
    _, tasks = schools
    found = own_fits(tasks, True)
    for t in (0, 7):
        X = np.column_stack([tasks[t].X, np.ones(len(tasks[t].y))])
        np.testing.assert_allclose(
            found[t], np.linalg.lstsq(X, tasks[t].y, rcond=None)[0], rtol=1e-8
        )


def test_own_fits_are_nan_for_unidentified_coefficients():
    """A constant column is collinear with the intercept; one row does not identify two coefficients."""
    x = np.array([0.0, 1.0, 2.0, 4.0])
    y = 3.0 * x + 1.0
    tasks = TaskSet(
        np.append(1e-6 * x, [1.0, 1.0, 5.0])[:, None],
        np.append(y, [1.0, 2.0, 3.0]),
        [0] * 4 + [1, 1, 2],
    )
    found = own_fits(tasks, True)
    np.testing.assert_allclose(found[0], [3e6, 1.0])
    assert np.isnan(found[1:]).all()


def test_shrinkage_from_own_to_tailored_fits(schools):
    learner, tasks = schools
    found = ShrinkageDisplay.from_estimator(learner, tasks, ["x0", "(intercept)"])
    frame = learner.effects(tasks)
    np.testing.assert_array_equal(found.tailored[:, 0], frame[frame["column"] == "x0"]["effect"])
    # Shrinkage reduces the spread of the coefficients.
    assert (found.tailored.std(axis=0) < found.own.std(axis=0)).all()
    with pytest.raises(ValueError, match="columns: there is no column 'zz'"):
        ShrinkageDisplay.from_estimator(learner, tasks, "zz")
    with pytest.raises(ValueError, match="columns: expected two columns, got 3"):
        ShrinkageDisplay.from_estimator(learner, tasks, [0, 1, 2])


# ---------------------------------------------------------------- one task


def test_task_fit(schools):
    learner, tasks = schools
    found = TaskFitDisplay.from_estimator(learner, tasks, "school 3", "x0", coverage=0.8)
    task = tasks[3]
    model = learner.adapt(task.X, task.y, side_info=tasks.side_info[3])
    at = np.column_stack([found.grid, np.full(len(found.grid), task.X[:, 1].mean())])
    np.testing.assert_allclose(found.prediction, model.predict(at))
    np.testing.assert_allclose(
        np.stack([found.lower, found.upper], axis=1), model.predict_interval(at, 0.8)
    )
    np.testing.assert_allclose(found.prior, learner.adapt(side_info=tasks.side_info[3]).predict(at))
    # The contribution of the other column is subtracted.
    np.testing.assert_allclose(
        found.y, task.y - model.coef_[1] * (task.X[:, 1] - task.X[:, 1].mean())
    )
    assert "school 3" in found.ax_.get_title()
    few = TaskFitDisplay.from_estimator(learner, tasks, "school 3", "x1")
    np.testing.assert_array_equal(few.grid, [0.0, 1.0])


def test_task_fit_of_rates():
    """The band is that of the task's mean exposure: nearly all rows with exposure 1 have the count 0."""
    rng = np.random.default_rng(4)
    exposure, x = rng.uniform(1e6, 2e6, 120), rng.normal(size=120)
    rates = 1e-4 * np.exp(0.1 * x + 0.2 * rng.normal(size=20).repeat(6))
    tasks = TaskSet(
        x[:, None], rng.poisson(exposure * rates), np.arange(20).repeat(6), exposure=exposure
    )
    learner = EmpiricalBayesLearner(loss="poisson", varying=[]).fit(tasks)
    found = TaskFitDisplay.from_estimator(learner, tasks, 3)
    width = (
        2 * 1.645 * np.sqrt(found.prediction / exposure[18:24].mean())
    )  # of Poisson counts alone
    assert (found.lower < found.prediction).all()
    assert (found.prediction < found.upper).all()
    ratio = (found.upper - found.lower) / width
    assert ((ratio > 0.9) & (ratio < 1.6)).all()


# ---------------------------------------------------------------- error and coverage by rows


def test_rows_from_an_evaluation():
    """Errors are those of the evaluation; a baseline far above the others does not set the axis."""
    errors = np.stack(
        [np.full((2, 6), 1.0), np.full((2, 6), 1.2), np.array([[50.0] * 6, [2.0] * 6])]
    )
    inside = np.tile([[1.0, 1.0, 1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 0.5, 0.6]], (3, 1, 1))
    scores = {"absolute error": errors, "covered": inside}
    methods = ("tailored", "mixed model", "ridge per task")
    evaluation = Evaluation(methods, (0, 5), np.arange(6), scores, None, 0.9)
    found = RowsDisplay.from_evaluation(evaluation)
    error_axes, coverage_axes = found.ax_
    (ridge,) = (line for line in error_axes.lines if line.get_label() == "ridge per task")
    np.testing.assert_array_equal(ridge.get_ydata(), [50.0, 2.0])
    np.testing.assert_allclose(coverage_axes.lines[0].get_ydata(), 100 * inside[0].mean(axis=1))
    assert error_axes.get_ylim()[1] < 5.0
    assert coverage_axes.get_ylim() == (0.0, 102.0)
    (bars,) = coverage_axes.containers[0].lines[2]
    half = 200 * inside[0].std(axis=1, ddof=1) / np.sqrt(6)
    lengths = [np.ptp(each[:, 1]) for each in bars.get_segments()]
    np.testing.assert_allclose(lengths, 2 * half)
    unknown = {**scores, "covered": np.full((3, 2, 6), np.nan)}
    without = RowsDisplay.from_evaluation(replace(evaluation, scores=unknown))
    assert len(without.figure_.axes) == 1


# ---------------------------------------------------------------- the prior


def test_path_of_a_coefficient_along_side_information(schools):
    learner, tasks = schools
    found = PriorPathDisplay.from_estimator(learner, tasks, "s0")
    at = np.column_stack([found.grid, np.full(61, np.median(tasks.side_info[:, 1].astype(float)))])
    weights, errors = learner.coefficients(at, return_std=True)
    # The side information shifts the intercept by 1.5 per unit.
    assert found.coefficient == "(intercept)"
    np.testing.assert_allclose(found.values, weights[:, 2])
    np.testing.assert_allclose(found.errors, errors[:, 2])
    assert np.ptp(found.values) / np.ptp(found.grid) == pytest.approx(1.5, rel=0.25)
    (band,) = found.ax_.collections
    top = band.get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx((found.values + 1.96 * found.errors).max(), rel=1e-3)
    slope = PriorPathDisplay.from_estimator(learner, tasks, 0, coefficient="x1")
    np.testing.assert_allclose(slope.values, weights[:, 1])
    fixed = PriorPathDisplay.from_estimator(learner, tasks, 1)
    assert "does not depend on s1" in fixed.ax_.get_title()
    with pytest.raises(ValueError, match="coefficient: there is no column 'age'"):
        PriorPathDisplay.from_estimator(learner, tasks, 0, coefficient="age")
    with pytest.raises(ValueError, match="tasks: these tasks have no side information"):
        PriorPathDisplay.from_estimator(learner, tasks.replace(side_info=None), 0)


@pytest.mark.parametrize("names", [["a", "b", "rare"], ["1", "2", "3"]])
def test_path_along_categories(names):
    rng = np.random.default_rng(0)
    kinds, task = np.array(names)[np.append(np.arange(59) % 2, 2)], np.repeat(np.arange(60), 8)
    X = rng.normal(size=(480, 1))
    y = (1.0 + 2.0 * (kinds == names[1]))[task] * X[:, 0] + 0.3 * rng.normal(size=480)
    tasks = TaskSet(X, y, task, side_info=kinds[task, None])
    learner = EmpiricalBayesLearner().fit(tasks)
    found = PriorPathDisplay.from_estimator(learner, tasks, 0)
    assert found.grid.tolist() == names
    assert [tick.get_text() for tick in found.ax_.get_xticklabels()] == names
    np.testing.assert_allclose(found.values[:2], [1.0, 3.0], atol=0.15)
    assert found.errors[2] > found.errors[0]
