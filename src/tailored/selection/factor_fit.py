"""Priors for many columns: selection and fit of a low-rank plus diagonal covariance.

1. Fit the model of `tailored.gaussian.factor_em` with an increasing number of factors to the
   training tasks of each fold.  Set the scales of FFᵀ and of the noise by the evidence on the
   held-out tasks.  Stop at the first number of factors that is not accepted as a richer model (see
   `rule`).
2. Let side information shift the factor scores and the intercept, if this is accepted on the
   held-out tasks (see `rule`).
3. Fit the selected model to all tasks.

The result is ``τ = FFᵀ + D`` and ``b(s) = b₀ + Γ v(s)``, where the columns of Γ are in the span of
the factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np

from ..gaussian.factor_em import FactorModel, fit_factors
from ..gaussian.factors import FactorRows, posterior, recalibrate
from ..priors.base import predict_blocks
from ..priors.factors import FactorPrior
from ..tasks.rows import Array
from .data import Draw, TrainingData
from .rule import is_as_good, is_better
from .search import Candidate

#: Candidate numbers of factors.
RANKS = (0, 2, 4, 8, 16)


@dataclass(frozen=True)
class FactorStructure:
    """A low-rank plus diagonal covariance, and whether side information shifts the factor scores
    and the intercept.
    """

    rank: int
    has_side: bool = False
    n_components: int = 1

    def describe(self) -> dict[str, Any]:
        described = {"kind": "factors plus diagonal", "rank": self.rank}
        return {**described, "side": True} if self.has_side else described

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.rank} factors" + ", side information" * self.has_side


class FactorSearch:
    """Select the number of factors, and effects of side information, on the held-out tasks of each
    fold.
    """

    def __init__(self, data: TrainingData, tick: Callable[[int], None]) -> None:
        self.data, self.tick = data, tick
        self.candidates: list[Candidate] = []
        side = None if data.side is None else data.side(data.tasks)
        self.rows = FactorRows.of(data.tasks, data.scaling, side)
        self.train = [self.rows.take(fold.train) for fold in data.folds]
        self.held_out = [self.rows.take(fold.held_out) for fold in data.folds]
        self.episodes = [(data.episodes(fold), data.without_rows(fold)) for fold in data.folds]

    def select(self) -> Candidate:
        """Return the selected candidate: add factors while they are accepted, then effects of side
        information if accepted.
        """
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
        relevance = 1.0 / np.maximum(np.mean(self.rows.side**2, axis=0), 1e-12)
        candidate = self._candidate([replace(fit, relevance=relevance) for fit in best.fits])
        return candidate if is_as_good(candidate, best) else best

    def _candidate(self, starts: list[FactorModel]) -> Candidate:
        """Fit the training tasks of each fold, and evaluate the held-out tasks after
        recalibration.
        """
        jobs = joblib.Parallel(self.data.settings.n_jobs, prefer="processes")
        pairs = zip(self.train, starts, strict=True)
        fits = list(jobs(joblib.delayed(fit_factors)(*pair) for pair in pairs))
        models = [fit.prior() for fit in fits]
        c, e = recalibrate(self.held_out, models)
        density, errors = [], []
        for fit, model, rows, both in zip(fits, models, self.held_out, self.episodes, strict=True):
            density.append(posterior(rows, model.scaled(c, e)).log_evidence)
            prior, of_fold = factor_prior(self.data, fit, c), []
            for each in both:
                predicted = predict_blocks(prior, each.support, each.query).prediction
                of_fold.append(self.data.errors(each, predicted, len(rows)))
            errors.append(of_fold)
        structure = FactorStructure(fits[0].rank, bool(starts[0].relevance.any()))
        given, without = np.concatenate(errors, axis=1)
        candidate = Candidate(np.concatenate(density), given, without, structure, fits, c)
        self.candidates.append(candidate)
        self.tick(len(fits))
        return candidate

    def task_mean_errors(self) -> Array:
        """Return the errors of the held-out tasks when the mean of their support rows is
        predicted.
        """
        pairs, errors = zip(self.episodes, self.held_out, strict=True), self.data.task_mean_errors
        return np.concatenate([errors(given, len(rows)) for (given, _), rows in pairs])


def factor_prior(data: TrainingData, model: FactorModel, scale: float) -> FactorPrior:
    """Return the prior of a fitted model, with FFᵀ multiplied by ``scale``, in units of the noise
    variance.
    """
    fitted = model.prior()
    scaled = replace(fitted.scaled(scale, 1.0 / fitted.noise), noise=1.0)
    return FactorPrior(scaling=data.scaling, model=scaled, side=data.side)
