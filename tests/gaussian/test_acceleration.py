"""Fewer steps of EM: accelerated steps against many plain ones, tasks that have left a component,
starts, moments.
"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tailored import TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.em import NEGLIGIBLE, _Anderson, em, fit_mixed_model, fit_mixture, maximise
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


@settings(max_examples=15, deadline=None)
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


def test_accelerated_steps_turn_with_the_columns():
    statistics = random_statistics(7)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = replace(statistics, gram=Q @ statistics.gram @ Q.T, cross=statistics.cross @ Q.T)
    first, second = (fit_mixed_model(each, max_iter=40) for each in (statistics, turned))
    np.testing.assert_allclose(second.means[0], Q @ first.means[0], atol=1e-6)
    np.testing.assert_allclose(second.covariances[0], Q @ first.covariances[0] @ Q.T, atol=1e-6)


def test_anderson_solves_a_linear_iteration_in_a_few_steps():
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    A, rest = Q @ np.diag([0.9, 0.99, 0.5, 0.2]) @ Q.T, rng.normal(size=4)
    memory, x, plain = _Anderson(), np.zeros(4), np.zeros(4)
    for _ in range(8):
        x = memory.propose(x, A @ (x - rest) + rest)
        plain = A @ (plain - rest) + rest
    assert np.linalg.norm(x - rest) < 1e-2 * np.linalg.norm(plain - rest)


def test_what_is_forgotten_is_not_combined():
    memory = _Anderson()
    memory.propose(np.zeros(2), np.ones(2))
    memory.propose(np.ones(2), np.array([1.5, 2.0]))
    memory.reset()
    fresh = _Anderson()
    fresh.propose(np.ones(2), np.array([1.5, 2.0]))
    step = np.array([1.5, 2.0]), np.array([1.7, 2.5])
    np.testing.assert_array_equal(memory.propose(*step), fresh.propose(*step))


def test_a_step_without_the_tasks_that_left_is_the_full_step():
    statistics = two_clusters()
    single = fit_mixed_model(statistics)
    mixture = fit_mixture(statistics, single, 2, seed=[0])
    full, everywhere = statistics.sums(mixture)
    among = everywhere > NEGLIGIBLE
    assert 0 < (~among).sum() < among.size / 2 + 1
    some, asked = statistics.sums(mixture, everywhere)
    assert (asked[~among] == 0.0).all()
    np.testing.assert_allclose(asked, everywhere, atol=2 * NEGLIGIBLE)
    np.testing.assert_allclose(some.log_evidence, full.log_evidence, rtol=2 * NEGLIGIBLE)
    totals = statistics.totals()
    first, second = (maximise(totals, mixture, each) for each in (full, some))
    np.testing.assert_allclose(first.covariances, second.covariances, atol=1e-5)
    np.testing.assert_allclose(first.noise, second.noise, rtol=1e-5)


def test_accelerated_mixtures_reach_the_evidence_of_plain_ones():
    statistics = two_clusters()
    single = fit_mixed_model(statistics)
    start = fit_mixture(statistics, single, 2, seed=[0], max_iter=0)
    options = {"shrinkage": Shrinkage(0.05, single.covariances[0]), "tol": 0.0}
    plain = em(statistics, start, max_iter=100, **options)
    quick = em(statistics, start, max_iter=40, accelerate=True, **options)
    assert quick.log_evidence >= plain.log_evidence - 1e-3


def test_a_mixture_goes_on_from_that_of_some_tasks():
    statistics = two_clusters()
    some = statistics.take(np.arange(60))
    single = fit_mixed_model(statistics)
    known = fit_mixture(some, fit_mixed_model(some), 2, seed=[0])
    went_on = fit_mixture(statistics, single, 2, seed=[0], start=known)
    anew = fit_mixture(statistics, single, 2, seed=[0])
    assert evidence(statistics, went_on) > evidence(statistics, anew) - 0.03
    assert evidence(statistics, went_on) > evidence(statistics, known)


def test_a_mixed_model_goes_on_from_that_of_some_tasks():
    statistics = random_statistics(11, n_tasks=60)
    known = fit_mixed_model(statistics.take(np.arange(45)))
    went_on = fit_mixed_model(statistics, start=known, max_iter=40)
    assert (
        evidence(statistics, went_on)
        >= evidence(statistics, fit_mixed_model(statistics, max_iter=40)) - 1e-5
    )
    none = fit_mixed_model(statistics, covariance="none", start=known)
    assert not none.covariances.any()


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
