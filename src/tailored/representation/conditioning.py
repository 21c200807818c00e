"""Conditioning functions: side information features φ in, representation τ(s) out.

Every class here is one way to hold the pair ``(H, C)`` of the paper's Eq. (feature-space-T),

    τ(s) = (I_d ⊗ φᵀ) H (I_d ⊗ φ) + C ,    H ⪰ 0 (dk, dk),  C ⪰ 0 (d, d),

behind one interface: evaluate, take a projected gradient step, average.  `Constant` has H = 0,
`Dense` stores H, `Factored` stores an eigenbasis of H and never forms anything of size dk × dk.
Linear algebra only: no tasks, no losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

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


class Conditioning(ABC):
    """The interface of a conditioning function τ with parameters ``(H, C)``.

    Parameters named ``columns`` restrict everything to some of the d inputs: a sparse task only
    ever sees the block of τ(s) that belongs to its non-zero columns.
    """

    C: Array
    n_side: int

    @property
    def n_features(self) -> int:
        return self.C.shape[0]

    @abstractmethod
    def __call__(self, phi: Array, columns: NDArray[np.intp] | None = None) -> Array:
        """τ at one feature vector ``phi`` (k,): a (d, d) matrix, or its block at ``columns``."""

    @abstractmethod
    def evaluate(self, phis: Array) -> Array:
        """τ at many feature vectors ``phis`` (T, k): an array (T, d, d)."""

    @abstractmethod
    def multiply(self, phi: Array, columns: NDArray[np.intp], vector: Array) -> Array:
        """``τ(s)[:, columns] @ vector`` without forming τ(s)."""

    @abstractmethod
    def step(
        self,
        gradient: Array,
        phi: Array,
        step_C: float,
        step_H: float,
        columns: NDArray[np.intp] | None = None,
    ) -> None:
        """One projected gradient step (paper's Alg. meta_alg), in place.

        ``C ← proj(C − step_C · G)`` and ``H ← proj(H − step_H · (I ⊗ φ) G (I ⊗ φᵀ))`` where G
        is the gradient of the objective in θ, given on ``columns`` when these are.
        """

    @abstractmethod
    def accumulate(self, other: Conditioning, weight: float) -> None:
        """``(H, C) ← (1 − weight) (H, C) + weight · (H', C')``, in place: the running average."""

    @abstractmethod
    def scale(self, factor: float) -> Conditioning:
        """The conditioning function ``factor · τ``."""

    @abstractmethod
    def tensor(self) -> Array:
        """A tensor M (p, d, k) with ``τ(s) = (MΦ)ᵀ MΦ + C`` (paper's Eq. parametrization)."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """What has to be stored to rebuild this function."""

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

    def _step_C(self, gradient: Array, step: float, columns: NDArray[np.intp] | None) -> None:
        if step == 0:
            return
        moved = self.C.copy()
        if columns is None:
            moved -= step * gradient
        else:
            moved[np.ix_(columns, columns)] -= step * gradient
        self.C = _finite(project_psd(_finite(moved, "C")), "C")

    def _C_block(self, columns: NDArray[np.intp] | None) -> Array:
        return self.C if columns is None else self.C[np.ix_(columns, columns)]


class Constant(Conditioning):
    """τ(s) = C for every task: the unconditional case."""

    def __init__(self, C: Array, n_side: int = 0) -> None:
        self.C = np.array(C, dtype=float)
        self.n_side = n_side

    def __call__(self, phi: Array, columns: NDArray[np.intp] | None = None) -> Array:
        return self._C_block(columns)

    def evaluate(self, phis: Array) -> Array:
        return np.broadcast_to(self.C, (len(phis), *self.C.shape))

    def multiply(self, phi: Array, columns: NDArray[np.intp], vector: Array) -> Array:
        return self.C[:, columns] @ vector

    def step(
        self,
        gradient: Array,
        phi: Array,
        step_C: float,
        step_H: float,
        columns: NDArray[np.intp] | None = None,
    ) -> None:
        self._step_C(gradient, step_C, columns)

    def accumulate(self, other: Conditioning, weight: float) -> None:
        self.C = (1.0 - weight) * self.C + weight * other.C

    def scale(self, factor: float) -> Constant:
        return Constant(factor * self.C, self.n_side)

    def tensor(self) -> Array:
        return np.zeros((0, self.n_features, self.n_side))

    def arrays(self) -> dict[str, Array]:
        return {"C": self.C}


class Dense(Conditioning):
    """H as a full (dk, dk) matrix: the plain reading of the paper and the oracle of `Factored`."""

    def __init__(self, H: Array, C: Array) -> None:
        self.C = np.array(C, dtype=float)
        self.H = np.array(H, dtype=float)
        self.n_side = self.H.shape[0] // self.n_features

    @classmethod
    def from_tensor(cls, M: Array, C: Array) -> Dense:
        """``H_M`` of Prop. matricial_rewriting: H[(i,h), (j,z)] = <M[:, i, h], M[:, j, z]>."""
        unfolded = M.reshape(M.shape[0], -1)
        return cls(unfolded.T @ unfolded, C)

    def __call__(self, phi: Array, columns: NDArray[np.intp] | None = None) -> Array:
        d, k = self.n_features, self.n_side
        half = self.H.reshape(d * k * d, k) @ phi
        tau = np.einsum("ihj,h->ij", half.reshape(d, k, d), phi) + self.C
        return tau if columns is None else tau[np.ix_(columns, columns)]

    def evaluate(self, phis: Array) -> Array:
        out = np.empty((len(phis), self.n_features, self.n_features))
        for t, phi in enumerate(phis):
            out[t] = self(phi)
        return out

    def multiply(self, phi: Array, columns: NDArray[np.intp], vector: Array) -> Array:
        return self(phi)[:, columns] @ vector

    def step(
        self,
        gradient: Array,
        phi: Array,
        step_C: float,
        step_H: float,
        columns: NDArray[np.intp] | None = None,
    ) -> None:
        self._step_C(gradient, step_C, columns)
        if step_H == 0:
            return
        d, k = self.n_features, self.n_side
        rows = np.arange(d) if columns is None else columns
        moved = self.H.copy().reshape(d, k, d, k)
        outer = np.outer(phi, phi)
        moved[np.ix_(rows, np.arange(k), rows, np.arange(k))] -= step_H * np.einsum(
            "ij,hz->ihjz", gradient, outer
        )
        self.H = _finite(project_psd(_finite(moved.reshape(d * k, d * k), "H")), "H")

    def accumulate(self, other: Conditioning, weight: float) -> None:
        self.C = (1.0 - weight) * self.C + weight * other.C
        self.H *= 1.0 - weight
        if isinstance(other, Factored):
            if other.basis.shape[1]:
                root = other.basis * np.sqrt(weight * other.eigenvalues)
                self.H += root @ root.T
        else:
            self.H += weight * other.dense_H()

    def scale(self, factor: float) -> Dense:
        return Dense(factor * self.H, factor * self.C)

    def dense_H(self) -> Array:
        return self.H

    def tensor(self) -> Array:
        values, vectors = np.linalg.eigh(self.H)
        keep = values > RANK_TOLERANCE * max(values[-1], 0.0)
        unfolded = (vectors[:, keep] * np.sqrt(values[keep])).T
        return unfolded.reshape(-1, self.n_features, self.n_side)

    def arrays(self) -> dict[str, Array]:
        return {"H": self.H, "C": self.C}


class Factored(Conditioning):
    """H = Q diag(λ) Qᵀ with at most ``rank`` orthonormal columns Q (dk, r).

    The gradient of one task lives in the d-dimensional range of ``I_d ⊗ φ``, so the projection onto
    the cone is an eigenproblem of size r + d instead of dk.  ``rank=None`` drops nothing and is
    exact; G has at most one negative eigenvalue, so each step adds at most one direction.
    """

    def __init__(
        self, basis: Array, eigenvalues: Array, C: Array, n_side: int, rank: int | None = None
    ) -> None:
        self.C = np.array(C, dtype=float)
        self.n_side = n_side
        self.rank = rank
        self.basis = basis
        self.eigenvalues = eigenvalues

    @classmethod
    def zero(cls, C: Array, n_side: int, rank: int | None = None) -> Factored:
        """H = 0: where Alg. meta_alg starts."""
        return cls(np.zeros((C.shape[0] * n_side, 0)), np.zeros(0), C, n_side, rank)

    @classmethod
    def from_tensor(cls, M: Array, C: Array, rank: int | None = None) -> Factored:
        p, d, k = M.shape
        out = cls.zero(C, k, rank)
        # Not through the Gram matrix: steps need the directions of small eigenvalues orthonormal too.
        vectors, singular, _ = np.linalg.svd(M.reshape(p, d * k).T, full_matrices=False)
        out._keep(singular[::-1] ** 2, vectors[:, ::-1])
        return out

    def _slices(self, phi: Array) -> Array:
        """``(I ⊗ φᵀ) Q`` as (d, r)."""
        d, k = self.n_features, self.n_side
        return np.matmul(phi, self.basis.reshape(d, k, -1))

    def _factor(self, phi: Array) -> Array:
        return self._slices(phi) * np.sqrt(self.eigenvalues)

    def __call__(self, phi: Array, columns: NDArray[np.intp] | None = None) -> Array:
        V = self._factor(phi)
        if columns is not None:
            V = V[columns]
        return V @ V.T + self._C_block(columns)

    def evaluate(self, phis: Array) -> Array:
        d, k, r = self.n_features, self.n_side, self.basis.shape[1]
        root = (self.basis * np.sqrt(self.eigenvalues)).reshape(d, k, r)
        V = (phis @ root.transpose(1, 0, 2).reshape(k, d * r)).reshape(len(phis), d, r)
        tau = np.matmul(V, V.transpose(0, 2, 1))
        tau += self.C
        return tau

    def multiply(self, phi: Array, columns: NDArray[np.intp], vector: Array) -> Array:
        V = self._factor(phi)
        return V @ (V[columns].T @ vector) + self.C[:, columns] @ vector

    def step(
        self,
        gradient: Array,
        phi: Array,
        step_C: float,
        step_H: float,
        columns: NDArray[np.intp] | None = None,
    ) -> None:
        self._step_C(gradient, step_C, columns)
        norm = float(np.linalg.norm(phi))
        if step_H == 0 or norm == 0:
            return
        d, k, r = self.n_features, self.n_side, self.basis.shape[1]
        rows = np.arange(d) if columns is None else columns
        m = len(rows)
        update = _finite((step_H * norm**2) * gradient, "H")
        if r + m >= d * k:
            # The basis already spans (nearly) everything: there is no smaller eigenproblem than H's own.
            full = Dense(self.dense_H(), self.C)
            full.step(gradient, phi, 0.0, step_H, columns)
            self._keep(*np.linalg.eigh(full.H))
            return
        blocks = np.zeros((d, k, m))
        blocks[rows, :, np.arange(m)] = phi / norm
        directions = blocks.reshape(d * k, m)
        # Twice is enough (Kahan, Parlett): one pass leaves an error when φ is close to an earlier one.
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
        if not isinstance(other, Factored):
            raise TypeError("a factored average is fed with factored iterates")
        self.C = (1.0 - weight) * self.C + weight * other.C
        own = self.basis * np.sqrt((1.0 - weight) * self.eigenvalues)
        self._compress(np.hstack([own, other.basis * np.sqrt(weight * other.eigenvalues)]))

    def scale(self, factor: float) -> Factored:
        return Factored(self.basis, factor * self.eigenvalues, factor * self.C, self.n_side, self.rank)

    def _compress(self, root: Array) -> None:
        """Store ``root @ root.T`` through the (small) Gram matrix of ``root``.

        Good enough for averages, which are evaluated and averaged again but never take a step: directions
        of tiny eigenvalues may lose their orthogonality, the product keeps its accuracy.
        """
        values, vectors = np.linalg.eigh(root.T @ root)
        keep = values > RANK_TOLERANCE * values.max(initial=0.0)
        values, vectors = values[keep], vectors[:, keep]
        self._keep(values, vectors / np.sqrt(values), root)

    def _keep(self, values: Array, vectors: Array, basis: Array | None = None) -> None:
        """Keep the leading eigenpairs (ascending ``values``); the rest is projected away."""
        noise = RANK_TOLERANCE * np.abs(values).max(initial=0.0)
        first = int(np.searchsorted(values, noise, side="right"))
        if self.rank is not None:
            first = max(first, len(values) - self.rank)
        vectors = vectors[:, first:]
        self.basis = vectors if basis is None else basis @ vectors
        self.eigenvalues = _finite(values[first:], "H")

    def tensor(self) -> Array:
        unfolded = (self.basis * np.sqrt(self.eigenvalues)).T
        return unfolded.reshape(-1, self.n_features, self.n_side)

    def spectrum(self) -> Array:
        return self.eigenvalues[::-1]

    def arrays(self) -> dict[str, Array]:
        return {"basis": self.basis, "eigenvalues": self.eigenvalues, "C": self.C}


def _finite(matrix: Array, name: str) -> Array:
    if not np.isfinite(matrix).all():
        raise OverflowError(f"the iterate {name} is no longer finite")
    return matrix
