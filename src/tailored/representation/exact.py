"""H of Algorithm 1 without a rank limit, at a third of the cost of `Factored`.

`Factored` diagonalises H at every step, although the projection only needs the eigenvectors with negative eigenvalues of
``H − γ (I ⊗ φ) G (I ⊗ φᵀ)``, at most d of them.  Here ``H = E P Eᵀ`` with an orthonormal basis E (dk, r) of its
range and a dense P.  A step computes these eigenvectors, reflects the basis so that they come last, and drops them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from scipy.linalg.blas import dgemm, dsymm, dsyr2k
from scipy.linalg.lapack import dormqr, dpotrf, dstein, dsytrd, dtrtri

from .._utils.compiling import njit
from .._utils.validation import check_shape
from .conditioning import RANK_TOLERANCE, Array, Index, Iterate, finite

#: Below this norm, the part of a direction outside the range is orthogonalised a second time.  With 0.1, the errors of
#: successive steps multiply and reach 1e-12 before the next cleaning.
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
        self.after: WeakValueDictionary[tuple[Any, ...], _Range] = WeakValueDictionary()
        self._cached: tuple[Array, Array, Array] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Range:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _Range, (self.E, self.P, self.n_steps, self.change)

    def at(self, phi: Array) -> tuple[Array, Array]:
        """Return ``V = Eᵀ (I ⊗ φ)`` (r, d) and ``Vᵀ P V``.  Cached, because a step needs V again."""
        cached = self._cached
        if cached is None or not np.array_equal(cached[0], phi):
            V = np.asarray(self.E.T.reshape(len(self.P), len(self.E) // len(phi), len(phi)) @ phi)
            tau = V.T @ dsymm(1.0, self.P, V, lower=1) if len(V) else np.zeros((V.shape[1], V.shape[1]))
            cached = self._cached = phi, V, tau
        return cached[1:]

    def step(self, moved: Array, phi: Array, used: Index) -> _Range:
        """Return the projection of ``E P Eᵀ + (I ⊗ φ) moved (I ⊗ φᵀ)`` onto the cone."""
        squared = float(phi @ phi)
        K, E, P, new = self._extended(phi, squared, used)
        r, n = len(P), len(K)
        M = np.zeros((n, n), order="F")
        M[:r, :r] = P
        # the lower triangle of P after the gradient step
        M = finite(dsyr2k(0.5, K @ (squared * moved), K, beta=1.0, c=M, lower=1, overwrite_c=1), "H")
        # Directions that are rounding noise relative to the largest one are dropped, too.
        noise = RANK_TOLERANCE * float(np.abs(M.diagonal()).max())
        values, vectors = eigenpairs_below(M, noise)
        E, P, removed = _drop(E, new, M, values, vectors)
        if (self.n_steps + 1) % CLEANING == 0:
            # Move the basis towards the nearest orthonormal one.
            E -= 0.5 * E @ (E.T @ E - np.eye(len(P)))
        return _Range(E, P, self.n_steps + 1, Change(phi, used, moved, removed, values))

    def _extended(self, phi: Array, squared: float, used: Index) -> tuple[Array, Array, Array, Array]:
        """Return K, E, P and new orthonormal directions; with E they span the columns ``used`` of ``I ⊗ φ / ‖φ‖``.

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
    """Return H = 0.  All iterates use the same object, so that they share its cache of steps."""
    return _Range(np.zeros((size, 0), order="F"), np.zeros((0, 0), order="F"))


class Exact(Iterate):
    """``(H, C)`` of Algorithm 1 with every direction of H; without ``basis`` (dk, r) and ``P`` (r, r), H = 0.

    ``change`` is the change of H in the last step, or None if H did not change.
    """

    def __init__(self, C: Array, n_side: int, basis: Array | None = None, P: Array | None = None) -> None:
        super().__init__(C, n_side)
        size = len(self.C) * n_side
        self._range = _zero(size)
        if basis is not None and P is not None:
            self._range = _Range(np.array(basis, dtype=float, order="F"), np.array(P, dtype=float, order="F"))
        check_shape("basis", self.basis, size, len(self._range.P))
        # H is ``_unit`` times ``_range``.  The unit is the first step size, so that different step sizes share ranges.
        self._unit = 1.0
        self.change: Change | None = None

    @property
    def basis(self) -> Array:
        return self._range.E

    @property
    def P(self) -> Array:
        lower = self._unit * np.tril(self._range.P)
        return lower + np.tril(lower, -1).T

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        tau = self._unit * self._range.at(phi)[1] + self.C
        return tau if columns is None else tau[np.ix_(columns, columns)]

    def scale(self, factor: float) -> Exact:
        return Exact(factor * self.C, self.n_side, self.basis, factor * self.P)

    def dense_H(self) -> Array:
        return self.basis @ self.P @ self.basis.T

    def _step_H(self, gradient: Array, phi: Array, step: float, columns: Index | None) -> None:
        self.change = None
        # Inputs that are zero in the whole task (most items, with one-hot inputs) do not change H.
        used = np.flatnonzero(gradient.any(axis=0))
        if step == 0.0 or phi @ phi == 0.0 or not len(used):
            return
        before = self._range
        unit = self._unit if len(before.P) else step
        moved = -(step / unit) * gradient[np.ix_(used, used)]
        used = used if columns is None else columns[used]
        key = moved.tobytes(), phi.tobytes(), used.tobytes()
        after = before.after.get(key)
        if after is None:
            after = before.after[key] = before.step(moved, phi, used)
        assert after.change is not None
        sizes = (moved, after.change.values, after.P.diagonal())
        moved, values, _ = (finite(unit * size, "H") for size in sizes)
        self._range, self._unit, self.change = after, unit, after.change._replace(moved=moved, values=values)


