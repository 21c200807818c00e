"""Runs of Algorithm 1 against its transcription, however the stream is cut and whoever runs it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import reference as ref
from tailored import losses
from tailored.objectives import Query, Surrogate
from tailored.prior import Prior
from tailored.representation import Bias, Constant, Dense, Exact, Factored
from tailored.solvers import (
    DivergenceError,
    HeldOutPool,
    MeanAtTasks,
    Problem,
    ProjectedSGD,
    StepSizes,
    TaskBatch,
    Trajectory,
)
from tailored.solvers.means import BLOCK, ExactMean, RunningMean
from tailored.solvers.steps import STEP_SIZES, candidate_steps
from tailored.solvers.trajectory import LARGEST_DENSE, run
from tailored.tasks import Rows, TaskSet, Units

LOSSES = {
    "absolute": (losses.LOSSES["absolute"](), ref.absolute(), 1.0),
    "pinball": (losses.LOSSES["pinball"](quantile=0.3), ref.pinball(0.3), 0.7),
    "huber": (losses.LOSSES["huber"](delta=0.6), ref.huber(0.6), 0.6),
    "squared": (losses.LOSSES["squared"](), ref.squared(), 1.3),
    "hinge": (losses.LOSSES["hinge"](), ref.hinge(), 1.0),
}
TOL = 1e-13

#: A run that blows up may say so on its way; what is asked of it here is a recorded failure.
diverges = pytest.mark.filterwarnings(
    f"ignore::{ConvergenceWarning.__module__}.{ConvergenceWarning.__name__}"
)


def random_stream(rng, T, d, k, labels=False, query=False):
    """Tasks (X, y) of 2 to 9 rows, their features, and the same as one batch."""
    tasks = []
    for _ in range(T):
        n = int(rng.integers(2, 10))
        X = rng.normal(size=(n, d)) / np.sqrt(d)
        y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=n)
        tasks.append((X, np.where(y > 0, 1.0, -1.0) if labels else y))
    phis = rng.normal(size=(T, k)) / np.sqrt(k)
    return tasks, phis, batch_of(tasks, phis)


def rows_of(tasks):
    offsets = np.concatenate([[0], np.cumsum([len(y) for _, y in tasks])]).astype(np.int64)
    return Rows(np.concatenate([X for X, _ in tasks]), np.concatenate([y for _, y in tasks]), offsets)


def batch_of(tasks, phis, squared_scale=None, **extra):
    scale = np.ones(len(phis)) if squared_scale is None else squared_scale
    return TaskBatch(rows_of(tasks), extra.pop("query", None), phis, scale, **extra)


def start(steps, C0, k, rank=None, bias="none"):
    return Trajectory.start(steps, C0, Bias.zero(bias, len(C0), k), k, rank)


def close(actual, expected, tol=1e-8):
    assert np.shape(actual) == np.shape(expected)
    assert np.abs(actual - expected).max(initial=0.0) <= tol * max(1.0, np.abs(expected).max(initial=0.0))


def same(first, second):
    """Bit for bit: two trajectories with the same steps, iterates and averages."""
    assert (first.n_steps, first.failure) == (second.n_steps, second.failure)
    for one, two in zip(parts_of(first), parts_of(second), strict=True):
        assert type(one) is type(two)
        assert one.state().keys() == two.state().keys()
        for name, value in one.state().items():
            np.testing.assert_array_equal(value, two.state()[name])


def parts_of(trajectory):
    """What a run has learned; one that failed has no average."""
    average = [] if trajectory.failure else [trajectory.average()]
    return [trajectory.iterate, *average, trajectory.bias, trajectory.bias_mean]


# --- against the transcription ------------------------------------------------------------------------------


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
    objective = Surrogate(loss, L, inner=inner, tol=TOL)
    trajectory = start(StepSizes(gamma_C, gamma_H, 0.0), np.eye(d), k)
    for t in range(25):
        close(trajectory.iterate.dense_H(), expected.H[t])
        close(trajectory.iterate.C, expected.C[t])
        assert trajectory.n_steps == t
        assert trajectory.advance(batch.slice(t, t + 1), objective) is trajectory
    assert trajectory.failure is None
    close(trajectory.iterate.dense_H(), expected.H[25])
    close(trajectory.iterate.C, expected.C[25])
    close(trajectory.average().dense_H(), expected.mean_H)
    close(trajectory.average().C, expected.mean_C)
    assert np.abs(expected.mean_H).max() > 1e-3
    assert np.abs(expected.mean_C - np.eye(d)).max() > 1e-3


@pytest.mark.parametrize("steps", [(0.4, 0.0), (0.0, 2.0), (0.05, 0.7)])
def test_steps_of_C_and_H_are_separate(steps):
    loss, reference, L = LOSSES["absolute"]
    d, k = 3, 4
    tasks, phis, batch = random_stream(np.random.default_rng(1), 20, d, k)
    expected = ref.algorithm_1(tasks, phis, *steps, np.eye(d), "online", reference, L)
    trajectory = start(StepSizes(*steps, 0.0), np.eye(d), k)
    trajectory.advance(batch, Surrogate(loss, L, inner="online"))
    close(trajectory.average().dense_H(), expected.mean_H)
    close(trajectory.average().C, expected.mean_C)
    if steps[0] == 0:
        np.testing.assert_array_equal(trajectory.average().C, np.eye(d))
    assert isinstance(trajectory.iterate, Constant if steps[1] == 0 else Exact)


def test_the_unconditional_run_is_the_run_whose_H_does_not_move():
    loss, reference, L = LOSSES["absolute"]
    d, k = 3, 4
    tasks, phis, batch = random_stream(np.random.default_rng(2), 20, d, k)
    objective = Surrogate(loss, L, tol=TOL)
    without = batch_of(tasks, np.zeros((20, 0)))
    unconditional = start(StepSizes(0.4, 5.0, 0.0), np.eye(d), 0).advance(without, objective)
    frozen = start(StepSizes(0.4, 0.0, 0.0), np.eye(d), k).advance(batch, objective)
    for one, other in zip(parts_of(unconditional)[:2], parts_of(frozen)[:2], strict=True):
        assert isinstance(one, Constant)
        assert isinstance(other, Constant)
        np.testing.assert_array_equal(one.C, other.C)
    expected = ref.algorithm_1(tasks, phis, 0.4, 0.0, np.eye(d), "exact", reference, L)
    close(unconditional.average().C, expected.mean_C)


@pytest.mark.parametrize("inner", ["online", "exact"])
def test_a_constant_feature_with_C_frozen_at_0_is_the_unconditional_run(inner):
    loss, _, L = LOSSES["absolute"]
    d = 3
    tasks, _, _ = random_stream(np.random.default_rng(3), 30, d, 1)
    batch = batch_of([(4 * X, y) for X, y in tasks], np.ones((30, 1)))
    objective = Surrogate(loss, 0.1 * L, inner=inner, tol=TOL)
    zero = np.zeros((d, d))
    conditional = start(StepSizes(0.0, 0.2, 0.0), zero, 1).advance(batch, objective)
    unconditional = start(StepSizes(0.2, 0.0, 0.0), zero, 1).advance(batch, objective)
    assert np.abs(unconditional.average().C).max() > 1e-3
    close(conditional.iterate.dense_H(), unconditional.iterate.C)
    close(conditional.average().dense_H(), unconditional.average().C)
    np.testing.assert_array_equal(conditional.average().C, zero)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("inner", ["online", "exact"])
def test_started_at_0_the_learner_leaves_0(name, inner):
    """The trap of design.md, section 1: the gradient through θ†w would stay there for ever."""
    loss, reference, L = LOSSES[name]
    d, k = 3, 2
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, d))
    y = X @ np.array([1.0, 2.0, 0.0])
    y = np.sign(y) if name == "hinge" else y
    batch = batch_of([(X, y)], np.ones((1, k)))
    L = 0.1 * L
    trajectory = start(StepSizes(0.5, 0.5, 0.0), np.zeros((d, d)), k)
    trajectory.advance(batch, Surrogate(loss, L, inner=inner, tol=TOL))
    assert np.linalg.eigvalsh(trajectory.iterate.C)[-1] > 1e-3
    assert trajectory.iterate.spectrum()[0] > 1e-3
    expected = ref.algorithm_1([(X, y)], np.ones((1, k)), 0.5, 0.5, np.zeros((d, d)), inner, reference, L)
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
    trajectory = start(StepSizes(0.1, gamma, 0.0), np.eye(d), k, rank=rank)
    trajectory.advance(batch, Surrogate(loss, L, inner="online"))
    assert trajectory.iterate.basis.shape[1] <= rank
    assert trajectory.average().basis.shape[1] <= rank
    close(trajectory.iterate.dense_H(), H)
    close(trajectory.average().dense_H(), mean)


# --- the scale of the features ------------------------------------------------------------------------------


def test_a_constant_scale_is_the_run_on_scaled_features():
    """φ/c with the step γ is φ with γ/c⁴, and H for the raw features is H/c²."""
    loss, reference, L = LOSSES["absolute"]
    d, k, c = 3, 4, 0.06
    tasks, phis, _ = random_stream(np.random.default_rng(6), 25, d, k)
    phis = c * phis
    batch = batch_of(tasks, phis, squared_scale=np.full(25, c**2))
    trajectory = start(StepSizes(0.3, 1.1, 0.0), np.eye(d), k)
    trajectory.advance(batch, Surrogate(loss, L, inner="online"))
    expected = ref.algorithm_1(tasks, phis / c, 0.3, 1.1, np.eye(d), "online", reference, L)
    close(c**2 * trajectory.average().dense_H(), expected.mean_H)
    close(trajectory.average().C, expected.mean_C)
    for phi in phis[:5]:
        close(trajectory.average()(phi), ref.tau(expected.mean_H, expected.mean_C, phi / c))


@pytest.mark.parametrize("bias", ["none", "shared", "conditional"])
def test_a_running_scale_and_a_bias_against_an_explicit_loop(bias):
    loss, reference, L = LOSSES["absolute"]
    d, k, T = 3, 4, 25
    gamma_C, gamma_H, gamma_b = 0.2, 0.9, 0.15
    rng = np.random.default_rng(7)
    tasks, phis, _ = random_stream(rng, T, d, k)
    phis = phis * rng.uniform(0.2, 3.0, size=(T, 1))
    squared = np.cumsum((phis**2).sum(axis=1)) / np.arange(1, T + 1)
    H, C, b, B = [np.zeros((d * k, d * k))], [np.eye(d)], [np.zeros(d)], [np.zeros((d, k))]
    for t, ((X, y), phi) in enumerate(zip(tasks, phis, strict=True)):
        offset = X @ (b[t] + B[t] @ phi)
        alpha = ref.exact(X, y, ref.tau(H[t], C[t], phi), reference, offset).alpha
        G, u = ref.surrogate_gradient(X, alpha, L), X.T @ alpha / len(y)
        I_phi = ref.lift(d, phi)
        H.append(ref.project_psd(H[t] - gamma_H / squared[t] ** 2 * I_phi @ G @ I_phi.T))
        C.append(ref.project_psd(C[t] - gamma_C * G))
        b.append(b[t] - gamma_b * u if bias != "none" else b[t])
        B.append(B[t] - gamma_b / squared[t] * np.outer(u, phi) if bias == "conditional" else B[t])
    trajectory = start(StepSizes(gamma_C, gamma_H, gamma_b), np.eye(d), k, bias=bias)
    trajectory.advance(batch_of(tasks, phis, squared_scale=squared), Surrogate(loss, L, tol=TOL))
    close(trajectory.average().dense_H(), sum(H[:T]) / T)
    close(trajectory.average().C, sum(C[:T]) / T)
    for phi in phis[:4]:
        close(trajectory.bias(phi), b[T] + B[T] @ phi)
        close(trajectory.bias_mean(phi), sum(b[:T]) / T + sum(B[:T]) / T @ phi)
    mean = sum(b[:T]) / T + phis @ (sum(B[:T]) / T).T
    close(trajectory.bias_mean.evaluate(phis), mean)
    if bias == "none":
        assert not mean.any()
    else:
        assert np.abs(mean).max() > 1e-3


def test_features_that_are_all_zero_leave_H_and_B_where_they_are():
    loss, _, L = LOSSES["absolute"]
    d, k = 3, 4
    tasks, _, _ = random_stream(np.random.default_rng(8), 10, d, k)
    batch = batch_of(tasks, np.zeros((10, k)), squared_scale=np.zeros(10))
    trajectory = start(StepSizes(0.2, 0.9, 0.1), np.eye(d), k, bias="conditional")
    trajectory.advance(batch, Surrogate(loss, L, inner="online"))
    assert trajectory.failure is None
    assert not trajectory.average().dense_H().any()
    assert not trajectory.bias.linear.any()
    assert np.abs(trajectory.bias.constant).max() > 1e-3


# --- other objectives and per-task constants ----------------------------------------------------------------


def test_query_risk_steps_along_the_closed_form_gradient():
    loss, _, _ = LOSSES["squared"]
    d, k, T = 3, 4, 25
    tasks, phis, _ = random_stream(np.random.default_rng(9), T, d, k)
    support = [(X[: len(y) // 2], y[: len(y) // 2]) for X, y in tasks]
    query = [(X[len(y) // 2 :], y[len(y) // 2 :]) for X, y in tasks]
    H, C = [np.zeros((d * k, d * k))], [np.eye(d)]
    for t, phi in enumerate(phis):
        G = ref.query_gradient_squared(ref.tau(H[t], C[t], phi), *support[t], *query[t])
        H.append(ref.project_psd(H[t] - 0.8 * ref.lift(d, phi) @ G @ ref.lift(d, phi).T))
        C.append(ref.project_psd(C[t] - 0.3 * G))
    trajectory = start(StepSizes(0.3, 0.8, 0.0), np.eye(d), k)
    trajectory.advance(batch_of(support, phis, query=rows_of(query)), Query(loss, tol=TOL))
    close(trajectory.iterate.dense_H(), H[T])
    close(trajectory.average().dense_H(), sum(H[:T]) / T)
    close(trajectory.average().C, sum(C[:T]) / T)


def test_lipschitz_constants_task_by_task():
    loss, reference, _ = LOSSES["squared"]
    d, k, T = 3, 2, 12
    rng = np.random.default_rng(10)
    tasks, phis, _ = random_stream(rng, T, d, k)
    constants = rng.uniform(0.1, 2.0, size=T)
    C = [np.eye(d)]
    for t, (X, y) in enumerate(tasks):
        alpha = ref.exact(X, y, C[t], reference).alpha
        C.append(ref.project_psd(C[t] - 0.3 * ref.surrogate_gradient(X, alpha, constants[t])))
    trajectory = start(StepSizes(0.3, 0.0, 0.0), np.eye(d), k)
    trajectory.advance(batch_of(tasks, phis, lipschitz=constants), Surrogate(loss, np.inf, tol=TOL))
    assert trajectory.failure is None
    close(trajectory.iterate.C, C[T])
    close(trajectory.average().C, sum(C[:T]) / T)


@pytest.mark.parametrize("bias", ["none", "conditional"])
@pytest.mark.parametrize("rank", [None, 3])
def test_sparse_tasks_on_their_columns_are_the_dense_run(bias, rank):
    loss, _, L = LOSSES["absolute"]
    d, k, T = 6, 3, 20
    rng = np.random.default_rng(11)
    tasks, phis, _ = random_stream(rng, T, d, k)
    for X, _ in tasks:
        X[:, rng.permutation(d)[: int(rng.integers(1, 5))]] = 0.0
    columns = [np.flatnonzero(X.any(axis=0)) for X, _ in tasks]
    dense = batch_of(tasks, phis)
    rows = Rows(sparse.csr_array(dense.support.X), dense.support.y, dense.support.offsets)
    thin = TaskBatch(rows, None, phis, dense.squared_scale, columns)
    objective = Surrogate(loss, L, tol=TOL)
    runs = [
        start(StepSizes(0.3, 0.9, 0.1), np.eye(d), k, rank=rank, bias=bias).advance(batch, objective)
        for batch in (dense, thin)
    ]
    assert [r.failure for r in runs] == [None, None]
    close(runs[1].average().dense_H(), runs[0].average().dense_H())
    close(runs[1].average().C, runs[0].average().C)
    close(runs[1].bias_mean.evaluate(phis), runs[0].bias_mean.evaluate(phis))
    assert np.abs(runs[0].average().dense_H()).max() > 1e-3


def test_compressed_rows_are_columns_of_sparse_and_dense_rows():
    rng = np.random.default_rng(12)
    X, y, offsets = rng.normal(size=(5, 4)), rng.normal(size=5), np.array([0, 5])
    for given in (X, sparse.csr_array(X)):
        rows = Rows(given, y, offsets).compressed(np.array([3, 1]))
        np.testing.assert_array_equal(rows.X, X[:, [3, 1]])
        assert isinstance(rows.X, np.ndarray)


# --- streams in pieces, jobs --------------------------------------------------------------------------------


def candidates(d, k):
    """Several runs that share a pass: unconditional, exact, rank-limited, with a bias."""
    return [
        start(StepSizes(0.2, 0.0, 0.0), np.eye(d), k),
        start(StepSizes(0.2, 0.7, 0.0), np.eye(d), k),
        start(StepSizes(0.05, 2.0, 0.1), np.eye(d), k, rank=2, bias="conditional"),
        start(StepSizes(1e308, 1e308, 1e308), np.eye(d), k, bias="shared"),
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
    objective = Surrogate(loss, L, inner=inner)
    whole = run(candidates(d, k), batch, objective)
    assert [t.n_steps for t in whole[:3]] == [30, 30, 30]

    pieces = candidates(d, k)
    for begin, end in [(0, 1), (1, 1), (1, 13), (13, 30)]:
        pieces = run(pieces, batch.slice(begin, end), objective)
    ticks = []
    shown = run(candidates(d, k), batch, objective, tick=ticks.append)
    assert sum(ticks) == 30
    two_jobs = run(candidates(d, k), batch, objective, n_jobs=2, tick=ticks.append)
    one_by_one = [trajectory.advance(batch, objective) for trajectory in candidates(d, k)]
    for others in (pieces, shown, two_jobs, one_by_one):
        for expected, other in zip(whole, others, strict=True):
            same(expected, other)


def test_an_empty_piece_changes_nothing():
    loss, _, L = LOSSES["absolute"]
    _, _, batch = random_stream(np.random.default_rng(14), 5, 3, 4)
    objective = Surrogate(loss, L, inner="online")
    before = start(StepSizes(0.1, 0.5, 0.0), np.eye(3), 4).advance(batch, objective)
    after = copy.deepcopy(before)
    (after,) = run([after], batch.slice(2, 2), objective, tick=lambda n: None)
    same(before, after)


def test_a_slice_holds_the_tasks_of_the_slice():
    rng = np.random.default_rng(15)
    tasks, phis, _ = random_stream(rng, 6, 3, 2)
    columns, constants = [np.arange(t % 3 + 1) for t in range(6)], rng.uniform(size=6)
    query = rows_of([(X[:1], y[:1]) for X, y in tasks])
    batch = batch_of(tasks, phis, np.arange(6.0), query=query, columns=columns, lipschitz=constants)
    part = batch.slice(2, 5)
    assert (len(batch), len(part)) == (6, 3)
    expected = rows_of(tasks[2:5])
    for field in ("X", "y", "offsets"):
        np.testing.assert_array_equal(getattr(part.support, field), getattr(expected, field))
    np.testing.assert_array_equal(part.query.X, query.X[2:5])
    np.testing.assert_array_equal(part.query.offsets, np.arange(4))
    np.testing.assert_array_equal(part.phis, phis[2:5])
    np.testing.assert_array_equal(part.squared_scale, [2, 3, 4])
    assert [len(c) for c in part.columns] == [3, 1, 2]
    np.testing.assert_array_equal(part.lipschitz, constants[2:5])


# --- failure ------------------------------------------------------------------------------------------------


def all_finite(trajectory):
    arrays = [
        value
        for part in parts_of(trajectory)
        for value in part.state().values()
        if isinstance(value, np.ndarray)
    ]
    return all(np.isfinite(array).all() for array in arrays)


@diverges
@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("steps", [(1e305, 0.0), (0.0, 1e305), (1e307, 1e307)])
@pytest.mark.parametrize("inner", ["online", "exact"])
def test_overflow_is_recorded_and_stops_the_run_alone(rank, steps, inner):
    loss, _, L = LOSSES["absolute"]
    d, k = 3, 4
    tasks, phis, batch = random_stream(np.random.default_rng(16), 30, d, k)
    batch = batch_of([(1e4 * X, y) for X, y in tasks], phis)
    objective = Surrogate(loss, L, inner=inner)
    doomed = start(StepSizes(*steps, 0.0), np.eye(d), k, rank=rank)
    healthy = start(StepSizes(1e-10, 1e-10, 0.0), np.eye(d), k, rank=rank)
    doomed, healthy = run([doomed, healthy], batch, objective)
    assert isinstance(doomed.failure, str)
    assert doomed.n_steps < 30
    assert (healthy.failure, healthy.n_steps) == (None, 30)
    assert all_finite(doomed)
    stopped = doomed.copy()
    same(stopped, doomed.advance(batch, objective))


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
        trajectory = start(StepSizes(step, step, step), np.eye(d), k, rank=rank, bias="conditional")
        trajectory.advance(batch, Surrogate(loss, L, inner=inner))
        assert all_finite(trajectory)
        assert trajectory.failure is not None or trajectory.n_steps == 10


def test_a_dense_average_too_large_is_refused_with_a_hint():
    k = LARGEST_DENSE // 2 + 1
    with pytest.raises(ValueError, match="rank=32"):
        start(StepSizes(1.0, 1.0, 0.0), np.eye(2), k)
    assert start(StepSizes(1.0, 1.0, 0.0), np.eye(2), k, rank=4).average().basis.shape == (2 * k, 0)
    assert isinstance(start(StepSizes(1.0, 0.0, 0.0), np.eye(2), k).average(), Constant)
    _, _, batch = random_stream(np.random.default_rng(0), 1, 2, 3)
    small = start(StepSizes(1.0, 1.0, 0.0), np.eye(2), 3).advance(
        batch, Surrogate(LOSSES["absolute"][0], 1.0)
    )
    assert isinstance(small.average(), Dense)


def test_step_sizes_print_as_one_number_when_they_are_one():
    assert str(StepSizes(0.5, 0.5, 0.5)) == "0.5"
    assert str(StepSizes(0.5, 0.0, 2.0)) == "(C: 0.5, H: 0, bias: 2)"


# --- Prop. properties_surrogate -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["absolute", "pinball", "huber", "hinge"])
@pytest.mark.parametrize("inner", ["online", "exact"])
def test_gradient_norms_stay_under_the_bound_of_the_paper(name, inner):
    """‖∇L(H, C)‖_F ≤ (1 + K²)(LR)²(½ + 2/n), at every iterate of a run with large steps."""
    loss, _, L = LOSSES[name]
    d, k = 4, 3
    tasks, phis, batch = random_stream(np.random.default_rng(18), 40, d, k, labels=name == "hinge")
    objective = Surrogate(loss, L, inner=inner, tol=1e-10)
    gradients = []

    def recording(support, query, thetas, biases):
        result = objective(support, query, thetas, biases)
        gradients.append(result.theta(0, support.X))
        return result

    trajectory = start(StepSizes(3.0, 5.0, 0.0), np.eye(d), k).advance(batch, recording)
    assert trajectory.n_steps == len(gradients) == 40
    tightest = np.inf
    for (X, y), phi, G in zip(tasks, phis, gradients, strict=True):
        I_phi = ref.lift(d, phi)
        norm = np.sqrt(np.sum((I_phi @ G @ I_phi.T) ** 2) + np.sum(G**2))
        R, K = np.linalg.norm(X, axis=1).max(), np.linalg.norm(phi)
        bound = (1 + K**2) * (L * R) ** 2 * (1 / 2 + 2 / len(y))
        assert norm <= bound * (1 + 1e-9)
        tightest = min(tightest, bound / norm)
    assert tightest < 10  # the bound is not met for free


# --- means of the iterates ----------------------------------------------------------------------------------


def surrogate_steps(rng, d, k, n_steps, phis="fresh"):
    """Gradients of the paper's sign structure and features: few distinct ones, or a new one for every task."""
    few = rng.normal(size=(3, k))
    for t in range(n_steps):
        X, alpha = rng.normal(size=(5, d)), rng.uniform(-1, 1, size=5)
        if t % 4 == 1:
            X[:, 0] = 0.0
        phi = rng.normal(size=k) if phis == "fresh" else few[rng.integers(3)]
        yield ref.surrogate_gradient(X, alpha, 0.2), (np.zeros(k) if t == 6 else phi)


