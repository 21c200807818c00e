"""Low-rank covariances, against dense algebra."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from reference import mixture_posterior
from tailored.gaussian import low_rank
from tailored.gaussian.em import restrict_rank
from tailored.gaussian.low_rank import LowRankModel, RotatedTasks
from tailored.gaussian.moments import Moments
from tailored.gaussian.rows import TaskRows


def unequal_tasks(n_tasks=14, n_features=5, seed=0, most_rows=9):
    """Return tasks of `one_component` with zero to ``most_rows`` rows, whose last column is
    constant, in both layouts.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, most_rows + 1, n_tasks)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    X = rng.standard_normal((starts[-1], n_features))
    X[:, -1] = 1.0
    model = one_component(n_features=n_features)
    weights = model.mean + rng.standard_normal((n_tasks, 2)) @ model.factors[0].T
    weights += 0.5 * rng.standard_normal(weights.shape)
    y = np.sum(X * np.repeat(weights, sizes, axis=0), axis=1) + rng.standard_normal(len(X))
    rows = TaskRows(X, y, starts)
    return rows, Moments(rows.gram, rows.cross, rows.square, rows.sizes)


def two_components(n_features=5, seed=1, rank=2, level=0.4):
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((2, n_features, rank))
    return LowRankModel(
        F, np.array([0.3, 0.7]), level, 0.2, 0.5, rng.standard_normal(n_features), 1.0
    )


def one_component(**options):
    model = two_components(**options)
    return replace(model, factors=model.factors[:1], proportions=np.ones(1))


def by_task(rows):
    return [(rows.X[a:b], rows.y[a:b]) for a, b in pairwise(rows.starts)]


def dense_evidence(rows, model):
    F, d = model.factors, rows.n_features
    W = F @ F.transpose(0, 2, 1) + model.delta * np.eye(d) + model.level * np.diag(np.eye(d)[-1])
    prior = model.proportions, np.tile(model.mean, (len(F), 1)), W, model.noise
    return [mixture_posterior(X, y, *prior).log_evidence for X, y in by_task(rows)]


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("d", "most_rows", "rank"), [(5, 9, 2), (7, 4, 1), (6, 2, 2)])
def test_evidence_and_gradient_are_those_of_dense_algebra(
    layout, intercept, d, most_rows, rank, monkeypatch
):
    tasks = unequal_tasks(n_features=d, most_rows=most_rows)
    rotated = RotatedTasks.of(tasks[layout], intercept)
    model, alpha, h = two_components(d, rank=rank, level=0.4 * intercept), 3.0, 1e-5
    evidence = low_rank.log_evidence(rotated, model)
    np.testing.assert_allclose(evidence, dense_evidence(tasks[0], model), atol=1e-9)

    def check(objective, start, **_):
        at = start + 0.3 * np.random.default_rng(2).standard_normal(len(start))
        slopes = [objective(at + e)[0] - objective(at - e)[0] for e in h * np.eye(len(at))]
        value, gradient = objective(at)
        np.testing.assert_allclose(gradient, np.array(slopes) / (2 * h), atol=1e-8)
        checked.append((objective(start)[0], value))
        return SimpleNamespace(x=at)

    checked = []
    monkeypatch.setattr(low_rank, "minimize", check)
    moved = low_rank.maximise_evidence(rotated, model, alpha)
    for each, value in zip((model, moved), checked[0], strict=True):
        expected = -np.sum(dense_evidence(tasks[0], each)) + 0.5 * alpha * np.sum(each.factors**2)
        assert value == pytest.approx(expected / len(rotated), rel=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_mean_is_that_of_generalised_least_squares(intercept):
    rows, model = unequal_tasks(40)[0], one_component(level=0.4 * intercept)
    found = low_rank._with_mean(RotatedTasks.of(rows, intercept), model)
    W, n, gamma = model.mixture().covariances[0], 5 - intercept, found.mean_variance
    left, right = np.diag([1.0 / gamma] * n + [0.0] * intercept), np.zeros(5)
    for X, y in by_task(rows):
        V = X @ W @ X.T + model.noise * np.eye(len(X))
        left, right = left + X.T @ np.linalg.solve(V, X), right + X.T @ np.linalg.solve(V, y)
    # The mean was computed with the variance before its last change of less than 1 %.
    np.testing.assert_allclose(found.mean, np.linalg.solve(left, right), rtol=0.02, atol=0.002)
    n_used = n - np.trace(np.linalg.inv(left)[:n, :n]) / gamma
    assert gamma == pytest.approx(found.mean[:n] @ found.mean[:n] / n_used, rel=0.02)


def test_recalibration_maximises_the_held_out_evidence():
    folds, models = (
        [unequal_tasks(40, seed=seed)[0] for seed in (3, 4)],
        [one_component(), two_components()],
    )

    def evidence(calibration):
        pairs = zip(folds, (each.scaled(calibration) for each in models), strict=True)
        return sum(np.sum(dense_evidence(*pair)) for pair in pairs)

    rotated = [RotatedTasks.of(each, True) for each in folds]
    best = np.array(low_rank.recalibrate(rotated, models, (2.0, 0.2, 0.5)))
    others = best * np.exp(
        [[e * (i == j) for j in range(3)] for i in range(3) for e in (-0.3, 0.3)]
    )
    assert evidence(best) > max(evidence(other) for other in others)


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
