"""The part of the prior mean that is linear in a task's description: ``b(s) = b + Γ v(s)``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .em import em, fit_mixed_model
from .statistics import TaskStatistics

Array = NDArray[np.float64]

#: Penalties on Γ that are tried, in tasks: how many it takes to move it half way.
SIDE_PENALTIES = (1.0, 10.0, 100.0)


def fit_side(statistics: TaskStatistics, penalty: float, *, max_iter: int = 60, tol: float = 1e-4) -> Array:
    """Γ (d, q) of the mixed model ``w ~ N(b + Γ v(s), W)`` by EM.

    The M-step regresses the posterior means of the weights on v(s), with the prior Γ ~ N(0, W ⊗ I / penalty).
    Learned with the covariance and not before it: what the description explains must not be counted as
    a difference between tasks, or later rows would be trusted more than they deserve.
    """
    v = statistics.side
    assert v is not None
    model = fit_mixed_model(statistics, max_iter=30)
    per_task = float(np.mean(v * v)) or 1.0
    regression = np.linalg.solve(v.T @ v + penalty * per_task * np.eye(v.shape[1]), v.T)
    Gamma = np.zeros((statistics.n_features, v.shape[1]))
    for _ in range(max_iter):
        rest = statistics.shifted(v @ Gamma.T)
        model = em(rest, model, max_iter=1).mixture
        deviations = model.expect(rest).components[0].mean - model.means[0] + v @ Gamma.T
        previous, Gamma = Gamma, (regression @ deviations).T
        if np.abs(Gamma - previous).max() < tol * max(np.abs(Gamma).max(), tol):
            break
    return Gamma
