"""The sums that EM asks of tasks: against Gaussian algebra on the rows, and added up over parts of the tasks."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from tailored import TaskSet
from tailored.gaussian import Mixture, TaskStatistics, em
from tailored.gaussian import statistics as statistics_module
from tailored.gaussian.forms import Form, refine
from tailored.gaussian.passes import CHUNK
from tailored.tasks import Units


def draw(n_tasks, d=4, K=3, seed=0):
    """Ragged tasks, one of them without rows, and a mixture with a component of rank two."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 2 * d, size=n_tasks)
    sizes[0] = 0
    tasks = TaskSet.from_tasks([(rng.normal(size=(n, d)), 2.0 * rng.normal(size=n)) for n in sizes])
    roots = rng.normal(size=(K, d, d)) / 2.0
    roots[0, :, 2:] = 0.0
    covariances = roots @ roots.transpose(0, 2, 1)
    mixture = Mixture(rng.dirichlet(np.ones(K)), rng.normal(size=(K, d)), covariances, 0.4)
    return tasks, TaskStatistics.of(tasks, Units.raw(d)), mixture


def by_rows(tasks, mixture):
    """The same sums from the n × n covariance of each task's targets."""
    K, d = mixture.means.shape
    evidence, counts, residual = 0.0, np.zeros(K), 0.0
    first, second = np.zeros((K, d)), np.zeros((K, d, d))
    for task in tasks:
        X, y, n = task.X, task.y, len(task.y)
        densities, found = np.ones(K), []
        for k, (b, W) in enumerate(zip(mixture.means, mixture.covariances, strict=True)):
            S = X @ W @ X.T + mixture.noise * np.eye(n)
            if n:
                densities[k] = multivariate_normal.pdf(y, X @ b, S)
            gain = W @ X.T @ np.linalg.inv(S)
            found.append((b + gain @ (y - X @ b), W - gain @ X @ W))
        r = mixture.proportions * densities
        evidence += np.log(r.sum())
        r /= r.sum()
        counts += r
        for k, (m, V) in enumerate(found):
            move = m - mixture.means[k]
            first[k] += r[k] * move
            second[k] += r[k] * (np.outer(move, move) + V)
            residual += r[k] * (np.sum((y - X @ m) ** 2) + np.trace(X @ V @ X.T))
    return evidence, counts, first, second, residual


def test_moments_are_those_of_the_rows():
    tasks, statistics, mixture = draw(30)
    found, _ = statistics.moments(mixture)
    expected = by_rows(tasks, mixture)
    names = ("log_evidence", "counts", "first", "second", "residual")
    for name, value in zip(names, expected, strict=True):
        # Responsibilities below 1e-6 are left out of the covariances.
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_moments_and_totals_of_parts_add_up():
    _, statistics, mixture = draw(50)
    parts = [statistics.take(np.arange(first, min(first + 17, 50))) for first in range(0, 50, 17)]
    whole, summed = statistics.moments(mixture).moments, parts[0].moments(mixture).moments
    totals = parts[0].totals()
    for part in parts[1:]:
        summed, totals = summed + part.moments(mixture).moments, totals + part.totals()
    for name in ("log_evidence", "counts", "first", "second", "residual"):
        np.testing.assert_allclose(getattr(summed, name), getattr(whole, name), rtol=1e-12, atol=1e-12)
    for name in ("n_tasks", "n_rows", "square", "cross", "gram"):
        np.testing.assert_allclose(getattr(totals, name), getattr(statistics.totals(), name), rtol=1e-12)


def test_blocks_change_nothing_but_rounding_and_threads_nothing(monkeypatch):
    _, statistics, mixture = draw(3 * CHUNK + 50)
    whole = statistics.moments(mixture)
    monkeypatch.setattr(statistics_module, "BLOCK_FLOATS", 16)
    assert len(statistics.blocks()) == 4
    blocks = statistics.moments(mixture)
    np.testing.assert_allclose(blocks.moments.second, whole.moments.second, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(blocks.responsibilities, whole.responsibilities)
    for n_threads in (2, 3):
        found = replace(statistics, n_threads=n_threads).moments(mixture)
        for name in ("log_evidence", "counts", "first", "second", "residual"):
            np.testing.assert_array_equal(getattr(found.moments, name), getattr(blocks.moments, name))


@pytest.mark.parametrize(
    "form",
    [
        Form("mixture", 3, learn_mean=True),
        Form("mixed model", learn_mean=True),
        Form("mixed model", learn_mean=True, structure="diagonal"),
        Form("mixed model", learn_mean=True, n_factors=1, pseudo_tasks=1.0),
    ],
)
def test_refining_on_all_tasks_explains_them_better(form):
    _, statistics, mixture = draw(200)
    if form.kind == "mixed model":
        W = (
            np.diag(np.diag(mixture.covariances[1]))
            if form.structure == "diagonal"
            else mixture.covariances[1]
        )
        mixture = Mixture(np.ones(1), mixture.means[1:2], W[None], mixture.noise)
    sample = statistics.take(np.arange(60))
    diagonal = form.structure == "diagonal"
    start = em(sample, mixture, max_iter=30, diagonal=diagonal).mixture
    found = refine(statistics, form, start)
    before, after = (model.expect(statistics).log_evidence.sum() for model in (start, found))
    assert after > before + 1.0
    if diagonal:
        assert np.count_nonzero(found.covariances[0] - np.diag(np.diag(found.covariances[0]))) == 0
