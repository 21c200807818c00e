"""`TrainingSummary`: statistics of the training tasks that a prior was learned from, for summaries,
without the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import entr

from .._utils.records import Record
from ..gaussian.errors import MeanCovariance, as_one, mean_covariance
from ..gaussian.mixture import Mixture, log_gates
from ..gaussian.side import evidence_of_columns
from ..tasks.rows import Array
from .data import LARGEST_WORK, MANY_TASKS, Training, TrainingData
from .loop import Candidate, State, held_out
from .rule import known_mean, significant
from .steps.covariance import ridge_structures
from .structures import MixedModel

#: Minimum number of held-out tasks for a warning about baselines.
LEAST_COMPARED = 10

#: Names of the fitted learner and of the baselines in tables of errors.
OWN, TASK_MEAN, RIDGE, MIXED_MODEL, POOLED = (
    "this learner",
    "task mean",
    "ridge per task",
    "mixed model",
    "pooled regression",
)


@dataclass(frozen=True)
class SideSummary(Record):
    """Contribution of the side information.  In arrays with 1 + m rows, row 0 is for all m columns
    together, and row 1 + j is for column j alone.
    """

    #: (1 + m, d): standard deviation over tasks of its contribution to each coefficient, in the
    #: user's units.  The intercept is that at the feature means.  Variances are not stored, because
    #: they could overflow.
    coefficient_std: Array
    #: (1 + m,): variance of its contribution to the prediction of a row, averaged over rows, in
    #: squared target units.
    row_variance: Array
    #: (1 + m,): fraction of the entropy of a task's component that the mixing weights remove; other
    #: columns are at their means.
    entropy_reduction: Array
    #: (1 + m,): log Bayes factor of its effects on the coefficients; NaN for columns without
    #: effects.
    evidence: Array | None = None


@dataclass(frozen=True)
class ComparedStructure(Record):
    """Results of a structure of the prior on the held-out tasks."""

    difference: (
        float  # log predictive density minus that of the selected structure, in nats per task
    )
    std_error: float  # paired; NaN with one held-out task
    error: float  # error given support rows, in the user's loss
    prior_error: float  # error without support rows


@dataclass(frozen=True)
class TrainingSummary(Record):
    """Statistics of the training tasks of a prior."""

    n_tasks: int
    n_rows: int
    loss: str
    #: Errors of the held-out tasks by method, for the same tasks and rows; NaN for tasks without
    #: query rows.
    errors: dict[str, Array] = field(default_factory=dict)
    log_likelihood: float | None = None  # in the user's units; restricted with REML
    is_singular: bool = False  # whether a variance of the mixed model is zero or a correlation ±1
    row_moment: Array | None = None  # mean of xxᵀ over rows, for scaled rows
    mean: MeanCovariance | None = None  # covariance of the estimation error of b and Γ
    #: The same for the mean of each component of a mixture, given the covariance within it; empty
    #: for one component.
    mean_by_component: list[MeanCovariance | None] = field(default_factory=list)
    side: SideSummary | None = None
    #: The best structure of each kind by name, the selected one first.
    compared: dict[str, ComparedStructure] = field(default_factory=dict)


def training_summary(
    state: State,
    candidates: Sequence[Candidate],
    training: Training,
    model: Any,
    counts: tuple[int, int],
) -> TrainingSummary:
    """Summarise training tasks; ``counts`` are the numbers of tasks and rows, of which the data
    contain all or a sample.
    """
    data, best, statistics = state.data, state.best, state.data.statistics
    assert best is not None
    summary = TrainingSummary(*counts, data.settings.loss.name)
    if len(data) == 1:
        return summary
    compared = _compared_structures(data, best, candidates)
    summary = replace(summary, errors=_errors(state, best, candidates), compared=compared)
    if data.has_many_columns:
        return summary
    moment = statistics.row_moment
    if data.response.is_gaussian and data.tasks.row_weights is not None:
        # row_moment is that of weighted rows
        moment = moment * (statistics.n_rows / data.tasks.row_weights.sum())
    # The order of the tasks is random, so some of them are a random sample.
    step = int(np.ceil(len(data) * statistics.n_features**3 / LARGEST_WORK))
    if (step := min(step, len(data) // MANY_TASKS)) > 1:
        statistics = statistics.take(slice(None, None, step))
    repeated, side_fit = len(data) / len(statistics), training.side_fit

    def mean_errors(model: Mixture, share: float = 1.0) -> MeanCovariance | None:
        times = share * counts[0] / len(data)
        found = mean_covariance(model, statistics, side=side_fit, repeated=repeated, times=times)
        if state.effects is None:
            return found
        return found.plus(state.effects.mean_errors / data.scaling.target**2)

    components = []
    if model.n_components > 1:
        for share, b, W in zip(model.proportions, model.means, model.covariances, strict=True):
            one = Mixture(np.ones(1), b[None], W[None], model.noise, model.side)
            components.append(mean_errors(one, share))
    evidence = {}
    if side_fit is not None and model.side is not None:
        evidence = evidence_of_columns(statistics, as_one(model), side_fit.terms)
    return replace(
        summary,
        is_singular=best.structure.is_singular(model, data.statistics),
        row_moment=moment,
        mean=mean_errors(model),
        mean_by_component=components,
        side=_side_summary(data, model, moment, evidence),
    )


def _errors(state: State, best: Candidate, candidates: Sequence[Candidate]) -> dict[str, Array]:
    """Return the errors of the selected model and of standard methods."""
    data, folds, out = state.data, state.folds, {OWN: best.errors}
    is_gaussian, varying = data.response.is_gaussian, data.settings.varying
    if state.effects is None:  # otherwise, these would be the errors for residuals
        out[TASK_MEAN] = np.concatenate([fold.task_mean_errors() for fold in folds])
        if is_gaussian and not data.has_many_columns:
            ridges = (held_out(each, folds) for each in ridge_structures())
            out[RIDGE] = min(ridges, key=lambda each: each.error).errors
    for each in candidates:
        # For classes and counts, effects of side information are larger with random effects than in
        # a pooled regression.
        if each.structure.is_pooled and (is_gaussian or data.side is None):
            out[POOLED] = each.errors
        elif each.structure == MixedModel(varying=varying) and len(candidates) > 1:
            out[MIXED_MODEL] = each.errors
    return out


def _compared_structures(
    data: TrainingData, best: Candidate, candidates: Sequence[Candidate]
) -> dict[str, ComparedStructure]:
    """Compare the candidates with the highest density of each kind with the selected one, which
    represents its kind; it is first, and the others follow by decreasing density.
    """
    rows, d = dict[str, ComparedStructure](), len(data.scaling.columns)
    kinds = set[str]()
    for each in [best, *sorted(candidates, key=lambda each: -each.mean_density)]:
        # Pooled regression of numeric targets is a baseline; models that overflow have the density
        # −inf.
        is_baseline = each.structure.is_pooled and data.response.is_gaussian
        kind, name = each.structure.names(d, data.settings.fit_intercept)
        if is_baseline or not np.isfinite(each.mean_density) or kind in kinds:
            continue
        kinds.add(kind)
        gain = each.density - best.density
        std_error = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.nan
        errors = each.error, known_mean(each.prior_errors)
        rows[name] = ComparedStructure(float(gain.mean()), std_error, *errors)
    return rows


def _side_summary(
    data: TrainingData, model: Mixture, row_moment: Array, evidence: Mapping[int, float]
) -> SideSummary | None:
    """Summarise the contribution of the side information; None if the model does not use it."""
    if data.side is None or (model.side is None and model.gates is None):
        return None
    assert data.statistics.side is not None
    columns, side, units = np.asarray(data.side.origins), data.statistics.side, data.scaling
    d, m = model.means.shape[1], int(columns.max(initial=-1)) + 1
    coefficient_std, (row_variance, reduction) = np.zeros((1 + m, d)), np.zeros((2, 1 + m))
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
    of_columns = np.array([evidence.get(column, np.nan) for column in range(-1, m)])
    return SideSummary(coefficient_std, row_variance, reduction, of_columns if evidence else None)


def better_baseline(errors: Array, baselines: Mapping[str, Array]) -> str | None:
    """Return the best baseline with significantly lower errors on the same tasks; None without one,
    or with few tasks.
    """
    if np.isfinite(errors).sum() < LEAST_COMPARED:
        return None
    # Errors may be 1 % higher: estimating a variance that is almost zero raises errors slightly,
    # perhaps equally in all tasks.  If the targets are equal within each task, or linear in the
    # features, differences are rounding errors.
    everything = np.concatenate([errors, *baselines.values()])
    rounding = 1e-6 * everything[np.isfinite(everything)].max()
    better = [
        name for name, values in baselines.items() if significant(errors - 1.01 * values - rounding)
    ]
    return min(better, key=lambda name: float(np.nanmean(baselines[name])), default=None)
