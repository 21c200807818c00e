"""H in an eigenbasis of its range; no matrix of size dk × dk is formed."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_shape
from .base import RANK_TOLERANCE, Array, Conditioning, Index, Iterate, finite
from .dense import Dense


class Factored(Iterate):
    """H = Q diag(λ) Qᵀ with at most ``rank`` orthonormal columns Q (dk, r).

    The gradient of one task lies in the d-dimensional range of ``I_d ⊗ φ``, so the projection onto the cone is an
    eigenproblem of size r + d instead of dk.  With ``rank=None`` no direction is dropped, and H is exact.  G has at most one negative
    eigenvalue, so each step adds at most one direction.
    """

    def __init__(
        self, basis: Array, eigenvalues: Array, C: Array, n_side: int, rank: int | None = None
    ) -> None:
        self.C = np.array(C, dtype=float)
        self.n_side = n_side
        self.rank = rank
        self.basis = basis
        self.eigenvalues = eigenvalues
        check_shape("C", self.C, len(self.C), len(self.C))
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
