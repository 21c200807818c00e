"""Sums over parts of the tasks, and EM on all tasks."""

import numpy as np
import pytest

from tailored import TaskSet
from tailored.gaussian.em import em
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.gaussian.structures import MixedModel, MixtureModel, StructureFitter, refine
from tailored.tasks.rows import Scaling


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
    return tasks, Moments.of(tasks, Scaling.raw(d)), mixture


def test_moments_and_totals_of_parts_add_up():
    _, statistics, mixture = draw(50)
    parts = [statistics.take(np.arange(first, min(first + 17, 50))) for first in range(0, 50, 17)]
    whole, summed = statistics.sums(mixture).sums, parts[0].sums(mixture).sums
    totals = parts[0].totals()
    for part in parts[1:]:
        summed, totals = summed + part.sums(mixture).sums, totals + part.totals()
    for name in ("log_evidence", "counts", "first", "second", "residual"):
        np.testing.assert_allclose(
            getattr(summed, name), getattr(whole, name), rtol=1e-12, atol=1e-12
        )
    for name in ("n_tasks", "n_rows", "square", "cross", "gram"):
        np.testing.assert_allclose(
            getattr(totals, name), getattr(statistics.totals(), name), rtol=1e-12
        )


@pytest.mark.parametrize(
    "form",
    [
        MixtureModel(n_components=3),
        MixedModel(),
        MixedModel("diagonal"),
        MixedModel(pseudo_tasks=10.0),
    ],
)
def test_refining_on_all_tasks_explains_them_better(form):
    _, statistics, mixture = draw(200)
    diagonal = form == MixedModel("diagonal")
    if form.kind == "mixed model":
        W = np.diag(np.diag(mixture.covariances[1])) if diagonal else mixture.covariances[1]
        mixture = Mixture(np.ones(1), mixture.means[1:2], W[None], mixture.noise)
    sample = statistics.take(np.arange(60))
    start = em(sample, mixture, max_iter=30, restrict=form.restrict).mixture
    found = refine(statistics, form, start)
    before, after = (statistics.posterior(model).log_evidence.sum() for model in (start, found))
    assert after > before + 1.0
    if diagonal:
        assert np.count_nonzero(found.covariances[0] - np.diag(np.diag(found.covariances[0]))) == 0


def test_refining_a_random_intercept_gives_generalised_least_squares_of_all_tasks():
    _, statistics, mixture = draw(200)
    d = mixture.means.shape[1]
    W = np.zeros((1, d, d))
    W[0, -1, -1] = mixture.covariances[1, -1, -1]
    start = Mixture(np.ones(1), mixture.means[1:2], W, mixture.noise)
    found = refine(statistics, MixedModel("intercept"), start)
    left, right = np.zeros((d, d)), np.zeros(d)
    for G, c in zip(statistics.gram, statistics.cross, strict=True):
        # XᵀV⁻¹ = (σ²I + XᵀX W)⁻¹ Xᵀ
        inverse = np.linalg.inv(found.noise * np.eye(d) + G @ found.covariances[0])
        left, right = left + inverse @ G, right + inverse @ c
    np.testing.assert_allclose(found.means[0], np.linalg.solve(left, right), atol=2e-5)
    assert np.abs(found.means - start.means).max() > 0.1


def test_covariances_are_known():
    with pytest.raises(ValueError, match="covariance must be one of 'none', 'intercept'"):
        MixedModel("diag")


def test_slopes_of_a_random_intercept_are_generalised_least_squares():
    rng = np.random.default_rng(5)
    start, n = rng.uniform(0.0, 4.0, 60), 5
    x = (
        start[:, None] + np.arange(n) / 10.0
    )  # the slope within tasks is 1, and that between tasks is 0.1
    y = x - 0.9 * start[:, None] + rng.normal(0, 0.4, (60, 1)) + rng.normal(0, 0.1, (60, n))
    X = np.stack([x, np.ones_like(x)], axis=2)
    tasks = Moments.of(TaskSet.from_tasks(zip(X, y, strict=True)), Scaling.raw(2))
    model = StructureFitter.of(tasks, [0], has_intercept=True).fit(MixedModel("intercept"))
    precision = np.linalg.inv(model.noise * np.eye(n) + model.covariances[0, 1, 1])
    left, right = (
        np.einsum("tni,nm,tmj->ij", X, precision, X),
        np.einsum("tni,nm,tm->i", X, precision, y),
    )
    np.testing.assert_allclose(model.means[0], np.linalg.solve(left, right), atol=2e-5)
    assert model.means[0, 0] > 0.8
    np.testing.assert_array_equal(model.covariances[0].nonzero(), [[1], [1]])
