"""Algorithm 1 of the paper (Alg. meta_alg): projected SGD on the conditioning function, one task per step."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import joblib
import numpy as np
from scipy.linalg.blas import dger, dsyrk

from .._utils.records import Record
from .._utils.threads import single_threaded_blas
from ..representation.conditioning import Bias, Conditioning, Constant, Dense, Iterate, in_cone
from ..representation.factored import Change, Factored, slices
from ..tasks.rows import Array, Rows, dense
from .surrogate import Surrogate

#: Maximum dimension dk of a dense average of H (2 GB), and number of steps whose changes are added to it together.
LARGEST_DENSE, BLOCK = 16_000, 16
#: If all entries of H are below this fraction of the summed steps, they are rounding errors, and H is set to zero.
CANCELLED = 1e-13


@dataclass(frozen=True)
class StepSizes(Record):
    """Constant steps for ``C``, ``H`` and the prior mean ``b``."""

    C: float
    H: float
    bias: float

    def __str__(self) -> str:
        if self.C == self.H == self.bias:
            return f"{self.C:g}"
        return f"(C: {self.C:g}, H: {self.H:g}, bias: {self.bias:g})"


@dataclass(frozen=True)
class StreamBatch:
    """The training tasks in the form that solvers use, in stream order.

    ``squared_scale`` is c², the mean of ‖φ‖², or 1 without scaling.  Dividing φ by c is the same as multiplying the step of
    H by c⁻⁴ and the step of B by c⁻².  `fit` uses one value for all tasks.  A stream uses the running mean up to and
    including each task.
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
    """The mean of the iterates, stored in the form of ``average``: constant, or factored with a limited rank."""

    def __init__(self, average: Iterate) -> None:
        self.average, self.count = average, 0

    def add(self, iterate: Iterate) -> None:
        """Add an iterate, before its step."""
        self.count += 1
        self.average.accumulate(iterate, 1.0 / self.count)

    def follow(self, iterate: Iterate) -> None:
        """Do nothing after a step, because the next iterate is read in `add`."""

    def conditioning(self, iterate: Iterate) -> Conditioning:
        """Return the mean of all added iterates; ``iterate`` is only used by `ExactMean`."""
        return self.average.copy()


