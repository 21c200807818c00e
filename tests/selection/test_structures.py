"""Sums over parts of the tasks, and EM on all tasks."""

from dataclasses import replace

import numpy as np
import pytest

from tailored import TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.em import em
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.gaussian.side import Group
from tailored.selection.data import Training
from tailored.selection.steps import mixtures
from tailored.selection.steps.covariance import covariance_structures, ridge_structures
from tailored.selection.steps.mixtures import TRUNCATIONS, MixtureModel
from tailored.selection.structures import PSEUDO_TASKS, Independent, MixedModel
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
    found = form.refine(statistics, start)
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
    found = MixedModel("intercept").refine(statistics, start)
    left, right = np.zeros((d, d)), np.zeros(d)
    for G, c in zip(statistics.gram, statistics.cross, strict=True):
        # XᵀV⁻¹ = (σ²I + XᵀX W)⁻¹ Xᵀ
        inverse = np.linalg.inv(found.noise * np.eye(d) + G @ found.covariances[0])
        left, right = left + inverse @ G, right + inverse @ c
    np.testing.assert_allclose(found.means[0], np.linalg.solve(left, right), atol=2e-5)
    assert np.abs(found.means - start.means).max() > 0.1


def test_slopes_of_a_random_intercept_are_generalised_least_squares():
    rng = np.random.default_rng(5)
    start, n = rng.uniform(0.0, 4.0, 60), 5
    x = (
        start[:, None] + np.arange(n) / 10.0
    )  # the slope within tasks is 1, and that between tasks is 0.1
    y = x - 0.9 * start[:, None] + rng.normal(0, 0.4, (60, 1)) + rng.normal(0, 0.1, (60, n))
    X = np.stack([x, np.ones_like(x)], axis=2)
    tasks = Moments.of(TaskSet.from_tasks(zip(X, y, strict=True)), Scaling.raw(2))
    model = Training(tasks, [0], has_intercept=True).fit(MixedModel("intercept"))
    precision = np.linalg.inv(model.noise * np.eye(n) + model.covariances[0, 1, 1])
    left, right = (
        np.einsum("tni,nm,tmj->ij", X, precision, X),
        np.einsum("tni,nm,tm->i", X, precision, y),
    )
    np.testing.assert_allclose(model.means[0], np.linalg.solve(left, right), atol=2e-5)
    assert model.means[0, 0] > 0.8
    np.testing.assert_array_equal(model.covariances[0].nonzero(), [[1], [1]])


@pytest.mark.parametrize("has_side", [False, True])
@pytest.mark.parametrize("has_intercept", [False, True])
def test_every_form_can_be_fitted(has_intercept, has_side, monkeypatch):
    tasks = make_clusters(30, n_clusters=2, n_rows=12, n_features=4, rank=1, random_state=0)
    units = Scaling.of(tasks, has_intercept, centre=True)
    v = np.random.default_rng(0).normal(size=(30, 2)) if has_side else None
    statistics, d = Moments.of(tasks, units, v), 4 + has_intercept
    groups = [Group(0, False, np.arange(2), np.eye(2))] if has_side else []
    monkeypatch.setattr(mixtures, "least_gain", lambda n: -np.inf)  # every group is relevant
    fitter = Training(statistics, [0], groups)
    forms = [*covariance_structures(d, has_intercept), *ridge_structures()]
    forms += [
        MixtureModel(n_components=2, has_gates=has_gates, truncation=threshold)
        for has_gates in {False, has_side}
        for threshold in TRUNCATIONS
    ]
    assert len(set(forms)) == len(forms)
    for form in forms:
        mixture = fitter.fit(form)
        assert mixture.n_components == form.n_components
        assert (mixture.gates is not None) == ("has_gates" in form.describe())
        assert np.linalg.eigvalsh(mixture.covariances).min() > -1e-9
        assert np.isfinite(statistics.posterior(mixture).log_evidence).all()
        W, covariance = mixture.covariances[0], form.describe().get("structure")
        if covariance == "none":
            assert not W.any()
        elif covariance == "diagonal":
            np.testing.assert_array_equal(W, np.diag(np.diag(W)))
        elif covariance == "intercept":
            assert W[-1, -1] > 0
            np.testing.assert_allclose(W[:-1], 0.0, atol=1e-12 * W[-1, -1])
    alone = fitter.fit(Independent(3.0))
    np.testing.assert_allclose(alone.covariances[0] / alone.noise, 3.0 * np.eye(d))
    # their noise is the most likely one for this ridge, so that its evidence can be compared
    evidence = [
        statistics.posterior(
            replace(alone, noise=f * alone.noise, covariances=f * alone.covariances)
        ).log_evidence.sum()
        for f in (0.9, 1.0, 1.1)
    ]
    assert evidence[1] > max(evidence[0], evidence[2])


def test_stronger_shrinkage_is_nearer_to_the_diagonal():
    fitter = Training(draw(40)[1], [0])
    off = []
    for nu in PSEUDO_TASKS:
        W = fitter.fit(MixedModel(pseudo_tasks=nu)).covariances[0]
        off.append(np.linalg.norm(W - np.diag(np.diag(W))))
    assert off == sorted(off, reverse=True)
