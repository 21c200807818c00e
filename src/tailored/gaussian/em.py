"""EM for mixtures of linear mixed models, with an optional inverse-Wishart prior on the
covariances.

Steps can be combined by Anderson acceleration (D. G. Anderson, 1965; Walker and Ni, 2011), because
plain EM converges slowly in directions of W about which the tasks carry little information.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from ..tasks.rows import Array
from .mixture import SMALL_EIGENVALUE, Mixture, Shrinkage, Want, log_gates
from .moments import (
    BLOCK_FLOATS,
    NEGLIGIBLE,
    Summed,
    Sums,
    TaskStatistics,
    Totals,
    projected,
    used_columns,
)
from .rows import Tasks
from .scoring import LARGEST_SCALE, LARGEST_START, SAMPLE, Scoring
from .sites import MOST_DIRECTIONS, ResponseRows

#: Minimum noise variance of EM, relative to the mean square of the targets; it keeps the evidence
#: of interpolating models finite.
NOISE_FLOOR = 1e-9
#: This is added to the expected number of tasks of each component, so that no proportion becomes
#: zero.
EXTRA_COUNT = 1.0
#: Maximum numbers of rounds of sites and EM: for a start of Newton's method, for rough fits and for
#: others; maximum number of EM steps per round; the change of the log evidence of all tasks below
#: which the rounds stop.
ROUNDS_OF_START, ROUGH_ROUNDS, SITE_ROUNDS, SITE_STEPS, SITES_TOL = 2, 4, 12, 10, 0.05
#: The rounds also stop if the log evidence per task falls by more than this: with large counts, the
#: mean can overshoot.
LARGEST_LOSS = 1.0
#: Penalty on the intercepts of the mixing weights, which are not identified without it: only
#: differences matter.
CONSTANT_PENALTY = 1e-3
#: Directions with at most this fraction of the largest sum of squares are collinear.
COLLINEAR = 1e-11
#: Component covariances are shrunk to the covariance of the model with one component, with the
#: weight of this many pseudo-tasks.
COMPONENT_SHRINKAGE = 0.05
#: Maximum number of tasks for k-means.
GROUPED_TASKS = 1000


class Source(Protocol):
    """Statistics of tasks that EM needs: of tasks in memory, on disk or on a device."""

    @property
    def n_features(self) -> int: ...

    def totals(self) -> Totals:
        """Return the sums over rows that do not depend on a model."""

    def sums(self, model: Mixture, shares: Any = None) -> Summed:
        """Return the expected sufficient statistics.  Components whose previous ``shares`` are
        negligible may be skipped.
        """


@dataclass(frozen=True)
class EMResult:
    """The fitted model, its log evidence per task, and the number of steps."""

    mixture: Mixture
    log_evidence: float
    n_iter: int


@dataclass(frozen=True)
class MStep:
    """What an M-step estimates, in addition to the noise variance."""

    learn_mean: bool = True  # whether it estimates b_k; False is only for Gaussian targets
    shrinkage: Shrinkage | None = None
    #: Applied to the covariances (K, d, d); see `keep_diagonal`.
    restrict: Callable[[Array], Array] | None = None
    #: Penalty (a number or (q,)) with which mixing weights are estimated from the side information
    #: of tasks in memory.
    gate_penalty: float | Array | None = None

    def __call__(self, source: Source, totals: Totals, mixture: Mixture, summed: Summed) -> Mixture:
        """Return the model after an M-step."""
        step = maximise(totals, mixture, summed.sums, self.learn_mean, self.shrinkage)
        if self.gate_penalty is None:
            return step
        assert isinstance(source, TaskStatistics)
        return replace(
            step, gates=fit_gates(source.side, summed.shares, self.gate_penalty, mixture)
        )

    def restricted(self, covariances: Array) -> Array:
        return covariances if self.restrict is None else self.restrict(covariances)

    def free(self, start: Mixture) -> NDArray[np.bool_]:
        """Return a mask of the covariances (K, d, d) that may be nonzero.

        Rounding errors must not become variances, which later steps could increase.
        """
        varies = start.covariances.diagonal(axis1=1, axis2=2) != 0.0
        if self.shrinkage is not None:
            varies = varies | (self.shrinkage.target.diagonal() != 0.0)
        return np.asarray(varies[:, :, None] & varies[:, None, :])


def em(
    source: Source,
    start: Mixture,
    *,
    max_iter: int,
    tol: float = 1e-6,
    m_step: MStep = MStep(),
    accelerate: bool = False,
) -> EMResult:
    """Maximise the evidence of the tasks by EM, from the model ``start``.

    With Gaussian targets, one component and no shrinkage, no step lowers the evidence.  A
    coefficient without variance under W_k at the start, and in the target of the shrinkage, keeps a
    variance of exactly zero.

    EM stops after ``max_iter`` steps, or when a step after the third changes the log evidence per
    row by less than ``tol``.  ``accelerate`` enables Anderson acceleration of all parameters except
    the coefficients of the mixing weights; accelerated steps that lower the evidence are rejected.
    """
    if isinstance(source, ResponseRows):
        fit = _fit_responses(source, start, max_iter, m_step, accelerate)
        if start.n_components == 1 or not _has_quadrature(start) or source.is_rough or not max_iter:
            return fit
        start = fit.mixture
    free, totals, memory = m_step.free(start), source.totals(), _Anderson()
    mixture, previous, n_iter = start, -np.inf, 0
    n_tasks = max(totals.n_tasks, 1)
    threshold = tol * max(totals.n_rows, 1.0) / n_tasks
    summed = source.sums(mixture)

    def restricted(model: Mixture) -> Mixture:
        return replace(model, covariances=m_step.restricted(model.covariances * free))

    while True:
        current = summed.sums.log_evidence / n_tasks
        if n_iter == max_iter or (n_iter > 3 and abs(current - previous) < threshold):
            return EMResult(mixture, current, n_iter)
        step = restricted(m_step(source, totals, mixture, summed))
        # With counts of very different sizes, rounding errors can make a mean explode.
        if not np.abs(step.means).max() < 1e12:
            return EMResult(mixture, current, n_iter)
        previous, n_iter = current, n_iter + 1
        # After a few steps, most tasks have non-negligible responsibilities for only a few
        # components: in four of five steps, they are evaluated only under these.
        skip = n_iter % 5 != 0 and mixture.n_components > 1
        shares = summed.shares if skip else None
        combined = _combine(totals, mixture, step, memory) if accelerate else None
        if combined is not None:
            combined = restricted(combined)
            summed = source.sums(combined, shares)
            if summed.sums.log_evidence / n_tasks >= current:
                mixture = combined
                continue
        memory.reset()
        mixture, summed = step, source.sums(step, shares)


def _has_quadrature(model: Mixture) -> bool:
    """Return whether posteriors of non-Gaussian targets are computed by quadrature under all
    components.
    """
    return all(root.shape[1] <= MOST_DIRECTIONS for root in model.factors)


def _fit_responses(
    source: ResponseRows, start: Mixture, max_iter: int, m_step: MStep, accelerate: bool
) -> EMResult:
    """Fit non-Gaussian targets; with several components and quadrature, the result is only the
    start of EM.
    """
    is_exact = _has_quadrature(start) and max_iter > 0
    if is_exact and len(source) > 2 * SAMPLE:
        some = source.take(slice(None, None, len(source) // SAMPLE))
        fit = em(some, start, max_iter=max_iter, m_step=m_step, accelerate=accelerate)
    else:
        # Two rounds lead close enough to the maximum for Newton's method.
        n_rounds = ROUGH_ROUNDS if source.is_rough else SITE_ROUNDS
        n_rounds = ROUNDS_OF_START if is_exact else n_rounds
        fit = _alternate(source, start, max_iter, m_step, accelerate, n_rounds)
    if not is_exact or start.n_components > 1:
        return fit
    diagonal = not np.triu(m_step.restricted(np.ones_like(start.covariances))[0], 1).any()
    scoring = Scoring(source, diagonal, m_step.shrinkage)
    return EMResult(*scoring(fit.mixture, max_iter), fit.n_iter)


def _alternate(
    source: ResponseRows,
    model: Mixture,
    max_iter: int,
    m_step: MStep,
    accelerate: bool,
    n_rounds: int,
) -> EMResult:
    """Alternate between Gaussian sites and EM for them, until the evidence is stable."""
    # A pooled fit that has not converged can have coefficients of any size.
    model = model.scaled(min(1.0, LARGEST_START / max(float(model.covariances.max()), 1e-300)))
    model = replace(model, means=np.clip(model.means, -LARGEST_SCALE, LARGEST_SCALE))
    # The start may be a fit without the restriction or shrinkage, whose evidence the first round
    # would not reach.
    W, shrinkage = model.covariances, m_step.shrinkage
    if shrinkage is not None and model.n_components == 1:
        share = shrinkage.n_tasks / (len(source) + shrinkage.n_tasks)
        W = (1.0 - share) * W + share * shrinkage.target
    noise = source.response.noise(model.noise)
    before = model = replace(model, covariances=m_step.restricted(W), noise=noise)
    previous, n_iter = np.inf, 0
    for _ in range(n_rounds):
        sites, evidence, noise = source.site_moments(model)
        if n_iter and not evidence > previous - LARGEST_LOSS:
            return EMResult(before, previous, n_iter)
        if not np.isfinite(evidence):
            raise ValueError(
                f"y: the fit to targets up to {source.y.max():g} is not stable. "
                "Fit loss='squared' to log(1 + y), or pass more rows per task."
            )
        if n_iter >= max_iter or abs(evidence - previous) * len(source) < SITES_TOL:
            break
        previous, before = evidence, model
        fit = em(
            sites,
            replace(model, noise=1.0),
            max_iter=min(max_iter, SITE_STEPS),
            m_step=m_step,
            accelerate=accelerate,
        )
        mixture, n_iter = fit.mixture, n_iter + fit.n_iter
        is_fixed = mixture.covariances[0].diagonal() == 0.0
        if mixture.n_components == 1 and is_fixed.any():
            mixture = most_likely_mean(sites, mixture)
        model = replace(mixture, noise=noise)
    return EMResult(model, evidence, n_iter)


def maximise(
    totals: Totals,
    mixture: Mixture,
    sums: Sums,
    learn_mean: bool = True,
    shrinkage: Shrinkage | None = None,
) -> Mixture:
    """Return the model after an M-step: proportions, means, covariances and noise from the expected
    sufficient statistics.
    """
    counts, T = sums.counts, totals.n_tasks
    proportions = (counts + EXTRA_COUNT) / (T + len(counts) * EXTRA_COUNT)
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
    return replace(
        mixture, proportions=proportions, means=means, covariances=covariances, noise=noise
    )


def noise_floor(totals: Totals) -> float:
    """Return the minimum noise variance of EM; targets whose squares underflow are treated as if
    they had size one.
    """
    square = totals.square / max(totals.n_rows, 1.0)
    return NOISE_FLOOR * (square if square > 1e-290 else 1.0)


def fit_gates(side: Array | None, shares: Array, penalty: float | Array, mixture: Mixture) -> Array:
    """Return the gates (K, 1 + q) after an M-step: penalised multinomial logistic regression of
    ``shares`` by L-BFGS.

    The search starts from the mixing weights of ``mixture``.  Features with an infinite penalty
    have coefficient zero.
    """
    assert side is not None
    T, K = shares.shape
    start = mixture.gates
    if start is None:
        start = np.column_stack([np.log(mixture.proportions), np.zeros((K, side.shape[1]))])
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
    result = minimize(
        objective, start[:, used].ravel(), jac=True, method="L-BFGS-B", options=options
    )
    out = np.zeros_like(start)
    out[:, used] = result.x.reshape(K, -1)
    return out


class _Anderson:
    """Anderson acceleration of a fixed-point iteration ``x → g(x)``, with a memory of the last ten
    steps.
    """

    def __init__(self) -> None:
        self._images: list[Array] = []
        self._moves: list[Array] = []

    def propose(self, x: Array, image: Array) -> Array:
        """Return the accelerated next point after ``g(x) = image``; at the first step it is the
        image itself.
        """
        self._images = [*self._images, image][-11:]
        self._moves = [*self._moves, image - x][-11:]
        if len(self._moves) == 1:
            return image
        images, moves = np.array(self._images), np.array(self._moves)
        images, moves = images[1:] - images[:-1], moves[1:] - moves[:-1]
        normal = moves @ moves.T
        normal.flat[:: len(normal) + 1] += 1e-8 * normal.trace()  # a small ridge penalty
        return np.asarray(
            image - np.linalg.lstsq(normal, moves @ self._moves[-1], rcond=None)[0] @ images
        )

    def reset(self) -> None:
        """Drop all steps except the last."""
        self._images, self._moves = self._images[-1:], self._moves[-1:]


def _combine(totals: Totals, mixture: Mixture, step: Mixture, memory: _Anderson) -> Mixture | None:
    """Return the accelerated step; None if its parameters are implausibly large for scaled data."""
    parameters = memory.propose(_parameters(mixture), _parameters(step))
    if not np.abs(parameters).max() < 100.0:
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
    """Return an unconstrained parameter vector: the means, the symmetric roots of the W_k, log π
    and log σ.
    """
    values, vectors = mixture.eigen
    roots = np.matmul(
        vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :], vectors.transpose(0, 2, 1)
    )
    logs = np.log(mixture.proportions), [0.5 * np.log(mixture.noise)]
    return np.concatenate([mixture.means.ravel(), roots.ravel(), *logs])


def fit_mixed_model(
    source: Source,
    *,
    max_iter: int = 300,
    tol: float = 1e-7,
    covariance: str = "full",
    varying: Sequence[int] | None = None,
    start: Mixture | None = None,
    basis: Array | None = None,
) -> Mixture:
    """Fit the linear mixed model (K = 1) by accelerated EM from a pooled fit, or from ``start``.

    ``covariance`` is "full", "diagonal", "intercept" (W is zero except for the last coefficient) or
    "none" (W = 0). If it is "full" or "diagonal", coefficients that are not in ``varying`` have
    zero variance (None: all vary).  With Gaussian targets, EM keeps the means of coefficients
    without variance at their start (see `settle`).
    """
    basis = np.eye(source.n_features) if basis is None else basis
    m_step = MStep(restrict=None if covariance == "full" else partial(keep_diagonal, basis=basis))
    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "accelerate": True}
    options["m_step"] = m_step
    if start is not None and covariance != "none":
        return em(source, start, **options).mixture
    totals, d = source.totals(), source.n_features
    n_rows, squares = max(totals.n_rows, 1.0), (basis.T @ totals.gram @ basis).diagonal()
    energy = float(np.trace(totals.gram)) or 1.0
    left = totals.gram + 1e-6 * energy / d * np.eye(d)
    is_used = used_columns(totals.gram)
    b = np.asarray(np.linalg.solve(left, totals.cross) * is_used, dtype=np.float64)
    residual = totals.squared_residuals(b) / n_rows
    if covariance == "none":
        noise = max(residual, noise_floor(totals))
        return Mixture(np.ones(1), b[None], np.zeros((1, d, d)), noise)
    # Initially, half of the residual variance of the pooled fit is noise, and half is variance
    # between tasks.
    half = max(residual / 2.0, noise_floor(totals))
    # Variances that are zero at the start of EM stay zero.
    diagonal = half * n_rows / energy * is_used
    diagonal *= totals.gram.diagonal() / np.where(squares > 0, squares, 1.0)
    if varying is not None:
        diagonal[~np.isin(np.arange(d), list(varying))] = 0.0
    if covariance == "intercept":
        diagonal = np.append(np.zeros(d - 1), half)
    return em(
        source, Mixture(np.ones(1), b[None], (basis * diagonal @ basis.T)[None], half), **options
    ).mixture


def fit_mixture(
    tasks: Tasks,
    single: Mixture,
    n_components: int,
    *,
    seed: list[int],
    learn_mean: bool = True,
    n_starts: int = 3,
    short_iter: int = 8,
    max_iter: int = 40,
) -> Mixture:
    """Fit K components: run a few steps of EM from several starts, and continue from the best.

    ``single`` is the mixed model of the same tasks (K = 1).  Each start clusters the tasks.
    ``n_starts`` starts cluster them by the line along which the coefficients of a task deviate from
    the mean, and one start by the direction of this deviation. If there is side information, one
    more start clusters the tasks by it.
    """
    m_step = step_of_mixture(single, learn_mean)
    if not tasks.is_gaussian:
        # A mixture for the Gaussian sites is a good enough start, and much faster to fit.
        sites, unit = tasks.gaussian(single)
        settings: dict[str, Any] = {"learn_mean": learn_mean, "n_starts": n_starts}
        settings |= {"short_iter": short_iter, "max_iter": max_iter}
        found = fit_mixture(sites, unit, n_components, seed=seed, **settings)
        start = replace(found, noise=single.noise)
        return em(tasks, start, max_iter=max_iter, m_step=m_step, accelerate=True).mixture
    # All starts share the E-step of the single model and differ in how they cluster the tasks.
    expected = tasks.posterior(single, Want(means=True, sums=True))
    deviations, rng = expected.means[:, 0] - single.means[0], np.random.default_rng(seed)
    lines, directions = _directions(deviations)
    groupings = [lines] * n_starts + [directions]
    if tasks.side is not None:
        groupings.append(tasks.side)
    means, W = (
        np.repeat(part, n_components, axis=0) for part in (single.means, single.covariances)
    )
    repeated = Mixture(np.full(n_components, 1.0 / n_components), means, W, single.noise)
    totals, runs = tasks.totals(), list[EMResult]()
    for grouping in groupings:
        groups = _group(grouping, n_components, rng)
        shares = np.full((len(tasks), n_components), 0.1 / n_components)
        shares[np.arange(len(tasks)), groups] += 0.9
        sums = _group_sums(expected.sums, deviations, shares)
        start = m_step(tasks, totals, repeated, Summed(sums))
        runs.append(em(tasks, start, max_iter=short_iter - 1, m_step=m_step))
    best = max(runs, key=lambda run: run.log_evidence).mixture
    return em(tasks, best, max_iter=max_iter, m_step=m_step, accelerate=True).mixture


def step_of_mixture(single: Mixture, learn_mean: bool = True) -> MStep:
    """Return M-steps with a shrinkage that prevents a component with few tasks from collapsing onto
    them.
    """
    return MStep(learn_mean, Shrinkage(COMPONENT_SHRINKAGE, single.covariances[0]))


def _directions(deviations: Array) -> tuple[Array, Array]:
    """Return the products u uᵀ, which are the same for u and −u, and the unit vectors u along the
    deviations.
    """
    norms = np.linalg.norm(deviations, axis=1, keepdims=True)
    u = deviations / np.where(norms > 0, norms, 1.0)
    i, j = np.triu_indices(u.shape[1])
    return u[:, i] * u[:, j] * np.where(i == j, 1.0, np.sqrt(2.0)), u


def _group_sums(common: Sums, deviations: Array, shares: Array) -> Sums:
    """Return the expected sufficient statistics of clusters of tasks, using the mean posterior
    covariance for each task.
    """
    counts = shares.sum(axis=0)
    within = (common.second[0] - deviations.T @ deviations) / max(len(deviations), 1)
    between = np.stack([(deviations * r[:, None]).T @ deviations for r in shares.T])
    second = between + counts[:, None, None] * within
    return Sums(common.log_evidence, counts, shares.T @ deviations, second, common.residual)


def _group(points: Array, n_groups: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Cluster points by k-means, fitted to at most `GROUPED_TASKS` of them, and return the cluster
    of each point.
    """
    # Only mixtures need this import, which takes as long as a small fit.
    from sklearn.cluster import KMeans

    some = points
    if len(points) > GROUPED_TASKS:
        some = points[np.sort(rng.choice(len(points), GROUPED_TASKS, replace=False))]
    # Side information may have fewer distinct values than there are clusters.
    n_groups = min(n_groups, len(np.unique(some, axis=0)))
    with warnings.catch_warnings():  # values may also differ by rounding errors only
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = KMeans(n_groups, n_init=3, random_state=int(rng.integers(2**31))).fit(some)
    return np.asarray(clusters.predict(points), dtype=np.intp)


