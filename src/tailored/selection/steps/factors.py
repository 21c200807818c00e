"""A low-rank plus diagonal covariance, for many columns, see `gaussian.factor_em`.

The prior is ``τ = FFᵀ + D`` and ``b(s) = b₀ + Γ v(s)``, where the columns of Γ are in the span of
the factors.  The scales of FFᵀ and of the noise are set by the evidence on the held-out tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...gaussian.factor_em import FactorModel, fit_factors
from ...gaussian.factors import posterior, recalibrate
from ...gaussian.side import Effect, SideStructure
from ...priors.base import Prior
from ...priors.factors import FactorPrior
from ...tasks.rows import Array
from ..data import Draw, Fold, Training, TrainingData
from ..loop import Candidate, State, Table
from ..rule import is_as_good, is_better
from ..structures import Structure

#: Candidate numbers of factors.
RANKS = (0, 2, 4, 8, 16)


@dataclass(frozen=True)
class FactorStructure(Structure):
    """A number of factors, and whether side information shifts their scores and the intercept."""

    kind = "factors plus diagonal"

    rank: int
    has_side: bool = False
    #: Multiples (c, e) of FFᵀ and of all variances.
    scales: tuple[float, float] = field(default=(1.0, 1.0), repr=False)

    @property
    def scale(self) -> float:
        return self.scales[0]

    def fit(self, training: Training, *after: Any, start: Any = None) -> FactorModel:
        return fit_factors(training.tasks, start)

    def log_evidence(self, held_out: Any, model: FactorModel) -> Array:
        return posterior(held_out, model.prior().scaled(*self.scales)).log_evidence

    def prior(self, data: TrainingData, model: FactorModel, fold: Fold | None = None) -> Prior:
        """Return the prior in units of the noise variance."""
        fitted = model.prior()
        scaled = replace(fitted.scaled(self.scales[0], 1.0 / fitted.noise), noise=1.0)
        return FactorPrior(scaling=data.scaling, model=scaled, side=data.side)

    def describe(self) -> dict[str, Any]:
        described = {"kind": self.kind, "rank": self.rank}
        return {**described, "side": True} if self.has_side else described

    def names(self, d: int, has_intercept: bool) -> tuple[str, str]:
        name = f"{self.rank} factors" + ", side information" * self.has_side
        return name, name

    def effects(self, training: Training, model: FactorModel) -> SideStructure | None:
        sizes = [(group, float(model.relevance[group.features].max())) for group in training.groups]
        effects = [Effect(group.column, group.curved, relevance=s) for group, s in sizes if s > 0]
        return SideStructure(tuple(effects)) if effects else None


def select_factors(state: State, table: Table) -> State:
    """Add factors while each number is better than the last."""
    data, best = state.data, None
    for rank in RANKS:
        start = FactorModel.start(
            data.tasks.n_features,
            rank,
            has_intercept=data.settings.fit_intercept,
            n_side=data.statistics.side.shape[1],
            seed=data.seed(Draw.STRUCTURE_STARTS, rank),
        )
        found = _compete(state, table, FactorStructure(rank), [start] * len(state.folds))
        if best is not None and not is_better(found, best, best):
            break
        best = found
    return replace(state, best=best)


def accept_effects_on_factors(state: State, table: Table) -> State:
    """Let side information shift the scores and the intercept."""
    data, best = state.data, state.best
    if data.side is None or best is None:
        return state
    relevance = 1.0 / np.maximum(np.mean(data.statistics.side**2, axis=0), 1e-12)
    starts = [replace(fit, relevance=relevance) for fit in best.models]
    rank = best.models[0].rank
    found = _compete(state, table, FactorStructure(rank, has_side=True), starts)
    return replace(state, best=found) if is_as_good(found, best) else state


def _compete(
    state: State, table: Table, structure: FactorStructure, starts: Sequence[FactorModel]
) -> Candidate:
    """Fit the training tasks of each fold, and score the held-out tasks after recalibration."""
    training = [fold.training.tasks for fold in state.folds]
    models = state.data.in_parallel(fit_factors, training, starts)
    held_out = [fold.held_out for fold in state.folds]
    scales = recalibrate(held_out, [model.prior() for model in models])
    return table.compete(replace(structure, scales=scales), state.folds, models)
