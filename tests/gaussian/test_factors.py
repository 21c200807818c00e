"""The factor model against dense Gaussian algebra, and what EM promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal

from tailored.gaussian.factor_model import FactorModel
from tailored.gaussian.factor_moments import moments, posterior_scores
from tailored.gaussian.factor_rows import FactorRows
from tailored.gaussian.factors import bound, step

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
    q = len(made.level)
    root = rng.standard_normal((q, q))
    return replace(
        made,
        columns=rng.standard_normal(made.columns.shape),
        spread=0.0 * made.spread if sure else made.spread,
        variances=rng.random(d),
        noise=0.3,
        level=rng.standard_normal(q),
        scores=root @ root.T + np.eye(q),
        side=rng.standard_normal(made.side.shape),
    )


def dense_tasks(model: FactorModel, rows: FactorRows):
    """Each task's constant-augmented rows with mean and covariance of its targets, by the plain formulas."""
    r = model.rank
    for t in range(len(rows)):
        one = rows.tasks(t, t + 1)
        X = one.X.toarray()
        G = np.hstack([X @ model.columns[:, 1:], np.ones((len(X), int(model.has_intercept)))])
        centre = model.level + one.side[0] @ model.side
        mean = X @ model.columns[:, 0] + G @ centre
        W = model.columns[:, 1:] @ model.scores[:r, :r] @ model.columns[:, 1:].T + np.diag(model.variances)
        covariance = (
            G @ model.scores @ G.T + X @ np.diag(model.variances) @ X.T + model.noise * np.eye(len(X))
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
    assert moments(model, rows).evidence == pytest.approx(expected, rel=1e-10)


def test_posterior_of_the_scores_is_that_of_dense_algebra():
    rows, model = make_rows(True, n_side=2), make_model(n_side=2)
    scores, covariances = posterior_scores(model, rows)
    for t, (one, _, G, mean, covariance, _) in enumerate(dense_tasks(model, rows)):
        gain = model.scores @ G.T @ np.linalg.inv(covariance)
        expected = model.level + one.side[0] @ model.side + gain @ (one.y - mean)
        np.testing.assert_allclose(scores[t], expected, atol=1e-10)
        np.testing.assert_allclose(covariances[t], model.scores - gain @ G @ model.scores, atol=1e-10)


@pytest.mark.parametrize("one_hot", [True, False])
def test_gradient_is_that_of_the_evidence(one_hot):
    rows, model = make_rows(one_hot), make_model()
    gradient, h = moments(model, rows).gradient, 1e-5
    for j in range(D):
        for a in range(1 + RANK):
            ends = []
            for sign in (1.0, -1.0):
                columns = model.columns.copy()
                columns[j, a] += sign * h
                ends.append(moments(replace(model, columns=columns), rows).evidence)
            assert gradient[j, a] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-6)


@pytest.mark.parametrize("one_hot", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_no_step_lowers_the_bound(one_hot, intercept):
    rows, model = make_rows(one_hot, n_tasks=40), make_model(intercept, sure=False)
    before = -np.inf
    for i in range(30):
        sums = moments(model, rows)
        now = bound(model, sums)
        assert now > before - 1e-8 * abs(now)
        before = now
        model = step(model, sums, noise_turn=i % 2 == 1)


@pytest.mark.parametrize("one_hot", [True, False])
def test_sums_of_pieces_add_up(one_hot):
    rows, model = make_rows(one_hot), make_model()
    whole = moments(model, rows)
    parts = moments(model, rows.tasks(0, 5)).merge(moments(model, rows.tasks(5, 12)))
    for name in ("weight", "gradient", "bound", "count", "square", "score_square", "side_score", "evidence"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-12)


def test_whitening_changes_nothing_that_is_said():
    rows, model = make_rows(True), make_model(sure=False)
    white = model.whitened()
    np.testing.assert_allclose(white.scores[:RANK, :RANK], np.eye(RANK), atol=1e-12)
    before, after = (bound(each, moments(each, rows)) for each in (model, white))
    assert after == pytest.approx(before, rel=1e-12)


def test_weights_have_the_covariance_of_the_model():
    model = make_model(n_side=2)
    prior = model.weights_prior()
    W = prior.factors @ prior.factors.T + np.diag(prior.diagonal)
    *_, expected = next(dense_tasks(model, make_rows(True, n_side=2)))
    np.testing.assert_allclose(W[:D, :D], expected, atol=1e-12)
    assert W[D, D] == pytest.approx(model.scores[-1, -1])
    np.testing.assert_allclose(W[:D, D], model.columns[:, 1:] @ model.scores[:RANK, RANK], atol=1e-12)
    assert prior.effect.shape == (D + 1, 2)
