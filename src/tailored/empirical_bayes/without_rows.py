"""What is learned from errors instead of the likelihood: a mean for tasks without rows, and the offset to medians.

Random effects take up the differences between tasks, so the prior mean is mostly estimated within tasks.  A task without
rows is predicted between tasks, where features may have other effects: richer states may spend more, although a state that
becomes richer does not.  The prior mean of a task without rows is therefore moved by δ, which minimises the squared errors
of such predictions.  From one row on, nothing is moved.

With a loss that is not squared, predictions are posterior means plus a constant that minimises the loss on held-out tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ..gaussian.mixture import Mixture
from ..losses import Squared
from ..tasks.episodes import Episodes
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .data import TrainingData
from .rule import significant


class Moves(NamedTuple):
    """δ for all tasks and for the training tasks of each fold (None: zero), and the constant, in the user's units."""

    without_rows: Array | None
    folds: Sequence[Array | None]
    offset: float = 0.0


def fit_moves(data: TrainingData, model: Mixture, fits: Sequence[Mixture]) -> Moves:
    """Fit δ and the constant; each is zero unless it lowers the error of held-out tasks by two paired standard errors.

    ``model`` is fitted to all tasks, and ``fits`` to the training tasks of each fold.
    """
    none: list[Array | None] = [None] * len(fits)
    if not data.response.is_gaussian or len(data) < 2:
        return Moves(None, none)
    offset = _offset(data, fits)
    if (
        data.settings.covariance is not None
        or data.is_wide
        or len(data) <= data.statistics.n_features
    ):
        return Moves(None, none, offset)
    pairs = zip(data.folds, fits, strict=True)
    moved: list[Array | None] = [
        difference(data, data.tasks[fold.train], fit) for fold, fit in pairs
    ]
    if not significant(
        _errors_without_rows(data, fits, none) - _errors_without_rows(data, fits, moved)
    ):
        return Moves(None, none, offset)
    return Moves(difference(data, data.tasks, model), moved, offset)


def _errors_without_rows(
    data: TrainingData, fits: Sequence[Mixture], moved: Sequence[Array | None]
) -> Array:
    """Return the errors of the held-out tasks, predicted without rows."""
    out = []
    for fold, fit, shift in zip(data.folds, fits, moved, strict=True):
        tasks = data.tasks[fold.held_out]
        episodes = Episodes(tasks.without_rows(), tasks, np.arange(len(tasks)))
        prediction = data.predict(
            data.statistics_of(episodes.support), data.prior(fit, shift), tasks
        )
        out.append(data.errors(episodes, prediction, len(tasks)))
    return np.concatenate(out)


def difference(data: TrainingData, tasks: TaskSet, model: Mixture) -> Array | None:
    """Return δ: least squares of targets minus predictions without rows, with the same weight for each task.

    One pseudo-task shrinks δ towards zero.  None for classes and counts, and if none of the tasks has rows.
    """
    if not data.response.is_gaussian or not len(tasks.y):
        return None
    X = data.scaling.dense(tasks.X)
    prediction = data.predict(data.statistics_of(tasks.without_rows()), data.prior(model), tasks)
    frequency = np.ones(len(tasks.y)) if tasks.frequency_weight is None else tasks.frequency_weight
    weight = frequency / np.repeat(np.maximum(tasks.n_observed, 1.0), tasks.sizes)
    gram = (X * weight[:, None]).T @ X
    ridge = np.trace(gram) / max(len(gram), 1) / len(tasks)
    right = X.T @ (weight * (tasks.y - prediction) / data.scaling.target)
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), right))


def _offset(data: TrainingData, fits: Sequence[Mixture]) -> float:
    """Return the constant for this loss; it is tested on each half of the held-out tasks with that of the other half."""
    loss = data.settings.loss
    if isinstance(loss, Squared):
        return 0.0
    residuals, weights, task, n_tasks = [], [], [], 0
    for fold, fit in zip(data.folds, fits, strict=True):
        episodes = data.episodes(fold)
        query = episodes.query
        residuals.append(
            query.y - data.predict(data.statistics_of(episodes.support), data.prior(fit), query)
        )
        weights.append(1.0 / np.repeat(np.maximum(query.sizes, 1), query.sizes))
        task.append(n_tasks + np.repeat(episodes.task, query.sizes))
        n_tasks += len(fold.held_out)
    y, weight, task_of_row = (
        np.concatenate(residuals),
        np.concatenate(weights),
        np.concatenate(task),
    )

    def best(half: Array) -> float:
        if not half.any():
            return 0.0
        ends = float(y[half].min()), float(y[half].max())
        found = minimize_scalar(
            lambda c: weight[half] @ loss.error(c, y[half]), bounds=ends, method="bounded"
        )
        return float(found.x)

    is_even = task_of_row % 2 == 0
    constant = np.where(is_even, best(~is_even), best(is_even))
    gains = weight * (loss.error(np.zeros(len(y)), y) - loss.error(constant, y))
    per_task = np.bincount(task_of_row, gains, n_tasks).astype(float)
    return best(is_even | ~is_even) if significant(per_task) else 0.0
