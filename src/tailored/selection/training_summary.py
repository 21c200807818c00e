"""`TrainingSummary`: statistics of the training tasks that a prior was learned from, for summaries,
without the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import entr

from .._utils.records import Record
from ..gaussian.errors import MeanCovariance, as_one, mean_covariance
from ..gaussian.mixture import Mixture, log_gates
from ..gaussian.side import evidence_of_columns
from ..gaussian.structures import LowRank, MixedModel, Structure, StructureFitter
from ..tasks.rows import Array
from .data import LARGEST_WORK, MANY_TASKS, TrainingData
from .search import Candidate, Selection

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
    #: The same for the mean of each component of a mixture, given the covariance within it; empty for one component.
    mean_by_component: list[MeanCovariance | None] = field(default_factory=list)
    side: SideSummary | None = None
    #: The best structure of each kind by name, the selected one first.
    compared: dict[str, ComparedStructure] = field(default_factory=dict)


def basic_summary(data: TrainingData, selection: Selection) -> TrainingSummary:
    """Return a summary with the numbers of tasks and rows and, for several tasks, the errors of the
    prior and the task mean.
    """
    by_method = {OWN: selection.best.errors, TASK_MEAN: selection.task_mean_errors}
    by_method = by_method if len(data) > 1 else {}
    return TrainingSummary(len(data), len(data.tasks.y), data.settings.loss.name, by_method)


def training_summary(
    data: TrainingData,
    selection: Selection,
    fitter: StructureFitter,
    model: Mixture,
    counts: tuple[int, int],
) -> TrainingSummary:
    """Summarise training tasks; ``counts`` are the numbers of tasks and rows, of which ``data``
    contains all or a sample.
    """
    n_tasks, n_rows = counts
    summary = replace(basic_summary(data, selection), n_tasks=n_tasks, n_rows=n_rows)
    if len(data) == 1:
        return summary
    moment, statistics = data.statistics.row_moment, data.statistics
    if data.response.is_gaussian and data.tasks.row_weights is not None:
        # row_moment is that of weighted rows
        moment = moment * (statistics.n_rows / data.tasks.row_weights.sum())
    # The order of the tasks is random, so some of them are a random sample.
    step = int(np.ceil(len(data) * statistics.n_features**3 / LARGEST_WORK))
    if (step := min(step, len(data) // MANY_TASKS)) > 1:
        statistics = statistics.take(slice(None, None, step))

    def mean_errors(model: Mixture, share: float = 1.0) -> MeanCovariance | None:
        return mean_covariance(
            model,
            statistics,
            learn_mean=True,
            side=fitter.side_fit,
            repeated=len(data) / len(statistics),
            times=share * n_tasks / len(data),
        )

    by_component: list[MeanCovariance | None] = []
    if model.n_components > 1:
        parts = zip(model.proportions, model.means, model.covariances, strict=True)
        for share, b, W in parts:
            one = Mixture(np.ones(1), b[None], W[None], model.noise, model.side)
            by_component.append(mean_errors(one, share))
    baselines = _baselines(selection)
    if len(selection.candidates) == 1:
        baselines.pop(MIXED_MODEL, None)  # it is this learner
    if not data.response.is_gaussian and data.side is not None:
        # For classes and counts, effects of side information are larger with random effects than in
        # a pooled regression.
        baselines.pop(POOLED, None)
    side = _side_summary(data, model, moment)
    if side is not None and fitter.side_fit is not None:
        found = evidence_of_columns(statistics, as_one(model), fitter.side_fit.terms)
        columns = range(-1, len(side.row_variance) - 1)
        side = replace(side, evidence=np.array([found.get(column, np.nan) for column in columns]))
    errors_of = {name: baseline.errors for name, baseline in baselines.items()}
    return replace(
        summary,
        errors={**summary.errors, **errors_of},
        row_moment=moment,
        mean=mean_errors(model),
        mean_by_component=by_component,
        side=side,
        compared=compared_structures(selection.best, _best_of_kinds(data, selection)),
    )


def compared_structures(
    best: Candidate, named: Mapping[str, Candidate]
) -> dict[str, ComparedStructure]:
    """Compare candidates with the selected one, which is put first; the others follow by decreasing
    density.
    """
    rows = {}
    ordered = sorted(named.items(), key=lambda pair: (pair[1] is not best, -pair[1].mean_density))
    for name, candidate in ordered:
        gain = candidate.density - best.density
        std_error = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.nan
        rows[name] = ComparedStructure(float(gain.mean()), std_error, candidate.error)
    return rows


def _best_of_kinds(data: TrainingData, selection: Selection) -> dict[str, Candidate]:
    """Return the candidate with the highest density of each kind, by name; the selected one
    represents its kind.
    """
    kinds: dict[str, Candidate] = {}
    by_density = sorted(selection.candidates, key=lambda each: -each.mean_density)
    for candidate in [selection.best, *by_density]:
        # Pooled regression of numeric targets is a baseline; models that overflow have the density
        # −inf.
        is_baseline = candidate.structure.is_pooled and data.response.is_gaussian
        if is_baseline or not np.isfinite(candidate.mean_density):
            continue
        kind = _kind(candidate.structure, data.settings.fit_intercept, data.statistics.n_features)
        kinds.setdefault(kind, candidate)
    return {_name(kind, candidate.structure): candidate for kind, candidate in kinds.items()}


def _kind(structure: Structure, has_intercept: bool, d: int) -> str:
    if not isinstance(structure, MixedModel):
        return structure.kind
    if structure.is_pooled:
        return "pooled regression"
    if structure.covariance == "intercept" or (has_intercept and structure.varying == (d - 1,)):
        return "random intercept"
    if len(structure.varying or range(d)) == 1:
        return "one random effect"
    return {"diagonal": "uncorrelated", "full": "correlated"}[structure.covariance]


def _name(kind: str, structure: Structure) -> str:
    """Return the name of a structure in tables."""
    if kind == "mixture":
        return f"mixture of {structure.n_components}"
    if isinstance(structure, LowRank):
        several = f"mixture of {structure.n_components}, " if structure.n_components > 1 else ""
        return f"{several}rank {structure.rank or structure.n_factors}"
    is_shrunk = isinstance(structure, MixedModel) and structure.pseudo_tasks > 0.0
    return "correlated, shrunk" if kind == "correlated" and is_shrunk else kind


def _baselines(selection: Selection) -> dict[str, Candidate]:
    """Return the best candidate of each standard method."""
    candidates = selection.candidates
    kinds = {
        RIDGE: [] if selection.ridge is None else [selection.ridge],
        POOLED: [c for c in candidates if c.structure.is_pooled],
        MIXED_MODEL: [c for c in candidates if c.structure == c.structure.plain],
    }
    return {name: min(some, key=lambda c: c.error) for name, some in kinds.items() if some}


def _side_summary(data: TrainingData, model: Mixture, row_moment: Array) -> SideSummary | None:
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
    return SideSummary(coefficient_std, row_variance, reduction)
