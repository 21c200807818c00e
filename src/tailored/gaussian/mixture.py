"""The Gaussian model of an environment of tasks, and what a task's rows say under it.

A task's weights come from a mixture of K Gaussians, its targets from the weights:

    w ~ Σ_k π_k(s) N(b_k + Γ v(s), W_k) ,    y = Xw + noise of variance σ² ,

where v(s) are features of a task's description, if it has one; without gates π_k is the same for all tasks.
K = 1 is the linear mixed model with a full covariance of the random slopes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.algebra import solve
from .._utils.records import Record, cached_property
from .._utils.threads import in_threads
from . import dual
from .gates import log_gates
from .moments import NEGLIGIBLE, Moments, Summed
from .passes import expect
from .statistics import TaskStatistics

Array = NDArray[np.float64]

#: Directions of W below this fraction of its largest eigenvalue are taken as absent.
ROOT_TOLERANCE = 1e-6


def root(W: Array) -> Array:
    """L (d, p) with ``L Lᵀ = W`` up to `ROOT_TOLERANCE`; p is the numerical rank."""
    values, vectors = np.linalg.eigh(W)
    keep = values > ROOT_TOLERANCE * max(values[-1], np.finfo(float).tiny)
    return vectors[:, keep] * np.sqrt(values[keep])


@cache
def _lower(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Rows and columns of packed (d, d) matrices, and 2 where an entry stands for two, off the diagonal."""
    i, j = np.tril_indices(d)
    return i, j, np.where(i == j, 1.0, 2.0)


