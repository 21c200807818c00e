"""L-BFGS on factors: its minimum, the iterate that it returns, the multiple of the representation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from factored_samples import LOSSES, objective_of, random_batch, random_factors
from tailored import ConditionalLearner, TaskSet, losses
from tailored.datasets import make_clusters
from tailored.priors.representation import RepresentationPrior
from tailored.representation.bias import Bias
from tailored.representation.conditioning import Constant
from tailored.solvers import LBFGS, ProjectedSGD
from tailored.solvers.base import Problem, TaskBatch
from tailored.solvers.factored import Coordinates, Factors, Start
from tailored.solvers.lbfgs import SCALE_RANGE, best_scale
from tailored.solvers.objectives import Surrogate
from tailored.tasks.rows import Rows, Scaling


def problem_of(batch, objective, held_out_error, *, rank, d):
    """A problem with the tasks of the batch and a given error on held-out tasks."""
    k = batch.phis.shape[1]
    prior = RepresentationPrior(
        scaling=Scaling.raw(d), conditioning=Constant(np.eye(d), k), bias=Bias.zero("none", d, k)
    )
    tasks = TaskSet.from_arrays(*batch.support, np.arange(len(batch)))
    return Problem(prior, objective, tasks, batch, lambda i: batch, held_out_error, rank=rank, seed=[0])


def identity_state(start):
    """Coordinates that change nothing."""
    return Start(start, Coordinates(np.eye(len(start.F)), 1.0, 1.0))


def test_lbfgs_goes_below_projected_steps():
    """The same surrogate, the same tasks: the minimum over factors of full rank is the convex one."""
    tasks = make_clusters(30, n_clusters=2, n_rows=12, n_features=4, rank=2, random_state=0)
    projected = ConditionalLearner(
        "ridge", solver=ProjectedSGD(1.0), rank=None, scale_features=False, fit_intercept=False
    ).fit(tasks)
    phis, rows = projected.prior_.features(tasks), Rows.of(tasks)
    batch = TaskBatch(rows, None, phis, np.ones(30))
    objective = Surrogate(losses.LOSSES["absolute"](), 1.0)

    def value(conditioning, bias):
        return float(objective(rows, None, conditioning.evaluate(phis), None).value.mean())

    start = Factors.of(np.eye(4), phis.shape[1], 8, Bias.zero("none", 4, phis.shape[1]))
    start = start._replace(M=0.1 * np.random.default_rng(0).normal(size=start.M.shape))
    problem = problem_of(batch, objective, value, rank=8, d=4)
    solution = LBFGS(max_passes=60).solve(problem, identity_state(start))
    values = [step["error"] for step in solution.history]
    assert len(values) > 10
    assert np.all(np.diff(values) < 1e-12)
    assert values[-1] < 0.95 * values[0]
    assert solution.error == values[-1] < value(projected.conditioning_, projected.bias_)
    assert value(solution.prior.conditioning, solution.prior.bias) == solution.error


def test_the_best_iterate_is_returned():
    """The start or the second iterate, whichever has the smallest error on held-out tasks."""
    rng = np.random.default_rng(9)
    batch, start = random_batch(rng), random_factors(rng, bias="none")
    objective = objective_of("surrogate", LOSSES["squared"][0])
    made, state = LBFGS(40), identity_state(start)

    errors = iter(range(1000))
    problem = problem_of(batch, objective, lambda tau, b: float(next(errors)), rank=2, d=3)
    solution = made.solve(problem, state)
    np.testing.assert_array_equal(solution.state.factors.pack(), start.pack())
    assert len(solution.history) == 1 + made.patience
    assert (solution.error, solution.n_iter) == (0.0, made.patience)
    seen = []

    def third(conditioning, bias):
        seen.append(conditioning)
        return 0.0 if len(seen) == 3 else 1.0

    solution = made.solve(replace(problem, held_out_error=third), state)
    np.testing.assert_array_equal(solution.prior.conditioning.dense_H(), seen[2].dense_H())
    np.testing.assert_array_equal(solution.prior.conditioning.C, seen[2].C)
    assert np.abs(seen[2].C - start.F @ start.F.T).max() > 1e-4
    assert len(solution.history) == 3 + made.patience
    # the state that was given is left as it was
    np.testing.assert_array_equal(state.factors.pack(), start.pack())


def test_multiples_are_walked_to_the_nearest_valley():
    assert best_scale(lambda c: abs(np.log2(c) - 3), 1.0) == (8.0, 0.0)
    assert best_scale(lambda c: abs(np.log2(c) + 2), 1.0) == (0.25, 0.0)
    assert best_scale(lambda c: -c, 1.0)[0] == SCALE_RANGE[1]
