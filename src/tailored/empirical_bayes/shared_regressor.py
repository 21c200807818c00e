"""Learn the prior from the residuals of a regressor that all tasks share."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from ..feature_maps.side_features import SideFeatures
from ..gaussian.em import Source
from ..priors.shared_regressor import fit_shared_regressor
from ..summaries.training import OWN
from .data import SHARED_REGRESSOR, TrainingData, significant
from .learn import Learned, learn

#: Standard errors by which an automatic regressor must lower the held-out errors.
N_ERRORS = 1.0


def learn_with_regressor(
    data: TrainingData,
    regressor: Any,
    *,
    reads_side_info: bool,
    automatic: bool,
    progress: bool = False,
    source_in: Callable[..., Source] | None = None,
) -> Learned:
    """Learn the prior from the out-of-fold residuals of ``regressor``.

    An ``automatic`` regressor is only used if it lowers the errors of the same held-out tasks and rows.  ``source_in`` is
    that of `learn` with a further argument ``common``, the regressor whose residuals are to be used.
    """
    if automatic and (data.tasks.sizes > 0).sum() < 2:
        return learn(data, progress=progress, source_in=source_in)
    seed = data.seed(SHARED_REGRESSOR)
    shared = fit_shared_regressor(regressor, data.tasks, seed, reads_side_info=reads_side_info)
    residual_tasks = shared.regressor.residual_tasks(data.tasks, shared.folds)
    # Features of rows are those of the residuals.
    side = None if data.side is None else SideFeatures.fit(deepcopy(data.side.encoder), residual_tasks)
    # Only the sum of both parts is clipped.
    rest = replace(data, tasks=residual_tasks, side=side, settings=replace(data.settings, clip=None))
    residual_source = None if source_in is None else partial(source_in, common=shared)
    with_regressor = learn(rest, progress=progress, source_in=residual_source)
    results, baseline_errors = with_regressor.results, {}
    if automatic:
        without = learn(data, progress=progress, source_in=source_in)
        compared = [
            {"kind": "common part", "common": name, "error": learned.validation_error}
            for name, learned in ((None, without), (type(regressor).__name__, with_regressor))
        ]
        if not significant(without.errors - with_regressor.errors, N_ERRORS):
            return replace(without, results=[*without.results, *compared])
        results, baseline_errors = [*results, *compared], without.training_summary.errors
    summary = with_regressor.training_summary
    # Baselines of the residuals are meaningless; those of the targets are known if both were fitted.
    errors = {**baseline_errors, OWN: summary.errors[OWN]} if summary.errors else {}
    return replace(
        with_regressor,
        prior=replace(with_regressor.prior, regressor=shared.regressor, clip=data.settings.clip),
        results=results,
        training_summary=replace(summary, errors=errors),
        shared=shared,
    )
