"""Maps that average something over the rows of the task."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from .._utils.validation import check_shape
from ..tasks import TaskSet
from ..tasks.rows import dense
from ..tasks.units import USERS_UNITS, check_sizes
from ._base import Array, FeatureMap, averaging_matrix


class MeanEmbedding(FeatureMap):
    """``φ = 1/n Σ vec(x_i (y_i, 1)ᵀ)`` in R^{2d}: the paper's map for clusters and MovieLens."""

    def transform(self, tasks: TaskSet) -> Array:
        mean = averaging_matrix(tasks)
        weighted = mean @ sparse.diags_array(tasks.y)
        return np.hstack([dense(weighted @ tasks.X), dense(mean @ tasks.X)])


class AngleMap(FeatureMap):
    """The paper's map for Jester: each rated item becomes a unit vector whose angle is its rating.

    ``φ = (cos(a) ⊙ c, sin(a) ⊙ c, 1)`` in R^{2d+1}, ``a = Σ x_i · π/4 · (M − y_i)/(M − m)``,
    ``c = Σ x_i``; items without a rating give (0, 0).

    Parameters
    ----------
    low, high : float, optional
        The rating scale m, M; taken from the training targets when absent.
    """

    #: (m, M) in use; None before `fit`, unless both are given.
    scale: tuple[float, float] | None

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = low
        self.high = high
        self.scale = None if low is None or high is None else (low, high)

    def fit(self, tasks: TaskSet) -> AngleMap:
        if not len(tasks.y) and self.scale is None:
            raise ValueError(
                "feature_map: the tasks have no rows to take the rating scale from; give low and high"
            )
        low = float(tasks.y.min()) if self.low is None else self.low
        self.scale = low, float(tasks.y.max()) if self.high is None else self.high
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.scale is None:
            raise ValueError("feature_map: this AngleMap is not fitted; call fit(tasks) first")
        low, high = self.scale
        angle = (np.pi / 4) * (high - tasks.y) / (high - low if high > low else 1.0)
        total = averaging_matrix(tasks)
        total.data[:] = 1.0
        count = dense(total @ tasks.X)
        angles = dense((total @ sparse.diags_array(angle)) @ tasks.X)
        return np.hstack([np.cos(angles) * count, np.sin(angles) * count, np.ones((len(tasks), 1))])


class FourierEmbedding(FeatureMap):
    """Mean embedding of random Fourier features: ``1/n Σ vec(ψ(x_i) (y_i, 1)ᵀ)`` in R^{2D}.

    ``ψ(x) = √(2/D) cos(Ωᵀx + β)`` approximates the Gaussian kernel ``exp(−gamma ‖x − x'‖²)``.

    Parameters
    ----------
    n_components : int, default=50
        D.
    gamma : float, optional
        Default: 1 / (d · variance of the inputs), as scikit-learn's ``gamma="scale"``.
    random_state : int, RandomState or None
        Draws Ω and β.
    """

    frequencies: Array | None
    phases: Array | None

    def __init__(self, n_components: int = 50, gamma: float | None = None, random_state: Any = 0) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.random_state = random_state
        self.frequencies = None
        self.phases = None

    def restore(self) -> None:
        if self.frequencies is not None and self.phases is not None:
            check_shape("frequencies", self.frequencies, None, self.n_components)
            check_shape("phases", self.phases, self.n_components)

    def fit(self, tasks: TaskSet) -> FourierEmbedding:
        check_sizes(tasks, USERS_UNITS, new=True)
        X = dense(tasks.X)
        variance = float(X.var()) if X.size else 0.0
        # A variance whose inverse is no number is none.
        width = variance if variance > 1e-200 else 1.0
        gamma = self.gamma if self.gamma is not None else 1.0 / (max(X.shape[1], 1) * width)
        rng = check_random_state(self.random_state)
        self.frequencies = np.sqrt(2.0 * gamma) * rng.normal(size=(X.shape[1], self.n_components))
        self.phases = rng.uniform(0.0, 2.0 * np.pi, size=self.n_components)
        return self

    def transform(self, tasks: TaskSet) -> Array:
        out = np.zeros((len(tasks), 2 * self.n_components))
        # Task by task: the bits of a matrix product depend on its shape, and a stream may be cut anywhere.
        for t, task in enumerate(tasks):
            if len(task.y):
                features = np.cos(task.X @ self.frequencies + self.phases)
                out[t] = np.concatenate([task.y @ features, features.sum(axis=0)]) / len(task.y)
        return np.sqrt(2.0 / self.n_components) * out