@pytest.mark.parametrize(("d", "k"), [(3, 14), (4, 2), (3, 1), (1, 5)])
@pytest.mark.parametrize("phis", ["fresh", "few"])
def test_exact_mean_is_the_plain_mean_of_dense_iterates(d, k, phis):
    """For every number of steps, around the size of a block and beyond it; asking changes nothing."""
    rng = np.random.default_rng([d, k, len(phis)])
    C0 = np.diag(np.arange(1.0, d + 1))
    exact, dense, mean = Exact(C0, k), Dense(np.zeros((d * k, d * k)), C0), ExactMean(d, k)
    seldom = ExactMean(d, k)
    Hs, Cs = [], []
    for gradient, phi in surrogate_steps(rng, d, k, 2 * BLOCK + 5, phis):
        Hs.append(dense.H.copy())
        Cs.append(dense.C.copy())
        for asked in (mean, seldom):
            asked.add(exact)
        exact.step(gradient, phi, 0.1, 0.4)
        dense.step(gradient, phi, 0.1, 0.4)
        for asked in (mean, seldom):
            asked.follow(exact)
        found = mean.conditioning(exact)
        assert isinstance(found, Dense)
        close(found.H, np.mean(Hs, axis=0), 1e-10)
        close(found.C, np.mean(Cs, axis=0), 1e-10)
        np.testing.assert_array_equal(found.H, found.H.T)
    np.testing.assert_array_equal(seldom.conditioning(exact).H, mean.conditioning(exact).H)
    assert np.abs(Hs[-1]).max() > 1e-2


