"""τ at the test tasks of an experiment, averaged over the iterates of Algorithm 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger

from tailored.paper.algorithm_1 import Trajectory
from tailored.paper.representation import Conditioning, slices

Array = NDArray[np.float64]


class MeanAtTasks:
    """The mean of τ over the first t iterates at a fixed set of tasks, for every t; used for
    learning curves.

    τ at given tasks is linear in ``(H, C)``, so that it is updated by the changes of each step, as
    in `ExactMean`.

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

    def add(self, run: Trajectory) -> None:
        """Add the next iterate of a run; every iterate has to be added."""
        self.count += 1
        self.total_C = self.total_C + run.C
        if run.n_side:
            part = (
                self.follow(run)
                if run.rank is None
                else Conditioning(np.zeros_like(run.C), run.root).evaluate(self.phis)
            )
            self.total = (
                part.copy() if self.total is None else np.add(self.total, part, out=self.total)
            )

    def mean(self) -> Array:
        """Return the means, (T, d, d), or (d, d) if they are the same for all tasks."""
        total = self.total_C if self.total is None else self.total + self.total_C
        return np.asarray(total / self.count)

    def follow(self, run: Trajectory) -> Array:
        """Return τ − C at the tasks (T, d, d), updated by the last change of H in a run without a
        rank limit.
        """
        d, T = len(run.C), len(self.phis)
        if self.current is None:
            self.current, self._product = np.zeros((T, d, d)), np.empty((T, d, d))
        if run.change is not None:
            phi, moved, restored = run.change
            # Update in place, because allocating arrays of this size takes longer than the
            # products.
            flat = self.current.reshape(T, d * d).T
            gamma, squares = run.steps.H, np.square(self.phis @ phi)
            flat = dger(gamma, moved.ravel(), squares, a=flat, overwrite_a=True)
            self.current = flat.T.reshape(T, d, d)
            V = np.sqrt(gamma) * slices(restored, self.phis, d)
            self.current += np.matmul(V.transpose(0, 2, 1), V, out=self._product)
        return self.current
