"""A feature map of the task's own rows through a Gaussian model of all tasks.

    φ(s) = [√r_1 .. √r_K,  r_1 .. r_K,  v(s),  h_1(n) (1, ψ_1(s)),  h_2(n) (1, ψ_2(s)),  ..]

holds the probabilities r(s) of the model's components given the rows, features v(s) of the task's
description, and summaries ψ(s) of what the rows say beyond that, each of which has its say at some numbers n
of rows.  With H non-zero on the first block only, ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) = Σ_k r_k W_k / σ²`` is of
the paper's form; b(s) = Bφ uses the other blocks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from ..mixed_models import Mixture, TaskStatistics, Units, adapt, fit_mixed_model, fit_mixture
from ..tasks import TaskSet
from ..tasks.rows import batches
from ._base import FeatureMap
from .one_task import NOISE_ROWS, OneTask

Array = NDArray[np.float64]

#: Least spread of the first-pass weights over tasks, in units of the model's own, that says something.
SMALLEST_SPREAD = 1e-6


@dataclass(frozen=True)
class TaskSummary:
    """ψ(s): coordinates of the first-pass weights, two log noise levels, other features of the rows.

    Centred over the training tasks and divided by one number, so that ‖ψ‖ has root mean square one and
    the coordinates keep their relative sizes: principal directions in which tasks hardly differ stay
    small, and a penalty on B hardly lets them speak.
    """

    centre: Array  # mean of w over all tasks
    axes: Array  # its principal directions, in units of the first
    noise: float
    spread: float  # mean squared residual about the centre
    noise_mean: Array
    noise_deviation: Array
    with_side: bool  # whether v(s) is part of ψ(s)
    mean: Array
    norm: float

    @classmethod
    def fit(
        cls, mixture: Mixture, statistics: TaskStatistics, weights: Array, with_side: bool = False
    ) -> TaskSummary:
        """Learn the centre and the scales from tasks with first-pass ``weights`` (T, d)."""
        centre, covariance = mixture.moments()
        variances, axes = (part[..., ::-1] for part in np.linalg.eigh(covariance))
        first = np.sqrt(np.mean(((weights - centre) @ axes[:, 0]) ** 2))
        # Tasks without rows all have the centre for weights, up to rounding, which must not become a unit.
        told = first > SMALLEST_SPREAD * np.sqrt(max(float(variances[0]), 0.0))
        spread = statistics.squared_residuals(centre).sum() / statistics.n_rows
        blank = cls(
            centre,
            axes / first if told else np.zeros_like(axes),
            mixture.noise,
            max(float(spread), mixture.noise),
            np.zeros(2),
            np.ones(2),
            with_side,
            np.zeros(0),
            1.0,
        )
        levels = blank._noise_levels(statistics, weights)
        deviation = levels.std(axis=0)
        deviation = np.where(deviation > 1e-9, deviation, 1.0)
        blank = replace(blank, noise_mean=levels.mean(axis=0), noise_deviation=deviation)
        parts = blank._parts(statistics, weights)
        mean = parts.mean(axis=0)
        norm = float(np.sqrt(np.mean(np.sum((parts - mean) ** 2, axis=1))))
        return replace(blank, mean=mean, norm=norm if norm > 1e-9 else 1.0)

    def __call__(self, statistics: TaskStatistics, weights: Array) -> Array:
        return (self._parts(statistics, weights) - self.mean) / self.norm

    def _parts(self, statistics: TaskStatistics, weights: Array) -> Array:
        levels = (self._noise_levels(statistics, weights) - self.noise_mean) / self.noise_deviation
        parts = [(weights - self.centre) @ self.axes, levels]
        if self.with_side and statistics.side is not None:
            parts.append(statistics.side)
        return np.hstack(parts)

    def _noise_levels(self, statistics: TaskStatistics, weights: Array) -> Array:
        """Log mean squares of what the task's own weights, and what the centre, leave of its targets."""
        rows = statistics.sizes + NOISE_ROWS
        own = statistics.squared_residuals(weights) + NOISE_ROWS * self.noise
        common = statistics.squared_residuals(self.centre) + NOISE_ROWS * self.spread
        return np.log(np.stack([own, common], axis=1) / rows[:, None])


@dataclass(frozen=True)
class SideFeatures:
    """v(s): features beside those of the posterior, centred and of comparable size.

    Columns are divided by their deviation, and by √q, so that all together are as large as one.  Those of the
    task's description enter the prior mean of the model itself; those of its rows, which the model has
    seen, join ψ(s).
    """

    encoder: FeatureMap
    mean: Array
    deviation: Array

    @property
    def from_description(self) -> bool:
        """Whether they come from the task's description and not from its rows."""
        return self.encoder.needs_side_info and not self.encoder.needs_rows

    @classmethod
    def fit(cls, encoder: FeatureMap, tasks: TaskSet) -> SideFeatures:
        features = encoder.fit(tasks).transform(tasks)
        low, high = features.min(axis=0), features.max(axis=0)
        # A rare category must not become a large number: indicators are divided by half their range.
        indicator = ((features == low) | (features == high)).all(axis=0)
        deviation = np.where(indicator, (high - low) / 2.0, features.std(axis=0))
        deviation = np.where(deviation > 0, deviation, 1.0) * np.sqrt(max(features.shape[1], 1))
        return cls(encoder, features.mean(axis=0), deviation)

    def __call__(self, tasks: TaskSet) -> Array:
        features = self.encoder.transform(tasks)
        if features.shape[1] != len(self.mean):
            raise ValueError(
                f"side_info: expected {len(self.mean)} columns as in fit, got {features.shape[1]}"
            )
        return (features - self.mean) / self.deviation


