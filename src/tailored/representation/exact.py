"""H of Algorithm 1 without a rank limit, at a third of the cost of storing its eigenvectors.

`Factored` diagonalises H at every step, although the projection only needs the negative eigenvectors of
``H − γ (I ⊗ φ) G (I ⊗ φᵀ)``, at most d of them.  Here ``H = E P Eᵀ`` with an orthonormal basis E (dk, r) of its
range and a dense P.  A step computes these eigenvectors, reflects the basis so that they come last, and drops them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import dgemm, dsymm, dsyr2k
from scipy.linalg.lapack import dpotrf, dtrtri

from .._utils.validation import check_shape
from .base import RANK_TOLERANCE, Array, Index, Iterate, finite

#: Below this norm, the part of a direction outside the range is orthogonalised a second time.
WELL_OUTSIDE = 0.5
#: Number of steps after which the basis is made orthonormal again, because rounding errors accumulate.
CLEANING = 32
#: Up to this size, computing all eigenvectors costs no more than computing a few.
SMALL = 100


class Change(NamedTuple):
    """Change of H in one step: ``(I ⊗ φ) moved (I ⊗ φᵀ) − removed diag(values) removedᵀ``."""

    phi: Array
    used: Index  # the m inputs that the step moved
    moved: Array  # (m, m)
    removed: Array  # eigenvectors (dk, p) that the projection removed
    values: Array  # their eigenvalues (p,), negative up to rounding


class Exact(Iterate):
    """``(H, C)`` of Algorithm 1 with every direction of H; without ``basis`` (dk, r) and ``P`` (r, r), H = 0.

    ``change`` is the change of the last step, or None if it did not change H.
    """

    def __init__(self, C: Array, n_side: int, basis: Array | None = None, P: Array | None = None) -> None:
        self.C = np.array(C, dtype=float)
        self.n_side = n_side
        # Only the lower triangle of P is read and written; the upper one is not up to date.
        self._P = np.zeros((0, 0), order="F") if P is None else np.array(P, dtype=float, order="F")
        # Basis vectors are columns of a Fortran array, appended and dropped in place.
        size = len(self.C) * n_side
        self._columns = np.array(np.zeros((size, 0)) if basis is None else basis, dtype=float, order="F")
        check_shape("basis", self._columns, size, len(self._P))
        self._cached_slices: tuple[Array, Array] | None = None
        self._n_steps = 0
        self.change: Change | None = None

    @property
    def basis(self) -> Array:
        return self._columns[:, : len(self._P)]

    @property
    def P(self) -> Array:
        lower = np.tril(self._P)
        return lower + np.tril(lower, -1).T

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        V = self._slices(phi)
        tau = V.T @ dsymm(1.0, self._P, V, lower=1) + self.C if len(V) else self.C.copy()
        return tau if columns is None else tau[np.ix_(columns, columns)]

    def scale(self, factor: float) -> Exact:
        return Exact(factor * self.C, self.n_side, self.basis, factor * self.P)

    def dense_H(self) -> Array:
        return self.basis @ self.P @ self.basis.T

    def _step_H(self, gradient: Array, phi: Array, step: float, columns: Index | None) -> None:
        self.change = None
        # Inputs that are zero in the whole task (most items, with one-hot inputs) do not change H.
        used = np.flatnonzero(gradient.any(axis=0))
        squared = float(phi @ phi)
        if step == 0.0 or squared == 0.0 or not len(used):
            return
        moved = -step * gradient[np.ix_(used, used)]
        used = used if columns is None else columns[used]
        K = self._extend(phi, squared, used)
        r, n = len(self._P), len(K)
        M = np.zeros((n, n), order="F")
        M[:r, :r] = self._P
        # the lower triangle of P after the gradient step
        M = finite(dsyr2k(0.5, K @ (squared * moved), K, beta=1.0, c=M, lower=1, overwrite_c=1), "H")
        # Directions that are rounding noise relative to the largest one are dropped, too.
        noise = RANK_TOLERANCE * float(np.abs(M.diagonal()).max())
        removed, values = self._drop(M, *eigenpairs_below(M, noise))
        self._n_steps += 1
        if self._n_steps % CLEANING == 0:
            # Move the basis towards the nearest orthonormal one.
            self.basis[...] -= 0.5 * self.basis @ (self.basis.T @ self.basis - np.eye(len(self._P)))
        self._cached_slices = None
        self.change = Change(phi, used, moved, removed, values)

    def _slices(self, phi: Array) -> Array:
        """Return ``(I ⊗ φᵀ) E``, transposed: (r, d).  Cached, because a step needs it twice."""
        if self._cached_slices is None or not np.array_equal(self._cached_slices[0], phi):
            d, k = self.n_features, self.n_side
            self._cached_slices = phi, np.asarray(self.basis.T.reshape(len(self._P), d, k) @ phi)
        return self._cached_slices[1]

    def _reserve(self, n_columns: int) -> None:
        """Reserve memory for basis vectors; doubling it keeps the number of copies small."""
        n_rows, reserved = self._columns.shape
        if n_columns > reserved:
            grown = np.zeros((n_rows, min(max(n_columns, 2 * reserved), n_rows)), order="F")
            grown[:, :reserved] = self._columns
            self._columns = grown

    def _extend(self, phi: Array, squared: float, used: Index) -> Array:
        """Append orthonormal directions until the basis spans the columns ``used`` of ``I ⊗ φ / ‖φ‖``.

        Return their coordinates, (r + m, m).
        """
        d, k, r, m = self.n_features, self.n_side, len(self._P), len(used)
        unit = phi / np.sqrt(squared)
        if r + m > d * k:
            return self._extend_to_everything(unit, used)
        self._reserve(r + m)
        inside = self._slices(phi)[:, used] / np.sqrt(squared)
        outside = dgemm(-1.0, self.basis, inside) if r else np.zeros((d * k, m), order="F")
        outside.T.reshape(m, d, k)[np.arange(m), used] += unit
        new, inside, coordinates = self._orthonormal(outside, inside)
        self._columns[:, r : r + m] = new
        return np.vstack([inside, coordinates])

    def _orthonormal(self, outside: Array, inside: Array) -> tuple[Array, Array, Array]:
        """Return orthonormal directions for the part outside, and the coordinates of all columns inside and in them."""
        # Columns well outside are orthogonal to the basis up to rounding: a Cholesky factor of their Gram matrix suffices.
        root, info = dpotrf(outside.T @ outside, lower=0, clean=1)
        if not info and root.diagonal().min() > WELL_OUTSIDE:
            inverse, _ = dtrtri(root, lower=0)
            return outside @ inverse, inside, root
        new, coordinates = np.linalg.qr(outside)
        if len(inside):
            # On the unit vectors, because the part outside may be far smaller than the column.
            correction = self.basis.T @ new
            new, again = np.linalg.qr(new - self.basis @ correction)
            inside = inside + correction @ coordinates
            coordinates = again @ coordinates
        return new, inside, coordinates

    def _extend_to_everything(self, unit: Array, used: Index) -> Array:
        """Set E = I and P = H, because the range is (nearly) the whole space."""
        d, k = self.n_features, self.n_side
        self._P = np.asfortranarray(self.dense_H())
        self._reserve(d * k)
        self._columns[:] = np.eye(d * k)
        coordinates = np.zeros((d, k, len(used)))
        coordinates[used, :, np.arange(len(used))] = unit
        return coordinates.reshape(d * k, len(used))

    def _drop(self, M: Array, values: Array, vectors: Array) -> tuple[Array, Array]:
        """Reflect the basis so that the eigenvectors come last, drop them, and return them in full length.

        Rotate the vectors so that their last rows are a negative semidefinite block B, and let Y be the vectors minus the
        last columns of the identity.  ``Q = I − Y (I − B)⁻¹ Yᵀ`` is a reflection that maps these columns to the
        vectors.  No product with M is needed, because the vectors are its eigenvectors.
        """
        n, m = vectors.shape
        kept = n - m
        if not m:
            self._P = M
            return self._columns[:, :0].copy(), values
        left, cosines, right = np.linalg.svd(vectors[kept:])
        turn = -right.T @ left.T
        # (I − B)⁻¹, where the eigenvalues of I − B lie between 1 and 2
        inverse = (left / (1.0 + cosines)) @ left.T
        Y = np.asfortranarray(vectors @ turn)
        MY = Y @ ((turn.T * values) @ turn)
        MY -= _last_columns(M, m)
        E = self._columns[:, :n]
        removed = dgemm(1.0, E, vectors)
        if not kept:
            self._P = np.zeros((0, 0), order="F")
            return removed, values
        EY = removed @ turn
        EY -= E[:, kept:]
        Y[np.arange(kept, n), np.arange(m)] -= 1.0
        # In place, because E is by far the largest array.
        kept_E = E[:, :kept]
        turned = dgemm(-1.0, EY @ inverse, Y[:kept], trans_b=True, beta=1.0, c=kept_E, overwrite_c=True)
        if not np.may_share_memory(turned, kept_E):
            kept_E[...] = turned
        X = MY @ inverse
        X -= 0.5 * Y @ (inverse @ (Y.T @ X))
        M = dsyr2k(-1.0, X, Y, beta=1.0, c=M, lower=1, overwrite_c=1)
        self._P = finite(np.asfortranarray(M[:kept, :kept]), "H")
        return removed, values


def _last_columns(M: Array, m: int) -> Array:
    """Return the last m columns of a symmetric matrix given by its lower triangle."""
    columns = np.array(M[-m:].T, order="F")
    corner = np.tril(M[-m:, -m:])
    columns[-m:] = corner + np.tril(corner, -1).T
    return columns


def eigenpairs_below(M: Array, bound: float) -> tuple[Array, Array]:
    """Return the eigenpairs up to ``bound`` of a symmetric matrix given by its lower triangle."""
    if len(M) <= SMALL:
        values, vectors = np.linalg.eigh(M)
        first = int(np.searchsorted(values, bound, side="right"))
        return values[:first], vectors[:, :first]
    return eigh(M, lower=True, subset_by_value=(-np.inf, bound), check_finite=False)
