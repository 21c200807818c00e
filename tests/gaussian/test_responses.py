"""Binary and count responses: posteriors, fits and predictions, compared with brute-force
integration.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from scipy.special import expit

from reference import response_log_likelihood, response_posterior
from tailored import EmpiricalBayesClassifier
from tailored.gaussian.em import LARGEST_LOSS, MStep, em, fit_mixed_model
from tailored.gaussian.mixture import Mixture, Shrinkage
from tailored.gaussian.moments import Want
from tailored.gaussian.responses import RESPONSES, Gaussian
from tailored.gaussian.sites import ResponseRows

ALL = Want(means=True, covariances=True, sums=True)
DISPERSION = 0.4


def draw(name, f, rng):
    """Return targets with the linear predictors f."""
    if name == "bernoulli":
        return (rng.random(len(f)) < scipy.special.expit(f)).astype(float)
    mean = np.exp(f)
    return rng.poisson(
        mean if name == "poisson" else mean * rng.gamma(1 / DISPERSION, DISPERSION, len(f))
    )


def environment(name, roots, sizes, *, means=None, seed=0, constant=True):
    """Return rows of tasks whose coefficients have the covariances LLᵀ of ``roots`` (K, d, p)."""
    rng, d = np.random.default_rng(seed), roots.shape[1]
    means = np.zeros(roots.shape[:2]) if means is None else means
    X, T = rng.normal(size=(sum(sizes), d)), len(sizes)
    X[:, -1] = 1.0 if constant else X[:, -1]
    component = rng.integers(len(roots), size=T)
    w = means[component] + np.einsum(
        "tdp,tp->td", roots[component], rng.normal(size=(T, roots.shape[2]))
    )
    y = draw(name, np.einsum("nd,nd->n", X, np.repeat(w, sizes, axis=0)), rng).astype(float)
    starts = np.append(0, np.cumsum(sizes))
    rows = ResponseRows(X, y, starts, RESPONSES[name](), np.zeros(len(y)), np.ones(len(y)))
    covariances = roots @ roots.transpose(0, 2, 1)
    return rows, Mixture(np.full(len(roots), 1 / len(roots)), means, covariances, DISPERSION)


def reference(rows, t, b, W, **options):
    at = slice(rows.starts[t], rows.starts[t + 1])
    options |= {"dispersion": DISPERSION, "offset": rows.offset[at], "weights": rows.weights[at]}
    return response_posterior(rows.X[at], rows.y[at], rows.response.name, b, W, **options)


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("p", [0, 1, 2, 3])
def test_posterior_is_that_of_a_grid(name, p):
    # In three dimensions W is singular for p < 3; the first task has no rows.
    roots = np.random.default_rng(p).normal(size=(1, 3, p)) * (1.0 if name == "bernoulli" else 0.5)
    rows, model = environment(name, roots, [0, 1, 3, 9], means=np.array([[0.5, -0.3, 0.2]]))
    rng = np.random.default_rng(1)
    rows = replace(rows, offset=rng.normal(size=13), weights=rng.choice([0.5, 1.0, 2.0], size=13))
    found, nothing = rows.posterior(model, ALL), rows.posterior(model)
    assert len(nothing.means) == len(nothing.covariances) == len(nothing.sums.counts) == 0
    tolerance = (1e-12, 1e-7, 1e-3, 0.06)[p]  # fewer nodes per direction
    for t in range(len(rows)):
        log_evidence, mean, covariance = reference(rows, t, model.means[0], model.covariances[0])
        assert found.log_evidence[t] == pytest.approx(log_evidence, abs=0.1 * tolerance)
        np.testing.assert_allclose(found.mean[t], mean, atol=0.3 * tolerance)
        np.testing.assert_allclose(found.covariances[t], covariance, atol=tolerance)


@pytest.mark.parametrize("name", RESPONSES)
def test_posterior_of_many_directions_is_close_to_importance_sampling(name):
    roots = 0.4 * np.random.default_rng(3).normal(size=(1, 5, 5))
    rows, model = environment(name, roots, [6] * 3)
    found = rows.posterior(model, ALL)
    for t in range(len(rows)):
        log_evidence, mean, covariance = reference(
            rows, t, model.means[0], model.covariances[0], n_draws=500_000
        )
        assert found.log_evidence[t] == pytest.approx(log_evidence, abs=0.03)
        np.testing.assert_allclose(found.mean[t], mean, atol=0.03)
        np.testing.assert_allclose(found.covariances[t], covariance, atol=0.05)


def test_large_counts_and_misfitted_rows_are_finite():
    y = np.array([0.0, 900.0, 1e6, 3.0])
    rows = ResponseRows(
        np.ones((4, 1)), y, np.array([0, 1, 2, 4]), RESPONSES["poisson"](), np.zeros(4), np.ones(4)
    )
    found = rows.posterior(
        Mixture(np.ones(1), np.full((1, 1), 40.0), np.full((1, 1, 1), 9.0), 1.0), ALL
    )
    assert np.isfinite(found.log_evidence).all()
    # 900 events determine the log rate to 1 / 30.
    assert found.means[1, 0, 0] == pytest.approx(np.log(900.0), abs=0.02)
    assert found.covariances[1, 0, 0] == pytest.approx(1 / 900, rel=0.02)


def test_counts_far_from_their_prior_have_the_posterior_of_a_grid():
    X, y, W = np.array([1.0, 0.9]), np.array([5.7e6, 0.0]), 0.1
    rows = ResponseRows(
        X[:, None], y, np.array([0, 2]), RESPONSES["poisson"](), np.zeros(2), np.ones(2)
    )
    found = rows.posterior(Mixture(np.ones(1), np.zeros((1, 1)), np.full((1, 1, 1), W), 1.0), ALL)

    def log_density(w):
        return np.sum(y * (w * X) - np.exp(w * X)) - 0.5 * w**2 / W

    mode = scipy.optimize.minimize_scalar(
        lambda w: -log_density(w), bounds=(0, 30), method="bounded"
    ).x
    sd = (1.0 / W + np.sum(X**2 * np.exp(mode * X))) ** -0.5
    grid = mode + sd * np.linspace(-20, 20, 4001)
    weights = scipy.special.softmax([log_density(w) for w in grid])
    mean = weights @ grid
    assert found.means[0, 0, 0] == pytest.approx(mean, abs=0.01 * sd)
    assert found.covariances[0, 0, 0] == pytest.approx(weights @ (grid - mean) ** 2, rel=0.01)


def test_components_are_weighted_by_their_evidence():
    roots, means = np.array([[[0.5]], [[1.5]]]), np.array([[2.0], [-1.0]])
    rows, model = environment("bernoulli", roots, [4] * 5, means=means)
    side = np.random.default_rng(0).normal(size=(5, 1))
    model = replace(model, side=np.array([[0.7]]), gates=np.array([[0.0, 1.0], [0.3, -1.0]]))
    found = replace(rows, side=side).posterior(model, ALL)
    for t, v in enumerate(side[:, 0]):
        each = [
            reference(rows, t, model.means[k] + 0.7 * v, model.covariances[k]) for k in range(2)
        ]
        joint = np.array([one[0] for one in each]) + scipy.special.log_softmax([v, 0.3 - v])
        assert found.log_evidence[t] == pytest.approx(scipy.special.logsumexp(joint), abs=1e-5)
        np.testing.assert_allclose(found.shares[t], scipy.special.softmax(joint), atol=1e-5)
        np.testing.assert_allclose(found.means[t], [one[1] for one in each], atol=1e-4)
    second = sum(
        r * (C + (m - b) ** 2) for r, C, m, b in _of_component(rows, side, model, found, 0)
    )
    assert found.sums.second[0, 0, 0] == pytest.approx(second, rel=1e-4)
    # A component that is skipped has no share.
    among = np.repeat([[False, True]], 5, axis=0)
    assert (replace(rows, side=side).posterior(model, ALL, among).shares == [0.0, 1.0]).all()


def _of_component(rows, side, model, found, k):
    for t, v in enumerate(side[:, 0]):
        b = model.means[k] + 0.7 * v
        _, mean, covariance = reference(rows, t, b, model.covariances[k])
        yield found.shares[t, k], covariance[0, 0], mean[0], b[0]


def test_fit_learns_a_dispersion_and_fixed_effects():
    roots = np.array([[[0.0], [0.7]]])
    rows, model = environment("negative_binomial", roots, [8] * 300, means=np.array([[0.4, 1.0]]))
    found = fit_mixed_model(rows, covariance="intercept")
    rng = np.random.default_rng(0)
    for _ in range(4):
        other = replace(
            found,
            means=found.means + 0.05 * rng.normal(size=(1, 2)),
            covariances=found.covariances * rng.uniform(0.85, 1.15),
            noise=found.noise * rng.uniform(0.85, 1.15),
        )
        assert rows.posterior(other).log_evidence.sum() < rows.posterior(found).log_evidence.sum()
    assert found.noise == pytest.approx(DISPERSION, rel=0.2)
    np.testing.assert_allclose(found.means, model.means, atol=0.12)


#: Positions and log weights of a dense sum over a standard normal variable.
DENSE = np.linspace(-8.0, 8.0, 401)
DENSE_WEIGHTS = -0.5 * DENSE**2 - scipy.special.logsumexp(-0.5 * DENSE**2)


def dense_log_likelihood(rows, b, sigma):
    """Return the log likelihood of a random intercept, without constants, by a dense sum."""
    f = (rows.X @ b)[:, None] + sigma * DENSE
    is_binary = rows.response.name == "bernoulli"
    h = np.logaddexp(0.0, f) if is_binary else np.exp(np.minimum(f, 100.0))
    each = rows.weights[:, None] * (rows.y[:, None] * f - h)
    return scipy.special.logsumexp(
        np.add.reduceat(each, rows.starts[:-1]) + DENSE_WEIGHTS, axis=1
    ).sum()


def table(name, sigma, seed, weight):
    """Return 20 tasks of 8 rows with a column and a random intercept."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=160), np.ones(160)])
    y = draw(name, X @ [0.3, -1.0] + sigma * np.repeat(rng.normal(size=20), 8), rng).astype(float)
    starts = np.arange(0, 161, 8)
    return ResponseRows(X, y, starts, RESPONSES[name](), np.zeros(160), np.full(160, weight))


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
@pytest.mark.parametrize(("sigma", "weight"), [(0.0, 1.0), (0.0, 0.1), (0.3, 1.0), (1.2, 1.0)])
def test_fit_of_a_random_intercept_is_the_exact_maximum(name, sigma, weight):
    for seed in (10, 207):
        rows = table(name, sigma, seed, weight)
        model = fit_mixed_model(rows, covariance="intercept")
        found = np.append(model.means[0], np.sqrt(model.covariances[0, 1, 1]))
        best = max(
            -scipy.optimize.minimize(
                lambda p, rows=rows: -dense_log_likelihood(rows, p[:2], p[2]), [*b, spread]
            ).fun
            for b, spread in [(rows.pooled[0], 0.0), (rows.pooled[0], 0.7), ([0.3, -1.0], 1.2)]
        )
        assert dense_log_likelihood(rows, found[:2], found[2]) > best - 0.001
        # The order of tasks and rows does not matter.
        order = np.arange(160)[::-1]
        turned = replace(rows, X=rows.X[order], y=rows.y[order])
        again = fit_mixed_model(turned, covariance="intercept")
        np.testing.assert_allclose(again.means, model.means, atol=1e-4)