class ExactMean:
    """The mean of iterates without a rank limit, computed from their changes and stored as a dense (dk, dk) matrix.

    Adding every H_t would dominate the cost of a run.  A step changes H only by ``−γ (I ⊗ φ) G (I ⊗ φᵀ)`` and the part that
    the projection removes.  Each has at most d directions, although H itself may have hundreds.  Because of

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
        assert isinstance(iterate, Factored)
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
        # If every step is projected to zero, the sums cancel up to rounding errors.
        if (
            np.abs(H).max(initial=0.0)
            <= CANCELLED * np.abs(sums.moved).max(initial=0.0) / self.count
        ):
            H[:] = 0.0
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


class MeanAtTasks:
    """The mean of τ over the first t iterates at a fixed set of tasks, for every t; used for learning curves.

    τ at given tasks is linear in ``(H, C)``, so that it is updated by the changes of each step, as in `ExactMean`.

    Parameters
    ----------
    phis : array (T, k)
        Features of the tasks.
    """

    def __init__(self, phis: Array) -> None:
        self.phis = phis
        self.count = 0
        self.total_C: Array | float = 0.0
        self.total: Array | None = None  # sum of τ − C
        self.current: Array | None = None  # τ − C of the last iterate without a rank limit
        self._product: Array | None = None

    def add(self, iterate: Iterate) -> None:
        """Add the next iterate; every iterate has to be added."""
        self.count += 1
        self.total_C = self.total_C + iterate.C
        if isinstance(iterate, Factored):
            part = (
                self.follow(iterate)
                if iterate.rank is None
                else iterate.evaluate(self.phis) - iterate.C
            )
            self.total = (
                part.copy() if self.total is None else np.add(self.total, part, out=self.total)
            )

    def mean(self) -> Array:
        """Return the means, (T, d, d), or (d, d) if they are the same for all tasks."""
        total = self.total_C if self.total is None else self.total + self.total_C
        return np.asarray(total / self.count)

    def follow(self, iterate: Factored) -> Array:
        """Return τ − C at the tasks (T, d, d), updated by the last change of an iterate without a rank limit."""
        d, T = iterate.n_features, len(self.phis)
        if self.current is None:
            self.current, self._product = np.zeros((T, d, d)), np.empty((T, d, d))
        change = iterate.change
        if change is not None:
            moved = np.zeros((d, d))
            moved[np.ix_(change.used, change.used)] = change.moved
            # Update in place, because allocating arrays of this size takes longer than the products.
            flat = self.current.reshape(T, d * d).T
            flat = dger(
                1.0, moved.ravel(), np.square(self.phis @ change.phi), a=flat, overwrite_a=True
            )
            self.current = flat.T.reshape(T, d, d)
            V = slices(change.removed, self.phis, d)
            self.current -= np.matmul(
                V.transpose(0, 2, 1), change.values[:, None] * V, out=self._product
            )
        return self.current


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
    is_candidate: bool = (
        True  # False for an unconditional run that is only compared with the candidates
    )

    @classmethod
    def start(
        cls, steps: StepSizes, C0: Array, bias: Bias, n_side: int, rank: int | None
    ) -> Trajectory:
        """Start at ``C = C0``, ``H = 0``.  H is learned if its step is not zero and there are features."""
        if not (n_side and steps.H):
            constant = Constant(C0, n_side)
            return cls(steps, constant, RunningMean(constant.copy()), bias.copy(), bias.copy())
        size = len(C0) * n_side
        if rank is None and size > LARGEST_DENSE:
            raise ValueError(
                f"rank=None would store a dense ({size}, {size}) matrix H; give a rank, for instance rank=32"
            )
        iterate = Factored(C0, n_side, rank)
        mean = ExactMean(len(C0), n_side) if rank is None else RunningMean(iterate.copy())
        return cls(steps, iterate, mean, bias.copy(), bias.copy())

    def average(self) -> Conditioning:
        """Return the mean of the iterates as a conditioning function."""
        return self.mean.conditioning(self.iterate)

    def advance(
        self, batch: StreamBatch, surrogate: Surrogate, callback: Callback | None = None
    ) -> Trajectory:
        """Take one projected step per task of ``batch``, in place, and return self; an overflow stops the run (``failure``)."""
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
        # Sparse rows are made dense: θ is dense, and products with zero columns cost less than a step of C.
        task = task._replace(X=dense(task.X))
        self.mean.add(self.iterate)
        self.bias_mean.accumulate(self.bias, 1.0 / (self.n_steps + 1))
        if callback is not None:
            callback(self)
        mean = self.bias(phi)[None] if self.bias.moves else None
        result = surrogate(task, self.iterate(phi)[None], mean)
        if not np.isfinite(result.value).all():
            raise OverflowError("the surrogate is no longer finite")
        squared = batch.squared_scale[t]
        # If squared**2 underflows to zero, skip the step of H.
        step_H = self.steps.H / squared**2 if squared**2 > 0 else 0.0
        self.iterate.step(result.theta(0, task.X), phi, self.steps.C, step_H)
        self.mean.follow(self.iterate)
        step_B = self.steps.bias / squared if squared > 0 else 0.0
        self.bias.step(result.bias[0], phi, self.steps.bias, step_B)
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
    # This limit of BLAS threads applies to all workers; each worker also sets it in `Trajectory.advance`.
    with single_threaded_blas(), joblib.Parallel(n_jobs=n_jobs, require="sharedmem") as parallel:
        for start, stop in pairwise(bounds):
            parallel(joblib.delayed(advance)(group, batch.slice(start, stop)) for group in groups)
            if tick is not None:
                tick(stop - start)
    return trajectories
