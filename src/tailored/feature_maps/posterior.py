"""A feature map of the task's own rows through a Gaussian model of all tasks.

    φ(s) = [√r_1 .. √r_K,  r_1 .. r_K,  v(s),  κ(s),  h_1(n) (1, ψ_1(s)),  h_2(n) (1, ψ_2(s)),  ..]

holds the probabilities r(s) of the model's components given the description and the rows, features v(s) of the
description, what the posterior mean of the mixture adds to the prior mean (κ), and summaries ψ(s) of what the rows say beyond that, each of which has its say at some numbers n
of rows.  With H non-zero on the first block only, ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) = Σ_k r_k W_k / σ²`` is of
the paper's form; b(s) = Bφ uses the other blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from .._utils.records import Record
from .._utils.validation import check_shape
from ..gaussian import Mixture, adapt, fit_mixed_model, fit_mixture, statistics_of
from ..tasks import Scaling, TaskSet
from ..tasks.rows import batches
from .base import Array, FeatureMap
from .side_features import SideFeatures
from .summaries import Level, TaskSummary, hats


@dataclass(frozen=True)
class PosteriorModel(Record):
    """All that φ(s) is computed from.

    Attributes
    ----------
    units, mixture : Scaling, Mixture
        The model, and the units that it is in.
    levels : tuple of Level
        The ψ_i, by increasing number of rows.
    side : SideFeatures or None
        v (None: no other features; v is a block of φ only where the model's mean is linear in it).
    """

    units: Scaling
    mixture: Mixture
    levels: tuple[Level, ...] = ()
    side: SideFeatures | None = None

    def __post_init__(self) -> None:
        K, d = self.mixture.means.shape
        q = 0 if self.side is None else len(self.side.mean)
        check_shape("units.columns", self.units.columns, d)
        if self.mixture.side is not None:
            check_shape("mixture.side", self.mixture.side, d, q)
        if self.mixture.gates is not None:
            check_shape("mixture.gates", self.mixture.gates, K, 1 + q)
        if any(one.rows >= other.rows for one, other in pairwise(self.levels)):
            raise ValueError("levels: numbers of rows must increase")
        for level in self.levels:
            if level.summary is not None:
                level.summary.check_shapes(d, q)

    def __call__(self, tasks: TaskSet) -> Array:
        """φ of every task, (T, k)."""
        # Read even where nothing uses it, so that what has to be passed does not depend on what was learned.
        side = None if self.side is None else self.side(tasks)
        statistics = statistics_of(tasks, self.units, side)
        r, tau, b, correction = self.mixture.prior(statistics)
        parts = [np.sqrt(r), r]
        if side is not None and (self.mixture.side is not None or self.mixture.gates is not None):
            parts.append(side)
        if correction is not None:
            parts.append(correction)
        if any(level.summary is not None for level in self.levels):
            weights = adapt(tau, b, statistics)
            for level, hat in zip(self.levels, hats(self.levels, tasks.sizes), strict=True):
                if level.summary is not None:
                    psi = level.summary(statistics, weights)
                    parts.append(hat[:, None] * np.hstack([np.ones((len(psi), 1)), psi]))
        return np.hstack(parts)


class PosteriorMap(FeatureMap):
    """Component probabilities and posterior summaries of the task: ``φ = [√r, r, v, h_1 (1, ψ_1), ..]``.

    The h_i(n) are hat functions of log(1 + n) with their tips at the levels' numbers of rows; they add up to
    one, so that neighbouring levels hand over to each other.

    Defined for a task without rows, too: the prior is then all there is to say.

    Parameters
    ----------
    n_components : int, default=1
        Components of the mixture that `fit` learns.
    fit_intercept : bool, default=False
        Whether the model sees a constant column.
    random_state : int, RandomState or None, default=0
        Draws the starts of a mixture.

    Attributes
    ----------
    model : PosteriorModel or None
        None before `fit`.
    """

    model: PosteriorModel | None

    def __init__(self, n_components: int = 1, fit_intercept: bool = False, random_state: Any = 0) -> None:
        self.n_components = n_components
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.model = None

    @property
    def needs_rows(self) -> bool:
        side = None if self.model is None else self.model.side
        return side is None or side.encoder.needs_rows

    @property
    def needs_side_info(self) -> bool:
        side = None if self.model is None else self.model.side
        return side is not None and side.encoder.needs_side_info

    @classmethod
    def of_model(cls, model: PosteriorModel) -> PosteriorMap:
        """The map of a model that was fitted elsewhere."""
        made = cls(model.mixture.n_components, model.units.fit_intercept)
        made.model = model
        return made

    def fit(self, tasks: TaskSet) -> PosteriorMap:
        """Fit the mixed model (or mixture) of the tasks by EM, and ψ on the same tasks."""
        units = Scaling.of(tasks, self.fit_intercept)
        statistics = statistics_of(tasks, units)
        mixture = fit_mixed_model(statistics)
        if self.n_components > 1:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            mixture = fit_mixture(statistics, mixture, self.n_components, seed=[seed])
        _, tau, b, _ = mixture.prior(statistics)
        weights = adapt(tau, b, statistics)
        levels = (Level(0.0, TaskSummary.fit(mixture, statistics, weights)),)
        self.model = PosteriorModel(units, mixture, levels)
        return self

    def transform(self, tasks: TaskSet) -> Array:
        model = self._fitted()
        return np.concatenate([model(batch) for batch in batches(tasks)])

    def _fitted(self) -> PosteriorModel:
        if self.model is None:
            raise ValueError("feature_map: this PosteriorMap is not fitted; call fit(tasks) first")
        return self.model