def test_fit_of_an_intercept_and_a_slope_is_the_exact_maximum():
    rows = table("bernoulli", 1.0, 3, 1.0)
    u, v = (part.ravel() for part in np.meshgrid(DENSE[::16], DENSE[::16]))
    log_weights = -0.5 * (u**2 + v**2)
    log_weights -= scipy.special.logsumexp(log_weights)

    def negative(p):
        slopes, intercepts = p[0] + p[2] * u, p[1] + p[3] * u + p[4] * v
        f = rows.X[:, :1] * slopes + intercepts
        each = rows.y[:, None] * f - np.logaddexp(0.0, f)
        joint = np.add.reduceat(each, rows.starts[:-1]) + log_weights
        return -scipy.special.logsumexp(joint, axis=1).sum()

    model = fit_mixed_model(rows)
    (W,), found = model.covariances, model.means[0]
    slope = np.sqrt(W[0, 0])
    entries = [slope, W[1, 0] / slope, np.sqrt(W[1, 1] - W[1, 0] ** 2 / W[0, 0])]
    best = min(
        scipy.optimize.minimize(negative, start, options={"maxiter": 60}).fun
        for start in ([*found, *entries], [0.3, -1.0, 0.3, 0.1, 1.0])
    )
    assert negative([*found, *entries]) < best + 0.005


