"""Predictions and errors of baselines that were fitted together with a learner, for summaries and displays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..gaussian.mixture import Mixture, Want
from ..gaussian.rows import statistics_of
from ..losses import Loss
from ..priors.base import Prior, predict_blocks
from ..tasks.rows import clipped, predictions, task_means
from ..tasks.task_set import TaskSet
from .training import OWN, TrainingSummary

Array = NDArray[np.float64]

#: Names of the baselines.
TASK_MEAN, RIDGE, MIXED_MODEL, POOLED = "task mean", "ridge per task", "mixed model", "pooled regression"


def baseline_predictions(
    prior: Prior, training: TrainingSummary, support: TaskSet, query: TaskSet
) -> dict[str, Array]:
    """Predict the query rows by the mean of the support rows, by ridge regression on them, and by the mixed model.

    Ridge penalty and mixed model come from the training summary; they are left out if it does not have them.
    """
    own = np.where(support.sizes > 0, task_means(support.y, support.offsets), training.target_mean)
    by_method = {TASK_MEAN: np.repeat(own, query.sizes)}
    models, d = dict[str, Mixture](), prior.n_weights
    if training.ridge is not None:
        models[RIDGE] = Mixture(np.ones(1), np.zeros((1, d)), training.ridge * np.eye(d)[None], 1.0)
    if training.mixed_model is not None and prior.mixture is not None:
        models[MIXED_MODEL] = training.mixed_model
    # With a shared regressor they were fitted to the residuals, so their predictions are not comparable.
    if prior.regressor is not None or not models:
        return by_method
    side = None if prior.side is None else prior.side(support)
    statistics = statistics_of(support, prior.scaling, side)
    rows = prior.scaling.rows(query)
    for name, baseline in models.items():
        means = statistics.posterior(baseline, Want(means=True)).mean
        by_method[name] = clipped(prior.scaling.raw_predictions(predictions(rows, means)), prior.clip)
    return by_method


def baseline_errors(
    prior: Prior,
    training: TrainingSummary | None,
    support: TaskSet,
    query: TaskSet,
    loss: Loss,
    n_jobs: int | None = None,
) -> Mapping[str, Array]:
    """Return the mean error of each task's query rows, by the learner and by the baselines; NaN without query rows."""
    by_method = {OWN: predict_blocks(prior, support, query, None, n_jobs).prediction}
    if training is not None:
        by_method.update(baseline_predictions(prior, training, support, query))
    has_query = query.sizes > 0
    return {
        name: np.where(has_query, task_means(loss.error(prediction, query.y), query.offsets), np.nan)
        for name, prediction in by_method.items()
    }
