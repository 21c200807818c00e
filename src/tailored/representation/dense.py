"""H as a full matrix."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_cone, check_shape
from ._base import RANK_TOLERANCE, Array, Conditioning, Index, Iterate, finite, project_psd


class Dense(Iterate):
    """H as a full (dk, dk) matrix: the plain reading of the paper and the oracle of `Factored`."""

    def __init__(self, H: Array, C: Array) -> None:
        self.C = np.array(C, dtype=float)
        self.H = np.array(H, dtype=float)
        self.n_side = len(self.H) // max(self.n_features, 1)
        check_shape("C", self.C, len(self.C), len(self.C))
        check_shape("H", self.H, self.n_side * len(self.C), self.n_side * len(self.C))

    @classmethod
    def from_tensor(cls, M: Array, C: Array) -> Dense:
        """``H_M`` of Prop. matricial_rewriting: H[(i,h), (j,z)] = <M[:, i, h], M[:, j, z]>."""
        unfolded = M.reshape(M.shape[0], -1)
        return cls(unfolded.T @ unfolded, C)

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        d, k = self.n_features, self.n_side
        half = self.H.reshape(d * k * d, k) @ phi
        tau = np.einsum("ihj,h->ij", half.reshape(d, k, d), phi) + self.C
        return tau if columns is None else tau[np.ix_(columns, columns)]

    def evaluate(self, phis: Array) -> Array:
        out = np.empty((len(phis), self.n_features, self.n_features))
        for t, phi in enumerate(phis):
            out[t] = self(phi)
        return out

    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        return self(phi)[:, columns] @ vector

    def step(
        self, gradient: Array, phi: Array, step_C: float, step_H: float, columns: Index | None = None
    ) -> None:
        self._step_C(gradient, step_C, columns)
        if step_H == 0:
            return
        d, k = self.n_features, self.n_side
        rows = np.arange(d) if columns is None else columns
        moved = self.H.copy().reshape(d, k, d, k)
        outer = np.outer(phi, phi)
        moved[np.ix_(rows, np.arange(k), rows, np.arange(k))] -= step_H * np.einsum(
            "ij,hz->ihjz", gradient, outer
        )
        self.H = finite(project_psd(finite(moved.reshape(d * k, d * k), "H")), "H")

    def accumulate(self, other: Conditioning, weight: float) -> None:
        self.C = (1.0 - weight) * self.C + weight * other.C
        self.H *= 1.0 - weight
        self.H += weight * other.dense_H()

    def scale(self, factor: float) -> Dense:
        return Dense(factor * self.H, factor * self.C)

    def restore(self) -> None:
        super().restore()
        # An H that stayed at zero has rounding errors of steps as large as C.
        check_cone("H", self.H, 1e-8 * float(np.abs(self.C).max(initial=0.0)))

    def dense_H(self) -> Array:
        return self.H

    def tensor(self) -> Array:
        values, vectors = np.linalg.eigh(self.H)
        keep = values > RANK_TOLERANCE * max(values[-1], 0.0)
        unfolded = (vectors[:, keep] * np.sqrt(values[keep])).T
        return unfolded.reshape(-1, self.n_features, self.n_side)