@pytest.mark.parametrize("cut", [1, BLOCK - 1, BLOCK, BLOCK + 3])
def test_exact_means_go_on_from_a_copy_independently(cut):
    rng = np.random.default_rng(cut)
    d, k = 3, 6

    def go_on(exact, mean, steps, Hs):
        for gradient, phi in steps:
            mean.add(exact)
            Hs.append(exact.dense_H())
            exact.step(gradient, phi, 0.1, 0.4)
            mean.follow(exact)

    exact, mean, Hs = Exact(np.eye(d), k), ExactMean(d, k), []
    go_on(exact, mean, surrogate_steps(rng, d, k, cut), Hs)
    other, other_mean, other_Hs = exact.copy(), mean.copy(), list(Hs)
    before = mean.conditioning(exact).H.copy()
    go_on(other, other_mean, surrogate_steps(rng, d, k, 20), other_Hs)
    np.testing.assert_array_equal(mean.conditioning(exact).H, before)
    np.testing.assert_array_equal(exact.dense_H(), exact.copy().dense_H())
    go_on(exact, mean, surrogate_steps(rng, d, k, 9), Hs)
    close(mean.conditioning(exact).H, np.mean(Hs, axis=0), 1e-10)
    close(other_mean.conditioning(other).H, np.mean(other_Hs, axis=0), 1e-10)
    assert np.abs(mean.conditioning(exact).H - other_mean.conditioning(other).H).max() > 1e-3


