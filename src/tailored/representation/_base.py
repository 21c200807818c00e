"""What all conditioning functions share.

Every class of this package is one way to hold the pair ``(H, C)`` of the paper's Eq. (feature-space-T),

    τ(s) = (I_d ⊗ φᵀ) H (I_d ⊗ φ) + C ,    H ⪰ 0 (dk, dk),  C ⪰ 0 (d, d),

behind one interface.  What is known about H is its class.  Linear algebra only: no tasks, no losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Stored
from .._utils.validation import check_cone

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Eigenvalues below this fraction of the largest one, in size, are rounding noise and are dropped.
RANK_TOLERANCE = 1e-14


def project_psd(matrix: Array) -> Array:
    """Nearest positive semidefinite matrix in Frobenius norm (of the symmetric part)."""
    # halves first: the sum of two entries near the largest float would overflow
    matrix = 0.5 * matrix + 0.5 * matrix.T
    try:
        # Most steps of C stay inside the cone; a Cholesky factorisation proves it for a tenth of an eigh.
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        vectors = vectors[:, values > 0] * np.sqrt(values[values > 0])
        matrix = vectors @ vectors.T
    return matrix


def in_cone(matrix: Array) -> Array:
    """A symmetric matrix as it is, up to rounding of its own size, or projected where that of larger ones took it out."""
    rounding = 1e-8 * np.abs(matrix).max(initial=0.0)
    try:
        np.linalg.cholesky(matrix + max(rounding, np.finfo(float).tiny) * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return project_psd(matrix)
    return matrix


def finite(matrix: Array, name: str) -> Array:
    """The matrix, if all of it is finite."""
    # One sum instead of a mask: infinities and NaN survive addition.
    if not np.isfinite(matrix.sum()) and not np.isfinite(matrix).all():
        raise OverflowError(f"the iterate {name} is no longer finite")
    return matrix


class Conditioning(Stored, ABC):
    """A conditioning function τ with parameters ``(H, C)``.

    Parameters named ``columns`` restrict everything to some of the d inputs: a sparse task only
    ever sees the block of τ(s) that belongs to its non-zero columns.
    """

    C: Array
    n_side: int

    @property
    def n_features(self) -> int:
        return self.C.shape[0]

    @abstractmethod
    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        """τ at one feature vector ``phi`` (k,): a (d, d) matrix, or its block at ``columns``."""

    @abstractmethod
    def evaluate(self, phis: Array) -> Array:
        """τ at many feature vectors ``phis`` (T, k): an array (T, d, d)."""

    @abstractmethod
    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        """``τ(s)[:, columns] @ vector`` without forming τ(s)."""

    @abstractmethod
    def scale(self, factor: float) -> Conditioning:
        """The conditioning function ``factor · τ``."""

    @abstractmethod
    def tensor(self) -> Array:
        """A tensor M (p, d, k) with ``τ(s) = (MΦ)ᵀ MΦ + C`` (paper's Eq. parametrization)."""

    def restore(self) -> None:
        check_cone("C", self.C)

    def copy(self) -> Self:
        """An independent function: a step of one leaves the other as it is."""
        made = copy(self)
        vars(made).update({k: v.copy() for k, v in vars(self).items() if isinstance(v, np.ndarray)})
        return made

    def dense_H(self) -> Array:
        """H as a (dk, dk) matrix (Prop. matricial_rewriting); for tests and small problems."""
        unfolded = self._unfolded()
        return unfolded.T @ unfolded

    def _unfolded(self) -> Array:
        M = self.tensor()
        return M.reshape(len(M), self.n_features * self.n_side)

    def spectrum(self) -> Array:
        """Eigenvalues of H in decreasing order (non-zero ones)."""
        return np.asarray(np.linalg.svd(self._unfolded(), compute_uv=False) ** 2)

    def _C_block(self, columns: Index | None) -> Array:
        return self.C if columns is None else self.C[np.ix_(columns, columns)]


class Iterate(Conditioning):
    """A conditioning function that takes projected gradient steps (paper's Alg. meta_alg), in place."""

    @abstractmethod
    def step(
        self, gradient: Array, phi: Array, step_C: float, step_H: float, columns: Index | None = None
    ) -> None:
        """``C ← proj(C − step_C · G)`` and ``H ← proj(H − step_H · (I ⊗ φ) G (I ⊗ φᵀ))``.

        G is the gradient of the objective in θ, given on ``columns`` when these are.
        """

    def _step_C(self, gradient: Array, step: float, columns: Index | None) -> None:
        if step == 0:
            return
        moved = self.C.copy()
        if columns is None:
            moved -= step * gradient
        else:
            moved[np.ix_(columns, columns)] -= step * gradient
        self.C = finite(project_psd(finite(moved, "C")), "C")
