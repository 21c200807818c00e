"""The Gaussian model of an environment of tasks, and what a task's rows say under it.

A task's weights come from a mixture of K Gaussians, its targets from the weights:

    w ~ Σ_k π_k(s) N(b_k + Γ v(s), W_k) ,    y = Xw + noise of variance σ² ,

where v(s) are features of a task's description, if it has one; without gates π_k is the same for all tasks.
K = 1 is the linear mixed model with a full covariance of the random slopes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .gates import log_gates
from .kernels import factor_and_solve, sum_inverses
from .moments import NEGLIGIBLE, Moments, Summed
from .statistics import TaskStatistics

Array = NDArray[np.float64]

#: Directions of W below this fraction of its largest eigenvalue are taken as absent.
ROOT_TOLERANCE = 1e-6


def root(W: Array) -> Array:
    """L (d, p) with ``L Lᵀ = W`` up to `ROOT_TOLERANCE`; p is the numerical rank."""
    values, vectors = np.linalg.eigh(W)
    keep = values > ROOT_TOLERANCE * max(values[-1], np.finfo(float).tiny)
    return vectors[:, keep] * np.sqrt(values[keep])


class Posterior(NamedTuple):
    """What T tasks say under one component.

    ``log_evidence`` (T,) is log N(y; Xb, XWXᵀ + σ²I), σ⁻² ``quadratic`` (T,) the quadratic form in it, ``mean`` (T, d)
    the posterior mean m of w and ``squared_residuals`` (T,) is ‖y − Xm‖².  The posterior covariance is ``σ² L F⁻¹ Lᵀ`` with L = ``root``
    and F = LᵀXᵀXL + σ²I, of which ``factors`` are the Cholesky factors in the form of
    `tailored.mixed_models.kernels`.  ``tasks`` are the positions of the T tasks among all, where there are more.
    """

    log_evidence: Array
    mean: Array
    squared_residuals: Array
    quadratic: Array
    root: Array
    factors: Array
    tasks: NDArray[np.intp] | slice = slice(None)


def posterior(statistics: TaskStatistics, b: Array, L: Array, noise: float) -> Posterior:
    """Evidence and posterior of each task under ``w ~ N(b, L Lᵀ)``, by p × p systems, L (d, p)."""
    T, d, p = len(statistics), *L.shape
    # (LᵀXᵀX) and then (LᵀXᵀX)L as two large products: a batch of small ones costs several times as much.
    half = (statistics.gram.reshape(T * d, d) @ L).reshape(T, d, p)
    systems = (half.transpose(0, 2, 1).reshape(T * p, d) @ L).reshape(T, p, p)
    systems[:, np.arange(p), np.arange(p)] += noise
    right = (statistics.cross - (statistics.gram.reshape(T * d, d) @ b).reshape(T, d)) @ L
    log_determinants, solutions = factor_and_solve(systems, right)
    explained = np.einsum("tp,tp->t", right, solutions)
    quadratic = np.maximum(statistics.squared_residuals(b) - explained, 0.0)
    residuals = np.maximum(quadratic - noise * np.einsum("tp,tp->t", solutions, solutions), 0.0)
    log_evidence = -0.5 * (
        (statistics.sizes - p) * np.log(noise)
        + log_determinants
        + quadratic / noise
        + statistics.sizes * np.log(2.0 * np.pi)
    )
    return Posterior(log_evidence, b + solutions @ L.T, residuals, quadratic, L, systems)


class Expectation(NamedTuple):
    """The E-step: log evidence (T,) of the mixture, responsibilities (T, K), posterior per component."""

    log_evidence: Array
    responsibilities: Array
    components: list[Posterior]

    def moments(self, mixture: Mixture) -> Moments:
        """The sums over tasks that the M-step needs; ``mixture`` is the model of this E-step."""
        counts = self.responsibilities.sum(axis=0)
        first, second = np.empty_like(mixture.means), np.empty_like(mixture.covariances)
        residual, noise = 0.0, mixture.noise
        for k, part in enumerate(self.components):
            r = np.ascontiguousarray(self.responsibilities[part.tasks, k])
            inverses, traces = sum_inverses(part.factors, r, NEGLIGIBLE)
            deviations = part.mean - mixture.means[k]
            first[k] = r @ deviations
            second[k] = (deviations * r[:, None]).T @ deviations + noise * part.root @ inverses @ part.root.T
            uncertainty = noise * (part.root.shape[1] - noise * traces)
            residual += float(r @ (part.squared_residuals + uncertainty))
        return Moments(float(self.log_evidence.sum()), counts, first, second, residual)


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
class Mixture:
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

    def expect(self, statistics: TaskStatistics, among: NDArray[np.bool_] | None = None) -> Expectation:
        """Which component each task comes from, and its weights (without Γv) under each.

        ``among`` (T, K) says which components a task is asked about; under the others it has no evidence.
        """
        statistics = self.without_side(statistics)
        joint = np.full((len(statistics), self.n_components), -np.inf)
        log_proportions = np.broadcast_to(self.log_proportions(statistics), joint.shape)
        parts = []
        for k, (b, L) in enumerate(zip(self.means, self.roots, strict=True)):
            if among is None or among[:, k].all():
                part = posterior(statistics, b, L, self.noise)
            else:
                tasks = np.flatnonzero(among[:, k])
                part = posterior(statistics.take(tasks), b, L, self.noise)._replace(tasks=tasks)
            joint[part.tasks, k] = part.log_evidence + log_proportions[part.tasks, k]
            parts.append(part)
        largest = joint.max(axis=1, keepdims=True)
        total = largest + np.log(np.exp(joint - largest).sum(axis=1, keepdims=True))
        return Expectation(total[:, 0], np.exp(joint - total), parts)

    def summed(self, statistics: TaskStatistics, among: NDArray[np.bool_] | None = None) -> Summed:
        """The E-step of these tasks as the sums that the M-step needs."""
        expectation = self.expect(statistics, among)
        return Summed(expectation.moments(self), expectation.responsibilities)

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
            _, r, parts = self.expect(statistics)
            tau = np.tensordot(r, self.covariances / self.noise, 1)
            if self.averaged:
                rest = self.without_side(statistics)
                mean = np.einsum("tk,ktd->td", r, np.stack([part.mean for part in parts]))
                fitted = np.matmul(rest.gram, mean[:, :, None])[:, :, 0] - rest.cross
                correction = mean + np.matmul(tau, fitted[:, :, None])[:, :, 0] - r @ self.means
        b = r @ self.means
        if correction is not None:
            b = b + correction
        if self.side is not None:
            assert statistics.side is not None
            b = b + statistics.side @ self.side.T
        return TaskPriors(r, tau, b, correction)

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
    return np.asarray(np.linalg.solve(_systems(tau, statistics), right[:, :, None])[:, :, 0])


def influence(tau: Array, statistics: TaskStatistics) -> Array:
    """``R = (I + τXᵀX)⁻¹`` (T, d, d): how far the prior mean still matters once the rows are seen."""
    return np.asarray(np.linalg.inv(_systems(tau, statistics)))


def _systems(tau: Array, statistics: TaskStatistics) -> Array:
    systems = np.matmul(tau, statistics.gram)
    diagonal = np.arange(statistics.n_features)
    systems[:, diagonal, diagonal] += 1.0
    return systems
