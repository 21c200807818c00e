"""Methods of the benchmark, each with its defaults: no argument depends on the data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...baselines import BASELINES
from ...learners import ConditionalLearner, EmpiricalBayesLearner, IndependentLearner, UnconditionalLearner
from ...tasks import TaskSet, rows

Array = NDArray[np.float64]

#: Strong and simple rivals first; the last one is what this library recommends.
METHODS: dict[str, Callable[[], Any]] = {
    **BASELINES,
    "independent": IndependentLearner,
    "unconditional": UnconditionalLearner,
    "conditional, surrogate": ConditionalLearner,
    "conditional": EmpiricalBayesLearner,
}


def is_baseline(name: str) -> bool:
    """Whether the method is one that existed before this library."""
    return name in BASELINES


def predictions(method: Any, support: TaskSet, query: TaskSet) -> Array:
    """Predictions of the query rows after adapting to the support rows."""
    weights = method.adapt_many(support)
    has_intercept = weights.shape[1] > query.n_features
    return rows.predictions(rows.Rows.of(query, has_intercept), weights)
