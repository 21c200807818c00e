"""Further simple baselines of the benchmark."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored.baselines import SHRINKAGES, LinearBaseline
from tailored.tasks.rows import dense
from tailored.tasks.task_set import TaskSet

Array = NDArray[np.float64]


class GlobalMedian(LinearBaseline):
    """Predict the median of all training targets for every task."""

    def _fit(self, tasks: TaskSet) -> None:
        self.median_ = float(np.median(tasks.y))

    def _weights(self, X: Array, y: Array) -> Array:
        return np.append(np.zeros(X.shape[1]), self.median_)


class TaskMedian(GlobalMedian):
    """Predict the median target of the task's own rows; without rows, the median of all training targets."""

    def _weights(self, X: Array, y: Array) -> Array:
        return np.append(np.zeros(X.shape[1]), np.median(y) if len(y) else self.median_)


class ItemUserBias(LinearBaseline):
    """Ratings of items by users, ``y = μ + item + user``; rows of X are one-hot items, tasks are users.

    The effect of an item is the sum of y − μ over its n ratings, divided by n + κ; the effect of a user is the same of
    the residuals.  Both κ are selected on held-out rows of the training tasks.

    Parameters
    ----------
    support : float, default=0.5
        Fraction of the rows of each training task to fit on while selecting.
    clip
        See `Baseline`.
    random_state : int, RandomState or None, default=0
    """

    user_shrinkage_: float

    def __init__(self, support: float = 0.5, clip: Any = None, random_state: Any = 0) -> None:
        self.support = support
        self.clip = clip
        self.random_state = random_state

    def _fit(self, tasks: TaskSet) -> None:
        X = dense(tasks.X)
        if not ((X == 0) | (X == 1)).all() or not (X.sum(axis=1) == 1).all():
            raise ValueError("X: ItemUserBias needs one-hot rows, with a single 1 for the rated item")
        support, query = tasks.support_query(self.support, random_state=self.random_state)
        best: tuple[float, float, float] = (np.inf, 0.0, 0.0)
        for shrinkage in SHRINKAGES:
            self._rate_items(support, shrinkage)
            error = self._search(support, query, {"user_shrinkage_": SHRINKAGES})
            best = min(best, (error, shrinkage, self.user_shrinkage_))
        _, self.item_shrinkage_, self.user_shrinkage_ = best
        self._rate_items(tasks, self.item_shrinkage_)

    def _rate_items(self, tasks: TaskSet, shrinkage: float) -> None:
        X = dense(tasks.X)
        self.mean_ = float(tasks.y.mean()) if len(tasks.y) else 0.0
        self.items_ = X.T @ (tasks.y - self.mean_) / np.maximum(X.sum(axis=0) + shrinkage, 1e-12)

    def _weights(self, X: Array, y: Array) -> Array:
        residuals = y - self.mean_ - X @ self.items_
        user = residuals.sum() / (len(y) + self.user_shrinkage_) if len(y) else 0.0
        return np.append(self.items_, self.mean_ + user)
