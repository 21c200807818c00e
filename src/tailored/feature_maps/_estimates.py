"""Maps of an estimate of the task's weights, in units in which columns and targets have mean square one.

A raw ridge estimate from few rows is mostly noise.  The posterior mean under a mixed model of the training
tasks leaves out directions in which tasks do not differ; what is made of it here is linear in the estimate
("posterior mean"), of second order ("second-order"), or of any order ("fourier estimate").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._utils.validation import check_choice, check_int
from ..gaussian import Mixture, TaskStatistics, adapt, fit_mixed_model
from ..tasks import TaskSet, Units
from ..tasks.rows import BATCH_FLOATS, batches
from ..tasks.units import ANY_UNITS, check_sizes
from ._base import Array, FeatureMap, mean_norm
from ._ridge import RidgeEstimate
from ._rows import MeanEmbedding

#: Tasks whose pairwise distances give the bandwidth.
BANDWIDTH_TASKS = 500


class PosteriorMean(FeatureMap):
    """``φ = (m(s) / c, 1)`` in R^{d+2}: the posterior mean m of the task's weights, and a constant.

    m is that under ``w ~ N(b, W)``, ``y = [X, 1] w + noise``, whose b, W and noise variance EM fits to the
    training tasks; c brings its norm to root mean square one over these.  A task without rows has m = b.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether the model sees a constant column; φ is in R^{d+1} otherwise.
    """

    def __init__(self, fit_intercept: bool = True) -> None:
        self.fit_intercept = fit_intercept
        self.units: Units | None = None
        self.mixture: Mixture | None = None
        self.norm = 1.0

    def fit(self, tasks: TaskSet) -> PosteriorMean:
        d = tasks.n_features + self.fit_intercept
        check_sizes(tasks, ANY_UNITS)
        self.units = Units.of(tasks, self.fit_intercept)
        # As many as fit into one batch: a million tasks would not tell d² numbers any better.
        some = tasks[spaced(len(tasks), max(1, BATCH_FLOATS // d**2))]
        self.mixture = fit_mixed_model(TaskStatistics.of(some, self.units))
        self.norm = mean_norm(self.weights(some))
        return self

    def weights(self, tasks: TaskSet) -> Array:
        """m (T, d), in the units of the training tasks."""
        if self.mixture is None or self.units is None:
            raise ValueError("feature_map: this PosteriorMean is not fitted; call fit(tasks) first")
        out = []
        for batch in batches(tasks):
            statistics = TaskStatistics.of(batch, self.units)
            _, tau, b, _ = self.mixture.prior(statistics)
            out.append(adapt(tau, b, statistics))
        return np.concatenate(out)

    def transform(self, tasks: TaskSet) -> Array:
        return np.hstack([self.weights(tasks) / self.norm, np.ones((len(tasks), 1))])


#: What the maps below may be made of.
ESTIMATES: dict[str, Callable[[], FeatureMap]] = {
    "posterior mean": PosteriorMean,
    "tuned ridge": partial(RidgeEstimate, "auto"),
}


class _OfEstimate(FeatureMap):
    """Base of the maps of an estimate ŵ(s) in R^{d+1}, the last entry of which is the intercept.

    Parameters
    ----------
    estimate : {"posterior mean", "tuned ridge"}
    """

    def __init__(self, estimate: str) -> None:
        self.estimate = estimate
        self.source: FeatureMap | None = None
        self.unit: Array | None = None

    def fit(self, tasks: TaskSet) -> FeatureMap:
        self.source = ESTIMATES[check_choice("estimate", self.estimate, ESTIMATES)]().fit(tasks)
        self.unit = Units.of(tasks, True).weights
        return self

    def weights(self, tasks: TaskSet) -> Array:
        """ŵ (T, d + 1), in the units of the training tasks."""
        if self.source is None or self.unit is None:
            raise ValueError(f"feature_map: this {type(self).__name__} is not fitted; call fit(tasks) first")
        if isinstance(self.source, PosteriorMean):
            return self.source.weights(tasks)
        return self.source.transform(tasks) / self.unit


class SecondOrder(_OfEstimate):
    """``φ = (c / a, z zᵀ / u, 1)``: correlations, squares of the weights, and a constant.

    - ``c = 1/n Σ y_i x_i`` in R^d, zero for a task without rows;
    - ``z = Aᵀŵ`` in R^q are the coordinates of the estimated weights in the q leading eigenvectors of
      ``1/T Σ ŵ ŵᵀ`` over the training tasks.  Of z zᵀ φ holds the upper triangle, row by row, with √2 times
      the entries off the diagonal, so that inner products are ``<z zᵀ, z' z'ᵀ> = <z, z'>²``;
    - a and u bring the norms of their blocks to root mean square one over the training tasks.

    In an environment whose clusters are subspaces, w and −w are equally likely, and no linear function of w
    tells the clusters apart on average; z zᵀ does, because it is the same for both.

    Parameters
    ----------
    estimate : {"posterior mean", "tuned ridge"}, default="posterior mean"
        ŵ; see `PosteriorMean` and `RidgeEstimate`.
    n_axes : int, default=8
        q, or d + 1 where that is less; φ has d + q (q + 1) / 2 + 1 entries.
    """

    def __init__(self, estimate: str = "posterior mean", n_axes: int = 8) -> None:
        super().__init__(estimate)
        self.n_axes = n_axes
        self.axes: Array | None = None
        self.norms = (1.0, 1.0)

    def fit(self, tasks: TaskSet) -> SecondOrder:
        check_int("n_axes", self.n_axes)
        super().fit(tasks)
        weights = self.weights(tasks)
        vectors = np.linalg.eigh(weights.T @ weights)[1]
        self.axes = np.ascontiguousarray(vectors[:, ::-1][:, : self.n_axes])
        self.norms = (1.0, 1.0)
        correlations, squares = self._blocks(tasks)
        self.norms = mean_norm(correlations), mean_norm(squares)
        return self

    def transform(self, tasks: TaskSet) -> Array:
        return np.hstack([*self._blocks(tasks), np.ones((len(tasks), 1))])

    def _blocks(self, tasks: TaskSet) -> tuple[Array, Array]:
        weights = self.weights(tasks)
        z = product(weights, self.axes)
        first, second = np.triu_indices(z.shape[1])
        squares = z[:, first] * z[:, second] * np.where(first == second, 1.0, np.sqrt(2.0))
        correlations = MeanEmbedding().transform(tasks)[:, : tasks.n_features]
        return correlations / self.norms[0], squares / self.norms[1]


class FourierEstimate(_OfEstimate):
    """``φ = √(2/D) cos(Ωᵀŵ + β)`` in R^D: random Fourier features of the estimated weights.

    Inner products approximate ``exp(−‖ŵ − ŵ'‖² / (2h²))``, h being the median distance between the estimates
    of two training tasks: tasks share what they learn with those whose weights are near.

    Parameters
    ----------
    estimate : {"posterior mean", "tuned ridge"}, default="posterior mean"
        ŵ; see `PosteriorMean` and `RidgeEstimate`.
    n_components : int, default=50
        D.
    random_state : int, RandomState or None, default=0
        Draws Ω and β.
    """

    def __init__(
        self, estimate: str = "posterior mean", n_components: int = 50, random_state: Any = 0
    ) -> None:
        super().__init__(estimate)
        self.n_components = n_components
        self.random_state = random_state
        self.frequencies: Array | None = None
        self.phases: Array | None = None

    def fit(self, tasks: TaskSet) -> FourierEstimate:
        from scipy.spatial.distance import pdist  # slow to import, rarely needed

        check_int("n_components", self.n_components)
        super().fit(tasks)
        weights = self.weights(tasks[spaced(len(tasks), BANDWIDTH_TASKS)])
        distances = pdist(weights)
        bandwidth = float(np.median(distances)) if len(distances) else 0.0
        rng = check_random_state(self.random_state)
        draws = rng.normal(size=(weights.shape[1], self.n_components))
        self.frequencies = draws / (bandwidth if bandwidth > 0 else 1.0)
        self.phases = rng.uniform(0.0, 2.0 * np.pi, size=self.n_components)
        return self

    def transform(self, tasks: TaskSet) -> Array:
        weights = self.weights(tasks)
        assert self.phases is not None
        cosines = np.cos(product(weights, self.frequencies) + self.phases)
        return np.asarray(np.sqrt(2.0 / self.n_components) * cosines)


def product(weights: Array, matrix: Array | None) -> Array:
    """``weights @ matrix`` task by task: the bits of one large product depend on the number of tasks."""
    assert matrix is not None
    return np.asarray(np.matmul(weights[:, None, :], matrix)[:, 0])


def spaced(n_tasks: int, limit: int) -> NDArray[np.intp]:
    """At most ``limit`` positions, evenly spaced."""
    return np.unique(np.linspace(0, n_tasks - 1, min(n_tasks, limit)).astype(np.intp))
