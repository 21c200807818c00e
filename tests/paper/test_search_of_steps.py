"""ProjectedSGD: held-out tasks of a stream, the search over steps, snapshots and divergence."""

from __future__ import annotations

import numpy as np
import pytest

from streams import LOSSES, batch_of, random_stream
from tailored.paper import ProjectedSGD, step_size
from tailored.paper.algorithm_1 import StepSizes, Surrogate, Trajectory, run
from tailored.paper.prior import RepresentationPrior
from tailored.paper.representation import Conditioning
from tailored.paper.step_size import select, try_runs
from tailored.paper.stream import Stream
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Scaling
from tailored.tasks.task_set import TaskSet


def tried_runs(tasks, phis, candidates, error_of, scales):
    """Trials of runs with these steps on the tasks."""
    d, k = tasks[0][0].shape[1], phis.shape[1]
    runs = [Trajectory(steps, np.eye(d), k) for steps in candidates]
    algorithm, tau = WithinTask(LOSSES["absolute"][0]), Conditioning.constant(np.eye(d), k)
    run(runs, *batch_of(tasks, phis), Surrogate(algorithm, 1.0))
    prior = RepresentationPrior(scaling=Scaling.raw(d), conditioning=tau, algorithm=algorithm)
    return try_runs(runs, prior, error_of, scales, None)


def test_the_search_takes_the_candidate_and_the_multiple_with_the_smallest_error():
    tasks, phis, _ = random_stream(np.random.default_rng(21), 12, 3, 4)
    candidates = ProjectedSGD(step_sizes=(0.1, 1.0), step_ratios=(0.0, 2.0)).candidates(
        conditional=True
    )

    def distance_of_trace(prior):
        return abs(float(np.trace(prior.conditioning.C)) - 12.0)

    for scales in ((1.0,), step_size.SCALES):
        tried = tried_runs(tasks, phis, candidates, distance_of_trace, scales)
        assert len(tried) == 4 * len(scales)
        assert {each.run.steps for each in tried} == set(candidates)
        assert all(each.error == distance_of_trace(each.prior) for each in tried)
        best = select(tried, candidates)
        assert best.error == min(each.error for each in tried)
        first = select(tried, candidates[:1])
        assert first.run.steps == candidates[0]
    assert best.scale != 1.0
    assert {(steps.C, steps.H) for steps in candidates} == {
        (0.1, 0.0),
        (1.0, 0.0),
        (0.1, 0.2),
        (1.0, 2.0),
    }


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


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_one_task_of_every_block_is_held_out_and_never_its_first(fraction):
    rng, block = np.random.default_rng(0), round(1 / fraction)
    rows = [(rng.normal(size=(6, 2)), rng.normal(size=6)) for _ in range(60)]
    tasks, empty = TaskSet.from_tasks(rows), Stream(seed=3)
    stream, train = empty.hold_out(tasks, fraction, 0.5)
    held = np.setdiff1d(np.arange(60), train.labels)
    assert (held // block).tolist() == list(range(60 // block))
    assert (held % block > 0).all()
    support, query = stream.validation()
    assert len(support) == len(query) == stream.n_held_out == 60 // block
    for t, task in enumerate(tasks[held]):
        assert len(support[t].y) == len(query[t].y) == 3
        both = np.append(support[t].y, query[t].y)
        np.testing.assert_array_equal(np.sort(both), np.sort(task.y))
    # a stream that goes on is a new one
    assert empty.held_out is None
    other = Stream(seed=4).hold_out(tasks, fraction, 0.5)[1]
    assert block == 2 or not np.array_equal(other.labels, train.labels)
