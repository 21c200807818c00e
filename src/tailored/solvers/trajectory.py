"""Projected stochastic gradient descent on the conditioning function (the paper's Alg. meta_alg).

A `Trajectory` is one run of Algorithm 1: its step sizes, its current iterate and the mean of its
iterates.  Several trajectories with different steps share one pass over the tasks, and a trajectory
can be continued: nothing here depends on how the stream was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.threads import single_threaded_blas
from ..objectives import Objective
from ..representation import Bias, Conditioning, Constant, Exact, Factored, Iterate
from .batch import TaskBatch
from .means import ExactMean, Mean, RunningMean
from .steps import StepSizes

Array = NDArray[np.float64]

#: A dense average of H larger than this is refused with a hint to limit the rank (2 GB).
LARGEST_DENSE = 16_000


@dataclass
class Trajectory:
    """One run of Algorithm 1 that can be continued.

    Attributes
    ----------
    iterate, mean : Iterate, Mean
        ``(H_t, C_t)`` and the mean of ``(H_1, C_1) .. (H_t, C_t)``.
    bias, bias_mean : Bias
        The same of b(s).
    n_steps : int
        Number of tasks seen.
    failure : str or None
        Why the run stopped, if its iterates overflowed.
    """

    steps: StepSizes
    iterate: Iterate
    mean: Mean
    bias: Bias
    bias_mean: Bias
    n_steps: int = 0
    failure: str | None = None

    @classmethod
    def start(cls, steps: StepSizes, C0: Array, bias: Bias, n_side: int, rank: int | None) -> Trajectory:
        """Start at ``C = C0``, ``H = 0``; H moves where its step does and there are features."""
        d = len(C0)
        iterate: Iterate
        mean: Mean
        if n_side == 0 or steps.H == 0:
            iterate, mean = Constant(C0, n_side), RunningMean(Constant(C0, n_side))
        elif rank is not None:
            iterate = Factored.zero(C0, n_side, rank)
            mean = RunningMean(Factored.zero(C0, n_side, rank))
        elif d * n_side > LARGEST_DENSE:
            raise ValueError(
                f"rank=None keeps a dense ({d * n_side}, {d * n_side}) matrix H; "
                "give a rank, for instance rank=32"
            )
        else:
            iterate, mean = Exact(C0, n_side), ExactMean(d, n_side)
        return cls(steps, iterate, mean, bias.copy(), bias.copy())

    def copy(self) -> Trajectory:
        """An independent run that stands where this one does."""
        return replace(
            self,
            iterate=self.iterate.copy(),
            mean=self.mean.copy(),
            bias=self.bias.copy(),
            bias_mean=self.bias_mean.copy(),
        )

    def average(self) -> Conditioning:
        """The mean of the iterates as a conditioning function of its own."""
        return self.mean.conditioning(self.iterate)

    def advance(self, batch: TaskBatch, objective: Objective, callback: Callback | None = None) -> Trajectory:
        """Take one projected step per task of ``batch``, in place; returns itself for use across processes."""
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
        if batch.lipschitz is not None:
            objective = objective.with_lipschitz(float(batch.lipschitz[t]))
        result = objective(support, query, theta[None], mean)
        if not np.isfinite(result.value).all():
            raise OverflowError("the objective is no longer finite")
        squared = batch.squared_scale[t]
        # features whose squares no number holds say nothing
        step_H = self.steps.H / squared**2 if squared**2 > 0 else 0.0
        self.iterate.step(result.theta(0, support.X), phi, self.steps.C, step_H, columns)
        self.mean.follow(self.iterate)
        step_B = self.steps.bias / squared if squared > 0 else 0.0
        self.bias.step(result.bias[0], phi, self.steps.bias, step_B, columns)
        self.n_steps += 1


#: Called with the run at every task, when its mean has taken the iterate in and before the step is made.
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
    """Advance all trajectories through the batch, in parallel, sharing the pass.

    The batch goes in pieces so that progress can be shown; the result does not depend on it.
    """
    pieces = max(1, min(len(batch), 50)) if tick is not None else 1
    bounds = np.linspace(0, len(batch), pieces + 1).astype(int)
    # The outer limit encloses all threads; each worker process sets its own inside `advance`.
    with single_threaded_blas(), joblib.Parallel(n_jobs=n_jobs, require="sharedmem") as parallel:
        for start, stop in pairwise(bounds):
            piece = batch.slice(start, stop)
            trajectories = parallel(
                joblib.delayed(Trajectory.advance)(trajectory, piece, objective, callback)
                for trajectory in trajectories
            )
            if tick is not None:
                tick(stop - start)
    return trajectories
