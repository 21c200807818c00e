"""A small mixed model with side information."""

import matplotlib
import numpy as np
import pytest

from folds import short_fits
from tailored import EmpiricalBayesLearner, TaskSet

matplotlib.use("Agg")


@pytest.fixture(scope="session")
def schools():
    """A learner, and the 60 tasks that it was fitted to: two columns, and side information that
    shifts the intercept.
    """
    rng = np.random.default_rng(0)
    rows, y, labels, side = [], [], [], {}
    for t in range(60):
        n, s = int(rng.integers(8, 14)), rng.normal(size=2)
        w = np.array([1.0, -0.5, 3.0 + 1.5 * s[0]]) + np.array([0.6, 0.1, 0.5]) * rng.normal(size=3)
        X = np.column_stack([5.0 + 2.0 * rng.normal(size=n), rng.integers(0, 2, n)])
        rows.append(X)
        y.append(X @ w[:2] + w[2] + 0.5 * rng.normal(size=n))
        labels += [f"school {t}"] * n
        side[f"school {t}"] = s
    tasks = TaskSet(np.vstack(rows), np.concatenate(y), labels, side)
    with short_fits():
        return EmpiricalBayesLearner().fit(tasks), tasks


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")
