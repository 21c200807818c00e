"""Tasks that share a curve, and a booster to find it."""

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from tailored import TaskSet
from tailored.priors.shared_regressor import fit_out_of_fold

NOISE, SLOPES = 0.2, 0.3


def curved(n_tasks, n_rows, seed, *, words=False, described=True):
    """y = sin(2 x₁) x₂ + s² + the task's own slopes + noise; what is common to all tasks comes along, row by row."""
    rng = np.random.default_rng(seed)
    tasks, common = [], []
    for _ in range(n_tasks):
        X, s = rng.normal(size=(n_rows, 2)), rng.normal()
        shared = 3.0 * np.sin(2.0 * X[:, 0]) * X[:, 1] + described * s**2
        y = shared + X @ (SLOPES * rng.normal(size=2)) + NOISE * rng.normal(size=n_rows)
        side = {"size": s, "kind": "big" if s > 0 else "small"} if words else [s]
        tasks.append((X, y, side) if described else (X, y))
        common.append(shared)
    return TaskSet.from_tasks(tasks), np.concatenate(common)


def booster(**settings):
    return HistGradientBoostingRegressor(early_stopping=False, random_state=0, **settings)


def residual_targets(regressor, tasks, seed):
    """Return what regressors that were not fitted to a task leave of its targets."""
    shared, folds = fit_out_of_fold([regressor], tasks, seed)
    return shared.residual_tasks(tasks, folds).y
