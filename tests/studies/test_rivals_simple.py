"""Baselines of the benchmark: each against its definition, and all behind one interface."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import Ridge

from studies.rivals import SIMPLE
from studies.rivals.base import MixedModel, PooledRidge, RidgePerTask
from tailored import TaskSet

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


@pytest.fixture(scope="module")
def ratings():
    """40 users, 8 items: y = 3 + item + user + noise, rows one-hot."""
    rng = np.random.default_rng(0)
    items = np.linspace(-1.0, 1.0, 8)
    entries = []
    for _ in range(40):
        chosen = rng.choice(8, size=6, replace=False)
        y = 3.0 + items[chosen] + rng.normal() + 0.1 * rng.normal(size=6)
        entries.append((np.eye(8)[chosen], y))
    return TaskSet.from_tasks(entries)


@pytest.mark.parametrize("name", SIMPLE)
def test_interface(name, ratings):
    train, (support, query) = ratings[:30], ratings[30:].support_query(4, random_state=0)
    baseline = SIMPLE[name]()
    assert clone(baseline).get_params() == baseline.get_params()
    baseline.fit(train)
    weights = baseline.adapt_many(support)
    assert weights.shape == (10, 9)
    prediction = baseline.predict_rows(support, query)
    own = np.repeat(weights, query.sizes, axis=0)
    expected = np.einsum("nd,nd->n", query.X, own[:, :-1]) + own[:, -1]
    np.testing.assert_allclose(prediction, expected, atol=1e-9)
    errors = np.abs(prediction - query.y).reshape(10, -1).mean(axis=1)
    np.testing.assert_allclose(baseline.task_errors(support, query), errors)
    sparse = TaskSet.from_tasks([(sp.csr_array(task.X), task.y) for task in support])
    np.testing.assert_allclose(baseline.adapt_many(sparse), weights, atol=1e-9)


def test_ridge_per_task_is_ridge():
    rng = np.random.default_rng(1)
    tasks = TaskSet.from_tasks(
        [(X, X @ rng.normal(size=3) + 5.0) for X in rng.normal(size=(20, 10, 3))]
    )
    baseline = RidgePerTask().fit(tasks)
    few = tasks[0]
    expected = Ridge(alpha=baseline.alpha_).fit(few.X, few.y)
    weights = baseline.adapt_many(tasks[:1])[0]
    np.testing.assert_allclose(weights, [*expected.coef_, expected.intercept_])


def test_pooled_ridge_finds_the_common_slope():
    rng = np.random.default_rng(2)
    slope = np.array([1.0, -2.0, 0.5])
    entries = []
    for _ in range(50):
        X = rng.normal(size=(8, 3))
        entries.append((X, X @ slope + 4.0 + rng.normal() + 0.1 * rng.normal(size=8)))
    baseline = PooledRidge().fit(TaskSet.from_tasks(entries))
    coef, common = baseline.weights_[:-1], baseline.weights_[-1]
    np.testing.assert_allclose(coef, slope, atol=0.2)
    X, y = entries[0]
    intercept = baseline.adapt_many(TaskSet.from_tasks(entries[:1]))[0, -1]
    left = y - X @ coef - common
    assert intercept == pytest.approx(common + left.sum() / (8 + baseline.shrinkage_))
    assert baseline.shrinkage_ <= 1.0  # offsets are large beside the noise


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_mixed_model(fit_intercept):
    """Parameters are recovered in raw units, and weights are posterior means."""
    rng = np.random.default_rng(3)
    columns = np.array([1.0, 100.0])
    b, W = np.array([2.0, -1.0]), np.array([[1.0, 0.5], [0.5, 1.0]])
    entries = []
    for _ in range(800):
        X = rng.normal(size=(6, 2)) + (0.0 if fit_intercept else 1.0)
        y = X @ rng.multivariate_normal(b, W) + 0.5 * rng.normal(size=6)
        entries.append((X * columns, y + 7.0 * fit_intercept))
    baseline = MixedModel(fit_intercept=fit_intercept).fit(TaskSet.from_tasks(entries))
    np.testing.assert_allclose(baseline.mean_[:2] * columns, b, atol=0.15)
    np.testing.assert_allclose(
        baseline.covariance_[:2, :2] * np.outer(columns, columns), W, atol=0.2
    )
    assert baseline.noise_ == pytest.approx(0.25, rel=0.1)
    X, y = entries[0]
    weights = baseline.adapt_many(TaskSet.from_tasks(entries[:1]))[0]
    rows = np.hstack([X, np.ones((6, 1))]) if fit_intercept else X
    gain = baseline.covariance_ @ rows.T
    gain = gain @ np.linalg.inv(rows @ gain + baseline.noise_ * np.eye(6))
    expected = baseline.mean_ + gain @ (y - rows @ baseline.mean_)
    np.testing.assert_allclose(weights[:2] * columns, expected[:2] * columns, atol=1e-6)
    assert weights[2] == pytest.approx(expected[2] if fit_intercept else 0.0, abs=1e-6)
