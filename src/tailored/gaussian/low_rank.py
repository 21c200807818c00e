"""Low-rank covariances of the coefficients, fitted by penalised maximum likelihood.

    w ~ Σ_k π_k N(b, F_k F_kᵀ + ω e eᵀ + δI) ,    y = Xw + noise of variance σ² ,

where e is the unit vector of the constant column, if there is one.  With few tasks and many columns, an unrestricted W
overfits, but a few directions F can be estimated.  They are added one at a time.  F is penalised, because its maximum
likelihood estimate is too large with few tasks.  The scales of FFᵀ, δ and σ² are then set on held-out tasks (`recalibrate`).

The rows of a task are rotated so that XXᵀ is diagonal.  The covariance of the targets is then AAᵀ + diag(δλ + σ²) with
``A = XF``, and all systems are r x r.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from ..tasks.rows import Array
from .em import em
from .mixture import Mixture
from .moments import Moments
from .rows import TaskRows, Tasks
from .starts import fit_mixture

#: Penalty on F, in units of r/δ₀, where δ₀ is δ of the model without factors.
PENALTY = 2.5
#: Candidate squared norms of a new direction, in units of dδ₀/r.
SIZES = (0.05, 0.2, 0.5, 1.0)
#: Maximum number of L-BFGS steps after each new direction, and in the final fit.
STEPS, LAST_STEPS = 40, 60
#: The search stops after this many candidates in a row without improvement.
PATIENCE = 2
#: Minimum δ, relative to δ₀.
SMALLEST = 1e-6
#: Minimum variance, and bounds on the logarithms of variances, for data scaled to unit size.
TINY, LOG_BOUNDS = 1e-8, (-18.0, 8.0)

#: Candidate numbers of components, number of starts for a mixture of scores, and minimum number of tasks per component.
COMPONENTS, SCORE_STARTS, TASKS_PER_COMPONENT = (2, 3, 4, 6, 8), 8, 20

#: More components are selected only if they raise the evidence by more than this many standard errors.
SIGNIFICANT = 2.0

#: The tuple (c, δ, σ²) of `recalibrate`.
Calibration = tuple[float, float, float]
Seed = Sequence[int]


@dataclass(frozen=True)
class RotatedTasks:
    """Rows of T tasks, rotated so that XXᵀ is diagonal, and padded with zero rows."""

    X: Array  # (T, m, d)
    y: Array  # (T, m)
    spread: Array  # (T, m) λ, the diagonal of XXᵀ
    rest: Array  # (T,) squared norm of the part of the targets outside the span of X
    n_rest: Array  # (T,) number of rows minus m; negative for padded tasks, so that zero rows do not count
    has_intercept: bool  # whether the last column is constant

    @classmethod
    def of(cls, tasks: Tasks, has_intercept: bool) -> RotatedTasks:
        T, d = len(tasks), tasks.n_features
        m = min(int(tasks.sizes.max(initial=1.0)), d)
        X, y, spread = np.zeros((T, m, d)), np.zeros((T, m)), np.zeros((T, m))
        if isinstance(tasks, TaskRows) and m < d:
            for at, rows, positions in tasks.stacks:
                values, U = np.linalg.eigh(rows @ rows.transpose(0, 2, 1))
                n = rows.shape[1]
                X[at, :n] = U.transpose(0, 2, 1) @ rows
                y[at, :n] = np.matmul(tasks.y[positions][:, None, :], U)[:, 0]
                spread[at, :n] = np.maximum(values, 0.0)
        else:
            values, V = np.linalg.eigh(tasks.gram)
            roots = np.sqrt(np.maximum(values[:, d - m :], 0.0))
            kept = roots > 1e-7 * roots[:, -1:]
            spread[:] = np.where(kept, roots**2, 0.0)
            directions = V[:, :, d - m :].transpose(0, 2, 1)
            X[:] = np.where(kept, roots, 0.0)[:, :, None] * directions
            cross = np.matmul(directions, tasks.cross[:, :, None])[:, :, 0]
            y[:] = np.where(kept, cross / np.where(kept, roots, 1.0), 0.0)
        rest = np.maximum(tasks.square - (y * y).sum(axis=1), 0.0)
        return cls(X, y, spread, rest, tasks.sizes - m, has_intercept)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def n_features(self) -> int:
        return self.X.shape[2]

    def less(self, mean: Array) -> RotatedTasks:
        """Return the tasks with targets y − Xb."""
        return replace(self, y=self.y - self.X @ mean)


@dataclass(frozen=True)
class LowRank:
    """Parameters of the model in the module docstring."""

    factors: Array  # F, (K, d, r)
    proportions: Array  # π, (K,)
    level: float  # ω, additional variance of the intercept; 0 without a constant column
    delta: float  # δ
    noise: float  # σ²
    mean: Array  # b, (d,)
    mean_variance: float  # γ, prior variance of the entries of b, which are shrunk to zero

    @property
    def rank(self) -> int:
        return self.factors.shape[2]

    def loadings(self) -> Array:
        """Return all F_k, with an additional column √ω e for the intercept if ω > 0."""
        constant = np.zeros((*self.factors.shape[:2], int(self.level > 0)))
        constant[:, -1] = np.sqrt(self.level)
        return np.concatenate([self.factors, constant], axis=2)

    def scaled(self, calibration: Calibration) -> LowRank:
        """Return the model with FFᵀ multiplied by c, and with δ and σ² of the calibration."""
        c, delta, noise = calibration
        return replace(self, factors=np.sqrt(c) * self.factors, delta=float(delta), noise=float(noise))

    def mixture(self) -> Mixture:
        K, d, _ = self.factors.shape
        W = np.matmul(self.factors, self.factors.transpose(0, 2, 1)) + self.delta * np.eye(d)
        W[:, -1, -1] += self.level
        return Mixture(self.proportions, np.tile(self.mean, (K, 1)), W, self.noise)


class _Solved(NamedTuple):
    """The solved systems of T tasks under one component, with D = δλ + σ², A = XF and M = I + AᵀD⁻¹A."""

    D: Array  # (T, m)
    A: Array  # (T, m, r)
    B: Array  # D⁻¹A, (T, m, r)
    inverses: Array  # M⁻¹, (T, r, r)
    scores: Array  # (T, r) posterior means of the scores z in w = b + Fz + ε
    a: Array  # S⁻¹y, for the covariance S of the targets, (T, m)
    log_evidence: Array  # (T,)


def _solve(tasks: RotatedTasks, L: Array, delta: float, noise: float) -> _Solved:
    return _solve_projected(tasks, _project(tasks, L), delta, noise)


def _project(tasks: RotatedTasks, L: Array) -> Array:
    T, m, d = tasks.X.shape
    return (tasks.X.reshape(T * m, d) @ L).reshape(T, m, L.shape[1])


def _solve_projected(tasks: RotatedTasks, A: Array, delta: float, noise: float) -> _Solved:
    r = np.arange(A.shape[2])
    D = delta * tasks.spread + noise
    B = A / D[:, :, None]
    M = np.matmul(A.transpose(0, 2, 1), B)
    M[:, r, r] += 1.0
    v = np.matmul(tasks.y[:, None, :], B)[:, 0]
    inverses = np.linalg.inv(M)
    scores = np.matmul(inverses, v[:, :, None])[:, :, 0]
    a = (tasks.y - np.matmul(A, scores[:, :, None])[:, :, 0]) / D
    log_determinants = np.log(D).sum(axis=1) + np.linalg.slogdet(M)[1] + tasks.n_rest * np.log(noise)
    quadratic = (tasks.y * a).sum(axis=1) + tasks.rest / noise
    constant = (tasks.n_rest + D.shape[1]) * np.log(2.0 * np.pi)
    return _Solved(D, A, B, inverses, scores, a, -0.5 * (log_determinants + quadratic + constant))


def log_evidence(tasks: RotatedTasks, model: LowRank) -> Array:
    """Return the log evidence of each task, (T,)."""
    centred = tasks.less(model.mean)
    parts = [_solve(centred, L, model.delta, model.noise).log_evidence for L in model.loadings()]
    return np.asarray(logsumexp(np.log(model.proportions)[:, None] + parts, axis=0))


def maximise_evidence(tasks: RotatedTasks, model: LowRank, alpha: float, max_iter: int = STEPS) -> LowRank:
    """Maximise the log evidence minus ½ α‖F‖² over all parameters except the mean, by L-BFGS."""
    centred, (K, d, r) = tasks.less(model.mean), model.factors.shape
    T, m = tasks.y.shape
    flat_X = tasks.X.reshape(T * m, d)
    sizes = np.cumsum([K * d * r, 2 + tasks.has_intercept])

    def unpack(theta: Array) -> LowRank:
        F, scales, logits = np.split(theta, sizes)
        # Without a constant column, ``level`` is not a parameter and is zero.
        noise, delta, level = [*np.exp(scales).tolist(), 0.0][:3]
        parts: Any = {"factors": F.reshape(K, d, r), "proportions": softmax(logits) if K > 1 else np.ones(1)}
        return replace(model, level=level, delta=delta, noise=noise, **parts)

    def objective(theta: Array) -> tuple[float, Array]:
        now = unpack(theta)
        solved = [_solve(centred, L, now.delta, now.noise) for L in now.loadings()]
        joint = np.log(now.proportions)[:, None] + [part.log_evidence for part in solved]
        evidence = logsumexp(joint, axis=0)
        shares = np.exp(joint - evidence)
        rest = tasks.n_rest.sum() - tasks.rest.sum() / now.noise
        gradient_F, noise, delta, level = np.empty((K, d, r)), 0.5 * rest, 0.0, 0.0
        for k, (D, _, B, inverses, scores, a, _) in enumerate(solved):
            BM = np.matmul(B, inverses)
            G = (BM - a[:, :, None] * scores[:, None, :]) * shares[k, :, None, None]
            gradient = flat_X.T @ G.reshape(T * m, G.shape[2])
            gradient_F[k] = gradient[:, :r]
            if tasks.has_intercept:
                level += 0.5 * float(gradient[-1, -1]) * np.sqrt(now.level)
            gradient_D = 0.5 * shares[k, :, None] * (1.0 / D - (BM * B).sum(axis=2) - a * a)
            noise += now.noise * float(gradient_D.sum())
            delta += now.delta * float((gradient_D * tasks.spread).sum())
        value = -evidence.sum() + 0.5 * alpha * (now.factors**2).sum()
        parts: list[Any] = [(gradient_F + alpha * now.factors).ravel(), [noise, delta]]
        parts += [[level]] * tasks.has_intercept
        parts += [T * now.proportions - shares.sum(axis=1)] * (K > 1)
        return float(value) / T, np.concatenate(parts) / T

    logs = np.log([model.noise, max(model.delta, TINY)])
    level = [np.log(max(model.level, TINY))] * tasks.has_intercept
    start = np.concatenate([model.factors.ravel(), logs, level, np.log(model.proportions) if K > 1 else []])
    bounds = [(None, None)] * (K * d * r) + [LOG_BOUNDS] * (len(logs) + len(level))
    bounds += [(None, None)] * (len(start) - len(bounds))
    options = {"maxiter": max_iter, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-5}
    result = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return unpack(result.x)


def _with_mean(tasks: RotatedTasks, model: LowRank) -> LowRank:
    """Estimate the mean of one component, with prior N(0, γI) except for the intercept, and γ by MacKay's update."""
    d = tasks.n_features
    D, _, B, inverses, *_ = _solve(tasks, model.loadings()[0], model.delta, model.noise)
    weighted = tasks.X / D[:, :, None]
    # Σ XᵀS⁻¹X and Σ XᵀS⁻¹y with S⁻¹ = D⁻¹ − B M⁻¹ Bᵀ
    left = tasks.X.reshape(-1, d).T @ weighted.reshape(-1, d)
    C = np.matmul(tasks.X.transpose(0, 2, 1), B)
    roots = np.matmul(C, np.linalg.cholesky(inverses)).transpose(1, 0, 2).reshape(d, -1)
    left -= roots @ roots.T
    images = np.matmul(inverses, np.matmul(tasks.y[:, None, :], B).transpose(0, 2, 1))
    right = np.einsum("tmd,tm->d", weighted, tasks.y) - np.matmul(C, images)[:, :, 0].sum(axis=0)
    n, variance = d - tasks.has_intercept, model.mean_variance
    # Eliminate the intercept.  In the basis of eigenvectors, the remaining system is diagonal for any γ.
    lever = np.linalg.solve(left[n:, n:], left[n:])
    e, vectors = np.linalg.eigh(left[:n, :n] - left[:n, n:] @ lever[:, :n])
    scores = vectors.T @ (right[:n] - right[n:] @ lever[:, :n])
    for _ in range(30):
        mean, n_used = scores / (e + 1.0 / variance), float((e / (e + 1.0 / variance)).sum())
        updated = float(np.clip(mean @ mean / max(n_used, 1e-9), 1e-8, 1e6))
        done, variance = abs(np.log(updated / variance)) < 0.01, updated
        if done:
            break
    level = np.linalg.solve(left[n:, n:], right[n:]) - lever[:, :n] @ (vectors @ mean)
    return replace(model, mean=np.append(vectors @ mean, level), mean_variance=variance)


