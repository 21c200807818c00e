"""Empirical Bayes: learn the prior of the coefficients from many tasks.

1. Select the structure of the prior by the steps of `steps`, on held-out tasks (`loop`).
2. Fit the selected structure to all tasks, for example by REML.
3. Collect the scores of held-out tasks for prediction intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._utils.progress import Stages, progress_bar
from .._utils.threads import single_threaded_blas
from ..gaussian.em import Source
from ..gaussian.moments import used_columns
from ..gaussian.reml import count_collinear
from ..gaussian.side import SideStructure
from ..priors.base import Prior, calibrate
from ..priors.intervals import Calibration
from ..tasks.task_set import TaskSet
from .data import MANY_TASKS, Draw, Training, TrainingData
from .loop import Candidate, State, Step, search
from .steps import STEPS, STEPS_OF_FACTORS
from .structures import difference
from .training_summary import (
    POOLED,
    TASK_MEAN,
    TrainingSummary,
    better_baseline,
    training_summary,
)

SourceIn = Callable[..., Source]


@dataclass(frozen=True)
class Learned:
    """The prior, the results of the selection, and statistics of the training tasks."""

    prior: Prior
    best: Candidate
    candidates: list[Candidate]
    side: SideStructure | None  # effects of side information
    training_summary: TrainingSummary

    @property
    def warning(self) -> str | None:
        """A warning if the task mean or pooled regression has significantly lower errors; None
        otherwise.
        """
        shown = self.training_summary.errors
        baselines = {name: shown[name] for name in (TASK_MEAN, POOLED) if name in shown}
        name = better_baseline(self.best.errors, baselines)
        if name is None:
            return None
        return (
            f"X: held-out errors are higher than those of the {name}; check whether rows that "
            "belong together are in one task, whether features are labels or have another unit in "
            "some tasks, whether the model should have an intercept, and whether the features "
            "predict the target"
        )


def learn(
    data: TrainingData,
    steps: Sequence[Step] = STEPS,
    *,
    progress: bool = False,
    source_in: SourceIn | None = None,
) -> Learned:
    """Learn the prior from tasks in memory.

    If ``data`` is a sample, ``source_in`` returns the statistics of all tasks for a scaling and
    side features.  The selected structure is fitted to all tasks; everything else is learned from
    the sample.
    """
    if data.has_many_columns:
        _check_many_columns(data, source_in)
        steps = STEPS_OF_FACTORS
    with (
        progress_bar("Learning from tasks", len(steps) + 2, enabled=progress) as stage,
        single_threaded_blas(),
    ):
        state, table = search(data, steps, stage)
        return _fit(state, list(table.of(state.folds).values()), stage, source_in)


def _check_many_columns(data: TrainingData, source_in: SourceIn | None) -> None:
    """Raise ValueError for data and settings that the low-rank plus diagonal prior does not
    support.
    """
    refused = {
        "y: classes and counts are": not data.response.is_gaussian,
        "sample_weight, frequency_weight: weights are": data.tasks.row_weights is not None,
        "varying: this argument is": data.settings.varying is not None,
        "device: this argument is": data.settings.device is not None,
        "X: a scan or a tensor is": source_in is not None,
    }
    for what, is_refused in refused.items():
        if is_refused:
            found = f"{what} not supported with {data.tasks.n_features} columns"
            raise ValueError(f"{found}. Pass fewer columns.")


def _fit(
    state: State, candidates: list[Candidate], stage: Stages, source_in: SourceIn | None
) -> Learned:
    """Fit the selected structure to all tasks, and learn the rest of the prior."""
    data, best, effects = state.data, state.best, state.effects
    assert best is not None
    stage.begin("fit to all tasks")
    training, structure = Training.of(data, data.statistics), best.structure
    training = training if state.side is None else training.with_side(state.side)
    # With few tasks, new starts are cheap, and a component may be missing in the fit to a fold.
    is_near = len(data) >= MANY_TASKS or data.has_many_columns
    near = {each.structure: each.models[0] for each in candidates if is_near}
    model = training.fit(structure, near)
    model, log_likelihood = structure.restricted(training, model, data.settings.reml)
    counts = len(data), len(data.tasks.y)
    if source_in is not None:
        shared = None if effects is None else effects.effects
        source = source_in(data.scaling, data.side, data.response, shared)
        model, totals = structure.refine(source, model), source.totals()
        counts = totals.n_tasks, round(totals.n_rows)
    growth = 1.0, 1.0
    if effects is not None:
        growth = effects.growth[0], data.response.noise(effects.growth[1])
        model = replace(model.scaled(growth[0]), noise=growth[1] * model.noise)
    prior: Any = structure.prior(data, model)
    if state.offset:
        prior = replace(prior, offset=state.offset)
    if state.without_rows:
        moved = state.without_rows * difference(data, data.tasks, model)
        prior = replace(prior, without_rows=moved)
    stage(1)
    stage.begin("intervals")
    # With a single task, none is held out.  Intervals of counts are computed from the model,
    # without calibration.
    if len(data) > 1 and data.response.is_gaussian:
        held_out = (
            (data.tasks[fold.split.held_out], each)
            for fold, each in zip(best.folds, best.priors, strict=True)
        )
        prior = replace(prior, calibration=_calibration(data, held_out, model, growth[1]))
    summary = training_summary(state, candidates, training, model, counts)
    is_whole = growth == (1.0, 1.0) and source_in is None
    if log_likelihood is not None and is_whole:
        log_likelihood = _in_users_units(data, log_likelihood)
        summary = replace(summary, log_likelihood=log_likelihood)
    if effects is not None:
        prior = replace(prior, shared=effects.effects)
    stage(1)
    side = structure.effects(training, model)
    return Learned(prior, best, candidates, side, summary)


def _in_users_units(data: TrainingData, log_likelihood: float) -> float | None:
    """Return the (restricted) log likelihood in the user's units.

    With collinear columns, the restricted likelihood depends on the nearly flat prior of b, and the
    result is None.
    """
    reml = data.settings.reml
    if reml and count_collinear(data.statistics.totals().gram):
        return None
    fixed = used_columns(data.statistics.row_moment) & reml
    tasks = data.tasks
    times = np.ones(len(tasks.y)) if tasks.frequency_weight is None else tasks.frequency_weight
    if tasks.sample_weight is not None:  # targets were multiplied by its square root
        log_likelihood += 0.5 * float(times @ np.log(tasks.sample_weight))
    return log_likelihood - data.scaling.log_volume(float(times.sum()), fixed)


def _calibration(
    data: TrainingData, held_out: Iterable[tuple[TaskSet, Prior]], model: Any, growth: float
) -> Calibration | None:
    """Collect the scores of held-out tasks for intervals; the noise variance of the residuals was
    multiplied by ``growth``.
    """
    seed, settings = data.seed(Draw.INTERVAL_ROWS), data.settings
    noise = None if data.has_many_columns else model.noise / growth
    found = calibrate(held_out, seed, settings.arrival, settings.n_jobs, noise)
    return None if found is None else replace(found, noise=growth * found.noise)
