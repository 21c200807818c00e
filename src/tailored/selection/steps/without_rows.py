"""What is learned from errors instead of the likelihood: the offset to medians, and a mean for
tasks without rows.

Random effects take up the differences between tasks, so the prior mean is mostly estimated within
tasks.  A task without rows is predicted between tasks, where features may have other effects:
richer states may spend more, although a state that becomes richer does not.  The prior mean of a
task without rows is therefore moved by sδ, where δ minimises the squared errors of such
predictions.  s is the fraction that minimises the squared errors of held-out tasks, but at most 1
and multiplied by 1 − 1/t², where t is the number of standard errors by which it differs from zero
(positive-part James-Stein shrinkage).  As soon as a task has one row, its prior mean is not moved.

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
from ..loop import State, Table
from ..rule import significant
from ..structures import difference, rows_and_residuals


def accept_offset(state: State, table: Table) -> State:
    """Add a constant to predictions if it lowers the error by two paired standard errors."""
    data, best, loss = state.data, state.best, state.data.settings.loss
    assert best is not None
    if len(data) < 2 or not data.response.is_gaussian or isinstance(loss, Squared):
        return state
    residuals, weights, tasks, n_tasks = [], [], [], 0
    for fold, prior in zip(best.folds, best.priors, strict=True):
        support, query, _ = fold.episodes[0]
        residuals.append(query.y - data.predict(support, prior, query, fold.support[0]))
        weights.append(1.0 / np.repeat(np.maximum(query.sizes, 1), query.sizes))
        tasks.append(n_tasks + np.repeat(fold.episodes[0].task, query.sizes))
        n_tasks += len(fold.held_out)
    y, weight, of_row = np.concatenate(residuals), np.concatenate(weights), np.concatenate(tasks)

    def errors(constant: float) -> Array:
        """Return the error of each task with this constant."""
        return np.bincount(of_row, weight * loss.error(constant, y), n_tasks).astype(float)

    ends = float(y.min(initial=0.0)), float(y.max(initial=0.0))
    found = minimize_scalar(lambda c: errors(c).sum(), bounds=ends, method="bounded")
    constant = float(found.x)
    is_accepted = significant(errors(0.0) - errors(constant))
    return replace(state, offset=constant) if is_accepted else state


def accept_mean_without_rows(state: State, table: Table) -> State:
    """Move the means of tasks without rows by the fraction s of δ, also in the folds."""
    data, best = state.data, state.best
    assert best is not None
    is_numeric, is_stated = data.response.is_gaussian, data.settings.covariance is not None
    if len(data) < 2 or not is_numeric or is_stated or data.is_wide:
        return state
    deltas, gains = list[Array](), list[list[Array]]()
    for fold, fit in zip(best.folds, best.models, strict=True):
        delta = difference(data, data.tasks[fold.split.train], fit)
        tasks = data.tasks[fold.split.held_out]
        X, residuals = rows_and_residuals(data, tasks, fit)
        products = residuals * (X @ delta), (X @ delta) ** 2
        gains.append([task_means(each, tasks.offsets, tasks.frequency_weight) for each in products])
        deltas.append(delta)
    product, square = (
        each[~np.isnan(each)] for each in map(np.concatenate, zip(*gains, strict=True))
    )
    if len(product) < 2:
        return state
    with np.errstate(divide="ignore", invalid="ignore"):  # rows may be predicted without error
        t = product.mean() / standard_errors(product)
    if not t > 1.0:
        return state
    s = min(float((1.0 - 1.0 / t**2) * product.sum() / square.sum()), 1.0)
    plain: Sequence[Any] = best.priors
    pairs = zip(plain, deltas, strict=True)
    priors = [replace(prior, without_rows=s * delta) for prior, delta in pairs]
    return replace(state, best=replace(best, priors=priors), without_rows=s)
