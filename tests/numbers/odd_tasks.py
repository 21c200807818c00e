"""Eight small tasks in any units, and every learner, as cheap as it can be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.baselines import BASELINES, PooledBoosting
from tailored.solvers import ProjectedSGD

D, TASKS, ROWS = 2, 8, 12


def make(factors: Any = None, rows: int = ROWS, side: bool = True) -> TaskSet:
    """Eight tasks of two columns; ``factors`` are the units of the columns, the target and the description."""
    rng = np.random.default_rng(5)
    factors = np.ones(D + 2) if factors is None else np.asarray(factors)
    parts = []
    for _ in range(TASKS):
        X, s = rng.normal(size=(rows, D)) + 0.5, rng.normal(size=1)
        y = X @ rng.normal(1.0, 0.7, size=D) + s[0] + 0.3 * rng.normal(size=rows)
        parts.append((X * factors[:D], y * factors[D], s * factors[D + 1]))
    return TaskSet.from_tasks(parts if side else [part[:2] for part in parts])


def bayes(tasks: TaskSet) -> EmpiricalBayesLearner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return EmpiricalBayesLearner().fit(tasks[:6], validation=tasks[6:])


PAPERS: dict[str, Callable[[], Any]] = {
    "conditional": lambda: ConditionalLearner(solver=ProjectedSGD(0.1)),
    "unconditional": lambda: UnconditionalLearner(solver=ProjectedSGD(step_sizes=[0.01, 1.0])),
    "independent": IndependentLearner,
}
LEARNERS: dict[str, Callable[[], Any]] = {
    "empirical Bayes": EmpiricalBayesLearner,
    **PAPERS,
    **{**BASELINES, "pooled boosting": lambda: PooledBoosting(max_iter=3)},
}
EVERYONE = pytest.mark.parametrize("name", LEARNERS)
