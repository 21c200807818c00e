"""Errors of baselines that were fitted together with a learner, for summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..gaussian.mixture import Mixture
from ..losses import Loss
from ..priors.base import Prior, predict_blocks
from ..priors.mixture import MixturePrior
from ..tasks.rows import Array, support_means, task_means
from ..tasks.task_set import TaskSet
from .training import OWN, TrainingSummary

#: Names of the baselines.
TASK_MEAN, RIDGE, MIXED_MODEL, POOLED = "task mean", "ridge per task", "mixed model", "pooled regression"


def baseline_errors(
    prior: Prior,
    training: TrainingSummary | None,
    support: TaskSet,
    query: TaskSet,
    loss: Loss,
    n_jobs: int | None = None,
) -> Mapping[str, Array]:
    """Return the mean error of each task's query rows, by the learner and by the baselines; NaN without query rows.

    Ridge penalty and mixed model come from the training summary; they are left out if it does not have them.
    """
    priors, by_method = dict[str, Prior]({OWN: prior}), dict[str, Array]()
    if training is not None:
        mean, smooth = training.target_mean, prior.response is not None
        by_method[TASK_MEAN] = support_means(support, query, mean, smooth=smooth)
        # With a shared regressor the others were fitted to the residuals, so their predictions are not comparable.
        if prior.regressor is None and isinstance(prior, MixturePrior):
            ridge, d = training.ridge, prior.n_weights
            alone = (
                None if ridge is None else Mixture(np.ones(1), np.zeros((1, d)), ridge * np.eye(d)[None], 1.0)
            )
            simple: Any = {"shifts": (), "calibration": None, "quantile": None}
            for name, model in ((RIDGE, alone), (MIXED_MODEL, training.mixed_model)):
                if model is not None:
                    priors[name] = replace(prior, model=model, **simple)
    predicted = {
        name: predict_blocks(each, support, query, None, n_jobs).prediction for name, each in priors.items()
    }
    return {
        name: task_means(loss.error(values, query.y), query.offsets, query.frequency_weight)
        for name, values in (predicted | by_method).items()
    }
