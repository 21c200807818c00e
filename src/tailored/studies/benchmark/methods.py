"""Methods of the benchmark, each with its defaults: no argument depends on the data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...baselines import simple as baselines
from ...learners import ConditionalLearner, IndependentLearner, UnconditionalLearner
from ...tasks import TaskSet

Array = NDArray[np.float64]

#: Strong and simple rivals first; the last one is what this library recommends.
METHODS: dict[str, Callable[[], Any]] = {
    **baselines.BASELINES,
    "independent": IndependentLearner,
    "unconditional": lambda: UnconditionalLearner(step_size="search"),
    "conditional, surrogate": lambda: ConditionalLearner(step_size="search"),
    "conditional": ConditionalLearner,
}


def is_baseline(name: str) -> bool:
    """Whether the method is one that existed before this library."""
    return name in baselines.BASELINES


def predictions(method: Any, support: TaskSet, query: TaskSet) -> Array:
    """Predictions of the query rows after adapting to the support rows."""
    weights = method.adapt_many(support)
    per_row = np.repeat(weights, query.sizes, axis=0)
    d = query.n_features
    prediction = np.einsum("ij,ij->i", query.X, per_row[:, :d])
    return prediction + per_row[:, d] if weights.shape[1] == d + 1 else prediction
