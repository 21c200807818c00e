"""EM for mixtures of linear mixed models, with an optional inverse-Wishart prior on the covariances.

Steps are combined by Anderson acceleration (D. G. Anderson, 1965; Walker and Ni, 2011): a plain step of EM removes a
constant fraction of the remaining distance, which is small where tasks carry little information about a direction of W.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from .mixture import Mixture, Want, log_gates
from .moments import NEGLIGIBLE, Moments, Summed, Sums, Totals, influence
from .rows import TaskRows, Tasks
from .scoring import LARGEST_START, SAMPLE, Scoring
from .sites import MOST_DIRECTIONS, ResponseRows

Array = NDArray[np.float64]

#: Smallest noise variance, relative to the mean square of the targets; it keeps interpolating models finite.
NOISE_FLOOR = 1e-8
#: Number of steps after which tasks are evaluated under all components again.
FULL_EVERY = 5
#: Combined steps with a larger parameter are rejected; data are scaled to unit size.
LARGEST_PARAMETER = 100.0
#: Number of earlier steps that Anderson acceleration combines.
MEMORY = 10
#: Ridge of the normal equations of Anderson acceleration, relative to their trace.
DAMPING = 1e-8
#: Penalty on the constants of the mixing weights, of which only differences matter.
CONSTANT_PENALTY = 1e-3
#: Largest number of alternations in `settle`, and the largest change of a mean at which they end.
ALTERNATIONS, SETTLED = 12, 1e-6
#: Rounds of expectation propagation and EM, steps of EM in each, and the change of the log evidence at which they end.
SITE_ROUNDS, SITE_STEPS, SITES_TOL = 12, 20, 0.05
#: Largest loss of log evidence per task in such a round: means of large counts can overshoot.
LARGEST_LOSS = 1.0
#: Floats of d x d matrices that are formed at a time.
BATCH_FLOATS = 1 << 18


class Source(Protocol):
    """Statistics of tasks, wherever they are stored."""

    @property
    def n_features(self) -> int: ...

    def totals(self) -> Totals:
        """Return the sums that do not depend on a model."""

    def sums(self, model: Mixture, shares: Any = None) -> Summed:
        """Return the sums under a model; earlier ``shares`` determine which components tasks may skip."""


@dataclass(frozen=True)
class Shrinkage:
    """An inverse-Wishart prior on every W_k, equivalent to ``n_tasks`` tasks with covariance ``target``."""

    n_tasks: float
    target: Array


@dataclass(frozen=True)
class EMResult:
    """The fitted model, its log evidence per task, and the number of steps."""

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
    gate_penalty: float | Array | None = None,
    restrict: Callable[[Array], Array] | None = None,
    accelerate: bool = False,
) -> EMResult:
    """Maximise the evidence of the tasks from ``start``.

    Without ``shrinkage`` and ``pseudo_tasks`` no step lowers the evidence.  W_k keeps its range: a direction that is
    absent from the start stays absent.

    EM stops after ``max_iter`` steps, or when a step changes the log evidence per row by less than ``tol``.
    ``pseudo_tasks`` are added to the count of each component, so that none vanishes.  With a ``gate_penalty`` (a number
    or (q,)), mixing weights are learned from the side information of tasks in memory.  ``restrict`` changes the W_k of a
    step, as `keep_diagonal` does.  ``accelerate`` is Anderson acceleration without mixing weights; combinations that
    lower the evidence are rejected.
    """
    if isinstance(source, ResponseRows):
        source, n_directions = replace(source, sites={}), max(root.shape[1] for root in start.factors)
        options: dict[str, Any] = {"learn_mean": learn_mean, "shrinkage": shrinkage, "restrict": restrict}
        options.update(pseudo_tasks=pseudo_tasks, gate_penalty=gate_penalty, accelerate=accelerate)
        if len(source) > 2 * SAMPLE and n_directions <= MOST_DIRECTIONS:
            some = source.take(slice(None, None, len(source) // SAMPLE))
            fit = em(some, start, max_iter=max_iter, **options)
        else:
            fit = _alternate(source, start, max_iter, options)
        if n_directions > MOST_DIRECTIONS or max_iter == 0:
            return fit
        start = fit.mixture
        if start.n_components == 1:
            diagonal = (
                restrict is not None and not np.triu(restrict(np.ones_like(start.covariances))[0], 1).any()
            )
            return EMResult(*Scoring(source, learn_mean, diagonal, shrinkage)(start, max_iter))
    totals = source.totals()
    mixture, previous, n_iter = start, -np.inf, 0
    n_tasks = max(totals.n_tasks, 1)
    threshold = tol * max(totals.n_rows, 1.0) / n_tasks
    summed = source.sums(mixture)
    memory = _Anderson() if accelerate else None
    while True:
        current = summed.sums.log_evidence / n_tasks
        if n_iter == max_iter or (n_iter > 3 and abs(current - previous) < threshold):
            return EMResult(mixture, current, n_iter)
        step = maximise(totals, mixture, summed.sums, learn_mean, shrinkage, pseudo_tasks)
        if gate_penalty is not None:
            assert isinstance(source, Moments | TaskRows | ResponseRows)
            assert source.side is not None
            gates = constant_gates(mixture, source.side) if mixture.gates is None else mixture.gates
            step = replace(step, gates=fit_gates(source.side, summed.shares, gate_penalty, gates))
        if restrict is not None:
            step = replace(step, covariances=restrict(step.covariances))
        previous, n_iter = current, n_iter + 1
        # After a few steps most tasks have a share in few components.
        skip = n_iter % FULL_EVERY != 0 and mixture.n_components > 1
        shares = summed.shares if skip else None
        if memory is not None:
            combined = _combine(totals, mixture, step, memory)
            if combined is not None:
                summed = source.sums(combined, shares)
                if summed.sums.log_evidence / n_tasks >= current:
                    mixture = combined
                    continue
            memory.reset()
        mixture, summed = step, source.sums(step, shares)


def _alternate(source: ResponseRows, model: Mixture, max_iter: int, options: dict[str, Any]) -> EMResult:
    """Alternate between expectation propagation and EM with its sites as rows, until the evidence is stable."""
    model = model.scaled(min(1.0, LARGEST_START / max(float(model.covariances.max()), 1e-300)))
    model, previous, n_iter = replace(model, noise=source.response.noise(model.noise)), np.inf, 0
    before = model
    for _ in range(SITE_ROUNDS):
        sites, evidence = source.gaussian(model)
        if n_iter and not evidence > previous - LARGEST_LOSS:
            return EMResult(before, previous, n_iter)
        if not np.isfinite(evidence):
            raise ValueError(
                f"y: the fit to targets up to {source.y.max():g} is not stable. Fit loss='squared' to their logarithms, "
                "or pass more rows per task."
            )
        if n_iter >= max_iter or abs(evidence - previous) * len(source) < SITES_TOL:
            break
        previous, before = evidence, model
        fit = em(sites, replace(model, noise=1.0), max_iter=min(max_iter, SITE_STEPS), **options)
        mixture, n_iter = fit.mixture, n_iter + fit.n_iter
        is_fixed = mixture.covariances[0].diagonal() == 0.0
        if options["learn_mean"] and mixture.n_components == 1 and is_fixed.any():
            mixture = most_likely_mean(sites, mixture)
        model = replace(mixture, noise=source.dispersion(replace(mixture, noise=model.noise)))
    return EMResult(model, evidence, n_iter)


def maximise(
    totals: Totals,
    mixture: Mixture,
    sums: Sums,
    learn_mean: bool = True,
    shrinkage: Shrinkage | None = None,
    pseudo_tasks: float = 1.0,
) -> Mixture:
    """Return the M-step: proportions, means, covariances and noise from the sums of the E-step."""
    counts, T = sums.counts, totals.n_tasks
    proportions = (counts + pseudo_tasks) / (T + len(counts) * pseudo_tasks)
    scatter, weights = sums.second, counts + NEGLIGIBLE
    means = mixture.means
    if learn_mean:
        factors = np.where(counts > NEGLIGIBLE, 1.0 / np.maximum(counts, NEGLIGIBLE), 0.0)
        moves = factors[:, None] * sums.first
        means = means + moves
        scatter = scatter - counts[:, None, None] * moves[:, :, None] * moves[:, None, :]
    if shrinkage is not None:
        scatter = scatter + shrinkage.n_tasks * shrinkage.target
        weights = weights + shrinkage.n_tasks
    covariances = 0.5 * (scatter + scatter.transpose(0, 2, 1)) / weights[:, None, None]
    noise = max(sums.residual / max(totals.n_rows, 1.0), noise_floor(totals))
    return replace(mixture, proportions=proportions, means=means, covariances=covariances, noise=noise)


def noise_floor(totals: Totals) -> float:
    """Return the smallest noise variance that EM allows; targets whose squares underflow count as being of size one."""
    square = totals.square / max(totals.n_rows, 1.0)
    return NOISE_FLOOR * (square if square > 1e-290 else 1.0)


def constant_gates(mixture: Mixture, side: Array) -> Array:
    """Return coefficients of mixing weights that do not depend on the side information."""
    gates = np.zeros((mixture.n_components, 1 + side.shape[1]))
    gates[:, 0] = np.log(mixture.proportions)
    return gates


def fit_gates(side: Array, shares: Array, penalty: float | Array, start: Array) -> Array:
    """Return the M-step of the mixing weights: penalised multinomial logistic regression by L-BFGS from ``start``.

    Features with an infinite penalty are left out.
    """
    T, K = shares.shape
    ridge = np.append(CONSTANT_PENALTY, np.broadcast_to(penalty, side.shape[1])) / T
    used = np.isfinite(ridge)
    ridge, some = ridge[used], side[:, used[1:]]
    features = np.hstack([np.ones((T, 1)), some])

    def objective(flat: Array) -> tuple[float, Array]:
        gates = flat.reshape(K, -1)
        log_pi = log_gates(gates, some)
        gradient = (np.exp(log_pi) - shares).T @ features / T + ridge * gates
        value = -float((shares * log_pi).sum()) / T + 0.5 * float((ridge * gates * gates).sum())
        return value, gradient.ravel()

    options = {"maxiter": 30}
    result = minimize(objective, start[:, used].ravel(), jac=True, method="L-BFGS-B", options=options)
    out = np.zeros_like(start)
    out[:, used] = result.x.reshape(K, -1)
    return out


class _Anderson:
    """The last steps ``x → g(x)`` of a fixed-point iteration, and their combination with the smallest change."""

    def __init__(self) -> None:
        self._images: list[Array] = []
        self._moves: list[Array] = []

    def propose(self, x: Array, image: Array) -> Array:
        """Return the next point after ``g(x) = image``; the image itself at the first step."""
        self._images = [*self._images, image][-MEMORY - 1 :]
        self._moves = [*self._moves, image - x][-MEMORY - 1 :]
        if len(self._moves) == 1:
            return image
        images, moves = np.array(self._images), np.array(self._moves)
        images, moves = images[1:] - images[:-1], moves[1:] - moves[:-1]
        normal = moves @ moves.T
        normal.flat[:: len(normal) + 1] += DAMPING * normal.trace()
        return np.asarray(image - np.linalg.lstsq(normal, moves @ self._moves[-1], rcond=None)[0] @ images)

    def reset(self) -> None:
        """Forget all steps but the last."""
        self._images, self._moves = self._images[-1:], self._moves[-1:]


def _combine(totals: Totals, mixture: Mixture, step: Mixture, memory: _Anderson) -> Mixture | None:
    """Return the combination of the last steps; None where its parameters are implausible for scaled data."""
    parameters = memory.propose(_parameters(mixture), _parameters(step))
    if not np.abs(parameters).max() < LARGEST_PARAMETER:
        return None
    K, d = step.means.shape
    means, roots = parameters[: K * d].reshape(K, d), parameters[K * d : -K - 1].reshape(K, d, d)
    logits = parameters[-K - 1 : -1]
    proportions = np.exp(logits - logits.max())
    return replace(
        step,
        proportions=proportions / proportions.sum(),
        means=means,
        covariances=np.matmul(roots, roots.transpose(0, 2, 1)),
        noise=max(float(np.exp(2.0 * parameters[-1])), noise_floor(totals)),
    )


def _parameters(mixture: Mixture) -> Array:
    """Return the means, the symmetric roots of the W_k, log π and log σ, which are unconstrained."""
    values, vectors = mixture.eigen
    roots = np.matmul(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :], vectors.transpose(0, 2, 1))
    logs = np.log(mixture.proportions), [0.5 * np.log(mixture.noise)]
    return np.concatenate([mixture.means.ravel(), roots.ravel(), *logs])


def fit_mixed_model(
    source: Source,
    *,
    max_iter: int = 300,
    tol: float = 1e-7,
    learn_mean: bool = True,
    covariance: str = "full",
    origin: Sequence[float] = (),
    varying: Sequence[int] | None = None,
    start: Mixture | None = None,
) -> Mixture:
    """Fit the linear mixed model (K = 1) by accelerated EM from a pooled fit, or from ``start``.

    ``covariance`` is "full", "diagonal", "intercept" (W is zero but for the last coefficient) or "none"; for ``origin`` see
    `restriction`.  ``learn_mean=False`` keeps b at zero.  W is also zero for coefficients that are not in ``varying`` (None: all
    are); EM leaves their means at those of the pooled fit (see `settle`).
    """
    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "learn_mean": learn_mean}
    options.update(restrict=restriction(covariance, origin), accelerate=True)
    if start is not None and covariance != "none":
        return em(source, start, **options).mixture
    totals, d = source.totals(), source.n_features
    n_rows = max(totals.n_rows, 1.0)
    energy = float(np.trace(totals.gram)) or 1.0
    b = np.zeros(d)
    if learn_mean:
        b[:] = np.linalg.solve(totals.gram + 1e-6 * energy / d * np.eye(d), totals.cross)
    residual = totals.squared_residuals(b) / n_rows
    if covariance == "none":
        noise = max(residual, noise_floor(totals))
        return Mixture(np.ones(1), b[None], np.zeros((1, d, d)), noise)
    # Half of the residual variance of the pooled fit starts as noise, half as differences between tasks.
    half = max(residual / 2.0, noise_floor(totals))
    diagonal = np.full(d, half * n_rows / energy)
    if varying is not None:
        diagonal[~np.isin(np.arange(d), list(varying))] = 0.0
    if covariance == "intercept":
        # EM keeps the range of W.
        diagonal = np.append(np.zeros(d - 1), half)
    return em(source, Mixture(np.ones(1), b[None], np.diag(diagonal)[None], half), **options).mixture


def with_gaussian_rows(tasks: Tasks, model: Mixture) -> tuple[Moments | TaskRows, Mixture]:
    """Return tasks and model, for another response the sites at this model, and the model with their noise.

    Effects of side information are part of the sites, and not of the model.
    """
    if isinstance(tasks, ResponseRows):
        return tasks.gaussian(model)[0], replace(model, noise=1.0, side=None)
    return tasks, model


def precisions(tasks: Tasks, model: Mixture) -> Iterator[tuple[slice, Array, Array]]:
    """Yield, for batches of tasks, XᵀV⁻¹X (T, d, d) and XᵀV⁻¹y (T, d) with V = σ²I + XWXᵀ, for one component."""
    tasks, model = with_gaussian_rows(tasks, model)
    size = max(1, BATCH_FLOATS // tasks.n_features**2)
    for start in range(0, len(tasks), size):
        part = slice(start, start + size)
        some = tasks.take(part)
        without_side = replace(model, side=None)
        # σ² XᵀV⁻¹X = G R
        covariances = some.posterior(without_side, Want(covariances=True)).covariances
        R = influence(some, model, covariances) / model.noise
        A = np.matmul(some.gram, R)
        yield part, 0.5 * (A + A.transpose(0, 2, 1)), np.einsum("tji,tj->ti", R, some.cross)


def most_likely_mean(tasks: Tasks, model: Mixture) -> Mixture:
    """Return the model of one component with the generalised least squares estimate of its mean, given W and σ².

    ``b = (Σ XᵀV⁻¹X)⁻¹ Σ XᵀV⁻¹y`` over tasks, V = σ²I + XWXᵀ.  EM cannot find the mean of a coefficient with zero variance:
    its posterior in every task is the current mean.
    """
    d = tasks.n_features
    left, right = np.zeros((d, d)), np.zeros(d)
    for _, A, a in precisions(tasks, model):
        left += A.sum(axis=0)
        right += a.sum(axis=0)
    # Collinear columns have no unique solution: take the smallest.
    scale = float(np.trace(left)) / d or 1.0
    mean = np.linalg.lstsq(left / scale, right / scale, rcond=1e-10)[0]
    return replace(model, means=np.asarray(mean, dtype=np.float64)[None])


def settle(tasks: Tasks, model: Mixture, **options: Any) -> Mixture:
    """Alternate between `most_likely_mean` and EM for W and σ² until the mean is stable."""
    for _ in range(ALTERNATIONS):
        moved = most_likely_mean(tasks, model)
        if np.abs(moved.means - model.means).max() < SETTLED:
            return moved
        model = em(tasks, moved, accelerate=True, **options).mixture
    return most_likely_mean(tasks, model)


def keep_diagonal(covariances: Array) -> Array:
    """Return the diagonals of the covariances, as matrices."""
    return covariances * np.eye(covariances.shape[1])


def restriction(covariance: str, origin: Sequence[float] = ()) -> Callable[[Array], Array] | None:
    """Return how W is restricted after an M-step, for the covariance of a mixed model.

    With the ``origin`` (d - 1,) of the columns, coefficients are uncorrelated there instead of at the columns' means.
    """
    if covariance == "full":
        return None
    if not origin:
        return keep_diagonal
    # The intercept at the origin is b₀ + <b, origin>.
    there = np.eye(len(origin) + 1)
    there[-1, :-1] = origin
    back = 2.0 * np.eye(len(origin) + 1) - there
    return lambda covariances: back @ keep_diagonal(there @ covariances @ there.T) @ back.T


def restrict_rank(covariances: Array, rank: int) -> Array:
    """Return the most likely low-rank covariances plus a multiple of I, as in probabilistic principal components."""
    values, vectors = np.linalg.eigh(covariances)
    rest = values.shape[1] - rank
    if rest > 0:
        values[:, :rest] = values[:, :rest].mean(axis=1, keepdims=True)
    return np.matmul(vectors * values[:, None, :], vectors.transpose(0, 2, 1))


def factor_target(W: Array, rank: int) -> Array:
    """Return W with its correlations reduced to ``rank`` common factors: leading directions plus a diagonal."""
    values, vectors = np.linalg.eigh(W)
    first = len(values) - min(rank, len(values))
    factors = vectors[:, first:] * np.sqrt(np.maximum(values[first:], 0.0))
    common = factors @ factors.T
    return common + np.diag(np.maximum(np.diag(W) - np.diag(common), 0.0))


def truncate(mixture: Mixture, threshold: float) -> Mixture:
    """Set eigenvalues of each W_k below ``threshold`` times its largest to zero."""
    values, vectors = mixture.eigen
    kept = np.where(values < threshold * values[:, -1:], 0.0, np.maximum(values, 0.0))
    covariances = np.matmul(vectors * kept[:, None, :], vectors.transpose(0, 2, 1))
    return replace(mixture, covariances=covariances)