class Sums(NamedTuple):
    """What `tailored.gaussian.passes.expect` sums over tasks, in the coordinates of each component."""

    first: Array
    second: Array
    quadratics: Array

    @classmethod
    def room(cls, *shape: int) -> Sums:
        """For (.., K, d)."""
        *before, d = shape
        return cls(np.empty(shape), np.empty((*before, d * (d + 1) // 2)), np.empty(before))


class Coordinates(NamedTuple):
    """The components as `tailored.gaussian.passes` reads them: L (K, d, d), ranks, packed P, log determinants.

    Those of a component with full-rank W are the weights' own; otherwise they are those of its `root`.
    """

    roots: Array
    ranks: NDArray[np.int64]
    precisions: Array
    log_determinants: Array

    @classmethod
    def of(cls, values: Array, vectors: Array, noise: float) -> Coordinates:
        """For W_k with these eigenvalues and eigenvectors."""
        K, d = values.shape
        kept = values > ROOT_TOLERANCE * np.maximum(values[:, -1:], np.finfo(float).tiny)
        ranks = kept.sum(axis=1)
        full = (ranks == d)[:, None]
        i, j, _ = _lower(d)
        divisors = np.where(full, values, 1.0)
        whole = np.matmul(vectors / divisors[:, None, :], vectors.transpose(0, 2, 1))
        # In the one order of memory that the pass is compiled for.
        precisions = np.ascontiguousarray(noise * whole[:, i, j])
        roots, diagonal = np.zeros((K, d, d)), np.arange(d)
        for k in np.flatnonzero(ranks < d):
            roots[k, : ranks[k]] = (vectors[k][:, kept[k]] * np.sqrt(values[k][kept[k]])).T
            precisions[k] = 0.0
            precisions[k, (diagonal * (diagonal + 3) // 2)[: ranks[k]]] = noise
        return cls(roots, ranks, precisions, np.log(divisors).sum(axis=1))

    def moments(self, log_evidence: float, counts: Array, sums: Sums) -> Moments:
        """The sums for the weights themselves."""
        d = sums.first.shape[1]
        i, j, twice = _lower(d)
        first, second = sums.first.copy(), np.empty((len(sums.first), d, d))
        second[:, i, j] = second[:, j, i] = sums.second
        for k in np.flatnonzero(self.ranks < d):
            first[k] = first[k] @ self.roots[k]
            second[k] = self.roots[k].T @ second[k] @ self.roots[k]
        # ‖y − Xw‖² is the quadratic form less (w − b)ᵀP(w − b).
        residual = float(sums.quadratics.sum() - np.sum(twice * self.precisions * sums.second))
        return Moments(log_evidence, counts, first, second, residual)


class Expectation(NamedTuple):
    """The E-step: log evidence (T,) of the mixture, responsibilities (T, K), posterior means (T, K, d) of w."""

    log_evidence: Array
    responsibilities: Array
    means: Array


class TaskPriors(NamedTuple):
    """What the model knows of T tasks: responsibilities (T, K), τ(s) (T, d, d), b(s) (T, d).

    ``correction`` (T, d) is the part of b(s) that makes the posterior mean of the mixture the solution of a
    task; None where τ and b are the mixture's moments alone.
    """

    responsibilities: Array
    tau: Array
    b: Array
    correction: Array | None = None


@dataclass(frozen=True)
class Mixture(Record):
    """Parameters π (K,), b (K, d), W (K, d, d), σ², Γ (d, q) (None: zero) and gates of the module's text.

    ``gates`` (K, 1 + q) take the place of the proportions where there are any.  ``averaged`` says whether a task's
    weights are the posterior mean of the mixture, or those under one Gaussian with its moments; where the
    component is certain the two are the same.
    """

    proportions: Array
    means: Array
    covariances: Array
    noise: float
    side: Array | None = None
    gates: Array | None = None
    averaged: bool = False

    @property
    def n_components(self) -> int:
        return len(self.proportions)

    @cached_property
    def roots(self) -> list[Array]:
        """`root` of each W_k: adapting to a single task would cost more in these than in anything else."""
        return [root(W) for W in self.covariances]

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues (K, d), increasing, and eigenvectors (K, d, d) of the W_k."""
        values, vectors = np.linalg.eigh(self.covariances)
        return values, vectors

    @cached_property
    def coordinates(self) -> Coordinates:
        return Coordinates.of(*self.eigen, self.noise)

    def expect(self, statistics: TaskStatistics) -> Expectation:
        """Which component each task comes from, and its weights (without Γv) under each."""
        means = np.empty((len(statistics), *self.means.shape))
        log_evidence, responsibilities = self._pass(statistics, means=means)
        return Expectation(log_evidence, responsibilities, means)

    def log_evidence(self, statistics: TaskStatistics) -> Array:
        """log p(y) of each task, (T,)."""
        return self._pass(statistics)[0]

    def summed(self, statistics: TaskStatistics, among: NDArray[np.bool_] | None = None) -> Summed:
        """The E-step of these tasks as the sums that the M-step needs.

        ``among`` (T, K) says which components a task is asked about; under the others it has no evidence.
        """
        if statistics.rows is not None:
            log_evidence, r, seen = self._pass_of_rows(statistics, among)
            total = float(log_evidence.sum())
            return Summed(dual.moments(statistics.stacks, seen, self.covariances, self.noise, r, total), r)
        sums = Sums.room(*self.means.shape)
        log_evidence, r = self._pass(statistics, among, sums=sums)
        return Summed(self.coordinates.moments(float(log_evidence.sum()), r.sum(axis=0), sums), r)

    def total_quadratic(self, statistics: TaskStatistics) -> float:
        """The sum over tasks of ``σ² (y − Xb)ᵀ (XWXᵀ + σ²I)⁻¹ (y − Xb)``, of a single component."""
        if statistics.rows is not None:
            return self.noise * sum(float(s.quadratic.sum()) for s in self._pass_of_rows(statistics)[2][0])
        sums = Sums.room(*self.means.shape)
        self._pass(statistics, sums=sums)
        return float(sums.quadratics[0] - self.noise * self.coordinates.ranks[0] * len(statistics))

    def _joint(self, statistics: TaskStatistics, among: NDArray[np.bool_] | None) -> Array:
        """log π (T, K); −inf where a task is not asked about a component."""
        joint = np.empty((len(statistics), self.n_components))
        joint[:] = self.log_proportions(statistics)
        if among is not None:
            joint[~among] = -np.inf
        return joint

    def _pass_of_rows(
        self, statistics: TaskStatistics, among: NDArray[np.bool_] | None = None, means: Array | None = None
    ) -> tuple[Array, Array, list[list[dual.Seen]]]:
        """`_pass` through the rows, and what they say."""
        statistics, joint = self.without_side(statistics), self._joint(statistics, among)
        seen = dual.expect(statistics.stacks, self.means, self.covariances, self.noise, joint, means)
        largest = joint.max(axis=1, keepdims=True)
        total = largest + np.log(np.exp(joint - largest).sum(axis=1, keepdims=True))
        return total[:, 0], np.exp(joint - total), seen

    def _pass(
        self,
        statistics: TaskStatistics,
        among: NDArray[np.bool_] | None = None,
        means: Array | None = None,
        sums: Sums | None = None,
    ) -> tuple[Array, Array]:
        """Log evidence (T,) and responsibilities (T, K); the rest is written where there is room for it."""
        if statistics.rows is not None:
            return self._pass_of_rows(statistics, among, means)[:2]
        statistics, joint = self.without_side(statistics), self._joint(statistics, among)
        log_evidence, (K, d) = np.empty(len(statistics)), self.means.shape
        blocks = statistics.blocks()
        parts = Sums.room(len(blocks), K if sums is not None else 0, d)
        whose = means if means is not None else np.empty((0, K, d))

        def block(i: int, part: slice) -> None:
            gram, cross = statistics.gram[part], statistics.cross[part]
            square, sizes = statistics.square[part], statistics.sizes[part]
            found = (a[part] for a in (joint, log_evidence, whose))
            own = (*self.coordinates, self.noise, NEGLIGIBLE)
            expect(gram, cross, square, sizes, self.means, *own, *found, *(array[i] for array in parts))

        in_threads(block, list(enumerate(blocks)), statistics.n_threads)
        if sums is not None:
            # In the order of the blocks, whichever thread was first.
            for total, array in zip(sums, parts, strict=True):
                np.sum(array, axis=0, out=total)
        return log_evidence, joint

    def log_proportions(self, statistics: TaskStatistics) -> Array:
        """log π, (K,) or (T, K)."""
        if self.gates is None:
            return np.log(self.proportions)
        assert statistics.side is not None
        return log_gates(self.gates, statistics.side)

    def scaled(self, factor: float) -> Mixture:
        """The same model with ``factor`` times the covariances."""
        return self if factor == 1.0 else replace(self, covariances=factor * self.covariances)

    def without_side(self, statistics: TaskStatistics) -> TaskStatistics:
        """The tasks with what their description predicts taken off their targets."""
        if self.side is None:
            return statistics
        assert statistics.side is not None
        return statistics.shifted(statistics.side @ self.side.T)

    def prior(self, statistics: TaskStatistics) -> TaskPriors:
        """τ(s) = Σ_k r_k W_k / σ² and b(s) = Σ_k r_k b_k + Γ v(s), of the paper's form.

        A Gaussian with the mixture's second moment about the means.  With ``averaged``, b(s) is moved so that
        the weights of the task under (τ, b) are the posterior mean w* = Σ_k r_k m_k of the mixture:
        ``(I + τXᵀX) w* = b + τXᵀy`` is solved for b.
        """
        T, d = statistics.cross.shape
        correction = None
        if self.n_components == 1:
            r = np.ones((T, 1))
            tau = np.broadcast_to(self.covariances[0] / self.noise, (T, d, d))
        else:
            _, r, means = self.expect(statistics)
            tau = np.tensordot(r, self.covariances / self.noise, 1)
            if self.averaged:
                rest = self.without_side(statistics)
                mean = np.matmul(r[:, None, :], means)[:, 0]
                fitted = np.matmul(rest.gram, mean[:, :, None])[:, :, 0] - rest.cross
                correction = mean + np.matmul(tau, fitted[:, :, None])[:, :, 0] - r @ self.means
        b = r @ self.means
        if correction is not None:
            b = b + correction
        if self.side is not None:
            assert statistics.side is not None
            b = b + statistics.side @ self.side.T
        return TaskPriors(r, tau, b, correction)

    def weights(self, statistics: TaskStatistics) -> Array:
        """Weights (T, d) of each task: what `adapt` makes of its `prior`, by the shorter way."""
        if self.n_components > 1 and not self.averaged:
            _, tau, b, _ = self.prior(statistics)
            return adapt(tau, b, statistics)
        _, r, means = self.expect(statistics)
        found = np.matmul(r[:, None, :], means)[:, 0]
        if self.side is None:
            return found
        assert statistics.side is not None
        return found + statistics.side @ self.side.T

    def moments(self) -> tuple[Array, Array]:
        """Mean and covariance of w, without Γv, over all tasks."""
        mean = self.proportions @ self.means
        centred = self.means - mean
        spread = self.covariances + np.einsum("ki,kj->kij", centred, centred)
        return mean, np.tensordot(self.proportions, spread, 1)


def adapt(tau: Array, b: Array, statistics: TaskStatistics) -> Array:
    """Posterior means ``(I + τXᵀX)⁻¹ (b + τXᵀy)``, (T, d).

    With the squared within-task loss, θ = n τ and prior mean b, this is the minimiser of the paper's
    Eq. RERM_feature, in a form that needs neither the rows nor an inverse of τ.
    """
    right = b + np.matmul(tau, statistics.cross[:, :, None])[:, :, 0]
    return solve(_systems(tau, statistics), right[:, :, None])[:, :, 0]


def influence(tau: Array, statistics: TaskStatistics) -> Array:
    """``R = (I + τXᵀX)⁻¹`` (T, d, d): how far the prior mean still matters once the rows are seen."""
    return np.asarray(np.linalg.inv(_systems(tau, statistics)))


def _systems(tau: Array, statistics: TaskStatistics) -> Array:
    systems = np.matmul(tau, statistics.gram)
    diagonal = np.arange(statistics.n_features)
    systems[:, diagonal, diagonal] += 1.0
    return systems
