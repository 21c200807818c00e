"""Empirical Bayes: a Gaussian model of all tasks by EM, its form chosen on held-out tasks.

1. Fit the forms of `tailored.gaussian.forms`, from "every task alone" to a mixture of mixed models, to
   some of the tasks; choose the one, and a multiple of its τ, that predicts the other tasks best.
2. Fit that form to all tasks: this is τ(s) and the mean part of b(s).
3. Learn the conditional part of b(s) on the query risk, with the penalty chosen on the same held-out
   tasks; leave it out where it does not pay.  Its features are the weights that a task is given without it:
   a refinement of the first model by a second one.
4. Count how far the predictions of held-out tasks miss, for intervals.

The result is of the paper's form, ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` and ``b(s) = Bφ + b₀`` for the features
of `PosteriorMap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .._utils.progress import Stages, stages
from .._utils.threads import single_threaded_blas
from ..feature_maps import SideFeatures
from ..gaussian.em import Source
from ..gaussian.mixture import Mixture
from ..gaussian.structures import StructureFitter, all_structures, refine, varying_structures
from ..priors.intervals import Calibration, calibrate
from ..priors.mean_shifts import MeanShift
from ..priors.mixture import MixturePrior
from ..tasks import Scaling
from .data import FORM_STARTS, INTERVAL_ROWS, MANY_TASKS, TrainingData
from .judging import where_to_look
from .learned import Learned
from .many_columns import learn_many_columns
from .prior_mean import LearnedBias, LevelBias, learn_bias
from .query_risk import PENALTIES
from .selection import choose
from .training_summary import training_summary

Array = NDArray[np.float64]
SourceIn = Callable[[Scaling, SideFeatures | None], Source]


def learn(
    data: TrainingData,
    *,
    tol: float,
    max_iter: int,
    progress: bool = False,
    source_in: SourceIn | None = None,
) -> Learned:
    """Run the routine of the module's text; ``tol`` and ``max_iter`` are those of the within-task solver.

    Where ``data`` is a sample, ``source_in`` gives the statistics of all tasks in some units and with some features of
    their descriptions: the chosen form is fitted to them, all else is learned from the sample.
    """
    if data.has_many_columns:
        if data.settings.varying is not None:
            raise ValueError(
                f"varying: {data.tasks.n_features} columns are too many for a matrix of them, and of factors plus a diagonal "
                "all vary; leave varying out, or give fewer columns"
            )
        if source_in is not None:
            raise ValueError(
                f"X: {data.tasks.n_features} columns are learned from tasks in memory, and not from tables that do not "
                "fit into it, nor from tensors; give fit a TaskSet"
            )
        return learn_many_columns(data, tol=tol, max_iter=max_iter, progress=progress)
    flags = {"has_intercept": data.settings.fit_intercept, "has_side": data.has_description}
    listed = all_structures(2, True, **flags)
    if data.settings.varying is not None:
        listed = varying_structures(data.settings.varying, few=False)
    steps = len(data.folds) * len(listed) + 3 * len(PENALTIES)
    with stages("Learning from tasks", steps, enabled=progress) as stage:
        learned = _learn(data, stage, source_in)
    return learned


def _learn(
    data: TrainingData,
    stage: Stages,
    source_in: SourceIn | None = None,
) -> Learned:
    choice = choose(data, stage)
    best, results = choice.best, choice.results
    complaint = None
    if choice.surpassed_by is not None:
        complaint = (
            f"X: held-out tasks are predicted worse than by {choice.surpassed_by}; {where_to_look(data)}"
        )
    stage.begin("fitting the form to all tasks")
    with single_threaded_blas():
        n_linear = 0 if data.side is None else data.side.n_linear
        fitter = StructureFitter.of(data.statistics, data.seed(FORM_STARTS), choice.side, n_linear)
        if len(data) >= MANY_TASKS:
            # With few tasks a fit from the start is cheap, and a fold of them may have missed a component.
            fitter.starts = choice.starts
        fitted, n_tasks = fitter.fit(best.form), len(data)
        if source_in is not None:
            source = source_in(data.units, data.side)
            fitted, n_tasks = refine(source, best.form, fitted), source.totals().n_tasks
        model = fitted.scaled(best.scale)
    stage.begin("prior mean")
    # A single task has nobody to be held out from.
    learned = learn_bias(data, model, best.fits, stage) if len(data) > 1 else LearnedBias([], [], [])
    biases = learned.levels
    prior = assemble(data.units, data.side, model, biases, data.settings.clip)
    stage.begin("intervals")
    if learned.folds:
        prior = replace(prior, calibration=_calibrate(data, best.fits, learned.folds))
    errors = biases[-1].errors if biases else best.errors
    with single_threaded_blas():
        summary = training_summary(data, choice, fitter, fitted, errors, n_tasks)
    return Learned(
        prior,
        best.form,
        best.scale,
        choice.side if model.side is not None else None,
        biases[-1].penalty if biases else None,
        errors,
        biases[-1].error if biases else best.error,
        results + learned.results,
        fitted,
        tuple(biases),
        summary,
        complaint=complaint,
    )


def assemble(
    scaling: Scaling,
    side: SideFeatures | None,
    model: Mixture,
    biases: Sequence[LevelBias],
    clip: tuple[float, float] | None = None,
) -> MixturePrior:
    """Return the prior of a fitted model and the shifts of its mean that were learned on query rows."""
    shifts = tuple(MeanShift(level.rows, level.B, level.summary) for level in biases)
    if all(shift.B is None for shift in shifts):
        shifts = ()
    return MixturePrior(scaling=scaling, clip=clip, model=model, side=side, shifts=shifts)


def _calibrate(data: TrainingData, fits: list[Mixture], biases: list[list[LevelBias]]) -> Calibration | None:
    """Collect the scores of the tasks of each fold under the model that was fitted without them."""
    held_out = (
        (data.tasks[fold.held_out], assemble(data.units, data.side, fit, bias))
        for fold, fit, bias in zip(data.folds, fits, biases, strict=True)
    )
    with single_threaded_blas():
        return calibrate(held_out, data.seed(INTERVAL_ROWS), data.settings.arrival, data.settings.n_jobs)
