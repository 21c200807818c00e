"""The mean of the iterates of Algorithm 1, at every step, where it is needed and nowhere else.

The test curve needs ``τ̄_t(s)`` at each test task s for every t; the validation tasks need ``τ̄_T`` and the
figures ``H̄_T``, once.  Forming the mean of H and evaluating it would dominate the whole run, and τ is linear
in ``(H, C)``, so two shorter ways are taken:

* a projected step changes H by ``−γ (I ⊗ φ) G (I ⊗ φᵀ)`` and by what the projection takes away, at most d
  directions where H itself has hundreds.  τ at the test tasks follows these changes;
* ``H̄_T = Σ_t (1 − t/T) (change of step t)``, so the changes are collected, with these weights, in one dense
  matrix that is finished once.

`DirectMeans` does the obvious instead: the oracle of the tests, for few features and for limited ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from ...representation.conditioning import Constant, Dense, Factored
from .exact import ExactIterate

Array = NDArray[np.float64]

#: Steps whose removed directions are added to the dense mean in one go.
BLOCK = 16


class Means(Protocol):
    """Algorithm 1's iterate and the means of its iterates; ``step`` moves on by one task."""

    @property
    def iterate(self) -> Callable[[Array], Array]:
        """``τ_t``, as a function of the features of the next task."""

    def mean_test(self) -> Array:
        """``τ̄_t`` at the test tasks after t calls of `step`, plus one: the mean of τ_1 .. τ_{t+1}.

        (n_test, d, d), or (d, d) when it is the same for all of them.
        """

    def step(self, gradient: Array, phi: Array) -> None:
        """One projected step with the gradient in θ of a task with features ``phi``."""

    def finish(self) -> tuple[Array, Array]:
        """``(H̄_T, C̄_T)`` after T - 1 steps: the last task's step leads to an iterate beyond the mean."""


class ConstantMeans:
    """The unconditional learner: only C moves."""

    def __init__(self, C: Array, step_size: float) -> None:
        self.iterate = Constant(C)
        self.step_size = step_size
        self.total = C.copy()
        self.count = 1

    def mean_test(self) -> Array:
        return self.total / self.count

    def step(self, gradient: Array, phi: Array) -> None:
        self.iterate.step(gradient, phi, self.step_size, 0.0)
        self.total += self.iterate.C
        self.count += 1

    def finish(self) -> tuple[Array, Array]:
        return np.zeros((0, 0)), self.total / self.count


class DirectMeans:
    """Sums of ``τ_t(s)`` and of ``H_t``, evaluated anew at every step."""

    def __init__(self, C: Array, step_size: float, phis: Array, rank: int | None) -> None:
        d, k = len(C), phis.shape[1]
        self.iterate = Factored.zero(C, k, rank)
        self.step_size = step_size
        self.phis = phis
        self.total = self.iterate.evaluate(phis)
        self.mean = Dense(np.zeros((d * k, d * k)), C)
        self.count = 1

    def mean_test(self) -> Array:
        return self.total / self.count

    def step(self, gradient: Array, phi: Array) -> None:
        self.iterate.step(gradient, phi, self.step_size, self.step_size)
        self.total += self.iterate.evaluate(self.phis)
        self.count += 1
        self.mean.accumulate(self.iterate, 1.0 / self.count)

    def finish(self) -> tuple[Array, Array]:
        return self.mean.H, self.mean.C


class ChangeMeans:
    """The same means from the changes of H alone, without a rank limit; needs ``T + d < dk``."""

    def __init__(self, C: Array, step_size: float, phis: Array, n_tasks: int) -> None:
        d, k = len(C), phis.shape[1]
        self.iterate = ExactIterate(C, k, n_tasks)
        self.step_size = step_size
        self.phis = phis
        self.n_tasks = n_tasks
        self.change = np.zeros((len(phis), d, d))
        self.total = np.zeros((len(phis), d, d))
        self.total_C = C.copy()
        self.count = 1
        # For H̄, with the weights of their steps: gradients and their φ, and what the projections gave back.
        self.gradients: list[Array] = []
        self.seen: list[Array] = []
        self.restored: list[Array] = []
        self.dense = np.zeros((d * k, d * k), order="F")

    def mean_test(self) -> Array:
        return (self.total + self.total_C) / self.count

    def step(self, gradient: Array, phi: Array) -> None:
        self.iterate.step(gradient, phi, self.step_size)
        values, directions = self.iterate.removed_values, self.iterate.removed
        moved = -self.step_size * gradient
        self.change += np.square(self.phis @ phi)[:, None, None] * moved
        if len(values):
            V = self._slices(directions)
            self.change -= (V * values) @ V.transpose(0, 2, 1)
        self.total += self.change
        self.total_C += self.iterate.C
        weight = (self.n_tasks - self.count) / self.n_tasks
        self.gradients.append(weight * moved)
        self.seen.append(phi)
        # Values above zero are rounding, on the level that the projection itself drops.
        self.restored.append(directions * np.sqrt(weight * np.maximum(-values, 0.0)))
        if self.count % BLOCK == 0:
            self._flush()
        self.count += 1

    def finish(self) -> tuple[Array, Array]:
        if self.count != self.n_tasks:
            raise RuntimeError(
                f"{self.count - 1} steps were taken where the weights expect {self.n_tasks - 1}"
            )
        self._flush()
        d, k = self.iterate.n_features, self.iterate.n_side
        lower = np.tril(self.dense)
        H = lower + np.tril(lower, -1).T
        if self.seen:
            moved, seen = np.array(self.gradients).reshape(-1, d * d), np.array(self.seen)
            outer = (seen[:, :, None] * seen[:, None, :]).reshape(-1, k * k)
            H += (moved.T @ outer).reshape(d, d, k, k).transpose(0, 2, 1, 3).reshape(d * k, d * k)
        return H, self.total_C / self.count

    def _slices(self, directions: Array) -> Array:
        """``(I ⊗ φ_sᵀ) Q`` at every test task, (n_test, d, m)."""
        d, k, m = self.iterate.n_features, self.iterate.n_side, directions.shape[1]
        by_side = directions.reshape(d, k, m).transpose(1, 0, 2).reshape(k, d * m)
        return (self.phis @ by_side).reshape(len(self.phis), d, m)

    def _flush(self) -> None:
        columns = np.asfortranarray(np.hstack(self.restored)) if self.restored else np.zeros((0, 0))
        if columns.size:
            self.dense = dsyrk(1.0, columns, beta=1.0, c=self.dense, lower=1, overwrite_c=1)
        self.restored.clear()


def start_means(
    C: Array, step_size: float, phis: Array, *, conditional: bool, rank: int | None, n_tasks: int
) -> Means:
    """The cheapest of the three that is right for the case."""
    if not conditional:
        return ConstantMeans(C, step_size)
    d, k = len(C), phis.shape[1]
    if rank is not None or n_tasks + d >= d * k:
        return DirectMeans(C, step_size, phis, rank)
    return ChangeMeans(C, step_size, phis, n_tasks)


def evaluate_dense(H: Array, C: Array, phis: Array) -> Array:
    """``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` for all rows of ``phis`` through two large products."""
    d = len(C)
    if not H.size:
        return C
    k = len(H) // d
    by_side = np.ascontiguousarray(H.reshape(d, k, d, k).transpose(1, 0, 2, 3)).reshape(k, d * d * k)
    half = (phis @ by_side).reshape(len(phis), d * d, k)
    tau = (half @ phis[:, :, None]).reshape(len(phis), d, d) + C
    return 0.5 * (tau + tau.transpose(0, 2, 1))
