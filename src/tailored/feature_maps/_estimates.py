"""The posterior mean of the task's weights under a linear mixed model of the training tasks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import check_divisor, check_shape
from ..gaussian import Mixture, adapt, fit_mixed_model, statistics_of
from ..tasks import TaskSet, Units
from ..tasks.rows import BATCH_FLOATS, batches
from ..tasks.units import ANY_UNITS, check_sizes
from ._base import Array, FeatureMap, mean_norm


class PosteriorMean(FeatureMap):
    """``φ = (m(s) / c, 1)`` in R^{d+2}: the posterior mean m of the task's weights, and a constant.

    m is that under ``w ~ N(b, W)``, ``y = [X, 1] w + noise``, whose b, W and noise variance EM fits to the
    training tasks; c brings its norm to root mean square one over these.  A task without rows has m = b.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether the model sees a constant column; φ is in R^{d+1} otherwise.
    """

    units: Units | None
    mixture: Mixture | None
    norm: float

    def __init__(self, fit_intercept: bool = True) -> None:
        self.fit_intercept = fit_intercept
        self.units = None
        self.mixture = None
        self.norm = 1.0

    def restore(self) -> None:
        check_divisor("norm", self.norm)
        if self.mixture is not None and self.units is not None:
            check_shape("mixture.means", self.mixture.means, None, len(self.units.columns))
            if self.units.fit_intercept != self.fit_intercept:
                raise ValueError("units: must have an intercept as the map has")
            if self.mixture.side is not None or self.mixture.gates is not None:
                raise ValueError("mixture: must not depend on side information")

    def fit(self, tasks: TaskSet) -> PosteriorMean:
        d = tasks.n_features + self.fit_intercept
        check_sizes(tasks, ANY_UNITS)
        self.units = Units.of(tasks, self.fit_intercept)
        # As many as fit into one batch: a million tasks would not tell d² numbers any better.
        some = tasks[spaced(len(tasks), max(1, BATCH_FLOATS // d**2))]
        self.mixture = fit_mixed_model(statistics_of(some, self.units))
        self.norm = mean_norm(self.weights(some))
        return self

    def weights(self, tasks: TaskSet) -> Array:
        """m (T, d), in the units of the training tasks."""
        if self.mixture is None or self.units is None:
            raise ValueError("feature_map: this PosteriorMean is not fitted; call fit(tasks) first")
        out = []
        for batch in batches(tasks):
            statistics = statistics_of(batch, self.units)
            _, tau, b, _ = self.mixture.prior(statistics)
            out.append(adapt(tau, b, statistics))
        return np.concatenate(out)

    def transform(self, tasks: TaskSet) -> Array:
        return np.hstack([self.weights(tasks) / self.norm, np.ones((len(tasks), 1))])


def spaced(n_tasks: int, limit: int) -> NDArray[np.intp]:
    """At most ``limit`` positions, evenly spaced."""
    return np.unique(np.linspace(0, n_tasks - 1, min(n_tasks, limit)).astype(np.intp))
