"""The prior of the paper: a conditioning function τ(s) (Eq. 18) and a within-task algorithm (Eq. 2
or 4).

A task with side information s is solved with ``θ = τ(s)``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..losses import Loss
from ..priors.base import Array, Prior
from ..tasks.features import FeatureMap
from ..tasks.rows import Rows, dense
from ..tasks.task_set import TaskSet
from .feature_maps import features_of
from .feature_maps import solve as solve_systems
from .kernels import WithinSolution
from .representation import Conditioning
from .within_task import WithinTask


@dataclass(frozen=True, kw_only=True, repr=False)
class RepresentationPrior(Prior):
    """``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` for features φ = Φ(s), and the mean 0 for all tasks."""

    conditioning: Conditioning  # τ as a function of φ
    feature_map: FeatureMap | None = None  # Φ; None if τ does not depend on the task
    algorithm: WithinTask = field(default_factory=WithinTask)

    @property
    def loss(self) -> Loss:
        return self.algorithm.loss

    @property
    def reads_side_info(self) -> bool:
        return self.feature_map is not None and self.feature_map.needs_side_info

    def size_factors(self, sizes: NDArray[np.int64]) -> Array:
        return np.ones(len(sizes))

    def features(self, tasks: TaskSet) -> Array:
        """Return φ of tasks, (T, k)."""
        return features_of(self.feature_map, tasks, self.conditioning.n_side)

    def _represent(self, tasks: TaskSet, change: Array) -> Array:
        return np.asarray(change @ self.conditioning.evaluate(self.features(tasks)) @ change.T)

    def _mean(self, tasks: TaskSet) -> Array:
        return np.zeros((len(tasks), self.n_weights))

    def mean_at_centre(self) -> Array | None:
        return np.zeros(self.n_weights)

    def solve(
        self, rows: Rows, phis: Array, labels: Sequence[Any] | NDArray[Any] | None = None
    ) -> WithinSolution:
        """Solve tasks with these rows and features φ (T, k)."""
        rows = rows._replace(X=dense(rows.X))
        return self.algorithm.solve(rows, self.conditioning.evaluate(phis), labels=labels)

    def _solve(self, statistics: TaskSet, covariances: bool) -> tuple[Array, Array]:
        rows, phis = Rows.of(statistics, self.fit_intercept), self.features(statistics)
        weights = self.solve(rows, phis, statistics.labels).coef
        found = np.zeros((0, 0, 0))
        if covariances:  # (I + θXᵀX/n)⁻¹ θ/n; θ without rows
            found = np.array(self.conditioning.evaluate(phis))
            for t in map(int, np.flatnonzero(rows.sizes)):
                X = dense(rows.tasks(t, t + 1).X)
                scaled = found[t] / len(X)
                found[t] = solve_systems(np.eye(len(scaled)) + scaled @ X.T @ X, scaled)
        return weights, found

    def certificate(self, support: TaskSet) -> tuple[float, int]:
        with warnings.catch_warnings():
            # The warning was already issued when the task was first solved.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = self.solve(Rows.of(support, self.fit_intercept), self.features(support))
        return float(found.gap[0]), int(found.n_iter[0])
