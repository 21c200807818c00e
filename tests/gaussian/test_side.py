"""Effects of side information on the prior mean: their fit, and their gains in evidence."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from tailored import TaskSet
from tailored.gaussian import side as side_module
from tailored.gaussian.em import fit_mixed_model
from tailored.gaussian.moments import Moments
from tailored.gaussian.rows import TaskRows
from tailored.gaussian.side import Effect, Group, SideStructure, fit_side
from tailored.tasks.rows import Scaling

D, Q = 3, 2
#: Each feature is a group of its own.
GROUPS = [Group(j, False, np.array([j]), np.eye(1)) for j in range(Q)]


def effects(relevance=1.0, *, intercept_only=False, columns=range(Q)):
    return SideStructure(tuple(Effect(j, False, intercept_only, relevance) for j in columns))


def tiny(seed=0, T=25, n=4, level=0.0, intercept_only=False, layout=Moments):
    """Rows whose last column is constant, and features whose mean over the tasks is ``level``."""
    rng = np.random.default_rng(seed)
    Gamma = rng.normal(size=(D, Q))
    if intercept_only:
        Gamma[:-1] = 0.0
    L = np.array([[0.5, 0, 0], [0.2, 0.3, 0], [0.3, -0.1, 0.4]])
    v = rng.normal(size=(T, Q))
    v += level - v.mean(axis=0)
    rows = []
    for s in v:
        X = np.column_stack([rng.normal(size=(n, D - 1)), np.ones(n)])
        y = X @ (np.arange(D) + Gamma @ s + L @ rng.normal(size=D)) + 0.4 * rng.normal(size=n)
        rows.append((X, y, s))
    statistics = layout.of(TaskSet.from_tasks(rows), Scaling.raw(D), v)
    return statistics, rows, Gamma


@pytest.mark.parametrize("layout", [Moments, TaskRows])
@pytest.mark.parametrize("level", [0.0, 0.7])
@pytest.mark.parametrize("intercept_only", [False, True])
def test_effects_are_generalised_least_squares_with_their_prior(intercept_only, level, layout):
    """Given W and σ², b and Γ maximise the likelihood times the prior of Γ; features need not be
    centred for it.
    """
    statistics, rows, _ = tiny(level=level, intercept_only=intercept_only, layout=layout)
    relevance = 0.02
    fit = fit_side(
        statistics, effects(relevance, intercept_only=intercept_only), GROUPS, max_iter=5
    )
    W, noise = fit.rest.covariances[0], fit.rest.noise
    plain = fit_mixed_model(statistics, max_iter=30, tol=1e-6).covariances[0]
    squares = np.mean(statistics.side**2, axis=0)
    inverses = [np.linalg.inv(X @ W @ X.T + noise * np.eye(len(y))) for X, y, _ in rows]

    def objective(flat):
        b, moved = flat[:D], np.zeros((D, Q))
        moved[-1 if intercept_only else slice(None)] = flat[D:].reshape(-1, Q)
        left = [y - X @ (b + moved @ s) for X, y, s in rows]
        value = sum(e @ P @ e for e, P in zip(left, inverses, strict=True))
        if intercept_only:
            return value + (moved[-1] ** 2 @ squares) / (relevance * plain[-1, -1])
        return value + np.trace((moved * squares).T @ np.linalg.solve(plain, moved)) / relevance

    start = np.zeros(D + (1 if intercept_only else D) * Q)
    found = minimize(objective, start, method="BFGS", options={"gtol": 1e-5}).x
    Gamma = fit.Gamma[-1:] if intercept_only else fit.Gamma
    np.testing.assert_allclose(found[D:].reshape(-1, Q), Gamma, atol=1e-4)
    np.testing.assert_allclose(found[:D], fit.rest.means[0], atol=1e-4)
    assert Gamma.any()
    if intercept_only:
        assert not fit.Gamma[:-1].any()


@pytest.mark.parametrize("layout", [Moments, TaskRows])
@pytest.mark.parametrize("intercept_only", [False, True])
def test_the_gain_of_a_group_is_that_of_the_evidence(monkeypatch, intercept_only, layout):
    """The evidence of all rows at once, dense: b has a wide prior, and effects add to the
    covariance of y.
    """
    monkeypatch.setattr(side_module, "FLAT", 1e-3)
    statistics, rows, _ = tiny(T=8, layout=layout)
    both = Group(0, True, np.arange(2), np.array([[1.0, 0.3], [0.0, 0.5]]))
    groups = [*GROUPS, both]
    model = fit_mixed_model(statistics, max_iter=3)
    structure = [Effect(1, False, False, 0.3), Effect(0, True, intercept_only)]
    kept, candidate = side_module.terms_of(statistics, groups, structure, model.covariances[0])
    [(gain, found)] = side_module.gains_of(statistics, model, [kept], [candidate])

    X = block_diag(*(X for X, _, _ in rows))
    y, T = np.concatenate([y for _, y, _ in rows]), len(rows)
    W, noise = model.covariances[0], model.noise
    V = X @ np.kron(np.eye(T), W) @ X.T + noise * np.eye(len(y))
    ones = np.kron(np.ones((T, 1)), np.eye(D))
    information = ones.T @ X.T @ np.linalg.solve(V, X @ ones)
    V = V + X @ ones @ ones.T @ X.T * D / (1e-3 * np.trace(information))

    def covariance(term, relevance):
        u = statistics.side @ term.R
        return relevance * X @ np.kron(u @ u.T, term.L @ term.L.T) @ X.T

    u = statistics.side @ both.root
    assert np.mean((u**2).sum(axis=1)) * np.sum(candidate.R**2) == pytest.approx(
        np.sum(both.root**2)
    )
    expected = W if not intercept_only else np.diag([0.0, 0.0, W[-1, -1]])
    np.testing.assert_allclose(candidate.L @ candidate.L.T, expected, atol=1e-8)
    V = V + covariance(kept, 0.3)
    zero = np.zeros(len(y))
    without = multivariate_normal.logpdf(y, zero, V)
    gains = [
        multivariate_normal.logpdf(y, zero, V + covariance(candidate, g)) - without
        for g in side_module.RELEVANCES
    ]
    assert gain == pytest.approx(max(gains), abs=1e-6)
    assert found.effect.relevance == side_module.RELEVANCES[np.argmax(gains)]
    evidence = side_module.evidence_of_columns(statistics, model, [kept, found])
    assert evidence[0] == pytest.approx(max(gains), abs=1e-6)
    of_mean = V - covariance(kept, 0.3)
    both = max(gains) + without - multivariate_normal.logpdf(y, zero, of_mean)
    assert evidence[-1] == pytest.approx(both, abs=1e-6)
    # MacKay's update of each relevance: the squared effects, relative to their expectation.
    P = np.linalg.inv(V + covariance(candidate, found.effect.relevance))
    fit = side_module.fit_terms(statistics, model, [kept, found], max_iter=1, learn=True)
    for before, after in zip([kept, found], fit.terms, strict=True):
        PC = P @ covariance(before, before.effect.relevance)
        factor = (y @ PC @ P @ y) / np.trace(PC)
        assert after.effect.relevance == pytest.approx(factor * before.effect.relevance, rel=1e-6)
