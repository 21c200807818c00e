"""Conditioning functions τ(s), and the projected steps of Algorithm 1 on them.

Every class stores the pair ``(H, C)`` of the paper's Eq. (feature-space-T),

    τ(s) = (I_d ⊗ φᵀ) H (I_d ⊗ φ) + C ,    H ⪰ 0 (dk, dk),  C ⪰ 0 (d, d),

in its own way: `Constant` has H = 0, `Dense` stores H, `Factored` an eigenbasis of limited rank, `Exact` every direction of
an iterate of Algorithm 1.  `Dense` is the reference for the others.  The package contains linear algebra only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Stored
from .._utils.validation import check_cone, check_shape

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

    def __init__(self, C: Array, n_side: int = 0) -> None:
        self.C = np.array(C, dtype=float)
        self.n_side = n_side
        check_shape("C", self.C, len(self.C), len(self.C))

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

    @property
    def depends_on_task(self) -> bool:
        """Whether τ differs between tasks, i.e. H ≠ 0."""
        return True

    def mean(self, moment: Array) -> Array:
        """Return the mean of τ over tasks with mean φφᵀ = ``moment`` (k, k)."""
        values, vectors = np.linalg.eigh(moment)
        # τ − C is a quadratic form in φ, so it is enough to know it at the scaled eigenvectors.
        taus = self.evaluate((vectors * np.sqrt(np.maximum(values, 0.0))).T)
        return np.asarray((taus - self.C).sum(axis=0) + self.C)

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
        self._step_C(gradient, step_C, columns)
        self._step_H(gradient, phi, step_H, columns)

    def _step_C(self, gradient: Array, step: float, columns: Index | None) -> None:
        if step != 0:
            moved = self.C.copy()
            moved[... if columns is None else np.ix_(columns, columns)] -= step * gradient
            self.C = finite(project_psd(finite(moved, "C")), "C")


class Constant(Iterate):
    """τ(s) = C for every task: the unconditional case."""

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        return self._C_block(columns)

    def evaluate(self, phis: Array) -> Array:
        return np.broadcast_to(self.C, (len(phis), *self.C.shape))

    @property
    def depends_on_task(self) -> bool:
        return False

    def _step_H(self, gradient: Array, phi: Array, step: float, columns: Index | None) -> None:
        """Keep H = 0."""

    def accumulate(self, other: Conditioning, weight: float) -> None:
        """Update a running average, in place."""
        self.C = (1.0 - weight) * self.C + weight * other.C

    def scale(self, factor: float) -> Constant:
        return Constant(factor * self.C, self.n_side)

    def dense_H(self) -> Array:
        return np.zeros((self.n_features * self.n_side, self.n_features * self.n_side))


class Given(Conditioning):
    """τ(s) given by the user: φ has its entries, row by row (see `feature_maps.maps.GivenMap`)."""

    def __init__(self, n_features: int) -> None:
        super().__init__(np.zeros((n_features, n_features)), n_features**2)

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        tau = phi.reshape(self.C.shape)
        return tau if columns is None else tau[np.ix_(columns, columns)]

    def evaluate(self, phis: Array) -> Array:
        return phis.reshape(-1, *self.C.shape)

    def scale(self, factor: float) -> Given:
        raise TypeError("a given τ cannot be scaled; scale the values of the function")

    def dense_H(self) -> Array:
        raise AttributeError("H_: a given function τ has no H; representation() returns its values")


class Dense(Iterate):
    """H as a full (dk, dk) matrix, as the paper writes it; the reference for `Factored` and `Exact`."""

    def __init__(self, H: Array, C: Array) -> None:
        super().__init__(C, len(H) // max(len(C), 1))
        self.H = np.array(H, dtype=float)
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

    @property
    def depends_on_task(self) -> bool:
        # The mean of the iterates leaves rounding errors in an H that is zero.
        return bool(np.abs(self.H).max(initial=0.0) > RANK_TOLERANCE * np.abs(self.C).max(initial=0.0))


class Factored(Iterate):
    """H = Q diag(λ) Qᵀ with at most ``rank`` orthonormal columns Q (dk, r).

    The gradient of one task lies in the d-dimensional range of ``I_d ⊗ φ``, so the projection onto the cone is an
    eigenproblem of size r + d instead of dk.  With ``rank=None`` no direction is dropped, and H is exact.  G has at most one negative
    eigenvalue, so each step adds at most one direction.
    """

    def __init__(
        self, basis: Array, eigenvalues: Array, C: Array, n_side: int, rank: int | None = None
    ) -> None:
        super().__init__(C, n_side)
        self.basis, self.eigenvalues, self.rank = basis, eigenvalues, rank
        check_shape("eigenvalues", eigenvalues, None)
        check_shape("basis", basis, len(self.C) * n_side, len(eigenvalues))

    def restore(self) -> None:
        super().restore()
        if (self.eigenvalues < 0).any():
            raise ValueError("eigenvalues: must not be negative")

    @classmethod
    def zero(cls, C: Array, n_side: int, rank: int | None = None) -> Factored:
        """Return H = 0, the initial value in Alg. meta_alg."""
        return cls(np.zeros((C.shape[0] * n_side, 0)), np.zeros(0), C, n_side, rank)

    @classmethod
    def from_tensor(cls, M: Array, C: Array, rank: int | None = None) -> Factored:
        """Return ``H = AᵀA``, where A (p, dk) is the tensor M (p, d, k) reshaped."""
        p, d, k = M.shape
        # An SVD, because eigenvectors of the Gram matrix would not be orthogonal enough for further steps.
        vectors, singular, _ = np.linalg.svd(M.reshape(p, d * k).T, full_matrices=False)
        return cls(*_leading(singular[::-1] ** 2, vectors[:, ::-1], rank), C, k, rank)

    def _slices(self, phi: Array) -> Array:
        """Return ``(I ⊗ φᵀ) Q``, (d, r)."""
        return np.matmul(phi, self.basis.reshape(self.n_features, self.n_side, -1))

    def _factor(self, phi: Array) -> Array:
        return self._slices(phi) * np.sqrt(self.eigenvalues)

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        V = self._factor(phi)
        if columns is not None:
            V = V[columns]
        return V @ V.T + self._C_block(columns)

    def evaluate(self, phis: Array) -> Array:
        d, k, r = self.n_features, self.n_side, self.basis.shape[1]
        root = (self.basis * np.sqrt(self.eigenvalues)).reshape(d, k, r)
        V = (phis @ root.transpose(1, 0, 2).reshape(k, d * r)).reshape(len(phis), d, r)
        return np.matmul(V, V.transpose(0, 2, 1)) + self.C

    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        V = self._factor(phi)
        return V @ (V[columns].T @ vector) + self.C[:, columns] @ vector

    def _step_H(self, gradient: Array, phi: Array, step: float, columns: Index | None) -> None:
        norm = float(np.linalg.norm(phi))
        if step == 0 or norm == 0:
            return
        d, k, r = self.n_features, self.n_side, self.basis.shape[1]
        rows = np.arange(d) if columns is None else columns
        m = len(rows)
        update = finite((step * norm**2) * gradient, "H")
        if r + m >= d * k:
            # The basis spans (nearly) the whole space, so the eigenproblem of H is not larger.
            full = Dense(self.dense_H(), self.C)
            full.step(gradient, phi, 0.0, step, columns)
            self._keep(*np.linalg.eigh(full.H))
            return
        blocks = np.zeros((d, k, m))
        blocks[rows, :, np.arange(m)] = phi / norm
        directions = blocks.reshape(d * k, m)
        # Orthogonalise twice (Kahan, Parlett): one pass leaves an error if φ is close to an earlier φ.
        inside = self._slices(phi / norm)[rows].T
        outside = directions - self.basis @ inside
        correction = self.basis.T @ outside
        outside -= self.basis @ correction
        inside = inside + correction
        new, coordinates = np.linalg.qr(outside)
        coordinates = np.vstack([inside, coordinates])
        small = -coordinates @ update @ coordinates.T
        small[np.arange(r), np.arange(r)] += self.eigenvalues
        values, vectors = np.linalg.eigh(0.5 * (small + small.T))
        self._keep(values, vectors, np.hstack([self.basis, new]))

    def accumulate(self, other: Conditioning, weight: float) -> None:
        """Update a running average, in place."""
        if not isinstance(other, Factored):
            raise TypeError("a factored average needs factored iterates")
        self.C = (1.0 - weight) * self.C + weight * other.C
        own = self.basis * np.sqrt((1.0 - weight) * self.eigenvalues)
        root = np.hstack([own, other.basis * np.sqrt(weight * other.eigenvalues)])
        # The Gram matrix is small.  Directions with tiny eigenvalues may lose their orthogonality, but an average never
        # takes a step, and ``root @ root.T`` keeps its accuracy.
        values, vectors = np.linalg.eigh(root.T @ root)
        keep = values > RANK_TOLERANCE * values.max(initial=0.0)
        values, vectors = values[keep], vectors[:, keep]
        self._keep(values, vectors / np.sqrt(values), root)

    def scale(self, factor: float) -> Factored:
        return Factored(self.basis, factor * self.eigenvalues, factor * self.C, self.n_side, self.rank)

    def _keep(self, values: Array, vectors: Array, basis: Array | None = None) -> None:
        """Keep the leading eigenpairs (ascending ``values``)."""
        vectors, self.eigenvalues = _leading(values, vectors, self.rank)
        self.basis = vectors if basis is None else basis @ vectors

    @property
    def depends_on_task(self) -> bool:
        return len(self.eigenvalues) > 0

    def dense_H(self) -> Array:
        return np.asarray((self.basis * self.eigenvalues) @ self.basis.T)


def _leading(values: Array, vectors: Array, rank: int | None) -> tuple[Array, Array]:
    """Return at most ``rank`` leading eigenvectors and eigenvalues (ascending), without rounding noise."""
    noise = RANK_TOLERANCE * np.abs(values).max(initial=0.0)
    first = int(np.searchsorted(values, noise, side="right"))
    if rank is not None:
        first = max(first, len(values) - rank)
    # Contiguous, as when read from a file, so that products are bitwise equal.
    return np.ascontiguousarray(vectors[:, first:]), finite(values[first:], "H")
