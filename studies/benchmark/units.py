"""The same data in other units: fit and predict there, and answer in the units of the data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tailored.tasks import TaskSet
from tailored.tasks.rows import dense

Array = NDArray[np.float64]


class Change(NamedTuple):
    """Columns become ``(x - shift) / scale``, targets ``(y - level) / unit``."""

    shift: Array
    scale: Array
    level: float = 0.0
    unit: float = 1.0

    def tasks(self, tasks: TaskSet) -> TaskSet:
        X = (dense(tasks.X) - self.shift) / self.scale
        y = (tasks.y - self.level) / self.unit
        return tasks.replace(X=X, y=y, encoding=None)


def standardised(train: TaskSet) -> Change:
    """Means of zero and deviations of one, over the training rows."""
    X = dense(train.X)
    deviation = X.std(axis=0)
    return Change(
        X.mean(axis=0),
        np.where(deviation > 0, deviation, 1.0),
        float(train.y.mean()),
        float(train.y.std()) or 1.0,
    )


def shifted(train: TaskSet) -> Change:
    """Targets plus 100."""
    d = train.n_features
    return Change(np.zeros(d), np.ones(d), level=-100.0)


def mixed(train: TaskSet) -> Change:
    """Columns in units from 1e-3 to 1e3, each with a level of five of them."""
    scale = np.logspace(-3, 3, train.n_features)
    return Change(-5.0 * scale, scale)


class Elsewhere:
    """A learner that only ever sees the changed data."""

    def __init__(self, learner: Any, change: Callable[[TaskSet], Change]) -> None:
        self.learner = learner
        self.change = change

    def fit(self, train: TaskSet) -> Self:
        self.change_ = self.change(train)
        self.learner.fit(self.change_.tasks(train))
        return self

    def predict_rows(self, support: TaskSet, query: TaskSet) -> Array:
        """Predictions in the units of the data set."""
        given, asked = self.change_.tasks(support), self.change_.tasks(query)
        found = self.learner.predict_tasks(asked, given, coverage=None)["prediction"]
        return np.asarray(found) * self.change_.unit + self.change_.level
