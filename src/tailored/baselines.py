"""What a practitioner would try first, behind the same ``fit`` / ``adapt`` interface.

A comparison without these says nothing: every table this package prints has them in it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from ._threads import single_threaded_blas
from .learners._base import predict_rows, task_means
from .losses import get_loss
from .objectives import Rows
from .regressor import with_constant
from .tasks import TaskSet

Array = NDArray[np.float64]


#: Candidates for the ridge parameter.
RIDGE_ALPHAS = tuple(float(alpha) for alpha in np.logspace(-4, 4, 17))


class LinearTask(RegressorMixin, BaseEstimator):
    """A linear model of one task, as the baselines return it: ``X @ coef_ + intercept_``."""

    def __init__(self, coef: Array, intercept: float) -> None:
        self.coef = coef
        self.intercept = intercept
        self.coef_ = coef
        self.intercept_ = intercept
        self.n_features_in_ = len(coef)

    def fit(self, X: Any, y: Any) -> Self:
        """Nothing to do: the weights are given."""
        return self

    def predict(self, X: Any) -> Array:
        return np.asarray(X @ self.coef_ + self.intercept_)


class Baseline(BaseEstimator):
    """Fit on tasks, adapt to one or many new ones; weights have the intercept in the last column."""

    def fit(self, tasks: TaskSet) -> Self:
        """Learn whatever is shared across tasks."""
        self.n_features_in_ = tasks.n_features
        return self

    @abstractmethod
    def _weights(self, X: Array, y: Array) -> Array:
        """(d + 1,) weights of one task, the intercept last."""

    def adapt_many(self, tasks: TaskSet) -> Array:
        """Weights of every task, (n_tasks, d + 1) with the intercept last."""
        with single_threaded_blas():
            return np.array([self._weights(_dense(task.X), task.y) for task in tasks])

    def adapt(self, X: Any, y: Any) -> LinearTask:
        """Fit one new task."""
        weights = self._weights(_dense(X), np.asarray(y, dtype=float))
        return LinearTask(weights[:-1], float(weights[-1]))

    def task_errors(self, tasks: TaskSet, query: TaskSet, *, loss: Any = "absolute") -> Array:
        """Error of each task on ``query`` rows after adapting on the rows of ``tasks``."""
        rows = Rows(with_constant(_dense(query.X)), query.y, query.offsets)
        prediction = predict_rows(rows, self.adapt_many(tasks))
        return task_means(get_loss(loss).value(prediction, query.y), query.offsets)


class TaskMean(Baseline):
    """Predict the mean target of the task's own rows (of all training rows for a task without rows)."""

    def fit(self, tasks: TaskSet) -> Self:
        self.mean_ = float(tasks.y.mean())
        return super().fit(tasks)

    def _weights(self, X: Array, y: Array) -> Array:
        return np.append(np.zeros(X.shape[1]), y.mean() if len(y) else self.mean_)


class RidgePerTask(Baseline):
    """Ridge regression on each task, ``‖Xw − y‖² + λ‖w‖²``, λ shared by all tasks.

    λ, and whether the task is centred first (an unpenalised intercept), are chosen by the mean absolute
    error on held-out rows of the training tasks.

    Parameters
    ----------
    alphas : sequence of float
        Candidates for λ.
    support : float, default=0.5
        Part of the rows of each training task to fit on while choosing.
    random_state : int, RandomState or None, default=0
    """

    def __init__(self, alphas: Any = RIDGE_ALPHAS, support: float = 0.5, random_state: Any = 0) -> None:
        self.alphas = alphas
        self.support = support
        self.random_state = random_state

    def fit(self, tasks: TaskSet) -> Self:
        support, query = tasks.support_query(self.support, random_state=self.random_state)
        best = (np.inf, 1.0, False)
        for centred in (False, True):
            for alpha in self.alphas:
                self.alpha_, self.centred_ = float(alpha), centred
                error = float(np.nanmean(self.task_errors(support, query)))
                best = min(best, (error, float(alpha), centred))
        _, self.alpha_, self.centred_ = best
        return super().fit(tasks)

    def _weights(self, X: Array, y: Array) -> Array:
        n, d = X.shape
        if n == 0:
            return np.zeros(d + 1)
        shift_X = X.mean(axis=0) if self.centred_ else np.zeros(d)
        shift_y = float(y.mean()) if self.centred_ else 0.0
        X, y = X - shift_X, y - shift_y
        if n < d:
            w = X.T @ np.linalg.solve(X @ X.T + self.alpha_ * np.eye(n), y)
        else:
            w = np.linalg.solve(X.T @ X + self.alpha_ * np.eye(d), X.T @ y)
        return np.append(w, shift_y - shift_X @ w)


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)


#: Names of the baselines for the command line and the tables.
BASELINES: dict[str, type[Baseline]] = {"task mean": TaskMean, "ridge per task": RidgePerTask}
