"""What all baselines share: reading tasks, adapting to one or many, and their errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted

from .._utils.threads import single_threaded_blas
from .._utils.validation import check_clip, check_features, check_target, numbers_of
from ..losses import get_loss
from ..tasks import Rows, TaskSet
from ..tasks.pieces import in_label_order
from ..tasks.rows import clipped, dense, predictions, task_means
from ..tasks.units import USERS_UNITS, check_reach, check_sizes

Array = NDArray[np.float64]


class LinearTask(RegressorMixin, BaseEstimator):
    """A linear model of one task, as the baselines return it: ``X @ coef_ + intercept_``, clipped."""

    def __init__(self, coef: Array, intercept: float, clip: tuple[float, float] | None = None) -> None:
        self.coef = coef
        self.intercept = intercept
        self.clip = clip
        self.coef_ = coef
        self.intercept_ = intercept
        self.n_features_in_ = len(coef)

    def fit(self, X: Any, y: Any) -> Self:
        """Nothing to do: the weights are given."""
        return self

    def predict(self, X: Any) -> Array:
        with numbers_of("X"):
            X = check_array(X, accept_sparse="csr", dtype=np.float64, input_name="X")
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but LinearTask is expecting {self.n_features_in_}"
            )
        check_reach(X, self.coef_)
        return clipped(np.asarray(X @ self.coef_ + self.intercept_), self.clip)


class Baseline(BaseEstimator):
    """Fit on tasks, adapt to one or many new ones; weights have the intercept in the last column.

    Parameters
    ----------
    clip : None, "train" or pair (low, high), default=None
        Clip predictions to this range, or to that of the training targets.
    """

    clip: Any = None
    clip_: tuple[float, float] | None

    def __init__(self, clip: Any = None) -> None:
        self.clip = clip

    #: What numbers it takes.
    _sizes = USERS_UNITS

    def fit(self, tasks: TaskSet) -> Self:
        """Learn whatever is shared across tasks; a call that fails leaves the baseline as it was."""
        check_tasks(tasks, "tasks")
        if not len(tasks.y):
            raise ValueError("tasks: no task has a row; there is nothing to learn from")
        check_sizes(tasks, self._sizes)
        before = dict(vars(self))
        try:
            self.n_features_in_ = tasks.n_features
            self.clip_ = check_clip(self.clip, tasks.y)
            with single_threaded_blas():
                # Draws and sums are by position, and the order of tasks must not matter.
                self._fit(in_label_order(tasks))
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _check_new(self, tasks: TaskSet, name: str = "tasks") -> None:
        """Refuse tasks that are not like those of `fit`."""
        check_is_fitted(self, "n_features_in_")
        check_tasks(tasks, name)
        if tasks.n_features != self.n_features_in_:
            raise ValueError(
                f"{name}: X has {tasks.n_features} features, but {type(self).__name__} was fitted with "
                f"{self.n_features_in_}"
            )
        check_sizes(tasks, self._sizes, new=True)

    def _fit(self, tasks: TaskSet) -> None:
        """Set the fitted attributes; most baselines have some."""

    @abstractmethod
    def _weights(self, X: Array, y: Array) -> Array:
        """(d + 1,) weights of one task, the intercept last."""

    def adapt_many(self, tasks: TaskSet) -> Array:
        """Weights of every task, (n_tasks, d + 1) with the intercept last."""
        self._check_new(tasks)
        with single_threaded_blas():
            return np.array([self._weights(dense(task.X), task.y) for task in tasks])

    def adapt(self, X: Any, y: Any) -> LinearTask:
        """Fit one new task."""
        task = one_task(X, y)
        self._check_new(task, "X")
        weights = self._weights(dense(task.X), task.y)
        return LinearTask(weights[:-1], float(weights[-1]), self.clip_)

    def task_errors(self, tasks: TaskSet, query: TaskSet, *, loss: Any = "absolute") -> Array:
        """Error of each task on ``query`` rows after adapting on the rows of ``tasks``."""
        return task_means(get_loss(loss).value(self.predict_rows(tasks, query), query.y), query.offsets)

    def predict_rows(self, tasks: TaskSet, query: TaskSet) -> Array:
        """Predictions of ``query`` rows after adapting on the rows of ``tasks``, the same tasks in the same order."""
        self._check_pair(tasks, query)
        return clipped(predictions(Rows.of(query, True), self.adapt_many(tasks)), self.clip_)

    def _check_pair(self, tasks: TaskSet, query: TaskSet) -> None:
        self._check_new(query, "query")
        if len(query) != len(tasks):
            raise ValueError(f"query: expected the same {len(tasks)} tasks, got {len(query)}")

    def _search(self, support: TaskSet, query: TaskSet, grid: dict[str, Iterable[Any]]) -> float:
        """Set the attributes named in ``grid`` to the values with the least error on the query rows."""
        best: tuple[float, tuple[Any, ...]] = (np.inf, ())
        for values in product(*grid.values()):
            self._set(grid, values)
            # where no row is asked about all are as good
            error = float(np.nanmean(self.task_errors(support, query))) if len(query.y) else np.inf
            if error < best[0] or not best[1]:
                best = error, values
        self._set(grid, best[1])
        return best[0]

    def _set(self, names: Iterable[str], values: Iterable[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)


def check_tasks(tasks: Any, name: str) -> None:
    if not isinstance(tasks, TaskSet):
        raise TypeError(f"{name}: expected a TaskSet, got {type(tasks).__name__}")


def one_task(X: Any, y: Any) -> TaskSet:
    """One task from arrays, which may have no rows."""
    X = check_features(X, min_rows=0)
    y = check_target(y, X.shape[0])
    return TaskSet(X, y) if len(y) else TaskSet.from_tasks([(X, y)])
