"""Low-rank covariances of the coefficients, fitted by penalised maximum likelihood.

    w ~ Σ_k π_k N(b, F_k F_kᵀ + ω e eᵀ + δI) ,    y = Xw + noise of variance σ² ,

where e is the unit vector of the constant column, if there is one.  With few tasks and many
columns, an unrestricted W overfits, but a few directions F can be estimated.  F is penalised,
because its maximum likelihood estimate also overfits with few tasks.  The scales of FFᵀ, δ and σ²
are then set on held-out tasks (`recalibrate`).

The rows of a task are rotated so that XXᵀ is diagonal.  With the diagonal λ of XXᵀ, the covariance
of the targets is then AAᵀ + diag(δλ + σ²) with ``A = X (F_k, √ω e)``, and all systems have the
order r + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from .._utils.records import cached_property
from ..tasks.rows import Array
from .em import MStep, em, fit_mixture
from .mixture import Mixture
from .moments import Moments
from .rows import TaskRows, Tasks

#: Penalty on F, in units of r/δ₀, where δ₀ is δ of the model without factors.  The scale of FFᵀ is
#: calibrated later, but the directions of a fit without a penalty have larger errors.
PENALTY = 2.5
#: Initial squared norm of each factor, in units of dδ₀/r.
SIZE = 0.2
#: Minimum variance, for data scaled to unit size.
SMALLEST = 1e-8

#: The tuple (c, δ, σ²) of `recalibrate`.
Calibration = tuple[float, float, float]


@dataclass(frozen=True)
class RotatedTasks:
    """Rows of T tasks, rotated so that XXᵀ is diagonal, and padded with zero rows."""

    X: Array  # (T, m, d)
    y: Array  # (T, m)
    spread: Array  # (T, m) λ, the diagonal of XXᵀ
    rest: Array  # (T,) squared norm of the part of the targets outside the span of X
    n_rest: Array  # (T,) number of rows minus m; negative for padded tasks
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
class LowRankModel:
    """Parameters of the model in the module docstring."""

    factors: Array  # F, (K, d, r)
    proportions: Array  # π, (K,)
    level: float  # ω, additional variance of the intercept; 0 without a constant column
    delta: float  # δ
    noise: float  # σ²
    mean: Array  # b, (d,)
    mean_variance: float  # γ: all entries of b except the intercept have the prior N(0, γ)

    @property
    def rank(self) -> int:
        return self.factors.shape[2]

    def loadings(self) -> Array:
        """Return all F_k, with an additional column √ω e for the intercept, (K, d, r + 1)."""
        constant = np.zeros((*self.factors.shape[:2], 1))
        constant[:, -1] = np.sqrt(self.level)
        return np.concatenate([self.factors, constant], axis=2)

    def scaled(self, calibration: Calibration) -> LowRankModel:
        """Return the model with FFᵀ multiplied by c, and with δ and σ² of the calibration."""
        c, delta, noise = calibration
        return replace(
            self, factors=np.sqrt(c) * self.factors, delta=float(delta), noise=float(noise)
        )

    def mixture(self) -> Mixture:
        K, d, _ = self.factors.shape
        L = self.loadings()
        W = np.matmul(L, L.transpose(0, 2, 1)) + self.delta * np.eye(d)
        return Mixture(self.proportions, np.tile(self.mean, (K, 1)), W, self.noise)


class _Solved(NamedTuple):
    """The solved systems of T tasks under one component, with r loadings L, D = δλ + σ², A = XL and
    M = I + AᵀD⁻¹A.
    """

    D: Array  # (T, m)
    A: Array  # (T, m, r)
    B: Array  # D⁻¹A, (T, m, r)
    inverses: Array  # M⁻¹, (T, r, r)
    scores: Array  # (T, r) posterior means of the scores z in w = b + Lz + ε
    a: Array  # S⁻¹y, for the covariance S of the targets, (T, m)
    log_evidence: Array  # (T,)


def _solve(tasks: RotatedTasks, L: Array, delta: float, noise: float) -> _Solved:
    (T, m, d), r = tasks.X.shape, np.arange(L.shape[1])
    A = (tasks.X.reshape(T * m, d) @ L).reshape(T, m, len(r))
    D = delta * tasks.spread + noise
    B = A / D[:, :, None]
    M = np.matmul(A.transpose(0, 2, 1), B)
    M[:, r, r] += 1.0
    v = np.matmul(tasks.y[:, None, :], B)[:, 0]
    inverses = np.linalg.inv(M)
    scores = np.matmul(inverses, v[:, :, None])[:, :, 0]
    a = (tasks.y - np.matmul(A, scores[:, :, None])[:, :, 0]) / D
    log_determinants = (
        np.log(D).sum(axis=1) + np.linalg.slogdet(M)[1] + tasks.n_rest * np.log(noise)
    )
    quadratic = (tasks.y * a).sum(axis=1) + tasks.rest / noise
    constant = (tasks.n_rest + D.shape[1]) * np.log(2.0 * np.pi)
    return _Solved(D, A, B, inverses, scores, a, -0.5 * (log_determinants + quadratic + constant))


def log_evidence(tasks: RotatedTasks, model: LowRankModel) -> Array:
    """Return the log evidence of each task, (T,)."""
    centred = tasks.less(model.mean)
    parts = [_solve(centred, L, model.delta, model.noise).log_evidence for L in model.loadings()]
    return np.asarray(logsumexp(np.log(model.proportions)[:, None] + parts, axis=0))


def maximise_evidence(
    tasks: RotatedTasks, model: LowRankModel, alpha: float, max_iter: int = 60
) -> LowRankModel:
    """Maximise the log evidence minus ½ α‖F‖² over all parameters except the mean and its prior
    variance, by L-BFGS.
    """
    centred, (K, d, r) = tasks.less(model.mean), model.factors.shape
    T, m = tasks.y.shape
    flat_X = tasks.X.reshape(T * m, d)

    def unpack(theta: Array) -> LowRankModel:
        F, logs, logits = np.split(theta, [K * d * r, K * d * r + 3])
        noise, delta, level = np.exp(logs).tolist()
        scales = {"noise": noise, "delta": delta, "level": level * tasks.has_intercept}
        return replace(model, factors=F.reshape(K, d, r), proportions=softmax(logits), **scales)

    def objective(theta: Array) -> tuple[float, Array]:
        now = unpack(theta)
        solved = [_solve(centred, L, now.delta, now.noise) for L in now.loadings()]
        joint = np.log(now.proportions)[:, None] + [part.log_evidence for part in solved]
        evidence = logsumexp(joint, axis=0)
        shares = np.exp(joint - evidence)
        gradient_F = alpha * now.factors
        noise = 0.5 * (tasks.n_rest.sum() - tasks.rest.sum() / now.noise)
        delta = level = 0.0
        for k, part in enumerate(solved):
            BM = np.matmul(part.B, part.inverses)
            G = (BM - part.a[:, :, None] * part.scores[:, None, :]) * shares[k, :, None, None]
            gradient = flat_X.T @ G.reshape(T * m, r + 1)
            gradient_F[k] += gradient[:, :r]
            level += 0.5 * gradient[-1, -1] * np.sqrt(now.level)
            gradient_D = (
                0.5 * shares[k, :, None] * (1.0 / part.D - (BM * part.B).sum(axis=2) - part.a**2)
            )
            noise += now.noise * gradient_D.sum()
            delta += now.delta * (gradient_D * tasks.spread).sum()
        value = -evidence.sum() + 0.5 * alpha * (now.factors**2).sum()
        logits = T * now.proportions - shares.sum(axis=1)
        return value / T, np.concatenate([gradient_F.ravel(), [noise, delta, level], logits]) / T

    logs = np.log(np.maximum([model.noise, model.delta, model.level], SMALLEST))
    start = np.concatenate([model.factors.ravel(), logs, np.log(model.proportions)])
    bounds = [(None, None)] * (K * d * r) + [(-18.0, 8.0)] * 3 + [(None, None)] * K
    options = {"maxiter": max_iter, "maxcor": 20, "ftol": 1e-7, "gtol": 1e-5}
    return unpack(
        minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    )


def _with_mean(tasks: RotatedTasks, model: LowRankModel) -> LowRankModel:
    """Estimate the mean of one component, with prior N(0, γI) except for the intercept, and γ by
    MacKay's update.
    """
    d = tasks.n_features
    solved = _solve(tasks, model.loadings()[0], model.delta, model.noise)
    # Σ XᵀS⁻¹X and Σ XᵀS⁻¹y with S⁻¹ = D⁻¹ − B M⁻¹ Bᵀ
    rows = (tasks.X / np.sqrt(solved.D)[:, :, None]).reshape(-1, d)
    C = np.matmul(solved.B.transpose(0, 2, 1), tasks.X)
    roots = np.matmul(np.linalg.cholesky(solved.inverses).transpose(0, 2, 1), C).reshape(-1, d)
    left, right = rows.T @ rows - roots.T @ roots, solved.a.ravel() @ tasks.X.reshape(-1, d)
    n, variance = d - tasks.has_intercept, model.mean_variance
    # Eliminate the intercept.  In the basis of eigenvectors, the remaining system is diagonal for
    # any γ.
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


@dataclass(frozen=True)
class LowRankFitter:
    """Fit any number of factors to the same tasks, starting from the model without factors."""

    tasks: RotatedTasks
    seed: Sequence[int]  # for the random starts of mixtures

    @cached_property
    def without_factors(self) -> LowRankModel:
        tasks, d = self.tasks, self.tasks.n_features
        n_rows = max(float((tasks.n_rest + tasks.y.shape[1]).sum()), 1.0)
        square = max(float(((tasks.y**2).sum() + tasks.rest.sum()) / n_rows), SMALLEST)
        variance = square * n_rows / max(float(tasks.spread.sum()), SMALLEST)
        scales = 0.1 * square * tasks.has_intercept, 0.3 * variance, 0.7 * square
        model = LowRankModel(np.zeros((1, d, 0)), np.ones(1), *scales, np.zeros(d), 0.1 * variance)
        for _ in range(3):
            model = maximise_evidence(tasks, _with_mean(tasks, model), 0.0, 30)
        return model

    @cached_property
    def directions(self) -> Array:
        """Directions in which more variance raises the evidence of the model without factors most,
        (d, d), as columns.

        They are the eigenvectors of Σ Xᵀ(aaᵀ − D⁻¹)X, by decreasing eigenvalue; with an intercept,
        this is an approximation.
        """
        centred, d = self.tasks.less(self.without_factors.mean), self.tasks.n_features
        model = self.without_factors
        solved = _solve(centred, model.loadings()[0], model.delta, model.noise)
        images = np.matmul(solved.a[:, None, :], centred.X)[:, 0]
        rows = (centred.X / np.sqrt(solved.D)[:, :, None]).reshape(-1, d)
        return np.linalg.eigh(images.T @ images - rows.T @ rows)[1][:, ::-1]

    def single(self, rank: int) -> LowRankModel:
        """Fit one component."""
        first = self.without_factors
        if rank == 0:
            return first
        size = np.sqrt(SIZE * first.delta * self.tasks.n_features / rank)
        return _with_mean(
            self.tasks, self._fit(replace(first, factors=size * self.directions[None, :, :rank]))
        )

    def _fit(self, start: LowRankModel) -> LowRankModel:
        return maximise_evidence(
            self.tasks, start, PENALTY * start.rank / self.without_factors.delta
        )

    def several(self, single: LowRankModel, n_components: int, rank: int) -> LowRankModel:
        """Fit several components, starting from a mixture of the scores of one component."""
        mixture = mixture_of_scores(scores(self.tasks, single), n_components, self.seed)
        values, vectors = np.linalg.eigh(mixture.covariances[:, : single.rank, : single.rank])
        leading = vectors[:, :, -rank:] * np.sqrt(np.maximum(values[:, None, -rank:], 0.0))
        return self._fit(
            replace(single, factors=single.factors @ leading, proportions=mixture.proportions)
        )

    def fit(self, n_factors: int, n_components: int = 1, rank: int = 0) -> LowRankModel:
        """Fit one component with ``n_factors`` factors; if ``n_components`` > 1, use it to fit
        components of rank ``rank``.
        """
        single = self.single(n_factors)
        return single if n_components == 1 else self.several(single, n_components, rank)


def scores(tasks: RotatedTasks, model: LowRankModel) -> Moments:
    """Return the moments of the tasks as regressions on the scores of one component, with noise
    variance one.
    """
    centred = tasks.less(model.mean)
    solved = _solve(centred, model.loadings()[0], model.delta, model.noise)
    gram = np.matmul(solved.A.transpose(0, 2, 1), solved.B)
    cross = np.matmul(centred.y[:, None, :], solved.B)[:, 0]
    square = (centred.y**2 / solved.D).sum(axis=1) + tasks.rest / model.noise
    return Moments(gram, cross, square, tasks.n_rest + tasks.y.shape[1])


def mixture_of_scores(tasks: Moments, n_components: int, seed: Sequence[int]) -> Mixture:
    """Fit a mixture with zero means to the scores, starting from their standard normal prior."""
    q = tasks.n_features
    single = Mixture(np.ones(1), np.zeros((1, q)), np.eye(q)[None], 1.0)
    if n_components == 1:
        return em(tasks, single, max_iter=20, m_step=MStep(learn_mean=False)).mixture
    return fit_mixture(tasks, single, n_components, seed=list(seed), learn_mean=False, n_starts=8)


def recalibrate(
    held_out: list[RotatedTasks], models: list[LowRankModel], start: Calibration
) -> Calibration:
    """Return the (c, δ, σ²) with the highest evidence on held-out tasks under c FFᵀ + ω e eᵀ + δI,
    with one model for each fold.
    """
    pairs, n_tasks = list(zip(held_out, models, strict=True)), sum(len(tasks) for tasks in held_out)

    def loss(logs: Array) -> float:
        c, delta, noise = np.exp(logs).tolist()
        each = (log_evidence(tasks, model.scaled((c, delta, noise))) for tasks, model in pairs)
        return -sum(float(evidence.sum()) for evidence in each) / n_tasks

    x = np.log(start)
    simplex = np.array([x, *(x + step for step in np.diag([0.3, 0.7, 0.2]))])
    options = {"maxiter": 50, "xatol": 0.02, "fatol": 2e-4, "initial_simplex": simplex}
    c, delta, noise = np.exp(minimize(loss, x, method="Nelder-Mead", options=options).x)
    return float(c), float(delta), float(noise)
