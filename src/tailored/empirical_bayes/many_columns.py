"""Empirical Bayes where X has more columns than a matrix of them could hold: factors plus a diagonal.

1. Fit the model of `tailored.gaussian.factor_em` with more and more factors to some of the tasks, and choose
   the number that predicts the other tasks best.
2. Let the description move the factors' scores and the intercept, where that predicts them better.
3. Fit the same to all tasks, and count how far predictions of held-out tasks miss, for intervals.

The result is ``τ = FFᵀ + D`` and ``b(s) = b₀ + Γ v(s)``, with Γ of the rank of the factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.progress import progress_bar
from .._utils.records import cached_property
from .._utils.threads import single_threaded_blas
from ..gaussian.factor_em import FactorModel, fit_factors
from ..gaussian.factors import FactorRows, Factors
from ..gaussian.side import SideStructure
from ..priors.base import predict_blocks
from ..priors.factors import FactorPrior
from ..priors.intervals import calibrate
from ..sources.cuda.factors import CudaFactorRows
from ..sources.cuda.tensors import check_device
from ..tasks.episodes import Episodes
from .data import FORM_STARTS, HELD_OUT_ROWS, INTERVAL_ROWS, Fold, TrainingData
from .judging import mean_errors, surpassed_by
from .learned import Learned
from .training_summary import basic_summary

Array = NDArray[np.float64]
Tick = Callable[[int], None] | None

#: Numbers of factors that are tried.
RANKS = (0, 2, 4, 8, 16)
#: Tasks that a factor takes at least.
TASKS_PER_FACTOR = 4
#: Fraction by which more factors must lower the held-out error, or no more are tried.
GAIN_OF_FACTORS = 3e-4
#: Penalties on what a description moves, strongest first.
SIDE_PENALTIES = (1000.0, 100.0, 10.0)
#: Multiples of τ.
SCALES = (0.5, 0.7, 1.4, 2.0)
#: What is not there by default must lower the held-out error by this fraction.
LEAST_GAIN = 1e-3


@dataclass(frozen=True)
class FactorForm:
    """So many factors."""

    rank: int
    n_components: int = 1

    def describe(self) -> dict[str, Any]:
        return {"kind": "factors plus diagonal", "rank": self.rank}


@dataclass(frozen=True)
class Candidate:
    """A model for each fold, the multiple of its τ, and errors of the held-out tasks, fold after fold."""

    fits: list[FactorModel]
    scale: float
    penalty: float
    errors: Array

    @property
    def error(self) -> float:
        found = self.errors[~np.isnan(self.errors)]
        return float(found.mean()) if len(found) else np.inf


class Judge:
    """The held-out tasks of each fold, with some of their rows given, and with none where that may happen, too."""

    def __init__(self, data: TrainingData) -> None:
        self.data = data
        side = data.side(data.tasks) if data.side is not None else None
        self.rows = FactorRows.of(data.tasks, data.units, side)
        self.train = [self.rows.take(fold.train) for fold in data.folds]
        arrival = data.settings.arrival
        self.episodes: list[list[Episodes]] = []
        for fold in data.folds:
            tasks, seed = data.tasks[fold.held_out], data.seed(HELD_OUT_ROWS, fold.number)
            asked = [arrival.episodes(tasks, seed)]
            if arrival.support is None:
                asked.append(arrival.query_all(tasks, 0, seed))
            self.episodes.append(asked)

    @cached_property
    def on_device(self) -> list[CudaFactorRows]:
        """The training tasks of each fold."""
        return [CudaFactorRows.of(rows, check_device(self.data.settings.device)) for rows in self.train]

    def fit_all(self, start: FactorModel, penalty: float) -> FactorModel:
        """A model of all tasks."""
        device = self.data.settings.device
        rows = self.rows if device is None else CudaFactorRows.of(self.rows, check_device(device))
        return fit_factors(rows, start, penalty)

    def fit(self, starts: list[FactorModel], penalty: float = 0.0) -> list[FactorModel]:
        """A model of each fold's training tasks, from these on."""
        if self.data.settings.device is not None:
            return [fit_factors(*pair, penalty) for pair in zip(self.on_device, starts, strict=True)]
        jobs = joblib.Parallel(self.data.settings.n_jobs, prefer="processes")
        return list(
            jobs(joblib.delayed(fit_factors)(*pair, penalty) for pair in zip(self.train, starts, strict=True))
        )

    def errors(self, fits: list[FactorModel], scale: float = 1.0, *, cold: bool = False) -> Array:
        """Of the held-out tasks, fold after fold; ``cold`` asks about tasks without rows, too."""
        found = []
        for fold, fit, asked in zip(self.data.folds, fits, self.episodes, strict=True):
            prior = assemble(self.data, fit, scale)
            each = [self._errors(prior, part, fold) for part in (asked if cold else asked[:1])]
            found.append(np.mean(each, axis=0))
        return np.concatenate(found)

    def _errors(self, prior: FactorPrior, episodes: Episodes, fold: Fold) -> Array:
        predicted = predict_blocks(prior, episodes.support, episodes.query)
        return self.data.errors(episodes, predicted.prediction, len(fold.held_out))