@dataclass(frozen=True)
class Level:
    """A number of rows, and the summary of tasks with about so many (None: they get none)."""

    rows: float
    summary: TaskSummary | None


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
    units, mixture, scale, levels, side
        The model (in ``units``), the multiple of τ that the first-pass weights are computed with, the ψ_i by
        increasing number of rows, and v (None: no other features; v is a block of φ only where the model's
        mean is linear in it).
    """

    def __init__(self, n_components: int = 1, fit_intercept: bool = False, random_state: Any = 0) -> None:
        self.n_components = n_components
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.units: Units | None = None
        self.mixture: Mixture | None = None
        self.scale = 1.0
        self.levels: list[Level] = []
        self.side: SideFeatures | None = None

    @property
    def needs_rows(self) -> bool:  # type: ignore[override]
        return self.side is None or self.side.encoder.needs_rows

    @property
    def needs_side_info(self) -> bool:  # type: ignore[override]
        return self.side is not None and self.side.encoder.needs_side_info

    @classmethod
    def of_model(
        cls,
        units: Units,
        mixture: Mixture,
        scale: float,
        *,
        fit_intercept: bool,
        levels: list[Level],
        side: SideFeatures | None = None,
    ) -> PosteriorMap:
        """The map of a model that was fitted elsewhere."""
        made = cls(mixture.n_components, fit_intercept)
        made.units, made.mixture, made.scale = units, mixture, scale
        made.levels, made.side = levels, side
        return made

    def fit(self, tasks: TaskSet) -> PosteriorMap:
        """Fit the mixed model (or mixture) of the tasks by EM, and ψ on the same tasks."""
        self.units = Units.of(tasks, self.fit_intercept)
        statistics = TaskStatistics.of(tasks, self.fit_intercept, self.units)
        self.mixture = fit_mixed_model(statistics)
        if self.n_components > 1:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self.mixture = fit_mixture(statistics, self.mixture, self.n_components, seed=[seed])
        _, tau, b = self.mixture.prior(statistics)
        weights = adapt(tau, b, statistics)
        self.levels = [Level(0.0, TaskSummary.fit(self.mixture, statistics, weights))]
        return self

    def transform(self, tasks: TaskSet) -> Array:
        return np.concatenate([self._transform(batch) for batch in batches(tasks)])

    def _transform(self, tasks: TaskSet) -> Array:
        if self.mixture is None or self.units is None:
            raise ValueError("feature_map: this PosteriorMap is not fitted; call fit(tasks) first")
        # Read even where nothing uses it, so that what has to be passed does not depend on what was learned.
        side = None if self.side is None else self.side(tasks)
        statistics = TaskStatistics.of(tasks, self.fit_intercept, self.units, side)
        r, tau, b = self.mixture.prior(statistics)
        parts = [np.sqrt(r), r]
        if self.mixture.side is not None and side is not None:
            parts.append(side)
        if any(level.summary is not None for level in self.levels):
            weights = adapt(self.scale * tau, b, statistics)
            for level, hat in zip(self.levels, hats(self.levels, tasks.sizes), strict=True):
                if level.summary is not None:
                    psi = level.summary(statistics, weights)
                    parts.append(hat[:, None] * np.hstack([np.ones((len(psi), 1)), psi]))
        return np.hstack(parts)

    def transform_one(self, task: TaskSet) -> Array:
        if task.is_sparse or self.mixture is None or self.units is None:
            return self.transform(task)
        side = None if self.side is None else self.side(task)[0]
        return self._layout()(task.X, task.y, side)[None]

    def _layout(self) -> OneTask:
        """The arrays that `transform_one` works with, made anew when a part of the model was replaced."""
        parts = (self.units, self.mixture, self.scale, self.levels, self.side, self.fit_intercept)
        cached = vars(self).get("_one_task")
        if cached is None or any(a is not b for a, b in zip(parts, cached[0], strict=True)):
            cached = self._one_task = (parts, OneTask.of(self))
        layout: OneTask = cached[1]
        return layout

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_one_task"}

    def state(self) -> dict[str, Any]:
        own = self.__getstate__()
        for name in ("units", "mixture"):
            own[name] = None if own[name] is None else asdict(own[name])
        own["levels"] = [asdict(level) for level in self.levels]
        own["side"] = None if self.side is None else dict(vars(self.side))
        return own

    def restore(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.units = None if state["units"] is None else Units(**state["units"])
        self.mixture = None if state["mixture"] is None else Mixture(**state["mixture"])
        self.levels = [
            Level(level["rows"], None if level["summary"] is None else TaskSummary(**level["summary"]))
            for level in state["levels"]
        ]
        self.side = None if state["side"] is None else SideFeatures(**state["side"])


def hats(levels: list[Level], sizes: NDArray[np.int64]) -> Array:
    """h_i(n), (levels, T): one at the level's number of rows, zero at its neighbours'."""
    knots = np.log1p([level.rows for level in levels])
    return np.array([np.interp(np.log1p(sizes), knots, tip) for tip in np.eye(len(knots))])
