"""Coefficients of each task with standard errors."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.threads import single_threaded_blas
from ..gaussian.errors import MeanCovariance, task_estimates
from ..gaussian.rows import statistics_of
from ..priors.base import Prior, adapt_tasks
from ..priors.mixture import MixturePrior
from ..tasks.rows import batches
from ..tasks.task_set import TaskSet

Array = NDArray[np.float64]

#: Name of the intercept in tables.
INTERCEPT = "(intercept)"


def coefficient_names(feature_names: Any, n_features: int, fit_intercept: bool) -> list[str]:
    """Return the names of the coefficients: the features (x0, x1, .. without names), then the intercept."""
    names = [f"x{j}" for j in range(n_features)] if feature_names is None else map(str, feature_names)
    return [*names, INTERCEPT] if fit_intercept else list(names)


class TaskEffects(NamedTuple):
    """Coefficients (T, d) in the user's units, intercept last, and their standard errors (NaN if unknown)."""

    weights: Array
    std: Array

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """Return the lower and upper bounds of Gaussian intervals."""
        half_width = NormalDist().inv_cdf(0.5 + 0.5 * coverage) * self.std
        return self.weights - half_width, self.weights + half_width


def posterior_model(prior: Prior) -> MixturePrior | None:
    """Return a prior that has a Gaussian mixture model; None for other priors."""
    return prior if isinstance(prior, MixturePrior) else None


def task_effects(
    prior: Prior, tasks: TaskSet, mean: MeanCovariance | None = None, n_jobs: int | None = None
) -> TaskEffects:
    """Compute posterior means and standard errors of the coefficients of tasks under the prior's Gaussian model.

    ``mean`` is the covariance of the estimation error of the prior mean.  The part of b(s) that was learned on query
    rows is left out: it improves predictions, but is not an estimate of a coefficient.  Priors without a Gaussian
    model, and those for many columns, give the coefficients of `adapt` without standard errors.
    """
    model = posterior_model(prior)
    if model is None:
        coefficients = adapt_tasks(prior, tasks, covariances=False, n_jobs=n_jobs).weights
        return TaskEffects(coefficients, np.full_like(coefficients, np.nan))
    residual_tasks, weights, deviations = prior.residual_tasks(tasks), [], []
    with single_threaded_blas():
        for batch in batches(residual_tasks):
            side = None if model.side is None else model.side(batch)
            statistics = statistics_of(batch, prior.scaling, side)
            estimates, covariances = task_estimates(model.mixture, statistics, mean)
            weights.append(prior.scaling.raw_weights(estimates))
            deviations.append(prior.scaling.raw_deviations(covariances))
    return TaskEffects(np.concatenate(weights), np.concatenate(deviations))
