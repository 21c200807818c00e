"""ProjectedSGD: held-out tasks of a stream, the search over steps, snapshots and divergence."""

from __future__ import annotations

import numpy as np
import pytest

from streams import LOSSES, batch_of, random_stream, start
from tailored.paper import ProjectedSGD, step_size
from tailored.paper.algorithm_1 import StepSizes, Surrogate, run
from tailored.paper.prior import RepresentationPrior
from tailored.paper.representation import Conditioning
from tailored.paper.step_size import HeldOutPool, select
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Scaling
from tailored.tasks.task_set import TaskSet


def selected(tasks, phis, candidates, held_out=None, scales=(1.0,)):
    """What is selected among runs with these steps on the tasks."""
    d, k = tasks[0][0].shape[1], phis.shape[1]
    runs = [start(steps, np.eye(d), k) for steps in candidates]
    algorithm, tau = WithinTask(LOSSES["absolute"][0]), Conditioning.constant(np.eye(d), k)
    run(runs, batch_of(tasks, phis), Surrogate(algorithm, 1.0))
    prior = RepresentationPrior(scaling=Scaling.raw(d), conditioning=tau, algorithm=algorithm)
    return select(runs, candidates, prior, held_out, scales, None)


def test_the_search_takes_the_candidate_and_the_multiple_with_the_smallest_error():
    tasks, phis, _ = random_stream(np.random.default_rng(21), 12, 3, 4)
    candidates = ProjectedSGD(step_sizes=(0.1, 1.0), step_ratios=(0.0, 2.0)).candidates(
        conditional=True
    )

    class TraceTwelve:
        def error(self, prior):
            return abs(float(np.trace(prior.conditioning.C)) - 12.0)

    for scales in ((1.0,), step_size.SCALES):
        found = selected(tasks, phis, candidates, TraceTwelve(), scales)
        assert len(found.history) == 4 * len(scales)
        best = min(found.history, key=lambda row: row["error"])
        assert found.error == best["error"] == TraceTwelve().error(found.prior)
        assert (found.run.steps.C, found.scale) == (best["step_C"], best["scale"])
    assert found.scale != 1.0
    tried = {(row["step_C"], row["step_H"]) for row in found.history}
    assert tried == {(0.1, 0.0), (1.0, 0.0), (0.1, 0.2), (1.0, 2.0)}


def test_candidates_have_the_ratios_that_were_given_and_no_others():
    assert ProjectedSGD().step_ratios == (0.0, 1.0, 10.0)
    assert ProjectedSGD(step_sizes=(0.1,), step_ratios=(10.0, 1.0)).candidates(
        conditional=True
    ) == [StepSizes(0.1, 0.1), StepSizes(0.1, 1.0)]
    assert ProjectedSGD(step_sizes=(0.1, 0.2), step_ratios=(1.0,)).candidates(
        conditional=False
    ) == [StepSizes(0.1, 0.0), StepSizes(0.2, 0.0)]
    default = ProjectedSGD().candidates(conditional=True)
    # the smallest ratio first: a tie goes to the simpler model
    assert [step.H for step in default[:9]] == [0.0] * 9
    assert len(set(default)) == 27


# --- held-out tasks
# ----------------------------------------------------------------------------------------


def some_tasks(n_tasks, seed=0):
    rng = np.random.default_rng(seed)
    return TaskSet.from_tasks(
        [(rng.normal(size=(6, 2)), rng.normal(size=6)) for _ in range(n_tasks)]
    )


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_one_task_of_every_block_is_held_out_and_never_its_first(fraction):
    tasks, block = some_tasks(60), round(1 / fraction)
    empty = HeldOutPool(fraction, 0.5, seed=3)
    pool, positions = empty.partition(tasks, 0)
    train = np.isin(np.arange(60), positions)
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
    assert (empty.held_out, empty.stand_ins) == ((), ())
    assert (
        not np.array_equal(HeldOutPool(fraction, 0.5, seed=4).partition(tasks, 0)[1], positions)
        or block == 2
    )
