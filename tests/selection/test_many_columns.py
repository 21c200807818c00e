"""Tasks of many columns: factors plus a diagonal, and low-rank covariances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.gaussian.low_rank import LowRankFitter, RotatedTasks
from tailored.gaussian.rows import TaskRows
from tailored.priors.factors import FactorPrior
from tailored.selection import data
from tailored.selection.steps import low_rank
from tailored.selection.steps.low_rank import LowRankSearch

D, T = 400, 120


def ratings(
    seed: int = 0, rank: int = 2, n_tasks: int = T, d: int = D, described: bool = False
) -> TaskSet:
    """People rate some of many items; popular ones are rated often."""
    rng = np.random.default_rng(seed)
    F, b = rng.standard_normal((d, rank)), rng.standard_normal(d)
    popular = 1.0 / (5.0 + np.arange(d))
    popular /= popular.sum()
    rows, columns, y, side = [], [], [], []
    for t in range(n_tasks):
        n = int(rng.integers(20, 50))
        items = rng.choice(d, n, replace=False, p=popular)
        s = rng.standard_normal(2)
        z, u = rng.standard_normal(rank), 0.5 * rng.standard_normal()
        if described:
            z[0], u = 1.5 * s[0] + 0.3 * z[0], u + s[1]
        rows += [t] * n
        columns += items.tolist()
        y += (3.0 + b[items] + F[items] @ z + u + 0.3 * rng.standard_normal(n)).tolist()
        side.append(s)
    X = sparse.csr_array((np.ones(len(y)), (np.arange(len(y)), columns)), shape=(len(y), d))
    return TaskSet(X, y, rows, dict(enumerate(side)) if described else None)


@pytest.fixture(scope="module")
def fitted():
    train, test = ratings().split([0.8, 0.2], random_state=0)
    return EmpiricalBayesLearner(loss="absolute").fit(train), train, test


def test_the_form_is_chosen_by_the_size_and_its_rank_by_held_out_tasks(fitted):
    learner, _, test = fitted
    assert isinstance(learner.prior_, FactorPrior)
    assert 2 <= learner.structure_["rank"] <= 4
    found = learner.task_errors(test, n_support=0.75).mean()
    zero = next(r["error"] for r in learner.search_results_ if r["rank"] == 0)
    assert found < 0.7 * zero


def test_ways_to_predict_agree(fitted):
    learner, train, test = fitted
    support, query = test.support_query(0.5, random_state=0)
    table = learner.predict_tasks(query, support)
    weights = learner.adapt_many(support).weights_
    model = learner.adapt(support[3].X, support[3].y)
    mine = slice(query.offsets[3], query.offsets[4])
    np.testing.assert_allclose(table["prediction"][mine], model.predict(query[3].X), atol=1e-9)
    np.testing.assert_allclose(
        table["lower"][mine], model.predict_interval(query[3].X)[:, 0], atol=1e-9
    )
    np.testing.assert_allclose(table["std"][mine], model.predict_std(query[3].X), atol=1e-9)
    np.testing.assert_allclose(
        query[3].X @ weights[3, :-1] + weights[3, -1], model.predict(query[3].X)
    )
    # dense rows are the same rows
    again = learner.adapt(support[3].X.toarray(), support[3].y)
    np.testing.assert_allclose(
        again.predict(query[3].X.toarray()), model.predict(query[3].X), atol=1e-9
    )
    seen = learner.predict(train[2].X, groups=[train.labels[2]] * len(train[2].y))
    np.testing.assert_allclose(
        seen, train[2].X @ learner.task_weights_[2, :-1] + learner.task_weights_[2, -1]
    )
    assert learner.score(test, n_support=0.75) > 0.5


def test_intervals_cover(fitted):
    learner, *_ = fitted
    fresh = ratings(seed=0, n_tasks=220)[T:]
    support, query = fresh.support_query(0.5, random_state=1)
    table = learner.predict_tasks(query, support, coverage=0.8)
    inside = (table["lower"] <= query.y) & (query.y <= table["upper"])
    assert 0.72 < inside.mean() < 0.88


def test_a_new_user_without_ratings_is_described():
    tasks = ratings(seed=1, described=True)
    train, test = tasks.split([0.8, 0.2], random_state=0)
    learner = EmpiricalBayesLearner(loss="absolute").fit(train)
    ignorant = EmpiricalBayesLearner(loss="absolute").fit(train.replace(side_info=None))
    assert learner.side_structure_ is not None
    cold = learner.task_errors(test, n_support=0).mean()
    assert cold < 0.85 * ignorant.task_errors(test.replace(side_info=None), n_support=0).mean()
    one = test[0]
    model = learner.adapt(side_info=one.side_info)
    np.testing.assert_allclose(
        np.abs(model.predict(one.X) - one.y).mean(),
        learner.task_errors(test, n_support=0)[0],
        rtol=0.2,
    )


def test_units_of_targets_change_predictions_as_algebra_says(fitted):
    learner, train, test = fitted
    (support, query), shift, factor = test.support_query(0.5, random_state=0), 0.05, 1e-3

    def moved(tasks):
        return TaskSet.from_arrays(
            tasks.X, shift + factor * tasks.y, tasks.offsets, tasks.labels, tasks.side_info
        )

    other = EmpiricalBayesLearner().fit(moved(train))
    found = other.predict_tasks(query, moved(support))["prediction"]
    expected = shift + factor * learner.predict_tasks(query, support)["prediction"]
    assert np.abs(found - expected).max() < 1e-6 * factor * np.std(test.y)


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
