"""Rivals of other programs: the best linear predictor, what lme4 estimates, and trees without a
leak.
"""

import logging

import numpy as np
import pytest

from studies.benchmark.methods import predictions
from studies.rivals import BoostedMixedModel, Lme4, MixedEffectsForest
from studies.rivals.base import MixedModel, PooledBoosting
from studies.rivals.mixed_models import FULL, random_effects
from tailored import TaskSet

COVARIANCE = np.array([[0.5, 0.3], [0.3, 1.0]])


def skip_if_missing(rival):
    if reason := rival.missing():
        pytest.skip(reason)


@pytest.fixture
def lme4():
    """Skip a test without R and lme4; `Lme4.missing` starts R, so it is not called during
    collection.
    """
    skip_if_missing(Lme4)


def simulate(n_tasks, n_rows, seed=0, side=True):
    """A slope, an intercept that the side information shifts by 2 s, variances `COVARIANCE` and
    `NOISE`.
    """
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        x, s = 2.0 * rng.normal(size=(n_rows, 1)), rng.normal(size=1)
        u = rng.multivariate_normal([0.0, 0.0], COVARIANCE)
        y = (3.0 + u[0]) * x[:, 0] + 10.0 + u[1] + 0.5 * rng.normal(size=n_rows)
        entries.append((x, y + 2.0 * s[0], s) if side else (x, y))
    return TaskSet.from_tasks(entries)


# --- the best linear predictor


@pytest.mark.parametrize("n", [1, 2, 7])
def test_best_linear_predictor_is_the_conditional_mean(n):
    """E[u | y] from the precision of the joint Gaussian of (u, y)."""
    rng = np.random.default_rng(n)
    Z, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    root = rng.normal(size=(3, 3))
    W = root @ root.T
    joint = np.block([[W, W @ Z.T], [Z @ W, Z @ W @ Z.T + 0.3 * np.eye(n)]])
    precision = np.linalg.inv(joint)
    expected = -np.linalg.solve(precision[:3, :3], precision[:3, 3:] @ y)
    np.testing.assert_allclose(random_effects(Z, y, W, 0.3), expected, rtol=1e-6)


# --- lme4


@pytest.mark.usefixtures("lme4")
def test_agrees_with_our_mixed_model():
    """The same likelihood, maximised by another program: the same model, and the same weights of
    new tasks.
    """
    tasks = simulate(60, 8, side=False)
    train, support = tasks[:40], tasks[40:].support_query(3, random_state=0)[0]
    theirs = Lme4(forms=(FULL,), reml=False).fit(train)
    ours = MixedModel(fit_intercept=True).fit(train)
    np.testing.assert_allclose(theirs.weights_, ours.mean_, rtol=1e-3)
    np.testing.assert_allclose(theirs.covariance_, ours.covariance_, rtol=2e-2, atol=1e-3)
    assert theirs.noise_ == pytest.approx(ours.noise_, rel=1e-2)
    np.testing.assert_allclose(theirs.adapt_many(support), ours.adapt_many(support), rtol=5e-3)


# --- trees


@pytest.fixture(scope="module")
def boosted():
    """Levels of tasks that the side information shifts by 2 s."""
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(60):
        X, s = rng.normal(size=(8, 1)), rng.normal(size=1)
        entries.append(
            (X, 10.0 + X[:, 0] + 2.0 * s[0] + 3.0 * rng.normal() + 0.5 * rng.normal(size=8), s)
        )
    tasks = TaskSet.from_tasks(entries)
    support, query = tasks[45:].support_query(4, random_state=0)
    return PooledBoosting(max_iter=100).fit(tasks[:45]), support, query


def test_query_targets_never_enter(boosted):
    model, support, query = boosted
    found = model.predict_rows(support, query)
    hidden = TaskSet.from_arrays(
        query.X, np.zeros_like(query.y), query.offsets, query.labels, query.side_info
    )
    np.testing.assert_array_equal(model.predict_rows(support, hidden), found)
    np.testing.assert_array_equal(predictions(model, support, query), found)
    with pytest.raises(ValueError, match="the same 2 tasks"):
        model.predict_rows(support[:2], query)


@pytest.mark.parametrize(
    ("rival", "options"),
    [
        (MixedEffectsForest, {"n_estimators": 20, "max_iter": 3}),
        (BoostedMixedModel, {"max_iter": 20}),
    ],
)
def test_trees_adapt_their_intercept(rival, options):
    skip_if_missing(rival)
    tasks = simulate(40, 8)
    support, query = tasks[30:].support_query(4, random_state=0)
    handlers = logging.getLogger().handlers[:]
    model = rival(**options).fit(tasks[:30])
    assert logging.getLogger().handlers == handlers
    none = support.with_rows(
        np.zeros(len(support.y), dtype=bool), np.zeros(len(support), dtype=int)
    )
    shift = model.predict_rows(support, query) - model.predict_rows(none, query)
    trees = model.predict_rows(none, support)
    for t in range(len(support)):
        left = (support.y - trees)[slice(*support.offsets[t : t + 2])] / model.unit_
        u = random_effects(np.ones((4, 1)), left, np.array([[model.variance_]]), model.noise_)
        np.testing.assert_allclose(shift[slice(*query.offsets[t : t + 2])], u[0] * model.unit_)
