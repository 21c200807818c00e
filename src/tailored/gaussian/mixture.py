"""A Gaussian mixture as the prior of the coefficients of a task.

    w ~ Σ_k π_k(s) N(b_k + Γ v(s), W_k) ,    y = Xw + noise of variance σ² ,

where v(s) are features of the side information of a task.  Without `Mixture.gates`, π_k is the same
for all tasks.  With one component (K = 1), this is a linear mixed model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record, cached_property
from ..tasks.rows import Array

#: Eigenvalues of W below `TINY`, or below the fraction `EXACT` of the largest, are treated as zero;
#: so are those below the fraction `SMALL_EIGENVALUE` of the largest and below the fraction
#: `LEAST_SIGNAL` of σ², which rows of unit size do not see.
SMALL_EIGENVALUE, LEAST_SIGNAL, EXACT, TINY = 1e-6, 1e-9, 1e-13, float(np.finfo(float).tiny)


@cache
def lower_triangle(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Return the row and column of each entry of a packed (d, d) matrix, and its multiplicity: 2
    off the diagonal.
    """
    i, j = np.tril_indices(d)
    return i, j, np.where(i == j, 1.0, 2.0)


@cache
def unpacked(d: int) -> NDArray[np.intp]:
    """Return the position of each entry of a symmetric (d, d) matrix in its packed form."""
    i, j = np.indices((d, d))
    low, high = np.minimum(i, j), np.maximum(i, j)
    return np.asarray(high * (high + 1) // 2 + low)


def log_gates(gates: Array, side: Array) -> Array:
    """Return the log mixing weights (T, K), ``π_k(s) ∝ exp(a_k + <A_k, v(s)>)``, for gates (a, A)
    (K, 1 + q).
    """
    # scipy.special.log_softmax is avoided: its overhead exceeds the cost of the posterior of a
    # task.
    logits = gates[:, 0] + side @ gates[:, 1:].T
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.asarray(logits)


class Want(NamedTuple):
    """The parts of `Expected` to compute, in addition to evidence and responsibilities."""

    means: bool = False
    covariances: bool = False
    sums: bool = False


EVIDENCE = Want()


@dataclass(frozen=True)
class Shrinkage:
    """An inverse-Wishart prior on every W_k, equivalent to ``n_tasks`` additional tasks with
    covariance ``target``.
    """

    n_tasks: float
    target: Array


class Components(NamedTuple):
    """The covariances of the K components, in the form in which posteriors are computed.

    A component is described in coordinates u with ``w = b + L u``.  If W has full rank, L is the
    identity; otherwise L is a root of W with ``ranks[k]`` columns.
    """

    roots: Array  # (K, d, d) the first ranks[k] rows are the columns of L; zero if the rank is full
    ranks: NDArray[np.int64]  # (K,)
    precisions: Array  # (K, d (d + 1) / 2) P = σ² Cov(u)⁻¹, packed
    log_determinants: Array  # (K,) log |W| if the rank is full, otherwise zero
    all_full: bool  # whether all ranks are full
    #: (.., 1) means, squared pivots of the Cholesky factors of P, and negative roots unless
    #: all_full
    constants: Array


@dataclass(frozen=True)
class Mixture(Record):
    """Parameters of the mixture.  If ``gates`` are given, π_k(s) is computed from them instead of
    the proportions.
    """

    proportions: Array  # (K,) π
    means: Array  # (K, d) b
    covariances: Array  # (K, d, d) W
    noise: float  # σ²
    side: Array | None = None  # (d, q) Γ
    gates: Array | None = None  # (K, 1 + q) coefficients of the mixing weights, intercepts first

    @property
    def n_components(self) -> int:
        return len(self.proportions)

    @property
    def parts(self) -> list[Mixture]:
        """Models with one of the components each."""
        pairs = zip(self.means, self.covariances, strict=True)
        return [Mixture(np.ones(1), b[None], W[None], self.noise, self.side) for b, W in pairs]

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues (K, d), increasing, and eigenvectors (K, d, d) of the covariances."""
        values, vectors = np.linalg.eigh(self.covariances)
        return values, vectors

    @cached_property
    def components(self) -> Components:
        values, vectors = self.eigen
        K, d = values.shape
        ranks = np.array([root.shape[1] for root in self.factors])
        i, j, _ = lower_triangle(d)
        W, divisors, singular = self.covariances, values, np.flatnonzero(ranks < d)
        if len(singular):
            W, divisors = W.copy(), values.copy()
            W[singular], divisors[singular] = np.eye(d), 1.0
        inverses = np.matmul(vectors / divisors[:, None, :], vectors.transpose(0, 2, 1))
        # `take` returns a contiguous array; the kernel is compiled for one memory order.
        precisions = self.noise * inverses.reshape(K, d * d).take(i * d + j, axis=1)
        # W = UUᵀ with an upper triangular U, so the Cholesky factor of W⁻¹ is U⁻ᵀ.
        upper = np.linalg.cholesky(W[:, ::-1, ::-1]).diagonal(axis1=1, axis2=2)[:, ::-1]
        floors = self.noise / (upper * upper)
        roots, diagonal = np.zeros((K, d, d)), np.arange(d)
        for c in singular:
            roots[c, : ranks[c]] = self.factors[c].T
            precisions[c], floors[c] = 0.0, self.noise
            precisions[c, (diagonal * (diagonal + 3) // 2)[: ranks[c]]] = self.noise
        all_full, parts = not len(singular), (self.means, floors, -roots[: len(singular) * K])
        constants = np.concatenate([part.reshape(-1, 1) for part in parts])
        log_determinants = np.log(divisors).sum(axis=1)
        return Components(roots, ranks, precisions, log_determinants, all_full, constants)

    @cached_property
    def factors(self) -> list[Array]:
        """The root L (d, p) of each covariance W = LLᵀ; its columns are ordered by increasing
        norm.
        """
        values, vectors = self.eigen
        least = np.minimum(SMALL_EIGENVALUE * values[:, -1:], LEAST_SIGNAL * self.noise)
        kept = values > np.maximum(np.maximum(least, EXACT * values[:, -1:]), TINY)
        return [v[:, k] * np.sqrt(e[k]) for e, v, k in zip(values, vectors, kept, strict=True)]

    @cached_property
    def bases(self) -> tuple[Array, Array, Array]:
        """The root L (d, p) of the first covariance, its pseudo-inverse L⁺ (p, d), and a basis N
        (d, d − p) of the null space.
        """
        L, vectors = self.factors[0], self.eigen[1][0]
        return L, (L / (L**2).sum(axis=0)).T, vectors[:, : len(L) - L.shape[1]]

    def log_proportions(self, side: Array | None) -> Array:
        """Return log π, (K,), or (T, K) if there are gates."""
        if self.gates is None:
            return np.log(self.proportions)
        assert side is not None
        return log_gates(self.gates, side)

    def effects(self, side: Array | None) -> Array | None:
        """Return Γ v(s) of each task, (T, d); None if side information has no effect on the
        mean.
        """
        if self.side is None:
            return None
        assert side is not None
        return np.asarray(side @ self.side.T)

    def mean_covariance(self, shares: Array) -> Array:
        """Return ``Σ_k r_k W_k`` of each task, (T, d, d), for responsibilities (T, K)."""
        return np.asarray(np.tensordot(shares, self.covariances, 1))

    def scaled(self, factor: float) -> Self:
        """Return the model with ``factor`` times the covariances."""
        return self if factor == 1.0 else replace(self, covariances=factor * self.covariances)

    def moments(self) -> tuple[Array, Array]:
        """Return the mean (d,) and covariance (d, d) of w over all tasks, without Γ v(s)."""
        mean = self.proportions @ self.means
        centred = self.means - mean
        covariances = self.covariances + np.einsum("ki,kj->kij", centred, centred)
        return mean, np.tensordot(self.proportions, covariances, 1)
