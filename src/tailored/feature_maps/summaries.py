"""What a task's rows say beyond the component they come from: ψ(s), at several numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record
from .._utils.validation import check_divisor, check_shape
from ..gaussian import Mixture, Tasks

Array = NDArray[np.float64]

#: Least spread of the first-pass weights over tasks, in units of the model's own, that says something.
SMALLEST_SPREAD = 1e-6
#: Rows of average noise that steady the estimate of a task's own noise.
NOISE_ROWS = 5.0


@dataclass(frozen=True)
class TaskSummary(Record):
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

    def check_shapes(self, d: int, q: int) -> None:
        """Raise a ValueError unless this summarises tasks with d columns and q features of side information."""
        check_shape("centre", self.centre, d)
        check_shape("axes", self.axes, d, d)
        check_shape("noise_mean", self.noise_mean, 2)
        check_shape("noise_deviation", self.noise_deviation, 2)
        check_shape("mean", self.mean, d + 2 + (q if self.with_side else 0))

    def restore(self) -> None:
        for name in ("noise", "spread", "noise_deviation", "norm"):
            check_divisor(name, getattr(self, name))

    @classmethod
    def fit(cls, mixture: Mixture, statistics: Tasks, weights: Array, with_side: bool = False) -> TaskSummary:
        """Learn the centre and the scales from tasks with first-pass ``weights`` (T, d)."""
        centre, covariance = mixture.moments()
        variances, axes = (part[..., ::-1] for part in np.linalg.eigh(covariance))
        first = np.sqrt(np.mean(((weights - centre) @ axes[:, 0]) ** 2))
        # Tasks without rows all have the centre for weights, up to rounding, which must not become a unit.
        differ = first > SMALLEST_SPREAD * np.sqrt(max(float(variances[0]), 0.0))
        spread = statistics.squared_residuals(centre).sum() / statistics.n_rows
        blank = cls(
            centre,
            axes / first if differ else np.zeros_like(axes),
            mixture.noise,
            max(float(spread), mixture.noise),
            np.zeros(2),
            np.ones(2),
            with_side,
            np.zeros(0),
            1.0,
        )
        levels = blank.noise_levels(statistics, weights)
        deviation = levels.std(axis=0)
        deviation = np.where(deviation > 1e-9, deviation, 1.0)
        blank = replace(blank, noise_mean=levels.mean(axis=0), noise_deviation=deviation)
        parts = blank.parts(statistics, weights)
        mean = parts.mean(axis=0)
        norm = float(np.sqrt(np.mean(np.sum((parts - mean) ** 2, axis=1))))
        return replace(blank, mean=mean, norm=norm if norm > 1e-9 else 1.0)

    def __call__(self, statistics: Tasks, weights: Array) -> Array:
        return (self.parts(statistics, weights) - self.mean) / self.norm

    def parts(self, statistics: Tasks, weights: Array) -> Array:
        """What ψ is made of, before it is centred."""
        levels = (self.noise_levels(statistics, weights) - self.noise_mean) / self.noise_deviation
        parts = [(weights - self.centre) @ self.axes, levels]
        if self.with_side and statistics.side is not None:
            parts.append(statistics.side)
        return np.hstack(parts)

    def noise_levels(self, statistics: Tasks, weights: Array) -> Array:
        """Log mean squares of what the task's own weights, and what the centre, leave of its targets."""
        rows = statistics.sizes + NOISE_ROWS
        own = statistics.squared_residuals(weights) + NOISE_ROWS * self.noise
        common = statistics.squared_residuals(self.centre) + NOISE_ROWS * self.spread
        return np.log(np.stack([own, common], axis=1) / rows[:, None])


@dataclass(frozen=True)
class Level(Record):
    """A number of rows, and the summary of tasks with about so many (None: they get none)."""

    rows: float
    summary: TaskSummary | None


def hats(levels: Sequence[Level], sizes: NDArray[np.int64] | Array) -> Array:
    """h_i(n), (levels, T): one at the level's number of rows, zero at its neighbours'."""
    knots = np.log1p([level.rows for level in levels])
    return np.array([np.interp(np.log1p(sizes), knots, tip) for tip in np.eye(len(knots))])