def fit_without_factors(tasks: RotatedTasks) -> LowRank:
    """Fit the model with rank zero."""
    d, n_rows = tasks.n_features, max(float((tasks.n_rest + tasks.y.shape[1]).sum()), 1.0)
    square = max(float(((tasks.y**2).sum() + tasks.rest.sum()) / n_rows), TINY)
    per_unit = max(float(tasks.spread.sum() / n_rows), TINY)
    level = 0.1 * square if tasks.has_intercept else 0.0
    model = LowRank(
        np.zeros((1, d, 0)), np.ones(1), level, 0.3 * square / per_unit, 0.7 * square, np.zeros(d),
        0.1 * square / per_unit,
    )  # fmt: skip
    for _ in range(3):
        model = maximise_evidence(tasks, _with_mean(tasks, model), 0.0, 30)
    return model


def add_factor(tasks: RotatedTasks, model: LowRank, delta: float) -> LowRank:
    """Return the fit with one more factor; ``delta`` is δ of the fit without factors."""
    r, centred = model.rank + 1, tasks.less(model.mean)
    direction = _steepest(centred, model)
    sizes = np.sqrt(np.array(SIZES) * delta * tasks.n_features / r)
    factors = (np.concatenate([model.factors, size * direction[None]], axis=2) for size in sizes)
    starts = [replace(model, factors=each) for each in factors]
    best = max(starts, key=lambda start: float(log_evidence(tasks, start).sum()))
    best = maximise_evidence(tasks, best, PENALTY * r / delta, STEPS)
    return _with_mean(tasks, replace(best, delta=max(best.delta, SMALLEST * delta)))


