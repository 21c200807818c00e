"""Trees on pooled rows: one curved function for all tasks, told what a task's own rows have been like.

Predictions are not linear in X, so a task has no weights; what stands for them is `RowBaseline.predict_rows`.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from .._utils.threads import single_threaded_blas, single_threaded_openmp
from .._utils.validation import check_features, check_rng
from ..feature_maps import SideVector
from ..tasks import TaskSet
from ..tasks.rows import clipped, dense, task_means
from .base import Baseline, one_task

Array = NDArray[np.float64]


class TaskPredictor(RegressorMixin, BaseEstimator):
    """A task's model where there are no weights: the shared model, and the rows that the task gave."""

    def __init__(self, baseline: RowBaseline, support: TaskSet) -> None:
        self.baseline = baseline
        self.support = support
        self.n_features_in_ = support.n_features

    def fit(self, X: Any, y: Any) -> Self:
        """Nothing to do: the rows are given."""
        return self

    def predict(self, X: Any) -> Array:
        X = dense(check_features(X))
        described = self.support.side_info
        own = (X, np.zeros(len(X))) if described is None else (X, np.zeros(len(X)), described[0])
        return self.baseline.predict_rows(self.support, TaskSet.from_tasks([own]))


class RowBaseline(Baseline):
    """A baseline that predicts rows and has no weights: `predict_rows` in place of `adapt_many`."""

    @abstractmethod
    def _fit_rows(self, tasks: TaskSet) -> None:
        """Set the fitted attributes."""

    @abstractmethod
    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        """Predictions of the query rows, before they are clipped."""

    def _fit(self, tasks: TaskSet) -> None:
        self._encoder = None if tasks.side_info is None else SideVector().fit(tasks)
        # Trees grow in threads of OpenMP, which `single_threaded_blas` leaves alone.
        with single_threaded_openmp():
            self._fit_rows(tasks)

    def predict_rows(self, tasks: TaskSet, query: TaskSet) -> Array:
        """Prediction of every query row given its task's rows in ``tasks``; both have the same tasks in order."""
        self._check_new(tasks)
        self._check_pair(tasks, query)
        with single_threaded_blas(), single_threaded_openmp():
            return clipped(self._predict(tasks, query), self.clip_)

    def adapt(self, X: Any, y: Any, side_info: Any = None) -> Any:
        """The model of one new task, with its description where the training tasks had one."""
        task = one_task(X, y)
        self._check_new(task, "X")
        own = dense(task.X), task.y
        given = own if side_info is None else (*own, np.asarray(side_info).ravel())
        return TaskPredictor(self, TaskSet.from_tasks([given]))

    def adapt_many(self, tasks: TaskSet) -> Array:
        raise TypeError(f"{type(self).__name__} is not linear and has no weights; call predict_rows")

    def _weights(self, X: Array, y: Array) -> Array:
        raise TypeError(f"{type(self).__name__} is not linear and has no weights; call predict_rows")

    def _columns(self, tasks: TaskSet) -> Array:
        """Columns of each row, then its task's description."""
        X = dense(tasks.X)
        if self._encoder is None:
            return X
        return np.hstack([X, np.repeat(self._encoder.transform(tasks), tasks.sizes, axis=0)])


