"""Low-rank covariances, against dense algebra."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from tailored.gaussian import low_rank
from tailored.gaussian.em import restrict_rank
from tailored.gaussian.low_rank import LowRankModel, RotatedTasks
from tailored.gaussian.moments import Moments
from tailored.gaussian.rows import TaskRows
from tests.reference import mixture_posterior


def unequal_tasks(n_tasks=14, n_features=5, seed=0):
    """Return tasks of zero to nine rows, whose last column is constant, in both layouts."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 10, n_tasks)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    X = rng.standard_normal((starts[-1], n_features))
    X[:, -1] = 1.0
    rows = TaskRows(X, rng.standard_normal(len(X)), starts)
    return rows, Moments(rows.gram, rows.cross, rows.square, rows.sizes)


def two_components(n_features=5, seed=1):
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((2, n_features, 2))
    return LowRankModel(F, np.array([0.3, 0.7]), 0.4, 0.2, 0.5, rng.standard_normal(n_features), 1.0)


@pytest.mark.parametrize("layout", [0, 1])
def test_the_evidence_is_that_of_the_dense_posterior(layout):
    tasks, model = unequal_tasks(), two_components()
    rows = tasks[0]
    mixture = model.mixture()
    expected = [
        mixture_posterior(
            rows.X[a:b], rows.y[a:b], mixture.proportions, mixture.means, mixture.covariances, mixture.noise
        ).log_evidence
        for a, b in zip(rows.starts[:-1], rows.starts[1:], strict=True)
    ]
    evidence = low_rank.log_evidence(RotatedTasks.of(tasks[layout], True), model)
    np.testing.assert_allclose(evidence, expected, atol=1e-9)


def test_the_optimum_is_stationary():
    tasks, alpha = RotatedTasks.of(unequal_tasks(60)[0], True), 3.0
    start = two_components()
    best = low_rank.maximise_evidence(tasks, start, alpha, 2000)

    def objective(model):
        return low_rank.log_evidence(tasks, model).sum() - 0.5 * alpha * (model.factors**2).sum()

    assert objective(best) > objective(start) + 1.0
    step = 1e-4
    for change in (
        lambda m, e: replace(m, factors=m.factors + e * np.random.default_rng(2).standard_normal((2, 5, 2))),
        lambda m, e: replace(m, delta=m.delta * np.exp(e)),
        lambda m, e: replace(m, noise=m.noise * np.exp(e)),
        lambda m, e: replace(m, level=m.level * np.exp(e)),
        lambda m, e: replace(m, proportions=softmax(np.log(m.proportions) + np.array([e, 0.0]))),
    ):
        slope = (objective(change(best, step)) - objective(change(best, -step))) / (2 * step)
        assert abs(slope) < 0.02 * len(tasks)


def test_the_mean_is_that_of_generalised_least_squares():
    rows = unequal_tasks(40)[0]
    model = replace(two_components(), factors=two_components().factors[:1], proportions=np.ones(1))
    found = low_rank._with_mean(RotatedTasks.of(rows, True), model)
    W = model.mixture().covariances[0]
    left, right = np.diag([1.0 / found.mean_variance] * 4 + [0.0]), np.zeros(5)
    for a, b in zip(rows.starts[:-1], rows.starts[1:], strict=True):
        X, y = rows.X[a:b], rows.y[a:b]
        V = X @ W @ X.T + model.noise * np.eye(b - a)
        left, right = left + X.T @ np.linalg.solve(V, X), right + X.T @ np.linalg.solve(V, y)
    # The mean was computed with the variance before its last change of less than 1 %.
    np.testing.assert_allclose(found.mean, np.linalg.solve(left, right), rtol=0.02, atol=0.002)


def test_restricting_the_rank_is_most_likely():
    rng = np.random.default_rng(3)
    root = rng.standard_normal((1, 6, 8))
    S = root @ root.transpose(0, 2, 1)
    W = restrict_rank(S, 2)
    values = np.linalg.eigvalsh(W[0])
    np.testing.assert_allclose(values[:4], values[0])

    def loss(W):
        return np.linalg.slogdet(W)[1] + np.trace(np.linalg.solve(W, S[0]))

    F, delta = np.linalg.eigh(W[0])[1][:, 4:] * np.sqrt(values[4:] - values[0]), values[0]
    np.testing.assert_allclose(F @ F.T + delta * np.eye(6), W[0])
    for _ in range(20):
        other = F + 0.05 * rng.standard_normal(F.shape)
        other_delta = delta * np.exp(0.1 * rng.standard_normal())
        assert loss(other @ other.T + other_delta * np.eye(6)) > loss(W[0])
