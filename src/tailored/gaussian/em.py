"""EM for the mixture of linear mixed models, with an inverse-Wishart prior where it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .acceleration import Anderson
from .gates import fit_gates
from .mixture import Mixture
from .moments import NEGLIGIBLE, Moments, Summed, Sums, Totals
from .rows import TaskRows

Array = NDArray[np.float64]

#: The noise is at least this fraction of the targets' mean square: interpolating models stay finite.
NOISE_FLOOR = 1e-8
#: Steps of EM after which tasks are asked again about the components that they have left.
RETURN = 5
#: Largest number that a combination of steps may lead to.
FARTHEST = 100.0


class Source(Protocol):
    """Statistics of tasks, wherever they are stored."""

    @property
    def n_features(self) -> int: ...

    def totals(self) -> Totals:
        """Return the sums that do not depend on a model."""

    def sums(self, model: Mixture, shares: Any = None) -> Summed:
        """Return the sums under a model; earlier ``shares`` say which components tasks may skip."""


@dataclass(frozen=True)
class Shrinkage:
    """An inverse-Wishart prior on every W_k, worth ``n_tasks`` tasks whose covariance is ``target``."""

    n_tasks: float
    target: Array


@dataclass(frozen=True)
class EMResult:
    """The fitted model, its log evidence per task, and the steps taken."""

    mixture: Mixture
    log_evidence: float
    n_iter: int


def em(
    source: Source,
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
        Learn gates with this penalty, from the features ``source.side`` of tasks in memory.
    diagonal : bool
        Keep the W_k diagonal.
    accelerate : bool
        Combine the steps (without gates); a combination that lowers the evidence is not taken.
    """
    totals = source.totals()
    mixture, previous, n_iter = start, -np.inf, 0
    n_tasks = max(totals.n_tasks, 1)
    threshold = tol * max(totals.n_rows, 1.0) / n_tasks
    summed = source.sums(mixture)
    memory = Anderson() if accelerate else None
    while True:
        current = summed.sums.log_evidence / n_tasks
        if n_iter == max_iter or (n_iter > 3 and abs(current - previous) < threshold):
            return EMResult(mixture, current, n_iter)
        step = maximise(totals, mixture, summed.sums, learn_mean, shrinkage, pseudo_tasks)
        if gate_penalty is not None:
            step = replace(step, gates=_gates(source, mixture, summed, gate_penalty))
        if diagonal:
            step = replace(step, covariances=step.covariances * np.eye(source.n_features))
        previous, n_iter = current, n_iter + 1
        # Most tasks leave most components after a few steps: they are asked about the others now and then.
        left = n_iter % RETURN != 0 and mixture.n_components > 1
        among = summed.shares if left else None
        if memory is not None:
            leap = _leap(totals, mixture, step, memory)
            if leap is not None:
                summed = source.sums(leap, among)
                if summed.sums.log_evidence / n_tasks >= current:
                    mixture = leap
                    continue
            memory.forget()
        mixture, summed = step, source.sums(step, among)


def _leap(totals: Totals, mixture: Mixture, step: Mixture, memory: Anderson) -> Mixture | None:
    """Where the steps so far lead; None where that is no model of tasks in units of size one."""
    numbers = memory.propose(_numbers(mixture), _numbers(step))
    return _model(numbers, step, noise_floor(totals)) if np.abs(numbers).max() < FARTHEST else None


def _gates(source: Source, mixture: Mixture, summed: Summed, penalty: float) -> Array:
    """The M-step of the gates, which needs the tasks themselves."""
    assert isinstance(source, Moments | TaskRows)
    assert source.side is not None
    gates = first_gates(mixture, source.side) if mixture.gates is None else mixture.gates
    return fit_gates(source.side, summed.shares, penalty, gates)


def _numbers(mixture: Mixture) -> Array:
    """The means, the symmetric roots of the W_k, log π and log σ: any such numbers are a model."""
    values, vectors = mixture.eigen
    roots = np.matmul(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :], vectors.transpose(0, 2, 1))
    logs = [np.log(mixture.proportions), [0.5 * np.log(mixture.noise)]]
    return np.concatenate([mixture.means.ravel(), roots.ravel(), *logs])