@pytest.mark.parametrize("name", RESPONSES)
def test_scores_are_the_derivatives_of_the_evidence(name):
    roots = 0.6 * np.random.default_rng(3).normal(size=(1, 3, 2))
    rows, model = environment(name, roots, [1, 4, 9, 3], means=np.array([[0.3, 0.1, 0.2]]))
    rows = replace(rows, weights=np.random.default_rng(1).choice([0.5, 1.0, 2.0], size=17))
    L, entries, d = roots[0], np.tril_indices(2), 3
    has_dispersion = name == "negative_binomial"

    def derivatives(p):
        b, more, rest = np.split(p, [d, d + 3])
        D = np.zeros((3, 2))
        D[entries] = more
        noise = DISPERSION * np.exp(rest.sum())
        return rows.scores(b, L + D, noise, rows.X, entries)

    at = np.zeros(6 + has_dispersion)
    at[:3] = model.means[0]
    _, scores, information = derivatives(at)
    h = 1e-4
    steps = [(derivatives(at + h * e), derivatives(at - h * e)) for e in np.eye(len(at))]
    slopes = np.stack([(up[0] - down[0]) / (2 * h) for up, down in steps], axis=1)
    np.testing.assert_allclose(scores, slopes, rtol=1e-3, atol=2e-3)
    changes = np.stack([(down[1] - up[1]) / (2 * h) for up, down in steps], axis=1)
    np.testing.assert_allclose(information, changes, rtol=0.01, atol=0.01)


