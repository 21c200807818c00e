"""Selection of the numbers of factors and components of a low-rank covariance, on held-out
tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..gaussian.low_rank import (
    Calibration,
    LowRankFitter,
    LowRankModel,
    RotatedTasks,
    log_evidence,
    mixture_of_scores,
    recalibrate,
    scores,
)
from ..tasks.rows import Array
from .rule import significant

#: Candidate numbers of components.
COMPONENTS = (2, 3, 4, 6, 8, 12, 16)
#: A search stops after this many numbers of factors or components in a row without improvement.
#: With few tasks, the first factors may lower the evidence even if more factors raise it.
PATIENCE = 3


class Selected(NamedTuple):
    """Selected arguments of `LowRankFitter.fit`, the models of the folds before and after
    calibration, and their evidence.
    """

    numbers: tuple[int, int, int]
    fits: list[LowRankModel]
    calibration: Calibration
    models: list[LowRankModel]
    evidence: Array  # log evidence of the held-out tasks

    @property
    def mean_evidence(self) -> float:
        return float(self.evidence.mean())


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
        return [single, max(mixtures, key=lambda mixture: mixture.mean_evidence)]

    def _evaluate(
        self, numbers: tuple[int, int, int], fits: list[LowRankModel], start: Calibration | None
    ) -> Selected:
        calibration = recalibrate(self.held_out, fits, start or (1.0, fits[0].delta, fits[0].noise))
        models = [fit.scaled(calibration) for fit in fits]
        pairs = zip(self.held_out, models, strict=True)
        return Selected(
            numbers,
            fits,
            calibration,
            models,
            np.concatenate([log_evidence(*pair) for pair in pairs]),
        )

    def _select_factors(self, max_factors: int) -> Selected:
        best = candidate = self._evaluate((0, 1, 0), [fold.single(0) for fold in self.folds], None)
        for rank in range(1, max_factors + 1):
            fits = [fold.single(rank) for fold in self.folds]
            candidate = self._evaluate((rank, 1, 0), fits, candidate.calibration)
            if candidate.mean_evidence > best.mean_evidence:
                best = candidate
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

        def evidence(K: int) -> Array:
            return held_out.posterior(mixture_of_scores(train, K, fold.seed)).log_evidence

        best, highest, n_failures = 1, evidence(1), 0
        for K in COMPONENTS:
            now = evidence(K)
            n_failures += 1
            if significant(now - highest):
                best, highest, n_failures = K, now, 0
            if n_failures == PATIENCE:
                break
        return best

    def _several(self, single: Selected, K: int, rank: int) -> Selected:
        pairs = zip(self.folds, single.fits, strict=True)
        fits = [fold.several(fit, K, rank) for fold, fit in pairs]
        return self._evaluate((single.numbers[0], K, rank), fits, single.calibration)
