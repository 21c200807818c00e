"""`ProjectedSGD`: Algorithm 1 with given step sizes, or with step sizes selected on held-out tasks of the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._utils.records import Stored
from .._utils.threads import single_threaded_blas
from .._utils.validation import check_choice, check_nonnegative
from ..tasks.episodes import split_rows
from ..tasks.rows import Array, Rows, mean_error, predictions
from ..tasks.task_set import TaskSet
from .algorithm_1 import StepSizes, StreamBatch, Trajectory, run
from .prior import RepresentationPrior
from .surrogate import Surrogate

#: The paper's grid: 14 values, log-spaced over [1e-5, 1e5].
PAPER_STEP_SIZES = tuple(float(step) for step in np.logspace(-5, 5, 14))
#: The default grid of the search, which is coarser because every step is tried with several ratios for H.
STEP_SIZES = tuple(float(step) for step in np.logspace(-4, 4, 9))
#: Multiples of τ that are tried; 1 is first, so that a tie keeps the learned τ.
SCALES = (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0, 32.0)

Pairs = tuple[tuple[TaskSet, TaskSet], ...]


@dataclass(frozen=True)
class HeldOutTasks:
    """Tasks on which errors are computed: support rows, query rows, and the features φ (T, k) of the tasks."""

    support: Rows
    query: Rows
    phis: Array

    def error(self, prior: RepresentationPrior, n_jobs: int | None = None) -> float:
        """Return the mean over tasks of the mean error on their query rows; infinity if weights overflow or no task has query rows."""
        try:
            weights = prior.solve(self.support, self.phis, n_jobs)
        except OverflowError:
            return np.inf
        found = predictions(self.query, weights)
        return mean_error(prior.loss.error(found, self.query.y), self.query.offsets)


@dataclass(frozen=True)
class Problem:
    """The surrogate, the training tasks to minimise it on, and held-out tasks for selection."""

    start: RepresentationPrior  # H = 0, C = C₀; other fields are those of the learned prior
    surrogate: Surrogate
    batch: StreamBatch  # the training tasks
    held_out: HeldOutTasks | None = None  # None if the step size is given
    rank: int | None = None  # maximum number of directions of H that are kept; None keeps all
    tune_scale: bool = False  # whether to select a scalar multiple of τ on the held-out tasks
    n_jobs: int | None = None
    tick: Callable[[int], None] | None = None  # advances the progress bar

    def trajectory(self, steps: StepSizes) -> Trajectory:
        """Return a run from the initial value."""
        tau = self.start.conditioning
        return Trajectory.start(steps, tau.C, tau.n_side, self.rank)


@dataclass(frozen=True)
class Solution:
    """Result of `ProjectedSGD.solve`."""

    prior: RepresentationPrior  # a snapshot, not changed when the solver continues from ``state``
    steps: StepSizes  # the selected step sizes
    state: tuple[Trajectory, ...]  # state from which the next call of the solver can continue
    history: list[dict[str, float]]  # candidates with their error on the held-out tasks
    error: float | None  # the smallest error in ``history``
    errors: dict[
        str, float
    ]  # held-out errors of independent, unconditional and conditional learning
    scale: float  # the selected multiple of τ, already applied in ``prior``
    n_iter: int


@dataclass(frozen=True)
class HeldOutPool:
    """Support and query rows of the tasks that are held out of a stream.

    One task in every block of ``1 / fraction`` consecutive tasks is held out, never the first of the block, up to
    ``limit`` tasks.  All later tasks are used for training.  Until a task with query rows is held out, the pool uses
    the first training tasks instead.  The draws depend only on ``seed`` and the position in the stream.
    """

    fraction: float
    support: float
    seed: int
    limit: int = 300
    fallback_limit: int = 4
    held_out: Pairs = ()
    fallback: Pairs = ()

    def partition(
        self, tasks: TaskSet, first_position: int
    ) -> tuple[HeldOutPool, NDArray[np.bool_]]:
        """Hold out some of these tasks; return the extended pool and a mask of the training tasks.

        ``first_position`` is the position of the first task in the stream.
        """
        block = max(2, round(1.0 / self.fraction))
        train, n_held_out = np.ones(len(tasks), dtype=bool), _n_tasks(self.held_out)
        for t in range(len(tasks)):
            number, position = divmod(first_position + t, block)
            drawn = 1 + int(np.random.default_rng([self.seed, 0, number]).integers(block - 1))
            if position == drawn and n_held_out < self.limit:
                train[t] = False
                n_held_out += 1
        held = np.flatnonzero(~train)
        early = np.flatnonzero(train)[: max(0, self.fallback_limit - _n_tasks(self.fallback))]
        pool = replace(
            self,
            held_out=self.held_out + self._pairs(tasks[held], first_position + held),
            fallback=self.fallback + self._pairs(tasks[early], first_position + early),
        )
        return pool, train

    def add(self, tasks: TaskSet) -> HeldOutPool:
        """Return the pool extended by validation tasks from the user."""
        first = _n_tasks(self.held_out)
        return replace(
            self, held_out=self.held_out + self._pairs(tasks, range(first, first + len(tasks)))
        )

    def tasks(self) -> tuple[TaskSet, TaskSet]:
        """Return the held-out tasks, or else the first training tasks, as one (support, query) pair.

        Joining them makes the result bitwise independent of how the stream was split.
        """
        pools = (self.held_out, self.fallback)
        pairs = next((pairs for pairs in pools if any(len(query.y) for _, query in pairs)), None)
        if pairs is None:
            raise ValueError(
                "X: none of the held-out tasks has a query row. Give tasks with more rows, validation=, or a "
                "step size, such as solver=ProjectedSGD(step=0.1)"
            )
        support, query = zip(*pairs, strict=True)
        return TaskSet.concat(support, relabel=True), TaskSet.concat(query, relabel=True)

    def _pairs(self, tasks: TaskSet, positions: Sequence[int] | NDArray[np.intp]) -> Pairs:
        return (split_rows(tasks, positions, self.support, (self.seed, 1)),) if len(tasks) else ()


def _n_tasks(pairs: Pairs) -> int:
    return sum(len(support) for support, _ in pairs)


class ProjectedSGD(Stored, BaseEstimator):
    """The paper's Algorithm 1: one projected step per task, and the mean of the iterates.

    Parameters
    ----------
    step : "search", float or pair of floats, default="search"
        A pair is (step of C, step of H).  "search" selects the step on
        held-out tasks; all candidates share one pass.  The step of Thm. bound_estimated_feature is
        ``tailored.paper.theory.learned_function(quantities).step``.
    step_sizes : sequence of floats, optional
        Candidate steps of C in the search; by default 9 values from 1e-4 to 1e4 (the paper's 14 values are
        `PAPER_STEP_SIZES`).
    step_ratios : sequence of floats, default=(0, 1, 10)
        Candidate ratios (step of H) / (step of C) in the search.  The ratio 0 keeps H = 0.  If it is a
        candidate, the error of a conditional learner on the held-out tasks is at most that of the unconditional one.
    """

    def __init__(
        self, step: Any = "search", *, step_sizes: Any = None, step_ratios: Any = (0.0, 1.0, 10.0)
    ) -> None:
        self.step = step
        self.step_sizes = step_sizes
        self.step_ratios = step_ratios

    @property
    def needs_held_out(self) -> bool:
        """Whether the step size is selected on held-out tasks."""
        return isinstance(self.step, str)

    def check(self) -> None:
        """Raise a ValueError that names the argument if the settings are not valid."""
        given = {"step_sizes": self.step_sizes, "step_ratios": self.step_ratios}
        if isinstance(self.step, str):
            check_choice("step", self.step, ["search"], also="a number or a pair of numbers")
        elif np.ndim(self.step) and len(self.step) != 2:
            raise ValueError(f"step: expected a pair (step of C, step of H), got {self.step!r}")
        else:
            given["step"] = self.step if np.ndim(self.step) else [self.step]
        for name, values in given.items():
            if values is not None and (np.ndim(values) != 1 or len(values) == 0):
                raise ValueError(f"{name}: expected a list of at least one number, got {values!r}")
            for value in () if values is None else values:
                check_nonnegative(name, value)

    def solve(self, problem: Problem, state: Sequence[Trajectory] | None = None) -> Solution:
        """Advance every candidate through the tasks and select one of them; ``state`` of an earlier solution is not modified."""
        if state is None:
            candidates = self.candidates(conditional=problem.start.conditioning.n_side > 0)
            # Unconditional runs are cheap; their errors are reported even if H = 0 is not a candidate.
            constant = [StepSizes(step.C, 0.0) for step in candidates if self.needs_held_out]
            steps = list(dict.fromkeys([*candidates, *constant]))
            runs = [problem.trajectory(step) for step in steps]
            for each in runs:
                each.is_candidate = each.steps in candidates
        else:
            runs = list(deepcopy(state))
        runs = run(runs, problem.batch, problem.surrogate, n_jobs=problem.n_jobs, tick=problem.tick)
        if all(run.failure for run in runs if run.is_candidate):
            steps_tried = ", ".join(str(run.steps) for run in runs if run.is_candidate)
            raise ValueError(
                f"step: the iterates overflow with step {steps_tried} ({runs[0].failure}); "
                "give a smaller step, or rescale X and y"
            )
        return _select(problem, runs)

    def candidates(self, *, conditional: bool) -> list[StepSizes]:
        """Return the steps to try; the smallest ratio is first, so that a tie selects the simpler model."""
        if not self.needs_held_out:
            step_C, step_H = map(float, self.step if np.ndim(self.step) else [self.step] * 2)
            return [StepSizes(step_C, step_H)]
        sizes = STEP_SIZES if self.step_sizes is None else self.step_sizes
        ratios = sorted(set(map(float, self.step_ratios))) if conditional else [0.0]
        return [StepSizes(step, ratio * step) for ratio in ratios for step in sizes]


def _select(problem: Problem, runs: list[Trajectory]) -> Solution:
    """Return the candidate and the multiple of τ with the smallest error on the held-out tasks."""
    held_out, n_jobs, state = problem.held_out, problem.n_jobs, tuple(runs)
    if held_out is None:
        (run,) = runs
        prior = replace(problem.start, conditioning=run.average())
        return Solution(prior, run.steps, state, [], None, {}, 1.0, max(run.n_steps, 1))
    tried: list[tuple[float, float, Trajectory, RepresentationPrior]] = []
    with single_threaded_blas():
        for run in runs:
            average = problem.start.conditioning if run.failure else run.average()
            for scale in SCALES if problem.tune_scale else (1.0,):
                prior = replace(problem.start, conditioning=average.scale(scale))
                error = np.inf if run.failure else held_out.error(prior, n_jobs)
                tried.append((error, scale, run, prior))
        errors = {"independent": held_out.error(problem.start, n_jobs)}
    history = [
        {"step_C": run.steps.C, "step_H": run.steps.H, "scale": scale, "error": error}
        for error, scale, run, _ in tried
        if run.is_candidate
    ]
    # The first minimum among the runs that did not overflow, even if all errors are infinite.
    sound = (row for row in tried if row[2].is_candidate and not row[2].failure)
    error, scale, best, prior = min(sound, key=lambda row: row[0])
    errors["unconditional"] = min(row[0] for row in tried if row[2].steps.H == 0.0)
    if problem.start.conditioning.n_side:
        errors["conditional"] = error
    n_iter = max(best.n_steps, 1)
    return Solution(prior, best.steps, state, history, error, errors, scale, n_iter)
