"""Summary of a task's rows under a Gaussian model of all tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._utils.records import Record
from .._utils.validation import check_divisor, check_shape
from ..gaussian.mixture import Mixture
from ..gaussian.rows import Tasks
from ..tasks.rows import Array

#: The weights do not differ between tasks if their standard deviation, relative to the model's, is below this.
SMALLEST_SPREAD = 1e-6
#: Weight of the average noise variance in the estimate of a task's noise variance, as a number of rows.
NOISE_ROWS = 5.0


@dataclass(frozen=True)
class TaskSummary(Record):
    """The summary ψ(s) of a task's rows: its weights, two log noise variances and optional features v(s).

    Weights are given in the principal directions of their covariance.  ψ is centred over the training tasks and divided
    by a scalar, such that the root mean square of ‖ψ‖ is one.  Directions in which tasks hardly differ therefore stay
    small, and a penalty on a linear map of ψ suppresses them.
    """

    centre: Array  # (d,) mean of the weights over tasks
    axes: Array  # (d, d) principal directions of the weights, divided by the standard deviation along the first one
    noise: float  # noise variance
    spread: float  # mean squared residual of predictions with the weights ``centre``
    noise_mean: Array  # (2,) mean of the log noise variances over tasks
    noise_deviation: Array  # (2,) standard deviation of the log noise variances
    with_side: bool  # whether ψ includes v(s)
    mean: Array  # (m,)
    norm: float

    def restore(self) -> None:
        for name in ("noise", "spread", "noise_deviation", "norm"):
            check_divisor(name, getattr(self, name))

    def check_shapes(self, d: int, q: int) -> None:
        """Raise ValueError unless this summarises tasks with d columns and q features of side information."""
        check_shape("centre", self.centre, d)
        check_shape("axes", self.axes, d, d)
        check_shape("noise_mean", self.noise_mean, 2)
        check_shape("noise_deviation", self.noise_deviation, 2)
        check_shape("mean", self.mean, d + 2 + (q if self.with_side else 0))

    @classmethod
    def fit(cls, mixture: Mixture, statistics: Tasks, weights: Array, with_side: bool = False) -> TaskSummary:
        """Estimate the centre and the scales from tasks with posterior means ``weights`` (T, d)."""
        centre, covariance = mixture.moments()
        variances, axes = (part[..., ::-1] for part in np.linalg.eigh(covariance))
        first = np.sqrt(np.mean(((weights - centre) @ axes[:, 0]) ** 2))
        # The weights of tasks without rows differ from the centre by rounding only.
        differ = first > SMALLEST_SPREAD * np.sqrt(max(float(variances[0]), 0.0))
        spread = statistics.squared_residuals(centre).sum() / statistics.n_rows
        axes = axes / first if differ else np.zeros_like(axes)
        sizes = mixture.noise, max(float(spread), mixture.noise)
        made = cls(centre, axes, *sizes, np.zeros(2), np.ones(2), with_side, np.zeros(0), 1.0)
        levels = made.log_noise(statistics, weights)
        deviation = levels.std(axis=0)
        deviation = np.where(deviation > 1e-9, deviation, 1.0)
        made = replace(made, noise_mean=levels.mean(axis=0), noise_deviation=deviation)
        parts = made.parts(statistics, weights)
        mean = parts.mean(axis=0)
        norm = float(np.sqrt(np.mean(np.sum((parts - mean) ** 2, axis=1))))
        return replace(made, mean=mean, norm=norm if norm > 1e-9 else 1.0)

    def __call__(self, statistics: Tasks, weights: Array) -> Array:
        """Return ψ of each task, (T, m)."""
        return (self.parts(statistics, weights) - self.mean) / self.norm

    def parts(self, statistics: Tasks, weights: Array) -> Array:
        """Return ψ before centring and scaling."""
        levels = (self.log_noise(statistics, weights) - self.noise_mean) / self.noise_deviation
        parts = [(weights - self.centre) @ self.axes, levels]
        if self.with_side and statistics.side is not None:
            parts.append(statistics.side)
        return np.hstack(parts)

    def log_noise(self, statistics: Tasks, weights: Array) -> Array:
        """Return the log mean squared residuals of predictions with the task's weights and with ``centre``, (T, 2)."""
        rows = statistics.sizes + NOISE_ROWS
        own = statistics.squared_residuals(weights) + NOISE_ROWS * self.noise
        common = statistics.squared_residuals(self.centre) + NOISE_ROWS * self.spread
        return np.log(np.stack([own, common], axis=1) / rows[:, None])
