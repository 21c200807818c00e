"""Excess risk of learners and representations on an environment, with a standard error.

Given the adapted weights, the risk of a task is an integral over one number: inputs are ``x = G v``
with v on a sphere, so ``<x, ŵ - w>`` is ``‖Gᵀ(ŵ - w)‖`` times a coordinate of v.  That integral is
done by quadrature to rounding error; only tasks and their rows are drawn, which is what the
standard error is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import special, stats

from tailored._utils.validation import check_fraction, check_int
from tailored.losses import Absolute, Loss, Pinball, get_loss
from tailored.paper.theory import Array, check_stack
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows

from .environment import Environment, Sample

#: Nodes of the quadrature over each half of a coordinate of the sphere.
NODES = 60

#: Levels of the noise, for losses without a closed form; the error is about 1e-4 times the noise.
LEVELS = 501


@dataclass(frozen=True)
class RiskEstimate:
    """A Monte-Carlo mean over tasks."""

    mean: float
    standard_error: float
    values: Array  # excess risk of each task, exact given the task's rows

    @classmethod
    def from_values(cls, values: Array) -> RiskEstimate:
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
        return cls(float(values.mean()), float(error), values)

    def upper(self, confidence: float = 0.999) -> float:
        """One-sided confidence limit: the expectation is below it with this probability (Student's
        t).
        """
        quantile = stats.t.ppf(check_fraction("confidence", confidence), len(self.values) - 1)
        return float(self.mean + quantile * self.standard_error)


def excess_risk(
    environment: Environment,
    method: Any,
    *,
    n: int,
    n_tasks: int = 1000,
    loss: Any = "absolute",
    random_state: Any = 0,
) -> RiskEstimate:
    """Estimate ``E_ρ(τ) - E_ρ*`` (Eqs. conditional_meta_learning_problem_1 and oracle) over new
    tasks.

    Parameters
    ----------
    environment : Environment
    method : learner, array (d, d), array (m, d, d) or callable
        A fitted learner (anything with ``adapt_many``); one representation; one for each cluster;
        or a function from a `TaskSet` to weights (T, d).
    n : int
        Rows that each new task is adapted on.
    n_tasks : int, default=1000
    loss : str or Loss, default="absolute"
        Measures the risk, and fits the tasks where ``method`` is a representation.
    random_state : int, Generator or None
    """
    sample = environment.sample(check_int("n_tasks", n_tasks), n, random_state)
    return RiskEstimate.from_values(
        task_excess(environment, sample, _adapt(method, sample, loss), loss)
    )


def task_excess(
    environment: Environment, sample: Sample, weights: Array, loss: Any = "absolute"
) -> Array:
    """``R_μ(ŵ) - R_μ(w)`` of each task; a (d + 1)-th column of the weights is an intercept."""
    floor = _residual_risk(get_loss(loss), environment.noise)(np.zeros(1))[0]
    return task_risk(environment, sample, weights, loss) - floor


def task_risk(
    environment: Environment, sample: Sample, weights: Array, loss: Any = "absolute"
) -> Array:
    """``R_μ(ŵ) = E ℓ(<x, ŵ>, y)`` of each task."""
    d = environment.d
    shift = weights[:, d] if weights.shape[1] > d else np.zeros(len(weights))
    factors = environment.input_factors[sample.clusters]
    sizes = np.linalg.norm(
        np.einsum("tdq,td->tq", factors, weights[:, :d] - sample.weights), axis=1
    )
    nodes, masses = sphere_coordinate(factors.shape[2])
    risk = _residual_risk(get_loss(loss), environment.noise)
    return np.asarray(risk(sizes[:, None] * nodes + shift[:, None]) @ masses)


def _adapt(method: Any, sample: Sample, loss: Any) -> Array:
    if hasattr(method, "adapt_many"):
        return np.asarray(method.adapt_many(sample.tasks))
    if callable(method):
        return np.asarray(method(sample.tasks))
    taus = check_stack("tau", method, sample.weights.shape[1])
    thetas = (
        taus[sample.clusters] if len(taus) > 1 else np.repeat(taus, len(sample.clusters), axis=0)
    )
    return WithinTask(get_loss(loss)).solve(Rows.of(sample.tasks), thetas).coef


@cache
def sphere_coordinate(q: int) -> tuple[Array, Array]:
    """Nodes and masses of the law of one coordinate of a uniform point on the unit sphere of
    R^q.
    """
    if q == 1:
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    # Density ∝ (1 - t²)^{(q-3)/2}.  Each half on its own, so that the kink of |t| at 0 is at an
    # end, where the nodes crowd, and not between them.
    exponent = (q - 3) / 2
    half, masses = special.roots_jacobi(NODES, exponent, 0.0)
    half = 0.5 * (1.0 + half)
    masses = masses * (1.0 + half) ** exponent
    masses /= 2.0 * masses.sum()
    return np.concatenate([-half, half]), np.concatenate([masses, masses])


def _residual_risk(loss: Loss, noise: float) -> Callable[[Array], Array]:
    """``a -> E ℓ(a, ε)`` for Gaussian ε: closed for the absolute and pinball losses, else by
    quadrature.
    """
    if noise == 0:
        return lambda a: loss.value(a, np.zeros_like(a))
    if isinstance(loss, Absolute):
        return lambda a: _folded_mean(a, noise)
    if isinstance(loss, Pinball):
        return lambda a: 0.5 * _folded_mean(a, noise) + (0.5 - loss.quantile) * a
    # Equal weights on the midpoints of equally likely intervals: robust to kinks.
    levels = noise * stats.norm.ppf((np.arange(LEVELS) + 0.5) / LEVELS)

    def risk(a: Array) -> Array:
        flat = a.ravel()
        total = sum(loss.value(flat, np.full_like(flat, level)) for level in levels)
        return np.asarray(total / len(levels)).reshape(a.shape)

    return risk


def _folded_mean(a: Array, noise: float) -> Array:
    """``E |a + ε|``, the mean of a folded normal variable."""
    bell = noise * np.sqrt(2 / np.pi) * np.exp(-(a**2) / (2 * noise**2))
    return np.asarray(bell + a * special.erf(a / (np.sqrt(2) * noise)))
