"""Conditioning functions τ(s): Eqs. 16 to 18 and Prop. 3 of the paper.

    τ(s) = (I_d ⊗ φᵀ) H (I_d ⊗ φ) + C ,    H ⪰ 0 (dk, dk),  C ⪰ 0 (d, d),  φ = Φ(s) (k,)

A learned function stores ``H = A Aᵀ``, so that ``τ(s) = V Vᵀ + C`` with ``V = (I_d ⊗ φᵀ) A`` (d, r).
The package contains linear algebra only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Eigenvalues below this fraction of the largest one, in absolute value, are rounding noise.
RANK_TOLERANCE = 1e-14


def project_psd(matrix: Array) -> Array:
    """Return the positive semidefinite matrix nearest to the symmetric part, in Frobenius norm."""
    # Entries are halved first, because the sum of two entries near the largest float would overflow.
    matrix = 0.5 * matrix + 0.5 * matrix.T
    try:
        # Most steps of C stay in the cone; a Cholesky factorisation checks this in a tenth of the
        # time of eigh.
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        vectors = vectors[:, values > 0] * np.sqrt(values[values > 0])
        matrix = vectors @ vectors.T
    return matrix


def finite(matrix: Array, name: str) -> Array:
    """Return the matrix, or raise an OverflowError if it is not finite."""
    # The sum is cheaper than a mask: infinities and NaN survive addition.
    if not np.isfinite(matrix.sum()) and not np.isfinite(matrix).all():
        raise OverflowError(f"the iterate {name} is no longer finite")
    return matrix


def slices(directions: Array, phis: Array, n_features: int) -> Array:
    """Return ``Aᵀ (I ⊗ φ_s)`` for A (dk, r) at many feature vectors (T, k): an array (T, r, d)."""
    (T, k), r = phis.shape, directions.shape[1]
    return (phis @ directions.T.reshape(r * n_features, k).T).reshape(T, r, n_features)


@dataclass(frozen=True, eq=False)
class Conditioning(Record):
    """A learned function τ; without directions in A, it is the constant C (unconditional)."""

    C: Array  # (d, d)
    root: Array  # A with H = A Aᵀ, (dk, r)

    @classmethod
    def constant(cls, C: Array, n_side: int = 0) -> Self:
        """Return τ(s) = C, a function of k = ``n_side`` features with H = 0."""
        return cls(C, np.zeros((len(C) * n_side, 0)))

    @property
    def n_features(self) -> int:
        return len(self.C)

    @property
    def n_side(self) -> int:
        return len(self.root) // max(len(self.C), 1)

    @property
    def H(self) -> Array:
        """H as a (dk, dk) matrix (Prop. matricial_rewriting)."""
        return self.root @ self.root.T

    @property
    def depends_on_task(self) -> bool:
        """Whether τ can differ between tasks: H ≠ 0, or τ is given by the user."""
        return bool(self.root.size)

    def __call__(self, phi: Array) -> Array:
        """Return τ at one feature vector ``phi`` (k,): a (d, d) matrix."""
        return np.asarray(self.evaluate(phi[None])[0])

    def evaluate(self, phis: Array) -> Array:
        """Return τ at many feature vectors ``phis`` (T, k): an array (T, d, d)."""
        taus = np.broadcast_to(self.C, (len(phis), *self.C.shape))
        if not self.depends_on_task:
            return taus
        taus = taus.copy()
        for start in range(0, len(phis), 64):  # blocks limit the memory
            block = slice(start, start + 64)
            V = slices(self.root, phis[block], self.n_features)
            taus[block] += V.transpose(0, 2, 1) @ V
        return taus

    def scale(self, factor: float) -> Self:
        """Return the conditioning function ``factor · τ``."""
        return type(self)(factor * self.C, np.sqrt(factor) * self.root)

    def mean(self, moment: Array) -> Array:
        """Return the mean of τ over tasks with mean φφᵀ = ``moment`` (k, k)."""
        values, vectors = np.linalg.eigh(moment)
        # τ − C is a quadratic form in φ, so it is enough to know it at the scaled eigenvectors.
        taus = self.evaluate((vectors * np.sqrt(np.maximum(values, 0.0))).T)
        return np.asarray((taus - self.C).sum(axis=0) + self.C)


class Given(Conditioning):
    """τ(s) given by the user: φ(s) has its entries, row by row (`feature_maps.maps.GivenMap`)."""

    depends_on_task = True

    @property
    def n_side(self) -> int:
        return len(self.C) ** 2

    @property
    def H(self) -> Array:
        raise AttributeError("H_: a given function τ has no H; representation() returns its values")

    def evaluate(self, phis: Array) -> Array:
        return phis.reshape(-1, *self.C.shape)
