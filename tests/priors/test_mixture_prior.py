"""Posteriors under a mixture prior, compared with Gaussian algebra on the rows, and with the form
of the paper.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from tailored import TaskSet
from tailored.gaussian.em import fit_mixed_model, fit_mixture
from tailored.gaussian.mixture import log_gates
from tailored.gaussian.rows import statistics_of
from tailored.learners.adapted_task import AdaptedTask
from tailored.priors.base import adapt_tasks, predict_blocks
from tailored.priors.intervals import Calibration
from tailored.priors.mixture import MixturePrior
from tailored.priors.side_features import SideFeatures
from tailored.tasks.rows import Scaling

D, Q = 6, 2


def some_tasks(seed, sizes, side=True):
    rng = np.random.default_rng(seed)
    entries = []
    for n in sizes:
        s = rng.normal(size=Q)
        w = rng.choice([-1.0, 1.0]) * np.linspace(1.0, 0.2, D) + 0.3 * rng.normal(size=D)
        X = 2.0 * rng.normal(size=(n, D)) + 0.5
        y = X @ (w + np.append(s, np.zeros(D - Q))) + 0.4 * rng.normal(size=n)
        entries.append((X, y, s) if side else (X, y))
    return TaskSet.from_tasks(entries)


@cache
def fitted_model(n_components, fit_intercept):
    tasks = some_tasks(0, [12] * 40)
    scaling = Scaling.of(tasks, fit_intercept)
    statistics = statistics_of(tasks, scaling)
    mixture = fit_mixed_model(statistics)
    if n_components > 1:
        mixture = fit_mixture(statistics, mixture, n_components, seed=[0])
    return scaling, mixture


def made_prior(n_components, moved=False, side=None, fit_intercept=False):
    """Return a prior with every part that training can add, with random numbers."""
    rng = np.random.default_rng(7)
    tasks, (scaling, mixture) = some_tasks(0, [12] * 40), fitted_model(n_components, fit_intercept)
    d, features = D + fit_intercept, None
    if side in ("description", "gates", "both"):
        features = SideFeatures.fit(tasks)
        q = len(features.mean)
        assert q > features.n_linear == Q  # splines, too
        if side != "gates":
            mixture = replace(mixture, side=0.3 * rng.normal(size=(d, q)))
        if side != "description":
            mixture = replace(mixture, gates=rng.normal(size=(n_components, 1 + q)))
    without_rows = 0.2 * rng.normal(size=d) if moved else None
    return MixturePrior(scaling=scaling, model=mixture, side=features, without_rows=without_rows)


def reference(prior, tasks, t):
    """Return weights, covariance (in units of the noise), τ and b of one task by n × n matrices."""
    model, one = prior.model, tasks[t : t + 1]
    X, y = prior.scaling.dense(one.X), prior.scaling.targets(one.y)
    d = model.means.shape[1]
    v = None if prior.side is None else prior.side(one)[0]
    moved = np.zeros(d) if model.side is None else model.side @ v
    log = np.log(model.proportions) if model.gates is None else log_gates(model.gates, v[None])[0]
    m, C = [], []
    for k, W in enumerate(model.covariances):
        b, V = model.means[k] + moved, X @ W @ X.T + model.noise * np.eye(len(y))
        gain = W @ X.T @ np.linalg.inv(V)
        m.append(b + gain @ (y - X @ b))
        C.append(W - gain @ X @ W)
        residual = y - X @ b
        log[k] += -0.5 * (residual @ np.linalg.solve(V, residual) + np.linalg.slogdet(V)[1])
    r = np.exp(log - log.max())
    r /= r.sum()
    w = r @ np.array(m)
    centred = np.array(m) - w
    covariance = np.tensordot(r, C, 1) + np.einsum("k,ki,kj->ij", r, centred, centred)
    if prior.without_rows is not None and not len(y):
        w = w + prior.without_rows
    tau = np.tensordot(r, model.covariances, 1) / model.noise
    return w, covariance / model.noise, tau, w + tau @ (X.T @ (X @ w - y))


def close(found, expected, tolerance=1e-8):
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max()
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("side", [None, "description", "gates", "both"])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("n_components", [1, 3])
def test_posterior_is_that_of_gaussian_algebra(n_components, moved, side, fit_intercept):
    prior = made_prior(n_components, moved, side, fit_intercept)
    tasks = some_tasks(2, [0, 1, 3, 9, 40, 5, 130])
    posterior = prior.posterior(tasks)
    taus, means = prior._represent(tasks, np.eye(prior.n_weights)), prior.mean(tasks)
    np.testing.assert_array_equal(posterior.n_rows, tasks.sizes)
    for t in range(len(tasks)):
        w, covariance, tau, b = reference(prior, tasks, t)
        close(posterior.weights[t], prior.scaling.raw_weights(w))
        close(posterior.covariances[t], covariance)
        close(taus[t], tau)
        # b is a small difference of large numbers
        np.testing.assert_allclose(means[t], b, rtol=1e-7, atol=1e-8 * max(np.abs(tau).max(), 1.0))
        X, y = prior.scaling.dense(tasks[t].X), prior.scaling.targets(tasks[t].y)
        assert posterior.squares[t] == pytest.approx(np.sum((y - X @ w) ** 2), rel=1e-6, abs=1e-9)
        model = AdaptedTask.of(prior, tasks[t : t + 1])
        weights = np.append(model.coef_, model.intercept_) if fit_intercept else model.coef_
        close(weights, posterior.weights[t])
        theta = max(len(y), 1) * prior.scaling.raw_representation(tau)
        close(model.representation_, theta)
        np.testing.assert_allclose(
            model.bias_,
            prior.scaling.raw_weights(means[t].copy()),
            rtol=1e-6,
            atol=1e-6 * np.abs(tau).max(),
        )


def test_sparse_rows_threads_and_other_tasks_change_nothing(monkeypatch):
    prior, tasks = made_prior(3, True, None, True), some_tasks(1, [9, 0, 4, 30, 7] * 12, side=False)
    found = adapt_tasks(prior, tasks)
    sparse = TaskSet.from_tasks([(sp.csr_array(task.X), task.y) for task in tasks])
    np.testing.assert_array_equal(adapt_tasks(prior, sparse).weights, found.weights)
    monkeypatch.setattr(MixturePrior, "block_floats", 4 * (D + 1) ** 2)
    again = adapt_tasks(prior, tasks)
    np.testing.assert_allclose(again.weights, found.weights, rtol=1e-12, atol=1e-13)
    for n_jobs in (2, 3):
        other = adapt_tasks(prior, tasks, n_jobs=n_jobs)
        np.testing.assert_array_equal(other.weights, again.weights)
        np.testing.assert_array_equal(other.covariances, again.covariances)


def test_prediction_intervals_of_blocks_are_those_of_single_tasks(monkeypatch):
    scores, weights = np.linspace(-2.0, 2.0, 101), np.full(101, 1.0 / 101.5)
    prior = made_prior(3, True, None, True)
    prior = replace(prior, calibration=Calibration(np.array([0.0]), [scores], [weights], 0.2))
    support, query = (
        some_tasks(4, [9, 0, 4, 30], side=False),
        some_tasks(5, [2, 3, 0, 7], side=False),
    )
    monkeypatch.setattr(MixturePrior, "block_floats", 2 * (D + 1) ** 2)
    found = predict_blocks(prior, support, query, 0.8)
    assert (found.lower < found.prediction).all()
    assert (found.prediction < found.upper).all()
    for t in range(4):
        rows = slice(query.offsets[t], query.offsets[t + 1])
        model = AdaptedTask.of(prior, support[t : t + 1])
        np.testing.assert_allclose(found.prediction[rows], model.predict(query[t].X), rtol=1e-9)
        ends = model.predict_interval(query[t].X, 0.8)
        np.testing.assert_allclose(found.lower[rows], ends[:, 0], rtol=1e-8)
        np.testing.assert_allclose(found.upper[rows], ends[:, 1], rtol=1e-8)
        np.testing.assert_allclose(found.std[rows], model.predict_std(query[t].X), rtol=1e-8)
        w, covariance, _, _ = reference(prior, support, t)
        X, y = prior.scaling.dense(support[t].X), prior.scaling.targets(support[t].y)
        x = prior.scaling.dense(query[t].X)
        own = (np.sum((y - X @ w) ** 2) + 5.0 * 0.2) / (len(y) + 5.0)
        std = prior.scaling.target * np.sqrt(
            own * (1.0 + np.einsum("ni,ij,nj->n", x, covariance, x))
        )
        np.testing.assert_allclose(found.std[rows], np.sqrt(np.mean(scores**2)) * std, rtol=1e-7)