def test_a_running_mean_and_its_copy_are_independent():
    rng = np.random.default_rng(0)
    mean = RunningMean(Constant(np.eye(3)))
    values = [np.diag(rng.uniform(size=3)) for _ in range(5)]
    for C in values[:3]:
        mean.add(Constant(C))
    other = mean.copy()
    for C in values[3:]:
        other.add(Constant(C))
    close(mean.conditioning(Constant(np.eye(3))).C, np.mean(values[:3], axis=0), 1e-14)
    close(other.conditioning(Constant(np.eye(3))).C, np.mean(values, axis=0), 1e-14)


@pytest.mark.parametrize("kind", ["constant", "factored", "limited", "exact"])
def test_means_at_tasks_are_those_of_direct_evaluation(kind):
    """After every step: the mean over the iterates of τ at each of the given tasks."""
    rng = np.random.default_rng(11)
    d, k = 3, 5
    C0, phis = np.diag([1.0, 2.0, 0.5]), np.vstack([rng.normal(size=(4, k)), np.zeros((1, k))])
    iterate = {
        "constant": Constant(C0, k),
        "factored": Factored.zero(C0, k),
        "limited": Factored.zero(C0, k, rank=2),
        "exact": Exact(C0, k),
    }[kind]
    means, taus = MeanAtTasks(phis), []
    for gradient, phi in surrogate_steps(rng, d, k, 24):
        means.add(iterate)
        taus.append([iterate(phi) for phi in phis])
        found = means.mean()
        assert found.shape == ((d, d) if kind == "constant" else (5, d, d))
        close(np.broadcast_to(found, (5, d, d)), np.mean(taus, axis=0), 1e-10)
        iterate.step(gradient, phi, 0.1, 0.4)
    assert np.abs(taus[-1] - C0).max() > 1e-2


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("features", [0, 4])
def test_means_at_tasks_follow_a_run_that_is_gone_on_with(rank, features):
    """A run that goes on is a copy of the old one, which must not lose what the last step did."""
    tasks, _, _ = random_stream(np.random.default_rng(23), 20, 3, 4)
    phis = np.random.default_rng(24).normal(size=(20, features))
    solver, means, taus = ProjectedSGD((0.1, 0.5)), MeanAtTasks(phis), []

    def look(trajectory):
        means.add(trajectory.iterate)
        taus.append(trajectory.iterate.evaluate(phis).copy())

    state = None
    for piece in (slice(0, 7), slice(7, 12), slice(12, 20)):
        problem = problem_of(tasks[piece], phis[piece], rank=rank)
        state = solver.solve(problem, state, look).state
        close(np.broadcast_to(means.mean(), (20, 3, 3)), np.mean(taus, axis=0), 1e-10)


