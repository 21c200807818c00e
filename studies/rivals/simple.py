"""Further simple baselines of the benchmark."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from tailored.tasks.rows import dense
from tailored.tasks.task_set import TaskSet

from .base import SHRINKAGES, Baseline, LinearBaseline, MixedModel

Array = NDArray[np.float64]

#: `SplineMixedModel`: number of knots of the cubic splines, and the fewest distinct values of a
#: column that gets one.
N_KNOTS, FEWEST_VALUES = 5, 6
#: `MixedModelPerCategory` accepts at most this many categories.
MOST_CATEGORIES = 20


class PerTask(LinearBaseline):
    """A baseline whose coefficients are computed from the rows of each task alone."""

    def _weights(self, X: Array, y: Array) -> Array:
        """Return the coefficients of one task, (d + 1,), the intercept last."""
        raise NotImplementedError

    def _adapt(self, tasks: TaskSet) -> Array:
        return np.array([self._weights(dense(task.X), task.y) for task in tasks])


class GlobalMedian(PerTask):
    """Predict the median of all training targets for every task."""

    def _fit(self, tasks: TaskSet) -> None:
        self.median_ = float(np.median(tasks.y))

    def _weights(self, X: Array, y: Array) -> Array:
        return np.append(np.zeros(X.shape[1]), self.median_)


class TaskMedian(GlobalMedian):
    """Predict the median target of the task's own rows; without rows, the median of all training
    targets.
    """

    def _weights(self, X: Array, y: Array) -> Array:
        return np.append(np.zeros(X.shape[1]), np.median(y) if len(y) else self.median_)


class ItemUserBias(PerTask):
    """Ratings of items by users, ``y = μ + item + user``; rows of X are one-hot items, tasks are
    users.

    The effect of an item is the sum of y − μ over its n ratings, divided by n + κ; the effect of a
    user is the same of the residuals.  Both κ are selected on held-out rows of the training tasks.
    """

    def _fit(self, tasks: TaskSet) -> None:
        X = dense(tasks.X)
        if not ((X == 0) | (X == 1)).all() or not (X.sum(axis=1) == 1).all():
            raise ValueError(
                "X: ItemUserBias needs one-hot rows, with a single 1 for the rated item"
            )
        support, query = tasks.support_query(0.5, random_state=0)
        errors = {}
        for item, self.user_shrinkage_ in product(SHRINKAGES, SHRINKAGES):
            self._share(support, item)
            errors[item, self.user_shrinkage_] = self._error(self._adapt(support), query)
        item, self.user_shrinkage_ = min(errors, key=lambda pair: errors[pair])
        self._share(tasks, item)

    def _share(self, tasks: TaskSet, shrinkage: float) -> None:
        X = dense(tasks.X)
        self.mean_ = float(tasks.y.mean()) if len(tasks.y) else 0.0
        self.items_ = X.T @ (tasks.y - self.mean_) / np.maximum(X.sum(axis=0) + shrinkage, 1e-12)

    def _weights(self, X: Array, y: Array) -> Array:
        residuals = y - self.mean_ - X @ self.items_
        user = residuals.sum() / (len(y) + self.user_shrinkage_) if len(y) else 0.0
        return np.append(self.items_, self.mean_ + user)


class SplineMixedModel(Baseline):
    """`MixedModel` whose fixed effects are cubic splines of the side information, as in ``lmer(y ~
    x * bs(s) + (x | g))``.

    Columns of the side information with few distinct values enter linearly.
    """

    def _fit(self, tasks: TaskSet) -> None:
        from sklearn.preprocessing import SplineTransformer

        self._fit_side(tasks)
        side = self._side(tasks)
        self.splines_ = [
            SplineTransformer(n_knots=N_KNOTS, knots="quantile", include_bias=False).fit(
                column[:, None]
            )
            if len(np.unique(column)) >= FEWEST_VALUES
            else None
            for column in side.T
        ]
        self.model_ = MixedModel().fit(self._expanded(tasks))

    def _expanded(self, tasks: TaskSet) -> TaskSet:
        """Return the tasks with the splines as side information."""
        pairs = zip(self._side(tasks).T, self.splines_, strict=True)
        columns = [c[:, None] if s is None else s.transform(c[:, None]) for c, s in pairs]
        side = np.hstack(columns) if columns else None
        return tasks.replace(side_info=side, side_names=None, encoding=None)

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        return self.model_.predict_rows(self._expanded(support), query)


class MixedModelPerCategory(Baseline):
    """One `MixedModel` without an intercept for each distinct value of the side information, so W
    depends on it too.
    """

    def _fit(self, tasks: TaskSet) -> None:
        self._fit_side(tasks)
        self.values_, category = np.unique(self._side(tasks), axis=0, return_inverse=True)
        if len(self.values_) > MOST_CATEGORIES:
            raise ValueError(
                f"side_info: expected at most {MOST_CATEGORIES} categories, got {len(self.values_)}"
            )
        self.models_ = [
            self._model().fit(tasks[np.flatnonzero(category == k)])
            for k in range(len(self.values_))
        ]
        self.pooled_ = self._model().fit(tasks)

    @staticmethod
    def _model() -> MixedModel:
        return MixedModel(fit_intercept=False)

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        side, task = self._side(support), np.repeat(np.arange(len(query)), query.sizes)
        predicted = self.pooled_.predict_rows(support, query)  # for values that `fit` has not seen
        for value, model in zip(self.values_, self.models_, strict=True):
            same = (side == value).all(axis=1)
            rows = same[task]
            if rows.any():
                some = np.flatnonzero(same)
                predicted[rows] = model.predict_rows(support[some], query[some])
        return predicted
