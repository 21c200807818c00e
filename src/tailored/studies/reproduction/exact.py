"""Algorithm 1's H without a rank limit, at a third of the cost of keeping its eigenvectors.

`conditioning.Factored` diagonalises H anew at every step, although the projection only asks for the negative
eigenvectors of ``H − γ (I ⊗ φ) G (I ⊗ φᵀ)``, at most d of them.  Here ``H = E P Eᵀ`` with an orthonormal basis
E (dk, r) of its range and a dense P, and a step finds these few eigenvectors, turns the basis by as many
Householder reflections so that they come last, and drops them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.linalg.blas import dgemm
from scipy.linalg.lapack import dgeqrf

from ...representation.conditioning import RANK_TOLERANCE, project_psd

Array = NDArray[np.float64]

#: Below this norm, what is left of a direction outside the range is orthogonalised a second time.
WELL_OUTSIDE = 0.5

#: Up to this size all eigenvectors cost no more than a few.
SMALL = 100


class ExactIterate:
    """``(H, C)`` of Algorithm 1, starting at H = 0; exact while ``rank(H) + d < dk``.

    Attributes
    ----------
    C : ndarray of shape (d, d)
    P : ndarray of shape (r, r)
    removed, removed_values : ndarrays of shape (dk, m) and (m,)
        Eigenvectors and (negative) eigenvalues that the last projection took away.
    """

    def __init__(self, C: Array, n_side: int, max_rank: int) -> None:
        self.C = C.copy()
        self.n_side = n_side
        self.P = np.zeros((0, 0))
        # Basis vectors are columns of a Fortran array: new ones are appended, old ones dropped, in place.
        self._columns = np.zeros((len(C) * n_side, max_rank + len(C)), order="F")
        self.removed, self.removed_values = self._columns[:, :0], np.zeros(0)

    @property
    def n_features(self) -> int:
        return len(self.C)

    @property
    def basis(self) -> Array:
        return self._columns[:, : len(self.P)]

    def __call__(self, phi: Array) -> Array:
        """τ at one feature vector."""
        V = self._slices(phi)
        return V.T @ self.P @ V + self.C

    def dense_H(self) -> Array:
        return self.basis @ self.P @ self.basis.T

    def step(self, gradient: Array, phi: Array, step_size: float) -> None:
        """``C ← proj(C − γ G)``, ``H ← proj(H − γ (I ⊗ φ) G (I ⊗ φᵀ))``."""
        squared = float(phi @ phi)
        scaled = step_size * gradient
        self.C = project_psd(_finite(self.C - scaled))
        self.removed, self.removed_values = self._columns[:, :0], np.zeros(0)
        # Inputs that this task has no value of (most items, when inputs are one-hot) move nothing.
        used = np.flatnonzero(gradient.any(axis=0))
        if squared == 0.0 or not len(used):
            return
        r = len(self.P)
        K = self._extend(phi / np.sqrt(squared), used)
        M = -(K @ (squared * scaled[np.ix_(used, used)]) @ K.T)
        M[:r, :r] += self.P
        _finite(M)
        # Directions that are noise beside the largest ones are dropped with the negative ones.
        noise = RANK_TOLERANCE * float(np.abs(M.diagonal()).max())
        self._drop(M, *eigenpairs_below(M, noise))

    def _slices(self, phi: Array) -> Array:
        """``(I ⊗ φᵀ) E``, transposed: (r, d)."""
        d, k = self.n_features, self.n_side
        return np.asarray(self.basis.T.reshape(len(self.P), d, k) @ phi)

    def _extend(self, unit: Array, used: NDArray[np.intp]) -> Array:
        """Append orthonormal directions until the basis spans the columns ``used`` of ``I ⊗ φ``.

        Returns their coordinates, (r + m, m).
        """
        d, k, r, m = self.n_features, self.n_side, len(self.P), len(used)
        basis = self.basis
        inside = self._slices(unit)[:, used]
        outside = -(basis @ inside)
        outside.reshape(d, k, m)[used, :, np.arange(m)] += unit
        if r and np.sqrt(np.square(outside).sum(axis=0).min()) < WELL_OUTSIDE:
            correction = basis.T @ outside
            outside -= basis @ correction
            inside = inside + correction
        new, coordinates = np.linalg.qr(outside)
        self._columns[:, r : r + m] = new
        return np.vstack([inside, coordinates])

    def _drop(self, M: Array, values: Array, vectors: Array) -> None:
        """Turn the basis so that ``vectors`` come last, and leave them out.

        The product of the reflections is ``Q = I − V T Vᵀ``, applied as products of matrices: LAPACK's own
        routine falls back to one reflection at a time when there are fewer than a block of them.
        """
        n, m = vectors.shape
        kept = n - m
        if not m:
            self.P = 0.5 * (M + M.T)
            return
        # A QR factorisation puts its vectors first; upside down, it puts them last.
        factored, tau, _, info = dgeqrf(vectors[::-1])
        if info:
            raise np.linalg.LinAlgError(f"dgeqrf failed with {info}")
        V = np.tril(factored, -1)
        V[np.arange(m), np.arange(m)] = 1.0
        T, overlaps = np.diag(tau), V.T @ V
        for j in range(1, m):
            T[:j, j] = -tau[j] * (T[:j, :j] @ overlaps[:j, j])
        V = V[::-1]
        E = self._columns[:, :n]
        VT = np.asfortranarray(V @ T)
        # In place: E is by far the largest array here, and every copy of it counts.
        E_turned = dgemm(-1.0, E @ VT, V, trans_b=True, beta=1.0, c=E, overwrite_c=True)
        if not np.may_share_memory(E_turned, E):
            E[...] = E_turned
        self.removed = E[:, kept:][:, ::-1] * np.sign(np.diag(factored))
        self.removed_values = values
        X = M @ VT
        Y = (X - 0.5 * V @ (T.T @ (V.T @ X)))[:kept]
        turned = M[:kept, :kept] - Y @ V[:kept].T
        turned -= V[:kept] @ Y.T
        self.P = 0.5 * (turned + turned.T)


def eigenpairs_below(M: Array, bound: float) -> tuple[Array, Array]:
    """Eigenvalues of a symmetric matrix up to ``bound``, and orthonormal eigenvectors."""
    # Bisection finds a few eigenvalues sooner than divide and conquer finds all, but not in a small matrix,
    # and its inverse iteration may lose its way among equal ones (one-hot inputs give many).
    if len(M) > SMALL:
        try:
            # Transposed, it has the order that LAPACK wants, and is copied as it lies.
            values, vectors = eigh(M.T, subset_by_value=(-np.inf, bound), driver="evr", check_finite=False)
            if np.abs(vectors.T @ vectors - np.eye(len(values))).max(initial=0.0) < 1e-11:
                return values, vectors
        except np.linalg.LinAlgError:
            pass
    values, vectors = np.linalg.eigh(M)
    first = int(np.searchsorted(values, bound, side="right"))
    return values[:first], vectors[:, :first]


def _finite(matrix: Array) -> Array:
    # One sum instead of a mask: infinities and NaN survive addition.
    if not np.isfinite(matrix.sum()):
        raise OverflowError("the iterate is no longer finite")
    return matrix
