"""Coefficients of each task with standard errors."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import adapting
from .._utils.threads import single_threaded_blas
from ..feature_maps import PosteriorMap, PosteriorModel
from ..gaussian import MeanCovariance, statistics_of, task_covariances
from ..prior import Prior
from ..tasks import TaskSet
from ..tasks.rows import batches

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


def posterior_model(prior: Prior) -> PosteriorModel | None:
    """Return the Gaussian model of an empirical Bayes prior; None for other priors."""
    return prior.feature_map.model if isinstance(prior.feature_map, PosteriorMap) else None


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
        coefficients = adapting.weights(replace(prior, quantile=None), tasks, n_jobs)
        return TaskEffects(coefficients, np.full_like(coefficients, np.nan))
    residual_tasks, weights, deviations = adapting.left_to_tasks(prior, tasks), [], []
    with single_threaded_blas():
        for batch in batches(residual_tasks):
            side = None if model.side is None else model.side(batch)
            statistics = statistics_of(batch, prior.units, side)
            weights.append(prior.units.raw_weights(model.mixture.weights(statistics)))
            deviations.append(prior.units.raw_deviations(task_covariances(model.mixture, statistics, mean)))
    return TaskEffects(np.concatenate(weights), np.concatenate(deviations))
