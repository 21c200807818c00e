"""EM for the mixture of linear mixed models, with an inverse-Wishart prior where it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .gates import fit_gates
from .kernels import sum_inverses
from .mixture import Expectation, Mixture
from .statistics import TaskStatistics

Array = NDArray[np.float64]

#: The noise is at least this fraction of the targets' mean square: interpolating models stay finite.
NOISE_FLOOR = 1e-8
#: Responsibilities below this are left out of a component's covariance.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Shrinkage:
    """An inverse-Wishart prior on every W_k, worth ``n_tasks`` tasks whose covariance is ``target``."""

    n_tasks: float
    target: Array


@dataclass(frozen=True)
class EMResult:
    """The fitted model, its log evidence per task before the last step, and the steps taken."""

    mixture: Mixture
    log_evidence: float
    n_iter: int


def em(
    statistics: TaskStatistics,
    start: Mixture,
    *,
    max_iter: int,
    tol: float = 1e-6,
    learn_mean: bool = True,
    shrinkage: Shrinkage | None = None,
    pseudo_tasks: float = 1.0,
    responsibilities: Array | None = None,
    gate_penalty: float | None = None,
    diagonal: bool = False,
) -> EMResult:
    """Climb the evidence of the tasks from ``start``.

    Without ``shrinkage`` and ``pseudo_tasks`` no step lowers the evidence.  W_k keeps its range: a
    direction that is absent from the start stays absent.

    Parameters
    ----------
    max_iter, tol
        Stop after so many steps, or when one changes the log evidence per row by less than ``tol``.
    learn_mean : bool
        False keeps the means of the start.
    shrinkage : Shrinkage, optional
    pseudo_tasks : float
        Added to every component's number of tasks in its proportion, so that none dies out.
    responsibilities : array (T, K), optional
        Used by the first step instead of those that follow from ``start``.
    gate_penalty : float, optional
        Learn gates with this penalty, from the features ``statistics.side``.
    diagonal : bool
        Keep the W_k diagonal.
    """
    mixture, previous, n_iter = start, -np.inf, 0
    threshold = tol * statistics.n_rows / max(len(statistics), 1)
    while True:
        expectation = mixture.expect(statistics)
        current = float(expectation.log_evidence.mean())
        if n_iter == max_iter or (n_iter > 3 and abs(current - previous) < threshold):
            return EMResult(mixture, current, n_iter)
        if responsibilities is not None and n_iter == 0:
            expectation = expectation._replace(responsibilities=responsibilities)
        gates = mixture.gates
        if gate_penalty is not None:
            assert statistics.side is not None
            gates = first_gates(mixture, statistics.side) if gates is None else gates
            gates = fit_gates(statistics.side, expectation.responsibilities, gate_penalty, gates)
        mixture = maximise(statistics, mixture, expectation, learn_mean, shrinkage, pseudo_tasks)
        if diagonal:
            mixture = replace(mixture, covariances=mixture.covariances * np.eye(statistics.n_features))
        mixture = replace(mixture, gates=gates)
        previous, n_iter = current, n_iter + 1


def first_gates(mixture: Mixture, side: Array) -> Array:
    """Gates that do not depend on the description yet."""
    gates = np.zeros((mixture.n_components, 1 + side.shape[1]))
    gates[:, 0] = np.log(mixture.proportions)
    return gates


def maximise(
    statistics: TaskStatistics,
    mixture: Mixture,
    expectation: Expectation,
    learn_mean: bool,
    shrinkage: Shrinkage | None,
    pseudo_tasks: float,
) -> Mixture:
    """The M-step: moments of the posterior weights, and the noise that they leave."""
    T, K = expectation.responsibilities.shape
    counts = expectation.responsibilities.sum(axis=0)
    proportions = (counts + pseudo_tasks) / (T + K * pseudo_tasks)
    means, covariances = mixture.means.copy(), np.empty_like(mixture.covariances)
    residual = 0.0
    for k, part in enumerate(expectation.components):
        r = np.ascontiguousarray(expectation.responsibilities[:, k])
        if learn_mean and counts[k] > NEGLIGIBLE:
            means[k] = r @ part.mean / counts[k]
        inverses, traces = sum_inverses(part.factors, r, NEGLIGIBLE)
        centred = part.mean - means[k]
        scatter = (centred * r[:, None]).T @ centred + mixture.noise * part.root @ inverses @ part.root.T
        weight = counts[k] + NEGLIGIBLE
        if shrinkage is not None:
            scatter += shrinkage.n_tasks * shrinkage.target
            weight += shrinkage.n_tasks
        covariances[k] = 0.5 * (scatter + scatter.T) / weight
        uncertainty = mixture.noise * (part.root.shape[1] - mixture.noise * traces)
        residual += float(r @ (part.squared_residuals + uncertainty))
    noise = max(residual / statistics.n_rows, noise_floor(statistics))
    return Mixture(proportions, means, covariances, noise)


def noise_floor(statistics: TaskStatistics) -> float:
    """The least noise variance that EM allows (targets that are all zero count as being of size one)."""
    return NOISE_FLOOR * (float(statistics.square.sum()) / statistics.n_rows or 1.0)


def fit_mixed_model(
    statistics: TaskStatistics,
    *,
    max_iter: int = 300,
    tol: float = 1e-7,
    learn_mean: bool = True,
    structure: str = "full",
) -> Mixture:
    """The linear mixed model, by EM from a pooled fit (K = 1).

    Parameters
    ----------
    learn_mean : bool
        False keeps b at zero: d parameters fewer where tasks have no common direction.
    structure : {"full", "diagonal", "intercept", "none"}
        W as it is, uncorrelated, of the last weight alone, or zero: tasks do not differ.
    """
    d = statistics.n_features
    gram = statistics.gram.sum(axis=0)
    energy = float(np.trace(gram)) or 1.0
    b = np.zeros(d)
    if learn_mean:
        b = np.linalg.solve(gram + 1e-6 * energy / d * np.eye(d), statistics.cross.sum(axis=0))
    left = float(statistics.squared_residuals(b).sum()) / statistics.n_rows
    if structure == "none":
        noise = max(left, noise_floor(statistics))
        return Mixture(np.ones(1), b[None], np.zeros((1, d, d)), noise)
    # Half of what the pooled fit leaves goes to the noise, half to differences between tasks.
    half = max(left / 2.0, noise_floor(statistics))
    W = half * statistics.n_rows / energy * np.eye(d)
    if structure == "intercept":
        # EM keeps the range of W.
        W = np.diag(np.append(np.zeros(d - 1), half))
    start = Mixture(np.ones(1), b[None], W[None], half)
    diagonal = structure == "diagonal"
    return em(statistics, start, max_iter=max_iter, tol=tol, learn_mean=learn_mean, diagonal=diagonal).mixture


def factor_target(W: Array, rank: int) -> Array:
    """W with its correlations reduced to ``rank`` common factors: leading directions plus a diagonal."""
    values, vectors = np.linalg.eigh(W)
    first = len(values) - min(rank, len(values))
    factors = vectors[:, first:] * np.sqrt(np.maximum(values[first:], 0.0))
    common = factors @ factors.T
    return common + np.diag(np.maximum(np.diag(W) - np.diag(common), 0.0))


def truncate(mixture: Mixture, threshold: float) -> Mixture:
    """Drop the directions of each W_k whose eigenvalue is below ``threshold`` times its largest."""
    values, vectors = np.linalg.eigh(mixture.covariances)
    kept = np.where(values < threshold * values[:, -1:], 0.0, np.maximum(values, 0.0))
    covariances = np.matmul(vectors * kept[:, None, :], vectors.transpose(0, 2, 1))
    return replace(mixture, covariances=covariances)
