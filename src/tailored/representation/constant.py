"""The unconditional case: one representation for all tasks."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_shape
from ._base import Array, Conditioning, Index, Iterate


class Constant(Iterate):
    """τ(s) = C for every task: the unconditional case."""

    def __init__(self, C: Array, n_side: int = 0) -> None:
        self.C = np.array(C, dtype=float)
        self.n_side = n_side
        check_shape("C", self.C, len(self.C), len(self.C))

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        return self._C_block(columns)

    def evaluate(self, phis: Array) -> Array:
        return np.broadcast_to(self.C, (len(phis), *self.C.shape))

    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        return self.C[:, columns] @ vector

    def step(
        self, gradient: Array, phi: Array, step_C: float, step_H: float, columns: Index | None = None
    ) -> None:
        self._step_C(gradient, step_C, columns)

    def accumulate(self, other: Conditioning, weight: float) -> None:
        self.C = (1.0 - weight) * self.C + weight * other.C

    def scale(self, factor: float) -> Constant:
        return Constant(factor * self.C, self.n_side)

    def tensor(self) -> Array:
        return np.zeros((0, self.n_features, self.n_side))