@pytest.mark.parametrize("rank", [None, 2])
def test_a_callback_sees_every_iterate_with_its_mean(rank):
    """What a learning curve needs: before every step, the iterate and a mean that has taken it in."""
    loss, _, L = LOSSES["absolute"]
    d, k = 3, 4
    _, phis, batch = random_stream(np.random.default_rng(19), 12, d, k)
    means, seen = MeanAtTasks(phis), []

    def look(trajectory):
        means.add(trajectory.iterate)
        seen.append((trajectory.n_steps, trajectory.iterate.dense_H().copy(), means.mean()))

    objective = Surrogate(loss, L, inner="online")
    whole = start(StepSizes(0.1, 0.5, 0.0), np.eye(d), k, rank=rank).advance(batch, objective, look)
    assert [n for n, _, _ in seen] == list(range(12))
    if rank is None:
        close(whole.average().dense_H(), np.mean([H for _, H, _ in seen], axis=0), 1e-10)
        close(whole.average().evaluate(phis), seen[-1][2], 1e-10)
    silent = start(StepSizes(0.1, 0.5, 0.0), np.eye(d), k, rank=rank).advance(batch, objective)
    same(whole, silent)


# --- the solver ---------------------------------------------------------------------------------------------


def problem_of(tasks, phis, judge=None, **options):
    d, k = tasks[0][0].shape[1], phis.shape[1]
    batch = batch_of(tasks, phis)
    prior = Prior(Constant(np.eye(d), k), Bias.zero("none", d, k), Units.raw(d))
    objective = Surrogate(LOSSES["absolute"][0], 1.0)
    return Problem(prior, objective, TaskSet.from_tasks(tasks), batch, lambda i: batch, judge, **options)


