"""Regressions of classes and counts, of all tasks together and of each task alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored._utils.validation import name_some, native
from tailored.gaussian.responses import RESPONSES, Bernoulli
from tailored.tasks.task_set import TaskSet

from .base import Baseline

Array = NDArray[np.float64]


class PooledRegression(Baseline):
    """Logistic or Poisson regression on the rows of all tasks; its columns are the features and the
    side information.

    Columns are standardised, and slopes have the penalty ½‖w‖².  A pseudo-row at the mean of the
    columns keeps probabilities away from 0 and 1.  Its target is the class frequencies, or the
    mean, of the training rows.

    Parameters
    ----------
    loss : {"bernoulli", "poisson", "negative_binomial"}, default="bernoulli"
        With "bernoulli", targets are class indices 0, 1, ..., and predictions are the probability
        of each class, (n, K). Otherwise targets are counts, and predictions are their means.
    """

    def __init__(self, loss: str = "bernoulli") -> None:
        self.loss = loss

    def _fit(self, tasks: TaskSet) -> None:
        from sklearn.preprocessing import StandardScaler

        loss = RESPONSES[self.loss]()
        names = () if tasks.encoding is None else tasks.encoding.classes
        classes = np.arange(len(names)) if names else np.unique(tasks.y)
        self.classes_ = classes if isinstance(loss, Bernoulli) else None
        if self.classes_ is not None and (
            len(classes) < 2 or list(classes) != list(range(len(classes)))
        ):
            found = name_some(native(classes))
            raise ValueError(
                f"tasks: targets must be 0, 1, ... for at least two classes; got {found}"
            )
        y, weights, _ = self._targets(tasks)
        # Add half an observation of each class, or half an event, so that no frequency or mean is
        # 0.
        if self.classes_ is None:
            loss.check_targets(tasks.y)
            self.mean_ = np.array([(weights @ y + 0.5) / weights.sum()])
        else:
            counts = weights @ (y[:, None] == self.classes_) + 0.5
            self.mean_ = counts / counts.sum()
        self._fit_side(tasks)
        self.scaler_ = StandardScaler().fit(self._columns(tasks))
        # A constant column has the scale 1, which leaves rounding errors of 1e44 if the constant is
        # 1e60.
        self.scaler_.scale_ = np.maximum(self.scaler_.scale_, 1e-13 * np.abs(self.scaler_.mean_))
        self.model_ = self._regression(tasks)

    def _targets(self, tasks: TaskSet) -> tuple[Array, Array, Array]:
        """Return targets (classes or rates), weights multiplied by exposures, and exposures."""
        ones = np.ones(len(tasks.y))
        weights = ones if tasks.row_weights is None else tasks.row_weights
        exposures = ones if tasks.exposure is None or self.classes_ is not None else tasks.exposure
        return tasks.y / exposures, weights * exposures, exposures

    def _regression(self, tasks: TaskSet) -> Any:
        """Fit the regression to the rows of these tasks and the pseudo-row."""
        from sklearn.linear_model import LogisticRegression, PoissonRegressor

        y, weights, _ = self._targets(tasks)
        pseudo, shares = (
            (self.mean_, np.ones(1)) if self.classes_ is None else (self.classes_, self.mean_)
        )
        X = self.scaler_.transform(self._columns(tasks))
        X, y = np.vstack([X, np.zeros((len(pseudo), X.shape[1]))]), np.append(y, pseudo)
        weights = np.append(weights, shares)
        if self.classes_ is not None:
            return LogisticRegression(max_iter=1000).fit(X, y, weights)
        poisson = PoissonRegressor(
            alpha=1.0 / weights.sum(), solver="newton-cholesky", max_iter=1000
        )
        return poisson.fit(X, y, weights)

    def _means(self, model: Any, tasks: TaskSet) -> Array:
        """Return the predicted probabilities or means of the rows; if ``model`` is None, predict
        the training mean.
        """
        if model is None:
            found = np.tile(self.mean_, (len(tasks.y), 1))
        else:
            X = self.scaler_.transform(self._columns(tasks))
            found = model.predict(X)[:, None] if self.classes_ is None else model.predict_proba(X)
        return found if self.classes_ is not None else found[:, 0] * self._targets(tasks)[2]

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        return self._means(self.model_, query)


class RegressionPerTask(PooledRegression):
    """Logistic or Poisson regression on the support rows of each task, with a pseudo-row at the
    training mean.

    The pseudo-row shrinks predictions for a task with few rows, or with one class, towards the
    training frequencies or mean.
    """

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        parts = (
            self._means(self._regression(support[[t]]) if n else None, query[[t]])
            for t, n in enumerate(support.sizes)
        )
        return np.concatenate([self._means(None, query[:0]), *parts])
