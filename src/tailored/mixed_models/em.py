"""EM for the mixture of linear mixed models, with an inverse-Wishart prior where it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .acceleration import Anderson
from .gates import fit_gates
from .kernels import sum_inverses
from .mixture import Expectation, Mixture
from .statistics import TaskStatistics

Array = NDArray[np.float64]

#: The noise is at least this fraction of the targets' mean square: interpolating models stay finite.
NOISE_FLOOR = 1e-8
#: Responsibilities below this are left out of a component's covariance.
NEGLIGIBLE = 1e-6
#: Steps of EM after which tasks are asked again about the components that they have left.
RETURN = 5
#: Largest number that a combination of steps may lead to.
FARTHEST = 100.0


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
    gate_penalty: float | None = None,
    diagonal: bool = False,
    accelerate: bool = False,
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
    gate_penalty : float, optional
        Learn gates with this penalty, from the features ``statistics.side``.
    diagonal : bool
        Keep the W_k diagonal.
    accelerate : bool
        Combine the steps (without gates); a combination that lowers the evidence is not taken.
    """
    mixture, previous, n_iter = start, -np.inf, 0
    threshold = tol * statistics.n_rows / max(len(statistics), 1)
    expectation = mixture.expect(statistics)
    memory = Anderson() if accelerate else None
    while True:
        current = float(expectation.log_evidence.mean())
        if n_iter == max_iter or (n_iter > 3 and abs(current - previous) < threshold):
            return EMResult(mixture, current, n_iter)
        gates = mixture.gates
        if gate_penalty is not None:
            assert statistics.side is not None
            gates = first_gates(mixture, statistics.side) if gates is None else gates
            gates = fit_gates(statistics.side, expectation.responsibilities, gate_penalty, gates)
        step = maximise(statistics, mixture, expectation, learn_mean, shrinkage, pseudo_tasks)
        if diagonal:
            step = replace(step, covariances=step.covariances * np.eye(statistics.n_features))
        step = replace(step, gates=gates)
        previous, n_iter = current, n_iter + 1
        # Most tasks leave most components after a few steps: they are asked about the others now and then.
        left = n_iter % RETURN != 0 and mixture.n_components > 1
        among = expectation.responsibilities > NEGLIGIBLE if left else None
        if memory is not None:
            mixture, expectation = _leap(statistics, mixture, step, current, memory, among)
        else:
            mixture, expectation = step, step.expect(statistics, among)


def _leap(
    statistics: TaskStatistics,
    mixture: Mixture,
    step: Mixture,
    current: float,
    memory: Anderson,
    among: NDArray[np.bool_] | None,
) -> tuple[Mixture, Expectation]:
    """Where the steps so far lead, or the plain step where that has less evidence than ``current``."""
    numbers = memory.propose(_numbers(mixture), _numbers(step))
    # A leap of so many powers of ten is no model of tasks in units of size one.
    if np.abs(numbers).max() < FARTHEST:
        found = _model(numbers, step, noise_floor(statistics))
        expectation = found.expect(statistics, among)
        if expectation.log_evidence.mean() >= current:
            return found, expectation
    memory.forget()
    return step, step.expect(statistics, among)


def _numbers(mixture: Mixture) -> Array:
    """The means, the symmetric roots of the W_k, log π and log σ: any such numbers are a model."""
    values, vectors = np.linalg.eigh(mixture.covariances)
    roots = np.matmul(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :], vectors.transpose(0, 2, 1))
    logs = [np.log(mixture.proportions), [0.5 * np.log(mixture.noise)]]
    return np.concatenate([mixture.means.ravel(), roots.ravel(), *logs])


def _model(numbers: Array, like: Mixture, floor: float) -> Mixture:
    """The model of `_numbers`, with as many components and columns as ``like``."""
    K, d = like.means.shape
    means, roots, logits, log_noise = np.split(numbers, np.cumsum([K * d, K * d * d, K]))
    roots = roots.reshape(K, d, d)
    proportions = np.exp(logits - logits.max())
    return Mixture(
        proportions / proportions.sum(),
        means.reshape(K, d),
        np.matmul(roots, roots.transpose(0, 2, 1)),
        max(float(np.exp(2.0 * log_noise[0])), floor),
    )


def first_gates(mixture: Mixture, side: Array) -> Array:
    """Gates that do not depend on the description yet."""
    gates = np.zeros((mixture.n_components, 1 + side.shape[1]))
    gates[:, 0] = np.log(mixture.proportions)
    return gates


def maximise(
    statistics: TaskStatistics,
    mixture: Mixture,
    expectation: Expectation,
    learn_mean: bool = True,
    shrinkage: Shrinkage | None = None,
    pseudo_tasks: float = 1.0,
) -> Mixture:
    """The M-step: moments of the posterior weights, and the noise that they leave."""
    T, K = expectation.responsibilities.shape
    counts = expectation.responsibilities.sum(axis=0)
    proportions = (counts + pseudo_tasks) / (T + K * pseudo_tasks)
    means, covariances = mixture.means.copy(), np.empty_like(mixture.covariances)
    residual = 0.0
    for k, part in enumerate(expectation.components):
        r = np.ascontiguousarray(expectation.responsibilities[part.tasks, k])
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
    start: Mixture | None = None,
) -> Mixture:
    """The linear mixed model, by accelerated EM from a pooled fit (K = 1).

    Parameters
    ----------
    learn_mean : bool
        False keeps b at zero: d parameters fewer where tasks have no common direction.
    structure : {"full", "diagonal", "intercept", "none"}
        W as it is, uncorrelated, of the last weight alone, or zero: tasks do not differ.
    start : Mixture, optional
        The same model of other tasks of the same kind, to start from instead.
    """
    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "learn_mean": learn_mean}
    options.update(diagonal=structure != "full", accelerate=True)
    if start is not None and structure != "none":
        return em(statistics, start, **options).mixture
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
    return em(statistics, Mixture(np.ones(1), b[None], W[None], half), **options).mixture


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