def _steepest(tasks: RotatedTasks, model: LowRank) -> Array:
    """Return the direction (d, 1) of W in which the evidence rises fastest: the top eigenvector of Σ Xᵀ(aaᵀ − S⁻¹)X."""
    d = tasks.n_features
    D, _, B, inverses, _, a, _ = _solve(tasks, model.loadings()[0], model.delta, model.noise)
    images = np.matmul(a[:, None, :], tasks.X)[:, 0]
    rows = (tasks.X / np.sqrt(D)[:, :, None]).reshape(-1, d)
    roots = np.matmul(np.matmul(tasks.X.transpose(0, 2, 1), B), np.linalg.cholesky(inverses))
    roots = roots.transpose(1, 0, 2).reshape(d, -1)
    slope = images.T @ images - rows.T @ rows + roots @ roots.T
    return np.asarray(np.linalg.eigh(slope)[1][:, -1:])


def recalibrate(held_out: list[RotatedTasks], models: list[LowRank], start: Calibration) -> Calibration:
    """Return the (c, δ, σ²) with the highest evidence on held-out tasks under c FFᵀ + δI, with one model for each fold."""
    pairs = [(tasks.less(model.mean), model) for tasks, model in zip(held_out, models, strict=True)]
    projected = [[_project(tasks, L) for L in model.loadings()] for tasks, model in pairs]
    n_tasks = sum(len(tasks) for tasks in held_out)

    def loss(logs: Array) -> float:
        c, delta, noise = np.exp(logs)
        total = 0.0
        for (tasks, model), parts in zip(pairs, projected, strict=True):
            scale = np.ones(parts[0].shape[2])
            scale[: model.rank] = np.sqrt(c)
            joint = [_solve_projected(tasks, A * scale, delta, noise).log_evidence for A in parts]
            total += float(logsumexp(np.log(model.proportions)[:, None] + joint, axis=0).sum())
        return -total / n_tasks

    x = np.log(start)
    simplex = np.array([x, *(x + step for step in np.diag([0.3, 0.7, 0.2]))])
    options = {"maxiter": 50, "xatol": 0.02, "fatol": 2e-4, "initial_simplex": simplex}
    c, delta, noise = np.exp(minimize(loss, x, method="Nelder-Mead", options=options).x)
    return float(c), float(delta), float(noise)


