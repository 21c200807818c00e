"""Baselines: each against its definition."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.linear_model import Ridge

from tailored import TaskSet
from tailored.evaluation.baselines import BASELINES, DESCRIPTIONS

pytestmark = pytest.mark.usefixtures("short_fits_in_module")
NUMBERS, CLASSES, COUNTS = (BASELINES[kind] for kind in ("numbers", "classes", "counts"))


def draw(n_tasks=30, n_rows=8, seed=0):
    """Return tasks with intercepts of standard deviation 2 around an effect of side information,
    and noise 1.
    """
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(n_tasks), n_rows)
    X, side = rng.normal(size=(len(task), 2)), rng.normal(size=(n_tasks, 1))
    intercept = 5.0 + 3.0 * side[:, 0] + 2.0 * rng.normal(size=n_tasks)
    y = X @ [1.0, -2.0] + intercept[task] + rng.normal(size=len(task))
    return TaskSet(X, y, task, dict(enumerate(side)))


def people(kind, seed=0):
    """Return tasks with classes or counts."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(24), 7)
    x, region = rng.normal(size=(len(task), 1)), np.arange(24)[:, None] % 3
    scores = x + region[task] + rng.normal(size=24)[task][:, None]
    if kind == "classes":
        y = (rng.gumbel(size=(len(task), 3)) + scores * np.arange(3)).argmax(axis=1)
        return TaskSet(x, y, task, dict(enumerate(region)))
    hours = rng.uniform(1, 3, len(task))
    y = rng.poisson(hours * np.exp(0.3 * scores[:, 0]))
    return TaskSet(x, y, task, dict(enumerate(region)), exposure=hours)


def predict(baseline, tasks, n_support):
    support, query = tasks.support_query(n_support, shuffle=False)
    return clone(baseline).fit(tasks).predict_rows(support, query), support, query


def test_each_baseline_has_a_definition():
    names = {name for kind in BASELINES.values() for name in kind}
    assert names == set(DESCRIPTIONS)


def test_the_task_mean_has_one_row_with_the_overall_mean():
    tasks = draw()
    for n in (0, 3):
        found, support, query = predict(NUMBERS["task mean"], tasks, n)
        means = [(task.y.sum() + tasks.y.mean()) / (n + 1) for task in support]
        np.testing.assert_allclose(found, np.repeat(means, query.sizes))


def test_ridge_per_task_is_ridge_of_standardised_rows():
    tasks = draw()
    baseline = clone(NUMBERS["ridge per task"]).fit(tasks)
    alpha = baseline.estimator_.alpha
    assert alpha in baseline.alphas
    found = baseline.predict_rows(tasks, tasks)
    Z = (tasks.X - tasks.X.mean(axis=0)) / tasks.X.std(axis=0)
    rows = np.vstack([Z[:8], np.zeros(2)])  # and the mean of all rows
    model = Ridge(alpha=alpha).fit(rows, np.append(tasks.y[:8], tasks.y.mean()))
    np.testing.assert_allclose(found[:8], model.predict(Z[:8]))


@pytest.mark.parametrize("name", ["pooled ridge", "pooled boosting"])
def test_offsets_are_best_linear_predictions_of_random_intercepts(name):
    tasks = draw(200)
    baseline = clone(NUMBERS[name]).fit(tasks)
    if name == "pooled ridge":
        assert baseline.within_ == pytest.approx(1.0, rel=0.1)
        assert baseline.between_ == pytest.approx(4.0, rel=0.25)
    none, _, query = predict(NUMBERS[name], tasks, 0)
    some = baseline.predict_rows(query, query)
    residuals = (query.y - none).reshape(200, -1)
    shrinkage = baseline.between_ / (8 * baseline.between_ + baseline.within_)
    offsets = shrinkage * residuals.sum(axis=1)
    np.testing.assert_allclose(some, none + np.repeat(offsets, 8), rtol=1e-6)
    # The side information is read: without rows, differences of standard deviation 2 and the noise
    # remain.
    assert np.mean((none - query.y) ** 2) < 1.2 * (4.0 + 1.0)


def test_constants_are_frequencies_and_rates():
    tasks = people("classes")
    P = predict(CLASSES["constant"], tasks, 0)[0]
    counts = np.bincount(tasks.y.astype(int))
    # One further row has the frequencies with half an observation more of each class.
    further = (counts + 0.5) / (counts.sum() + 1.5)
    np.testing.assert_allclose(P[0], (counts + further) / (counts.sum() + 1))
    tasks = people("counts")
    found = predict(COUNTS["constant"], tasks, 0)[0]
    np.testing.assert_allclose(found, tasks.exposure * tasks.y.sum() / tasks.exposure.sum())


def test_pooled_regression_of_classes_is_penalised_maximum_likelihood():
    tasks = people("classes")
    rows = np.column_stack([tasks.X, np.repeat(tasks.side_info.astype(float), 7, axis=0)])
    X, y = (rows - rows.mean(axis=0)) / rows.std(axis=0), tasks.y.astype(int)
    shares = np.bincount(y) + 0.5

    def objective(w):
        w = w.reshape(3, 3)
        logs = log_softmax(X @ w[:, :2].T + w[:, 2], axis=1)
        mean = log_softmax(w[:, 2][None], axis=1)[0] @ shares / shares.sum()
        return 0.5 * (w[:, :2] ** 2).sum() - logs[np.arange(len(y)), y].sum() - mean

    w = minimize(objective, np.zeros(9), options={"gtol": 1e-8}).x.reshape(3, 3)
    expected = np.exp(log_softmax(X @ w[:, :2].T + w[:, 2], axis=1))
    found = predict(CLASSES["pooled regression"], tasks, 0)[0]
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_a_rate_without_slopes_is_a_closed_form():
    """Support rows at the mean of the features have the likelihood of one rate, with a row of
    exposure one.
    """
    tasks = people("counts")
    support = tasks.replace(X=np.full((len(tasks.y), 1), tasks.X.mean()))
    found = clone(COUNTS["regression per task"]).fit(tasks).predict_rows(support, support)
    prior = tasks.y.sum() / tasks.exposure.sum()
    y, hours = (np.add.reduceat(each, tasks.offsets[:-1]) for each in (tasks.y, tasks.exposure))
    expected = np.repeat((y + prior) / (hours + 1.0), tasks.sizes) * tasks.exposure
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("name", NUMBERS)
def test_frequencies_are_repeated_rows_and_order_does_not_matter(name):
    tasks = draw()
    often = np.arange(len(tasks.y)) % 3 + 1
    every = np.repeat(np.arange(len(tasks.y)), often)
    repeated = TaskSet(tasks.X[every], tasks.y[every], tasks.task_of_row[every])
    plain = tasks.replace(side_info=None)
    counted = plain.replace(frequency_weight=often.astype(float))
    baseline = clone(NUMBERS[name]).fit(plain)

    def predicted(support):
        if name == "mixed model":
            return baseline.predict_tasks(plain, support, coverage=None)["prediction"]
        return baseline.predict_rows(support, plain)

    np.testing.assert_allclose(predicted(counted), predicted(repeated), rtol=1e-8)
    if name != "mixed model":
        again = clone(NUMBERS[name]).fit(plain[::-1]).predict_rows(plain, plain)
        np.testing.assert_array_equal(again, predicted(plain))