class PooledBoosting(RowBaseline):
    """Gradient boosting on the rows of all tasks; columns: X, the description, and two of the task's other rows.

    The two are the mean target of the task's support rows and their number (no mean where there is none).  While
    training, each row gets them from a random set of the *other* rows of its task, of a random size, several
    times over: a row's own target is never among its columns.  The number of trees is chosen on held-out tasks.

    Parameters
    ----------
    learning_rate, max_iter : float, int
        Of `sklearn.ensemble.HistGradientBoostingRegressor`; ``max_iter`` is the most that is tried.
    n_draws : int, default=5
        Random sets of other rows for each row.
    held_out : float, default=0.2
        Part of the tasks on which the number of trees is chosen.
    clip
        See `Baseline`.
    random_state : int, RandomState or None, default=0

    Attributes
    ----------
    n_iter_ : int
        Trees.
    model_ : HistGradientBoostingRegressor
    """

    def __init__(
        self,
        learning_rate: float = 0.05,
        max_iter: int = 300,
        n_draws: int = 5,
        held_out: float = 0.2,
        clip: Any = None,
        random_state: Any = 0,
    ) -> None:
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_draws = n_draws
        self.held_out = held_out
        self.clip = clip
        self.random_state = random_state

    def _fit_rows(self, tasks: TaskSet) -> None:
        rng = check_rng(self.random_state)
        n_held_out = int(np.ceil(self.held_out * len(tasks))) if len(tasks) > 1 else 0
        order = rng.permutation(len(tasks))
        self.n_iter_ = int(self.max_iter)
        held_out, others = tasks[order[:n_held_out]], tasks[order[n_held_out:]]
        if len(held_out.y) and len(others.y):
            self.n_iter_ = self._n_trees(others, held_out, rng)
        self.model_ = self._boost(tasks, self.n_iter_, rng)

    def _n_trees(self, tasks: TaskSet, held_out: TaskSet, rng: Any) -> int:
        model = self._boost(tasks, int(self.max_iter), rng)
        columns, targets = self._training_rows(held_out, rng)
        errors = [np.mean((found - targets) ** 2) for found in model.staged_predict(columns)]
        return int(np.argmin(errors)) + 1

    def _boost(self, tasks: TaskSet, n_trees: int, rng: Any) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        columns, targets = self._training_rows(tasks, rng)
        # A column without any number cannot be binned.
        columns[:, np.isnan(columns).all(axis=0)] = 0.0
        # Its own early stopping holds out rows, and the same row stands here several times.
        model = HistGradientBoostingRegressor(
            learning_rate=self.learning_rate, max_iter=n_trees, early_stopping=False, random_state=0
        )
        return model.fit(columns, targets)

    def _training_rows(self, tasks: TaskSet, rng: Any) -> tuple[Array, Array]:
        """Every row ``n_draws`` times, each with the mean and number of some other rows of its task."""
        columns = self._columns(tasks)
        drawn = [np.column_stack([columns, *other_rows(tasks, rng)]) for _ in range(self.n_draws)]
        return np.concatenate(drawn), np.tile(tasks.y, self.n_draws)

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        if not len(query.y):
            return np.zeros(0)
        means, numbers = task_means(support.y, support.offsets), support.sizes.astype(float)
        told = [np.repeat(means, query.sizes), np.repeat(numbers, query.sizes)]
        return np.asarray(self.model_.predict(np.column_stack([self._columns(query), *told])))


def other_rows(tasks: TaskSet, rng: Any) -> tuple[Array, Array]:
    """For each row, mean target and number of random other rows of its task; NaN is the mean of none.

    The rows of a task stand in a random order on a circle and each looks at those after it, never as far as
    itself.  How many is drawn log-uniformly, since few rows are what a new task brings.
    """
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    n = tasks.sizes[task]
    number = np.minimum(np.exp(rng.random(len(task)) * np.log(n + 1.0)).astype(np.int64) - 1, n - 1)
    order = np.lexsort((rng.random(len(task)), task))
    place = np.empty(len(task), dtype=np.int64)
    place[order] = np.arange(len(task)) - tasks.offsets[task]
    # Sums over a circle are differences of running sums over two rounds.
    y = tasks.y[order]
    twice = np.concatenate([np.append(y[a:b], y[a:b]) for a, b in pairwise(tasks.offsets)])
    running = np.concatenate([[0.0], np.cumsum(twice)])
    start = 2 * tasks.offsets[task] + place + 1
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (running[start + number] - running[start]) / number
    return np.where(number > 0, mean, np.nan), number.astype(float)
