"""ProjectedSGD: held-out tasks of a stream, the search over steps, snapshots and divergence."""

from __future__ import annotations

import numpy as np
import pytest

from streams import diverges, problem_of, random_stream
from tailored.paper import ProjectedSGD
from tailored.paper.algorithm_1 import StepSizes
from tailored.paper.step_size import HeldOutPool
from tailored.tasks.task_set import TaskSet


def test_a_solution_is_a_snapshot_and_its_state_can_be_gone_on_from_twice():
    tasks, phis, _ = random_stream(np.random.default_rng(20), 20, 3, 4)
    solver = ProjectedSGD(step=(0.1, 0.5))
    first = solver.solve(problem_of(tasks[:12], phis[:12]))
    kept = first.prior.conditioning.H.copy()
    second = solver.solve(problem_of(tasks[12:], phis[12:]), first.state)
    again = solver.solve(problem_of(tasks[12:], phis[12:]), first.state)
    whole = solver.solve(problem_of(tasks, phis))
    np.testing.assert_array_equal(first.prior.conditioning.H, kept)
    assert np.abs(second.prior.conditioning.H - kept).max() > 1e-4
    for other in (again, whole):
        np.testing.assert_array_equal(other.prior.conditioning.H, second.prior.conditioning.H)
    assert (second.n_iter, second.scale, second.error, second.history) == (20, 1.0, None, [])
    assert second.steps == StepSizes(0.1, 0.5)


def test_the_search_takes_the_candidate_and_the_multiple_with_the_smallest_error():
    tasks, phis, _ = random_stream(np.random.default_rng(21), 12, 3, 4)
    solver = ProjectedSGD(step_sizes=(0.1, 1.0), step_ratios=(0.0, 2.0))

    class TraceTwelve:
        def error(self, prior, n_jobs=None):
            return abs(float(np.trace(prior.conditioning.C)) - 12.0)

    for tune_scale in (False, True):
        solution = solver.solve(problem_of(tasks, phis, TraceTwelve(), tune_scale=tune_scale))
        assert len(solution.history) == 4 * (8 if tune_scale else 1)
        best = min(solution.history, key=lambda row: row["error"])
        assert solution.error == best["error"] == TraceTwelve().error(solution.prior)
        assert (solution.steps.C, solution.scale) == (best["step_C"], best["scale"])
    assert solution.scale != 1.0
    tried = {(row["step_C"], row["step_H"]) for row in solution.history}
    assert tried == {(0.1, 0.0), (1.0, 0.0), (0.1, 0.2), (1.0, 2.0)}


def test_candidates_have_the_ratios_that_were_given_and_no_others():
    assert ProjectedSGD().step_ratios == (0.0, 1.0, 10.0)
    assert ProjectedSGD(step_sizes=(0.1,), step_ratios=(10.0, 1.0)).candidates(
        conditional=True
    ) == [
        StepSizes(0.1, 0.1),
        StepSizes(0.1, 1.0),
    ]
    assert ProjectedSGD(step_sizes=(0.1, 0.2), step_ratios=(1.0,)).candidates(
        conditional=False
    ) == [
        StepSizes(0.1, 0.0),
        StepSizes(0.2, 0.0),
    ]
    default = ProjectedSGD().candidates(conditional=True)
    # the smallest ratio first: a tie goes to the simpler model
    assert [step.H for step in default[:9]] == [0.0] * 9
    assert len(set(default)) == 27


@diverges
def test_divergence_of_every_candidate_names_the_steps():
    tasks, phis, _ = random_stream(np.random.default_rng(22), 12, 3, 4)
    tasks = [(1e4 * X, y) for X, y in tasks]
    with pytest.raises(ValueError, match=r"step: .*1e\+308"):
        ProjectedSGD(step=1e308).solve(problem_of(tasks, phis))


# --- held-out tasks ----------------------------------------------------------------------------------------


def some_tasks(n_tasks, seed=0):
    rng = np.random.default_rng(seed)
    return TaskSet.from_tasks(
        [(rng.normal(size=(6, 2)), rng.normal(size=6)) for _ in range(n_tasks)]
    )


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_one_task_of_every_block_is_held_out_and_never_its_first(fraction):
    tasks, block = some_tasks(60), round(1 / fraction)
    empty = HeldOutPool(fraction, 0.5, seed=3)
    pool, train = empty.partition(tasks, 0)
    assert (~train).reshape(-1, block).sum(axis=1).tolist() == [1] * (60 // block)
    assert train[::block].all()
    support, query = pool.tasks()
    assert len(support) == len(query) == 60 // block
    held = tasks[np.flatnonzero(~train)]
    for t in range(len(held)):
        assert len(support[t].y) == len(query[t].y) == 3
        np.testing.assert_array_equal(
            np.sort(np.append(support[t].y, query[t].y)), np.sort(held[t].y)
        )
    # a pool that takes tasks in is a new one
    assert (empty.held_out, empty.fallback) == ((), ())
    assert (
        not np.array_equal(HeldOutPool(fraction, 0.5, seed=4).partition(tasks, 0)[1], train)
        or block == 2
    )


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
    assert (~train).sum() == len(limited.tasks()[0]) == 3
    assert train[15:].all()
    first, mask = HeldOutPool(0.2, 0.5, seed=1).partition(tasks[:1], 0)
    assert mask.all()
    assert (first.held_out, len(first.fallback), len(first.tasks()[0])) == ((), 1, 1)
    np.testing.assert_array_equal(
        np.sort(np.append(*[part.y for part in first.tasks()])), np.sort(tasks[0].y)
    )
    given = first.add(tasks[20:30])
    assert len(given.tasks()[0]) == 10
    assert first.held_out == ()