def fit_low_rank(
    tasks: RotatedTasks, n_factors: int, n_components: int = 1, rank: int = 0, *, seed: Seed = ()
) -> LowRank:
    """Fit one component with ``n_factors`` factors; if ``n_components`` > 1, use it to fit components of rank ``rank``."""
    model = fit_without_factors(tasks)
    delta = model.delta
    for _ in range(n_factors):
        model = add_factor(tasks, model, delta)
    if n_components > 1:
        mixture = _mixture_of_scores(scores(tasks, model), n_components, seed)
        return fit_components(tasks, model, mixture, rank)
    if n_factors:
        model = _with_mean(tasks, maximise_evidence(tasks, model, PENALTY * n_factors / delta, LAST_STEPS))
    return model


def scores(tasks: RotatedTasks, model: LowRank) -> Moments:
    """Return the moments of the tasks as regressions on the scores of one component, with noise variance one."""
    centred = tasks.less(model.mean)
    solved = _solve(centred, model.loadings()[0], model.delta, model.noise)
    gram = np.matmul(solved.A.transpose(0, 2, 1), solved.B)
    cross = np.matmul(centred.y[:, None, :], solved.B)[:, 0]
    square = (centred.y**2 / solved.D).sum(axis=1) + tasks.rest / model.noise
    return Moments(gram, cross, square, tasks.n_rest + tasks.y.shape[1])


