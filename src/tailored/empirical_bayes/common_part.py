"""Learning beside a common part: the routine of `training`, on what a regressor of all tasks leaves.

Whether it pays is asked of the same held-out tasks and rows, with and without: they are predicted better by more
than chance, or it is left out.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from ..common import fit_common
from ..feature_maps import SideFeatures
from .data import COMMON_PARTS, TrainingData
from .selection import significant
from .training import Learned, learn


def learn_beside(
    data: TrainingData, regressor: Any, *, reads_description: bool, if_it_pays: bool, **options: Any
) -> Learned:
    """Learn what is left to the tasks by ``regressor``; ``if_it_pays`` also without it, and the better of the two.

    ``options`` are those of `learn`.
    """
    if if_it_pays and (data.tasks.sizes > 0).sum() < 2:
        return learn(data, **options)
    part, left = fit_common(
        regressor, data.tasks, data.seed(COMMON_PARTS), reads_description=reads_description
    )
    # The range is that of the whole prediction: nothing is clipped before the two parts are put together.
    settings = replace(data.settings, clip=None)
    # Features of rows are now those of what is left of them.
    side = None if data.side is None else SideFeatures.fit(deepcopy(data.side.encoder), left)
    beside = learn(replace(data, tasks=left, side=side, settings=settings), **options)
    beside = replace(beside, prior=replace(beside.prior, common=part, clip=data.settings.clip))
    if not if_it_pays:
        return beside
    alone = learn(data, **options)
    pays = significant(alone.errors - beside.errors)
    tried = [
        {"kind": "common part", "common": name, "error": learned.validation_error}
        for name, learned in ((None, alone), (type(regressor).__name__, beside))
    ]
    chosen = beside if pays else alone
    return replace(chosen, results=[*chosen.results, *tried])