def test_a_solution_is_a_snapshot_and_its_state_can_be_gone_on_from_twice():
    tasks, phis, _ = random_stream(np.random.default_rng(20), 20, 3, 4)
    solver = ProjectedSGD(step=(0.1, 0.5))
    first = solver.solve(problem_of(tasks[:12], phis[:12]))
    kept = first.prior.conditioning.dense_H().copy()
    second = solver.solve(problem_of(tasks[12:], phis[12:]), first.state)
    again = solver.solve(problem_of(tasks[12:], phis[12:]), first.state)
    whole = solver.solve(problem_of(tasks, phis))
    np.testing.assert_array_equal(first.prior.conditioning.dense_H(), kept)
    assert np.abs(second.prior.conditioning.dense_H() - kept).max() > 1e-4
    for other in (again, whole):
        np.testing.assert_array_equal(other.prior.conditioning.dense_H(), second.prior.conditioning.dense_H())
    assert (second.n_iter, second.scale, second.error, second.history) == (20, 1.0, None, [])
    assert second.details == {"step_size_": StepSizes(0.1, 0.5, 0.1)}


def test_the_search_takes_the_candidate_and_the_multiple_that_the_judge_prefers():
    tasks, phis, _ = random_stream(np.random.default_rng(21), 12, 3, 4)
    solver = ProjectedSGD(step_sizes=(0.1, 1.0), step_ratios=(0.0, 2.0))

    def judge(conditioning, bias):
        return abs(float(np.trace(conditioning.C)) - 12.0)

    for calibrate in (False, True):
        solution = solver.solve(problem_of(tasks, phis, judge, calibrate=calibrate))
        assert len(solution.history) == 4 * (8 if calibrate else 1)
        best = min(solution.history, key=lambda row: row["error"])
        assert solution.error == best["error"] == judge(solution.prior.conditioning, None)
        assert (solution.details["step_size_"].C, solution.scale) == (best["step_C"], best["scale"])
    assert solution.scale != 1.0
    tried = {(row["step_C"], row["step_H"]) for row in solution.history}
    assert tried == {(0.1, 0.0), (1.0, 0.0), (0.1, 0.2), (1.0, 2.0)}


