"""Algorithm 1 of the paper (Alg. meta_alg): projected SGD on the conditioning function, one task per step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import joblib
import numpy as np
from scipy.linalg.blas import dsyrk
from sklearn.base import BaseEstimator

from .._utils.records import Stored
from .._utils.threads import single_threaded_blas
from .._utils.validation import check_choice, check_nonnegative
from ..representation.bias import Bias
from ..representation.conditioning import Conditioning, Constant, Dense, Factored, Iterate, in_cone
from ..representation.exact import Change, Exact
from ..tasks.rows import Array
from .base import DivergenceError, Problem, Solution, StepSizes, TaskBatch
from .objectives import Objective

#: The paper's grid: 14 values, log-spaced over [1e-5, 1e5].
PAPER_STEP_SIZES = tuple(float(step) for step in np.logspace(-5, 5, 14))
#: The default grid of the search, which is coarser because every step is tried with several ratios for H.
STEP_SIZES = tuple(float(step) for step in np.logspace(-4, 4, 9))
#: Multiples of τ that are tried; 1 is first, so that a tie keeps the learned τ.
SCALES = (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0, 32.0)
#: Maximum dimension dk of a dense average of H (2 GB), and number of steps whose changes are added to it together.
LARGEST_DENSE, BLOCK = 16_000, 16


def candidate_steps(
    step_sizes: Iterable[float], step_ratios: Sequence[float], *, conditional: bool
) -> list[StepSizes]:
    """Return steps ``(γ, ratio · γ)`` of C and H; the smallest ratio is first, so a tie selects the simpler model."""
    ratios = sorted(set(map(float, step_ratios))) if conditional else [0.0]
    return [StepSizes(step, ratio * step, step) for ratio in ratios for step in step_sizes]


class RunningMean:
    """The mean of the iterates, stored like ``average``: constant, or factored with its rank limit."""

    def __init__(self, average: Constant | Factored) -> None:
        self.average, self.count = average, 0

    def add(self, iterate: Iterate) -> None:
        """Add an iterate, before its step."""
        self.count += 1
        self.average.accumulate(iterate, 1.0 / self.count)

    def follow(self, iterate: Iterate) -> None:
        """Do nothing after a step, because the next iterate is read in `add`."""

    def conditioning(self, iterate: Iterate) -> Conditioning:
        """Return the mean of all added iterates; ``iterate`` is the result of the last step."""
        return self.average.copy()


class ExactMean:
    """The mean of `Exact` iterates, computed from their changes and stored as a dense (dk, dk) matrix.

    Adding every H_t would dominate the cost of a run.  A step changes H only by ``−γ (I ⊗ φ) G (I ⊗ φᵀ)`` and the part that
    the projection removes: at most d directions, although H itself may have hundreds.  Because of

        1/t Σ_i H_i = H_{t+1} − 1/t Σ_s s · (change of step s) ,

    only the changes are summed.
    """

    def __init__(self, n_features: int, n_side: int) -> None:
        size = n_features * n_side
        self.n_features, self.n_side, self.count = n_features, n_side, 0
        self.total_C = np.zeros((n_features, n_features))
        # Σ_s s · change_s: ``restored`` is the lower triangle for the projections, ``moved`` the sum for the gradients
        self.restored = np.zeros((size, size), order="F")
        self.moved = np.zeros((n_features, n_features, n_side, n_side))
        self.pending: list[tuple[int, Change]] = []

    def add(self, iterate: Iterate) -> None:
        self.count += 1
        self.total_C += iterate.C

    def follow(self, iterate: Iterate) -> None:
        assert isinstance(iterate, Exact)
        if iterate.change is not None:
            self.pending.append((self.count, iterate.change))
        if len(self.pending) == BLOCK:
            self.flush()

    def conditioning(self, iterate: Iterate) -> Dense:
        # Use a copy: the blocks, and hence the rounding, must not depend on when this is called.
        sums = deepcopy(self)
        sums.flush()
        size = self.n_features * self.n_side
        lower = np.tril(sums.restored)
        weighted = lower + np.tril(lower, -1).T
        weighted += sums.moved.transpose(0, 2, 1, 3).reshape(size, size)
        H = iterate.dense_H() - weighted / self.count
        # Rounding errors of large steps that cancel can move the mean out of the cone.
        return Dense(in_cone(0.5 * (H + H.T)), self.total_C / self.count)

    def flush(self) -> None:
        """Add the pending changes to the sums."""
        if not self.pending:
            return
        d, k = self.n_features, self.n_side
        gradients = np.zeros((len(self.pending), d, d))
        directions = []
        for i, (weight, change) in enumerate(self.pending):
            gradients[i][np.ix_(change.used, change.used)] = weight * change.moved
            # Positive values are rounding noise within the tolerance of the projection.
            directions.append(change.removed * np.sqrt(weight * np.maximum(-change.values, 0.0)))
        seen = np.array([change.phi for _, change in self.pending])
        outer = (seen[:, :, None] * seen[:, None, :]).reshape(-1, k * k)
        self.moved += (gradients.reshape(-1, d * d).T @ outer).reshape(d, d, k, k)
        columns = np.asfortranarray(np.hstack(directions))
        if columns.size:
            self.restored = dsyrk(1.0, columns, beta=1.0, c=self.restored, lower=1, overwrite_c=1)
        self.pending = []


@dataclass
class Trajectory:
    """One run of Algorithm 1.  It can be continued, and the result does not depend on how a stream is split."""

    steps: StepSizes
    iterate: Iterate  # (H_t, C_t)
    mean: RunningMean | ExactMean  # mean of (H_1, C_1) .. (H_t, C_t)
    bias: Bias
    bias_mean: Bias
    n_steps: int = 0  # number of tasks used
    failure: str | None = None  # why the run stopped, if its iterates overflowed
    is_candidate: bool = True  # False for an unconditional run that is only compared with the candidates

    @classmethod
    def start(cls, steps: StepSizes, C0: Array, bias: Bias, n_side: int, rank: int | None) -> Trajectory:
        """Start at ``C = C0``, ``H = 0``.  H is learned if its step is not zero and there are features."""
        if n_side and steps.H and rank is None:
            size = len(C0) * n_side
            if size > LARGEST_DENSE:
                raise ValueError(
                    f"rank=None stores a dense ({size}, {size}) matrix H; give a rank, for instance rank=32"
                )
            return cls(steps, Exact(C0, n_side), ExactMean(len(C0), n_side), bias.copy(), bias.copy())
        learned = n_side > 0 and steps.H > 0
        iterate = Factored.zero(C0, n_side, rank) if learned else Constant(C0, n_side)
        return cls(steps, iterate, RunningMean(iterate.copy()), bias.copy(), bias.copy())

    def average(self) -> Conditioning:
        """Return the mean of the iterates as a conditioning function."""
        return self.mean.conditioning(self.iterate)

    def advance(self, batch: TaskBatch, objective: Objective, callback: Callback | None = None) -> Trajectory:
        """Take one projected step per task of ``batch``, in place.  Return self, because a worker process updates a copy."""
        if self.failure is None:
            try:
                with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
                    for t in range(len(batch)):
                        self._advance_one(batch, t, objective, callback)
            except OverflowError as error:
                self.failure = str(error)
        return self

    def _advance_one(self, batch: TaskBatch, t: int, objective: Objective, callback: Callback | None) -> None:
        phi, support = batch.phis[t], batch.support.tasks(t, t + 1)
        query = None if batch.query is None else batch.query.tasks(t, t + 1)
        columns = None if batch.columns is None else batch.columns[t]
        if columns is not None:
            support, query = support.compressed(columns), query and query.compressed(columns)
        self.mean.add(self.iterate)
        self.bias_mean.accumulate(self.bias, 1.0 / (self.n_steps + 1))
        if callback is not None:
            callback(self)
        theta = self.iterate(phi, columns)
        mean = None
        if self.bias.moves:
            mean = self.bias(phi)
            mean = mean[None] if columns is None else mean[None, columns]
        result = objective(support, query, theta[None], mean)
        if not np.isfinite(result.value).all():
            raise OverflowError("the objective is no longer finite")
        squared = batch.squared_scale[t]
        # If squared**2 underflows to zero, skip the step of H.
        step_H = self.steps.H / squared**2 if squared**2 > 0 else 0.0
        self.iterate.step(result.theta(0, support.X), phi, self.steps.C, step_H, columns)
        self.mean.follow(self.iterate)
        step_B = self.steps.bias / squared if squared > 0 else 0.0
        self.bias.step(result.bias[0], phi, self.steps.bias, step_B, columns)
        self.n_steps += 1


#: Called with the run for every task, after the iterate is added to the mean and before the step.
Callback = Callable[[Trajectory], None]


def run(
    trajectories: list[Trajectory],
    batch: TaskBatch,
    objective: Objective,
    *,
    n_jobs: int | None = None,
    tick: Callable[[int], None] | None = None,
    callback: Callback | None = None,
) -> list[Trajectory]:
    """Advance all trajectories through the batch, in place and in parallel.

    With a progress bar the batch is processed in parts, which do not affect the result.
    """

    def advance(some: list[Trajectory], part: TaskBatch) -> None:
        # Advance all runs task by task, because iterates with the same gradients share their steps.
        for t in range(len(part)):
            task = part.slice(t, t + 1)
            for trajectory in some:
                trajectory.advance(task, objective, callback)

    n_parts = max(1, min(len(batch), 50)) if tick is not None else 1
    bounds = np.linspace(0, len(batch), n_parts + 1).astype(int)
    size = -(-len(trajectories) // joblib.effective_n_jobs(n_jobs))
    groups = [trajectories[i : i + size] for i in range(0, len(trajectories), size)]
    # The outer limit applies to all threads; each worker also sets a limit in `Trajectory.advance`.
    with single_threaded_blas(), joblib.Parallel(n_jobs=n_jobs, require="sharedmem") as parallel:
        for start, stop in pairwise(bounds):
            parallel(joblib.delayed(advance)(group, batch.slice(start, stop)) for group in groups)
            if tick is not None:
                tick(stop - start)
    return trajectories


class ProjectedSGD(Stored, BaseEstimator):
    """The paper's Algorithm 1: one projected step per task, and the mean of the iterates.

    Parameters
    ----------
    step : "search", float or pair of floats, default="search"
        A pair is (step of C, step of H).  "search" selects the step on held-out tasks; all candidates share one
        pass.  `tailored.theory.theory_step` computes the step of Thm. bound_estimated_feature.
    step_sizes : sequence of floats, optional
        Candidates of the search for C; by default 9 values from 1e-4 to 1e4 (the paper's 14 values are
        `PAPER_STEP_SIZES`).
    step_ratios : sequence of floats, default=(0, 1, 10)
        Candidates of the search for (step of H) / (step of C).  The ratio 0 keeps H = 0.  If it is a
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
        if isinstance(self.step, str):
            check_choice("step", self.step, ["search"])
        elif np.ndim(self.step) == 0:
            check_nonnegative("step", self.step)
        else:
            if len(self.step) != 2:
                raise ValueError(f"step: a pair is (step of C, step of H), got {self.step!r}")
            for value in self.step:
                check_nonnegative("step", value)
        for name in ("step_sizes", "step_ratios"):
            values = getattr(self, name)
            if values is not None:
                if len(values) == 0:
                    raise ValueError(f"{name}: give at least one value")
                for value in values:
                    check_nonnegative(name, value)

    def solve(self, problem: Problem, state: Any = None) -> Solution:
        """Advance every candidate through the tasks and select one of them; ``state`` of an earlier solution is not modified."""
        if state is None:
            candidates = self._candidates(problem)
            # Unconditional runs are cheap; their errors are reported even if H = 0 is not a candidate.
            constant = [StepSizes(step.C, 0.0, step.bias) for step in candidates if self.needs_held_out]
            steps = list(dict.fromkeys([*candidates, *constant]))
            C0, bias = problem.start.conditioning.C, problem.start.bias
            n_side = problem.start.conditioning.n_side
            runs = [Trajectory.start(step, C0, bias, n_side, problem.rank) for step in steps]
            for each in runs:
                each.is_candidate = each.steps in candidates
        else:
            runs = list(deepcopy(state))
        runs = run(runs, problem.batch, problem.objective, n_jobs=problem.n_jobs, tick=problem.tick)
        if all(run.failure for run in runs if run.is_candidate):
            steps_tried = ", ".join(str(run.steps) for run in runs if run.is_candidate)
            raise DivergenceError(
                f"step: the iterates overflow with step {steps_tried} ({runs[0].failure}); "
                "give a smaller step, or rescale X and y"
            )
        return _select(problem, runs)

    def _candidates(self, problem: Problem) -> list[StepSizes]:
        if self.needs_held_out:
            sizes = STEP_SIZES if self.step_sizes is None else self.step_sizes
            conditional = problem.start.conditioning.n_side > 0
            return candidate_steps(sizes, self.step_ratios, conditional=conditional)
        step_C, step_H = map(float, [self.step] * 2 if np.ndim(self.step) == 0 else self.step)
        return [StepSizes(step_C, step_H, step_C)]


