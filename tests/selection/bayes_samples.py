"""Tasks whose noise is skewed, for the tests of the recommended learner."""

import numpy as np

from tailored import TaskSet
from tailored._utils.progress import Stages
from tailored.selection.loop import search
from tailored.selection.steps import STEPS


def skewed_tasks(seed, n_tasks=60, d=4, n_rows=12, side=False, scale=0.5):
    """Weights around a mean, and noise whose median is not its mean."""
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        X = rng.normal(size=(n_rows, d))
        s = rng.normal(size=2)
        w = np.ones(d) + rng.normal(size=d) * np.linspace(1.0, 0.1, d)
        if side:
            w[:2] += 3.0 * s
        y = X @ w + scale * (rng.exponential(size=n_rows) - 1.0)
        entries.append((X, y, s) if side else (X, y))
    return TaskSet.from_tasks(entries)


def selected(data, steps=STEPS):
    """Return what some steps of the selection accept."""
    return search(data, steps, Stages(""))[0]
