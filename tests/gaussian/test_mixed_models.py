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
from tailored.gaussian.em import NOISE_FLOOR, MStep, em, fit_mixed_model, fit_mixture
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.tasks.episodes import rotate
from tailored.tasks.rows import Scaling

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


# ---------------------------------------------------------------- statistics


def test_statistics_that_do_not_fit_are_refused():
    tasks = TaskSet.from_tasks([(sp.csr_array((1, 20_000)), [1.0])])
    message = r"X: the second moments of 1 tasks with 20000 columns need 3\.2 GB"
    with pytest.raises(ValueError, match=message):
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
        result = em(statistics, mixture, max_iter=1, m_step=MStep(learn_mean))
        before = float(statistics.posterior(mixture).log_evidence.mean())
        assert before >= evidence - 1e-6 * max(1.0, abs(evidence))
        assert result.log_evidence >= before - 1e-6 * max(1.0, abs(before))
        evidence, mixture = before, result.mixture


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


def test_a_coefficient_without_variance_has_none_far_from_zero():
    """The slope varies, and the intercept at x = 0 does not, but that of centred rows does."""
    units = Scaling(np.ones(2), 1.0, np.array([1000.3, 0.0]), 0.0, True)
    slope = np.array([1.0, 1000.3])
    np.testing.assert_array_equal(units.raw_deviations(0.37 * np.outer(slope, slope))[1], 0.0)
    both = 0.37 * np.outer(slope, slope) + np.diag([0.0, 0.01])
    np.testing.assert_allclose(units.raw_deviations(both), np.sqrt([0.37, 0.01]), rtol=1e-6)
