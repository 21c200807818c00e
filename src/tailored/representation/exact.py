"""Algorithm 1's H without a rank limit, at a third of the cost of keeping its eigenvectors.

`Factored` diagonalises H anew at every step, although the projection only asks for the negative eigenvectors of
``H − γ (I ⊗ φ) G (I ⊗ φᵀ)``, at most d of them.  Here ``H = E P Eᵀ`` with an orthonormal basis E (dk, r) of its
range and a dense P, and a step finds these few eigenvectors, turns the basis by as many Householder
reflections so that they come last, and drops them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import dgemm
from scipy.linalg.lapack import dgeqrf

from ._base import RANK_TOLERANCE, Array, Index, Iterate, finite
from .dense import Dense

#: Below this norm, what is left of a direction outside the range is orthogonalised a second time.
WELL_OUTSIDE = 0.5
#: Up to this size all eigenvectors cost no more than a few.
SMALL = 100


class Change(NamedTuple):
    """How a step changed H: by ``(I ⊗ φ) moved (I ⊗ φᵀ)``, and by what the projection gave back.

    ``moved`` (m, m) stands at the inputs ``used``; ``removed`` (dk, p) are the eigenvectors and ``values`` (p,) the
    eigenvalues, negative up to rounding, that were projected away.
    """

    phi: Array
    used: Index
    moved: Array
    removed: Array
    values: Array


class Exact(Iterate):
    """``(H, C)`` of Algorithm 1 with every direction of H.

    Parameters
    ----------
    C : array (d, d)
    n_side : int
    basis, P : arrays (dk, r), (r, r), optional
        H = 0 when absent.

    Attributes
    ----------
    change : Change or None
        Of the last step; None where H did not move.
    """

    def __init__(self, C: Array, n_side: int, basis: Array | None = None, P: Array | None = None) -> None:
        self.C = np.array(C, dtype=float)
        self.n_side = n_side
        self.P = np.zeros((0, 0)) if P is None else np.array(P, dtype=float)
        # Basis vectors are columns of a Fortran array: new ones are appended, old ones dropped, in place.
        self._columns = np.zeros((len(self.C) * n_side, 0), order="F")
        if basis is not None:
            self._reserve(basis.shape[1])
            self._columns[:, : basis.shape[1]] = basis
        self.change: Change | None = None

    @property
    def basis(self) -> Array:
        return self._columns[:, : len(self.P)]

    def state(self) -> dict[str, Any]:
        return {"C": self.C, "n_side": self.n_side, "basis": np.array(self.basis), "P": self.P}

    def copy(self) -> Exact:
        made = Exact(**self.state())
        made.change = self.change
        return made

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        V = self._slices(phi)
        tau = V.T @ self.P @ V + self.C
        return tau if columns is None else tau[np.ix_(columns, columns)]

    def evaluate(self, phis: Array) -> Array:
        V = slices(self.basis, phis, self.n_features)
        return V @ self.P @ V.transpose(0, 2, 1) + self.C

    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        V = self._slices(phi)
        return V.T @ (self.P @ (V[:, columns] @ vector)) + self.C[:, columns] @ vector

    def scale(self, factor: float) -> Exact:
        return Exact(factor * self.C, self.n_side, self.basis, factor * self.P)

    def dense_H(self) -> Array:
        return self.basis @ self.P @ self.basis.T

    def tensor(self) -> Array:
        return Dense(self.dense_H(), self.C).tensor()

    def step(
        self, gradient: Array, phi: Array, step_C: float, step_H: float, columns: Index | None = None
    ) -> None:
        self._step_C(gradient, step_C, columns)
        self.change = None
        # Inputs that this task has no value of (most items, when inputs are one-hot) move nothing.
        used = np.flatnonzero(gradient.any(axis=0))
        squared = float(phi @ phi)
        if step_H == 0.0 or squared == 0.0 or not len(used):
            return
        moved = -step_H * gradient[np.ix_(used, used)]
        used = used if columns is None else columns[used]
        K = self._extend(phi / np.sqrt(squared), used)
        M = K @ (squared * moved) @ K.T
        r = len(self.P)
        M[:r, :r] += self.P
        finite(M, "H")
        # Directions that are noise beside the largest ones are dropped with the negative ones.
        noise = RANK_TOLERANCE * float(np.abs(M.diagonal()).max())
        removed, values = self._drop(M, *eigenpairs_below(M, noise))
        self.change = Change(phi, used, moved, removed, values)

    def _slices(self, phi: Array) -> Array:
        """``(I ⊗ φᵀ) E``, transposed: (r, d)."""
        d, k = self.n_features, self.n_side
        return np.asarray(self.basis.T.reshape(len(self.P), d, k) @ phi)

    def _reserve(self, n_columns: int) -> None:
        """Room for so many basis vectors; doubled, so that a stream pays for its copies once in a while."""
        n_rows, there = self._columns.shape
        if n_columns > there:
            grown = np.zeros((n_rows, min(max(n_columns, 2 * there), n_rows)), order="F")
            grown[:, :there] = self._columns
            self._columns = grown

    def _extend(self, unit: Array, used: Index) -> Array:
        """Append orthonormal directions until the basis spans the columns ``used`` of ``I ⊗ φ``.

        Returns their coordinates, (r + m, m).
        """
        d, k, r, m = self.n_features, self.n_side, len(self.P), len(used)
        if r + m > d * k:
            return self._extend_to_everything(unit, used)
        self._reserve(r + m)
        basis = self.basis
        inside = self._slices(unit)[:, used]
        outside = -(basis @ inside)
        outside.reshape(d, k, m)[used, :, np.arange(m)] += unit
        new, coordinates = np.linalg.qr(outside)
        if r and np.abs(coordinates.diagonal()).min() < WELL_OUTSIDE:
            # On the unit vectors, not before: what is left of a column may be far smaller than the column.
            correction = basis.T @ new
            new, again = np.linalg.qr(new - basis @ correction)
            inside = inside + correction @ coordinates
            coordinates = again @ coordinates
        self._columns[:, r : r + m] = new
        return np.vstack([inside, coordinates])

    def _extend_to_everything(self, unit: Array, used: Index) -> Array:
        """The range is (nearly) the whole space: E = I, and P is H itself."""
        d, k = self.n_features, self.n_side
        self.P = self.dense_H()
        self._reserve(d * k)
        self._columns[:] = np.eye(d * k)
        coordinates = np.zeros((d, k, len(used)))
        coordinates[used, :, np.arange(len(used))] = unit
        return coordinates.reshape(d * k, len(used))

    def _drop(self, M: Array, values: Array, vectors: Array) -> tuple[Array, Array]:
        """Turn the basis so that ``vectors`` come last, leave them out, and return them in full length.

        The product of the reflections is ``Q = I − V T Vᵀ``, applied as products of matrices: LAPACK's own
        routine falls back to one reflection at a time when there are fewer than a block of them.
        """
        n, m = vectors.shape
        kept = n - m
        if not m:
            self.P = finite(0.5 * M + 0.5 * M.T, "H")
            return self._columns[:, :0].copy(), values
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
        X = M @ VT
        Y = (X - 0.5 * V @ (T.T @ (V.T @ X)))[:kept]
        turned = M[:kept, :kept] - Y @ V[:kept].T
        turned -= V[:kept] @ Y.T
        self.P = finite(0.5 * turned + 0.5 * turned.T, "H")
        return E[:, kept:][:, ::-1] * np.sign(np.diag(factored)), values


def slices(directions: Array, phis: Array, n_features: int) -> Array:
    """``(I ⊗ φ_sᵀ) Q`` for directions Q (dk, m) at many feature vectors (T, k): an array (T, d, m)."""
    T, k = phis.shape
    m = directions.shape[1]
    by_side = directions.reshape(n_features, k, m).transpose(1, 0, 2).reshape(k, n_features * m)
    return (phis @ by_side).reshape(T, n_features, m)


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
