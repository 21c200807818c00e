"""Empirical Bayes: learn the prior of the coefficients from many tasks.

1. Propose shared effects (`shared_fit`) and effects of side information (`gaussian.side`) by their evidence in all tasks.  Accept
   or reject them, and select the structure of the prior, on held-out tasks by the rule of `rule` (`selection`; `factor_fit` for
   many columns).
2. Fit the selected structure to all tasks by EM.
3. Learn shifts of the prior mean on query rows, and keep them if they lower the held-out error significantly (`query_bias`).
4. Collect the scores of held-out tasks for prediction intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import nnls

from .._utils.progress import Stages, progress_bar
from .._utils.threads import single_threaded_blas
from ..feature_maps.side_features import SideFeatures
from ..gaussian.em import Source
from ..gaussian.factor_em import fit_factors
from ..gaussian.mixture import Mixture
from ..gaussian.responses import NegativeBinomial, Poisson
from ..gaussian.side import Effect, SideStructure
from ..gaussian.structures import Atoms, StructureFitter, refine
from ..priors.base import Prior, predict_blocks
from ..priors.intervals import Calibration, calibrate
from ..priors.mixture import MeanShift, MixturePrior
from ..priors.shared_effects import SharedEffects
from ..priors.shared_regressor import OutOfFold, fit_out_of_fold
from ..tasks.episodes import Episodes
from ..tasks.rows import Array, clipped
from ..tasks.task_set import TaskSet
from .data import MANY_TASKS, Draw, TrainingData
from .factor_fit import RANKS, FactorSelection, factor_prior
from .query_bias import PENALTIES, FittedShift, fit_shifts
from .rule import Score, is_as_good, known_mean, significant
from .selection import ADVICE, LEAST_COMPARED, better_baseline, likely_cause, score_parts, select
from .shared_fit import LEAST_TASKS, FittedEffects, fit_effects
from .training_summary import (
    MIXED_MODEL,
    OWN,
    POOLED,
    TrainingSummary,
    basic_summary,
    compared_structures,
    training_summary,
)

SourceIn = Callable[..., Source]

#: Usual number of chains of structures in the selection, for the progress bar.
N_CHAINS = 10


@dataclass(frozen=True)
class Learned:
    """The prior, and the results of the selection."""

    prior: Prior
    structure: Any  # Structure or FactorStructure
    scale: float  # the selected multiple of FFᵀ for many columns, otherwise 1
    side: SideStructure | None  # structure of the effects of side information
    penalty: float | None  # penalty on the shift of the prior mean, for the largest support size
    errors: Array  # errors of the held-out tasks, fold after fold, in the user's units
    validation_error: float
    results: list[dict[str, Any]]  # errors of all candidates
    model: Mixture | None  # None for many columns
    shifts: tuple[FittedShift, ...]
    training_summary: TrainingSummary
    shared: OutOfFold | None = None  # the shared regressor; the prior was learned from its residuals
    warning: str | None = None  # a warning for the user


def learn(
    data: TrainingData,
    *,
    progress: bool = False,
    source_in: SourceIn | None = None,
) -> Learned:
    """Learn the prior from tasks in memory.

    If ``data`` is a sample, ``source_in`` returns the statistics of all tasks for a scaling and side features.  The selected
    structure is fitted to all tasks; everything else is learned from the sample.
    """
    if data.has_many_columns:
        _check_many_columns(data, source_in)
        n_steps = len(data.folds) * (len(RANKS) + data.has_side) + 1
        with progress_bar("Learning from tasks", n_steps, enabled=progress) as tick, single_threaded_blas():
            return _learn_factors(data, tick)
    n_steps = len(data.folds) * N_CHAINS + 3 * len(PENALTIES)
    with progress_bar("Learning from tasks", n_steps, enabled=progress) as stage:
        with single_threaded_blas():
            fitted = _accepted_effects(data)
            rest = _with_dispersion(data, None if fitted is None else fitted.effects)
        if fitted is None:
            return _learn_mixture(rest, stage, source_in)
        effects, mean_errors, growth = fitted
        rest_in = source_in and partial(source_in, effects=effects)
        learned = _learn_mixture(rest, stage, rest_in, growth)
    prior = replace(learned.prior, shared=effects, clip=data.settings.clip)
    summary = learned.training_summary
    mean = None if summary.mean is None else summary.mean.plus(mean_errors / rest.scaling.target**2)
    # The other baselines were evaluated on the residuals, so their errors are not comparable.
    errors = {name: e for name, e in summary.errors.items() if name in (OWN, POOLED, MIXED_MODEL)}
    return replace(learned, prior=prior, training_summary=replace(summary, errors=errors, mean=mean))


def learn_with_regressor(
    data: TrainingData,
    regressors: Sequence[Any],
    *,
    reads_side_info: bool,
    automatic: bool,
    progress: bool = False,
    source_in: SourceIn | None = None,
) -> Learned:
    """Learn a prior, fit ``regressors`` to its residuals, and learn the final prior from the residuals of the regressors.

    The prior keeps its linear mean.  Regressors are fitted out of fold, and their weights minimise the squared errors of
    query rows.  ``automatic`` regressors are only used if they lower the error of these rows by two standard errors.  The first
    prior was fitted to the tasks of these rows, so they are not held out.  ``source_in`` is as in `learn`, with an additional argument ``shared``: the regressor to subtract from the targets.
    """
    first = learn(data, progress=progress, source_in=source_in)
    if automatic and (data.tasks.sizes > 0).sum() < LEAST_COMPARED:
        return first
    prior, settings = replace(first.prior, clip=None, calibration=None), data.settings
    if isinstance(prior, MixturePrior):
        # A shift towards medians is not linear in the targets.
        prior = replace(prior, shifts=())

    def residuals(support: TaskSet, query: TaskSet) -> Array:
        return query.y - predict_blocks(prior, support, query, n_jobs=settings.n_jobs).prediction

    def held_out(y: Array) -> tuple[Episodes, Array]:
        tasks = data.tasks.replace(y=y, encoding=None)
        episodes = settings.arrival.episodes(tasks, data.seed(Draw.HELD_OUT_ROWS))
        return episodes, residuals(episodes.support, episodes.query)

    y, unexplained = data.tasks.y, data.tasks.replace(y=residuals(data.tasks, data.tasks), encoding=None)
    seed = data.seed(Draw.SHARED_REGRESSOR)
    shared = fit_out_of_fold(regressors, unexplained, seed, reads_side_info=reads_side_info)
    episodes, before = held_out(y)
    # Predictions of query rows are linear in the targets, except for the responsibilities of several components.
    gains = np.stack([before - held_out(y - part)[1] for part in shared.predict_parts(data.tasks).T], axis=1)
    weights = nnls(gains, before)[0]
    target = episodes.query.y
    rests = before, before - gains @ weights
    errors = [data.errors(episodes, clipped(target - rest, settings.clip), len(data)) for rest in rests]
    names = [type(each).__name__ for each in regressors]
    parts = {name: float(weight) for name, weight in zip(names, weights, strict=True)}
    compared = [
        {"kind": "common part", "common": common, "error": known_mean(each)}
        for common, each in zip((None, parts), errors, strict=True)
    ]
    if automatic and not significant(errors[0] - errors[1]):
        return replace(first, results=[*first.results, *compared])
    shared = shared.weighted(weights, unexplained)
    residual_tasks = shared.regressor.residual_tasks(data.tasks, shared.folds)
    # Features of rows are computed from the residuals.
    side = None if data.side is None else SideFeatures.fit(deepcopy(data.side.encoder), residual_tasks)
    # Only the sum of both parts is clipped.
    rest = replace(data, tasks=residual_tasks, side=side, settings=replace(settings, clip=None))
    residual_source = None if source_in is None else partial(source_in, shared=shared)
    second = learn(rest, progress=progress, source_in=residual_source)
    summary = second.training_summary
    return replace(
        second,
        prior=replace(second.prior, regressor=shared.regressor, clip=settings.clip),
        results=[*second.results, *compared],
        # Baselines for the residuals are meaningless, and so are warnings about them.
        training_summary=replace(summary, errors={**first.training_summary.errors, OWN: second.errors}),
        shared=shared,
        warning=first.warning if second.validation_error >= first.validation_error else None,
    )


def _check_many_columns(data: TrainingData, source_in: SourceIn | None) -> None:
    """Raise ValueError for data and settings that the low-rank plus diagonal prior does not support."""
    refused = {
        "y: classes and counts are": not data.response.is_gaussian,
        "sample_weight, frequency_weight: weights are": data.tasks.row_weights is not None,
        "varying: it is": data.settings.varying is not None,
        "device: it is": data.settings.device is not None,
        "X: a scan or a tensor is": source_in is not None,
        "feature_map: features of the rows are": data.side is not None and not data.side.from_side_info,
    }
    for what, is_refused in refused.items():
        if is_refused:
            advice = "Pass fewer columns, or use ConditionalLearner with a rank."
            raise ValueError(f"{what} not supported with {data.tasks.n_features} columns. {advice}")


def _accepted_effects(data: TrainingData) -> FittedEffects | None:
    """Return the shared effects; curves and products only if held-out tasks confirm them (see `rule`)."""
    if isinstance(data.response, Poisson):
        # Otherwise the effects would explain overdispersion.
        data = replace(data, settings=replace(data.settings, loss=NegativeBinomial()))
    plain = replace(data, settings=replace(data.settings, curved=False))
    if min(len(fold.train) for fold in data.folds) < LEAST_TASKS:
        return fit_effects(plain)
    proposed = fit_effects(data)
    if proposed is None or len(proposed.effects.levels) == len(proposed.effects.effects):
        return proposed

    def score(each: TrainingData) -> Score:
        def subtract(train: TrainingData) -> TrainingData:
            fitted = fit_effects(train)
            return each if fitted is None else each.without(fitted.effects)

        return score_parts(each, subtract)

    return proposed if is_as_good(score(data), score(plain)) else fit_effects(plain)


def _with_dispersion(data: TrainingData, effects: SharedEffects | None) -> TrainingData:
    """Subtract the effects; use a negative binomial response for counts if held-out tasks confirm it (see `rule`)."""
    rest = data if effects is None else data.without(effects)
    if not isinstance(data.response, Poisson):
        return rest
    more = replace(data, settings=replace(data.settings, loss=NegativeBinomial()))
    more = more if effects is None else more.without(effects)
    # Nothing else is subtracted in the folds.
    dispersed, plain = score_parts(more, lambda train: more), score_parts(rest, lambda train: rest)
    # Poisson means may have a lower error, but their standard errors and intervals would be too small.
    is_dispersed = significant(dispersed.density - plain.density) and is_as_good(dispersed, plain)
    return more if is_dispersed else rest


def _learn_mixture(
    data: TrainingData,
    stage: Stages,
    source_in: SourceIn | None,
    growth: tuple[float, float] = (1.0, 1.0),
) -> Learned:
    """Learn the prior after shared effects were subtracted; the fitted W and noise are multiplied by ``growth``."""
    growth = growth[0], data.response.noise(growth[1])
    selection = select(data, stage)
    best = selection.best
    stage.begin("fit to all tasks")
    with single_threaded_blas():
        parts = data.statistics, data.seed(Draw.STRUCTURE_STARTS), selection.side, data.groups
        fitter = StructureFitter.of(*parts, data.settings.fit_intercept)
        if len(data) >= MANY_TASKS:
            # With few tasks new starts are cheap, and a component may be missing in the fit to a fold.
            fitter.starts = selection.starts
        (fitted, log_likelihood), n_tasks = fitter.restricted(best.structure, data.settings.reml), len(data)
        if source_in is not None:
            source = source_in(data.scaling, data.side, data.response)
            fitted, n_tasks = refine(source, best.structure, fitted), source.totals().n_tasks
        fitted = replace(fitted.scaled(growth[0]), noise=growth[1] * fitted.noise)
    stage.begin("prior mean")
    fits: list[Mixture] = best.fits
    learned = fit_shifts(data, fitted, fits, stage)
    shifts = learned.shifts
    prior = data.prior(fitted, as_mean_shifts(shifts))
    stage.begin("intervals")
    # A single task has no held-out tasks.  Intervals of counts are computed from the model, without calibration.
    if len(data) > 1 and data.response.is_gaussian:
        of_folds = zip(fits, learned.folds, strict=True)
        priors = (data.prior(fit, as_mean_shifts(of_fold)) for fit, of_fold in of_folds)
        calibration = _calibration(data, priors, fitted.noise / growth[1])
        if calibration is not None:
            calibration = replace(calibration, noise=growth[1] * calibration.noise)
        prior = replace(prior, calibration=calibration)
    errors, warning = shifts[-1].errors if shifts else best.errors, None
    if (baseline := selection.better_baseline) is not None:
        warning = f"X: held-out tasks are predicted worse than by {baseline}; {likely_cause(data)}"
    with single_threaded_blas():
        summary = training_summary(data, selection, fitter, fitted, errors, n_tasks)
    is_whole = growth == (1.0, 1.0) and source_in is None and data.tasks.row_weights is None
    if log_likelihood is not None and is_whole:
        summary = replace(
            summary,
            log_likelihood=log_likelihood - data.scaling.log_volume(summary.n_rows, data.settings.reml),
        )
    structure = best.structure
    return Learned(
        prior,
        replace(structure, n_components=fitted.n_components) if isinstance(structure, Atoms) else structure,
        best.scale,
        selection.side if fitted.side is not None else None,
        shifts[-1].penalty if shifts else None,
        errors,
        shifts[-1].error if shifts else best.error,
        selection.results + learned.results,
        fitted,
        tuple(shifts),
        summary,
        warning=warning,
    )


def _learn_factors(data: TrainingData, tick: Callable[[int], None]) -> Learned:
    selection = FactorSelection(data, tick)
    best = selection.select()
    model = fit_factors(selection.rows, best.fits[0])
    prior = factor_prior(data, model, best.scale)
    if len(data) > 1:
        priors = (factor_prior(data, fit, best.scale) for fit in best.fits)
        prior = replace(prior, calibration=_calibration(data, priors))
    task_means = selection.task_mean_errors()
    warning = None
    if better_baseline(best.errors, {"the mean of the task's rows": task_means}) is not None:
        warning = f"X: held-out tasks are predicted worse than by the mean of the task's rows; {ADVICE}"
    summary = basic_summary(data, best.errors, task_means)
    if len(data) > 1:
        summary = replace(summary, compared=compared_structures(best, selection.candidates))
    return Learned(
        prior,
        best.structure,
        best.scale,
        _effects_on_factors(data, model.relevance),
        None,
        best.errors,
        float(np.nanmean(best.errors)),
        selection.results,
        None,
        (),
        summary,
        warning=warning,
    )


def _calibration(
    data: TrainingData, priors: Iterable[Prior], noise: float | None = None
) -> Calibration | None:
    """Collect the scores of held-out tasks; ``priors`` were learned from the training tasks of the folds."""
    held_out = ((data.tasks[fold.held_out], prior) for fold, prior in zip(data.folds, priors, strict=True))
    with single_threaded_blas():
        settings = data.settings
        return calibrate(held_out, data.seed(Draw.INTERVAL_ROWS), settings.arrival, settings.n_jobs, noise)


def _effects_on_factors(data: TrainingData, relevance: Array) -> SideStructure | None:
    """Return the effects of the side features with a positive relevance; None if there are none."""
    sizes = [(group, float(relevance[group.features].max())) for group in data.groups]
    effects = [Effect(group.column, group.curved, relevance=size) for group, size in sizes if size > 0]
    return SideStructure(tuple(effects)) if effects else None


def as_mean_shifts(shifts: Sequence[FittedShift]) -> list[MeanShift]:
    """Return the shifts without the results of their selection."""
    return [MeanShift(shift.rows, shift.B, shift.summary) for shift in shifts]