def _drop(E: Array, new: Array, M: Array, values: Array, vectors: Array) -> tuple[Array, Array, Array]:
    """Reflect the basis (E, new) so that the eigenvectors come last, and drop them.

    Return the remaining basis, its block P of M, and the eigenvectors in full length (dk).

    Rotate the vectors so that their last rows are a negative semidefinite block B, and let Y be the vectors minus the
    last columns of the identity.  ``Q = I − Y (I − B)⁻¹ Yᵀ`` is a reflection that maps these columns to the
    vectors.  No product with M is needed, because the vectors are its eigenvectors.
    """
    n, m = vectors.shape
    kept = n - m
    basis = np.concatenate([E.T, new.T]).T
    if not m:
        return basis, M, basis[:, n:]
    removed = dgemm(1.0, basis, vectors)
    left, cosines, right = np.linalg.svd(vectors[kept:])
    turn = -right.T @ left.T
    # (I − B)⁻¹, where the eigenvalues of I − B lie between 1 and 2
    inverse = (left / (1.0 + cosines)) @ left.T
    Y = dgemm(1.0, vectors, turn)
    MY = dgemm(1.0, Y, (turn.T * values) @ turn) - _last_columns(M, m)
    EY = dgemm(-1.0, basis[:, kept:], inverse, 1.0, dgemm(1.0, removed, turn @ inverse), overwrite_c=True)
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
    outside, work = np.pad(np.abs(beside), 1), np.empty((5, n))
    least = (diagonal - outside[:-1] - outside[1:]).min()  # Gershgorin's bound
    m = _bisect(diagonal, outside[:-1] ** 2, bound, least, work)
    values = work[0, :m].copy()
    if not m:
        return values, np.zeros((n, 0), order="F")
    vectors, _ = dstein(diagonal, beside, values, np.ones(n, np.int32), np.full(n, n, np.int32))
    # A step towards the nearest orthonormal vectors, because errors accumulate over a run.
    vectors = np.asfortranarray(vectors @ (1.5 * np.eye(m) - 0.5 * vectors.T @ vectors))
    vectors[1:] = dormqr("L", "N", reflectors[1:, :-1], tau, vectors[1:], lwork=32 * m + 4160)[0]
    return values, vectors


# A function that allocates nothing needs no reference counts, which would double the compile time.
_LEAF: Any = {"nogil": True, "cache": True, "error_model": "numpy", "_nrt": False}


@njit(**_LEAF)
def _bisect(diagonal: Array, squares: Array, bound: float, least: float, work: Array) -> int:
    """Set ``work[0]`` to the eigenvalues up to ``bound`` of a symmetric tridiagonal matrix; return their number.

    ``squares[i]`` is the square of the entry between rows i − 1 and i.  All intervals advance in one loop over the rows.
    LAPACK bisects the intervals one after another, which takes five times as long.
    """
    middle, low, high, pivots, below = work[0], work[1], work[2], work[3], work[4]
    m, middle[0] = 1, bound
    for sweep in range(62):  # the first counts the eigenvalues
        for j in range(m):
            pivots[j], below[j] = 1.0, 0.0
        for i in range(len(diagonal)):
            for j in range(m):
                s = diagonal[i] - middle[j] - squares[i] / pivots[j]
                pivots[j] = s if abs(s) > 1e-290 else -1e-290
                below[j] += 1.0 if pivots[j] < 0.0 else 0.0
        if sweep == 0:
            m = int(below[0])
            low[:m], high[:m], middle[:m] = least, bound, 0.5 * (least + bound)
            continue
        for j in range(m):
            if below[j] > j:
                high[j] = middle[j]
            else:
                low[j] = middle[j]
            middle[j] = 0.5 * (low[j] + high[j])
    return m