def test_a_restricted_fit_does_not_depend_on_an_unrestricted_start():
    # Without its correlations, the evidence of the start is lower by more than LARGEST_LOSS.
    roots = (
        np.eye(5)[None] * 0.3 + np.array([1.0, 1.0, -1.0, 1.0, -1.0])[:, None] * np.eye(5)[:1] * 1.5
    )
    rows, truth = environment("poisson", roots, [12] * 40)
    direct = fit_mixed_model(rows, covariance="diagonal")
    assert (
        rows.posterior(direct).log_evidence.mean()
        < rows.posterior(truth).log_evidence.mean() - LARGEST_LOSS
    )
    for start in fit_mixed_model(rows), truth:
        found = fit_mixed_model(rows, covariance="diagonal", start=start)
        np.testing.assert_array_equal(
            found.covariances[0], np.diag(found.covariances[0].diagonal())
        )
        np.testing.assert_allclose(found.covariances, direct.covariances, rtol=0.03, atol=1e-3)
    # Many pseudo-tasks with a diagonal covariance determine W.
    prior = Shrinkage(1e6, np.diag(direct.covariances[0].diagonal()))
    shrunk = em(rows, truth, max_iter=60, m_step=MStep(shrinkage=prior)).mixture
    np.testing.assert_allclose(shrunk.covariances[0], prior.target, atol=1e-3)


@pytest.mark.parametrize("name", RESPONSES)
def test_response_has_the_likelihood_and_the_mean_of_scipy(name):
    response, y = RESPONSES[name](), np.array([0.0, 1.0, 1.0 if name == "bernoulli" else 3.0])
    f = np.array([-1.0, 0.5, 2.0])
    expected = response_log_likelihood(name, y, f, DISPERSION)
    np.testing.assert_allclose(response.log_likelihood(y, f, DISPERSION), expected)
    _, slope, curvature = response.derivatives(y, f, DISPERSION)
    values = [response.log_likelihood(y, f + h, DISPERSION) for h in (-1e-4, 0.0, 1e-4)]
    np.testing.assert_allclose(slope, (values[2] - values[0]) / 2e-4, atol=1e-6)
    np.testing.assert_allclose(
        curvature, -(values[2] - 2 * values[1] + values[0]) / 1e-8, atol=1e-5
    )
    # The mean for a normal linear predictor, from a fine grid.
    z = np.linspace(-9.0, 9.0, 4001)
    density = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    for variance in (0.01, 1.0, 30.0) if name == "bernoulli" else (0.01, 1.0):
        averaged = [response.mean(m + np.sqrt(variance) * z) @ density for m in f]
        np.testing.assert_allclose(response.mean(f, np.full(3, variance)), averaged, rtol=1e-6)


