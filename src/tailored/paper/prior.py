"""The prior of the paper: a conditioning function τ(s) (Eq. 18) and a within-task algorithm.

A task is solved with ``θ = τ(s)`` by Eq. 2 (``inner="exact"``) or Eq. 4 (``inner="online"``).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.algebra import solve as solve_systems
from ..losses import Absolute, Loss
from ..priors.base import Array, Prior
from ..tasks.features import FeatureMap
from ..tasks.rows import BATCH_FLOATS, Rows, dense, predictions
from ..tasks.task_set import TaskSet
from . import within_task as solving
from .feature_maps import check_features
from .representation import Conditioning


@dataclass(frozen=True, kw_only=True, repr=False)
class RepresentationPrior(Prior):
    """``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` for features φ = Φ(s), and a mean b for all tasks.

    For loss and within-task algorithm, see `TaskRegressor`.
    """

    conditioning: Conditioning  # τ as a function of φ
    bias: Array | None = None  # b (d,), the prior mean of `TaskRegressor`; None for zero
    feature_map: FeatureMap | None = None  # Φ; None if τ does not depend on the task
    loss: Loss = field(default_factory=Absolute)
    inner: str = "exact"
    tol: float = 1e-8
    max_iter: int = 1000

    block_floats = BATCH_FLOATS
    parallel_blocks = False

    def __post_init__(self) -> None:
        for value in (self.conditioning.C, self.conditioning.root, self.bias):
            if value is not None:
                value.flags.writeable = False

    @property
    def task_settings(self) -> dict[str, Any]:
        return {"loss": self.loss, "inner": self.inner, "tol": self.tol, "max_iter": self.max_iter}

    @property
    def reads_side_info(self) -> bool:
        return self.feature_map is not None and self.feature_map.needs_side_info

    def size_factors(self, sizes: NDArray[np.int64]) -> Array:
        return np.ones(len(sizes))

    def features(self, tasks: TaskSet) -> Array:
        """Return φ of residual tasks, (T, k)."""
        if self.feature_map is None:
            return np.zeros((len(tasks), 0))
        return check_features(self.feature_map.transform(tasks), tasks, self.conditioning.n_side)

    def _represent(self, tasks: TaskSet, change: Array) -> Array:
        return np.asarray(change @ self.conditioning.evaluate(self.features(tasks)) @ change.T)

    def _mean(self, tasks: TaskSet) -> Array:
        means = self.means(self.features(tasks))
        return np.zeros((len(tasks), self.conditioning.n_features)) if means is None else means

    def means(self, phis: Array) -> Array | None:
        """Return the prior means b of tasks with features φ, (T, d); None for zeros."""
        return (
            None if self.bias is None else np.broadcast_to(self.bias, (len(phis), len(self.bias)))
        )

    def mean_at_centre(self) -> Array | None:
        return np.zeros(self.conditioning.n_features) if self.bias is None else self.bias.copy()

    def _solve(self, tasks: TaskSet, covariances: bool, n_jobs: int | None) -> tuple[Array, Array]:
        rows, phis = Rows.of(tasks, self.fit_intercept), self.features(tasks)
        weights = self.solve(rows, phis, n_jobs, tasks.labels)
        if not covariances:
            return weights, np.zeros((0, 0, 0))
        rows = rows._replace(X=dense(rows.X))
        return weights, _covariances(rows, self.conditioning.evaluate(phis))

    def solve(
        self, rows: Rows, phis: Array, n_jobs: int | None = None, labels: NDArray[Any] | None = None
    ) -> Array:
        """Return the weights (T, d) of tasks with these rows and features φ (T, k), by the within-task algorithm."""
        rows = rows._replace(X=dense(rows.X))
        means = self.means(phis)
        solution = solving.solve_many(
            *rows,
            self.conditioning.evaluate(phis),
            offset=None if means is None else predictions(rows, means),
            n_jobs=n_jobs,
            labels=labels,
            **self.task_settings,
        )
        return solution.coef if means is None else solution.coef + means

    def certificate(self, support: TaskSet) -> tuple[float, int]:
        X, phis = self.scaling.dense(support.X), self.features(support)
        means, theta = self.means(phis), self.conditioning(phis[0])
        with warnings.catch_warnings():
            # The warning was already issued when the task was first solved.
            warnings.simplefilter("ignore", ConvergenceWarning)
            offset = None if means is None else X @ means[0]
            solution = solving.solve(X, support.y, theta, offset=offset, **self.task_settings)
        return solution.gap, solution.n_iter


def _covariances(rows: Rows, thetas: Array) -> Array:
    """Return ``(I + θXᵀX/n)⁻¹ θ/n`` of each task, (T, d, d); for a task without rows, return θ."""
    out = np.array(thetas)
    d = thetas.shape[1]
    for n in np.unique(rows.sizes[rows.sizes > 0]):
        same = np.flatnonzero(rows.sizes == n)
        X = rows.X[rows.offsets[same][:, None] + np.arange(n)]
        gram = X.transpose(0, 2, 1) @ X
        out[same] = solve_systems(np.eye(d) + thetas[same] @ gram / n, thetas[same]) / n
    return out
