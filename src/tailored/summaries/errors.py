"""Errors of a learner and of simple baselines on the same tasks, for the table of errors in a summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from .._utils.tables import Table
from ..empirical_bayes.training_summary import MIXED_MODEL, OWN, POOLED, RIDGE, TASK_MEAN, TrainingSummary
from ..gaussian.mixture import Mixture
from ..losses import Loss, error_name
from ..priors.base import Prior, predict_blocks
from ..priors.mixture import MixturePrior
from ..tasks.episodes import SupportSampling
from ..tasks.rows import Array, support_means, task_means
from ..tasks.task_set import TaskSet

#: Support and query rows of tasks.
Split: TypeAlias = tuple[TaskSet, TaskSet]
#: Definitions of the baselines.
BASELINES = {
    TASK_MEAN: "mean of the support rows",
    RIDGE: "each task alone, with the best of 15 penalties",
    POOLED: "one regression for the rows of all tasks",
    MIXED_MODEL: "full random-effect covariance, with the same side information",
}


def held_out_errors(prior: Prior, training: TrainingSummary, sampling: SupportSampling) -> Table:
    """Tabulate the errors of the tasks that were held out in `fit`, whose support rows were drawn by ``sampling``."""
    share = "25 to 75 %" if sampling.in_order else "75 %"
    if sampling.support is not None:
        share = " to ".join(dict.fromkeys(map(_share, sampling.support)))
    which = "first" if sampling.in_order else "random"
    evaluated_on = (
        f"tasks held out in fit, each with {share} of its rows as support ({which}); the model was selected on the same "
        "tasks, so its error is slightly optimistic. The criterion is the log predictive density, not the error, so a "
        "baseline may have a lower error"
    )
    if prior.shared is not None and len(training.errors) > 1:
        evaluated_on += (
            ". All methods have the effects that all tasks share, which were fitted to these tasks, too"
        )
    return errors_table(training.errors, training.loss, evaluated_on, not prior.response.is_gaussian)


def new_errors(learner: Any, training: TrainingSummary | None, split: Split, n_support: float | int) -> Table:
    """Tabulate the errors on the query rows of other tasks, given their support rows (their number or fraction)."""
    prior = learner.prior_
    errors = baseline_errors(prior, training, *split, learner.loss_, learner.n_jobs)
    evaluated_on = f"the given tasks, each with {_share(n_support)} of its rows as support"
    return errors_table(errors, learner.loss_.name, evaluated_on, not prior.response.is_gaussian)


def baseline_errors(
    prior: Prior,
    training: TrainingSummary | None,
    support: TaskSet,
    query: TaskSet,
    loss: Loss,
    n_jobs: int | None = None,
) -> Mapping[str, Array]:
    """Return, for the learner and each baseline, the mean error of each task on its query rows (NaN without query rows).

    The ridge penalty and the mixed model are read from the training summary.  A baseline that it lacks is left out.
    """
    priors, by_method = dict[str, Prior]({OWN: prior}), dict[str, Array]()
    if training is not None:
        mean, smooth = training.target_mean, not prior.response.is_gaussian
        by_method[TASK_MEAN] = support_means(support, query, mean, smooth=smooth)
        # With a shared regressor, these baselines were fitted to its residuals, so their errors are not comparable.
        if prior.regressor is None and isinstance(prior, MixturePrior):
            simple, d = replace(prior, shifts=(), calibration=None, quantile=None), prior.n_weights
            if training.ridge is not None:
                alone = Mixture(np.ones(1), np.zeros((1, d)), training.ridge * np.eye(d)[None], 1.0)
                priors[RIDGE] = replace(simple, model=alone)
            if training.mixed_model is not None:
                priors[MIXED_MODEL] = replace(simple, model=training.mixed_model)
    predicted = {
        name: predict_blocks(each, support, query, None, n_jobs).prediction for name, each in priors.items()
    }
    return {
        name: task_means(loss.error(values, query.y), query.offsets, query.frequency_weight)
        for name, values in (predicted | by_method).items()
    }


def errors_table(errors: Mapping[str, Array], loss: str, evaluated_on: str, smoothed: bool = False) -> Table:
    """Tabulate the mean error of each method on the same tasks: this learner first, then by increasing error.

    ``smoothed`` says whether the task mean includes one row at the training mean.
    """
    title, own = "Error on held-out tasks", errors.get(OWN, np.full(1, np.nan))
    if not np.isfinite(own).any():
        return Table(title, {})
    rows: list[tuple[str, float, float, float]] = []
    for name, values in errors.items():
        difference = values - own
        difference = difference[np.isfinite(difference)] if name != OWN else np.zeros(0)
        mean = float(difference.mean()) if len(difference) else np.nan
        # Divide by the largest difference, because squares of large errors would overflow.
        size = float(np.abs(difference).max(initial=0.0)) or 1.0
        std_error = np.nan
        if len(difference) > 1:
            std_error = size * float((difference / size).std(ddof=1) / np.sqrt(len(difference)))
        rows.append((name, float(np.nanmean(values)), mean, std_error))
    rows.sort(key=lambda row: (row[0] != OWN, row[1]))
    caption = f"error: mean {error_name(loss)} over {np.isfinite(own).sum():,} {evaluated_on}."
    if len(rows) > 1:
        texts = {
            **BASELINES,
            TASK_MEAN: BASELINES[TASK_MEAN] + " and one row at the training mean" * smoothed,
        }
        defined = "; ".join(f"{name}: {text}" for name, text in texts.items() if name in errors)
        caption += (
            " difference: mean over tasks of the method's error minus that of this learner, with its standard "
            f"error. {defined}."
        )
    return Table.of_rows(title, ("method", "error", "difference", "std. error"), rows, caption)


def _share(share: float | int) -> str:
    """Format a number of rows as an integer, or a fraction of rows as a percentage."""
    return f"{share:,}" if isinstance(share, int) else f"{100.0 * share:g} %"
