"""Projected stochastic gradient descent on the conditioning function (the paper's Alg. meta_alg).

A `Trajectory` is one run of Algorithm 1: its step sizes, its current iterate and the mean of its
iterates.  Several trajectories with different steps share one pass over the tasks, and a trajectory
can be continued: nothing here depends on how the stream was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._threads import single_threaded_blas
from ..objectives import Objective
from ..representation.bias import Bias
from ..representation.conditioning import Conditioning, Constant, Dense, Factored
from ..tasks import Rows

Array = NDArray[np.float64]

#: A dense average of H larger than this is refused with a hint to limit the rank (2 GB).
LARGEST_DENSE = 16_000


class StepSizes(NamedTuple):
    """Constant steps for ``C``, ``H`` and the prior mean ``b``."""

    C: float
    H: float
    bias: float

    def __str__(self) -> str:
        if self.C == self.H == self.bias:
            return f"{self.C:g}"
        return f"(C: {self.C:g}, H: {self.H:g}, bias: {self.bias:g})"


@dataclass(frozen=True)
class TaskBatch:
    """What a pass needs of each task, in stream order.

    ``squared_scale`` holds the running mean of ‖φ‖² up to and including each task.  Dividing φ by its
    root-mean-square norm c is the same as multiplying the step of H by c⁻⁴ and that of B by c⁻² with
    φ left as it is; done that way, a stream needs no second pass to know its scale.  ``columns`` are
    the non-zero columns of sparse tasks.  ``lipschitz`` replaces the objective's constant task by task,
    for losses that have none of their own.
    """

    support: Rows
    query: Rows | None
    phis: Array
    squared_scale: Array
    columns: Sequence[NDArray[np.intp]] | None = None
    lipschitz: Array | None = None

    def __len__(self) -> int:
        return len(self.phis)

    def slice(self, start: int, stop: int) -> TaskBatch:
        return TaskBatch(
            _slice_rows(self.support, start, stop),
            None if self.query is None else _slice_rows(self.query, start, stop),
            self.phis[start:stop],
            self.squared_scale[start:stop],
            None if self.columns is None else self.columns[start:stop],
            None if self.lipschitz is None else self.lipschitz[start:stop],
        )

    def take(self, index: NDArray[np.intp]) -> TaskBatch:
        """The tasks at these positions, in this order."""
        return TaskBatch(
            _take_rows(self.support, index),
            None if self.query is None else _take_rows(self.query, index),
            self.phis[index],
            self.squared_scale[index],
            None if self.columns is None else [self.columns[t] for t in index],
            None if self.lipschitz is None else self.lipschitz[index],
        )


def _slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    offsets = rows.offsets[start : stop + 1]
    span = slice(offsets[0], offsets[-1])
    return Rows(rows.X[span], rows.y[span], offsets - offsets[0])


def concatenated(batches: Sequence[TaskBatch]) -> TaskBatch:
    """The tasks of several batches, one batch after the other."""
    if len(batches) == 1:
        return batches[0]
    queries = [batch.query for batch in batches if batch.query is not None]
    constants = [batch.lipschitz for batch in batches if batch.lipschitz is not None]
    return TaskBatch(
        _join_rows([batch.support for batch in batches]),
        _join_rows(queries) if queries else None,
        np.concatenate([batch.phis for batch in batches]),
        np.concatenate([batch.squared_scale for batch in batches]),
        [own for batch in batches for own in batch.columns or ()] or None,
        np.concatenate(constants) if constants else None,
    )


def _join_rows(parts: Sequence[Rows]) -> Rows:
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    X = [part.X for part in parts]
    stacked = sparse.vstack(X, format="csr") if sparse.issparse(X[0]) else np.concatenate(X)
    return Rows(stacked, np.concatenate([part.y for part in parts]), offsets)


def _take_rows(rows: Rows, index: NDArray[np.intp]) -> Rows:
    sizes = np.diff(rows.offsets)[index]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    # position within the task plus where the task starts
    where = np.arange(offsets[-1]) + np.repeat(rows.offsets[index] - offsets[:-1], sizes)
    return Rows(rows.X[where], rows.y[where], offsets)


@dataclass
class Trajectory:
    """One run of Algorithm 1 that can be continued.

    Attributes
    ----------
    current, average : Conditioning
        The iterate ``(H_t, C_t)`` and the mean of ``(H_1, C_1) .. (H_t, C_t)``.
    n_steps : int
        Number of tasks seen.
    failure : str or None
        Why the run stopped, if its iterates overflowed.
    """

    steps: StepSizes
    current: Conditioning
    average: Conditioning
    bias: Bias
    bias_average: Bias
    n_steps: int = 0
    failure: str | None = None

    @classmethod
    def start(
        cls,
        steps: StepSizes,
        C0: Array,
        n_side: int,
        *,
        rank: int | None,
        bias: str,
        conditional: bool = True,
    ) -> Trajectory:
        """Start at ``C = C0``, ``H = 0``, ``b = 0``."""
        d = len(C0)
        current: Conditioning
        average: Conditioning
        if not conditional or steps.H == 0:
            current, average = Constant(C0, n_side), Constant(C0, n_side)
        else:
            current = Factored.zero(C0, n_side, rank)
            if rank is None:
                if d * n_side > LARGEST_DENSE:
                    raise ValueError(
                        f"rank=None keeps a dense ({d * n_side}, {d * n_side}) matrix H; "
                        "give a rank, for instance rank=32"
                    )
                # The exact average has a rank that grows with the stream: dense is the smaller evil.
                average = Dense(np.zeros((d * n_side, d * n_side)), C0)
            else:
                average = Factored.zero(C0, n_side, rank)
        return cls(steps, current, average, Bias(bias, d, n_side), Bias(bias, d, n_side))

    def advance(self, batch: TaskBatch, objective: Objective) -> Trajectory:
        """Take one projected step per task of ``batch``; returns itself for use across processes."""
        if self.failure is None:
            try:
                with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
                    for t in range(len(batch)):
                        self._advance_one(batch, t, objective)
            except OverflowError as error:
                self.failure = str(error)
        return self

    def _advance_one(self, batch: TaskBatch, t: int, objective: Objective) -> None:
        phi = batch.phis[t]
        support = _slice_rows(batch.support, t, t + 1)
        query = None if batch.query is None else _slice_rows(batch.query, t, t + 1)
        columns = None if batch.columns is None else batch.columns[t]
        if columns is not None:
            support, query = compress(support, columns), query and compress(query, columns)
        weight = 1.0 / (self.n_steps + 1)
        self.average.accumulate(self.current, weight)
        self.bias_average.accumulate(self.bias, weight)
        theta = self.current(phi, columns)
        mean = None
        if self.bias.moves:
            mean = self.bias(phi)
            mean = mean[None] if columns is None else mean[None, columns]
        if batch.lipschitz is not None:
            objective = replace(objective, lipschitz=float(batch.lipschitz[t]))  # type: ignore[type-var]
        result = objective(support, query, theta[None], mean)
        if not np.isfinite(result.value).all():
            raise OverflowError("the objective is no longer finite")
        squared = batch.squared_scale[t]
        step_H = self.steps.H / squared**2 if squared > 0 else 0.0
        self.current.step(result.theta(0, support.X), phi, self.steps.C, step_H, columns)
        step_B = self.steps.bias / squared if squared > 0 else 0.0
        self.bias.step(result.bias[0], phi, self.steps.bias, step_B, columns)
        self.n_steps += 1


def compress(rows: Rows, columns: NDArray[np.intp]) -> Rows:
    """The dense columns of sparse rows; the other columns are zero and need no algebra."""
    X = rows.X[:, columns]
    return Rows(np.ascontiguousarray(X.toarray() if hasattr(X, "toarray") else X), rows.y, rows.offsets)


def run(
    trajectories: list[Trajectory],
    batch: TaskBatch,
    objective: Objective,
    *,
    n_jobs: int | None = None,
    tick: Callable[[int], None] | None = None,
) -> list[Trajectory]:
    """Advance all trajectories through the batch, in parallel, sharing the pass.

    The batch goes in pieces so that progress can be shown; the result does not depend on it.
    """
    pieces = max(1, min(len(batch), 50)) if tick is not None else 1
    bounds = np.linspace(0, len(batch), pieces + 1).astype(int)
    # The outer limit encloses all threads; each worker process sets its own inside `advance`.
    with single_threaded_blas(), joblib.Parallel(n_jobs=n_jobs, prefer="threads") as parallel:
        for start, stop in pairwise(bounds):
            piece = batch.slice(start, stop)
            trajectories = parallel(
                joblib.delayed(Trajectory.advance)(trajectory, piece, objective)
                for trajectory in trajectories
            )
            if tick is not None:
                tick(stop - start)
    return trajectories
