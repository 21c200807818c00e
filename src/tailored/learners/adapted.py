"""Models of many tasks, adapted by a meta-learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import check_fraction, native
from ..priors.base import Posterior, Predicted, Prior, adapt_tasks, needs_covariances, predict
from ..tasks.encoding import Encoding
from ..tasks.reading import positions_of
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .reading import check_exposure
from .task_regressor import TaskRegressor, check_calibration


class AdaptedTasks:
    """Models of many tasks; returned by `MetaLearner.adapt_many`.

    Attributes
    ----------
    labels : array (T,)
    coef_ : array (T, d)
    intercept_ : array (T,)
    weights_ : array (T, d), or (T, d + 1) with an intercept
        Coefficients with the intercept last; `numpy.asarray` returns the same array.
    """

    def __init__(
        self,
        prior: Prior,
        labels: Any,
        weights: Any,
        tasks: TaskSet | None = None,
        feature_names: Any = None,
        encoding: Encoding | None = None,
    ) -> None:
        self.labels, self.weights_ = labels, weights
        self._prior, self._tasks = prior, tasks
        self._feature_names, self._encoding = feature_names, encoding
        self._posterior: Posterior | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"AdaptedTasks({len(self)} tasks)"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.weights_, dtype=dtype)

    @property
    def coef_(self) -> Any:
        return self.weights_[:, :-1] if self._prior.fit_intercept else self.weights_

    @property
    def intercept_(self) -> Any:
        return self.weights_[:, -1] if self._prior.fit_intercept else 0.0 * self.weights_[:, 0]

    def predict(self, query: TaskSet) -> Array:
        """Predict each row of ``query`` with the model of the task that has the same label; its targets are ignored."""
        return self._predicted(query, None).prediction

    def predict_interval(self, query: TaskSet, coverage: float = 0.9) -> Array:
        """Predict intervals (n, 2) for rows of these tasks; see `TaskRegressor.predict_interval`."""
        check_fraction("coverage", coverage)
        check_calibration(self._prior, "predict_interval")
        found = self._predicted(query, coverage)
        return np.stack([found.lower, found.upper], axis=1)

    def model(self, label: Any) -> TaskRegressor:
        """Return the model of the task with this label."""
        tasks = self._support()
        at = int(tasks.index_of([label])[0])
        return TaskRegressor.adapted(self._prior, tasks[at : at + 1], self._feature_names, self._encoding)

    def _predicted(self, query: TaskSet, coverage: float | None) -> Predicted:
        tasks = self._support()
        if not isinstance(query, TaskSet):
            kind = type(query).__name__
            raise TypeError(f"query: expected a TaskSet, got {kind}; predict_tasks takes frames")
        if query.n_features != tasks.n_features:
            raise ValueError(f"query: expected {tasks.n_features} columns, got {query.n_features}")
        self._prior.scaling.check(query.X, names=self._feature_names)
        self._prior.warn_far_rows(query.X, self._feature_names)
        positions = positions_of(query.labels, self.labels)
        if (positions < 0).any():
            unknown = native(query.labels)[int(np.argmax(positions < 0))]
            raise ValueError(f"query: task {unknown!r} is not one of the adapted tasks")
        covariances = needs_covariances(self._prior, coverage)
        if self._posterior is None or (covariances and not self._posterior.has_covariances):
            self._posterior = adapt_tasks(self._prior, tasks, covariances=covariances)
        exposure = check_exposure(self._prior, query.exposure, len(query.y))
        rows = query.X, np.repeat(positions, query.sizes)
        return predict(self._prior, self._posterior, *rows, coverage, exposure=exposure)

    def _support(self) -> TaskSet:
        if self._tasks is None:
            raise TypeError("query: tasks on a device have coef_ and intercept_ only; adapt to a TaskSet")
        return self._tasks
