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
from typing import Any

import joblib
import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpstrf

from .._utils.records import Record
from .._utils.threads import single_threaded_blas
from ..tasks.rows import Array, Rows, dense
from .projection import FactoredH, finite, project_psd
from .representation import RANK_TOLERANCE, Conditioning
from .within_task import WithinTask

#: Maximum dimension dk of a dense average of H (2 GB), and number of steps whose changes are added
#: to it together.
LARGEST_DENSE, BLOCK = 16_000, 16

#: φ, ``moved`` (d, d) and R (dk, p) of a step that changed E P Eᵀ by ``(I ⊗ φ) moved (I ⊗ φᵀ) +
#: R Rᵀ``, where R Rᵀ is the change by the projection.
Change = tuple[Array, Array, Array]
#: Results of `FactoredH.step` for one task.
Shared = dict[Any, tuple[FactoredH, Array]]


@dataclass(frozen=True)
class Surrogate:
    """The surrogate of a within-task algorithm, with the Lipschitz constant L."""

    algorithm: WithinTask
    lipschitz: float

    def __call__(self, task: Rows, theta: Array) -> tuple[float, Array]:
        """Return the value L(θ) for one task (Eq. 22) and its gradient G (d, d) (Eq. 108)."""
        X, n = task.X, max(len(task.y), 1)
        solution = self.algorithm.solve(task, theta[None])
        u = (X * solution.alpha[:, None]).sum(axis=0) / n
        trace_gradient = (2.0 * self.lipschitz**2 / n**2) * (X.T @ X)
        value = float(solution.value[0] + np.sum(theta * trace_gradient))
        return value, np.outer(-0.5 * u, u) + trace_gradient


@dataclass(frozen=True)
class StepSizes(Record):
    """Constant steps for ``C`` and ``H``; the paper has one step γ for both."""

    C: float
    H: float

    def __str__(self) -> str:
        return f"{self.C:g}" if self.C == self.H else f"(C: {self.C:g}, H: {self.H:g})"


class Trajectory:
    """A run of Algorithm 1: the iterate (H_t, C_t), and the mean of those before it.

    H is stored as ``γ · E P Eᵀ`` with its step size γ, so the steps of ``E P Eᵀ`` do not depend on
    γ as long as the gradients do not.  With a ``rank``, H keeps its leading directions after every
    step, at most this many.
    """

    def __init__(self, steps: StepSizes, C0: Array, n_side: int, rank: int | None = None) -> None:
        """Start at ``C = C0``, ``H = 0``; H stays zero without a step or without features."""
        self.steps, self.n_side, self.rank = steps, n_side, rank
        E, P = np.zeros((len(C0) * n_side, 0), order="F"), np.zeros((0, 0), order="F")
        self.C, self.H = C0, FactoredH(E, P)
        self.change: Change | None = None  # of H in the last step; None if there is a rank
        self.mean = RunningMean(len(C0), n_side, rank)
        if rank is None and n_side > 0 and steps.H > 0:
            self.mean = ExactMean(len(C0), n_side)
        self.failure: str | None = None  # why the run stopped, if its iterates overflowed

    def theta(self, phi: Array) -> Array:
        """Return θ_t, the value of τ at the features ``phi`` (k,)."""
        if not len(self.H.P):
            return self.C
        return np.asarray(self.steps.H * self.H.at(phi) + self.C)

    @property
    def root(self) -> Array:
        """A with ``H = A Aᵀ``, for an iterate with a limited rank, whose P is diagonal."""
        return self.H.E * np.sqrt(self.steps.H * self.H.P.diagonal())

    def average(self) -> Conditioning:
        """Return the mean of the iterates as a conditioning function."""
        return self.mean.average(self)

    def advance(
        self,
        task: Rows,
        phi: Array,
        factor: float,
        surrogate: Surrogate,
        shared: Shared,
    ) -> None:
        """Add the iterate to the mean and take a step; an overflow stops the run (``failure``)."""
        if self.failure is not None:
            return
        try:
            self.mean.add(self)
            value, gradient = surrogate(task, self.theta(phi))
            if not np.isfinite(value):
                raise OverflowError("the surrogate is no longer finite")
            self.step(gradient, phi, factor, shared)
        except OverflowError as error:
            self.failure = str(error)

    def step(
        self, gradient: Array, phi: Array, factor: float = 1.0, shared: Shared | None = None
    ) -> None:
        """Take the projected step for the gradient G (d, d); ``factor`` multiplies the step of H.

        Runs that take steps at the same φ can have a dictionary ``shared``, so that equal steps of
        H are computed once. The signs of the residuals, and hence the gradients of piecewise-linear
        losses, are often equal for different small step sizes.
        """
        gamma_C, gamma_H = self.steps.C, self.steps.H
        if gamma_C != 0.0:
            self.C = finite(project_psd(finite(self.C - gamma_C * gradient, "C")), "C")
        self.change = None
        moved = -factor * gradient
        if gamma_H == 0.0 or phi @ phi == 0.0 or not moved.any():
            return
        finite(gamma_H * moved, "H")
        shared = {} if shared is None else shared
        key = self.H if len(self.H.P) else None, moved.tobytes(), self.rank
        if key not in shared:
            shared[key] = self.H.step(moved, phi, self.rank)
        H, restored = shared[key]
        finite(gamma_H * H.P.diagonal(), "H")
        self.H = H
        if self.rank is None:
            self.change = phi, moved, restored