def _mixture_of_scores(tasks: Moments, n_components: int, seed: Seed) -> Mixture:
    """Fit a mixture with zero means to the scores, starting from their standard normal prior."""
    q = tasks.n_features
    single = Mixture(np.ones(1), np.zeros((1, q)), np.eye(q)[None], 1.0)
    if n_components == 1:
        return em(tasks, single, max_iter=20, learn_mean=False).mixture
    options: dict[str, Any] = {"learn_mean": False, "n_starts": SCORE_STARTS}
    return fit_mixture(tasks, single, n_components, seed=list(seed), **options)


def fit_components(tasks: RotatedTasks, single: LowRank, mixture: Mixture, rank: int) -> LowRank:
    """Fit components of rank ``rank``, starting from a mixture of the scores of the single component."""
    q = single.rank
    values, vectors = np.linalg.eigh(mixture.covariances[:, :q, :q])
    leading = vectors[:, :, -rank:] * np.sqrt(np.maximum(values[:, None, -rank:], 0.0))
    start = replace(single, factors=single.factors @ leading, proportions=mixture.proportions)
    delta = fit_without_factors(tasks).delta
    return maximise_evidence(tasks, start, PENALTY * rank / delta, LAST_STEPS)


class Selected(NamedTuple):
    """Selected arguments of `fit_low_rank`, the calibration, the calibrated model of each fold, and the held-out evidence."""

    n_factors: int
    n_components: int
    rank: int
    calibration: Calibration
    models: list[LowRank]
    evidence: Array


