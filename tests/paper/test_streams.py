"""Runs of Algorithm 1 do not depend on the pieces of a stream or on the number of jobs; failures of
runs.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

from streams import (
    LOSSES,
    advance,
    arrays_of,
    batch_of,
    diverges,
    part,
    random_stream,
    same,
)
from tailored.paper.algorithm_1 import LARGEST_DENSE, StepSizes, Surrogate, Trajectory, run
from tailored.paper.within_task import WithinTask

# --- streams in pieces, jobs
# --------------------------------------------------------------------------------


def candidates(d, k):
    """Several runs that share a pass: unconditional, exact, rank-limited, and one that diverges."""
    return [
        Trajectory(StepSizes(0.2, 0.0), np.eye(d), k),
        Trajectory(StepSizes(0.2, 0.7), np.eye(d), k),
        Trajectory(StepSizes(0.05, 2.0), np.eye(d), k, rank=2),
        Trajectory(StepSizes(1e308, 0.0), np.eye(d), k),
    ]


@diverges
@pytest.mark.parametrize("inner", ["online", "exact"])
def test_results_do_not_depend_on_the_pieces_nor_on_the_number_of_jobs(inner):
    loss, _, L = LOSSES["absolute"]
    d, k = 3, 4
    rng = np.random.default_rng(13)
    tasks, phis, _ = random_stream(rng, 30, d, k)
    squared = np.cumsum((phis**2).sum(axis=1)) / np.arange(1, 31)
    batch = batch_of(tasks, phis, factors=squared**-2.0)
    objective = Surrogate(WithinTask(loss, inner=inner), L)
    whole, pieces, shown, two_jobs = (candidates(d, k) for _ in range(4))
    run(whole, *batch, objective)
    assert [t.mean.count for t in whole[:3]] == [30, 30, 30]
    for begin, end in [(0, 1), (1, 1), (1, 13), (13, 30)]:
        run(pieces, *part(batch, begin, end), objective)
    ticks = []
    run(shown, *batch, objective, tick=ticks.append)
    assert sum(ticks) == 30
    run(two_jobs, *batch, objective, n_jobs=2, tick=ticks.append)
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
    doomed = Trajectory(StepSizes(*steps), np.eye(d), k, rank=rank)
    healthy = Trajectory(StepSizes(1e-10, 1e-10), np.eye(d), k, rank=rank)
    run([doomed, healthy], *batch, objective)
    assert isinstance(doomed.failure, str)
    assert doomed.mean.count < 30
    assert (healthy.failure, healthy.mean.count) == (None, 30)
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
        trajectory = Trajectory(StepSizes(step, step), np.eye(d), k, rank=rank)
        advance(trajectory, batch, Surrogate(WithinTask(loss, inner=inner), L))
        assert all_finite(trajectory)
        assert trajectory.failure is not None or trajectory.mean.count == 10


def test_a_dense_average_too_large_is_refused_with_a_hint():
    k = LARGEST_DENSE // 2 + 1
    with pytest.raises(ValueError, match="rank=32"):
        Trajectory(StepSizes(1.0, 1.0), np.eye(2), k)
    assert Trajectory(StepSizes(1.0, 1.0), np.eye(2), k, rank=4).average().root.shape == (2 * k, 0)
    assert Trajectory(StepSizes(1.0, 0.0), np.eye(2), k).average().root.shape == (2 * k, 0)
