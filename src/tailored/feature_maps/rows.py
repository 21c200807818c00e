"""Feature maps computed from a task's rows: means or sums over the rows, and estimates of the weights."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from .._utils.algebra import ridge
from .._utils.validation import check_positive
from ..tasks.rows import Scaling, dense, dense_rows
from ..tasks.task_set import TaskSet
from .base import Array, FeatureMap


class MeanEmbedding(FeatureMap):
    """``φ = 1/n Σ vec(x_i (y_i, 1)ᵀ)`` in R^{2d}: the paper's map for clusters and MovieLens."""

    def transform(self, tasks: TaskSet) -> Array:
        mean = _averaging_matrix(tasks)
        weighted = mean @ sparse.diags_array(tasks.y)
        return np.hstack([dense(weighted @ tasks.X), dense(mean @ tasks.X)])


class AngleMap(FeatureMap):
    """The paper's map for Jester: each rated item becomes a unit vector whose angle is its rating.

    ``φ = (cos(a) ⊙ c, sin(a) ⊙ c, 1)`` in R^{2d+1}, ``a = Σ x_i · π/4 · (M − y_i)/(M − m)``,
    ``c = Σ x_i``; items without a rating give (0, 0).

    Parameters
    ----------
    low, high : float, optional
        Bounds m and M of the rating scale; by default the range of the training targets.
    """

    scale: tuple[float, float] | None  # (m, M) in use; None before `fit`, unless both are given

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = low
        self.high = high
        self.scale = None if low is None or high is None else (low, high)

    def fit(self, tasks: TaskSet) -> AngleMap:
        if not len(tasks.y) and self.scale is None:
            reason = "the tasks have no rows from which to learn the rating scale; give low and high"
            raise ValueError(f"feature_map: {reason}")
        low = float(tasks.y.min()) if self.low is None else self.low
        self.scale = low, float(tasks.y.max()) if self.high is None else self.high
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.scale is None:
            raise self._not_fitted()
        low, high = self.scale
        angle = (np.pi / 4) * (high - tasks.y) / (high - low if high > low else 1.0)
        total = _averaging_matrix(tasks)
        total.data[:] = 1.0
        count = dense(total @ tasks.X)
        angles = dense((total @ sparse.diags_array(angle)) @ tasks.X)
        return np.hstack([np.cos(angles) * count, np.sin(angles) * count, np.ones((len(tasks), 1))])


class RidgeEstimate(FeatureMap):
    """Ridge estimate of the task's weights, ``(X̂ᵀX̂ + λI) w = X̂ᵀy`` with X̂ = [X, 1]; φ in R^{d+1}.

    Parameters
    ----------
    alpha : float, default=1.0
        λ; the paper uses 1 for Lenk.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def transform(self, tasks: TaskSet) -> Array:
        check_positive("alpha", self.alpha)
        Scaling.raw(tasks.n_features).check(tasks.X, tasks.y, tasks.feature_names)
        out = np.empty((len(tasks), tasks.n_features + 1))
        # One system per task, because batched products round differently and a stream may be split anywhere.
        for t, task in enumerate(tasks):
            out[t] = ridge(dense_rows(task.X, True), task.y, self.alpha)
        return out


def _averaging_matrix(tasks: TaskSet) -> sparse.csr_array:
    """Return the (T, N) matrix that averages the rows of each task (zero for a task without rows)."""
    Scaling.raw(tasks.n_features).check(tasks.X, tasks.y, tasks.feature_names)
    sizes = tasks.sizes
    weights = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
    shape = (len(tasks), len(weights))
    return sparse.csr_array((weights, np.arange(len(weights)), tasks.offsets), shape=shape)
