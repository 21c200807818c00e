"""Priors for many columns: selection and fit of a low-rank plus diagonal covariance.

1. Fit the model of `tailored.gaussian.factor_em` with an increasing number of factors to the training tasks of each fold.  Set
   the scales of FFᵀ and of the noise by the evidence on the held-out tasks.  Stop at the first number of factors that is not
   accepted as a richer model (see `rule`).
2. Let side information shift the factor scores and the intercept, if this is accepted on the held-out tasks (see `rule`).
3. Fit the selected model to all tasks.

The result is ``τ = FFᵀ + D`` and ``b(s) = b₀ + Γ v(s)``, where the columns of Γ are in the span of the factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np

from ..gaussian.factor_em import FactorModel, fit_factors
from ..gaussian.factors import FactorRows, Factors, posterior, recalibrate
from ..priors.base import predict_blocks
from ..priors.factors import FactorPrior
from ..tasks.episodes import Episodes
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .data import Draw, TrainingData
from .rule import is_as_good, is_better
from .selection import Candidate, mean_of_episodes

#: Candidate numbers of factors.
RANKS = (0, 2, 4, 8, 16)
#: Initial relevance of a side feature, multiplied by its mean square.
RELEVANCE = 0.1


@dataclass(frozen=True)
class FactorStructure:
    """A low-rank plus diagonal covariance."""

    rank: int
    n_components: int = 1

    def describe(self) -> dict[str, Any]:
        return {"kind": "factors plus diagonal", "rank": self.rank}


class FactorSelection:
    """Select the number of factors, and effects of side information, on the held-out tasks of each fold."""

    def __init__(self, data: TrainingData, tick: Callable[[int], None]) -> None:
        self.data, self.tick = data, tick
        self.results: list[dict[str, Any]] = []  # errors and densities of all candidates
        self.candidates: dict[str, Candidate] = {}  # by name
        self.rows = self._rows(data.tasks)
        self.train = [self.rows.take(fold.train) for fold in data.folds]
        self.held_out = [self.rows.take(fold.held_out) for fold in data.folds]
        sets = (
            (data.tasks[f.held_out], data.seed(Draw.HELD_OUT_ROWS, f.number)) for f in data.folds
        )
        self.episodes = [data.settings.arrival.episodes(*pair) for pair in sets]

    def _rows(self, tasks: TaskSet) -> FactorRows:
        side = None if self.data.side is None else self.data.side(tasks)
        return FactorRows.of(tasks, self.data.scaling, side)

    def select(self) -> Candidate:
        """Return the selected candidate: add factors while they are accepted, then effects of side information if accepted."""
        data, best = self.data, None
        for rank in RANKS:
            start = FactorModel.start(
                data.tasks.n_features,
                rank,
                has_intercept=data.settings.fit_intercept,
                n_side=self.rows.side.shape[1],
                seed=data.seed(Draw.STRUCTURE_STARTS, rank),
            )
            candidate = self._candidate([start] * len(data.folds))
            if best is not None and not is_better(candidate, best, best):
                break
            best = candidate
        assert best is not None
        if data.side is None:
            return best
        relevance = RELEVANCE / np.maximum(np.mean(self.rows.side**2, axis=0), 1e-12)
        candidate = self._candidate([replace(fit, relevance=relevance) for fit in best.fits])
        return candidate if is_as_good(candidate, best) else best

    def _candidate(self, starts: list[FactorModel]) -> Candidate:
        """Fit the training tasks of each fold, and evaluate the held-out tasks after recalibration."""
        jobs = joblib.Parallel(self.data.settings.n_jobs, prefer="processes")
        fits = list(
            jobs(
                joblib.delayed(fit_factors)(*pair) for pair in zip(self.train, starts, strict=True)
            )
        )
        models = [fit.prior() for fit in fits]
        c, e = recalibrate(self.held_out, models)
        density, errors, prior_errors = [], [], []
        parts = zip(self.data.folds, fits, models, self.held_out, self.episodes, strict=True)
        for fold, fit, model, rows, each in parts:
            density.append(self._density(model.scaled(c, e), rows, each))
            prior, tasks = factor_prior(self.data, fit, c), self.data.tasks[fold.held_out]
            predicted = predict_blocks(prior, each.support, each.query)
            errors.append(self.data.errors(each, predicted.prediction, len(rows)))
            without = Episodes(tasks.without_rows(), tasks, np.arange(len(tasks)))
            predicted = predict_blocks(prior, without.support, tasks)
            prior_errors.append(self.data.errors(without, predicted.prediction, len(rows)))
        structure = FactorStructure(fits[0].rank)
        joined = [np.concatenate(each) for each in (density, errors, prior_errors)]
        candidate = Candidate(joined[0], joined[1], joined[2], structure, fits, c)
        entry = {
            **structure.describe(),
            "error": candidate.error,
            "density": candidate.mean_density,
        }
        has_side = bool(starts[0].relevance.any())
        self.results.append({**entry, "side": True} if has_side else entry)
        self.candidates[f"{structure.rank} factors" + ", side information" * has_side] = candidate
        self.tick(len(fits))
        return candidate

    def _density(self, model: Factors, rows: FactorRows, episodes: Episodes) -> Array:
        """Return the log density of each held-out task: log p(y), or with ``n_support`` the mean of log p(query | support)."""
        if self.data.settings.arrival.support is None:
            return posterior(rows, model).log_evidence
        both, support = (self._rows(tasks) for tasks in (episodes.together, episodes.support))
        gains = posterior(both, model).log_evidence - posterior(support, model).log_evidence
        return mean_of_episodes(gains, episodes, len(rows))

    def task_mean_errors(self) -> Array:
        """Return the errors of the held-out tasks when the mean of their support rows is predicted."""
        pairs = zip(self.episodes, self.held_out, strict=True)
        return np.concatenate([self.data.task_mean_errors(each, len(rows)) for each, rows in pairs])


def factor_prior(data: TrainingData, model: FactorModel, scale: float) -> FactorPrior:
    """Return the prior of a fitted model, with FFᵀ multiplied by ``scale``, in units of the noise variance."""
    fitted = model.prior()
    scaled = replace(fitted.scaled(scale, 1.0 / fitted.noise), noise=1.0)
    return FactorPrior(scaling=data.scaling, model=scaled, side=data.side)
