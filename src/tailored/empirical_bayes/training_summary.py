"""Build the `TrainingSummary` of the tasks that a prior was learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..gaussian.errors import mean_covariance
from ..gaussian.mixture import Mixture
from ..gaussian.structures import LowRank, MixedModel, Structure, StructureFitter
from ..summaries.training import (
    MIXED_MODEL,
    OWN,
    POOLED,
    RIDGE,
    TASK_MEAN,
    ComparedStructure,
    SideSummary,
    TrainingSummary,
    summarise_side,
)
from ..tasks.rows import Array, overall_mean
from .data import Draw, TrainingData
from .selection import Candidate, Selection

#: Maximum number of operations for standard errors; with more, a random sample of the tasks is used.
MAX_WORK = 1e8


def basic_summary(data: TrainingData, errors: Array, task_mean_errors: Array) -> TrainingSummary:
    """Return a summary with the numbers of tasks and rows, and the errors of the prior and of the task mean."""
    by_method = {OWN: errors, TASK_MEAN: task_mean_errors} if len(data) > 1 else {}
    n_rows, mean = len(data.tasks.y), overall_mean(data.tasks)
    return TrainingSummary(len(data), n_rows, mean, data.settings.loss.name, by_method)


def training_summary(
    data: TrainingData,
    selection: Selection,
    fitter: StructureFitter,
    model: Mixture,
    errors: Array,
    n_tasks: int,
) -> TrainingSummary:
    """Summarise ``n_tasks`` training tasks; ``data`` contains all of them or a sample."""
    summary = basic_summary(data, errors, selection.task_mean_errors)
    n_rows = round(float(summary.n_rows) * n_tasks / max(len(data), 1))
    summary = replace(summary, n_tasks=n_tasks, n_rows=n_rows)
    if len(data) == 1:
        return summary
    structure, moment, sample = selection.best.structure, data.statistics.row_moment, _sample(data)
    mean = mean_covariance(
        model,
        data.statistics if sample is None else data.statistics.take(sample),
        learn_mean=structure.has_mean,
        side=fitter.side_fit if structure.has_mean else None,
        repeated=1.0 if sample is None else len(data) / len(sample),
        times=n_tasks / len(data),
    )
    baselines, mixed_model = _baselines(selection), None
    if not data.response.is_gaussian and data.has_side:
        # Its effects of the side information are those of tasks with random effects, which are larger.
        baselines.pop(POOLED, None)
    if MIXED_MODEL in baselines:
        mixed_model = replace(fitter, starts=selection.starts).fit(baselines[MIXED_MODEL].structure)
    return replace(
        summary,
        errors={**summary.errors, **{name: baseline.errors for name, baseline in baselines.items()}},
        row_moment=moment,
        mean=mean,
        mixed_model=mixed_model,
        ridge=None if selection.ridge is None else selection.ridge.structure.ridge,
        side=_side_summary(data, model, moment),
        compared=compared_structures(selection.best, _best_of_kinds(data, selection)),
    )


def compared_structures(best: Candidate, named: Mapping[str, Candidate]) -> dict[str, ComparedStructure]:
    """Compare candidates with the selected one, which is put first; the others follow by decreasing density."""
    rows = {}
    for name, candidate in sorted(
        named.items(), key=lambda item: (item[1] is not best, -item[1].mean_density)
    ):
        gain = candidate.density - best.density
        std_error = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.nan
        rows[name] = ComparedStructure(float(gain.mean()), std_error, candidate.error)
    return rows


def _best_of_kinds(data: TrainingData, selection: Selection) -> dict[str, Candidate]:
    """Return the candidate with the highest density of each kind, by name; the selected one represents its kind."""
    kinds: dict[str, Candidate] = {}
    for candidate in [selection.best, *selection.candidates]:
        # Pooled regression of numbers is a baseline; models that overflow have no density.
        is_baseline = candidate.structure.is_pooled and data.response.is_gaussian
        if is_baseline or not np.isfinite(candidate.mean_density):
            continue
        kind = _kind(candidate.structure, data.settings.fit_intercept, data.statistics.n_features)
        known = kinds.setdefault(kind, candidate)
        if known is not selection.best and candidate.mean_density > known.mean_density:
            kinds[kind] = candidate
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


def _sample(data: TrainingData) -> NDArray[np.intp] | None:
    """Return a random sample of the tasks, or None if all of them can be used."""
    most = max(200, int(MAX_WORK / data.statistics.n_features**3))
    if len(data) <= most:
        return None
    return np.sort(np.random.default_rng(data.seed(Draw.SUMMARY_TASKS)).permutation(len(data))[:most])


def _side_summary(data: TrainingData, model: Mixture, moment: Array) -> SideSummary | None:
    if not data.has_side or (model.side is None and model.gates is None):
        return None
    assert data.side is not None
    assert data.statistics.side is not None
    table = data.tasks.side_info
    numeric = None if table is None or table.dtype == object else table.astype(float)
    return summarise_side(model, data.scaling, data.side, data.statistics.side, moment, numeric)
