"""Runs of Algorithm 1 against its transcription."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy import sparse

import reference as ref
from streams import (
    LOSSES,
    advance,
    arrays_of,
    batch_of,
    close,
    diverges,
    part,
    random_stream,
    same,
    start,
)
from tailored.paper.algorithm_1 import LARGEST_DENSE, StepSizes, StreamBatch, Surrogate, run
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows

TOL = 1e-13


# --- against the transcription
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("inner", ["online", "exact"])
@pytest.mark.parametrize(("d", "k"), [(3, 5), (4, 2)])
def test_iterates_and_averages_are_those_of_algorithm_1(name, inner, d, k):
    loss, reference, L = LOSSES[name]
    L = 0.3 * L  # a smaller constant lets H grow: more of the run is spent away from the border
    rng = np.random.default_rng([d, k])
    tasks, phis, batch = random_stream(rng, 25, d, k, labels=name == "hinge")
    gamma_C, gamma_H = 0.3, 1.1
    expected = ref.algorithm_1(tasks, phis, gamma_C, gamma_H, np.eye(d), inner, reference, L)
    objective = Surrogate(WithinTask(loss, inner=inner, tol=TOL), L)
    trajectory = start(StepSizes(gamma_C, gamma_H), np.eye(d), k)
    for t in range(25):
        close(trajectory.iterate.dense_H(), expected.H[t])
        close(trajectory.iterate.C, expected.C[t])
        assert trajectory.n_steps == t
        assert advance(trajectory, part(batch, t, t + 1), objective) is trajectory
    assert trajectory.failure is None
    close(trajectory.iterate.dense_H(), expected.H[25])
    close(trajectory.iterate.C, expected.C[25])
    close(trajectory.average().H, expected.mean_H)
    close(trajectory.average().C, expected.mean_C)
    assert np.abs(expected.mean_H).max() > 1e-3
    assert np.abs(expected.mean_C - np.eye(d)).max() > 1e-3


def test_the_unconditional_run_is_the_run_whose_H_does_not_move():
    loss, reference, L = LOSSES["absolute"]
    d, k = 3, 4
    tasks, phis, batch = random_stream(np.random.default_rng(2), 20, d, k)
    objective = Surrogate(WithinTask(loss, tol=TOL), L)
    without = batch_of(tasks, np.zeros((20, 0)))
    unconditional = advance(start(StepSizes(0.4, 5.0), np.eye(d), 0), without, objective)
    frozen = advance(start(StepSizes(0.4, 0.0), np.eye(d), k), batch, objective)
    np.testing.assert_array_equal(unconditional.iterate.C, frozen.iterate.C)
    np.testing.assert_array_equal(unconditional.average().C, frozen.average().C)
    assert frozen.average().H.shape == (d * k, d * k)
    assert not frozen.average().H.any()
    expected = ref.algorithm_1(tasks, phis, 0.4, 0.0, np.eye(d), "exact", reference, L)
    close(unconditional.average().C, expected.mean_C)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("inner", ["online", "exact"])
def test_started_at_0_the_learner_leaves_0(name, inner):
    """With the gradient through θ†w, which the paper also prints, the iterates would stay at
    zero.
    """
    loss, reference, L = LOSSES[name]
    d, k = 3, 2
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, d))
    y = X @ np.array([1.0, 2.0, 0.0])
    y = np.sign(y) if name == "hinge" else y
    batch = batch_of([(X, y)], np.ones((1, k)))
    L = 0.1 * L
    trajectory = start(StepSizes(0.5, 0.5), np.zeros((d, d)), k)
    advance(trajectory, batch, Surrogate(WithinTask(loss, inner=inner, tol=TOL), L))
    assert np.linalg.eigvalsh(trajectory.iterate.C)[-1] > 1e-3
    assert np.linalg.norm(trajectory.iterate.dense_H(), 2) > 1e-3
    expected = ref.algorithm_1(
        [(X, y)], np.ones((1, k)), 0.5, 0.5, np.zeros((d, d)), inner, reference, L
    )
    close(trajectory.iterate.C, expected.C[1])
    close(trajectory.iterate.dense_H(), expected.H[1])
    w = ref.solve(X, y, np.zeros((d, d)), inner, reference).w
    printed = ref.surrogate_gradient_primal(X, w, np.zeros((d, d)), L)
    assert np.abs(ref.project_psd(-0.5 * printed)).max() < 1e-15


@pytest.mark.parametrize("rank", [1, 3])
def test_a_limited_rank_truncates_every_iterate_and_the_average(rank):
    loss, reference, L = LOSSES["absolute"]
    d, k, gamma = 3, 5, 1.5
    tasks, phis, batch = random_stream(np.random.default_rng(5), 25, d, k)
    H, C = np.zeros((d * k, d * k)), np.eye(d)
    mean = np.zeros((d * k, d * k))
    for t, ((X, y), phi) in enumerate(zip(tasks, phis, strict=True)):
        mean = ref.best_rank(t / (t + 1) * mean + H / (t + 1), rank)
        s = ref.online(X, y, ref.tau(H, C, phi), reference.subgradient).alpha
        G = ref.surrogate_gradient(X, s, L)
        H = ref.best_rank(H - gamma * ref.lift(d, phi) @ G @ ref.lift(d, phi).T, rank)
        C = ref.project_psd(C - 0.1 * G)
    trajectory = start(StepSizes(0.1, gamma), np.eye(d), k, rank=rank)
    advance(trajectory, batch, Surrogate(WithinTask(loss, inner="online"), L))
    assert trajectory.iterate.range.E.shape[1] <= rank
    assert trajectory.average().root.shape[1] <= rank
    close(trajectory.iterate.dense_H(), H)
    close(trajectory.average().H, mean)


# --- the scale of the features
# ------------------------------------------------------------------------------


def test_a_running_scale_against_an_explicit_loop():
    loss, reference, L = LOSSES["absolute"]
    d, k, T = 3, 4, 25
    gamma_C, gamma_H = 0.2, 0.9
    rng = np.random.default_rng(7)
    tasks, phis, _ = random_stream(rng, T, d, k)
    phis = phis * rng.uniform(0.2, 3.0, size=(T, 1))
    squared = np.cumsum((phis**2).sum(axis=1)) / np.arange(1, T + 1)
    H, C = [np.zeros((d * k, d * k))], [np.eye(d)]
    for t, ((X, y), phi) in enumerate(zip(tasks, phis, strict=True)):
        alpha = ref.exact(X, y, ref.tau(H[t], C[t], phi), reference).alpha
        G, I_phi = ref.surrogate_gradient(X, alpha, L), ref.lift(d, phi)
        H.append(ref.project_psd(H[t] - gamma_H / squared[t] ** 2 * I_phi @ G @ I_phi.T))
        C.append(ref.project_psd(C[t] - gamma_C * G))
    trajectory = start(StepSizes(gamma_C, gamma_H), np.eye(d), k)
    advance(
        trajectory,
        batch_of(tasks, phis, squared_scale=squared),
        Surrogate(WithinTask(loss, tol=TOL), L),
    )
    close(trajectory.average().H, sum(H[:T]) / T)
    close(trajectory.average().C, sum(C[:T]) / T)
    assert np.abs(trajectory.average().H).max() > 1e-3


@pytest.mark.parametrize("rank", [None, 3])
def test_sparse_tasks_are_the_dense_run(rank):
    loss, _, L = LOSSES["absolute"]
    d, k, T = 6, 3, 20
    rng = np.random.default_rng(11)
    tasks, phis, _ = random_stream(rng, T, d, k)
    for X, _ in tasks:
        X[:, rng.permutation(d)[: int(rng.integers(1, 5))]] = 0.0
    dense = batch_of(tasks, phis)
    rows = Rows(sparse.csr_array(dense.rows.X), dense.rows.y, dense.rows.offsets)
    thin = StreamBatch(rows, phis, dense.squared_scale)
    runs = [start(StepSizes(0.3, 0.9), np.eye(d), k, rank=rank) for _ in range(2)]
    for each, batch in zip(runs, (dense, thin), strict=True):
        advance(each, batch, Surrogate(WithinTask(loss, tol=TOL), L))
    same(*runs)
    assert np.abs(runs[0].average().H).max() > 1e-3


# --- streams in pieces, jobs
# --------------------------------------------------------------------------------


def candidates(d, k):
    """Several runs that share a pass: unconditional, exact, rank-limited, and one that diverges."""
    return [
        start(StepSizes(0.2, 0.0), np.eye(d), k),
        start(StepSizes(0.2, 0.7), np.eye(d), k),
        start(StepSizes(0.05, 2.0), np.eye(d), k, rank=2),
        start(StepSizes(1e308, 0.0), np.eye(d), k),
    ]


@diverges
@pytest.mark.parametrize("inner", ["online", "exact"])
def test_results_do_not_depend_on_the_pieces_nor_on_the_number_of_jobs(inner):
    loss, _, L = LOSSES["absolute"]
    d, k = 3, 4
    rng = np.random.default_rng(13)
    tasks, phis, _ = random_stream(rng, 30, d, k)
    squared = np.cumsum((phis**2).sum(axis=1)) / np.arange(1, 31)
    batch = batch_of(tasks, phis, squared_scale=squared)
    objective = Surrogate(WithinTask(loss, inner=inner), L)
    whole = run(candidates(d, k), batch, objective)
    assert [t.n_steps for t in whole[:3]] == [30, 30, 30]

    pieces = candidates(d, k)
    for begin, end in [(0, 1), (1, 1), (1, 13), (13, 30)]:
        pieces = run(pieces, part(batch, begin, end), objective)
    ticks = []
    shown = run(candidates(d, k), batch, objective, tick=ticks.append)
    assert sum(ticks) == 30
    two_jobs = run(candidates(d, k), batch, objective, n_jobs=2, tick=ticks.append)
    one_by_one = [advance(each, batch, objective) for each in candidates(d, k)]
    for others in (pieces, shown, two_jobs, one_by_one):
        for expected, other in zip(whole, others, strict=True):
            same(expected, other)


# --- failure
# ------------------------------------------------------------------------------------------------


def all_finite(trajectory):
    return all(np.isfinite(array).all() for array in arrays_of(trajectory))


@diverges
@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("steps", [(1e305, 0.0), (0.0, 1e305), (1e307, 1e307)])
@pytest.mark.parametrize("inner", ["online", "exact"])
def test_overflow_is_recorded_and_stops_the_run_alone(rank, steps, inner):
    loss, _, L = LOSSES["absolute"]
    d, k = 3, 4
    tasks, phis, batch = random_stream(np.random.default_rng(16), 30, d, k)
    batch = batch_of([(1e4 * X, y) for X, y in tasks], phis)
    objective = Surrogate(WithinTask(loss, inner=inner), L)
    doomed = start(StepSizes(*steps), np.eye(d), k, rank=rank)
    healthy = start(StepSizes(1e-10, 1e-10), np.eye(d), k, rank=rank)
    doomed, healthy = run([doomed, healthy], batch, objective)
    assert isinstance(doomed.failure, str)
    assert doomed.n_steps < 30
    assert (healthy.failure, healthy.n_steps) == (None, 30)
    assert all_finite(doomed)
    stopped = copy.deepcopy(doomed)
    same(stopped, advance(doomed, batch, objective))


@diverges
@pytest.mark.parametrize("inner", ["online", "exact"])
@pytest.mark.parametrize("exponent", range(0, 320, 20))
def test_a_run_with_any_step_is_finite_or_fails(exponent, inner):
    """Nothing is ever NaN silently, and no other error than the one that is caught."""
    loss, _, L = LOSSES["absolute"]
    d, k = 3, 4
    _, _, batch = random_stream(np.random.default_rng(17), 10, d, k)
    step = float(f"1e{min(exponent, 308)}")
    for rank in (None, 2):
        trajectory = start(StepSizes(step, step), np.eye(d), k, rank=rank)
        advance(trajectory, batch, Surrogate(WithinTask(loss, inner=inner), L))
        assert all_finite(trajectory)
        assert trajectory.failure is not None or trajectory.n_steps == 10


def test_a_dense_average_too_large_is_refused_with_a_hint():
    k = LARGEST_DENSE // 2 + 1
    with pytest.raises(ValueError, match="rank=32"):
        start(StepSizes(1.0, 1.0), np.eye(2), k)
    assert start(StepSizes(1.0, 1.0), np.eye(2), k, rank=4).average().root.shape == (2 * k, 0)
    assert start(StepSizes(1.0, 0.0), np.eye(2), k).average().root.shape == (2 * k, 0)
