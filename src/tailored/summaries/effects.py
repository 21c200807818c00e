"""Coefficients of each task with standard errors."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from .._utils.frames import as_frame
from .._utils.threads import single_threaded_blas
from ..gaussian.errors import MeanCovariance, task_estimates
from ..gaussian.mixture import Want
from ..priors.base import Prior, adapt_tasks
from ..priors.mixture import MixturePrior
from ..tasks.rows import Array, batches
from ..tasks.task_set import TaskSet
from .model import coefficient_names


def task_effects(
    prior: Prior, tasks: TaskSet, mean: MeanCovariance | None, n_jobs: int | None
) -> tuple[Array, ...]:
    """Return coefficients (T, d) in the user's units, intercept last, their standard errors (NaN if unknown) and prior means.

    The coefficients are posterior means under the prior's Gaussian model.  ``mean`` is the covariance of the estimation
    error of the prior mean.  The part of b(s) that was learned on query rows is left out, because it improves predictions
    but does not estimate a coefficient.  For priors without a mixture, return the coefficients of `adapt`.
    """
    if not isinstance(prior, MixturePrior):
        coefficients = adapt_tasks(prior, tasks, covariances=False, n_jobs=n_jobs).weights
        means = adapt_tasks(prior, tasks.without_rows(), covariances=False, n_jobs=n_jobs).weights
        return coefficients, np.full_like(coefficients, np.nan), means
    parts = []
    with single_threaded_blas():
        for batch in batches(prior.residual_tasks(tasks)):
            statistics = prior.statistics(batch)
            estimates, covariances = task_estimates(prior.mixture, statistics, mean)
            before = prior.response.statistics(batch.without_rows(), prior.scaling, statistics.side)
            means = before.posterior(prior.mixture, Want(means=True)).mean
            errors = prior.scaling.raw_deviations(covariances)
            parts.append((prior.scaling.raw_weights(estimates), errors, prior.scaling.raw_weights(means)))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def effects_frame(learner: Any, tasks: TaskSet, coverage: float) -> Any:
    """Return a table of the coefficients of each task after adapting to its rows; see `MetaLearner.effects`."""
    training, names = getattr(learner, "training_summary_", None), coefficient_names(learner)
    mean = None if training is None else training.mean
    found = task_effects(learner.prior_, tasks, mean, learner.n_jobs)
    weights, std, prior = (values.ravel() for values in found)
    half_width = NormalDist().inv_cdf(0.5 + 0.5 * coverage) * std
    columns = {
        "task": np.repeat(tasks.labels, len(names)),
        "column": np.tile(np.array(names, dtype=object), len(tasks)),
        "effect": weights,
        "std": std,
        "lower": weights - half_width,
        "upper": weights + half_width,
        "prior": prior,
    }
    return as_frame(columns)
