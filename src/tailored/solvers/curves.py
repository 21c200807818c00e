"""Means of the iterates of Algorithm 1 at given tasks, for learning curves.

τ at given tasks is linear in ``(H, C)``, so that it is updated by the changes of each step, as in `projected.ExactMean`.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dger

from ..representation.conditioning import Array, Constant, Iterate
from ..representation.exact import Exact


class MeanAtTasks:
    """``τ̄_t`` at given tasks for every t, as a learning curve needs it.

    Parameters
    ----------
    phis : array (T, k)
        Features of the tasks.
    """

    def __init__(self, phis: Array) -> None:
        self.phis = phis
        self.count = 0
        self.total: Array | None = None
        self.total_C: Array | float = 0.0
        self.current: Array | None = None  # τ without C, for `Exact` iterates
        self._product: Array | None = None

    def add(self, iterate: Iterate) -> None:
        """Add the next iterate; every iterate has to be added."""
        self.count += 1
        if isinstance(iterate, Constant | Exact):
            self.total_C = self.total_C + iterate.C
        if isinstance(iterate, Constant):
            return
        part = self.follow(iterate) if isinstance(iterate, Exact) else iterate.evaluate(self.phis)
        if self.total is None:
            self.total = np.zeros_like(part)
        self.total += part

    def mean(self) -> Array:
        """Return the means, (T, d, d), or (d, d) if they are the same for all tasks."""
        total = self.total_C if self.total is None else self.total + self.total_C
        return np.asarray(total / self.count)

    def follow(self, iterate: Exact) -> Array:
        """Return τ without C at the tasks (T, d, d), updated by the last change of the iterate."""
        d, T = iterate.n_features, len(self.phis)
        if self.current is None:
            self.current = np.zeros((T, d, d))
        change = iterate.change
        if change is not None:
            moved = np.zeros((d, d))
            moved[np.ix_(change.used, change.used)] = change.moved
            # In place, because new arrays of this size take longer than the products.
            flat = self.current.reshape(T, d * d).T
            flat = dger(1.0, moved.ravel(), np.square(self.phis @ change.phi), a=flat, overwrite_a=True)
            self.current = flat.T.reshape(T, d, d)
            if self._product is None:
                self._product = np.empty((T, d, d))
            V = slices(change.removed, self.phis, d)
            self.current -= np.matmul(V.transpose(0, 2, 1), change.values[:, None] * V, out=self._product)
        return self.current


def slices(directions: Array, phis: Array, n_features: int) -> Array:
    """Return ``Qᵀ (I ⊗ φ_s)`` for directions Q (dk, m) at many feature vectors (T, k): an array (T, m, d)."""
    T, k = phis.shape
    m = directions.shape[1]
    return (phis @ directions.T.reshape(m * n_features, k).T).reshape(T, m, n_features)
