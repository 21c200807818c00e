"""Where solvers over factors start, and in which coordinates they work.

They work in coordinates in which the start is the identity, so that their steps mean the same whatever the
units of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..gaussian import TaskStatistics, fit_mixed_model
from ..losses import Loss
from ..representation import Bias, Constant
from ..tasks import TaskSet, Units
from .base import Problem
from .batch import TaskBatch
from .factors import FactoredObjective, Factors, transformed

Array = NDArray[np.float64]

#: Mean of V Vᵀ over the tasks at the start, as a fraction of C: large enough to leave the saddle at M = 0.
START_H = 0.03
#: Directions of the starting C below this fraction of its mean eigenvalue are raised to it: F could not grow.
FLOOR = 1e-3
#: Floats that the mixed model behind the start may take; beyond, it sees the first tasks only (160 MB).
START_FLOATS = 20_000_000
#: Multiples of C that are tried at the start; 1 first, so that a tie leaves it as it is.
START_SCALES = tuple(4.0**e for e in (0, -1, 1, -2, 2, -3, 3, -4, 4))


@dataclass(frozen=True)
class Coordinates:
    """Rows ``X @ transform``, features ``φ / phi_scale``, prior means in ``unit``."""

    transform: Array
    phi_scale: float
    unit: float

    def enter(self, batch: TaskBatch) -> TaskBatch:
        return transformed(batch, self.transform, self.phi_scale)

    def leave(self, factors: Factors) -> Factors:
        return factors.mapped(self.transform, self.phi_scale, self.unit)


@dataclass(frozen=True)
class State:
    """Where training stands: the best factors so far and the best multiple of their τ.

    The coordinates stay those of the first tasks, however many more there are.
    """

    factors: Factors
    coordinates: Coordinates
    scale: float = 1.0


def start(problem: Problem, rng: np.random.Generator) -> State:
    """Coordinates in which C = I, and a small random M.

    A C₀ that the user gave is taken as it is; without one, C and b₀ are those of a linear mixed model of the
    tasks, C with the multiple that the objective prefers (the surrogate a smaller one than the held-out tasks).
    """
    assert problem.judge is not None
    batch, bias, loss = problem.batch, problem.start.bias.copy(), problem.start.loss
    n_side = batch.phis.shape[1]
    if problem.has_start:
        F = _root(problem.start.conditioning.C)
    else:
        F, mean = _mixed_model(problem.tasks, batch, loss, problem.start.fit_intercept, bias.moves)
        if bias.moves:
            bias = Bias(bias.kind, mean, bias.linear)
        value = FactoredObjective(problem.objective)
        # A grid, here and below, because there need not be one valley: interpolation is a plateau.
        values = [value(Factors.of(np.sqrt(c) * F, n_side, 0, bias), batch)[0] for c in START_SCALES]
        F = np.sqrt(START_SCALES[int(np.argmin(values))]) * F
    scale = 1.0
    if problem.calibrate:
        errors = [problem.judge(Constant(c * (F @ F.T), n_side), bias.copy()) for c in START_SCALES]
        scale = START_SCALES[int(np.argmin(errors))]
    # sparse rows stay sparse under a diagonal only
    transform = F if batch.columns is None else np.diag(np.sqrt(np.diag(F @ F.T)))
    inverse = np.linalg.inv(transform)
    squared = float(batch.squared_scale[-1])
    coordinates = Coordinates(
        transform, float(np.sqrt(squared)) if squared > 0 else 1.0, _prediction_unit(batch, F)
    )
    if bias.moves:
        bias = Bias(bias.kind, inverse @ bias.constant / coordinates.unit, bias.linear)
    factors = Factors.of(inverse @ F, n_side, problem.rank or 0, bias)
    size = np.sqrt(START_H / max(factors.M.shape[2], 1))
    return State(replace(factors, M=size * rng.standard_normal(factors.M.shape)), coordinates, scale)


def _root(C: Array) -> Array:
    """Square F with F Fᵀ = C, after raising the small eigenvalues; C = 0 would be a saddle."""
    values, vectors = np.linalg.eigh(C)
    floor = FLOOR * max(float(values.mean()), 0.0) or FLOOR
    root: Array = vectors * np.sqrt(np.maximum(values, floor))
    return root


def _mixed_model(
    tasks: TaskSet, batch: TaskBatch, loss: Loss, fit_intercept: bool, learn_mean: bool
) -> tuple[Array, Array]:
    """A root of C = n W / s, and b₀, of the linear mixed model; the identity where d is too large for one.

    ``exp(−ℓ(r) / s)`` is the density of the residuals that the loss stands for, and E[r ℓ'(r)] = s under it;
    that moment is taken at the mixed model's Gaussian residuals, n at the mean number of support rows.
    """
    d = tasks.n_features + fit_intercept
    fitting = START_FLOATS // d**2
    if fitting < min(len(tasks), d):
        return np.eye(d), np.zeros(d)
    units = Units.of(tasks, fit_intercept)
    statistics = TaskStatistics.of(tasks[:fitting], units)
    mixture = fit_mixed_model(statistics, max_iter=100, tol=1e-5, learn_mean=learn_mean)
    root = units.weights[:, None] * _root(mixture.covariances[0])
    sigma = np.sqrt(mixture.noise) * units.target
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    residuals = sigma * nodes
    slopes = loss.subgradient(residuals, np.zeros_like(residuals))
    s = float(weights @ (residuals * slopes)) / float(weights.sum())
    n = float(np.mean(np.diff(batch.support.offsets)))
    return np.sqrt(max(n, 1.0) / (s if s > 0 else sigma)) * root, units.weights * mixture.means[0]


def _prediction_unit(batch: TaskBatch, F: Array) -> float:
    """Size of prior means, in the coordinates where C = I, whose predictions are of the size of the targets."""
    energy = float(((batch.support.X @ F) ** 2).sum())
    square = float(batch.support.y @ batch.support.y)
    return float(np.sqrt(square / energy)) if energy > 0 and square > 0 else 1.0
