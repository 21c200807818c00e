"""Algorithm 1 of the paper: projected SGD on its convex surrogate, one task per step (Eqs. 19 to
24).

The risk of a task is at most the expectation of the regularised empirical risk at its minimiser
plus a trace (Eqs. 19 to 21), so Algorithm 1 minimises the expectation over tasks of

    L(θ) = min_w 1/n Σ ℓ(<x_i, w>, y_i) + ½ wᵀθ†w  +  2L²/n Tr(θ XᵀX/n) ,   θ = τ_{H,C}(s) ,

Eq. 22.  It is convex in (H, C) (Prop. 4), and its gradients are G in C and ``(I ⊗ φ) G (I ⊗ φᵀ)``
in H (Eq. 23).  With ``u = Xᵀα / n`` for the dual solution α, ``G = −½ u uᵀ + (2L²/n²) XᵀX`` (Eq.
108).  The display after Eq. 23 also writes u as −θ†w, which is zero outside Ran(θ); with it, θ = 0
would never change.

Start at ``H_1 = H_0 = 0`` and ``C_1 = C_0``.  For t = 1 .. T, with the gradient G_t of task t at
``θ_t = (I ⊗ φ_tᵀ) H_t (I ⊗ φ_t) + C_t``,

    H_{t+1} = proj(H_t − γ (I ⊗ φ_t) G_t (I ⊗ φ_tᵀ)) ,    C_{t+1} = proj(C_t − γ G_t) .

Return the means of H_1 .. H_T and of C_1 .. C_T.  Thm. 5 bounds their excess risk for

    γ = ‖(H − H_0, C − C_0)‖_F / ((1 + K²)(LR)² (½ + 2/n) √T)                        (Eq. 24)
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import joblib
import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpstrf

from .._utils.records import Record
from .._utils.threads import single_threaded_blas
from ..tasks.rows import Array, Rows, dense, segment_sums
from .representation import RANK_TOLERANCE, Change, Conditioning, Factored, finite
from .within_task import WithinTask

#: Maximum dimension dk of a dense average of H (2 GB), and number of steps whose changes are added
#: to it together.
LARGEST_DENSE, BLOCK = 16_000, 16


class SurrogateGradient(NamedTuple):
    """Values (T,), vectors u (T, d), and factors 2L²/n² (T,) of XᵀX in the gradients of T tasks."""

    value: Array
    u: Array
    gram: Array

    def theta(self, t: int, X: Array) -> Array:
        """Return the gradient in θ of task ``t`` with rows ``X``, a (d, d) matrix."""
        u = self.u[t]
        return np.asarray(np.outer(-0.5 * u, u) + self.gram[t] * (X.T @ X))


@dataclass(frozen=True)
class Surrogate:
    """The surrogate of a within-task algorithm, with L."""

    algorithm: WithinTask
    lipschitz: float

    def __call__(self, rows: Rows, thetas: Array) -> SurrogateGradient:
        """Return values and gradients at representations ``thetas`` (T, d, d)."""
        solution, sizes = self.algorithm.solve(rows, thetas), rows.sizes
        n = np.maximum(sizes, 1)
        u = segment_sums(rows.X * solution.alpha[:, None], rows.offsets) / n[:, None]
        gram = np.where(sizes > 0, 2.0 * self.lipschitz**2 / n**2, 0.0)
        energy = np.empty(len(n))
        for t, theta in enumerate(thetas):
            X = rows.X[rows.offsets[t] : rows.offsets[t + 1]]
            energy[t] = np.einsum("ij,ij->", X @ theta, X)
        return SurrogateGradient(solution.value + gram * energy, u, gram)


@dataclass(frozen=True)
class StepSizes(Record):
    """Constant steps for ``C`` and ``H``; the paper has one step γ for both."""

    C: float
    H: float

    def __str__(self) -> str:
        return f"{self.C:g}" if self.C == self.H else f"(C: {self.C:g}, H: {self.H:g})"


class StreamBatch(NamedTuple):
    """Training tasks in stream order.

    ``squared_scale`` is c², the mean of ‖φ‖², or 1 without scaling.  Dividing φ by c is the same as
    multiplying the step of H by c⁻⁴.  `fit` uses one value for all tasks.  A stream uses the
    running mean up to and including each task.
    """

    rows: Rows
    phis: Array  # features φ of the tasks, (T, k)
    squared_scale: Array  # (T,)


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
        self._add_H(iterate, share)

    def _add_H(self, iterate: Factored, share: float) -> None:
        root = np.hstack([np.sqrt(1.0 - share) * self.root, np.sqrt(share) * iterate.root])
        if not root.shape[1]:
            return
        values, vectors = np.linalg.eigh(finite(root.T @ root, "H"))
        first = int(np.searchsorted(values, RANK_TOLERANCE * max(values[-1], 0.0), side="right"))
        if self.rank is not None:
            first = max(first, len(values) - self.rank)
        self.root = root @ vectors[:, first:]

    def follow(self, change: Change) -> None:
        """Use the change of H in the step; only `ExactMean` needs it."""

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

    def _add_H(self, iterate: Factored, share: float) -> None:
        """Wait for the change of H in `follow`."""

    def follow(self, change: Change) -> None:
        self.pending.append((self.count, change))
        if len(self.pending) == BLOCK:
            self.flush()

    def average(self, iterate: Factored) -> Conditioning:
        # Use a copy: the blocks, and hence the rounding, must not depend on when this is called.
        sums = deepcopy(self)
        sums.flush()
        # Of the symmetric matrices, only the lower triangles are computed and read.
        weighted = sums.restored + sums.moved.transpose(0, 2, 1, 3).reshape(sums.restored.shape)
        H = iterate.dense_H() - weighted / self.count
        # What is this small beside the summed steps is rounding errors that their cancellation
        # left.
        noise = 10.0 * RANK_TOLERANCE * np.abs(sums.moved).max() / self.count
        return Conditioning(self.C, pivoted_root(H, noise))

    def flush(self) -> None:
        """Add the pending changes to the sums."""
        if not self.pending:
            return
        d, _, k, _ = self.moved.shape
        moved = np.array([weight * change.moved.ravel() for weight, change in self.pending])
        phis = np.array([change.phi for _, change in self.pending])
        outer = (phis[:, :, None] * phis[:, None, :]).reshape(-1, k * k)
        self.moved += (moved.T @ outer).reshape(d, d, k, k)
        # Positive values are rounding noise within the tolerance of the projection.
        removed = np.hstack(
            [each.removed * np.sqrt(w * np.maximum(-each.values, 0.0)) for w, each in self.pending]
        )
        if removed.size:
            columns = np.asfortranarray(removed)
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

    @classmethod
    def start(cls, steps: StepSizes, C0: Array, n_side: int, rank: int | None) -> Trajectory:
        """Start at ``C = C0``, ``H = 0``; H stays zero without a step or without features."""
        exact = rank is None and n_side > 0 and steps.H > 0
        mean = ExactMean(len(C0), n_side) if exact else RunningMean(len(C0), n_side, rank)
        return cls(steps, Factored(C0, n_side, rank, steps.H or 1.0), mean)

    def average(self) -> Conditioning:
        """Return the mean of the iterates as a conditioning function."""
        return self.mean.average(self.iterate)

    def advance(
        self,
        task: Rows,
        phi: Array,
        squared_scale: float,
        surrogate: Surrogate,
        shared: dict[Any, Any],
    ) -> None:
        """Take one projected step, in place; an overflow stops the run (``failure``)."""
        if self.failure is not None:
            return
        self.mean.add(self.iterate)
        result = surrogate(task, self.iterate(phi)[None])
        if not np.isfinite(result.value).all():
            raise OverflowError("the surrogate is no longer finite")
        # In units of the step of H.  If the square underflows to zero, skip the step.
        squared = squared_scale**2
        step_H = 1.0 / squared if squared > 0.0 and self.steps.H > 0.0 else 0.0
        self.iterate.step(result.theta(0, task.X), phi, self.steps.C, step_H, shared)
        if self.iterate.change is not None:
            self.mean.follow(self.iterate.change)
        self.n_steps += 1


def run(
    trajectories: list[Trajectory],
    batch: StreamBatch,
    surrogate: Surrogate,
    *,
    n_jobs: int | None = None,
    tick: Callable[[int], None] | None = None,
) -> list[Trajectory]:
    """Advance all trajectories through the batch, in place and in parallel; ``tick`` advances a
    progress bar.
    """
    size = -(-len(trajectories) // joblib.effective_n_jobs(n_jobs))
    groups = [trajectories[i : i + size] for i in range(0, len(trajectories), size)]

    def advance(group: list[Trajectory]) -> None:
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            for t, (phi, squared_scale) in enumerate(zip(*batch[1:], strict=True)):
                task = batch.rows.tasks(t, t + 1)
                # Sparse rows are made dense: θ is dense, and products with zero columns cost less
                # than a step of C.
                task, shared = task._replace(X=dense(task.X)), dict[Any, Any]()
                for each in group:
                    try:
                        each.advance(task, phi, squared_scale, surrogate, shared)
                    except OverflowError as error:
                        each.failure = str(error)
                if tick is not None and group is groups[0]:
                    tick(1)

    # This limit of BLAS threads applies to all workers; each worker also sets it.
    with single_threaded_blas():
        parallel = joblib.Parallel(n_jobs=n_jobs, require="sharedmem")
        parallel(joblib.delayed(advance)(group) for group in groups)
    return trajectories
