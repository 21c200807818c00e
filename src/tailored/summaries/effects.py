"""Each task's effects, and how well they are known."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import adapting
from .._utils.threads import single_threaded_blas
from ..feature_maps import PosteriorMap, PosteriorModel
from ..gaussian import MeanCovariance, TaskStatistics, task_covariances
from ..prior import Prior
from ..tasks import TaskSet
from ..tasks.rows import batches

Array = NDArray[np.float64]

#: What the weight of the constant column is called.
INTERCEPT = "(intercept)"


def column_names(feature_names: object, n_features: int, fit_intercept: bool) -> list[str]:
    """Names of the weights: the user's columns (x0, x1, .. where they have no names) and the intercept."""
    given = [f"x{j}" for j in range(n_features)] if feature_names is None else [str(n) for n in feature_names]  # type: ignore[attr-defined]
    return [*given, INTERCEPT] if fit_intercept else given


class TaskEffects(NamedTuple):
    """Weights (T, d) in the user's units, the intercept last, and standard deviations of their errors, NaN if unknown."""

    weights: Array
    std: Array

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """Ends of Gaussian intervals."""
        reach = NormalDist().inv_cdf(0.5 + 0.5 * coverage) * self.std
        return self.weights - reach, self.weights + reach


def posterior_model(prior: Prior) -> PosteriorModel | None:
    """The Gaussian model of the environment behind a prior of empirical Bayes; None for others."""
    return prior.feature_map.model if isinstance(prior.feature_map, PosteriorMap) else None


def task_effects(
    prior: Prior, tasks: TaskSet, mean: MeanCovariance | None = None, n_jobs: int | None = None
) -> TaskEffects:
    """Posterior means of the weights of tasks under the prior's Gaussian model, and the deviations of their errors.

    ``mean`` is what is open about the prior mean.  What query rows add to b(s) is left out: it is learned to predict, and
    neither it nor its error is that of a weight.  Other priors than those of empirical Bayes, and those of many columns,
    have no such model: weights are then those of adapting, without errors.
    """
    model = posterior_model(prior)
    if model is None:
        found = adapting.weights(replace(prior, quantile=None), tasks, n_jobs)
        return TaskEffects(found, np.full_like(found, np.nan))
    left, weights, deviations = adapting.left_to_tasks(prior, tasks), [], []
    with single_threaded_blas():
        for batch in batches(left):
            side = None if model.side is None else model.side(batch)
            statistics = TaskStatistics.of(batch, prior.units, side)
            weights.append(prior.units.raw_weights(model.mixture.weights(statistics)))
            deviations.append(prior.units.raw_deviations(task_covariances(model.mixture, statistics, mean)))
    return TaskEffects(np.concatenate(weights), np.concatenate(deviations))
