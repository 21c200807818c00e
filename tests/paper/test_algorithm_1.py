"""Runs of Algorithm 1 against its transcription."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import reference as ref
from representations import dense_H
from streams import LOSSES, Batch, advance, batch_of, close, part, random_stream, same
from tailored.paper.algorithm_1 import StepSizes, Surrogate, Trajectory
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
    trajectory = Trajectory(StepSizes(gamma_C, gamma_H), np.eye(d), k)
    for t in range(25):
        close(dense_H(trajectory), expected.H[t])
        close(trajectory.C, expected.C[t])
        assert trajectory.mean.count == t
        advance(trajectory, part(batch, t, t + 1), objective)
    assert trajectory.failure is None
    close(dense_H(trajectory), expected.H[25])
    close(trajectory.C, expected.C[25])
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
    unconditional = advance(Trajectory(StepSizes(0.4, 5.0), np.eye(d), 0), without, objective)
    frozen = advance(Trajectory(StepSizes(0.4, 0.0), np.eye(d), k), batch, objective)
    np.testing.assert_array_equal(unconditional.C, frozen.C)
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
    trajectory = Trajectory(StepSizes(0.5, 0.5), np.zeros((d, d)), k)
    advance(trajectory, batch, Surrogate(WithinTask(loss, inner=inner, tol=TOL), L))
    assert np.linalg.eigvalsh(trajectory.C)[-1] > 1e-3
    assert np.linalg.norm(dense_H(trajectory), 2) > 1e-3
    expected = ref.algorithm_1(
        [(X, y)], np.ones((1, k)), 0.5, 0.5, np.zeros((d, d)), inner, reference, L
    )
    close(trajectory.C, expected.C[1])
    close(dense_H(trajectory), expected.H[1])
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
    trajectory = Trajectory(StepSizes(0.1, gamma), np.eye(d), k, rank=rank)
    advance(trajectory, batch, Surrogate(WithinTask(loss, inner="online"), L))
    assert trajectory.H.E.shape[1] <= rank
    assert trajectory.average().root.shape[1] <= rank
    close(dense_H(trajectory), H)
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
    trajectory = Trajectory(StepSizes(gamma_C, gamma_H), np.eye(d), k)
    advance(
        trajectory,
        batch_of(tasks, phis, factors=squared**-2.0),
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
    thin = Batch(rows, phis, dense.factors)
    runs = [Trajectory(StepSizes(0.3, 0.9), np.eye(d), k, rank=rank) for _ in range(2)]
    for each, batch in zip(runs, (dense, thin), strict=True):
        advance(each, batch, Surrogate(WithinTask(loss, tol=TOL), L))
    same(*runs)
    assert np.abs(runs[0].average().H).max() > 1e-3
