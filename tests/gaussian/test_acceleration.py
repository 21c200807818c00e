"""Fewer steps of EM: accelerated steps against many plain ones, tasks that have left a component,
starts, moments.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tailored import TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.em import MStep, em, fit_mixed_model, fit_mixture
from tailored.gaussian.mixture import Shrinkage
from tailored.gaussian.moments import Moments
from tailored.tasks.rows import Scaling

seeds = st.integers(0, 10_000)


def random_statistics(seed, d=3, n_tasks=30, spread=None):
    rng = np.random.default_rng(seed)
    spread = rng.uniform(0.0, 1.0, d) if spread is None else spread
    entries = []
    for _ in range(n_tasks):
        X = rng.normal(size=(int(rng.integers(1, 8)), d))
        w = 0.5 + spread * rng.normal(size=d)
        entries.append((X, X @ w + 0.5 * rng.normal(size=len(X))))
    return Moments.of(TaskSet.from_tasks(entries), Scaling.raw(d))


def evidence(statistics, mixture):
    return float(statistics.posterior(mixture).log_evidence.mean())


def two_clusters(n_tasks=80):
    tasks = make_clusters(n_tasks, n_clusters=2, n_rows=20, n_features=5, rank=2, random_state=3)
    return Moments.of(tasks, Scaling.of(tasks, False))


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_forty_accelerated_steps_are_worth_many_plain_ones(seed):
    statistics = random_statistics(seed)
    start = fit_mixed_model(statistics, max_iter=0)
    plain = em(statistics, start, max_iter=400, tol=0.0)
    quick = em(statistics, start, max_iter=40, tol=0.0, accelerate=True)
    # Where a direction of W vanishes, the last digits are slow for both.
    assert quick.log_evidence >= plain.log_evidence - 2e-3
    assert quick.log_evidence == pytest.approx(evidence(statistics, quick.mixture), abs=1e-12)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_no_accelerated_step_lowers_the_evidence(seed):
    statistics = random_statistics(seed, spread=np.array([1.0, 0.1, 0.0]))
    start = fit_mixed_model(statistics, max_iter=0)
    found = [
        em(statistics, start, max_iter=n, tol=0.0, accelerate=True).log_evidence
        for n in range(0, 16, 3)
    ]
    assert np.diff(found).min() >= -1e-12


def test_accelerated_mixtures_reach_the_evidence_of_plain_ones():
    statistics = two_clusters()
    single = fit_mixed_model(statistics)
    start = fit_mixture(statistics, single, 2, seed=[0], max_iter=0)
    m_step = MStep(shrinkage=Shrinkage(0.05, single.covariances[0]))
    options = {"m_step": m_step, "tol": 0.0}
    plain = em(statistics, start, max_iter=100, **options)
    quick = em(statistics, start, max_iter=40, accelerate=True, **options)
    assert quick.log_evidence >= plain.log_evidence - 1e-3


@pytest.mark.parametrize("d", [2, 70])
@pytest.mark.parametrize("sparse", [False, True])
def test_moments_of_a_task_do_not_depend_on_the_others(monkeypatch, d, sparse):
    rng = np.random.default_rng(d)
    entries = [(rng.normal(size=(n, d)), rng.normal(size=n)) for n in (3, 0, 5, 1, 4)]
    made = [(sp.csr_matrix(X), y) for X, y in entries] if sparse else entries
    tasks = TaskSet.from_tasks(made)
    units = Scaling.of(tasks, True, centre=True)
    whole = Moments.of(tasks, units)
    # in batches of a row, and alone
    monkeypatch.setattr("tailored.gaussian.moments.BATCH_FLOATS", 1)
    for other in (Moments.of(tasks, units), Moments.of(tasks[2:], units)):
        np.testing.assert_array_equal(other.gram, whole.gram[-len(other) :])
        np.testing.assert_array_equal(other.cross, whole.cross[-len(other) :])
