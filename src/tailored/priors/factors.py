"""The prior for many columns, with a low-rank plus diagonal covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..gaussian.factors import FactorRows, Factors, posterior, row_variances, scaled_rows
from ..gaussian.mixture import Want
from ..tasks.task_set import TaskSet
from .base import Array, Index, Posterior, Prior
from .side_features import SideFeatures


@dataclass(frozen=True, kw_only=True, repr=False)
class FactorPrior(Prior):
    """``τ = FFᵀ + D`` and ``b(s) = b₀ + Γ v(s)``, in units of the noise variance.

    In the variance of a prediction, the part of a coefficient outside the factors keeps its prior
    variance D, even if the task has rows with this column.
    """

    model: Factors  # F, D, b₀ and Γ in units of the noise variance
    side: SideFeatures | None = None  # v

    block_floats = 1 << 62

    @property
    def covariance_shape(self) -> tuple[int, int]:
        q = self.model.factors.shape[1]
        return q, q

    def statistics(self, tasks: TaskSet) -> FactorRows:
        return FactorRows.of(tasks, self.scaling, None if self.side is None else self.side(tasks))

    def _solve(self, statistics: FactorRows, covariances: bool) -> tuple[Array, Array]:
        want = Want(means=True, covariances=covariances)
        expected = posterior(statistics, self.model, want=want)
        return expected.means[:, 0], expected.covariances

    def variances(self, posterior: Posterior, X: Any, task: Index) -> Array:
        assert posterior.covariances is not None
        rows = scaled_rows(X, self.scaling)
        return np.maximum(row_variances(self.model, rows, task, posterior.covariances), 0.0)

    def _represent(self, tasks: TaskSet, change: Array) -> Array:
        F = change @ self.model.factors
        tau = F @ F.T + (change * self.model.diagonal) @ change.T
        return np.broadcast_to(tau, (len(tasks), *tau.shape))

    def _mean(self, tasks: TaskSet) -> Array:
        if self.side is None:
            return np.broadcast_to(self.model.mean, (len(tasks), self.n_weights))
        return self.model.mean + self.side(tasks) @ self.model.effect.T

    def mean_at_centre(self) -> Array:
        return np.array(self.model.mean)
