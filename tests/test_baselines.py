"""Baselines: each against what its sentence says, and all behind one interface."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import Ridge

from tailored import TaskRegressor, TaskSet
from tailored.baselines import (
    BASELINES,
    GlobalMedian,
    ItemUserBias,
    MixedModel,
    PooledRidge,
    RidgePerTask,
    TaskMean,
    TaskMedian,
)


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


@pytest.mark.parametrize("name", BASELINES)
def test_interface(name, ratings):
    train, (support, query) = ratings[:30], ratings[30:].support_query(4, random_state=0)
    baseline = BASELINES[name](clip=(2.0, 4.0))
    assert clone(baseline).get_params() == baseline.get_params()
    baseline.fit(train)
    weights = baseline.adapt_many(support)
    assert weights.shape == (10, 9)
    errors = baseline.task_errors(support, query)
    for t, (few, asked) in enumerate(zip(support, query, strict=True)):
        model = baseline.adapt(few.X, few.y)
        np.testing.assert_allclose(np.append(model.coef_, model.intercept_), weights[t], atol=1e-9)
        prediction = model.predict(asked.X)
        np.testing.assert_allclose(
            prediction, np.clip(asked.X @ weights[t, :-1] + weights[t, -1], 2.0, 4.0), atol=1e-9
        )
        assert errors[t] == pytest.approx(np.abs(prediction - asked.y).mean())
    sparse = TaskSet.from_tasks([(sp.csr_array(task.X), task.y) for task in support])
    np.testing.assert_allclose(baseline.adapt_many(sparse), weights, atol=1e-9)
    empty = TaskSet.from_tasks([(np.empty((0, 8)), np.empty(0))])
    assert np.isfinite(baseline.adapt_many(empty)).all()


@pytest.mark.parametrize("name", BASELINES)
def test_a_task_without_rows_gets_what_is_shared(name, ratings):
    baseline = BASELINES[name]().fit(ratings)
    zero = np.zeros(8)
    expected = {
        "global median": lambda: [*zero, np.median(ratings.y)],
        "task mean": lambda: [*zero, ratings.y.mean()],
        "task median": lambda: [*zero, np.median(ratings.y)],
        "ridge per task": lambda: [*zero, 0.0],
        "pooled ridge + task offset": lambda: [*baseline.coef_, baseline.intercept_],
        "item and user bias": lambda: [*baseline.items_, baseline.mean_],
        "mixed model": lambda: baseline.mean_,
    }[name]()
    model = baseline.adapt(np.empty((0, 8)), np.empty(0))
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), expected, atol=1e-12)


@pytest.mark.parametrize("name", BASELINES)
def test_clip_to_the_training_targets(name, ratings):
    baseline = BASELINES[name](clip="train").fit(ratings)
    assert baseline.clip_ == (ratings.y.min(), ratings.y.max())
    model = baseline.adapt(ratings[0].X, ratings[0].y + 100.0)
    prediction = model.predict(ratings.X)
    assert prediction.min() >= ratings.y.min()
    assert prediction.max() <= ratings.y.max()
    if name != "global median":
        assert prediction.max() == ratings.y.max()


def test_constants(ratings):
    few = ratings[3]
    assert GlobalMedian().fit(ratings).adapt(few.X, few.y).intercept_ == np.median(ratings.y)
    assert TaskMean().fit(ratings).adapt(few.X, few.y).intercept_ == few.y.mean()
    assert TaskMedian().fit(ratings).adapt(few.X, few.y).intercept_ == np.median(few.y)
    nothing = few.X[:0], few.y[:0]
    assert TaskMean().fit(ratings).adapt(*nothing).intercept_ == pytest.approx(ratings.y.mean())
    assert TaskMedian().fit(ratings).adapt(*nothing).intercept_ == np.median(ratings.y)


def test_ridge_per_task_is_ridge():
    rng = np.random.default_rng(1)
    tasks = TaskSet.from_tasks([(X, X @ rng.normal(size=3) + 5.0) for X in rng.normal(size=(20, 10, 3))])
    baseline = RidgePerTask(alphas=(0.1, 1.0)).fit(tasks)
    assert baseline.centred_
    few = tasks[0]
    expected = Ridge(alpha=baseline.alpha_).fit(few.X, few.y)
    model = baseline.adapt(few.X, few.y)
    np.testing.assert_allclose(model.coef_, expected.coef_)
    assert model.intercept_ == pytest.approx(expected.intercept_)


def test_pooled_ridge_finds_the_common_slope():
    rng = np.random.default_rng(2)
    slope = np.array([1.0, -2.0, 0.5])
    entries = []
    for _ in range(50):
        X = rng.normal(size=(8, 3))
        entries.append((X, X @ slope + 4.0 + rng.normal() + 0.1 * rng.normal(size=8)))
    baseline = PooledRidge().fit(TaskSet.from_tasks(entries))
    np.testing.assert_allclose(baseline.coef_, slope, atol=0.2)
    X, y = entries[0]
    model = baseline.adapt(X, y)
    left = y - X @ baseline.coef_ - baseline.intercept_
    assert model.intercept_ == pytest.approx(baseline.intercept_ + left.sum() / (8 + baseline.shrinkage_))
    assert baseline.shrinkage_ <= 1.0  # offsets are large beside the noise


def test_item_and_user_effects(ratings):
    baseline = ItemUserBias().fit(ratings)
    items = np.linspace(-1.0, 1.0, 8)
    assert np.corrcoef(baseline.items_, items)[0, 1] > 0.9
    few = ratings[0]
    model = baseline.adapt(few.X, few.y)
    assert np.abs(model.predict(few.X) - few.y).mean() < 0.4
    with pytest.raises(ValueError, match="one-hot"):
        ItemUserBias().fit(TaskSet.from_tasks([(np.ones((2, 3)), [1.0, 2.0])]))


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
    np.testing.assert_allclose(baseline.covariance_[:2, :2] * np.outer(columns, columns), W, atol=0.2)
    assert baseline.noise_ == pytest.approx(0.25, rel=0.1)
    X, y = entries[0]
    model = baseline.adapt(X, y)
    rows = np.hstack([X, np.ones((6, 1))]) if fit_intercept else X
    gain = baseline.covariance_ @ rows.T
    gain = gain @ np.linalg.inv(rows @ gain + baseline.noise_ * np.eye(6))
    expected = baseline.mean_ + gain @ (y - rows @ baseline.mean_)
    np.testing.assert_allclose(model.coef_ * columns, expected[:2] * columns, atol=1e-6)
    assert model.intercept_ == pytest.approx(expected[2] if fit_intercept else 0.0, abs=1e-6)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_mixed_model_is_a_prior_of_tasks(fit_intercept, ratings):
    """Its closed form and the within-task solver, given the same prior, agree."""
    baseline = MixedModel(fit_intercept=fit_intercept, clip=(1.0, 5.0)).fit(ratings)
    prior = baseline.prior_
    units = prior.units
    covariance = units.raw_representation(prior.conditioning.C) * baseline.noise_
    np.testing.assert_allclose(covariance, baseline.covariance_, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(units.raw_weights(prior.bias.constant.copy()), baseline.mean_)
    assert (prior.size_exponent, prior.fit_intercept, prior.clip) == (1, fit_intercept, (1.0, 5.0))
    task = ratings[:1]
    solved, closed = TaskRegressor.adapted(prior, task), baseline.adapt(task.X, task.y)
    np.testing.assert_allclose(solved.coef_, closed.coef_, atol=1e-6)
    assert solved.intercept_ == pytest.approx(closed.intercept_, abs=1e-6)
    np.testing.assert_allclose(solved.predict(ratings.X), closed.predict(ratings.X), atol=1e-5)


def test_order_of_strength(ratings):
    train, (support, query) = ratings[:30], ratings[30:].support_query(4, random_state=0)
    error = {name: kind().fit(train).task_errors(support, query).mean() for name, kind in BASELINES.items()}
    assert error["item and user bias"] < error["task mean"] < error["global median"]
    assert error["mixed model"] < error["task mean"]
