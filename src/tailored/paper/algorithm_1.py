"""Algorithm 1 of the paper (Alg. meta_alg): projected SGD on the surrogate, one task per step.

Start at ``C_1 = C_0`` and ``H_1 = 0``.  For t = 1 .. T, with the gradient G_t of the surrogate of
task t in θ at ``θ_t = (I ⊗ φ_tᵀ) H_t (I ⊗ φ_t) + C_t`` (Eq. 108),

    H_{t+1} = proj(H_t − γ (I ⊗ φ_t) G_t (I ⊗ φ_tᵀ)) ,    C_{t+1} = proj(C_t − γ G_t) .

Return the means of H_1 .. H_T and of C_1 .. C_T (Eq. 24 and Thm. 5 bound their excess risk).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import joblib
import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpstrf

from .._utils.records import Record
from .._utils.threads import single_threaded_blas
from ..tasks.rows import Rows, dense
from .factored import Change, Factored
from .representation import RANK_TOLERANCE, Array, Conditioning, finite
from .surrogate import Surrogate

#: Maximum dimension dk of a dense average of H (2 GB), and number of steps whose changes are added
#: to it together.
LARGEST_DENSE, BLOCK = 16_000, 16


@dataclass(frozen=True)
class StepSizes(Record):
    """Constant steps for ``C`` and ``H``; the paper has one step γ for both."""

    C: float
    H: float

    def __str__(self) -> str:
        return f"{self.C:g}" if self.C == self.H else f"(C: {self.C:g}, H: {self.H:g})"


@dataclass(frozen=True)
class StreamBatch:
    """The training tasks in the form that solvers use, in stream order.

    ``squared_scale`` is c², the mean of ‖φ‖², or 1 without scaling.  Dividing φ by c is the same as
    multiplying the step of H by c⁻⁴.  `fit` uses one value for all tasks.  A stream uses the running
    mean up to and including each task.
    """

    rows: Rows
    phis: Array  # features φ of the tasks, (T, k)
    squared_scale: Array  # (T,)

    def __len__(self) -> int:
        return len(self.phis)

    def slice(self, start: int, stop: int) -> StreamBatch:
        """Return the tasks from ``start`` to ``stop - 1``."""
        rows = self.rows.tasks(start, stop)
        return StreamBatch(rows, self.phis[start:stop], self.squared_scale[start:stop])


class RunningMean:
    """The mean of the iterates; the mean of H has at most the given rank after every task."""

    def __init__(self, n_features: int, n_side: int, rank: int | None = None) -> None:
        self.rank, self.count = rank, 0
        self.C = np.zeros((n_features, n_features))
        self.root = np.zeros((n_features * n_side, 0))  # A, where A Aᵀ is the mean of H

    def add(self, iterate: Factored) -> None:
        """Add an iterate, before its step."""
        self.count += 1
        share = 1.0 / self.count
        self.C = (1.0 - share) * self.C + share * iterate.C
        self.add_H(iterate, share)

    def add_H(self, iterate: Factored, share: float) -> None:
        """Update the mean of H."""
        parts = np.sqrt(1.0 - share) * self.root, np.sqrt(share) * iterate.root
        root = np.hstack(parts)
        if not root.shape[1]:
            return
        values, vectors = np.linalg.eigh(finite(root.T @ root, "H"))
        noise = RANK_TOLERANCE * values.max(initial=0.0)
        first = int(np.searchsorted(values, noise, side="right"))
        if self.rank is not None:
            first = max(first, len(values) - self.rank)
        self.root = root @ vectors[:, first:]

    def follow(self, iterate: Factored) -> None:
        """Do nothing after a step, because the next iterate is read in `add`."""

    def average(self, iterate: Factored) -> Conditioning:
        """Return the mean of all added iterates; ``iterate`` is only used by `ExactMean`."""
        return Conditioning(self.C, self.root)


class ExactMean(RunningMean):
    """The mean of iterates without a rank limit, computed from their changes in a dense H.

    Adding every H_t would dominate the cost of a run.  A step changes H only by
    ``−γ (I ⊗ φ) G (I ⊗ φᵀ)`` and the part that the projection removes.  Each has at most d
    directions, although H itself may have hundreds.  Because of

        1/t Σ_i H_i = H_{t+1} − 1/t Σ_s s · (change of step s) ,

    only the changes are summed.
    """

    def __init__(self, n_features: int, n_side: int) -> None:
        super().__init__(n_features, n_side)
        size = n_features * n_side
        if size > LARGEST_DENSE:
            raise ValueError(
                f"rank=None would store a dense ({size}, {size}) matrix H; give a rank, for "
                "instance rank=32"
            )
        # Σ_s s · change_s: ``restored`` is the lower triangle for the projections, and ``moved``
        # the sum for the gradients
        self.restored = np.zeros((size, size), order="F")
        self.moved = np.zeros((n_features, n_features, n_side, n_side))
        self.pending: list[tuple[int, Change]] = []

    def add_H(self, iterate: Factored, share: float) -> None:
        """Wait for the change of H in `follow`."""

    def follow(self, iterate: Factored) -> None:
        if iterate.change is not None:
            self.pending.append((self.count, iterate.change))
        if len(self.pending) == BLOCK:
            self.flush()

    def average(self, iterate: Factored) -> Conditioning:
        # Use a copy: the blocks, and hence the rounding, must not depend on when this is called.
        sums = deepcopy(self)
        sums.flush()
        # Of the symmetric matrices, only the lower triangles are computed and read.
        weighted = sums.restored + sums.moved.transpose(0, 2, 1, 3).reshape(sums.restored.shape)
        H = iterate.dense_H() - weighted / self.count
        # What is this small beside the summed steps is rounding errors that their cancellation left.
        noise = 10.0 * RANK_TOLERANCE * np.abs(sums.moved).max() / self.count
        return Conditioning(self.C, pivoted_root(H, noise))

    def flush(self) -> None:
        """Add the pending changes to the sums."""
        if not self.pending:
            return
        d, _, k, _ = self.moved.shape
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


def pivoted_root(H: Array, noise: float) -> Array:
    """Return A (n, r) with ``A Aᵀ = H``, positive semidefinite up to errors of the size ``noise``.

    Only the lower triangle of H (n, n) is read.
    """
    if H.diagonal().max(initial=0.0) <= noise:
        return np.zeros((len(H), 0))
    factor, pivots, rank, _ = dpstrf(np.asfortranarray(H), tol=noise, lower=1, overwrite_a=1)
    root = np.empty((len(H), rank))
    root[pivots - 1] = np.tril(factor[:, :rank])
    return root


@dataclass
class Trajectory:
    """One run of Algorithm 1.  It can be continued; the pieces of a stream do not affect it."""

    steps: StepSizes
    iterate: Factored  # (H_t, C_t)
    mean: RunningMean  # mean of (H_1, C_1) .. (H_t, C_t)
    n_steps: int = 0  # number of tasks used
    failure: str | None = None  # why the run stopped, if its iterates overflowed
    is_candidate: bool = True  # False for an unconditional run that is only compared

    @classmethod
    def start(cls, steps: StepSizes, C0: Array, n_side: int, rank: int | None) -> Trajectory:
        """Start at ``C = C0``, ``H = 0``; H stays zero without a step or without features."""
        exact = rank is None and n_side > 0 and steps.H > 0
        mean = ExactMean(len(C0), n_side) if exact else RunningMean(len(C0), n_side, rank)
        return cls(steps, Factored(C0, n_side, rank), mean)

    def average(self) -> Conditioning:
        """Return the mean of the iterates as a conditioning function."""
        return self.mean.average(self.iterate)

    def advance(
        self, batch: StreamBatch, surrogate: Surrogate, callback: Callback | None = None
    ) -> Trajectory:
        """Take one projected step per task, in place; an overflow stops the run (``failure``)."""
        if self.failure is None:
            try:
                with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
                    for t in range(len(batch)):
                        self._advance_one(batch, t, surrogate, callback)
            except OverflowError as error:
                self.failure = str(error)
        return self

    def _advance_one(
        self, batch: StreamBatch, t: int, surrogate: Surrogate, callback: Callback | None
    ) -> None:
        phi, task = batch.phis[t], batch.rows.tasks(t, t + 1)
        # Sparse rows are made dense: θ is dense, and products with zero columns cost less than a
        # step of C.
        task = task._replace(X=dense(task.X))
        self.mean.add(self.iterate)
        if callback is not None:
            callback(self)
        result = surrogate(task, self.iterate(phi)[None])
        if not np.isfinite(result.value).all():
            raise OverflowError("the surrogate is no longer finite")
        squared = batch.squared_scale[t] ** 2
        # If the squared scale underflows to zero, skip the step of H.
        step_H = self.steps.H / squared if squared > 0 else 0.0
        self.iterate.step(result.theta(0, task.X), phi, self.steps.C, step_H)
        self.mean.follow(self.iterate)
        self.n_steps += 1


#: Called with the run for every task, after the iterate is added to the mean and before the step.
Callback = Callable[[Trajectory], None]


def run(
    trajectories: list[Trajectory],
    batch: StreamBatch,
    surrogate: Surrogate,
    *,
    n_jobs: int | None = None,
    tick: Callable[[int], None] | None = None,
    callback: Callback | None = None,
) -> list[Trajectory]:
    """Advance all trajectories through the batch, in place and in parallel.

    With a progress bar the batch is processed in parts, which do not affect the result.
    """

    def advance(some: list[Trajectory], part: StreamBatch) -> None:
        # Advance all runs task by task, because iterates with the same gradients share their steps.
        for t in range(len(part)):
            task = part.slice(t, t + 1)
            for trajectory in some:
                trajectory.advance(task, surrogate, callback)

    n_parts = max(1, min(len(batch), 50)) if tick is not None else 1
    bounds = np.linspace(0, len(batch), n_parts + 1).astype(int)
    size = -(-len(trajectories) // joblib.effective_n_jobs(n_jobs))
    groups = [trajectories[i : i + size] for i in range(0, len(trajectories), size)]
    # This limit of BLAS threads applies to all workers; each worker also sets it in
    # `Trajectory.advance`.
    with single_threaded_blas(), joblib.Parallel(n_jobs=n_jobs, require="sharedmem") as parallel:
        for start, stop in pairwise(bounds):
            parallel(joblib.delayed(advance)(group, batch.slice(start, stop)) for group in groups)
            if tick is not None:
                tick(stop - start)
    return trajectories
