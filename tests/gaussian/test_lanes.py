"""Eight tasks side by side: every size of system, every number of tasks, full and deficient W, against NumPy."""

import numpy as np
import pytest

from tailored.gaussian import Mixture, TaskStatistics
from tailored.gaussian.passes import CHUNK
from tailored.tasks import TaskSet, Units


def environment(T, d, K, ranks, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 2 * d + 2, size=T)
    tasks = TaskSet.from_tasks([(rng.normal(size=(n, d)), rng.normal(size=n)) for n in sizes])
    covariances = np.zeros((K, d, d))
    for k in range(K):
        root = rng.normal(size=(d, ranks[k % len(ranks)]))
        covariances[k] = root @ root.T / d
    mixture = Mixture(rng.dirichlet(np.ones(K)), rng.normal(size=(K, d)), covariances, 0.7)
    return TaskStatistics.of(tasks, Units.raw(d)), mixture


def plainly(statistics, mixture):
    """Joint log densities and posterior moments, task by task, with `numpy.linalg`."""
    T, d = statistics.cross.shape
    K, noise = mixture.n_components, mixture.noise
    joint, means, spreads = np.empty((T, K)), np.empty((T, K, d)), np.empty((T, K, d, d))
    residuals = np.empty((T, K))
    for t in range(T):
        G, c, n = statistics.gram[t], statistics.cross[t], statistics.sizes[t]
        for k, (b, W) in enumerate(zip(mixture.means, mixture.covariances, strict=True)):
            R = np.linalg.inv(np.eye(d) + W @ G / noise)
            u = R @ W @ (c - G @ b) / noise
            e = statistics.square[t] - 2.0 * c @ b + b @ G @ b
            quadratic = (e - (c - G @ b) @ u) / noise
            log_determinant = n * np.log(noise) - np.linalg.slogdet(R)[1]
            joint[t, k] = np.log(mixture.proportions[k]) - 0.5 * (
                log_determinant + quadratic + n * np.log(2.0 * np.pi)
            )
            means[t, k], spreads[t, k] = b + u, R @ W
            m = b + u
            residuals[t, k] = statistics.square[t] - 2.0 * c @ m + m @ G @ m + np.trace(G @ R @ W)
    return joint, means, spreads, residuals


@pytest.mark.parametrize(
    ("T", "d", "K", "ranks"),
    [
        (1, 1, 1, [1]),
        (7, 2, 2, [2, 0]),
        (8, 3, 1, [3]),
        (9, 5, 3, [5, 2, 1]),
        (CHUNK + 3, 9, 2, [9, 6]),
        (5, 14, 1, [14]),
    ],
)
def test_a_pass_is_gaussian_algebra(T, d, K, ranks):
    statistics, mixture = environment(T, d, K, ranks)
    joint, means, spreads, residuals = plainly(statistics, mixture)
    log_evidence = np.logaddexp.reduce(joint, axis=1)
    r = np.exp(joint - log_evidence[:, None])
    found = mixture.expect(statistics)
    np.testing.assert_allclose(found.log_evidence, log_evidence, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.responsibilities, r, atol=1e-8)
    np.testing.assert_allclose(found.means, means, atol=1e-7)
    moments, again = statistics.moments(mixture)
    np.testing.assert_array_equal(again, found.responsibilities)
    r = np.where(r > 1e-6, r, 0.0)  # what is negligible is left out
    moves = means - mixture.means
    second = np.einsum("tk,tkij->kij", r, spreads + np.einsum("tki,tkj->tkij", moves, moves))
    np.testing.assert_allclose(moments.first, np.einsum("tk,tki->ki", r, moves), atol=1e-7)
    np.testing.assert_allclose(moments.second, second, atol=1e-6)
    np.testing.assert_allclose(moments.residual, np.sum(r * residuals), rtol=1e-6, atol=1e-7)


def test_who_stands_beside_a_task_does_not_matter():
    statistics, mixture = environment(30, 4, 2, [4, 2])
    whole = mixture.expect(statistics)
    for some in (np.arange(3, 20), np.arange(29, -1, -4)):
        part = mixture.expect(statistics.take(some))
        for found, expected in zip(part, whole, strict=True):
            np.testing.assert_array_equal(found, expected[some])
