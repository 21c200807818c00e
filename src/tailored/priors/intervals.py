"""Calibration of prediction intervals by conformal prediction over tasks.

The error of a predicted row is compared with the standard deviation that the posterior implies for
it.  The ratios (*scores*) are collected on tasks that the learner was not fitted to.  A new task is
one more draw from the same population, so the quantiles of its scores are those of the held-out
tasks, whatever the distribution of the targets.

Tasks are exchangeable, rows are not.  Every task therefore has the same total weight (hierarchical
conformal prediction: Lee, Barber and Willett, 2023; Dunn, Wasserman and Ramdas, 2018).  To
guarantee a lower bound on the coverage, one more task with infinite scores would be added on each
side.  Only half a task is added, so that coverage is met on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record, cached_property
from ..tasks.rows import Array, Index

#: Candidate weights, in rows, of the average noise variance in the estimate of a task's own noise
#: variance.  With the first, all tasks have practically the same noise variance.
NOISE_ROWS = (1e6, 80.0, 20.0, 5.0, 1.5)


def noise_variances(
    squares: Array, n_rows: NDArray[np.int64], noise: float, noise_rows: float
) -> Array:
    """Estimate the noise variance of each task from its squared residuals, shrunk towards the
    average ``noise``.
    """
    return np.asarray((squares + noise_rows * noise) / (n_rows + noise_rows))


@dataclass(frozen=True)
class Calibration(Record):
    """Scores of held-out tasks at several numbers of support rows.

    A score is target minus prediction, divided by the implied standard deviation.  At each number
    of rows, the weights and that of the additional half task add up to one.
    """

    rows: Array  # (L,) the numbers of support rows, increasing
    scores: list[Array]  # L arrays, sorted
    weights: list[Array]  # L arrays
    noise: float  # average noise variance, towards which `noise_variances` shrinks
    noise_rows: float = 5.0  # weight of ``noise``, in rows

    @cached_property
    def _multiples(self) -> dict[Any, tuple[list[float], bool]]:
        """Cache of `multiples`, which take longer to compute than a prediction for one task."""
        return {}

    def multiples(
        self, n_rows: int, coverage: float | None, quantile: float | None
    ) -> tuple[list[float], bool]:
        """Return lower bound, upper bound, std and quantile in standard deviations, and whether the
        bounds are calibrated.
        """
        key, calibrated = (n_rows, coverage, quantile), True
        if key not in self._multiples:
            row = [0.0, 0.0, 0.0, 0.0 if quantile is None else self.quantile(n_rows, quantile)]
            if coverage is not None:
                ends = self.interval(n_rows, coverage)
                if not np.isfinite(ends).all():
                    ends, calibrated = self.model_interval(n_rows, coverage), False
                row[:3] = *ends, self.deviation(n_rows)
            self._multiples[key] = row, calibrated
        return self._multiples[key]

    def interval(self, n_rows: int, coverage: float) -> tuple[float, float]:
        """Return the bounds of an interval, in standard deviations, for a task with ``n_rows``
        support rows.

        The probability outside is ``(1 - coverage) / 2`` on each side.  Bounds are infinite if
        there are too few tasks.
        """
        # The tolerance is for rounding errors in the sums, which must not make a bound infinite.
        enough, ends = 0.5 + 0.5 * coverage - 1e-12, []
        for scores, from_below, from_above, _ in self._levels:
            lower = np.append(scores[::-1], -np.inf)[np.searchsorted(from_above, enough)]
            upper = np.append(scores, np.inf)[np.searchsorted(from_below, enough)]
            ends.append([lower, upper])
        lower, upper = self._interpolate(n_rows, np.array(ends))
        return float(lower), float(upper)

    @cached_property
    def _levels(self) -> list[tuple[Array, Array, Array, Array]]:
        """Scores at each number of rows, their cumulative weights from below and from above, and
        the midpoints of the steps of their distribution function.
        """
        out = []
        for scores, w in zip(self.scores, self.weights, strict=True):
            sums = np.cumsum(w)
            out.append((scores, sums, np.cumsum(w[::-1]), (sums - 0.5 * w) / w.sum()))
        return out

    def model_interval(self, n_rows: int, coverage: float) -> tuple[float, float]:
        """Return bounds that replace infinite ones: Gaussian, or beyond the extreme scores if this
        is wider.

        The extreme scores are the bounds at the largest coverage that can be calibrated.  From
        there, Gaussian tails follow.
        """
        z, deviation = NormalDist().inv_cdf(0.5 + 0.5 * coverage), self.deviation(n_rows)
        beyond = (z - NormalDist().inv_cdf(min(w.sum() for w in self.weights))) * deviation
        lower, upper = self.quantile(n_rows, 0.0) - beyond, self.quantile(n_rows, 1.0) + beyond
        return min(-z * deviation, lower), max(z * deviation, upper)

    def quantile(self, n_rows: int, share: float) -> float:
        """Return the ``share``-quantile of the scores for a task with ``n_rows`` support rows."""
        found = [np.interp(share, midpoints, scores) for scores, *_, midpoints in self._levels]
        return float(self._interpolate(n_rows, np.array(found)))

    def deviation(self, n_rows: int) -> float:
        """Return the root mean square of the scores: the ratio of actual to implied standard
        deviations.
        """
        squares = [s @ (w * s) / w.sum() for s, w in zip(self.scores, self.weights, strict=True)]
        return float(np.sqrt(self._interpolate(n_rows, np.array(squares))))

    def _interpolate(self, n_rows: int, values: Array) -> Any:
        """Interpolate values (L, ..), given at the numbers of rows n, linearly in log(1 + n)."""
        position = float(
            np.interp(np.log1p(n_rows), np.log1p(self.rows), np.arange(len(self.rows)))
        )
        below, above = int(np.floor(position)), int(np.ceil(position))
        share = position - below
        # Zero times an infinite bound would be NaN.
        return values[below] if not share else (1.0 - share) * values[below] + share * values[above]


class Errors(NamedTuple):
    """Errors of query rows after adapting T tasks, in the scaling of the prior."""

    errors: Array  # (N,) target minus prediction
    variances: Array  # (N,) variance of the prediction in units of the noise variance
    task: Index  # (N,) position of the task of each row
    squares: Array  # (T,) sums of squared residuals of the support rows
    n_rows: NDArray[np.int64]  # (T,) numbers of support rows

    @classmethod
    def concat(cls, parts: Sequence[Errors]) -> Errors:
        """Join the errors of different tasks."""
        n_tasks = 0
        task = []
        for part in parts:
            task.append(part.task + n_tasks)
            n_tasks += len(part.n_rows)
        joined = cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        return joined._replace(task=np.concatenate(task))


def calibration_of(levels: list[tuple[int, Errors]], n_repeats: int = 1) -> Calibration:
    """Return the calibration for errors at increasing numbers of support rows."""
    noise = float(np.mean(levels[-1][1].errors ** 2))
    # If all errors are zero, so are the scores, for any noise variance.
    noise = noise if noise > 1e-290 else 1.0
    errors, shares, weights = [], [], []
    for _, level in levels:
        counts = np.bincount(level.task, minlength=len(level.n_rows))
        n_tasks = int(np.count_nonzero(counts))
        share = 1.0 / counts[level.task]
        errors.append(level.errors)
        shares.append(share / max(n_tasks, 1))
        weights.append(share / (n_tasks + 0.5 * n_repeats))

    def deviations(noise_rows: float) -> list[Array]:
        """Return the standard deviations of the errors that the posterior implies."""
        out = []
        for _, level in levels:
            own = noise_variances(level.squares, level.n_rows, noise, noise_rows)[level.task]
            out.append(np.sqrt(own * (1.0 + level.variances)))
        return out

    def log_loss(noise_rows: float) -> float:
        """Return the Gaussian log loss of the errors, with the best scale at each level."""
        total = 0.0
        for e, w, d in zip(errors, shares, deviations(noise_rows), strict=True):
            if len(e):
                mean_square = max(float(w @ (e / d) ** 2), 1e-290)
                total += float(w @ np.log(d)) + 0.5 * float(np.log(mean_square))
        return total

    noise_rows = min(NOISE_ROWS, key=log_loss)
    scores = [e / d for e, d in zip(errors, deviations(noise_rows), strict=True)]
    orders = [np.argsort(score, kind="stable") for score in scores]
    return Calibration(
        np.array([float(rows) for rows, _ in levels]),
        [score[order] for score, order in zip(scores, orders, strict=True)],
        [weight[order] for weight, order in zip(weights, orders, strict=True)],
        noise,
        noise_rows,
    )
