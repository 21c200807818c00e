"""Interface of the conditioning functions.

Every class of this package stores the pair ``(H, C)`` of the paper's Eq. (feature-space-T),

    τ(s) = (I_d ⊗ φᵀ) H (I_d ⊗ φ) + C ,    H ⪰ 0 (dk, dk),  C ⪰ 0 (d, d),

in its own way: `Constant` has H = 0, `Dense` stores H, `Factored` an eigenbasis of limited rank, `Exact` every
direction of an iterate of Algorithm 1.
`Dense` is the reference for the others.  The package contains linear algebra only: no tasks and no losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Stored
from .._utils.validation import check_cone

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Eigenvalues below this fraction of the largest one, in absolute value, are rounding noise and are dropped.
RANK_TOLERANCE = 1e-14


def project_psd(matrix: Array) -> Array:
    """Return the positive semidefinite matrix nearest to the symmetric part, in Frobenius norm."""
    # halves first: the sum of two entries near the largest float would overflow
    matrix = 0.5 * matrix + 0.5 * matrix.T
    try:
        # Most steps of C stay in the cone; a Cholesky factorisation checks this in a tenth of the time of eigh.
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        vectors = vectors[:, values > 0] * np.sqrt(values[values > 0])
        matrix = vectors @ vectors.T
    return matrix


def in_cone(matrix: Array) -> Array:
    """Return a symmetric matrix unchanged if it is positive semidefinite up to rounding, else its projection."""
    rounding = 1e-8 * np.abs(matrix).max(initial=0.0)
    try:
        np.linalg.cholesky(matrix + max(rounding, np.finfo(float).tiny) * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return project_psd(matrix)
    return matrix


def finite(matrix: Array, name: str) -> Array:
    """Return the matrix, or raise an OverflowError if it is not finite."""
    # The sum is cheaper than a mask: infinities and NaN survive addition.
    if not np.isfinite(matrix.sum()) and not np.isfinite(matrix).all():
        raise OverflowError(f"the iterate {name} is no longer finite")
    return matrix


class Conditioning(Stored, ABC):
    """A conditioning function τ with parameters ``(H, C)``.

    ``columns`` restricts τ(s) to the non-zero columns of a sparse task.
    """

    C: Array
    n_side: int

    @property
    def n_features(self) -> int:
        return self.C.shape[0]

    @abstractmethod
    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        """Return τ at one feature vector ``phi`` (k,): a (d, d) matrix, or its block at ``columns``."""

    def evaluate(self, phis: Array) -> Array:
        """Return τ at many feature vectors ``phis`` (T, k): an array (T, d, d)."""
        return np.array([self(phi) for phi in phis]).reshape(len(phis), self.n_features, self.n_features)

    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        """Return ``τ(s)[:, columns] @ vector``."""
        return np.asarray(self(phi)[:, columns] @ vector)

    @abstractmethod
    def scale(self, factor: float) -> Conditioning:
        """Return the conditioning function ``factor · τ``."""

    @abstractmethod
    def dense_H(self) -> Array:
        """Return H as a (dk, dk) matrix (Prop. matricial_rewriting); for tests and small problems."""

    def restore(self) -> None:
        check_cone("C", self.C)

    def copy(self) -> Self:
        """Return an independent copy."""
        return deepcopy(self)

    def _C_block(self, columns: Index | None) -> Array:
        return self.C if columns is None else self.C[np.ix_(columns, columns)]


class Iterate(Conditioning):
    """A conditioning function that takes projected gradient steps (paper's Alg. meta_alg), in place."""

    @abstractmethod
    def _step_H(self, gradient: Array, phi: Array, step: float, columns: Index | None) -> None:
        """Set ``H ← proj(H − step · (I ⊗ φ) G (I ⊗ φᵀ))``."""

    def step(
        self, gradient: Array, phi: Array, step_C: float, step_H: float, columns: Index | None = None
    ) -> None:
        """Set ``C ← proj(C − step_C · G)`` and ``H ← proj(H − step_H · (I ⊗ φ) G (I ⊗ φᵀ))``.

        G is the gradient of the objective in θ, restricted to ``columns`` if these are given.
        """
        if step_C != 0:
            moved = self.C.copy()
            moved[... if columns is None else np.ix_(columns, columns)] -= step_C * gradient
            self.C = finite(project_psd(finite(moved, "C")), "C")
        self._step_H(gradient, phi, step_H, columns)
