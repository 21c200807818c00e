"""Priors for many columns: selection and fit of a low-rank plus diagonal covariance.

1. Fit the model of `tailored.gaussian.factor_em` with an increasing number of factors to the training tasks of each fold,
   and select the number with the lowest held-out error.
2. Let side information shift the scores and the intercept, if that lowers the held-out error.
3. Select a multiple of τ, and fit all tasks.

The result is ``τ = FFᵀ + D`` and ``b(s) = b₀ + Γ v(s)``, with Γ of the rank of the factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from ..gaussian.factor_em import FactorModel, fit_factors
from ..gaussian.factors import FactorRows, Factors
from ..priors.base import predict_blocks
from ..priors.factors import FactorPrior
from ..sources.cuda.factors import CudaFactorRows
from ..sources.cuda.tensors import check_device
from ..tasks.episodes import Episodes
from .data import SCALES, Draw, Fold, TrainingData, known_mean
from .selection import Candidate

Array = NDArray[np.float64]
Tick = Callable[[int], None] | None

#: Numbers of factors.
RANKS = (0, 2, 4, 8, 16)
#: Smallest number of tasks per factor.
TASKS_PER_FACTOR = 4
#: Fraction by which more factors must lower the held-out error.
LEAST_GAIN_OF_FACTORS = 3e-4
#: Penalties on the effects of side information, strongest first.
SIDE_PENALTIES = (1000.0, 100.0, 10.0)
#: Fraction by which side information or another scale must lower the held-out error.
LEAST_GAIN = 1e-3


@dataclass(frozen=True)
class FactorStructure:
    """A low-rank plus diagonal covariance."""

    rank: int
    n_components: int = 1

    def describe(self) -> dict[str, Any]:
        return {"kind": "factors plus diagonal", "rank": self.rank}


class FactorSelection:
    """Fits to folds, and errors of their held-out tasks with support rows, and without any where that may occur."""

    def __init__(self, data: TrainingData) -> None:
        self.data = data
        side = data.side(data.tasks) if data.side is not None else None
        self.rows = FactorRows.of(data.tasks, data.scaling, side)
        self.train = [self._on_device(self.rows.take(fold.train)) for fold in data.folds]
        arrival = data.settings.arrival
        self.episodes: list[list[Episodes]] = []
        for fold in data.folds:
            tasks, seed = data.tasks[fold.held_out], data.seed(Draw.HELD_OUT_ROWS, fold.number)
            episodes = [arrival.episodes(tasks, seed)]
            if arrival.support is None:
                episodes.append(arrival.query_all(tasks, 0, seed))
            self.episodes.append(episodes)

    def _on_device(self, rows: FactorRows) -> FactorRows | CudaFactorRows:
        device = self.data.settings.device
        return rows if device is None else CudaFactorRows.of(rows, check_device(device))

    def fit_all(self, start: FactorModel, penalty: float) -> FactorModel:
        """Return the model of all tasks."""
        return fit_factors(self._on_device(self.rows), start, penalty)

    def fit(self, starts: list[FactorModel], penalty: float = 0.0) -> list[FactorModel]:
        """Return the model of the training tasks of each fold."""
        settings = self.data.settings
        jobs = joblib.Parallel(settings.n_jobs if settings.device is None else 1, prefer="processes")
        pairs = zip(self.train, starts, strict=True)
        return list(jobs(joblib.delayed(fit_factors)(*pair, penalty) for pair in pairs))

    def errors(self, fits: list[FactorModel], scale: float = 1.0, *, without_rows: bool = False) -> Array:
        """Return the errors of the held-out tasks, fold after fold, also ``without_rows`` where that may occur."""
        out = []
        for fold, fit, episodes in zip(self.data.folds, fits, self.episodes, strict=True):
            prior = factor_prior(self.data, fit, scale)
            used = episodes if without_rows else episodes[:1]
            out.append(np.mean([self._errors(prior, part, fold) for part in used], axis=0))
        return np.concatenate(out)

    def _errors(self, prior: FactorPrior, episodes: Episodes, fold: Fold) -> Array:
        predicted = predict_blocks(prior, episodes.support, episodes.query)
        return self.data.errors(episodes, predicted.prediction, len(fold.held_out))

    def task_mean_errors(self) -> Array:
        """Return the errors of the held-out tasks when the mean of their support rows is predicted."""
        pairs = zip(self.data.folds, self.episodes, strict=True)
        errors = [self.data.task_mean_errors(episodes[0], len(fold.held_out)) for fold, episodes in pairs]
        return np.concatenate(errors)

    def select(self, results: list[dict[str, Any]], tick: Tick) -> Candidate:
        """Return the selected candidate, and append all errors to ``results``."""
        best = self._select_rank(results, tick)
        if self.data.has_side:
            best = self._select_side(best, results, tick)
        lowest, fits = (1.0 - LEAST_GAIN) * best.error, best.fits
        for scale in SCALES[1:]:
            candidate = replace(best, scale=scale, errors=self.errors(fits, scale))
            if candidate.error < lowest:
                best, lowest = candidate, candidate.error
        return best

    def _select_rank(self, results: list[dict[str, Any]], tick: Tick) -> Candidate:
        data = self.data
        most = min(len(data) // TASKS_PER_FACTOR, data.tasks.n_features)
        fits: list[FactorModel] = []
        best: Candidate | None = None
        for rank in RANKS:
            if rank > most:
                break
            fits = self.fit([self._start(i, rank, fits) for i in range(len(data.folds))])
            candidate = Candidate(FactorStructure(rank), 1.0, fits, self.errors(fits), np.zeros(0))
            results.append({**candidate.structure.describe(), "error": candidate.error})
            if tick is not None:
                tick(len(data.folds))
            if best is not None and not candidate.error < (1.0 - LEAST_GAIN_OF_FACTORS) * best.error:
                break
            best = candidate
        assert best is not None
        return best

    def _start(self, fold: int, rank: int, fits: list[FactorModel]) -> FactorModel:
        """Return the fit with fewer factors and some new ones, or a new start; without effects of side information."""
        data, seed = self.data, self.data.seed(Draw.STRUCTURE_STARTS, rank)
        if fits:
            return fits[fold].with_rank(rank, seed)
        has_intercept, n_side = data.settings.fit_intercept, self.rows.side.shape[1]
        return FactorModel.start(
            data.tasks.n_features, rank, has_intercept=has_intercept, n_side=n_side, seed=seed
        )

    def _select_side(self, best: Candidate, results: list[dict[str, Any]], tick: Tick) -> Candidate:
        """Select the penalty on effects of side information, if any lowers the error."""
        size = float(np.mean(self.rows.side**2)) or 1.0
        lowest = (1.0 - LEAST_GAIN) * known_mean(self.errors(best.fits, without_rows=True))
        selected, fits = best, best.fits
        for penalty in SIDE_PENALTIES:
            fits = self.fit(fits, penalty * size)
            error = known_mean(self.errors(fits, without_rows=True))
            results.append({"kind": "description", "penalty": penalty, "error": error})
            if error < lowest:
                errors = self.errors(fits)
                selected, lowest = replace(best, fits=fits, penalty=penalty * size, errors=errors), error
            if tick is not None:
                tick(len(fits))
        return selected


def factor_prior(data: TrainingData, model: FactorModel, scale: float) -> FactorPrior:
    """Return the prior of a fitted model with ``scale`` times its τ, in units of the noise variance."""
    fitted = model.prior()
    ratio = scale / fitted.noise
    factors, diagonal = np.sqrt(ratio) * fitted.factors, ratio * fitted.diagonal
    scaled = Factors(fitted.mean, factors, diagonal, 1.0, fitted.effect)
    return FactorPrior(scaling=data.scaling, clip=data.settings.clip, model=scaled, side=data.side)