def learn_many_columns(data: TrainingData, *, tol: float, max_iter: int, progress: bool = False) -> Learned:
    """Run the routine of the module's text; ``tol`` and ``max_iter`` are those that the prior is handed on with."""
    if data.side is not None and not data.side.from_description:
        raise ValueError(
            f"feature_map: with {data.tasks.n_features} columns the prior depends on the task's description alone, and "
            'not on features of its rows; use feature_map="auto", or ConditionalLearner with a rank'
        )
    steps = len(data.folds) * (len(RANKS) + len(SIDE_PENALTIES)) + 1
    with progress_bar("Learning from tasks", steps, enabled=progress) as tick, single_threaded_blas():
        judge = Judge(data)
        results: list[dict[str, Any]] = []
        best = _choose_rank(judge, results, tick)
        if data.has_description:
            best = _choose_side(judge, best, results, tick)
        if data.settings.calibrate:
            best = _choose_scale(judge, best)
        model = judge.fit_all(best.fits[0], best.penalty)
        prior = assemble(data, model, best.scale)
        if len(data) > 1:
            pairs = [
                (data.tasks[fold.held_out], assemble(data, fit, best.scale))
                for fold, fit in zip(data.folds, best.fits, strict=True)
            ]
            calibration = calibrate(pairs, data.seed(INTERVAL_ROWS), data.settings.arrival)
            prior = replace(prior, calibration=calibration)
    own_means = _mean_errors(judge)
    complaint = _complaint(best, own_means)
    side = SideStructure(best.penalty, curved=True) if best.penalty else None
    errors = judge.errors(best.fits, best.scale)
    return Learned(
        prior,
        FactorForm(model.rank),
        best.scale,
        side,
        None,
        errors,
        float(np.nanmean(errors)),
        results,
        None,
        (),
        basic_summary(data, errors, own_means),
        complaint=complaint,
    )


def _choose_rank(judge: Judge, results: list[dict[str, Any]], tick: Tick) -> Candidate:
    data = judge.data
    most = min(len(data) // TASKS_PER_FACTOR, data.tasks.n_features)
    fits: list[FactorModel] = []
    best: Candidate | None = None
    for rank in RANKS:
        if rank > most:
            break
        started = [_start(judge, i, rank, fits) for i in range(len(data.folds))]
        fits = judge.fit(started)
        found = Candidate(fits, 1.0, 0.0, judge.errors(fits))
        results.append({"kind": "factors plus diagonal", "rank": rank, "error": found.error})
        if tick is not None:
            tick(len(data.folds))
        if best is not None and not found.error < (1.0 - GAIN_OF_FACTORS) * best.error:
            break
        best = found
    assert best is not None
    return best


def _start(judge: Judge, fold: int, rank: int, fits: list[FactorModel]) -> FactorModel:
    """The fit with fewer factors and some more, or a new one; descriptions say nothing yet."""
    data = judge.data
    seed = data.seed(FORM_STARTS, rank)
    if fits:
        return fits[fold].with_rank(rank, seed)
    n_side = judge.rows.side.shape[1]
    has_intercept = data.settings.fit_intercept
    return FactorModel.start(
        data.tasks.n_features, rank, has_intercept=has_intercept, n_side=n_side, seed=seed
    )


def _choose_side(judge: Judge, best: Candidate, results: list[dict[str, Any]], tick: Tick) -> Candidate:
    """How freely the description moves the scores, if at all; tasks without rows have a say, where there may be some."""
    size = float(np.mean(judge.rows.side**2)) or 1.0
    chosen, lowest, fits = best, (1.0 - LEAST_GAIN) * _mean(judge.errors(best.fits, cold=True)), best.fits
    for penalty in SIDE_PENALTIES:
        fits = judge.fit(fits, penalty * size)
        error = _mean(judge.errors(fits, cold=True))
        results.append({"kind": "description", "penalty": penalty, "error": error})
        if error < lowest:
            chosen, lowest = Candidate(fits, 1.0, penalty * size, judge.errors(fits)), error
        if tick is not None:
            tick(len(fits))
    return chosen


def _choose_scale(judge: Judge, best: Candidate) -> Candidate:
    lowest = (1.0 - LEAST_GAIN) * best.error
    for scale in SCALES:
        found = replace(best, scale=scale, errors=judge.errors(best.fits, scale))
        if found.error < lowest:
            best, lowest = found, found.error
    return best


def assemble(data: TrainingData, model: FactorModel, scale: float) -> FactorPrior:
    """Return the prior of a fitted model with ``scale`` times its τ."""
    fitted = model.prior()
    ratio = scale / fitted.noise
    # In units of the noise variance.
    scaled = Factors(
        fitted.mean, np.sqrt(ratio) * fitted.factors, ratio * fitted.diagonal, 1.0, fitted.effect
    )
    return FactorPrior(scaling=data.units, clip=data.settings.clip, model=scaled, side=data.side)


def _mean_errors(judge: Judge) -> Array:
    """Errors of the held-out tasks, fold after fold, by the means of their own rows."""
    means = [
        mean_errors(judge.data, asked[0], len(fold.held_out))
        for fold, asked in zip(judge.data.folds, judge.episodes, strict=True)
    ]
    return np.concatenate(means)


def _complaint(best: Candidate, own_means: Array) -> str | None:
    if surpassed_by(best.errors, {"the mean of the task's rows": own_means}) is None:
        return None
    return (
        "X: held-out tasks are predicted worse than by the mean of the task's rows; look at groups (are rows that "
        "belong together one task?) and at the columns of X, which may say nothing about y"
    )


def _mean(errors: Array) -> float:
    return float(np.nanmean(errors)) if np.isfinite(errors).any() else np.inf
