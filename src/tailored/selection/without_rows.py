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
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ..gaussian.mixture import Mixture
from ..losses import Squared
from ..tasks.rows import Array, standard_errors, task_means
from ..tasks.task_set import TaskSet
from .data import TrainingData
from .rule import significant


class Moves(NamedTuple):
    """sδ for all tasks and for the training tasks of each fold (None: zero), and the constant, in
    the user's units.
    """

    without_rows: Array | None
    folds: Sequence[Array | None]
    offset: float = 0.0


def fit_moves(data: TrainingData, model: Mixture, fits: Sequence[Mixture]) -> Moves:
    """Fit sδ and the constant; the constant is zero unless it lowers the error by two paired
    standard errors.

    ``model`` is fitted to all tasks, and ``fits`` to the training tasks of each fold.
    """
    nothing = Moves(None, [None] * len(fits))
    if not data.response.is_gaussian or len(data) < 2:
        return nothing
    nothing = nothing._replace(offset=_offset(data, fits))
    if data.settings.covariance is not None or data.is_wide:
        return nothing
    pairs = list(zip(data.folds, fits, strict=True))
    moved = [difference(data, data.tasks[fold.train], fit) for fold, fit in pairs]
    products, squares = list[Array](), list[Array]()
    for (fold, fit), delta in zip(pairs, moved, strict=True):
        tasks = data.tasks[fold.held_out]
        X, residuals = _rows_and_residuals(data, tasks, fit)
        for out, values in (products, residuals), (squares, X @ delta):
            out.append(task_means(values * (X @ delta), tasks.offsets, tasks.frequency_weight))
    product, square = (np.concatenate(each) for each in (products, squares))
    product, square = product[~np.isnan(product)], square[~np.isnan(square)]
    lowest = product.sum() - len(product) * standard_errors(product)
    if len(product) < 2 or not lowest > 0.0:
        return nothing
    s = min(float(lowest / square.sum()), 1.0)
    of_all = s * difference(data, data.tasks, model)
    return nothing._replace(without_rows=of_all, folds=[s * delta for delta in moved])


def difference(data: TrainingData, tasks: TaskSet, model: Mixture) -> Array:
    """Return δ: least squares of targets minus predictions without rows, with the same weight for
    each task.
    """
    X, residuals = _rows_and_residuals(data, tasks, model)
    weight = np.ones(len(X)) if tasks.frequency_weight is None else tasks.frequency_weight
    root = np.sqrt(weight / np.repeat(np.maximum(tasks.n_observed, 1.0), tasks.sizes))
    return np.asarray(np.linalg.lstsq(root[:, None] * X, root * residuals)[0])


def _rows_and_residuals(data: TrainingData, tasks: TaskSet, model: Mixture) -> tuple[Array, Array]:
    """Return scaled rows, and scaled targets minus predictions without rows."""
    prediction = data.predict(data.statistics_of(tasks.without_rows()), data.prior(model), tasks)
    return data.scaling.dense(tasks.X), (tasks.y - prediction) / data.scaling.target


def _offset(data: TrainingData, fits: Sequence[Mixture]) -> float:
    """Return the constant for this loss."""
    loss = data.settings.loss
    if isinstance(loss, Squared):
        return 0.0
    residuals, weights, tasks, n_tasks = [], [], [], 0
    for fold, fit in zip(data.folds, fits, strict=True):
        support, query, task = data.episodes(fold)
        predicted = data.predict(data.statistics_of(support), data.prior(fit), query)
        residuals.append(query.y - predicted)
        weights.append(1.0 / np.repeat(np.maximum(query.sizes, 1), query.sizes))
        tasks.append(n_tasks + np.repeat(task, query.sizes))
        n_tasks += len(fold.held_out)
    y, weight, of_row = np.concatenate(residuals), np.concatenate(weights), np.concatenate(tasks)

    def errors(constant: float) -> Array:
        """Return the error of each task with this constant."""
        return np.bincount(of_row, weight * loss.error(constant, y), n_tasks).astype(float)

    ends = float(y.min(initial=0.0)), float(y.max(initial=0.0))
    found = minimize_scalar(lambda c: errors(c).sum(), bounds=ends, method="bounded")
    constant = float(found.x)
    return constant if significant(errors(0.0) - errors(constant)) else 0.0