class LowRankSearch:
    """Select the numbers of factors and components by the evidence on held-out tasks, after recalibration.

    ``train`` and ``held_out`` have an entry for each fold.  Factors are added to one component, one at a time, until
    `PATIENCE` factors in a row have not raised the evidence.  Next, the number of components is selected in the space of the
    scores, where mixtures are cheap to fit.  Finally, the rank of the components is selected.
    """

    def __init__(self, train: list[RotatedTasks], held_out: list[RotatedTasks], seed: Seed) -> None:
        self.train, self.held_out, self.seed = train, held_out, seed

    def __call__(self, max_factors: int) -> list[Selected]:
        """Return the best model with one component, followed by the best mixture if its evidence is higher."""
        single, models = self._select_factors(max_factors)
        n_components = self._count_components(models)
        if n_components == 1:
            return [single]
        mixture = self._select_component_rank(single, models, n_components)
        better = mixture.evidence.mean() > single.evidence.mean()
        return [single, mixture] if better else [single]

    def _evaluate(
        self, models: list[LowRank], start: Calibration, n_factors: int, n_components: int = 1, rank: int = 0
    ) -> Selected:
        calibration = recalibrate(self.held_out, models, start)
        calibrated = [model.scaled(calibration) for model in models]
        pairs = zip(self.held_out, calibrated, strict=True)
        evidence = np.concatenate([log_evidence(*pair) for pair in pairs])
        return Selected(n_factors, n_components, rank, calibration, calibrated, evidence)

    def _select_factors(self, max_factors: int) -> tuple[Selected, list[LowRank]]:
        """Return the selection with the best number of factors, and its models before calibration."""
        models = [fit_without_factors(tasks) for tasks in self.train]
        deltas = [model.delta for model in models]
        best = self._evaluate(models, (1.0, models[0].delta, models[0].noise), 0)
        best_models, calibration = models, best.calibration
        for rank in range(1, max_factors + 1):
            models = [add_factor(*parts) for parts in zip(self.train, models, deltas, strict=True)]
            candidate = self._evaluate(models, calibration, rank)
            calibration = candidate.calibration
            if candidate.evidence.mean() > best.evidence.mean():
                best, best_models = candidate, models
            elif rank >= best.n_factors + PATIENCE:
                break
        return best, best_models

    def _count_components(self, models: list[LowRank]) -> int:
        """Select the number of mixture components for the scores, by the evidence on the held-out tasks of the first fold."""
        train, held_out = scores(self.train[0], models[0]), scores(self.held_out[0], models[0])
        best, evidence, n_failures = 1, np.zeros(0), 0
        for K in (1, *COMPONENTS):
            if models[0].rank < 2 or len(train) < TASKS_PER_COMPONENT * K or n_failures == PATIENCE:
                break
            mixture = _mixture_of_scores(train, K, self.seed)
            now, n_failures = held_out.posterior(mixture).log_evidence, n_failures + 1
            gain = now - evidence if K > 1 else now
            if K == 1 or gain.mean() > SIGNIFICANT * gain.std() / np.sqrt(len(gain)):
                best, evidence, n_failures = K, now, 0
        return best

    def _select_component_rank(self, single: Selected, models: list[LowRank], K: int) -> Selected:
        """Select the rank of the K components by a local search that starts from q / K, for q factors in total."""
        q = single.n_factors
        pairs = zip(self.train, models, strict=True)
        mixtures = [_mixture_of_scores(scores(tasks, model), K, self.seed) for tasks, model in pairs]

        def fit(rank: int) -> Selected:
            parts = zip(self.train, models, mixtures, strict=True)
            fits = [fit_components(*some, rank) for some in parts]
            return self._evaluate(fits, single.calibration, q, K, rank)

        best = fit(max(1, round(q / K)))
        for step in (1, -1):
            first = best.rank
            while 1 <= best.rank + step <= q:
                candidate = fit(best.rank + step)
                if candidate.evidence.mean() <= best.evidence.mean():
                    break
                best = candidate
            if best.rank != first:
                break
        return best
