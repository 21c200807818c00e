"""The projected steps of Algorithm 1:

    C_{t+1} = proj(C_t − γ G) ,    H_{t+1} = proj(H_t − γ (I ⊗ φ) G (I ⊗ φᵀ)) .

`project_psd` is proj.  H has dk rows, so it is stored as ``H = E P Eᵀ`` with an orthonormal basis E
of its range, and `FactoredH.step` projects it in small matrices: a gradient of one task lies in the
d-dimensional range of ``I ⊗ φ``, so a projection is an eigenproblem of size r + d instead of dk.
G has at most one negative eigenvalue, so a step adds at most one direction to the r columns of E.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.linalg.blas import dgemm, dsymm, dsyr2k
from scipy.linalg.lapack import dgeqrt, dpotrf, dtrtri

from .representation import RANK_TOLERANCE, Array

Index = NDArray[np.intp]


def project_psd(matrix: Array) -> Array:
    """Return the positive semidefinite matrix nearest to the symmetric part, in Frobenius norm."""
    # Entries are halved first, because the sum of two entries near the largest float would
    # overflow.
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


@dataclass(frozen=True, eq=False)
class FactoredH:
    """``H = E P Eᵀ`` with an orthonormal basis E (dk, r).

    Only the lower triangle of P (r, r) is read.
    """

    E: Array
    P: Array
    n_steps: int = 0

    def dense(self) -> Array:
        """Return the (dk, dk) matrix."""
        return self.E @ (np.tril(self.P) + np.tril(self.P, -1).T) @ self.E.T

    def coordinates(self, phi: Array) -> Array:
        """Return ``V = Eᵀ (I ⊗ φ)`` (r, d)."""
        return np.asarray(self.E.T.reshape(len(self.P), len(self.E) // len(phi), len(phi)) @ phi)

    def at(self, phi: Array) -> Array:
        """Return ``(I ⊗ φᵀ) H (I ⊗ φ)`` (d, d), for H ≠ 0."""
        V = self.coordinates(phi)
        return V.T @ dsymm(1.0, self.P, V, lower=1)

    def step(self, moved: Array, phi: Array, rank: int | None) -> tuple[FactoredH, Array]:
        """Return the projection of ``H + (I ⊗ φ) moved (I ⊗ φᵀ)``, moved (d, d), and R (dk, p).

        Without a ``rank``, the projection is this sum plus ``R Rᵀ``.  With a ``rank``, the leading
        directions are kept, P is diagonal, and R is empty.
        """
        # Inputs that are zero in the whole task (most items, with one-hot inputs) do not change H.
        used = np.flatnonzero(moved.any(axis=0))
        basis, K, P = self._extended(phi, used)
        M = np.zeros((len(K), len(K)), order="F")
        M[: len(P), : len(P)] = P
        # the lower triangle of P after the gradient step
        KM = K @ (phi @ phi * moved[np.ix_(used, used)])
        M = dsyr2k(0.5, KM, K, beta=1.0, c=M, lower=1, overwrite_c=1)
        # Directions that are rounding noise relative to the largest one are dropped, too.
        noise = RANK_TOLERANCE * float(np.abs(finite(M, "H").diagonal()).max())
        if rank is None:
            # fewer than all eigenvectors, which takes a third of the time
            values, vectors = eigh(
                M, subset_by_value=(-np.inf, noise), driver="evr", check_finite=False
            )
            E, P, removed = _drop(basis, M, vectors)
            # Positive values are rounding noise.
            restored = removed * np.sqrt(np.maximum(-values, 0.0))
        else:
            values, vectors = np.linalg.eigh(M)
            first = max(int(np.searchsorted(values, noise, side="right")), len(M) - rank)
            E, P = dgemm(1.0, basis, vectors[:, first:]), np.diag(values[first:])
            restored = basis[:, :0]
        if (self.n_steps + 1) % 100 == 0:
            # Rounding errors accumulate: move the basis towards the nearest orthonormal one.
            E -= 0.5 * E @ (E.T @ E - np.eye(len(P)))
        return FactoredH(E, P, self.n_steps + 1), restored

    def _extended(self, phi: Array, used: Index) -> tuple[Array, Array, Array]:
        """Return an orthonormal basis of the range and of the columns ``used`` of ``I ⊗ φ / ‖φ‖``,
        K and P.

        K (r + m, m) has the coordinates of these columns, and P those of H, for the first basis
        vectors.
        """
        (size, r), m, k = self.E.shape, len(used), len(phi)
        norm = np.sqrt(phi @ phi)
        columns = np.zeros((size, m), order="F")
        columns.T.reshape(m, size // k, k)[np.arange(m), used] = phi / norm
        if r + m > size:  # the range is (nearly) the whole space
            return np.eye(size), columns, self.dense()
        inside = self.coordinates(phi)[:, used] / norm
        outside = dgemm(-1.0, self.E, inside, beta=1.0, c=columns, overwrite_c=1) if r else columns
        # Columns well outside E are orthogonal to it up to rounding: a Cholesky factor of their
        # Gram matrix suffices.  With 0.1 instead of 0.5, the errors of successive steps would
        # multiply, and reach 1e-12 before the basis is made orthonormal again.
        R, info = dpotrf(outside.T @ outside, lower=0, clean=1)
        if not info and R.diagonal().min() > 0.5:
            new = outside @ dtrtri(R, lower=0)[0]
        else:
            new, R = np.linalg.qr(outside)
            # Orthogonalise the unit vectors again, because the part outside may be far smaller than
            # the column.
            correction = self.E.T @ new
            new, again = np.linalg.qr(new - self.E @ correction)
            inside, R = inside + correction @ R, again @ R
        return np.concatenate([self.E.T, new.T]).T, np.vstack([inside, R]), self.P


def _drop(basis: Array, M: Array, vectors: Array) -> tuple[Array, Array, Array]:
    """Remove eigenvectors (n, m) of M, given by its lower triangle, from a basis (dk, n).

    Return the remaining basis, its block P of M, and the eigenvectors in full length (dk), up to
    their signs.
    """
    m = vectors.shape[1]
    if not m:
        return basis, M, basis[:, :0]
    # Q = I − Y T Yᵀ is orthogonal, and its first columns are the eigenvectors.
    Y, T, _ = dgeqrt(m, vectors)
    Y = np.tril(Y, -1)
    np.fill_diagonal(Y, 1.0)
    YT = dgemm(1.0, Y, T)
    basis = dgemm(-1.0, dgemm(1.0, basis, YT), Y, 1.0, basis, trans_b=1, overwrite_c=1)
    X = dsymm(1.0, M, YT, lower=1)
    X = dgemm(-0.5, Y, YT.T @ X, 1.0, X, overwrite_c=1)
    P = dsyr2k(-1.0, X, Y, beta=1.0, c=M, lower=1, overwrite_c=1)[m:, m:]
    finite(P.diagonal(), "H")  # bounds the other entries, because P is positive semidefinite
    return basis[:, m:], np.asfortranarray(P), basis[:, :m]
