"""The practical preset: the paper's splits and curves with the methods that this library recommends.

Nothing is chosen on the validation tasks: the learners hold out some of their training tasks themselves, so
a cell is a seed and a method, without a step size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored.baselines import MixedModel, RidgePerTask
from tailored.learners import EmpiricalBayesLearner
from tailored.tasks import Rows, TaskSet
from tailored.tasks.rows import mean_error, predictions, with_constant

from .config import ExperimentConfig
from .protocol import Part, Prepared

Array = NDArray[np.float64]

#: The practical form of each method: every task alone, one prior for all tasks, one tailored to each.
PRACTICAL: dict[str, Callable[[], Any]] = {
    "independent": RidgePerTask,
    "unconditional": partial(MixedModel, fit_intercept=False),
    "conditional": EmpiricalBayesLearner,
}


def refits(n_tasks: int) -> list[int]:
    """Numbers of training tasks after which a method is fitted anew: 1, 2, 5, 10, 20, 50, .. and all."""
    marks = (scale * step for scale in (10**power for power in range(12)) for step in (1, 2, 5))
    return [*(mark for mark in marks if mark < n_tasks), n_tasks]


def run_practical(config: ExperimentConfig, prepared: Prepared, method: str) -> tuple[Array, float]:
    """Errors on the test tasks after 1 .. T training tasks, and on the validation tasks after all.

    Between two fits the curve keeps the error of the earlier one.
    """
    train = _tasks(prepared.train.support)
    test = np.empty(len(train))
    error, fitted = np.nan, None
    marks = set(refits(len(train)))
    for t in range(1, len(train) + 1):
        if t in marks:
            fitted = PRACTICAL[method]().fit(train[:t])
            error = _error(fitted, prepared.test)
        test[t - 1] = error
    return test, _error(fitted, prepared.validation)


def _tasks(rows: Rows) -> TaskSet:
    return TaskSet.from_arrays(rows.X, rows.y, rows.offsets, np.arange(len(rows.offsets) - 1))


def _error(fitted: Any, part: Part) -> float:
    """Mean over tasks of the mean absolute error on their query rows, after adapting to their support rows."""
    weights, query = fitted.adapt_many(_tasks(part.support)), part.query
    if weights.shape[1] > query.X.shape[1]:  # baselines with an intercept
        query = query._replace(X=with_constant(query.X))
    return mean_error(np.abs(predictions(query, weights) - query.y), query.offsets)
