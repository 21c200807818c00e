"""Methods of the benchmark, each with its defaults: no argument depends on the data set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...baselines import BASELINES, RIVALS, MixedModel
from ...learners import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    MetaLearner,
    UnconditionalLearner,
)
from ...tasks import TaskSet, rows

Array = NDArray[np.float64]

#: The name of our own mixed model where targets have a level of their own.
WITH_INTERCEPT = "mixed model + intercept"
#: What existed before this library.
_BEFORE: dict[str, Callable[[], Any]] = {
    **BASELINES,
    WITH_INTERCEPT: partial(MixedModel, fit_intercept=True),
    **RIVALS,
}
#: Strong and simple rivals first; the last one is what this library recommends.
METHODS: dict[str, Callable[[], Any]] = {
    **_BEFORE,
    "independent": IndependentLearner,
    "unconditional": UnconditionalLearner,
    "conditional, surrogate": ConditionalLearner,
    "conditional": EmpiricalBayesLearner,
}


def is_baseline(name: str) -> bool:
    """Whether the method is one that existed before this library."""
    return name in _BEFORE


def missing_program(name: str) -> str | None:
    """What is not installed that the method needs, in words; None where it can run."""
    missing = getattr(METHODS[name], "missing", None)
    return missing() if missing is not None else None


def predictions(method: Any, support: TaskSet, query: TaskSet) -> Array:
    """Predictions of the query rows after adapting to the support rows."""
    if isinstance(method, MetaLearner):
        return np.asarray(method.predict_tasks(query, support, coverage=None)["prediction"])
    if hasattr(method, "predict_tasks"):
        return np.asarray(method.predict_tasks(support=support, query=query))
    weights = method.adapt_many(support)
    has_intercept = weights.shape[1] > query.n_features
    return rows.predictions(rows.Rows.of(query, has_intercept), weights)
