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
from tailored.representation import Constant, Dense, Factored
from tailored.solvers.trajectory import LARGEST_DENSE, StepSizes, TaskBatch, Trajectory, compress, run
from tailored.tasks import Rows

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


def start(steps, C0, k, rank=None, bias="none", conditional=True):
    return Trajectory.start(steps, C0, k, rank=rank, bias=bias, conditional=conditional)


def close(actual, expected, tol=1e-8):
    assert np.shape(actual) == np.shape(expected)
    assert np.abs(actual - expected).max(initial=0.0) <= tol * max(1.0, np.abs(expected).max(initial=0.0))


def same(first, second):
    """Bit for bit: two trajectories with the same steps, iterates and averages."""
    assert (first.n_steps, first.failure) == (second.n_steps, second.failure)
    for part in ("current", "average", "bias", "bias_average"):
        one, two = getattr(first, part), getattr(second, part)
        assert type(one) is type(two)
        for name, array in one.arrays().items():
            np.testing.assert_array_equal(array, two.arrays()[name])


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
        close(trajectory.current.dense_H(), expected.H[t])
        close(trajectory.current.C, expected.C[t])
        assert trajectory.n_steps == t
        assert trajectory.advance(batch.slice(t, t + 1), objective) is trajectory
    assert trajectory.failure is None
    close(trajectory.current.dense_H(), expected.H[25])
    close(trajectory.current.C, expected.C[25])
    close(trajectory.average.dense_H(), expected.mean_H)
    close(trajectory.average.C, expected.mean_C)
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
    close(trajectory.average.dense_H(), expected.mean_H)
    close(trajectory.average.C, expected.mean_C)
    if steps[0] == 0:
        np.testing.assert_array_equal(trajectory.average.C, np.eye(d))
    assert isinstance(trajectory.current, Constant if steps[1] == 0 else Factored)


def test_the_unconditional_run_is_the_run_whose_H_does_not_move():
    loss, reference, L = LOSSES["absolute"]
    d, k = 3, 4
    tasks, phis, batch = random_stream(np.random.default_rng(2), 20, d, k)
    objective = Surrogate(loss, L, tol=TOL)
    unconditional = start(StepSizes(0.4, 5.0, 0.0), np.eye(d), k, conditional=False).advance(batch, objective)
    frozen = start(StepSizes(0.4, 0.0, 0.0), np.eye(d), k).advance(batch, objective)
    same(unconditional, frozen)
    expected = ref.algorithm_1(tasks, phis, 0.4, 0.0, np.eye(d), "exact", reference, L)
    close(unconditional.average.C, expected.mean_C)


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
    assert np.abs(unconditional.average.C).max() > 1e-3
    close(conditional.current.dense_H(), unconditional.current.C)
    close(conditional.average.dense_H(), unconditional.average.C)
    np.testing.assert_array_equal(conditional.average.C, zero)


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
    assert np.linalg.eigvalsh(trajectory.current.C)[-1] > 1e-3
    assert trajectory.current.spectrum()[0] > 1e-3
    expected = ref.algorithm_1([(X, y)], np.ones((1, k)), 0.5, 0.5, np.zeros((d, d)), inner, reference, L)
    close(trajectory.current.C, expected.C[1])
    close(trajectory.current.dense_H(), expected.H[1])
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
    assert trajectory.current.basis.shape[1] <= rank
    assert trajectory.average.basis.shape[1] <= rank
    close(trajectory.current.dense_H(), H)
    close(trajectory.average.dense_H(), mean)


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
    close(c**2 * trajectory.average.dense_H(), expected.mean_H)
    close(trajectory.average.C, expected.mean_C)
    for phi in phis[:5]:
        close(trajectory.average(phi), ref.tau(expected.mean_H, expected.mean_C, phi / c))


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
    close(trajectory.average.dense_H(), sum(H[:T]) / T)
    close(trajectory.average.C, sum(C[:T]) / T)
    for phi in phis[:4]:
        close(trajectory.bias(phi), b[T] + B[T] @ phi)
        close(trajectory.bias_average(phi), sum(b[:T]) / T + sum(B[:T]) / T @ phi)
    mean = sum(b[:T]) / T + phis @ (sum(B[:T]) / T).T
    close(trajectory.bias_average.evaluate(phis), mean)
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
    assert not trajectory.average.dense_H().any()
    assert not trajectory.bias.arrays()["linear"].any()
    assert np.abs(trajectory.bias.arrays()["constant"]).max() > 1e-3


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
    close(trajectory.current.dense_H(), H[T])
    close(trajectory.average.dense_H(), sum(H[:T]) / T)
    close(trajectory.average.C, sum(C[:T]) / T)


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
    close(trajectory.current.C, C[T])
    close(trajectory.average.C, sum(C[:T]) / T)


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
    close(runs[1].average.dense_H(), runs[0].average.dense_H())
    close(runs[1].average.C, runs[0].average.C)
    close(runs[1].bias_average.evaluate(phis), runs[0].bias_average.evaluate(phis))
    assert np.abs(runs[0].average.dense_H()).max() > 1e-3


def test_compress_takes_columns_of_sparse_and_dense_rows():
    rng = np.random.default_rng(12)
    X, y, offsets = rng.normal(size=(5, 4)), rng.normal(size=5), np.array([0, 5])
    for given in (X, sparse.csr_array(X)):
        rows = compress(Rows(given, y, offsets), np.array([3, 1]))
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
    for conditioning in (doomed.current, doomed.average):
        for array in conditioning.arrays().values():
            assert np.isfinite(array).all()
    stopped = copy.deepcopy(doomed)
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
        parts = [trajectory.current, trajectory.average, trajectory.bias, trajectory.bias_average]
        finite = all(np.isfinite(a).all() for part in parts for a in part.arrays().values())
        assert finite
        assert trajectory.failure is not None or trajectory.n_steps == 10


def test_a_dense_average_too_large_is_refused_with_a_hint():
    k = LARGEST_DENSE // 2 + 1
    with pytest.raises(ValueError, match="rank=32"):
        start(StepSizes(1.0, 1.0, 0.0), np.eye(2), k)
    assert start(StepSizes(1.0, 1.0, 0.0), np.eye(2), k, rank=4).average.basis.shape == (2 * k, 0)
    assert isinstance(start(StepSizes(1.0, 0.0, 0.0), np.eye(2), k).average, Constant)
    assert isinstance(start(StepSizes(1.0, 1.0, 0.0), np.eye(2), 3).average, Dense)


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