def _model(numbers: Array, like: Mixture, floor: float) -> Mixture:
    """The model of `_numbers`, with as many components and columns as ``like``."""
    K, d = like.means.shape
    means, roots, logits, log_noise = np.split(numbers, np.cumsum([K * d, K * d * d, K]))
    roots = roots.reshape(K, d, d)
    proportions = np.exp(logits - logits.max())
    return replace(
        like,
        proportions=proportions / proportions.sum(),
        means=means.reshape(K, d),
        covariances=np.matmul(roots, roots.transpose(0, 2, 1)),
        noise=max(float(np.exp(2.0 * log_noise[0])), floor),
    )


def first_gates(mixture: Mixture, side: Array) -> Array:
    """Gates that do not depend on the description yet."""
    gates = np.zeros((mixture.n_components, 1 + side.shape[1]))
    gates[:, 0] = np.log(mixture.proportions)
    return gates


def maximise(
    totals: Totals,
    mixture: Mixture,
    sums: Sums,
    learn_mean: bool = True,
    shrinkage: Shrinkage | None = None,
    pseudo_tasks: float = 1.0,
) -> Mixture:
    """The M-step: moments of the posterior weights, and the noise that they leave."""
    counts, T = sums.counts, totals.n_tasks
    proportions = (counts + pseudo_tasks) / (T + len(counts) * pseudo_tasks)
    scatter, weights = sums.second, counts + NEGLIGIBLE
    means = mixture.means
    if learn_mean:
        moves = np.where(counts > NEGLIGIBLE, 1.0 / np.maximum(counts, NEGLIGIBLE), 0.0)[:, None] * sums.first
        means = means + moves
        scatter = scatter - np.einsum("k,ki,kj->kij", counts, moves, moves)
    if shrinkage is not None:
        scatter = scatter + shrinkage.n_tasks * shrinkage.target
        weights = weights + shrinkage.n_tasks
    covariances = 0.5 * (scatter + scatter.transpose(0, 2, 1)) / weights[:, None, None]
    noise = max(sums.residual / max(totals.n_rows, 1.0), noise_floor(totals))
    return replace(mixture, proportions=proportions, means=means, covariances=covariances, noise=noise)


def noise_floor(totals: Totals) -> float:
    """The least noise variance that EM allows (targets that are all zero count as being of size one)."""
    return NOISE_FLOOR * (totals.square / max(totals.n_rows, 1.0) or 1.0)


def fit_mixed_model(
    source: Source,
    *,
    max_iter: int = 300,
    tol: float = 1e-7,
    learn_mean: bool = True,
    structure: str = "full",
    varying: Sequence[int] | None = None,
    start: Mixture | None = None,
) -> Mixture:
    """The linear mixed model, by accelerated EM from a pooled fit (K = 1).

    Parameters
    ----------
    learn_mean : bool
        False keeps b at zero: d parameters fewer where tasks have no common direction.
    structure : {"full", "diagonal", "intercept", "none"}
        W as it is, uncorrelated, of the last weight alone, or zero: tasks do not differ.
    varying : sequence of int, optional
        Weights that tasks may differ in; W is zero for the others, and their means stay those of the pooled fit (see
        `tailored.gaussian.common_weights`).  All by default.
    start : Mixture, optional
        The same model of other tasks of the same kind, to start from instead.
    """
    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "learn_mean": learn_mean}
    options.update(diagonal=structure != "full", accelerate=True)
    if start is not None and structure != "none":
        return em(source, start, **options).mixture
    totals, d = source.totals(), source.n_features
    n_rows = max(totals.n_rows, 1.0)
    energy = float(np.trace(totals.gram)) or 1.0
    b = np.zeros(d)
    if learn_mean:
        b[:] = np.linalg.solve(totals.gram + 1e-6 * energy / d * np.eye(d), totals.cross)
    left = totals.squared_residuals(b) / n_rows
    if structure == "none":
        noise = max(left, noise_floor(totals))
        return Mixture(np.ones(1), b[None], np.zeros((1, d, d)), noise)
    # Half of what the pooled fit leaves goes to the noise, half to differences between tasks.
    half = max(left / 2.0, noise_floor(totals))
    W = half * n_rows / energy * np.eye(d)
    if varying is not None:
        W = np.diag(np.where(np.isin(np.arange(d), list(varying)), np.diag(W), 0.0))
    if structure == "intercept":
        # EM keeps the range of W.
        W = np.diag(np.append(np.zeros(d - 1), half))
    return em(source, Mixture(np.ones(1), b[None], W[None], half), **options).mixture


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
