"""H of Algorithm 1 as ``E P Eᵀ``, with an orthonormal basis E (dk, r) of its range.

The gradient of one task lies in the d-dimensional range of ``I_d ⊗ φ``, so the projection onto the cone is an eigenproblem
of size r + d instead of dk.  The gradient G in θ has at most one negative eigenvalue, so a step adds at most one direction.

With a limited rank, a step diagonalises P and keeps the leading directions.  Otherwise only the eigenvectors with
negative eigenvalues are needed, at most d of them: a step reflects the basis so that they come last, and drops them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.linalg.blas import dgemm, dsymm, dsyr2k
from scipy.linalg.lapack import dormqr, dpotrf, dsytrd, dtrtri

from .representation import RANK_TOLERANCE, Array, Index, finite, project_psd

#: Below this norm, the part of a direction outside the range is orthogonalised a second time.  With 0.1, the errors of
#: successive steps multiply and reach 1e-12 before the basis is made orthonormal again.
WELL_OUTSIDE = 0.5
#: Number of steps after which the basis is made orthonormal again, because rounding errors accumulate.
CLEANING = 100
#: Up to this size, computing all eigenvectors costs no more than computing a few.
SMALL = 100


class Change(NamedTuple):
    """Change of H in one step: ``(I ⊗ φ) moved (I ⊗ φᵀ) − removed diag(values) removedᵀ``."""

    phi: Array
    used: Index  # the m inputs with a non-zero gradient
    moved: Array  # (m, m)
    removed: Array  # eigenvectors (dk, p) that the projection removed
    values: Array  # eigenvalues (p,) of ``removed``, negative up to rounding


class _Range:
    """``E P Eᵀ`` with an orthonormal basis E (dk, r); only the lower triangle of P (r, r) is read.  Immutable.

    ``after`` caches the results of steps from here, so that iterates with the same gradients share them.  The signs of the
    residuals, and hence the gradients of piecewise-linear losses, are often equal for different small step sizes.
    """

    def __init__(self, E: Array, P: Array, n_steps: int = 0, change: Change | None = None) -> None:
        self.E, self.P, self.n_steps, self.change = E, P, n_steps, change
        self.after: WeakValueDictionary[tuple[bytes, bytes, bytes, int | None], _Range] = (
            WeakValueDictionary()
        )
        self._cached: tuple[Array, Array, Array] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Range:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"E": self.E, "P": self.P, "n_steps": self.n_steps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(_Range(**state)))

    def at(self, phi: Array) -> tuple[Array, Array]:
        """Return ``V = Eᵀ (I ⊗ φ)`` (r, d) and ``Vᵀ P V``.  Cached, because a step needs V again."""
        cached = self._cached
        if cached is None or not np.array_equal(cached[0], phi):
            V = np.asarray(self.E.T.reshape(len(self.P), len(self.E) // len(phi), len(phi)) @ phi)
            tau = (
                V.T @ dsymm(1.0, self.P, V, lower=1)
                if len(V)
                else np.zeros((V.shape[1], V.shape[1]))
            )
            cached = self._cached = phi, V, tau
        return cached[1:]

    def step(self, moved: Array, phi: Array, used: Index, rank: int | None) -> _Range:
        """Return the projection of ``E P Eᵀ + (I ⊗ φ) moved (I ⊗ φᵀ)`` onto the matrices of at most this rank in the cone."""
        squared = float(phi @ phi)
        K, E, P, new = self._extended(phi, squared, used)
        r, n = len(P), len(K)
        M = np.zeros((n, n), order="F")
        M[:r, :r] = P
        # the lower triangle of P after the gradient step
        M = finite(
            dsyr2k(0.5, K @ (squared * moved), K, beta=1.0, c=M, lower=1, overwrite_c=1), "H"
        )
        # Directions that are rounding noise relative to the largest one are dropped, too.
        noise = RANK_TOLERANCE * float(np.abs(M.diagonal()).max())
        if rank is None:
            values, vectors = eigenpairs_below(M, noise)
            E, P, removed = _drop(E, new, M, values, vectors)
            change = Change(phi, used, moved, removed, values)
        else:
            values, vectors = np.linalg.eigh(M)
            first = max(int(np.searchsorted(values, noise, side="right")), n - rank)
            E = dgemm(1.0, _joined(E, new), vectors[:, first:])
            P = np.diag(values[first:])
            change = None
        if (self.n_steps + 1) % CLEANING == 0:
            # Move the basis towards the nearest orthonormal one.
            E -= 0.5 * E @ (E.T @ E - np.eye(len(P)))
        return _Range(E, P, self.n_steps + 1, change)

    def _extended(
        self, phi: Array, squared: float, used: Index
    ) -> tuple[Array, Array, Array, Array]:
        """Return K, E, P and new orthonormal directions, which together with E span the columns ``used`` of ``I ⊗ φ / ‖φ‖``.

        K (r + m, m) has the coordinates of these columns in E and the new directions.
        """
        (size, r), m, k = self.E.shape, len(used), len(phi)
        unit = phi / np.sqrt(squared)
        columns = np.zeros((size, m), order="F")
        columns.T.reshape(m, size // k, k)[np.arange(m), used] = unit
        if r + m > size:  # the range is (nearly) the whole space
            P = np.tril(self.P) + np.tril(self.P, -1).T
            return columns, np.eye(size), np.asfortranarray(self.E @ P @ self.E.T), columns[:, :0]
        inside = self.at(phi)[0][:, used] / np.sqrt(squared)
        outside = dgemm(-1.0, self.E, inside, beta=1.0, c=columns, overwrite_c=1) if r else columns
        new, inside, coordinates = self._orthonormal(outside, inside)
        return np.vstack([inside, coordinates]), self.E, self.P, new

    def _orthonormal(self, outside: Array, inside: Array) -> tuple[Array, Array, Array]:
        """Return an orthonormal basis of ``outside``, and the coordinates of the columns in E and in the new basis."""
        # Columns well outside E are orthogonal to it up to rounding: a Cholesky factor of their Gram matrix suffices.
        root, info = dpotrf(outside.T @ outside, lower=0, clean=1)
        if not info and root.diagonal().min() > WELL_OUTSIDE:
            inverse, _ = dtrtri(root, lower=0)
            return outside @ inverse, inside, root
        new, coordinates = np.linalg.qr(outside)
        if len(inside):
            # Orthogonalise the unit vectors again, because the part outside may be far smaller than the column.
            correction = self.E.T @ new
            new, again = np.linalg.qr(new - self.E @ correction)
            inside = inside + correction @ coordinates
            coordinates = again @ coordinates
        return new, inside, coordinates


@cache
def _zero(size: int) -> _Range:
    """Return H = 0.  All iterates of this size use the same object, so that they share its cache of steps."""
    return _Range(np.zeros((size, 0), order="F"), np.zeros((0, 0), order="F"))


class Factored:
    """An iterate (H_t, C_t) of Algorithm 1, with ``H = E P Eᵀ``; it starts at H = 0.

    With a ``rank``, H keeps its leading directions after every step, at most this many, and P is
    diagonal.  Without one, H is exact, and ``change`` is the change of H in the last step, or None
    if H did not change.
    """

    def __init__(self, C: Array, n_side: int, rank: int | None = None) -> None:
        self.C, self.n_side, self.rank = C, n_side, rank
        self._range = _zero(len(C) * n_side)
        # H is ``_unit`` times ``_range``.  The unit is the first step size, so that different step
        # sizes share ranges.
        self._unit = 1.0
        self.change: Change | None = None

    @property
    def basis(self) -> Array:
        return self._range.E

    @property
    def P(self) -> Array:
        lower = self._unit * np.tril(self._range.P)
        return lower + np.tril(lower, -1).T

    @property
    def root(self) -> Array:
        """A with ``H = A Aᵀ``, for an iterate with a limited rank, whose P is diagonal."""
        return self.basis * np.sqrt(self._unit * self._range.P.diagonal())

    def dense_H(self) -> Array:
        """Return H as a (dk, dk) matrix."""
        return self.basis @ self.P @ self.basis.T

    def __call__(self, phi: Array) -> Array:
        """Return θ_t, the value of τ at the features ``phi`` (k,)."""
        if not len(self._range.P):
            return self.C
        return np.asarray(self._unit * self._range.at(phi)[1] + self.C)

    def step(self, gradient: Array, phi: Array, step_C: float, step_H: float) -> None:
        """Take a step of Algorithm 1, in place, for the gradient G (d, d) of the surrogate in θ.

        ``C ← proj(C − step_C · G)`` and ``H ← proj(H − step_H · (I ⊗ φ) G (I ⊗ φᵀ))``
        """
        if step_C != 0:
            moved = finite(self.C - step_C * gradient, "C")
            self.C = finite(project_psd(moved), "C")
        self.change = None
        # Inputs that are zero in the whole task (most items, with one-hot inputs) do not change H.
        used = np.flatnonzero(gradient.any(axis=0))
        if step_H == 0.0 or phi @ phi == 0.0 or not len(used):
            return
        before = self._range
        unit = self._unit if len(before.P) else step_H
        moved = -(step_H / unit) * gradient[np.ix_(used, used)]
        key = moved.tobytes(), phi.tobytes(), used.tobytes(), self.rank
        after = before.after.get(key)
        if after is None:
            after = before.after[key] = before.step(moved, phi, used, self.rank)
        moved = finite(unit * moved, "H")
        finite(unit * after.P.diagonal(), "H")
        if after.change is not None:
            values = finite(unit * after.change.values, "H")
            self.change = after.change._replace(moved=moved, values=values)
        self._range, self._unit = after, unit


def _joined(E: Array, new: Array) -> Array:
    """Return the columns of both, in Fortran order."""
    return np.concatenate([E.T, new.T]).T


def _drop(
    E: Array, new: Array, M: Array, values: Array, vectors: Array
) -> tuple[Array, Array, Array]:
    """Reflect the basis (E, new) so that the eigenvectors come last, and drop them.

    Return the remaining basis, its block P of M, and the eigenvectors in full length (dk).

    Rotate the vectors so that their last rows are a negative semidefinite block B, and let Y be the vectors minus the
    last columns of the identity.  ``Q = I − Y (I − B)⁻¹ Yᵀ`` is a reflection that maps these columns to the
    vectors.  No product with M is needed, because the vectors are its eigenvectors.
    """
    n, m = vectors.shape
    kept = n - m
    basis = _joined(E, new)
    if not m:
        return basis, M, basis[:, n:]
    removed = dgemm(1.0, basis, vectors)
    left, cosines, right = np.linalg.svd(vectors[kept:])
    turn = -right.T @ left.T
    # (I − B)⁻¹, where the eigenvalues of I − B lie between 1 and 2
    inverse = (left / (1.0 + cosines)) @ left.T
    Y = dgemm(1.0, vectors, turn)
    MY = dgemm(1.0, Y, (turn.T * values) @ turn) - _last_columns(M, m)
    EY = dgemm(
        -1.0, basis[:, kept:], inverse, 1.0, dgemm(1.0, removed, turn @ inverse), overwrite_c=True
    )
    Y[kept:].flat[:: m + 1] -= 1.0
    if kept:
        basis = dgemm(-1.0, EY, Y[:kept], 1.0, basis[:, :kept], trans_b=True, overwrite_c=True)
    X = dgemm(1.0, MY, inverse)
    X = dgemm(-0.5, Y, inverse @ (Y.T @ X), 1.0, X, overwrite_c=True)
    P = np.asfortranarray(dsyr2k(-1.0, X, Y, beta=1.0, c=M, lower=1, overwrite_c=1)[:kept, :kept])
    finite(P.diagonal(), "H")  # bounds the other entries, because P is positive semidefinite
    return basis[:, :kept], P, removed


def _last_columns(M: Array, m: int) -> Array:
    """Return the last m columns of a symmetric matrix given by its lower triangle."""
    columns = np.array(M[-m:].T, order="F")
    corner = np.tril(M[-m:, -m:])
    columns[-m:] = corner + np.tril(corner, -1).T
    return columns


def eigenpairs_below(M: Array, bound: float) -> tuple[Array, Array]:
    """Return the eigenpairs with eigenvalues up to ``bound`` of a symmetric matrix, given by its lower triangle."""
    n = len(M)
    if n <= SMALL:
        values, vectors = np.linalg.eigh(M)
        first = int(np.searchsorted(values, bound, side="right"))
        return values[:first], vectors[:, :first]
    # Blocks of 12 columns: LAPACK's default of 32 takes 7 to 25 % longer for n = 100 to 650.
    reflectors, diagonal, beside, tau, _ = dsytrd(M, lower=1, lwork=12 * n)
    values, vectors = eigh_tridiagonal(
        diagonal,
        beside,
        select="v",
        select_range=(-np.inf, bound),
        lapack_driver="stemr",
        check_finite=False,
    )
    # Move the vectors towards the nearest orthonormal ones, because errors accumulate over a run.
    vectors = np.asfortranarray(vectors @ (1.5 * np.eye(len(values)) - 0.5 * vectors.T @ vectors))
    vectors[1:] = dormqr(
        "L", "N", reflectors[1:, :-1], tau, vectors[1:], lwork=32 * len(values) + 4160
    )[0]
    return values, vectors
