"""The Bayes oracles against brute force from the generative process, closed forms, limits and each
other.
"""

import numpy as np
import pytest
from scipy import special

from studies.curves import make_circle
from studies.theory.bayes import ClusterOracle, CurveOracle, sphere_posterior
from tailored.datasets import make_clusters

# ------------------------------------------------------------------------------------------- the
# sphere


def task_on_sphere(r, n, noise, seed):
    """A, b and a point of the sphere that n rows were drawn from."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal(r)
    u /= np.linalg.norm(u)
    X = rng.standard_normal((n, r))
    y = X @ u + noise * rng.standard_normal(n)
    return X.T @ X / noise**2, X.T @ y / noise**2


def on_circle(A, b, n_nodes=200_000):
    """Log mean of the density and mean of u by the trapezoidal rule over the angle."""
    angle = 2 * np.pi * np.arange(n_nodes) / n_nodes
    u = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    exponent = u @ b - 0.5 * np.einsum("ni,ij,nj->n", u, A, u)
    density = np.exp(exponent - exponent.max())
    return exponent.max() + np.log(density.mean()), density @ u / density.sum()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 40])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 1.0, 30.0])
def test_circle_by_the_angle(n, noise):
    nothing = sphere_posterior(np.zeros((2, 2)), np.zeros(2))[0]
    for seed in range(2):
        A, b = task_on_sphere(2, n, noise, seed)
        log_integral, mean = sphere_posterior(A, b)
        expected, expected_mean = on_circle(A, b)
        assert log_integral - nothing == pytest.approx(expected, rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(mean, expected_mean, atol=1e-10)


@pytest.mark.parametrize("r", [2, 3, 5, 12, 60])
@pytest.mark.parametrize("kappa", [1e-2, 1.0, 50.0, 1e4])
def test_von_mises_fisher(r, kappa):
    """A = 0: the mean has length I_{r/2} / I_{r/2-1}, and the integral is known as well."""
    direction = np.linspace(1, 2, r) / np.linalg.norm(np.linspace(1, 2, r))
    log_integral, mean = sphere_posterior(np.zeros((r, r)), kappa * direction)
    nothing = sphere_posterior(np.zeros((r, r)), np.zeros(r))[0]
    length = special.ive(r / 2, kappa) / special.ive(r / 2 - 1, kappa)
    np.testing.assert_allclose(mean, length * direction, atol=1e-12)
    nu = r / 2 - 1
    expected = (
        special.gammaln(r / 2) + nu * np.log(2 / kappa) + np.log(special.ive(nu, kappa)) + kappa
    )
    assert log_integral - nothing == pytest.approx(expected, abs=1e-9)


# ----------------------------------------------------------------------------------------- the
# clusters


@pytest.fixture(scope="module")
def clusters():
    """Two clusters in five dimensions, few rows, much noise: all uncertainty matters."""
    options = {"n_features": 5, "rank": 2, "n_rows": (1, 6), "noise": 0.4, "hint": 0.5}
    return make_clusters(12, n_clusters=2, random_state=3, return_truth=True, **options)


@pytest.mark.parametrize("overlapping", [False, True])
def test_clusters_by_brute_force(clusters, overlapping):
    """Draw cluster, hint and weights as the environment does; keep what fits the hint, weigh by the
    rows.
    """
    tasks, truth = clusters
    rng = np.random.default_rng(0)
    bases = rng.standard_normal((2, 5, 2)) if overlapping else truth.bases
    n, m = 400_000, 2
    cluster = rng.integers(m, size=n)
    hints = np.where(rng.random(n) < 0.5, cluster, rng.integers(m, size=n))
    u = rng.standard_normal((n, 2))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    w = np.einsum("ndr,nr->nd", bases[cluster], u)
    oracle = ClusterOracle(bases, truth.noise, truth.hint)
    weights, responsibilities = oracle.adapt_many(tasks), oracle.responsibilities(tasks)
    for t, task in enumerate(tasks):
        fits = hints == truth.hints[t]
        density = np.exp(
            -0.5 * ((task.y[:, None] - task.X @ w[fits].T) ** 2).sum(axis=0) / truth.noise**2
        )
        density /= density.sum()
        error = 5 * np.sqrt((density**2).sum())
        size = np.linalg.norm(w, axis=1).max()
        np.testing.assert_allclose(weights[t], density @ w[fits], atol=size * error)
        assert responsibilities[t, 0] == pytest.approx(density[cluster[fits] == 0].sum(), abs=error)
        assert error < 0.05


# ------------------------------------------------------------------------------------------- the
# circle


def test_circle_by_brute_force():
    tasks, truth = make_circle(
        6, n_features=3, n_rows=(1, 3), spread=0.5, random_state=1, return_truth=True
    )
    weights = CurveOracle(truth.mean, 0.5, 0.5).adapt_many(tasks)
    rng = np.random.default_rng(0)
    for t, task in enumerate(tasks):
        angle = 2 * np.pi * truth.s[t]
        w = 4 * (
            np.cos(angle) * truth.plane[0] + np.sin(angle) * truth.plane[1]
        ) + 0.5 * rng.standard_normal((200_000, 3))
        exponent = -2 * ((task.y[:, None] - task.X @ w.T) ** 2).sum(axis=0)
        density = np.exp(exponent - exponent.max())
        density /= density.sum()
        error = 5 * np.sqrt((density**2).sum())
        assert error < 0.15
        np.testing.assert_allclose(weights[t], density @ w, atol=error)


def test_circle_error_is_the_expected_one():
    """Without rows: E|N(0, noise² + spread² ‖x‖²)|; with three, the study's .767 within its
    noise.
    """
    tasks, truth = make_circle(2000, random_state=0, return_truth=True)
    oracle = CurveOracle(truth.mean, truth.spread, truth.noise)
    errors = oracle.task_errors(*tasks.support_query(0, random_state=0))
    expected = np.sqrt(2 / np.pi * (0.25 + 0.09 * (tasks.X**2).sum(axis=1))).mean()
    # `support_query` leaves every row as a query row here.
    assert errors.mean() == pytest.approx(expected, abs=5 * errors.std() / np.sqrt(2000))
    errors = oracle.task_errors(*tasks.support_query(3, random_state=0))
    assert errors.mean() == pytest.approx(0.767, abs=5 * errors.std() / np.sqrt(2000))
