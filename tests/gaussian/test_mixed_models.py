"""Mixed models: evidence against scipy, EM's ascent, posterior means against the exact solver,
gradients.
"""

from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tailored import TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.em import NOISE_FLOOR, em, fit_mixed_model, fit_mixture, truncate
from tailored.gaussian.mixture import Mixture, Shrinkage, Want
from tailored.gaussian.moments import Moments
from tailored.losses import Squared
from tailored.paper.within_task import WithinTask
from tailored.tasks.episodes import SupportSampling, rotate
from tailored.tasks.rows import Rows, Scaling

seeds = st.integers(0, 10_000)


def random_psd(rng, d, rank=None):
    A = rng.normal(size=(d, rank or d))
    return A @ A.T


def gaussian_tasks(rng, n_tasks, b, W, noise=0.3, low=0, high=8):
    """Tasks of the model itself: w ~ N(b, W), y = Xw + noise."""
    entries = []
    for _ in range(n_tasks):
        X = rng.normal(size=(int(rng.integers(low, high)), len(b)))
        w = rng.multivariate_normal(b, W)
        entries.append((X, X @ w + noise * rng.normal(size=len(X))))
    return TaskSet.from_tasks(entries)


def raw(tasks, side=None):
    """Statistics in the units of the tasks themselves."""
    return Moments.of(tasks, Scaling.raw(tasks.n_features), side)


def random_mixture(rng, K, d, rank=None):
    proportions = rng.dirichlet(np.ones(K))
    covariances = np.array([random_psd(rng, d, rank) for _ in range(K)])
    return Mixture(proportions, rng.normal(size=(K, d)), covariances, float(rng.uniform(0.1, 2.0)))


# ---------------------------------------------------------------- evidence and posterior


