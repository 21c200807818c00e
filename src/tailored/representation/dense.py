"""Conditioning functions with H = 0, and with H as a full matrix."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_cone, check_shape
from .base import Array, Conditioning, Index, Iterate, finite, project_psd


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

    def _step_H(self, gradient: Array, phi: Array, step: float, columns: Index | None) -> None:
        """Keep H = 0."""

    def accumulate(self, other: Conditioning, weight: float) -> None:
        """Update a running average, in place."""
        self.C = (1.0 - weight) * self.C + weight * other.C

    def scale(self, factor: float) -> Constant:
        return Constant(factor * self.C, self.n_side)

    def dense_H(self) -> Array:
        return np.zeros((self.n_features * self.n_side, self.n_features * self.n_side))


class Dense(Iterate):
    """H as a full (dk, dk) matrix, as the paper writes it; the reference for `Factored` and `Exact`."""

    def __init__(self, H: Array, C: Array) -> None:
        self.C = np.array(C, dtype=float)
        self.H = np.array(H, dtype=float)
        self.n_side = len(self.H) // max(self.n_features, 1)
        check_shape("C", self.C, len(self.C), len(self.C))
        check_shape("H", self.H, self.n_side * len(self.C), self.n_side * len(self.C))

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        tau = self.evaluate(phi[None])[0]
        return tau if columns is None else tau[np.ix_(columns, columns)]

    def evaluate(self, phis: Array) -> Array:
        d, k = self.n_features, self.n_side
        taus = np.empty((len(phis), d, d))
        for start in range(0, len(phis), 64):  # blocks limit the memory
            block = phis[start : start + 64]
            half = (block @ self.H.reshape(d * k * d, k).T).reshape(len(block), d, k, d)
            taus[start : start + 64] = np.einsum("tihj,th->tij", half, block)
        return taus + self.C

    def _step_H(self, gradient: Array, phi: Array, step: float, columns: Index | None) -> None:
        if step == 0:
            return
        d, k = self.n_features, self.n_side
        rows = np.arange(d) if columns is None else columns
        moved = self.H.copy().reshape(d, k, d, k)
        change = np.einsum("ij,hz->ihjz", gradient, np.outer(phi, phi))
        moved[np.ix_(rows, np.arange(k), rows, np.arange(k))] -= step * change
        self.H = finite(project_psd(finite(moved.reshape(d * k, d * k), "H")), "H")

    def scale(self, factor: float) -> Dense:
        return Dense(factor * self.H, factor * self.C)

    def restore(self) -> None:
        super().restore()
        # If H is zero, its rounding errors are relative to the size of C.
        check_cone("H", self.H, 1e-8 * float(np.abs(self.C).max(initial=0.0)))

    def dense_H(self) -> Array:
        return self.H
