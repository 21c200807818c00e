"""What is learned from errors instead of the likelihood: a mean for tasks without rows, and the
offset to medians.

Random effects take up the differences between tasks, so the prior mean is mostly estimated within
tasks.  A task without rows is predicted between tasks, where features may have other effects:
richer states may spend more, although a state that becomes richer does not.  The prior mean of a
task without rows is therefore moved by sδ, where δ minimises the squared errors of such
predictions.  The fraction s in [0, 1] minimises the squared errors of held-out tasks, but is one
standard error lower, so nothing is moved without evidence.  From one row on, nothing is moved
either.

With a loss that is not squared, predictions are posterior means plus a constant that minimises the
loss on held-out tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from ...losses import Squared
from ...tasks.rows import Array, standard_errors, task_means
from ..loop import Candidate
from ..rule import known_mean, significant
from ..structures import difference, rows_and_residuals

Priors = tuple[Any, Sequence[Any]]


def move_means(prior: Any, best: Candidate) -> Priors:
    """Return the prior and those of the folds with the means of tasks without rows moved by sδ, and
    with the constant, if it lowers the error by two paired standard errors.
    """
    data, priors = best.folds[0].data, best.priors
    if not data.response.is_gaussian or len(data) < 2 or data.has_many_columns:
        return prior, priors
    prior = replace(prior, offset=_offset(best))
    if data.settings.covariance is not None or data.is_wide:
        return prior, priors
    pairs = list(zip(best.folds, best.models, strict=True))
    moved = [difference(data, data.tasks[fold.split.train], fit) for fold, fit in pairs]
    gains = list[list[Array]]()
    for (fold, fit), delta in zip(pairs, moved, strict=True):
        tasks = data.tasks[fold.split.held_out]
        X, residuals = rows_and_residuals(data, tasks, fit)
        products = residuals * (X @ delta), (X @ delta) ** 2
        gains.append([task_means(each, tasks.offsets, tasks.frequency_weight) for each in products])
    product, square = (
        each[~np.isnan(each)] for each in map(np.concatenate, zip(*gains, strict=True))
    )
    lowest = product.sum() - len(product) * standard_errors(product)
    if len(product) < 2 or not lowest > 0.0:
        return prior, priors
    s = min(float(lowest / square.sum()), 1.0)
    deltas = [s * delta for delta in (difference(data, data.tasks, prior.model), *moved)]
    prior, *priors = (
        replace(each, without_rows=delta)
        for each, delta in zip((prior, *priors), deltas, strict=True)
    )
    return prior, priors


def _offset(best: Candidate) -> float:
    """Return the constant for this loss."""
    data = best.folds[0].data
    if isinstance(data.settings.loss, Squared):
        return 0.0
    episodes = [fold.episodes[0] for fold in best.folds]
    predicted = [
        data.predict(fold.support[0], prior, fold.episodes[0].query)
        for fold, prior in zip(best.folds, best.priors, strict=True)
    ]

    def errors(constant: float) -> Array:
        """Return the error of each task with this constant."""
        triples = zip(best.folds, episodes, predicted, strict=True)
        return np.concatenate([fold.errors(each, p + constant) for fold, each, p in triples])

    pairs = zip(episodes, predicted, strict=True)
    residuals = np.concatenate([each.query.y - prediction for each, prediction in pairs])
    ends = float(residuals.min(initial=0.0)), float(residuals.max(initial=0.0))
    found = minimize_scalar(lambda c: known_mean(errors(c)), bounds=ends, method="bounded")
    constant = float(found.x)
    return constant if significant(errors(0.0) - errors(constant)) else 0.0