def test_moments_of_a_mixture():
    rng = np.random.default_rng(0)
    mixture = random_mixture(rng, 3, 2)
    mean, covariance = mixture.moments()
    draws = rng.choice(3, size=200_000, p=mixture.proportions)
    sample = mixture.means[draws] + np.einsum(
        "tij,tj->ti", np.linalg.cholesky(mixture.covariances)[draws], rng.normal(size=(200_000, 2))
    )
    np.testing.assert_allclose(mean, sample.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(covariance, np.cov(sample.T), atol=0.05 * np.trace(covariance))


@settings(max_examples=20, deadline=None)
@given(seed=seeds, rank=st.integers(1, 4))
def test_posterior_mean_is_the_exact_solution_at_n_W_over_noise(seed, rank):
    """The rule for task sizes: with the squared loss, θ = n W / σ² is the prior N(b, W)."""
    rng = np.random.default_rng(seed)
    b, W, noise = rng.normal(size=4), random_psd(rng, 4, rank), rng.uniform(0.2, 2.0)
    tasks = gaussian_tasks(rng, 5, b, W, low=1)
    statistics = raw(tasks)
    model = Mixture(np.ones(1), b[None], W[None], noise)
    weights = statistics.posterior(model, Want(means=True)).mean
    for w, task in zip(weights, tasks, strict=True):
        rows = Rows(task.X, task.y, np.array([0, len(task.y)]))
        algorithm, theta = WithinTask(Squared(), tol=1e-13), len(task.y) * W / noise
        solution = algorithm.solve(rows, theta[None], offset=task.X @ b)
        np.testing.assert_allclose(w, solution.coef[0] + b, atol=1e-5)


# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize("centre", [False, True])
def test_statistics_and_units(centre):
    rng = np.random.default_rng(2)
    tasks = gaussian_tasks(rng, 5, np.ones(3), np.eye(3))
    X = tasks.X * np.array([1.0, 1e6, 0.0]) + 3.0 * centre
    measured = TaskSet.from_arrays(X, 1e-3 * tasks.y, tasks.offsets, tasks.labels)
    units = Scaling.of(measured, fit_intercept=True, centre=centre)
    n = len(measured.y)
    shift = X.mean(axis=0) if centre else np.zeros(3)
    y = measured.y - (measured.y.mean() if centre else 0.0)
    np.testing.assert_allclose(
        units.columns[:2], np.sqrt(((X - shift)[:, :2] ** 2).sum(axis=0) / n)
    )
    # a column that does not vary, measured by itself, and the constant
    np.testing.assert_array_equal(units.columns[2:], [3.0 if centre else 1.0, 1.0])
    assert units.target == pytest.approx(np.sqrt(np.mean(y**2)))
    scaled = np.hstack([X - shift, np.ones((n, 1))]) / units.columns
    found = Moments.of(measured, units)
    weights = rng.normal(size=4)
    for t, (a, b) in enumerate(zip(measured.offsets[:-1], measured.offsets[1:], strict=True)):
        Xt, yt = scaled[a:b], y[a:b] / units.target
        np.testing.assert_allclose(found.gram[t], Xt.T @ Xt, atol=1e-11)
        np.testing.assert_allclose(found.cross[t], Xt.T @ yt, atol=1e-11)
        residual = np.sum((yt - Xt @ weights) ** 2)
        assert found.squared_residuals(weights)[t] == pytest.approx(residual, abs=1e-10)
        each = found.squared_residuals(np.tile(weights, (5, 1)))
        assert each[t] == pytest.approx(residual, abs=1e-10)
    sparse = TaskSet.from_tasks([(sp.csr_array(t.X), t.y) for t in measured])
    np.testing.assert_allclose(Moments.of(sparse, units).gram, found.gram)
    if not centre:  # sparse columns are not shifted
        np.testing.assert_allclose(Scaling.of(sparse, True).columns, units.columns)


def test_statistics_that_do_not_fit_are_refused():
    tasks = TaskSet.from_tasks([(sp.csr_array((1, 20_000)), [1.0])])
    with pytest.raises(
        ValueError, match=r"X: the second moments of 1 tasks with 20000 columns need 3\.2 GB"
    ):
        raw(tasks)


# ---------------------------------------------------------------- EM


@patch("tailored.gaussian.em.EXTRA_COUNT", 0.0)
@settings(max_examples=15, deadline=None)
@given(seed=seeds, K=st.integers(1, 3), learn_mean=st.booleans())
def test_em_never_lowers_the_evidence(seed, K, learn_mean):
    rng = np.random.default_rng(seed)
    statistics = raw(gaussian_tasks(rng, 25, rng.normal(size=3), random_psd(rng, 3)))
    mixture = random_mixture(rng, K, 3)
    evidence = -np.inf
    for _ in range(12):
        result = em(statistics, mixture, max_iter=1, learn_mean=learn_mean)
        before = float(statistics.posterior(mixture).log_evidence.mean())
        assert before >= evidence - 1e-6 * max(1.0, abs(evidence))
        assert result.log_evidence >= before - 1e-6 * max(1.0, abs(before))
        evidence, mixture = before, result.mixture


def test_em_recovers_the_model():
    rng = np.random.default_rng(3)
    b, W = np.array([1.0, -2.0, 0.5]), np.diag([1.0, 0.25, 0.0]) + 0.1
    statistics = raw(gaussian_tasks(rng, 3000, b, W, noise=0.5, low=3, high=9))
    model = fit_mixed_model(statistics)
    np.testing.assert_allclose(model.means[0], b, atol=0.06)
    np.testing.assert_allclose(model.covariances[0], W, atol=0.1)
    assert model.noise == pytest.approx(0.25, rel=0.05)


def test_mixture_finds_the_clusters():
    tasks, truth = make_clusters(
        120, n_clusters=3, n_rows=40, n_features=9, rank=2, random_state=0, return_truth=True
    )
    statistics = raw(tasks)
    mixture = fit_mixture(statistics, fit_mixed_model(statistics), 3, seed=[0], learn_mean=False)
    found = statistics.posterior(mixture).shares.argmax(axis=1)
    table = np.zeros((3, 3))
    np.add.at(table, (truth.clusters, found), 1)
    assert table.max(axis=1).sum() == 120  # every cluster is one component
    assert len(set(table.argmax(axis=1))) == 3


def test_shifted_tasks_have_targets_without_their_part():
    rng = np.random.default_rng(12)
    v, shift = rng.normal(size=(9, 2)), rng.normal(size=(9, 3))
    rest = gaussian_tasks(rng, 9, np.ones(3), 0.1 * np.eye(3), low=1)
    entries = [(t.X, t.y + t.X @ m) for t, m in zip(rest, shift, strict=True)]
    found, expected = raw(TaskSet.from_tasks(entries), v).shifted(shift), raw(rest, v)
    for name in ("gram", "cross", "square", "sizes", "side"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-9)


def test_shrinkage_pulls_to_its_target():
    rng = np.random.default_rng(4)
    statistics = raw(gaussian_tasks(rng, 40, np.zeros(3), np.eye(3)))
    start, target = fit_mixed_model(statistics), np.diag([1.0, 2.0, 3.0])
    strong = em(statistics, start, max_iter=5, shrinkage=Shrinkage(1e9, target)).mixture
    np.testing.assert_allclose(strong.covariances[0], target, atol=1e-5)
    weak = em(statistics, start, max_iter=5, shrinkage=Shrinkage(1e-9, target)).mixture
    plain = em(statistics, start, max_iter=5).mixture
    np.testing.assert_allclose(weak.covariances, plain.covariances, atol=1e-6)


def test_truncation():
    rng = np.random.default_rng(5)
    W = random_psd(rng, 5)
    values = np.linalg.eigvalsh(W)
    threshold = (values[1] + values[2]) / 2 / values[-1]
    cut = truncate(Mixture(np.ones(1), np.zeros((1, 5)), W[None], 1.0), threshold).covariances[0]
    np.testing.assert_allclose(np.linalg.eigvalsh(cut), [0, 0, *values[2:]], atol=1e-12)
    # EM fits what is left and brings nothing back
    statistics = raw(gaussian_tasks(rng, 30, np.zeros(5), W))
    refitted = em(
        statistics, Mixture(np.ones(1), np.zeros((1, 5)), cut[None], 1.0), max_iter=4
    ).mixture
    assert np.linalg.matrix_rank(refitted.covariances[0], tol=1e-8) == 3


@pytest.mark.parametrize("structure", ["none", "intercept", "diagonal", "full"])
def test_interpolating_and_degenerate_tasks_stay_finite(structure):
    rng = np.random.default_rng(6)
    no_noise = [(X, X @ np.ones(4)) for X in rng.normal(size=(5, 2, 4))]
    zero = [(np.zeros((3, 4)), np.zeros(3))] * 2
    for entries in (no_noise, zero, [(np.zeros((0, 4)), np.zeros(0))]):
        statistics = raw(TaskSet.from_tasks(entries))
        model = fit_mixed_model(statistics, max_iter=1000, tol=1e-9, covariance=structure)
        # targets without a size of their own count as being of size one
        size = float(statistics.square.sum()) / statistics.n_rows or 1.0
        assert NOISE_FLOOR * size <= model.noise < 1e-3 * size
        assert all(
            np.isfinite(part).all() for part in (model.means, model.covariances, model.noise)
        )


# ---------------------------------------------------------------- episodes


def test_rotation_asks_for_every_row_once():
    rng = np.random.default_rng(9)
    sizes = (7, 1, 0, 3, 12)
    tasks = TaskSet.from_tasks(
        [(np.arange(n)[:, None] + 100.0 * t, np.zeros(n)) for t, n in enumerate(sizes)]
    )
    support, query, task = rotate(tasks, [int(rng.integers(100))])
    assert sorted(query.X.ravel()) == sorted(tasks.X.ravel())
    assert (query.sizes > 0).all()
    for t, given_rows, asked in zip(task, support, query, strict=True):
        assert t == asked.X[0, 0] // 100
        together = sorted([*given_rows.X.ravel(), *asked.X.ravel()])
        assert together == [100.0 * t + i for i in range(sizes[t])]
    assert len(rotate(tasks, [0], n_repeats=2).query) == 2 * len(query)


def test_draw_gives_so_many_rows():
    tasks = TaskSet.from_tasks([(np.arange(float(n))[:, None], np.zeros(n)) for n in (20, 4, 1, 0)])
    support, query, task = SupportSampling().draw(tasks, 6, [0], n_repeats=1)
    assert list(task) == [0, 1, 2]
    assert list(support.sizes) == [6, 3, 0]
    assert list(query.sizes) == [5, 1, 1]
    for given_rows, asked in zip(support, query, strict=True):
        assert not set(given_rows.X.ravel()) & set(asked.X.ravel())


def test_a_coefficient_without_variance_has_none_far_from_zero():
    """The slope varies, and the intercept at x = 0 does not, but that of centred rows does."""
    units = Scaling(np.ones(2), 1.0, np.array([1000.3, 0.0]), 0.0, True)
    slope = np.array([1.0, 1000.3])
    np.testing.assert_array_equal(units.raw_deviations(0.37 * np.outer(slope, slope))[1], 0.0)
    both = 0.37 * np.outer(slope, slope) + np.diag([0.0, 0.01])
    np.testing.assert_allclose(units.raw_deviations(both), np.sqrt([0.37, 0.01]), rtol=1e-6)
