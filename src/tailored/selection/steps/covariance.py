"""The covariance of the coefficients of one Gaussian."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..loop import State, Table
from ..rule import is_usable
from ..structures import PSEUDO_TASKS, Independent, MixedModel


def select_covariance(state: State, table: Table) -> State:
    """Select the covariance with the highest density; its total error must not exceed that of the
    simplest.
    """
    if state.best is not None:
        return state  # selected together with effects of side information
    data, settings = state.data, state.data.settings
    if len(data) == 1:
        # A single task carries no information about other tasks.
        tried = [table.compete(each, state.folds) for each in ridge_structures()]
        return replace(state, best=max(tried, key=lambda each: each.mean_density))
    d, is_full = data.statistics.n_features, not data.is_wide
    structures = covariance_structures(d, settings.fit_intercept, settings.varying, full=is_full)
    if settings.covariance is not None:
        centre = data.centre
        structures = [MixedModel(settings.covariance, varying=settings.varying, centre=centre)]
    # Pooled regression of numeric targets is a baseline: a random intercept with variance zero is
    # the same model.  With a log link, means grow exponentially with the variance of random
    # effects, so a model with a high density can have huge errors.
    tried = [table.compete(each, state.folds) for each in structures]
    simplest, *others = [each for each in tried if not each.structure.is_pooled]
    usable = [each for each in others if is_usable(each, simplest)]
    best = max([simplest, *usable], key=lambda each: each.mean_density)
    return replace(state, best=best, single=best)


def ridge_structures() -> list[Independent]:
    """Return the structures of independent tasks; 1 is first, so it is selected in case of ties."""
    ridges = np.logspace(-3, 4, 15).tolist()
    return [Independent(ridge) for ridge in sorted(ridges, key=lambda ridge: ridge != 1.0)]


def covariance_structures(
    n_features: int,
    has_intercept: bool,
    varying: tuple[int, ...] | None = None,
    *,
    full: bool = True,
) -> list[MixedModel]:
    """Return mixed models with each covariance, simplest first.

    Without ``full``, no model has correlations.  If ``varying`` is given, only these coefficients
    differ between tasks, and pooled regression and the random intercept are left out.
    """
    single = MixedModel(varying=varying)
    if varying is not None and len(varying) < 2:
        return [single]
    kinds = [] if varying is not None else ["none", "intercept"] if has_intercept else ["none"]
    if varying is not None or n_features > has_intercept:
        kinds.append("diagonal")
    is_full = full and n_features > 1
    out = [replace(single, covariance=kind) for kind in kinds]
    if is_full:
        # The full covariance is fitted anyway.
        out[-1] = replace(out[-1], start=single)
        out += [single, *(replace(single, pseudo_tasks=nu) for nu in PSEUDO_TASKS)]
    return out