def _select(problem: Problem, runs: list[Trajectory]) -> Solution:
    """Return the candidate and the multiple of τ with the smallest error on the held-out tasks."""
    if problem.held_out_error is None:
        best = runs[0]
        prior = problem.prior(best.average(), best.bias_mean.copy())
        return Solution(prior, best.steps, tuple(runs), [], None, {}, 1.0, max(best.n_steps, 1))
    scales = SCALES if problem.tune_scale else (1.0,)
    table = np.full((len(runs), len(scales)), np.inf)
    averages = {i: run.average() for i, run in enumerate(runs) if not run.failure}
    with single_threaded_blas():
        for i, average in averages.items():
            mean = runs[i].bias_mean
            table[i] = [problem.held_out_error(average.scale(c), mean.copy()) for c in scales]
        errors = {"independent": problem.held_out_error(problem.start.conditioning, problem.start.bias)}
    chosen = [i for i, run in enumerate(runs) if run.is_candidate]
    history = [
        {"step_C": runs[i].steps.C, "step_H": runs[i].steps.H, "scale": scale, "error": float(error)}
        for i in chosen
        for scale, error in zip(scales, table[i], strict=True)
    ]
    # The first minimum among the runs that did not overflow, even if all errors are infinite.
    i = min((i for i in chosen if i in averages), key=lambda i: float(table[i].min()))
    j = int(table[i].argmin())
    best, error = runs[i], float(table[i, j])
    errors["unconditional"] = float(min(table[i].min() for i, run in enumerate(runs) if run.steps.H == 0.0))
    if problem.start.conditioning.n_side:
        errors["conditional"] = error
    prior = problem.prior(averages[i].scale(scales[j]), best.bias_mean.copy())
    return Solution(prior, best.steps, tuple(runs), history, error, errors, scales[j], max(best.n_steps, 1))
