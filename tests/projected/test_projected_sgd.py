"""ProjectedSGD: snapshots, the search over steps, divergence."""

from __future__ import annotations

import numpy as np
import pytest

from streams import diverges, problem_of, random_stream
from tailored.solvers import DivergenceError, ProjectedSGD, StepSizes
from tailored.solvers.projected import STEP_SIZES, candidate_steps


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
    assert second.steps == StepSizes(0.1, 0.5, 0.1)


def test_the_search_takes_the_candidate_and_the_multiple_with_the_smallest_error():
    tasks, phis, _ = random_stream(np.random.default_rng(21), 12, 3, 4)
    solver = ProjectedSGD(step_sizes=(0.1, 1.0), step_ratios=(0.0, 2.0))

    def held_out_error(conditioning, bias):
        return abs(float(np.trace(conditioning.C)) - 12.0)

    for tune_scale in (False, True):
        solution = solver.solve(problem_of(tasks, phis, held_out_error, tune_scale=tune_scale))
        assert len(solution.history) == 4 * (8 if tune_scale else 1)
        best = min(solution.history, key=lambda row: row["error"])
        assert solution.error == best["error"] == held_out_error(solution.prior.conditioning, None)
        assert (solution.steps.C, solution.scale) == (best["step_C"], best["scale"])
    assert solution.scale != 1.0
    tried = {(row["step_C"], row["step_H"]) for row in solution.history}
    assert tried == {(0.1, 0.0), (1.0, 0.0), (0.1, 0.2), (1.0, 2.0)}


def test_candidates_have_the_ratios_that_were_given_and_no_others():
    assert ProjectedSGD().step_ratios == (0.0, 1.0, 10.0)
    assert candidate_steps((0.1,), (10.0, 1.0), conditional=True) == [
        StepSizes(0.1, 0.1, 0.1),
        StepSizes(0.1, 1.0, 0.1),
    ]
    assert candidate_steps((0.1, 0.2), (1.0,), conditional=False) == [
        StepSizes(0.1, 0.0, 0.1),
        StepSizes(0.2, 0.0, 0.2),
    ]
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
