"""Eight small tasks in any units, and every learner with few steps."""

import warnings

import numpy as np
import pytest

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.paper import ProjectedSGD

D, TASKS, ROWS = 2, 8, 12


def make(factors=None, rows=ROWS, side=True):
    """Draw eight tasks of two columns; ``factors`` are the units of columns, targets and side
    information.
    """
    rng = np.random.default_rng(5)
    factors = np.ones(D + 2) if factors is None else np.asarray(factors)
    parts = []
    for _ in range(TASKS):
        X, s = rng.normal(size=(rows, D)) + 0.5, rng.normal(size=1)
        y = X @ rng.normal(1.0, 0.7, size=D) + s[0] + 0.3 * rng.normal(size=rows)
        parts.append((X * factors[:D], y * factors[D], s * factors[D + 1]))
    return TaskSet.from_tasks(parts if side else [part[:2] for part in parts])


def bayes(tasks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return EmpiricalBayesLearner().fit(tasks[:6], validation=tasks[6:])


PAPERS = {
    "conditional": lambda: ConditionalLearner(solver=ProjectedSGD(0.1)),
    "unconditional": lambda: UnconditionalLearner(solver=ProjectedSGD(step_sizes=[0.01, 1.0])),
    "independent": IndependentLearner,
}
LEARNERS = {
    "empirical Bayes": EmpiricalBayesLearner,
    **PAPERS,
}
EVERYONE = pytest.mark.parametrize("name", LEARNERS)
