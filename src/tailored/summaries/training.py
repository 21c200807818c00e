"""`TrainingSummary`: statistics of the training tasks that summaries need, without the rows; errors of baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from scipy.special import entr

from .._utils.records import MAY_BE_NAN, Record
from .._utils.validation import check_shape
from ..feature_maps.side_features import SideFeatures
from ..gaussian.errors import MeanCovariance
from ..gaussian.mixture import Mixture, log_gates
from ..losses import Loss
from ..priors.base import Prior, predict_blocks
from ..priors.mixture import MixturePrior
from ..tasks.rows import Array, Scaling, support_means, task_means
from ..tasks.task_set import TaskSet

#: Names of the fitted learner and of the baselines in tables of errors.
OWN = "this learner"
TASK_MEAN, RIDGE, MIXED_MODEL, POOLED = "task mean", "ridge per task", "mixed model", "pooled regression"


@dataclass(frozen=True)
class SideSummary(Record):
    """Contribution of the side information.  Row 0 is for all m columns together, row 1 + j for column j alone."""

    #: (1 + m, d): standard deviation over tasks of its contribution to each coefficient, in the user's units; that of the
    #: intercept is at the feature means.  Variances could overflow.
    coefficient_std: Array
    #: (1 + m,): variance of its contribution to the prediction of a row, averaged over rows, in squared target units.
    row_variance: Array
    #: (1 + m,): fraction of the entropy of a task's component that the mixing weights remove; other columns at their means.
    entropy_reduction: Array
    #: (K, m): mean of each column in each component; None if a column is not numeric.
    component_means: Array | None = None

    def __post_init__(self) -> None:
        n = len(self.row_variance)
        check_shape("row_variance", self.row_variance, n)
        check_shape("coefficient_std", self.coefficient_std, n, None)
        check_shape("entropy_reduction", self.entropy_reduction, n)
        if self.component_means is not None:
            check_shape("component_means", self.component_means, None, n - 1)


@dataclass(frozen=True)
class ComparedStructure(Record):
    """Results of a structure of the prior on the held-out tasks."""

    difference: float  # log predictive density minus that of the selected structure, in nats per task
    std_error: Annotated[float, MAY_BE_NAN]  # paired; NaN with one held-out task
    error: float  # error given support rows, in the user's loss


@dataclass(frozen=True)
class TrainingSummary(Record):
    """Statistics of the training tasks of a prior."""

    n_tasks: int
    n_rows: int
    target_mean: float
    loss: str
    #: Errors of the held-out tasks by method, for the same tasks and rows; NaN for tasks without query rows.
    errors: dict[str, Annotated[Array, MAY_BE_NAN]] = field(default_factory=dict)
    row_moment: Array | None = None  # mean of xxᵀ over rows, for scaled rows
    mean: MeanCovariance | None = None  # covariance of the estimation error of b and Γ
    mixed_model: Mixture | None = None  # mixed model with full covariance, fitted to the same tasks
    ridge: float | None = None  # the best ridge regression per task has τ = ridge · I
    side: SideSummary | None = None
    #: The best structure of each kind by name, the selected one first.
    compared: dict[str, ComparedStructure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({errors.shape for errors in self.errors.values()}) > 1:
            raise ValueError("errors: must have the same tasks for all methods")
        if self.row_moment is not None:
            d = len(self.row_moment)
            check_shape("row_moment", self.row_moment, d, d)
            if self.mean is not None and (self.mean.row >= d).any():
                raise ValueError(f"mean.row: must be positions below {d}")


def summarise_side(
    model: Mixture,
    units: Scaling,
    features: SideFeatures,
    side: Array,
    row_moment: Array,
    table: Array | None,
) -> SideSummary:
    """Summarise the contribution of the side information: its features (T, q), and its ``table`` (T, m) if numeric."""
    columns = np.asarray(features.origins)
    d, m = model.means.shape[1], int(columns.max(initial=-1)) + 1
    coefficient_std, row_variance, reduction = np.zeros((1 + m, d)), np.zeros(1 + m), np.zeros(1 + m)
    for i in range(1 + m):
        chosen = columns >= 0 if i == 0 else columns == i - 1
        if model.side is not None:
            added = side[:, chosen] @ model.side[:, chosen].T
            covariance = np.atleast_2d(np.cov(added.T, bias=True))
            row_variance[i] = units.target**2 * float(np.sum(covariance * row_moment))
            coefficient_std[i] = units.centred_deviations(covariance)
        if model.gates is not None:
            weights = np.exp(log_gates(model.gates[:, np.append(True, chosen)], side[:, chosen]))
            entropy = entr(weights.mean(axis=0)).sum()
            reduction[i] = 1.0 - entr(weights).sum(axis=1).mean() / entropy if entropy > 0 else 0.0
    means = None
    if table is not None and model.n_components > 1 and model.gates is not None:
        r = np.exp(log_gates(model.gates, side))
        means = (r.T @ np.nan_to_num(table)) / np.maximum(r.T @ ~np.isnan(table), 1e-300)
    return SideSummary(coefficient_std, row_variance, reduction, means)


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
