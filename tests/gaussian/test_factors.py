"""The factor model against dense Gaussian algebra, and what EM promises."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from reference import mixture_posterior
from tailored.gaussian.factor_em import (
    NOISE_TASKS,
    FactorModel,
    bound,
    factor_sums,
    fit_factors,
    step,
)
from tailored.gaussian.factors import FactorRows, posterior, recalibrate, row_variances
from tailored.gaussian.mixture import Want

D, RANK = 7, 2


def make_rows(
    one_hot: bool, n_tasks: int = 12, seed: int = 0, d: int = D, n_side: int = 0
) -> FactorRows:
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(n_tasks):
        n = int(rng.integers(0, d))
        if one_hot:
            block = np.eye(d)[rng.permutation(d)[:n]] * rng.choice([-1.0, 1.0], size=(n, 1))
        else:
            block = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
        blocks.append(block)
    X, sizes = np.vstack(blocks), [len(block) for block in blocks]
    y = X @ rng.standard_normal(d) + rng.standard_normal(len(X))
    y += np.repeat(rng.standard_normal(n_tasks), sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return FactorRows(sparse.csr_array(X), y, offsets, rng.standard_normal((n_tasks, n_side)))


def make_model(intercept: bool = True, n_side: int = 0, rank: int = RANK) -> FactorModel:
    rng = np.random.default_rng(5)
    made = FactorModel.start(D, rank, has_intercept=intercept, n_side=n_side, seed=[1])
    q = len(made.score_mean)
    root, spread = rng.standard_normal((q, q)), 0.2 * rng.standard_normal((D, 1 + rank, 1 + rank))
    return replace(
        made,
        columns=rng.standard_normal(made.columns.shape),
        column_covariances=spread @ spread.transpose(0, 2, 1) + 0.01 * np.eye(1 + rank),
        variances=rng.random(D),
        noise=0.3,
        score_mean=rng.standard_normal(q),
        score_covariance=root @ root.T + np.eye(q),
        effect=rng.standard_normal(made.effect.shape),
    )


def log_normal(x, covariance):
    return -0.5 * (
        x @ np.linalg.solve(covariance, x) + np.linalg.slogdet(2.0 * np.pi * covariance)[1]
    )


def integrated(log_density, q):
    """Return log ∫ exp(f), mean and covariance of the density exp(f), for a quadratic f of q
    variables.
    """
    f, e, zero = log_density, np.eye(q), np.zeros(q)
    slopes = np.array([f(a) - f(-a) for a in e]) / 2.0
    C = np.linalg.inv(np.reshape([f(a) + f(b) - f(a + b) - f(zero) for a in e for b in e], (q, q)))
    return (
        f(zero) + 0.5 * slopes @ C @ slopes + 0.5 * np.linalg.slogdet(2.0 * np.pi * C)[1],
        C @ slopes,
        C,
    )


def dense_task(model, rows, t):
    """Return X, the loadings G of the scores, the covariance of Xδ + ε, y − Xb, and the posterior
    of the scores.
    """
    at, centre = (
        slice(rows.starts[t], rows.starts[t + 1]),
        model.score_mean + rows.side[t] @ model.effect,
    )
    X = rows.X[at].toarray()
    G = np.hstack([X @ model.columns[:, 1:], np.ones((len(X), int(model.has_intercept)))])
    left = rows.y[at] - X @ model.columns[:, 0]
    V = X @ np.diag(model.variances) @ X.T + model.noise * np.eye(len(X))
    weights = np.diag(X.T @ np.linalg.inv(V) @ X)

    def log_density(z):
        """The log density of targets and scores, averaged over the columns."""
        h = np.append(1.0, z[: model.rank])
        uncertainty = np.einsum("a,jab,b->j", h, model.column_covariances, h)
        total = log_normal(z - centre, model.score_covariance) + log_normal(left - G @ z, V)
        return total - 0.5 * weights @ uncertainty

    return X, G, V, left, integrated(log_density, len(centre))


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_sums_are_those_of_dense_algebra(one_hot, intercept, rank):
    rows, model = make_rows(one_hot, n_side=3), make_model(intercept, n_side=3, rank=rank)
    found, r, d = factor_sums(model, rows), rank, np.diag(model.variances)
    sums = SimpleNamespace(**dict.fromkeys(vars(found), 0.0))
    assert rows.one_hot == one_hot
    for t in range(len(rows)):
        X, G, V, left, (log_evidence, z, C) = dense_task(model, rows, t)
        B, used, n = np.linalg.inv(V), X.any(axis=0), len(X)
        h, known = np.append(1.0, z[:r]), np.append(1.0, rows.side[t])
        second, rest, deviation = np.outer(h, h), left - G @ z, z - model.score_mean
        second[1:, 1:] += C[:r, :r]
        sums.log_evidence += log_evidence
        sums.precision += np.diag(X.T @ B @ X)[:, None, None] * second
        sums.count += used
        sums.score_square += np.outer(deviation, deviation) + C
        sums.side_score += np.outer(known, deviation)
        sums.side_square += np.outer(known, known)
        M = np.outer(rest, rest) + G @ C @ G.T
        if one_hot:
            sums.square += (X**2).T @ np.diag(M)
            continue
        # M are the second moments of Xδ + ε; δ and ε are normal given their sum.
        M += X @ np.diag(np.einsum("jab,ab->j", model.column_covariances, second)) @ X.T
        gain = d @ X.T @ B
        sums.square += used * np.diag(gain @ M @ gain.T + d - gain @ X @ d)
        sums.residual += np.trace(model.noise**2 * (B @ M @ B - B) + model.noise * np.eye(n))
        sums.n_rows += n
        curvature = np.diag(factor_sums(model, rows.take(slice(t, t + 1))).curvature[:, 0, 0])
        assert np.linalg.eigvalsh(curvature - X.T @ B @ X).min() > -1e-9
    for name in vars(found).keys() - {"gradient", "curvature"}:
        expected = getattr(sums, name)
        np.testing.assert_allclose(
            getattr(found, name), expected, rtol=1e-8, atol=1e-8, err_msg=name
        )


@pytest.mark.parametrize("one_hot", [True, False])
def test_bound_is_the_evidence_minus_a_divergence(one_hot):
    model = make_model()
    sums = factor_sums(model, make_rows(one_hot))
    expected, prior = sums.log_evidence, model.column_covariance
    for c, C, noise in zip(model.columns, model.column_covariances, model.variances, strict=True):
        move, precision = c - model.column_mean, np.linalg.inv(prior)
        distance = move @ precision @ move + np.trace(precision @ C) - len(c)
        expected -= 0.5 * (distance + np.log(np.linalg.det(prior) / np.linalg.det(C)))
        ratio = model.typical_noise / (noise + model.noise * one_hot)
        expected += 0.5 * NOISE_TASKS * (np.log(ratio) - ratio)
    assert bound(model, sums) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_posterior_is_that_of_the_reference(one_hot, intercept):
    rows, prior = make_rows(one_hot, n_side=2), make_model(intercept, n_side=2).prior()
    found = posterior(rows, prior, want=Want(means=True, covariances=True))
    np.testing.assert_array_equal(found.shares, np.ones((len(rows), 1)))
    W = prior.factors @ prior.factors.T + np.diag(prior.diagonal)
    query = sparse.csr_array(np.random.default_rng(0).standard_normal((len(rows), D)))
    variances = row_variances(prior, query, np.arange(len(rows)), found.covariances)
    for t in range(len(rows)):
        one = rows.take(slice(t, t + 1))
        X = np.hstack([one.X.toarray(), np.ones((one.n_rows, int(intercept)))])
        mean = prior.mean + prior.effect @ rows.side[t]
        expected = mixture_posterior(X, one.y, [1.0], [mean], [W], prior.noise)
        assert found.log_evidence[t] == pytest.approx(expected.log_evidence, rel=1e-10)
        np.testing.assert_allclose(found.mean[t], expected.mean, atol=1e-10)
        # The scores and their covariance, from S = X W Xᵀ + σ²I.
        gain = prior.factors.T @ X.T @ np.linalg.inv(X @ W @ X.T + prior.noise * np.eye(len(X)))
        C = np.eye(len(gain)) - gain @ X @ prior.factors
        np.testing.assert_allclose(found.covariances[t], C, atol=1e-10)
        x = np.append(query[[t]].toarray()[0], np.ones(int(intercept)))
        expected_variance = x @ prior.factors @ C @ prior.factors.T @ x + x**2 @ prior.diagonal
        assert variances[t] == pytest.approx(expected_variance, rel=1e-9)


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_no_step_lowers_the_bound(one_hot, intercept):
    rows, model = make_rows(one_hot, n_tasks=40), make_model(intercept)
    before = -np.inf
    for i in range(30):
        sums = factor_sums(model, rows)
        now = bound(model, sums)
        assert now > before - 1e-8 * abs(now)
        before = now
        model = step(model, sums, update_noise=i % 2 == 1)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_prior_has_the_moments_of_the_model(intercept, rank):
    """From draws of the scores at the nodes of a quadrature rule; given these, coefficients are
    independent.
    """
    model = make_model(intercept, n_side=2, rank=rank)
    prior, side, q = model.prior(), np.array([0.7, -1.1]), len(model.score_mean)
    root, (x, w) = np.linalg.cholesky(model.score_covariance), np.polynomial.hermite_e.hermegauss(3)
    p = np.prod(list(product(w / w.sum(), repeat=q)), axis=1)

    def moments(v):
        z = model.score_mean + v @ model.effect + np.array(list(product(x, repeat=q))) @ root.T
        h = np.hstack([np.ones((len(z), 1)), z[:, :rank]])
        w = np.hstack([h @ model.columns.T, z[:, rank:]])
        W = (w - p @ w).T @ (p[:, None] * (w - p @ w))
        W[range(D), range(D)] += model.variances + np.einsum(
            "n,na,jab,nb->j", p, h, model.column_covariances, h
        )
        return p @ w, W

    mean, W = moments(np.zeros(2))
    np.testing.assert_allclose(prior.mean, mean, atol=1e-12)
    np.testing.assert_allclose(prior.mean + prior.effect @ side, moments(side)[0], atol=1e-12)
    np.testing.assert_allclose(
        prior.factors @ prior.factors.T + np.diag(prior.diagonal), W, atol=1e-9
    )


@pytest.mark.parametrize("one_hot", [True, False])
def test_recalibration_maximises_the_held_out_evidence(one_hot):
    rows, model = make_rows(one_hot, n_tasks=60, n_side=2), make_model(n_side=2).prior()
    folds, models = (
        [rows.take(slice(0, 30)), rows.take(slice(30, 60))],
        [model, model.scaled(1.1, 0.9)],
    )

    def evidence(c, e):
        total = 0.0
        for some, m in zip(folds, models, strict=True):
            scaled = replace(
                m, factors=np.sqrt(c * e) * m.factors, diagonal=e * m.diagonal, noise=e * m.noise
            )
            total += posterior(some, scaled).log_evidence.sum()
        return total

    c, e = recalibrate(folds, models)
    best = evidence(c, e)
    assert best > evidence(1.0, 1.0)
    assert all(
        best > evidence(c * f, e * g)
        for f in (0.95, 1.0, 1.05)
        for g in (0.97, 1.0, 1.03)
        if f * g != 1
    )


def test_only_relevant_side_features_have_effects():
    rows = make_rows(True, n_tasks=200, n_side=6, d=20)
    y = rows.y + 2.0 * rows.side[rows.task, 1]  # an effect on the intercept
    start = FactorModel.start(20, 1, has_intercept=True, n_side=6, seed=[0])
    model = fit_factors(replace(rows, y=y), replace(start, relevance=np.full(6, 0.1)))
    assert model.effect[1, -1] == pytest.approx(2.0, abs=0.25)
    assert np.abs(np.delete(model.effect, 1, axis=0)).max() < 0.2
    assert (np.delete(model.relevance, 1) == 0.0).sum() >= 3
