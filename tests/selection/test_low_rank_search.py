"""Numbers of factors and components that are selected, on environments with known subspaces."""

from __future__ import annotations

import numpy as np

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.gaussian.low_rank import LowRankFitter, RotatedTasks
from tailored.gaussian.rows import TaskRows
from tailored.selection import data
from tailored.selection.steps import low_rank
from tailored.selection.steps.low_rank import LowRankSearch


def subspace_tasks(n_tasks, n_features, bases, n_rows, seed, noise=0.3):
    """Return tasks whose weights lie in the span of one of the bases."""
    rng = np.random.default_rng(seed)
    label = rng.integers(len(bases), size=n_tasks)
    weights = np.stack([bases[k] @ rng.standard_normal(bases[k].shape[1]) for k in label])
    X = rng.standard_normal((n_tasks, n_rows, n_features))
    y = np.einsum("tnd,td->tn", X, weights) + noise * rng.standard_normal((n_tasks, n_rows))
    return X, y, weights


def rotated(X, y):
    T, n, d = X.shape
    return RotatedTasks.of(TaskRows(X.reshape(-1, d), y.ravel(), np.arange(T + 1) * n), False)


def test_the_rank_and_the_subspace_are_found():
    basis = np.linalg.qr(np.random.default_rng(4).standard_normal((20, 2)))[0]
    X, y, _ = subspace_tasks(120, 20, [basis], 8, 5)
    selected = LowRankSearch(
        [LowRankFitter(rotated(X[:90], y[:90]), [0])], [rotated(X[90:], y[90:])]
    )(6)
    assert [each.numbers for each in selected] == [(2, 1, 0)]
    directions = np.linalg.qr(selected[0].models[0].factors[0])[0]
    assert np.linalg.svd(basis.T @ directions)[1].min() > 0.98


def test_clusters_of_subspaces_are_found():
    Q = np.linalg.qr(np.random.default_rng(6).standard_normal((16, 4)))[0]
    bases = [Q[:, :2], Q[:, 2:]]
    X, y, _ = subspace_tasks(300, 16, bases, 10, 7)
    fold = LowRankFitter(rotated(X[:220], y[:220]), [0])
    single, mixture = LowRankSearch([fold], [rotated(X[220:], y[220:])])(8)
    assert single.numbers == (4, 1, 0)
    assert mixture.numbers == (4, 2, 2)
    spans = [np.linalg.qr(F)[0] for F in mixture.models[0].factors]
    overlap = [[np.linalg.svd(basis.T @ span)[1].min() for span in spans] for basis in bases]
    assert np.max(overlap, axis=1).min() > 0.95
    assert np.min(overlap, axis=1).max() < 0.5


def test_many_columns_are_learned_by_the_default_learner():
    d, rng = 45, np.random.default_rng(8)
    basis = np.linalg.qr(rng.standard_normal((d, 2)))[0]
    X, y, weights = subspace_tasks(110, d, [basis], 12, 9)
    train = TaskSet.from_tasks(zip(X[:80], y[:80] + 5.0, strict=True))
    new = TaskSet.from_tasks(zip(X[80:], y[80:] + 5.0, strict=True))
    learner = EmpiricalBayesLearner(random_state=0).fit(train)
    assert learner.structure_["kind"] == "low rank"
    assert "of the coefficients plus independent variation (low rank)." in " ".join(
        learner.summary().text
    )
    assert learner.structure_["n_factors"] == 2
    error = np.linalg.norm(learner.adapt_many(new).coef_ - weights[80:], axis=1).mean()
    # The posterior mean with a known subspace.
    exact = []
    for x, v in zip(X[80:], y[80:], strict=True):
        z = x @ basis
        exact.append(basis @ np.linalg.solve(z.T @ z + 0.09 * np.eye(2), z.T @ v))
    assert error < 1.5 * np.linalg.norm(exact - weights[80:], axis=1).mean()


def test_more_directions_than_low_rank_allows(few_steps, monkeypatch):
    """With two factors at most and weights in five directions, an unrestricted covariance is
    selected.
    """
    monkeypatch.setattr(data, "WIDE", 6)
    monkeypatch.setattr(low_rank, "LOW_RANK", 6)
    monkeypatch.setattr(low_rank, "MOST_FACTORS", 2)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 5)))[0]
    X, y, _ = subspace_tasks(150, 8, [basis], 8, seed=1)
    learner = EmpiricalBayesLearner().fit(TaskSet.from_tasks(list(zip(X, y, strict=True))))
    assert {entry.get("n_factors") for entry in learner.search_results_} >= {2}
    assert learner.structure_["kind"] == "mixed model"
    assert "structure" not in learner.structure_