def batches_of(tasks: Tasks) -> list[slice]:
    """Return batches of tasks whose d x d matrices have at most `BLOCK_FLOATS` entries; a batch has
    at least one task.
    """
    size = max(1, BLOCK_FLOATS // tasks.n_features**2)
    return [slice(start, start + size) for start in range(0, len(tasks), size)]


def precisions(tasks: Tasks, model: Mixture) -> Iterator[tuple[slice, Array, Array]]:
    """Yield batches of tasks with XᵀV⁻¹X (T, d, d) and XᵀV⁻¹y (T, d), where V = σ²I + XWXᵀ, for one
    component.
    """
    tasks, model = tasks.gaussian(model)
    L, pseudo_inverse, N = model.bases
    for part in batches_of(tasks):
        some = tasks.take(part)
        GL, inverse = projected(some.gram, model)
        LG = GL.transpose(0, 2, 1)
        # The blocks of XᵀV⁻¹X: from the range of W, and in its null space.
        A = GL @ inverse @ pseudo_inverse
        A += A.transpose(0, 2, 1) @ N @ N.T
        outside = (some.gram - GL @ inverse @ LG) / model.noise
        A += N @ (N.T @ outside @ N) @ N.T
        cross = some.cross[:, :, None]
        u = inverse @ (L.T @ cross)
        a = u.transpose(0, 2, 1) @ pseudo_inverse
        a += (cross - GL @ u).transpose(0, 2, 1) @ N @ N.T / model.noise
        yield part, 0.5 * (A + A.transpose(0, 2, 1)), a[:, 0]


def most_likely_mean(tasks: Tasks, model: Mixture) -> Mixture:
    """Return a one-component model with the generalised least squares estimate of its mean, given W
    and σ².

    The estimate is ``b = (Σ XᵀV⁻¹X)⁻¹ Σ XᵀV⁻¹y`` with V = σ²I + XWXᵀ, summed over tasks.  EM cannot
    estimate the mean of a coefficient with zero variance, because its posterior in every task is
    the current mean.
    """
    d = tasks.n_features
    left, right = np.zeros((d, d)), np.zeros(d)
    for _, A, a in precisions(tasks, model):
        left += A.sum(axis=0)
        right += a.sum(axis=0)
    # With collinear columns the solution is not unique: take the one of minimum norm.
    size = np.sqrt(np.where(left.diagonal() > 0.0, left.diagonal(), 1.0))
    mean = np.linalg.lstsq(left / size[:, None] / size, right / size, rcond=1e-13)[0] / size
    return replace(model, means=np.asarray(mean, dtype=np.float64)[None])


def mean_from_sums(source: Source, model: Mixture) -> Mixture:
    """Approximate the result of `most_likely_mean` from sums over tasks, in d + 1 passes.

    The sum of E(w − b) is ``W Σ XᵀV⁻¹(y − Xb)``, linear in b.  Its values at the present mean, and
    one unit away in each coordinate, determine its root.  W needs an inverse, so a negligible
    variance is added to each coefficient.
    """
    d = model.means.shape[1]
    added = 2.0 * SMALL_EIGENVALUE * max(model.noise, float(model.eigen[0].max()))
    W = model.covariances + added * np.eye(d)

    def gradient(shift: Array) -> Array:
        moved = replace(model, means=model.means + shift, covariances=W)
        return np.asarray(np.linalg.solve(W[0], source.sums(moved).sums.first[0]), dtype=np.float64)

    first = gradient(np.zeros(d))
    information = np.column_stack([first - gradient(unit) for unit in np.eye(d)])
    scale = float(np.trace(information)) / d or 1.0
    step = np.linalg.lstsq(information / scale, first / scale, rcond=1e-8)[0]
    return replace(model, means=model.means + step)


def settle(tasks: Tasks, model: Mixture, **options: Any) -> Mixture:
    """Alternate between `most_likely_mean` and EM for W and σ² until the mean is stable."""
    for _ in range(12):
        moved = most_likely_mean(tasks, model)
        if np.abs(moved.means - model.means).max() < 1e-6:
            return moved
        model = em(tasks, moved, accelerate=True, **options).mixture
    return most_likely_mean(tasks, model)


def fit_roughly(tasks: Tasks, varying: Sequence[int] | None) -> Mixture:
    """Fit the linear mixed model with few steps, to compare the evidence of effects that may be
    added to it.
    """
    model = fit_mixed_model(tasks.roughly(), max_iter=30, tol=1e-6, varying=varying)
    is_complete = varying is None or not tasks.is_gaussian
    return model if is_complete else settle(tasks, model, max_iter=30, tol=1e-6)


def independent_directions(gram: Array) -> tuple[Array, Array]:
    """Return Q (d, p) and its pseudo-inverse (p, d), such that QᵀGQ is the identity for G = Σ xxᵀ
    of rank p.

    Columns are divided by their sizes first, so their units do not matter.
    """
    used = used_columns(gram)
    size = np.sqrt(np.where(used, gram.diagonal(), 1.0))
    values, vectors = np.linalg.eigh(gram * np.outer(used / size, used / size))
    kept = values > COLLINEAR * values.max(initial=0.0)
    roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
    return vectors / roots / size[:, None], (vectors * roots).T * size


def keep_diagonal(covariances: Array, basis: Array) -> Array:
    """Return the covariances without correlations of the coefficients u in ``w = basis @ u``."""
    inverse = np.linalg.inv(basis)
    variances = np.einsum("ij,kjl,il->ki", inverse, covariances, inverse)
    return np.asarray(basis * variances[:, None, :] @ basis.T)


def restrict_rank(covariances: Array, rank: int) -> Array:
    """Return the maximum likelihood covariances of the form "rank ``rank`` plus a multiple of I"
    (probabilistic PCA).
    """
    values, vectors = np.linalg.eigh(covariances)
    rest = values.shape[1] - rank
    if rest > 0:
        values[:, :rest] = values[:, :rest].mean(axis=1, keepdims=True)
    return np.matmul(vectors * values[:, None, :], vectors.transpose(0, 2, 1))


def truncate(mixture: Mixture, threshold: float) -> Mixture:
    """Return the mixture with the eigenvalues of each W_k below ``threshold`` times its largest one
    set to zero.
    """
    values, vectors = mixture.eigen
    kept = np.where(values < threshold * values[:, -1:], 0.0, np.maximum(values, 0.0))
    covariances = np.matmul(vectors * kept[:, None, :], vectors.transpose(0, 2, 1))
    return replace(mixture, covariances=covariances)
