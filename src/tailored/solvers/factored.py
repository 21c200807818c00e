"""The objective as a function of factors of H and C, which need no projection.

With ``H = M Mᵀ``, M (dk, r), and ``C = F Fᵀ``, F (d, d), the representation and the prior mean of a task are

    τ(s) = V Vᵀ + F Fᵀ ,   V = (I ⊗ φᵀ) M  (d, r) ,        b(s) = B φ + b₀ ,

positive semidefinite for every M and F.  If G is an objective's gradient in θ and g its gradient in b, the
gradients of the mean over T tasks are

    dM = 2/T Σ_t (I ⊗ φ_t) G_t V_t ,   dF = 2/T Σ_t G_t F ,   dB = 1/T Σ_t g_t φ_tᵀ ,   db₀ = 1/T Σ_t g_t ,

so the largest arrays are M and the representations of a few tasks.  The problem is not convex:
M = 0 is a saddle point, and the columns of F are only determined up to a rotation.

Optimisation runs in coordinates in which the initial C is the identity, so that it does not depend on the units
of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import joblib
import numpy as np

from ..gaussian.em import fit_mixed_model
from ..gaussian.rows import statistics_of
from ..losses import Loss
from ..representation.bias import Bias
from ..representation.conditioning import Conditioning, Constant, Factored
from ..tasks.rows import Array, Rows, Scaling
from ..tasks.task_set import TaskSet
from .base import Problem, TaskBatch
from .objectives import Objective

Gradients = tuple[float, Array, Array, Array]

#: Maximum number of floats in the representations or slices of one block of tasks (16 MB).
BLOCK_FLOATS = 2_000_000
#: Maximum number of tasks in a block, so that there are blocks for several jobs.
BLOCK_TASKS = 64
#: Initial mean of V Vᵀ over the tasks, as a fraction of C: large enough to leave the saddle point at M = 0.
START_H = 0.03
#: Eigenvalues of the initial C are raised to this fraction of their mean, because F could not grow from zero.
FLOOR = 1e-3
#: Maximum number of floats in the mixed model for the initial value (160 MB); of more tasks, only the first are used.
START_FLOATS = 20_000_000
#: Multiples of the initial C that are tried; 1 is first, so that a tie keeps C.
START_SCALES = tuple(4.0**e for e in (0, -1, 1, -2, 2, -3, 3, -4, 4))


class Factors(NamedTuple):
    """M (d, k, r), F (d, d), B (d, k) and b₀ (d,); parts that are not learned have an axis of length 0."""

    M: Array
    F: Array
    B: Array
    b0: Array

    @classmethod
    def of(cls, F: Array, n_side: int, rank: int, bias: Bias) -> Factors:
        """Return M = 0 with the given F and prior mean."""
        d, b0 = len(F), bias.constant.copy() if bias.moves else np.zeros(0)
        return cls(np.zeros((d, n_side, min(rank, d * n_side))), np.array(F), bias.linear.copy(), b0)

    def pack(self) -> Array:
        """Return all parameters as one vector."""
        return np.concatenate([part.ravel() for part in self])

    def unpack(self, vector: Array) -> Factors:
        """Return factors of the same shapes with the entries of ``vector``."""
        parts = np.split(vector, np.cumsum([part.size for part in self])[:-1])
        return Factors(*(new.reshape(part.shape) for new, part in zip(parts, self, strict=True)))

    def slices(self, phis: Array) -> Array:
        """Return V_t of each task, (T, d, r)."""
        d, k, r = self.M.shape
        return (phis @ self.M.transpose(1, 0, 2).reshape(k, d * r)).reshape(len(phis), d, r)

    def means(self, phis: Array) -> Array | None:
        """Return b(s) of each task, (T, d), or None if it is zero."""
        if not self.b0.size:
            return None
        return self.b0 + phis @ self.B.T if self.B.size else np.tile(self.b0, (len(phis), 1))

    def conditioning(self, rank: int | None) -> Conditioning:
        """Return (H, C) with H in an orthonormal basis of its range."""
        C = self.F @ self.F.T
        if not self.M.size:
            return Constant(C, self.M.shape[1])
        return Factored.from_tensor(np.ascontiguousarray(self.M.transpose(2, 0, 1)), C, rank)

    def bias(self, kind: str) -> Bias:
        """Return the prior mean."""
        return Bias(kind, self.b0.copy() if self.b0.size else np.zeros(len(self.F)), self.B.copy())


@dataclass(frozen=True)
class FactoredObjective:
    """The mean of ``objective`` over the tasks of a batch, with b(s) = ``unit`` · (Bφ + b₀)."""

    objective: Objective
    unit: float = 1.0
    n_jobs: int | None = None

    def __call__(self, factors: Factors, batch: TaskBatch) -> tuple[float, Factors]:
        """Return the value, and its gradient as factors of the same shapes.

        Tasks are split into the same blocks for every ``n_jobs``, so the sums do not depend on it.
        """
        d, _, r = factors.M.shape
        size = max(1, min(BLOCK_TASKS, BLOCK_FLOATS // (d * max(d, r))))
        blocks = joblib.Parallel(n_jobs=self.n_jobs, require="sharedmem")(
            joblib.delayed(self._block)(factors, batch.slice(start, min(start + size, len(batch))))
            for start in range(0, len(batch), size)
        )
        T = max(len(batch), 1)
        value = sum(value for value, _ in blocks) / T
        return value, Factors(*(sum(arrays) / T for arrays in zip(*(g for _, g in blocks), strict=True)))

    def _block(self, factors: Factors, batch: TaskBatch) -> tuple[float, tuple[Array, ...]]:
        """Return the value and the gradients in M, F, B and b₀, summed over the tasks."""
        V, means = factors.slices(batch.phis), factors.means(batch.phis)
        if means is not None:
            means = self.unit * means
        gradients = self._dense if batch.columns is None else self._sparse
        value, GV, GF, g = gradients(V, factors.F, means, batch)
        d, k, r = factors.M.shape
        dM = 2.0 * (batch.phis.T @ GV.reshape(len(GV), d * r)).reshape(k, d, r).transpose(1, 0, 2)
        dB = self.unit * g.T @ batch.phis if factors.B.size else factors.B
        db0 = self.unit * g.sum(axis=0) if factors.b0.size else factors.b0
        return value, (dM, 2.0 * GF, dB, db0)

    def _dense(self, V: Array, F: Array, means: Array | None, batch: TaskBatch) -> Gradients:
        """Return the value, G_t V_t (T, d, r), Σ_t G_t F (d, d) and g_t (T, d)."""
        T, d, r = V.shape
        C = F @ F.T
        # without H all tasks share one θ, which the within-task solver recognises by its strides
        thetas = np.matmul(V, V.transpose(0, 2, 1)) + C if r else np.broadcast_to(C, (T, d, d))
        result = self.objective(batch.support, batch.query, thetas, means)
        left, right = result.left, result.right
        on_left, on_right = np.einsum("td,tdr->tr", left, V), np.einsum("td,tdr->tr", right, V)
        GV = 0.5 * (left[:, :, None] * on_right[:, None, :] + right[:, :, None] * on_left[:, None, :])
        total = 0.5 * (left.T @ right + right.T @ left)
        if result.gram.any():
            X, offsets = batch.support.X, batch.support.offsets
            total += (X * np.repeat(result.gram, np.diff(offsets))[:, None]).T @ X
            for t in range(T if r else 0):
                rows = X[offsets[t] : offsets[t + 1]]
                GV[t] += result.gram[t] * (rows.T @ (rows @ V[t]))
        return float(result.value.sum()), GV, total @ F, result.bias

    def _sparse(self, V: Array, F: Array, means: Array | None, batch: TaskBatch) -> Gradients:
        """Return the same as `_dense` for sparse tasks, each restricted to its non-zero columns."""
        value, GV, GF, g = 0.0, np.zeros_like(V), np.zeros_like(F), np.zeros((len(V), len(F)))
        for t, own in enumerate(batch.columns or ()):
            one = batch.slice(t, t + 1)
            query = None if one.query is None else one.query.compressed(own)
            one = replace(one, support=one.support.compressed(own), query=query, columns=None)
            mean = None if means is None else means[t : t + 1, own]
            part, GV_own, GF_own, g_own = self._dense(V[t : t + 1, own], F[own], mean, one)
            value += part
            GV[t, own], g[t, own] = GV_own[0], g_own[0]
            GF[own] += GF_own
        return value, GV, GF, g


@dataclass(frozen=True)
class Coordinates:
    """A change of coordinates to ``X @ transform``, ``φ / phi_scale`` and prior means in multiples of ``unit``."""

    transform: Array
    phi_scale: float
    unit: float

    def batch(self, batch: TaskBatch) -> TaskBatch:
        """Return the batch in these coordinates; sparse rows need a diagonal ``transform``."""

        def rows(part: Rows) -> Rows:
            if batch.columns is None:
                return Rows(part.X @ self.transform, part.y, part.offsets)
            return Rows((part.X * np.diag(self.transform)[None, :]).tocsr(), part.y, part.offsets)

        query = None if batch.query is None else rows(batch.query)
        return replace(batch, support=rows(batch.support), query=query, phis=batch.phis / self.phi_scale)

    def original(self, factors: Factors) -> Factors:
        """Return the factors in the original coordinates."""
        return Factors(
            np.tensordot(self.transform, factors.M, 1) / self.phi_scale,
            self.transform @ factors.F,
            self.unit / self.phi_scale * self.transform @ factors.B,
            self.unit * self.transform @ factors.b0 if factors.b0.size else factors.b0,
        )


@dataclass(frozen=True)
class Start:
    """Initial factors, their coordinates, and the multiple of τ with the lowest error on held-out tasks."""

    factors: Factors
    coordinates: Coordinates
    scale: float = 1.0


def find_start(problem: Problem, rng: np.random.Generator) -> Start:
    """Return the initial factors, with C = I and a small random M in suitable coordinates.

    If the user passed C₀, it is used.  Otherwise C and b₀ are estimated by a linear mixed model of the tasks, and C is
    multiplied by the scale that minimises the objective.
    """
    assert problem.held_out_error is not None
    batch, bias, loss = problem.batch, problem.start.bias.copy(), problem.start.loss
    n_side = batch.phis.shape[1]
    if problem.has_start:
        F = _root(problem.start.conditioning.C)
    else:
        F, mean = _mixed_model(problem.tasks, batch, loss, problem.start.fit_intercept, bias.moves)
        if bias.moves:
            bias = Bias(bias.kind, mean, bias.linear)
        value = FactoredObjective(problem.objective)
        # A grid, here and below, because there may be several minima, and a plateau where tasks are interpolated.
        values = [value(Factors.of(np.sqrt(c) * F, n_side, 0, bias), batch)[0] for c in START_SCALES]
        F = np.sqrt(START_SCALES[int(np.argmin(values))]) * F
    scale = 1.0
    if problem.tune_scale:
        errors = [problem.held_out_error(Constant(c * (F @ F.T), n_side), bias.copy()) for c in START_SCALES]
        scale = START_SCALES[int(np.argmin(errors))]
    # only a diagonal transform keeps sparse rows sparse
    transform = F if batch.columns is None else np.diag(np.sqrt(np.diag(F @ F.T)))
    inverse = np.linalg.inv(transform)
    phi_scale = float(np.sqrt(batch.squared_scale[-1])) or 1.0
    # If C = I, prior means of this size give predictions as large as the targets.
    energy, square = float(((batch.support.X @ F) ** 2).sum()), float(batch.support.y @ batch.support.y)
    unit = float(np.sqrt(square / energy)) if energy > 0 and square > 0 else 1.0
    coordinates = Coordinates(transform, phi_scale, unit)
    if bias.moves:
        bias = Bias(bias.kind, inverse @ bias.constant / unit, bias.linear)
    factors = Factors.of(inverse @ F, n_side, problem.rank or 0, bias)
    size = np.sqrt(START_H / max(factors.M.shape[2], 1))
    return Start(factors._replace(M=size * rng.standard_normal(factors.M.shape)), coordinates, scale)


def _root(C: Array) -> Array:
    """Return a square F with F Fᵀ = C; small eigenvalues are raised first, because C = 0 is a saddle point."""
    values, vectors = np.linalg.eigh(C)
    floor = FLOOR * max(float(values.mean()), 0.0) or FLOOR
    return np.asarray(vectors * np.sqrt(np.maximum(values, floor)))


def _mixed_model(
    tasks: TaskSet, batch: TaskBatch, loss: Loss, fit_intercept: bool, learn_mean: bool
) -> tuple[Array, Array]:
    """Return a root of C = n W / s, and b₀, from a linear mixed model; if d is too large, the identity and 0.

    W is the covariance of the mixed model, and n is the mean number of support rows.  The loss ℓ corresponds to residuals
    with density proportional to ``exp(−ℓ(r) / s)``, for which E[r ℓ'(r)] = s.  This moment is computed with the Gaussian
    residuals of the mixed model.
    """
    d = tasks.n_features + fit_intercept
    n_tasks = START_FLOATS // d**2
    if n_tasks < min(len(tasks), d):
        return np.eye(d), np.zeros(d)
    units = Scaling.of(tasks, fit_intercept)
    statistics = statistics_of(tasks[:n_tasks], units)
    mixture = fit_mixed_model(statistics, max_iter=100, tol=1e-5, learn_mean=learn_mean)
    root = units.weights[:, None] * _root(mixture.covariances[0])
    sigma = np.sqrt(mixture.noise) * units.target
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    residuals = sigma * nodes
    slopes = loss.subgradient(residuals, np.zeros_like(residuals))
    s = float(weights @ (residuals * slopes)) / float(weights.sum())
    n = float(np.mean(np.diff(batch.support.offsets)))
    return np.sqrt(max(n, 1.0) / (s if s > 0 else sigma)) * root, units.weights * mixture.means[0]
