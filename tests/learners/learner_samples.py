"""Random tasks for the tests of the learners."""

import numpy as np

from tailored import TaskSet


def random_tasks(seed, n_tasks=12, d=4, low=2, high=9, side=None):
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        n = int(rng.integers(low, high))
        X = rng.normal(size=(n, d))
        y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=n)
        entries.append((X, y) if side is None else (X, y, rng.normal(size=side)))
    return TaskSet.from_tasks(entries)
