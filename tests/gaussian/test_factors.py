"""The factor model against dense Gaussian algebra, and what EM promises."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal

from tailored.gaussian.factor_em import FactorModel, bound, factor_sums, fit_factors, step
from tailored.gaussian.factors import FactorRows, posterior, recalibrate, row_variances
from tailored.gaussian.mixture import Want
from tests.reference import mixture_posterior

D, RANK = 7, 2


def make_rows(one_hot: bool, n_tasks: int = 12, seed: int = 0, d: int = D, n_side: int = 0) -> FactorRows:
    rng = np.random.default_rng(seed)
    blocks, sizes = [], []
    for _ in range(n_tasks):
        n = int(rng.integers(1, d))
        if one_hot:
            block = np.eye(d)[rng.permutation(d)[:n]]
        else:
            block = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
        blocks.append(block)
        sizes.append(n)
    X = np.vstack(blocks)
    y = (
        X @ rng.standard_normal(d)
        + rng.standard_normal(len(X))
        + np.repeat(rng.standard_normal(n_tasks), sizes)
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return FactorRows(sparse.csr_array(X), y, offsets, rng.standard_normal((n_tasks, n_side)))


def make_model(intercept: bool = True, n_side: int = 0, sure: bool = True, d: int = D) -> FactorModel:
    rng = np.random.default_rng(5)
    made = FactorModel.start(d, RANK, has_intercept=intercept, n_side=n_side, seed=[1])
    q = len(made.score_mean)
    root = rng.standard_normal((q, q))
    return replace(
        made,
        columns=rng.standard_normal(made.columns.shape),
        column_covariances=0.0 * made.column_covariances if sure else made.column_covariances,
        variances=rng.random(d),
        noise=0.3,
        score_mean=rng.standard_normal(q),
        score_covariance=root @ root.T + np.eye(q),
        effect=rng.standard_normal(made.effect.shape),
    )


def dense_tasks(model: FactorModel, rows: FactorRows):
    """Each task's constant-augmented rows with mean and covariance of its targets, by the plain formulas."""
    r = model.rank
    for t in range(len(rows)):
        one = rows.take(slice(t, t + 1))
        X = one.X.toarray()
        G = np.hstack([X @ model.columns[:, 1:], np.ones((len(X), int(model.has_intercept)))])
        centre = model.score_mean + one.side[0] @ model.effect
        mean = X @ model.columns[:, 0] + G @ centre
        W = model.columns[:, 1:] @ model.score_covariance[:r, :r] @ model.columns[:, 1:].T + np.diag(
            model.variances
        )
        covariance = (
            G @ model.score_covariance @ G.T
            + X @ np.diag(model.variances) @ X.T
            + model.noise * np.eye(len(X))
        )
        yield one, X, G, mean, covariance, W


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_evidence_is_that_of_dense_algebra(one_hot, intercept):
    rows, model = make_rows(one_hot, n_side=3), make_model(intercept, n_side=3)
    expected = sum(
        multivariate_normal(mean, covariance).logpdf(one.y)
        for one, _, _, mean, covariance, _ in dense_tasks(model, rows)
    )
    assert rows.one_hot == one_hot
    assert factor_sums(model, rows).log_evidence == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_posterior_is_that_of_the_reference(one_hot, intercept):
    rows, prior = make_rows(one_hot, n_side=2), make_model(intercept, n_side=2, sure=False).prior()
    found = posterior(rows, prior, want=Want(means=True, covariances=True))
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
def test_gradient_is_that_of_the_evidence(one_hot):
    rows, model = make_rows(one_hot), make_model()
    gradient, h = factor_sums(model, rows).gradient, 1e-5
    for j in range(D):
        for a in range(1 + RANK):
            ends = []
            for sign in (1.0, -1.0):
                columns = model.columns.copy()
                columns[j, a] += sign * h
                ends.append(factor_sums(replace(model, columns=columns), rows).log_evidence)
            assert gradient[j, a] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-6)


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_no_step_lowers_the_bound(one_hot, intercept):
    rows, model = make_rows(one_hot, n_tasks=40), make_model(intercept, sure=False)
    before = -np.inf
    for i in range(30):
        sums = factor_sums(model, rows)
        now = bound(model, sums)
        assert now > before - 1e-8 * abs(now)
        before = now
        model = step(model, sums, update_noise=i % 2 == 1)


@pytest.mark.parametrize("one_hot", [True, False])
def test_sums_of_pieces_add_up(one_hot):
    rows, model = make_rows(one_hot), make_model()
    whole = factor_sums(model, rows)
    parts = [factor_sums(model, rows.take(part)) for part in (slice(0, 5), slice(5, 12))]
    for each in fields(whole):
        total = sum(getattr(part, each.name) for part in parts)
        np.testing.assert_allclose(total, getattr(whole, each.name), atol=1e-12)


def test_whitening_changes_nothing_that_is_said():
    rows, model = make_rows(True), make_model(sure=False)
    white = model.whitened()
    np.testing.assert_allclose(white.score_covariance[:RANK, :RANK], np.eye(RANK), atol=1e-12)
    before, after = (bound(each, factor_sums(each, rows)) for each in (model, white))
    assert after == pytest.approx(before, rel=1e-12)


def test_weights_have_the_covariance_of_the_model():
    model = make_model(n_side=2)
    prior = model.prior()
    W = prior.factors @ prior.factors.T + np.diag(prior.diagonal)
    *_, expected = next(dense_tasks(model, make_rows(True, n_side=2)))
    np.testing.assert_allclose(W[:D, :D], expected, atol=1e-12)
    assert W[D, D] == pytest.approx(model.score_covariance[-1, -1])
    np.testing.assert_allclose(
        W[:D, D], model.columns[:, 1:] @ model.score_covariance[:RANK, RANK], atol=1e-12
    )
    assert prior.effect.shape == (D + 1, 2)


@pytest.mark.parametrize("one_hot", [True, False])
def test_recalibration_maximises_the_held_out_evidence(one_hot):
    rows, model = make_rows(one_hot, n_tasks=60, n_side=2), make_model(n_side=2).prior()
    folds, models = [rows.take(slice(0, 30)), rows.take(slice(30, 60))], [model, model.scaled(1.1, 0.9)]

    def evidence(c, e):
        pairs = zip(folds, models, strict=True)
        return sum(posterior(some, each.scaled(c, e)).log_evidence.sum() for some, each in pairs)

    c, e = recalibrate(folds, models)
    best = evidence(c, e)
    assert best > evidence(1.0, 1.0)
    assert all(
        best > evidence(c * f, e * g) for f in (0.95, 1.0, 1.05) for g in (0.97, 1.0, 1.03) if f * g != 1
    )


def test_only_relevant_side_features_have_effects():
    rows = make_rows(True, n_tasks=200, n_side=6, d=20)
    y = rows.y + 2.0 * rows.side[rows.task, 1]  # an effect on the intercept
    start = FactorModel.start(20, 1, has_intercept=True, n_side=6, seed=[0])
    model = fit_factors(replace(rows, y=y), replace(start, relevance=np.full(6, 0.1)))
    assert model.effect[1, -1] == pytest.approx(2.0, abs=0.25)
    assert np.abs(np.delete(model.effect, 1, axis=0)).max() < 0.2
    assert (np.delete(model.relevance, 1) == 0.0).sum() >= 3
