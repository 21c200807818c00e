"""A low-rank covariance, with one or several components, see `gaussian.low_rank`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...gaussian.em import restrict_rank
from ...gaussian.low_rank import (
    Calibration,
    LowRankFitter,
    LowRankModel,
    RotatedTasks,
    log_evidence,
    mixture_of_scores,
    recalibrate,
    scores,
)
from ...gaussian.mixture import Mixture
from ...tasks.rows import Array
from ..data import LARGEST_WORK, Draw, Training
from ..loop import State, Table
from ..rule import COMPONENTS, PATIENCE, is_as_good, is_better, significant
from ..structures import MixedModel, Structure

#: With more coefficients, low-rank covariances are candidates for numeric targets.
LOW_RANK = 25
#: Maximum number of factors of a low-rank covariance, and minimum number of training tasks per
#: factor.
MOST_FACTORS, TASKS_PER_FACTOR = 16, 4


@dataclass(frozen=True)
class LowRank(Structure):
    """One or several Gaussians with a few factors each."""

    kind = "low rank"
    is_accelerated = False  # a combination of low-rank covariances has a higher rank

    n_factors: int  # number of factors of the fit with one component
    rank: int  # number of factors of each component of a mixture; 0 with one component
    #: c, δ and σ² from held-out tasks.
    calibration: Calibration = field(repr=False)

    def restrict(self, covariances: Array) -> Array:
        # One more factor than in `gaussian.low_rank`, for the intercept.
        return restrict_rank(covariances, (self.rank or self.n_factors) + 1)

    def names(self, d: int, has_intercept: bool) -> tuple[str, str]:
        several = f"mixture of {self.n_components}, " if self.n_components > 1 else ""
        return self.kind, f"{several}rank {self.rank or self.n_factors}"

    def _fit(self, training: Training, *after: Mixture, start: Mixture | None) -> Mixture:
        tasks = RotatedTasks.of(training.tasks, training.has_intercept)
        model = LowRankFitter(tasks, training.seed).fit(
            self.n_factors, self.n_components, self.rank
        )
        return model.scaled(self.calibration).mixture()


def accept_low_rank(state: State, table: Table) -> State:
    """Accept the best low-rank covariance, and then a mixture of them if it is better.

    If the maximum number of factors is selected, more may be needed.  A full covariance is then
    also tried if none was before, there are fewer coefficients than tasks, and EM is not too slow.
    """
    data, folds, settings = state.data, state.folds, state.data.settings
    d, is_free = data.statistics.n_features, settings.varying is None and not settings.covariance
    if len(data) == 1 or d <= LOW_RANK or not (data.response.is_gaussian and is_free):
        return state
    train, held_out, seed = [], [], data.seed(Draw.COMPONENT_STARTS)
    for fold in folds:
        rest, side = fold.held_out, fold.training.side
        rest = rest if side is None else rest.shifted(rest.side @ side.T)
        tasks = RotatedTasks.of(fold.training.tasks, settings.fit_intercept)
        train.append(LowRankFitter(tasks, seed))
        held_out.append(RotatedTasks.of(rest, settings.fit_intercept))
    T = len(train[0].tasks)
    most = min(MOST_FACTORS, T // TASKS_PER_FACTOR, d // 2)
    best, single = state.best, state.single
    assert best is not None
    assert single is not None
    for selected in LowRankSearch(train, held_out)(most):
        n_factors, n_components, rank = selected.numbers
        structure = LowRank(n_factors, rank, selected.calibration, n_components=n_components)
        sides = (fold.training.side for fold in folds)
        pairs = zip(selected.models, sides, strict=True)
        models = [replace(model.mixture(), side=side) for model, side in pairs]
        found = table.compete(structure, folds, models)
        # The number of factors and the scales of the first, which has one component, were set by
        # the evidence on held-out tasks.
        accepts = is_as_good(found, best) if n_components == 1 else is_better(found, best, single)
        best = found if accepts else best
    if data.is_wide and n_factors == most and d < T and T * d**3 <= LARGEST_WORK:
        full = table.compete(MixedModel(), folds)
        best = full if is_better(full, best, single) else best
    return replace(state, best=best)


class Selected(NamedTuple):
    """Selected arguments of `LowRankFitter.fit`, the models of the folds before and after
    calibration, and their mean log evidence of the held-out tasks.
    """

    numbers: tuple[int, int, int]
    fits: list[LowRankModel]
    calibration: Calibration
    models: list[LowRankModel]
    evidence: float


@dataclass(frozen=True)
class LowRankSearch:
    """Select the numbers of factors and components by the evidence on held-out tasks, after
    calibration.

    ``folds`` and ``held_out`` have an entry for each fold.  Factors are added to one component
    until `PATIENCE` numbers of factors in a row have not raised the evidence.  Next, the number of
    components is selected in the space of the scores, where mixtures are cheap to fit.  Finally,
    the rank of the components is selected.
    """

    folds: list[LowRankFitter]
    held_out: list[RotatedTasks]

    def __call__(self, max_factors: int) -> list[Selected]:
        """Return the best model with one component, followed by the best mixture if several
        components are selected.
        """
        single = self._select_factors(max_factors)
        n_components = self._count_components(single)
        if n_components == 1:
            return [single]
        q = single.numbers[0]
        near = q // n_components + np.arange(-1, 3)
        ranks = np.unique(np.clip(near, 1, q)).tolist()
        mixtures = [self._several(single, n_components, rank) for rank in ranks]
        return [single, max(mixtures, key=lambda mixture: mixture.evidence)]

    def _evaluate(
        self, numbers: tuple[int, int, int], fits: list[LowRankModel], start: Calibration
    ) -> Selected:
        calibration = recalibrate(self.held_out, fits, start)
        models = [fit.scaled(calibration) for fit in fits]
        pairs = zip(self.held_out, models, strict=True)
        evidence = float(np.concatenate([log_evidence(*pair) for pair in pairs]).mean())
        return Selected(numbers, fits, calibration, models, evidence)

    def _select_factors(self, max_factors: int) -> Selected:
        without = [fold.without_factors for fold in self.folds]
        start = 1.0, without[0].delta, without[0].noise
        best = found = self._evaluate((0, 1, 0), without, start)
        for rank in range(1, max_factors + 1):
            fits = [fold.single(rank) for fold in self.folds]
            found = self._evaluate((rank, 1, 0), fits, found.calibration)
            if found.evidence > best.evidence:
                best = found
            elif rank >= best.numbers[0] + PATIENCE:
                break
        return best

    def _count_components(self, single: Selected) -> int:
        """Select the number of mixture components for the scores, on the held-out tasks of the
        first fold.
        """
        fold, fit = self.folds[0], single.fits[0]
        if fit.rank < 2:
            return 1
        train, held_out = scores(fold.tasks, fit), scores(self.held_out[0], fit)
        best, highest, n_failures = 1, None, 0
        for K in (1, *COMPONENTS):
            evidence = held_out.posterior(mixture_of_scores(train, K, fold.seed)).log_evidence
            n_failures += 1
            if highest is None or significant(evidence - highest):
                best, highest, n_failures = K, evidence, 0
            if n_failures == PATIENCE:
                break
        return best

    def _several(self, single: Selected, K: int, rank: int) -> Selected:
        pairs = zip(self.folds, single.fits, strict=True)
        fits = [fold.several(fit, K, rank) for fold, fit in pairs]
        return self._evaluate((single.numbers[0], K, rank), fits, single.calibration)
