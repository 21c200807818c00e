"""Conditioning functions τ(s), Eqs. 16 to 18 of the paper.

    τ(s) = (M φ)ᵀ M φ + C = (I_d ⊗ φᵀ) H (I_d ⊗ φ) + C ,    φ = Φ(s) (k,),  C ⪰ 0 (d, d)

M (p, d, k) is a tensor, and ``H ⪰ 0`` (dk, dk) has the entries ``H[(i−1)k + h, (j−1)k + z] = <M(:,
i, h), M(:, j, z)>`` (Prop. 3, Eq. 17).  T_Φ is the set of all these functions (Eq. 18), and those
with H = 0 are T^const.

`Conditioning` is a learned function.  It stores ``H = A Aᵀ``, where the columns of A are the slices
of M; then ``τ(s) = V Vᵀ + C`` with ``V = (I_d ⊗ φᵀ) A`` (d, p).  `Factored` is an iterate (H_t,
C_t) of Algorithm 1, with ``H = E P Eᵀ`` and an orthonormal basis E of the range of H.  A gradient
of one task lies in the d-dimensional range of ``I_d ⊗ φ``, so a projection is an eigenproblem of
size r + d instead of dk.  The gradient in θ has at most one negative eigenvalue, so a step adds at
most one direction to the r columns of E.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.linalg.blas import dgemm, dsymm, dsyr2k
from scipy.linalg.lapack import dgeqrt, dpotrf, dtrtri

from .._utils.records import Record

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Eigenvalues below this fraction of the largest one, in absolute value, are rounding noise.
RANK_TOLERANCE = 1e-14


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


def slices(directions: Array, phis: Array, n_features: int) -> Array:
    """Return ``Aᵀ (I ⊗ φ_s)`` for A (dk, r) at many feature vectors (T, k): an array (T, r, d)."""
    (T, k), r = phis.shape, directions.shape[1]
    return (phis @ directions.T.reshape(r * n_features, k).T).reshape(T, r, n_features)


@dataclass(frozen=True, eq=False)
class Conditioning(Record):
    """A learned function τ; without directions in A, it is the constant C (unconditional)."""

    C: Array  # (d, d)
    root: Array  # A with H = A Aᵀ, (dk, r)

    @classmethod
    def constant(cls, C: Array, n_side: int = 0) -> Self:
        """Return τ(s) = C, a function of k = ``n_side`` features with H = 0."""
        return cls(C, np.zeros((len(C) * n_side, 0)))

    @property
    def n_side(self) -> int:
        return len(self.root) // max(len(self.C), 1)

    @property
    def H(self) -> Array:
        """H as a (dk, dk) matrix."""
        return self.root @ self.root.T

    @property
    def depends_on_task(self) -> bool:
        """Whether τ can differ between tasks: H ≠ 0, or τ is given by the user."""
        return bool(self.root.size)

    def __call__(self, phi: Array) -> Array:
        """Return τ at one feature vector ``phi`` (k,), a (d, d) matrix."""
        return np.array(self.evaluate(phi[None])[0])

    def evaluate(self, phis: Array) -> Array:
        """Return τ at many feature vectors ``phis`` (T, k): an array (T, d, d)."""
        taus = np.broadcast_to(self.C, (len(phis), *self.C.shape))
        if not self.depends_on_task:
            return taus
        taus = taus.copy()
        for start in range(0, len(phis), 64):  # blocks limit the memory
            block = slice(start, start + 64)
            V = slices(self.root, phis[block], len(self.C))
            taus[block] += V.transpose(0, 2, 1) @ V
        return taus

    def scale(self, factor: float) -> Self:
        """Return the conditioning function ``factor · τ``."""
        return type(self)(factor * self.C, np.sqrt(factor) * self.root)

    def mean(self, moment: Array) -> Array:
        """Return the mean of τ over tasks with mean φφᵀ = ``moment`` (k, k)."""
        M = self.root.reshape(len(self.C), len(moment), -1)
        return np.asarray(self.C + np.einsum("ihp,hz,jzp->ij", M, moment, M, optimize=True))


class Given(Conditioning):
    """τ(s) given by the user: φ(s) has its entries, row by row (`feature_maps.CallableMap`)."""

    depends_on_task = True

    @property
    def n_side(self) -> int:
        return len(self.C) ** 2

    @property
    def H(self) -> Array:
        raise AttributeError("H_: a given function τ has no H; representation() returns its values")

    def evaluate(self, phis: Array) -> Array:
        return phis.reshape(-1, *self.C.shape)


class Change(NamedTuple):
    """Change of H in one step: ``(I ⊗ φ) moved (I ⊗ φᵀ) − removed diag(values) removedᵀ``."""

    phi: Array
    moved: Array  # (d, d)
    removed: Array  # eigenvectors (dk, p) that the projection removed
    values: Array  # eigenvalues (p,) of ``removed``, negative up to rounding


@dataclass(eq=False)
class Range:
    """``E P Eᵀ`` with an orthonormal basis E (dk, r); only the lower triangle of P (r, r) is read.
    Not modified.
    """

    E: Array
    P: Array
    n_steps: int = 0
    removed: Any = None  # eigenvectors and eigenvalues that the last step removed
    _cached: tuple[Array, Array, Array] | None = None

    def at(self, phi: Array) -> tuple[Array, Array]:
        """Return ``V = Eᵀ (I ⊗ φ)`` (r, d) and ``Vᵀ P V``.  Cached, because a step needs V
        again.
        """
        cached = self._cached
        if cached is None or not np.array_equal(cached[0], phi):
            V = np.asarray(self.E.T.reshape(len(self.P), len(self.E) // len(phi), len(phi)) @ phi)
            PV = dsymm(1.0, self.P, V, lower=1) if len(V) else V
            cached = self._cached = phi, V, V.T @ PV
        return cached[1:]

    def step(self, moved: Array, phi: Array, used: Index, rank: int | None) -> Range:
        """Return the projection of ``E P Eᵀ + (I ⊗ φ) moved (I ⊗ φᵀ)`` onto the cone.

        ``moved`` (m, m) has the inputs ``used``.  With a ``rank``, the leading directions are kept,
        and P is diagonal.
        """
        basis, K, P = self._extended(phi, used)
        M = np.zeros((len(K), len(K)), order="F")
        M[: len(P), : len(P)] = P
        # the lower triangle of P after the gradient step
        M = dsyr2k(0.5, K @ (phi @ phi * moved), K, beta=1.0, c=M, lower=1, overwrite_c=1)
        # Directions that are rounding noise relative to the largest one are dropped, too.
        noise = RANK_TOLERANCE * float(np.abs(finite(M, "H").diagonal()).max())
        if rank is None:
            # fewer than all eigenvectors, which takes a third of the time
            values, vectors = eigh(
                M, subset_by_value=(-np.inf, noise), driver="evr", check_finite=False
            )
            E, P, removed = _drop(basis, M, vectors)
        else:
            values, vectors = np.linalg.eigh(M)
            first = max(int(np.searchsorted(values, noise, side="right")), len(M) - rank)
            E, P, removed = dgemm(1.0, basis, vectors[:, first:]), np.diag(values[first:]), None
        if (self.n_steps + 1) % 100 == 0:
            # Rounding errors accumulate: move the basis towards the nearest orthonormal one.
            E -= 0.5 * E @ (E.T @ E - np.eye(len(P)))
        return Range(E, P, self.n_steps + 1, (removed, values))

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
            P = np.tril(self.P) + np.tril(self.P, -1).T
            return np.eye(size), columns, self.E @ P @ self.E.T
        inside = self.at(phi)[0][:, used] / norm
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


class Factored:
    """An iterate (H_t, C_t) of Algorithm 1, with ``H = unit · E P Eᵀ``; it starts at H = 0.

    With a ``rank``, H keeps its leading directions after every step, at most this many, and P is
    diagonal.  Without one, H is exact, and ``change`` is the change of H in the last step, or None
    if H did not change.  With its step size as the ``unit``, the steps of a run do not depend on it
    as long as the gradients do not.
    """

    def __init__(self, C: Array, n_side: int, rank: int | None = None, unit: float = 1.0) -> None:
        self.C, self.n_side, self.rank, self.unit = C, n_side, rank, unit
        self.range = Range(np.zeros((len(C) * n_side, 0), order="F"), np.zeros((0, 0), order="F"))
        self.change: Change | None = None

    @property
    def P(self) -> Array:
        lower = self.unit * np.tril(self.range.P)
        return lower + np.tril(lower, -1).T

    @property
    def root(self) -> Array:
        """A with ``H = A Aᵀ``, for an iterate with a limited rank, whose P is diagonal."""
        return self.range.E * np.sqrt(self.unit * self.range.P.diagonal())

    def dense_H(self) -> Array:
        """Return H as a (dk, dk) matrix."""
        return self.range.E @ self.P @ self.range.E.T

    def __call__(self, phi: Array) -> Array:
        """Return θ_t, the value of τ at the features ``phi`` (k,)."""
        if not len(self.range.P):
            return self.C
        return np.asarray(self.unit * self.range.at(phi)[1] + self.C)

    def step(
        self,
        gradient: Array,
        phi: Array,
        step_C: float,
        step_H: float,
        shared: dict[Any, Range] | None = None,
    ) -> None:
        """Take a step of Algorithm 1, in place, for the gradient G (d, d) of the surrogate in θ.

        ``C ← proj(C − step_C · G)`` and ``H ← proj(H − unit · step_H · (I ⊗ φ) G (I ⊗ φᵀ))``

        Iterates that take steps at the same φ can have a dictionary ``shared``, so that equal steps
        are computed once. The signs of the residuals, and hence the gradients of piecewise-linear
        losses, are often equal for different small step sizes.
        """
        if step_C != 0:
            self.C = finite(project_psd(finite(self.C - step_C * gradient, "C")), "C")
        self.change = None
        # Inputs that are zero in the whole task (most items, with one-hot inputs) do not change H.
        used = np.flatnonzero(gradient.any(axis=0))
        if step_H == 0.0 or phi @ phi == 0.0 or not len(used):
            return
        change = finite(-self.unit * step_H * gradient, "H")
        before, shared = self.range, {} if shared is None else shared
        moved = -step_H * gradient[np.ix_(used, used)]
        key = before if len(before.P) else None, moved.tobytes(), self.rank
        if key not in shared:
            shared[key] = before.step(moved, phi, used, self.rank)
        after = shared[key]
        finite(self.unit * after.P.diagonal(), "H")
        if self.rank is None:
            removed, values = after.removed
            values = finite(self.unit * values, "H")
            self.change = Change(phi, change, removed, values)
        self.range = after


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
