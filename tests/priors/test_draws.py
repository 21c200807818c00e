"""Joint draws of predicted rows, compared with dense algebra for all rows of all tasks together."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from tailored import TaskSet
from tailored.gaussian.errors import MeanCovariance
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.responses import Bernoulli, NegativeBinomial, Poisson
from tailored.priors.base import predict_blocks
from tailored.priors.draws import JointRows, adding
from tailored.priors.intervals import Calibration
from tailored.priors.mixture import MixturePrior
from tailored.priors.shared import SharedEffects, SharedLevels
from tailored.priors.side_features import SideFeatures
from tailored.tasks.rows import Scaling

N_DRAWS = 20_000
D = 3  # two columns and the intercept
SUPPORT, QUERY = (0, 2, 6), (3, 1, 4)


def some_tasks(sizes, seed):
    rng = np.random.default_rng(seed)
    side = np.random.default_rng(9).normal(size=(len(sizes), 1))
    return TaskSet.from_tasks(
        [(rng.normal(size=(n, 2)), rng.normal(size=n), s) for n, s in zip(sizes, side, strict=True)]
    )


def made_prior(n_components=1, *, rank=D, side=False):
    """Return a prior with random numbers, in units that are not those of the user."""
    rng = np.random.default_rng(3)
    roots = rng.normal(size=(n_components, D, rank)) * 0.7
    means, proportions = (
        rng.normal(size=(n_components, D)),
        rng.dirichlet(np.full(n_components, 3.0)),
    )
    features = SideFeatures.fit(some_tasks((1,) * 30, 5)) if side else None
    Gamma = rng.normal(size=(D, len(features.mean))) if side else None
    model = Mixture(proportions, means, roots @ roots.transpose(0, 2, 1), 0.3, Gamma)
    scaling = Scaling(np.array([2.0, 0.5, 1.0]), 3.0, np.array([0.4, -1.0, 0.0]), 5.0, True)
    return MixturePrior(scaling=scaling, model=model, side=features)


def made_errors(prior):
    """Return the covariance of the errors of b, and of the effect of the first feature on the
    intercept and a slope.
    """
    root = np.random.default_rng(4).normal(size=(5, 5)) * 0.3
    p = 3 if prior.side is None else 5
    return MeanCovariance(
        np.array([0, 1, 2, 2, 0])[:p], np.array([0, 0, 0, 1, 1])[:p], (root @ root.T)[:p, :p]
    )


def joint_rows(prior, support, query, *errors, calibrated=False):
    """Return the joint distribution; ``errors`` are those of the mean of each component."""
    errors = errors or [None] * prior.model.n_components
    return JointRows.of(prior, support, query, errors, calibrated=calibrated)


def drawn(rows, n=N_DRAWS):
    return rows.draw(n, np.random.default_rng(0))


def dense_moments(prior, component, support, query, errors=None):
    """Return mean and covariance of all query rows under one component, and the log evidence of
    each task.

    The predictor of the query rows is linear in the support rows and in the estimated fixed
    effects.  The covariance is that of its errors: of the coefficients, the noise, and the fixed
    effects, which all tasks share.
    """
    model, scaling = prior.model, prior.scaling
    W = model.covariances[component]
    v = np.zeros((len(support), 0)) if prior.side is None else prior.side(support)
    u = np.hstack([np.ones((len(support), 1)), v])
    b = model.means[component] + (0.0 if model.side is None else v @ model.side.T)
    b = np.broadcast_to(b, (len(support), D))

    def stacked(tasks):
        Z = np.zeros((len(tasks.y), len(tasks), D))
        Z[np.arange(len(tasks.y)), np.repeat(np.arange(len(tasks)), tasks.sizes)] = scaling.dense(
            tasks.X
        )
        return Z.reshape(len(tasks.y), len(tasks) * D)

    S, Q = stacked(support), stacked(query)
    prior_covariance = np.kron(np.eye(len(support)), W)
    V = S @ prior_covariance @ S.T + model.noise * np.eye(len(S))
    K = Q @ prior_covariance @ S.T @ np.linalg.inv(V)
    left = (support.y - scaling.target_shift) / scaling.target - S @ b.ravel()
    mean = scaling.target * (Q @ b.ravel() + K @ left) + scaling.target_shift
    covariance = (Q - K @ S) @ prior_covariance @ Q.T + model.noise * np.eye(len(Q))
    if errors is not None:
        design = np.zeros((len(support), D, len(errors.row)))
        design[:, errors.row, np.arange(len(errors.row))] = u[:, errors.column]
        moved = (Q - K @ S) @ design.reshape(-1, len(errors.row))
        covariance += moved @ errors.covariance @ moved.T
    evidence, start = [], 0
    for n in support.sizes:
        at = slice(start, start + n)
        evidence.append(stats.multivariate_normal(cov=V[at, at]).logpdf(left[at]) if n else 0.0)
        start += n
    return mean, scaling.target**2 * covariance, np.array(evidence)


def assert_moments(draws, mean, covariance):
    """Compare the moments of draws with expected ones, to five standard errors of Gaussian
    draws.
    """
    n, variance = len(draws), np.diag(covariance)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / n)).all()
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert (np.abs(np.cov(draws.T) - covariance) < 5 * spread).all()


@pytest.mark.parametrize("rank", [D, 1])
@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("has_errors", [False, True])
def test_draws_of_one_gaussian_have_the_moments_of_dense_algebra(rank, side, has_errors):
    prior = made_prior(rank=rank, side=side)
    errors = made_errors(prior) if has_errors else None
    support, query = some_tasks(SUPPORT, 0), some_tasks(QUERY, 1)
    rows = joint_rows(prior, support, query, errors)
    mean, covariance, _ = dense_moments(prior, 0, support, query, errors)
    np.testing.assert_allclose(rows.mean, mean, rtol=1e-10)
    assert_moments(drawn(rows), mean, covariance)
    # Sums are exact, also if a group has rows of several tasks and a task rows of several groups.
    group, units = (
        np.array([0, 1, 1, 0, 2, 1, 0, 0]),
        np.array([1.0, 2.0, 0.5, 3.0, 1.0, 0.0, 4.0, 1.5]),
    )
    A = (group == np.arange(3)[:, None]) * units
    noise = prior.scaling.target**2 * prior.model.noise
    expected = np.diag(A @ covariance @ A.T) + noise * (A - A**2).sum(axis=1)
    assert rows.is_gaussian
    np.testing.assert_allclose(rows.variances(group, 3, units), expected, rtol=1e-9)
    totals = rows.draw(N_DRAWS, np.random.default_rng(0), units, adding(group, 3, np.ones(8)))
    np.testing.assert_allclose(totals.var(axis=0), expected, rtol=5 * np.sqrt(2 / N_DRAWS))


@pytest.mark.parametrize("has_errors", [False, True])
def test_draws_of_a_mixture_have_its_distribution(has_errors):
    prior = made_prior(3)
    errors = [None] * 3
    if has_errors:  # the fewer tasks a component has, the larger are the errors of its mean
        errors = [
            replace(one := made_errors(prior), covariance=k * one.covariance) for k in (1, 2, 4)
        ]
    support, query = some_tasks(SUPPORT, 0), some_tasks(QUERY, 1)
    rows = joint_rows(prior, support, query, *errors)
    found = [dense_moments(prior, k, support, query, errors[k]) for k in range(3)]
    joint = np.log(prior.model.proportions) + np.array([evidence for *_, evidence in found]).T
    shares = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])[rows.task]
    draws = drawn(rows)
    for i in range(len(rows.task)):
        expected = [stats.norm(m[i], np.sqrt(C[i, i])) for m, C, _ in found]
        points = np.concatenate([one.ppf([0.1, 0.5, 0.9]) for one in expected])
        theirs = sum(
            share * one.cdf(points) for share, one in zip(shares[i], expected, strict=True)
        )
        mine = (draws[:, [i]] <= points).mean(axis=0)
        assert np.abs(mine - theirs).max() < 5 * 0.5 / np.sqrt(N_DRAWS)
    # Rows of a task are in the same component.
    first = slice(0, 3)
    centre = sum(shares[0, k] * found[k][0][first] for k in range(3))
    covariance = sum(
        shares[0, k] * (found[k][1][first, first] + np.outer(*[found[k][0][first] - centre] * 2))
        for k in range(3)
    )
    np.testing.assert_allclose(
        np.cov(draws[:, first].T), covariance, atol=0.05 * np.abs(covariance).max()
    )
    assert not rows.is_gaussian


@pytest.mark.parametrize("response", [Bernoulli(), Poisson(), NegativeBinomial()])
def test_classes_and_counts_of_a_mixture(response):
    """Without support rows, the distribution of a row is the prior mixture; errors do not change
    its mean.
    """
    prior = made_prior(3)
    scaling = response.scaling(prior.scaling)
    prior = replace(prior, response=response, scaling=scaling, model=prior.model.scaled(0.3))
    support, query = some_tasks((0, 0, 0), 0), some_tasks(QUERY, 1)
    x, model, nodes = scaling.dense(query.X), prior.model, np.linspace(-12.0, 12.0, 3001)
    weights = stats.norm.pdf(nodes) / stats.norm.pdf(nodes).sum()
    f = np.stack([
        (x @ b)[:, None] + np.sqrt(np.einsum("ni,ij,nj->n", x, W, x))[:, None] * nodes
        for b, W in zip(model.means, model.covariances, strict=True)
    ])  # fmt: skip
    means = expit(f) if response.name == "bernoulli" else np.exp(f)
    expected = np.einsum("k,knj,j->n", model.proportions, means, weights)
    found = predict_blocks(prior, support, query, 0.9)
    np.testing.assert_allclose(found.prediction, expected, rtol=1e-6)
    rows = joint_rows(prior, support, query, *[made_errors(prior)] * 3)
    draws = drawn(rows, 40_000)
    assert (np.abs(draws.mean(axis=0) - expected) < 5 * draws.std(axis=0) / np.sqrt(40_000)).all()
    if response.has_intervals:
        squares = (1.0 + response.has_dispersion * model.noise) * means**2 + means
        second = np.einsum("k,knj,j->n", model.proportions, squares, weights)
        np.testing.assert_allclose(found.std, np.sqrt(second - expected**2), rtol=1e-6)
        draws = drawn(joint_rows(prior, support, query), 40_000)
        inside = ((draws >= found.lower) & (draws <= found.upper)).mean(axis=0)
        without_ends = ((draws > found.lower) & (draws < found.upper)).mean(axis=0)
        assert (inside > 0.892).all()
        assert (without_ends < 0.908).all()


def test_rows_share_the_errors_of_their_categories():
    # The second column has codes of categories; 7 and -2 did not occur in training, so they are
    # independent.
    levels = SharedLevels(1, np.array([1.0, -2.0]), np.array([0.5, 0.25]), 4.0)
    prior = made_prior()
    prior = MixturePrior(scaling=prior.scaling, model=prior.model, shared=SharedEffects((levels,)))
    support, query = some_tasks((0, 0), 0), some_tasks((3, 3), 1)
    codes = np.array([0.0, 1.0, 7.0, -2.0, 0.0, 7.0])
    X, without = query.X.copy(), query.X.copy()
    X[:, 1], without[:, 1] = codes, 0.0
    rows = joint_rows(prior, support, query.replace(X=X))
    plain = joint_rows(made_prior(), support, query.replace(X=without))
    by_category = codes[:, None] == np.array([0.0, 1.0, 7.0, -2.0])
    added = by_category @ np.diag([0.5, 0.25, 4.0, 4.0]) @ by_category.T
    covariance = dense_moments(made_prior(), 0, support, query.replace(X=without))[1] + added
    effects = np.select([codes == 0, codes == 1], [1.0, -2.0])
    assert_moments(drawn(rows), plain.mean + effects, covariance)
    group = np.array([0, 0, 0, 0, 1, 1])
    expected = [covariance[np.ix_(group == g, group == g)].sum() for g in range(2)]
    np.testing.assert_allclose(rows.variances(group, 2, np.ones(6)), expected, rtol=1e-9)


def test_calibration_multiplies_the_variances():
    prior, support, query = made_prior(), some_tasks(SUPPORT, 0), some_tasks(QUERY, 1)
    # The scores without support rows are ±2, with six rows ±1; the noise of held-out rows is twice
    # that of the model.
    noise, n, weight = prior.model.noise, np.array(SUPPORT), 5.0
    scores, weights = [np.array([-2.0, 2.0]), np.array([-1.0, 1.0])], [np.full(2, 0.4)] * 2
    calibration = Calibration(np.array([0.0, 6.0]), scores, weights, 2 * noise, weight)
    calibrated = MixturePrior(scaling=prior.scaling, model=prior.model, calibration=calibration)
    task, units = np.repeat(np.arange(3), query.sizes), np.ones(8)
    plain = joint_rows(prior, support, query).variances(task, 3, units)
    found = joint_rows(calibrated, support, query, calibrated=True).variances(task, 3, units)
    squares = []  # of the residuals about the posterior mean, σ² V⁻¹ (y − Xb)
    for each in support:
        X = prior.scaling.dense(each.X)
        V = X @ prior.model.covariances[0] @ X.T + noise * np.eye(len(X))
        r = np.linalg.solve(V, prior.scaling.targets(each.y) - X @ prior.model.means[0])
        squares.append(noise**2 * (r @ r))
    own = (np.array(squares) + weight * 2 * noise) / (n + weight) / noise
    squared_scores = 1 + 3 * (1 - np.log1p(n) / np.log(7))  # interpolated in log(1 + n)
    np.testing.assert_allclose(found / plain, own * squared_scores, rtol=1e-9)
    uncalibrated = joint_rows(calibrated, support, query).variances(task, 3, units)
    np.testing.assert_allclose(uncalibrated, plain, rtol=1e-12)