def test_candidates_have_the_ratios_that_were_given_and_no_others():
    assert ProjectedSGD().step_ratios == (0.0, 1.0, 10.0)
    assert candidate_steps((0.1,), (10.0, 1.0), conditional=True) == [(0.1, 0.1, 0.1), (0.1, 1.0, 0.1)]
    assert candidate_steps((0.1, 0.2), (1.0,), conditional=False) == [(0.1, 0.0, 0.1), (0.2, 0.0, 0.2)]
    default = candidate_steps(STEP_SIZES, ProjectedSGD().step_ratios, conditional=True)
    # the smallest ratio first: a tie goes to the simpler model
    assert [step.H for step in default[:9]] == [0.0] * 9
    assert len(set(default)) == 27


@diverges
def test_divergence_of_every_candidate_names_the_steps():
    tasks, phis, _ = random_stream(np.random.default_rng(22), 12, 3, 4)
    tasks = [(1e4 * X, y) for X, y in tasks]
    with pytest.raises(DivergenceError, match=r"step: .*1e\+308"):
        ProjectedSGD(step=1e308).solve(problem_of(tasks, phis))


# --- held-out tasks -----------------------------------------------------------------------------------------


def some_tasks(n_tasks, seed=0):
    rng = np.random.default_rng(seed)
    return TaskSet.from_tasks([(rng.normal(size=(6, 2)), rng.normal(size=6)) for _ in range(n_tasks)])


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_one_task_of_every_block_is_held_out_and_never_its_first(fraction):
    tasks, block = some_tasks(60), round(1 / fraction)
    empty = HeldOutPool(fraction, 0.5, seed=3)
    pool, train = empty.partition(tasks, 0)
    assert (~train).reshape(-1, block).sum(axis=1).tolist() == [1] * (60 // block)
    assert train[::block].all()
    support, query = pool.tasks()
    assert len(support) == len(query) == pool.n_held_out == 60 // block
    held = tasks[np.flatnonzero(~train)]
    for t in range(len(held)):
        assert len(support[t].y) == len(query[t].y) == 3
        np.testing.assert_array_equal(np.sort(np.append(support[t].y, query[t].y)), np.sort(held[t].y))
    # a pool that takes tasks in is a new one
    assert (empty.n_held_out, empty.held_out, empty.fallback) == (0, (), ())
    assert not np.array_equal(HeldOutPool(fraction, 0.5, seed=4).partition(tasks, 0)[1], train) or block == 2


def test_the_pool_does_not_depend_on_how_the_stream_is_cut():
    tasks = some_tasks(43)
    whole, train = HeldOutPool(0.2, 0.5, seed=1).partition(tasks, 0)
    pool, masks = HeldOutPool(0.2, 0.5, seed=1), []
    for piece in np.split(np.arange(43), [1, 2, 9, 10, 31]):
        pool, mask = pool.partition(tasks[piece], int(piece[0]))
        masks.append(mask)
    np.testing.assert_array_equal(np.concatenate(masks), train)
    for one, other in zip(pool.tasks(), whole.tasks(), strict=True):
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.y, other.y)
        np.testing.assert_array_equal(one.offsets, other.offsets)


def test_the_pool_has_a_limit_and_a_fallback_until_it_has_tasks():
    tasks = some_tasks(40)
    limited, train = HeldOutPool(0.2, 0.5, seed=1, limit=3).partition(tasks, 0)
    assert (~train).sum() == limited.n_held_out == 3
    assert train[15:].all()
    first, mask = HeldOutPool(0.2, 0.5, seed=1).partition(tasks[:1], 0)
    assert mask.all()
    assert (first.n_held_out, first.n_fallback, len(first.tasks()[0])) == (0, 1, 1)
    np.testing.assert_array_equal(
        np.sort(np.append(*[part.y for part in first.tasks()])), np.sort(tasks[0].y)
    )
    given = first.add(tasks[20:30])
    assert len(given.tasks()[0]) == given.n_held_out == 10
    assert first.n_held_out == 0
