"""Predictions and errors of baselines that were fitted together with a learner, for summaries and displays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..gaussian.mixture import Mixture
from ..losses import Loss
from ..priors.base import Prior, predict_blocks
from ..priors.mixture import MixturePrior
from ..tasks.rows import support_means, task_means
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
    own = support_means(support, query, training.target_mean, smooth=prior.response is not None)
    by_method = {TASK_MEAN: own}
    models, d = dict[str, Mixture](), prior.n_weights
    if training.ridge is not None:
        models[RIDGE] = Mixture(np.ones(1), np.zeros((1, d)), training.ridge * np.eye(d)[None], 1.0)
    if training.mixed_model is not None:
        models[MIXED_MODEL] = training.mixed_model
    # With a shared regressor they were fitted to the residuals, so their predictions are not comparable.
    if prior.regressor is None and isinstance(prior, MixturePrior):
        for name, baseline in models.items():
            other = replace(prior, model=baseline, shifts=(), calibration=None, quantile=None)
            by_method[name] = predict_blocks(other, support, query).prediction
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