class RunningMean:
    """The mean of the iterates; the mean of H has at most the given rank after every task."""

    def __init__(self, n_features: int, n_side: int, rank: int | None = None) -> None:
        self.rank, self.count = rank, 0
        self.C = np.zeros((n_features, n_features))
        self.root = np.zeros((n_features * n_side, 0))  # A, where A Aᵀ is the mean of H

    def add(self, run: Trajectory) -> None:
        """Add the iterate of a run, before its step."""
        self.count += 1
        share = 1.0 / self.count
        self.C = (1.0 - share) * self.C + share * run.C
        self._add_H(run, share)

    def _add_H(self, run: Trajectory, share: float) -> None:
        root = np.hstack([np.sqrt(1.0 - share) * self.root, np.sqrt(share) * run.root])
        if not root.shape[1]:
            return
        values, vectors = np.linalg.eigh(finite(root.T @ root, "H"))
        first = int(np.searchsorted(values, RANK_TOLERANCE * max(values[-1], 0.0), side="right"))
        if self.rank is not None:
            first = max(first, len(values) - self.rank)
        self.root = root @ vectors[:, first:]

    def average(self, run: Trajectory) -> Conditioning:
        """Return the mean of all added iterates of the run."""
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
        # Σ_s s · change_s, without the factor γ of H: ``restored`` is the lower triangle for the
        # projections, and ``moved`` the sum for the gradients
        self.restored = np.zeros((size, size), order="F")
        self.moved = np.zeros((n_features, n_features, n_side, n_side))
        self.pending: list[tuple[int, Change]] = []

    def _add_H(self, run: Trajectory, share: float) -> None:
        self.follow(run.change, self.count - 1)

    def average(self, run: Trajectory) -> Conditioning:
        # Use a copy: the blocks, and hence the rounding, must not depend on when this is called.
        sums = deepcopy(self)
        sums.follow(run.change, self.count)
        sums.flush()
        # Of the symmetric matrices, only the lower triangles are computed and read.
        weighted = sums.restored + sums.moved.transpose(0, 2, 1, 3).reshape(sums.restored.shape)
        H = run.H.dense() - weighted / self.count
        # What is this small beside the summed steps is rounding errors that their cancellation
        # left.
        noise = 10.0 * RANK_TOLERANCE * np.abs(sums.moved).max() / self.count
        return Conditioning(self.C, np.sqrt(run.steps.H) * pivoted_root(H, noise))

    def follow(self, change: Change | None, step: int) -> None:
        """Add the change of H in a step to the sums, in blocks."""
        if change is not None:
            self.pending.append((step, change))
        if len(self.pending) == BLOCK:
            self.flush()

    def flush(self) -> None:
        """Add the pending changes to the sums."""
        if not self.pending:
            return
        d, _, k, _ = self.moved.shape
        moved = np.array([step * moved.ravel() for step, (_, moved, _) in self.pending])
        phis = np.array([phi for _, (phi, _, _) in self.pending])
        outer = (phis[:, :, None] * phis[:, None, :]).reshape(-1, k * k)
        self.moved += (moved.T @ outer).reshape(d, d, k, k)
        restored = np.hstack([np.sqrt(step) * R for step, (_, _, R) in self.pending])
        if restored.size:
            columns = np.asfortranarray(restored)
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


def run(
    trajectories: list[Trajectory],
    rows: Rows,
    phis: Array,
    factors: Array,
    surrogate: Surrogate,
    *,
    n_jobs: int | None = None,
    tick: Callable[[int], None] | None = None,
) -> None:
    """Advance all trajectories through tasks in their order, in place and in parallel.

    The tasks have the features ``phis`` (T, k), and ``factors`` (T,) multiply their steps of H.
    ``tick`` advances a progress bar.
    """
    size = -(-len(trajectories) // joblib.effective_n_jobs(n_jobs))
    groups = [trajectories[i : i + size] for i in range(0, len(trajectories), size)]

    def advance(group: list[Trajectory]) -> None:
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            for t, (phi, factor) in enumerate(zip(phis, factors, strict=True)):
                task = rows.tasks(t, t + 1)
                # Sparse rows are made dense: θ is dense, and products with zero columns cost less
                # than a step of C.
                task = task._replace(X=dense(task.X))
                shared: Shared = {}
                for each in group:
                    each.advance(task, phi, factor, surrogate, shared)
                if tick is not None and group is groups[0]:
                    tick(1)

    # This limit of BLAS threads applies to all workers; each worker also sets it.
    with single_threaded_blas():
        parallel = joblib.Parallel(n_jobs=n_jobs, require="sharedmem")
        parallel(joblib.delayed(advance)(group) for group in groups)
