"""Empirical Bayes: learn the prior of the coefficients from many tasks.

1. Propose shared effects (`shared_fit`) and effects of side information (`gaussian.side`) by their
   evidence in all tasks or a sample.  Accept or reject them, and select the structure of the prior,
   on held-out tasks by the rule of `rule` (`selection`; `factor_fit` for many columns).
2. Fit the selected structure to all tasks, for example by REML.
3. Learn the prior mean of tasks without rows, and the offset to medians; keep each if held-out
   errors fall significantly (`without_rows`).
4. Collect the scores of held-out tasks for prediction intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from .._utils.progress import Stages, progress_bar
from .._utils.threads import single_threaded_blas
from ..gaussian.em import Source
from ..gaussian.factor_em import fit_factors
from ..gaussian.moments import used_columns
from ..gaussian.reml import count_collinear
from ..gaussian.responses import NegativeBinomial, Poisson
from ..gaussian.serial import fit_serial
from ..gaussian.side import Effect, SideStructure
from ..gaussian.structures import MixedModel, StructureFitter, refine
from ..priors.base import Prior, calibrate
from ..priors.intervals import Calibration
from ..priors.shared import SharedEffects
from ..tasks.rows import Array
from .data import MANY_TASKS, Draw, TrainingData
from .factor_fit import RANKS, FactorSearch, factor_prior
from .rule import Score, is_as_good, significant
from .search import Selection, better_baseline, score_parts, select
from .shared_fit import LEAST_TASKS, FittedEffects, fit_effects
from .training_summary import (
    MIXED_MODEL,
    OWN,
    POOLED,
    TASK_MEAN,
    TrainingSummary,
    basic_summary,
    compared_structures,
    training_summary,
)
from .without_rows import fit_moves

SourceIn = Callable[..., Source]


@dataclass(frozen=True)
class Learned:
    """The prior, the results of the selection, and statistics of the training tasks."""

    prior: Prior
    selection: Selection
    training_summary: TrainingSummary

    @property
    def warning(self) -> str | None:
        """A warning if the task mean or pooled regression has significantly lower errors; None
        otherwise.
        """
        shown = self.training_summary.errors
        baselines = {name: shown[name] for name in (TASK_MEAN, POOLED) if name in shown}
        name = better_baseline(self.selection.best.errors, baselines)
        if name is None:
            return None
        return (
            f"X: held-out errors are higher than those of the {name}; check whether rows that "
            "belong together are in one task, whether features are labels or have another unit in "
            "some tasks, whether the model should have an intercept, and whether the features "
            "predict the target"
        )


def learn(
    data: TrainingData, *, progress: bool = False, source_in: SourceIn | None = None
) -> Learned:
    """Learn the prior from tasks in memory.

    If ``data`` is a sample, ``source_in`` returns the statistics of all tasks for a scaling and
    side features.  The selected structure is fitted to all tasks; everything else is learned from
    the sample.
    """
    n_steps = len(data.folds) * 3  # usually covariances, mixtures and independent tasks
    if data.has_many_columns:
        _check_many_columns(data, source_in)
        n_steps = len(data.folds) * (len(RANKS) + (data.side is not None)) + 1
    with (
        progress_bar("Learning from tasks", n_steps, enabled=progress) as stage,
        single_threaded_blas(),
    ):
        if data.has_many_columns:
            return _learn_factors(data, stage)
        fitted = _accepted_effects(data)
        rest = _with_serial(_with_dispersion(data, None if fitted is None else fitted.effects))
        if fitted is None:
            return _learn_mixture(rest, stage, source_in)
        effects, mean_errors, growth = fitted
        rest_in = source_in and partial(source_in, effects=effects)
        learned = _learn_mixture(rest, stage, rest_in, growth)
    prior = replace(learned.prior, shared=effects)
    summary = learned.training_summary
    more = mean_errors / rest.scaling.target**2
    mean, *by_component = [
        None if each is None else each.plus(more)
        for each in (summary.mean, *summary.mean_by_component)
    ]
    # Task means and ridge regressions of the residuals are not the baselines that a user expects.
    errors = {name: e for name, e in summary.errors.items() if name in (OWN, POOLED, MIXED_MODEL)}
    return replace(
        learned,
        prior=prior,
        training_summary=replace(summary, errors=errors, mean=mean, mean_by_component=by_component),
    )


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


def _accepted_effects(data: TrainingData) -> FittedEffects | None:
    """Return the shared effects, or None; curves and products only if they are accepted on held-out
    tasks (see `rule`).
    """
    if isinstance(data.response, Poisson):
        # With a Poisson response, the effects would absorb overdispersion.
        data = replace(data, settings=replace(data.settings, loss=NegativeBinomial()))
    plain = replace(data, settings=replace(data.settings, proposes=False))
    fitted = fit_effects(plain, corrects=True)
    if not data.settings.proposes or min(len(fold.train) for fold in data.folds) < LEAST_TASKS:
        return fitted
    proposed = fit_effects(data, corrects=True)
    if proposed is None or len(proposed.effects.effects) == len(data.settings.levels):
        return fitted
    return proposed if is_as_good(_score_effects(data), _score_effects(plain)) else fitted


def _score_effects(data: TrainingData) -> Score:
    """Score the shared effects, selected and fitted again in each fold, with a model of
    uncorrelated random effects.
    """

    def subtract(train: TrainingData) -> TrainingData:
        fitted = fit_effects(train)
        return data if fitted is None else data.without(fitted.effects)

    return score_parts(data, subtract)


def _with_dispersion(data: TrainingData, effects: SharedEffects | None) -> TrainingData:
    """Remove the effects; use a negative binomial response for counts if it is accepted on held-out
    tasks (see `rule`).
    """
    rest = data if effects is None else data.without(effects)
    if not isinstance(data.response, Poisson):
        return rest
    more = replace(data, settings=replace(data.settings, loss=NegativeBinomial()))
    more = more if effects is None else more.without(effects)
    # The effects are already removed, so the callbacks fit nothing in the folds.
    dispersed, plain = score_parts(more, lambda train: more), score_parts(rest, lambda train: rest)
    # A slightly higher error is accepted: for overdispersed counts, Poisson standard errors are too
    # small and intervals too narrow.
    is_dispersed = significant(dispersed.density - plain.density)
    return more if is_dispersed else rest


def _with_serial(data: TrainingData) -> TrainingData:
    """Let the noise be correlated in time, if there are times and it is accepted on held-out tasks
    (see `rule`).
    """
    settings, time = data.settings, data.settings.time
    if time is None:
        return data
    d = data.tasks.n_features + settings.fit_intercept

    def correlated(train: TrainingData) -> TrainingData:
        model = MixedModel(
            settings.covariance or "diagonal", varying=settings.varying, centre=data.centre
        )
        parts = model.pattern(d), settings.reml, model.basis(d)
        serial = fit_serial(train.tasks, data.scaling, time, *parts)
        return replace(data, settings=replace(settings, serial=serial), known_scaling=data.scaling)

    serial, plain = score_parts(data, correlated), score_parts(data, lambda train: data)
    # The error without support rows may rise: correlated noise changes the weights of the rows, and
    # so the fixed effects.
    is_serial = significant(serial.density - plain.density) and serial.error <= plain.error
    return correlated(data) if is_serial else data


def _learn_mixture(
    data: TrainingData,
    stage: Stages,
    source_in: SourceIn | None,
    growth: tuple[float, float] = (1.0, 1.0),
) -> Learned:
    """Learn the prior after shared effects were removed; W and the noise are multiplied by the two
    factors of ``growth``.
    """
    growth = growth[0], data.response.noise(growth[1])
    selection = select(data, stage)
    best, structure = selection.best, selection.best.structure
    stage.begin("fit to all tasks")
    parts = data.statistics, data.seed(Draw.STRUCTURE_STARTS), selection.side, data.groups
    fitter = StructureFitter.of(*parts, data.settings.fit_intercept)
    if len(data) >= MANY_TASKS:
        # With few tasks, new starts are cheap, and a component may be missing in the fit to a fold.
        fitter.starts = {each.structure: each.fits[0] for each in selection.candidates}
    fitted, log_likelihood = fitter.restricted(structure, data.settings.reml)
    counts = len(data), len(data.tasks.y)
    if source_in is not None:
        source = source_in(data.scaling, data.side, data.response)
        fitted, totals = refine(source, structure, fitted), source.totals()
        counts = totals.n_tasks, round(totals.n_rows)
    fitted = replace(fitted.scaled(growth[0]), noise=growth[1] * fitted.noise)
    stage.begin("prior mean")
    moves = fit_moves(data, fitted, best.fits)
    prior = replace(data.prior(fitted, moves.without_rows), offset=moves.offset)
    stage.begin("intervals")
    # With a single task, none is held out.  Intervals of counts are computed from the model,
    # without calibration.
    if len(data) > 1 and data.response.is_gaussian:
        of_folds = zip(best.fits, moves.folds, strict=True)
        priors = (data.prior(*fold) for fold in of_folds)
        calibration = _calibration(data, priors, fitted.noise / growth[1])
        if calibration is not None:
            calibration = replace(calibration, noise=growth[1] * calibration.noise)
        prior = replace(prior, calibration=calibration)
    if fitted.side is None:
        selection = replace(selection, side=None)
    summary = training_summary(data, selection, fitter, fitted, counts)
    if isinstance(structure, MixedModel):
        used = used_columns(data.statistics.row_moment)
        summary = replace(summary, is_singular=structure.is_singular(fitted, used))
    is_whole = growth == (1.0, 1.0) and source_in is None and data.tasks.row_weights is None
    if log_likelihood is not None and is_whole:
        fixed = used_columns(data.statistics.row_moment) & data.settings.reml
        # With collinear columns, the restricted likelihood depends on the nearly flat prior of b,
        # and is not stored.
        if not (data.settings.reml and count_collinear(data.statistics.totals().gram)):
            volume = data.scaling.log_volume(summary.n_rows, fixed)
            summary = replace(summary, log_likelihood=log_likelihood - volume)
    return Learned(prior, selection, summary)


def _learn_factors(data: TrainingData, tick: Callable[[int], None]) -> Learned:
    search = FactorSearch(data, tick)
    best = search.select()
    model = fit_factors(search.rows, best.fits[0])
    prior = factor_prior(data, model, best.scale)
    side = _effects_on_factors(data, model.relevance)
    selection = Selection(best, side, search.candidates, search.task_mean_errors())
    summary = basic_summary(data, selection)
    if len(data) > 1:
        priors = (factor_prior(data, fit, best.scale) for fit in best.fits)
        prior = replace(prior, calibration=_calibration(data, priors))
        named = {each.structure.name: each for each in search.candidates}
        summary = replace(summary, compared=compared_structures(best, named))
    return Learned(prior, selection, summary)


def _calibration(
    data: TrainingData, priors: Iterable[Prior], noise: float | None = None
) -> Calibration | None:
    """Collect the scores of held-out tasks for intervals; each of ``priors`` was learned from the
    training tasks of a fold.
    """
    pairs, settings = zip(data.folds, priors, strict=True), data.settings
    held_out = ((data.tasks[fold.held_out], prior) for fold, prior in pairs)
    seed = data.seed(Draw.INTERVAL_ROWS)
    return calibrate(held_out, seed, settings.arrival, settings.n_jobs, noise)


def _effects_on_factors(data: TrainingData, relevance: Array) -> SideStructure | None:
    """Return the effects of the side features with a positive relevance; None if there are none."""
    sizes = [(group, float(relevance[group.features].max())) for group in data.groups]
    effects = [
        Effect(group.column, group.curved, relevance=size) for group, size in sizes if size > 0
    ]
    return SideStructure(tuple(effects)) if effects else None
