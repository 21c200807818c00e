"""Learning beside a common part: the routine of `training`, on what a regressor of all tasks leaves.

Whether it pays is asked of the same held-out tasks and rows, with and without: they are predicted better by a
standard error, or it is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from ..feature_maps import SideFeatures
from ..gaussian.em import Source
from ..priors.shared_regressor import fit_shared_regressor
from ..summaries.training import OWN
from .data import COMMON_PARTS, TrainingData
from .judging import significant
from .learned import Learned
from .training import learn

#: Standard errors by which held-out errors must be lower: whoever asks for it expects something of it.
EXPECTED = 1.0


def learn_beside(
    data: TrainingData,
    regressor: Any,
    *,
    reads_description: bool,
    if_it_pays: bool,
    source_in: Callable[..., Source] | None = None,
    **options: Any,
) -> Learned:
    """Learn what is left to the tasks by ``regressor``; ``if_it_pays`` also without it, and the better of the two.

    ``options`` are those of `learn`, and ``source_in`` also takes the common part that is to be taken off the targets.
    """
    if if_it_pays and (data.tasks.sizes > 0).sum() < 2:
        return learn(data, source_in=source_in, **options)
    seed = data.seed(COMMON_PARTS)
    common = fit_shared_regressor(regressor, data.tasks, seed, reads_side_info=reads_description)
    left = common.regressor.residual_tasks(data.tasks, common.folds)
    # The range is that of the whole prediction: nothing is clipped before the two parts are put together.
    settings = replace(data.settings, clip=None)
    # Features of rows are now those of what is left of them.
    side = None if data.side is None else SideFeatures.fit(deepcopy(data.side.encoder), left)
    source_left = None if source_in is None else partial(source_in, common=common)
    rest = replace(data, tasks=left, side=side, settings=settings)
    chosen = beside = learn(rest, source_in=source_left, **options)
    prior = replace(beside.prior, regressor=common.regressor, clip=data.settings.clip)
    tried: list[dict[str, Any]] = []
    if if_it_pays:
        alone = learn(data, source_in=source_in, **options)
        for name, learned in ((None, alone), (type(regressor).__name__, beside)):
            tried.append({"kind": "common part", "common": name, "error": learned.validation_error})
        if not significant(alone.errors - beside.errors, EXPECTED):
            chosen, prior = alone, alone.prior
    summary = chosen.training_summary
    if chosen is beside:
        # Rivals of what is left of the targets are nobody's; those of the targets themselves were asked if it pays.
        others = alone.training_summary.errors if if_it_pays else {}
        summary = replace(summary, errors={**others, OWN: summary.errors[OWN]} if summary.errors else {})
    return replace(
        chosen,
        prior=prior,
        results=[*chosen.results, *tried],
        training_summary=summary,
        common=common if chosen is beside else None,
    )