@pytest.mark.parametrize("name", ["gaussian", *RESPONSES])
def test_draws_of_several_units_have_the_moments_of_their_sum(name):
    response, n = (Gaussian() if name == "gaussian" else RESPONSES[name]()), 40_000
    f, units, noise = np.array([-1.0, 0.5, 1.5]), np.array([1.0, 3.0, 2.5]), np.full(3, DISPERSION)
    draws = np.tile(f, (n, 1))
    response.draw(np.random.default_rng(0), draws, noise, units)
    p, rate = scipy.special.expit(f), np.exp(f)
    means = {"gaussian": f, "bernoulli": p}.get(name, rate)
    variances = {
        "gaussian": noise,
        "bernoulli": p * (1 - p) * units / np.ceil(units),  # smaller for a part of a unit
        "poisson": rate,
        "negative_binomial": rate + DISPERSION * rate**2,
    }[name]
    np.testing.assert_allclose(
        draws.mean(axis=0), units * means, atol=5 * np.sqrt(units * variances / n).max()
    )
    np.testing.assert_allclose(draws.var(axis=0), units * variances, rtol=0.06)
    if name == "bernoulli":
        assert set(np.unique(draws[:, 0])) == {0.0, 1.0}


@pytest.mark.parametrize("name", ["poisson", "negative_binomial"])
@pytest.mark.parametrize("mean", [0.01, 3.0, 9e6])
def test_one_fit_to_counts_of_any_size(name, mean):
    """An intercept alone is the logarithm of the mean count per unit of exposure."""
    y = np.round(mean * np.array([0.5, 1.0, 1.5, 1.0])) + np.array([0.0, 0.0, 0.0, 1.0])
    b, _ = RESPONSES[name]().pooled_fit(np.ones((4, 1)), y, np.full(4, np.log(2.0)), np.ones(4))
    np.testing.assert_allclose(b, np.log(y.mean() / 2.0), rtol=1e-4)


def test_a_pooled_fit_without_rows_is_zero():
    nothing = np.zeros(0)
    for name in ("poisson", "negative_binomial"):
        coef, _ = RESPONSES[name]().pooled_fit(np.zeros((0, 2)), nothing, nothing, nothing)
        np.testing.assert_array_equal(coef, [0.0, 0.0])


def test_means_of_logistic_normal_probabilities():
    """By Gauss-Hermite quadrature with many nodes; the approximation of the logistic function has
    an error below 3e-9.
    """
    f, (nodes, weights) = np.linspace(-12.0, 12.0, 97), np.polynomial.hermite_e.hermegauss(200)
    for variance in (1e-12, 0.3, 2.0):
        exact = (
            scipy.special.expit(f[:, None] + np.sqrt(variance) * nodes) @ weights / weights.sum()
        )
        np.testing.assert_allclose(
            RESPONSES["bernoulli"]().mean(f, variance), exact, rtol=0.0, atol=3e-9
        )


@pytest.mark.usefixtures("no_curves")
def test_standard_errors_of_separable_classes_are_those_of_the_information():
    """Scores are nearly zero there, and must not make the steps of the differences large."""
    rng = np.random.default_rng(8)
    x, groups = rng.normal(size=(200, 1)), np.repeat(np.arange(25), 8)
    learner = EmpiricalBayesClassifier(varying=[]).fit(x, (x[:, 0] > 0).astype(int), groups=groups)
    frame = learner.summary().to_frame("effects")
    X = np.hstack([x, np.ones((200, 1))])
    p = expit(X @ frame["fixed effect"].to_numpy())
    expected = np.sqrt(np.diag(np.linalg.inv((X * (p * (1 - p))[:, None]).T @ X)))
    np.testing.assert_allclose(frame["std. error"], expected, rtol=0.05)
