"""Calibrate prediction intervals: conformal prediction over tasks.

The error of a predicted row is compared with the standard deviation that the posterior implies for it.  The ratios
(*scores*) are collected on tasks that the learner was not fitted to.  A new task is one more draw from the same
population, so the quantiles of its scores are those of the held-out tasks, whatever the distribution of the targets.

Tasks are exchangeable, rows are not.  Every task therefore has the same total weight (hierarchical conformal
prediction: Lee, Barber and Willett, 2023; Dunn, Wasserman and Ramdas, 2018).  A lower bound on the coverage would add one
unknown task beyond each end of the interval.  Half of it is added at each end, so that coverage is met on average.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record, cached_property
from .._utils.validation import check_divisor, check_shape
from ..tasks.episodes import LEAST_QUERY, SupportSampling
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet

#: Candidates for the weight of the average noise variance in the estimate of a task's own noise variance, in rows.  The
#: first means that all tasks have the same noise.
NOISE_ROWS = (1e6, 80.0, 20.0, 5.0, 1.5)
#: Each held-out task is drawn from several times, up to MAX_REPEATS, until ENOUGH_TASKS draws are reached.
MAX_REPEATS, ENOUGH_TASKS = 4, 400


def noise_variances(squares: Any, n_rows: Any, noise: float, noise_rows: float) -> Any:
    """Estimate the noise variance of each task from its squared residuals, shrunk towards the average ``noise``."""
    return (squares + noise_rows * noise) / (n_rows + noise_rows)


@dataclass(frozen=True)
class Calibration(Record):
    """Scores of held-out tasks at several numbers of support rows.

    A score is target minus prediction, divided by the implied standard deviation.  The weights of one level and half a
    task more add up to one.
    """

    rows: Array  # (L,) the numbers of support rows, increasing
    scores: list[Array]  # L arrays, sorted
    weights: list[Array]  # L arrays
    noise: float  # mean squared error, which stabilises `noise_variances`
    noise_rows: float = 5.0  # its weight there, in rows

    def __post_init__(self) -> None:
        check_shape("rows", self.rows, None)
        check_divisor("noise", self.noise)
        check_divisor("noise_rows", self.noise_rows)
        if not len(self.rows) or self.rows[0] < 0 or (np.diff(self.rows) <= 0).any():
            raise ValueError("rows: must be increasing numbers of rows")
        if not len(self.rows) == len(self.scores) == len(self.weights):
            raise ValueError("scores: must have one array, and one of weights, for each number of rows")
        for scores, weights in zip(self.scores, self.weights, strict=True):
            check_shape("scores", scores, None)
            check_shape("weights", weights, len(scores))
            if not len(scores) or (np.diff(scores) < 0).any():
                raise ValueError("scores: must be sorted")
            if (weights < 0).any() or not 0.0 < weights.sum() <= 1.0 + 1e-6:
                raise ValueError("weights: must be positive and add up to at most one")

    @cached_property
    def _multiples(self) -> dict[Any, tuple[list[float], bool]]:
        """The values of `multiples` so far: one task is predicted in less time than they take."""
        return {}

    def multiples(
        self, n_rows: int, coverage: float | None, quantile: float | None
    ) -> tuple[list[float], bool]:
        """Return lower end, upper end, std and quantile in standard deviations, and whether the ends are calibrated."""
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
        """Return the ends of an interval in standard deviations, for a task of ``n_rows`` support rows.

        Each side misses half of ``1 - coverage``.  Ends are infinite where there are too few tasks.
        """
        # Rounding of the sums must not decide whether an end is finite.
        enough = 0.5 + 0.5 * coverage - 1e-12
        ends = np.array([[-np.inf, np.inf]] * len(self.rows))
        for level, scores, (from_below, from_above) in zip(ends, self.scores, self._sums, strict=True):
            lower, upper = np.searchsorted(from_above, enough), np.searchsorted(from_below, enough)
            if lower < len(scores):
                level[0] = scores[-1 - lower]
            if upper < len(scores):
                level[1] = scores[upper]
        lower, upper = self._interpolate(n_rows, ends)
        return float(lower), float(upper)

    @cached_property
    def _sums(self) -> list[tuple[Array, Array]]:
        """Cumulative weights at each number of rows, from below and from above."""
        return [(np.cumsum(w), np.cumsum(w[::-1])) for w in self.weights]

    @cached_property
    def _midpoints(self) -> list[Array]:
        """Midpoints of the steps of the distribution function at each number of rows."""
        return [(sums - 0.5 * w) / w.sum() for (sums, _), w in zip(self._sums, self.weights, strict=True)]

    @cached_property
    def _squares(self) -> Array:
        """Mean squared score at each number of rows."""
        return np.array([s @ (w * s) / w.sum() for s, w in zip(self.scores, self.weights, strict=True)])

    def model_interval(self, n_rows: int, coverage: float) -> tuple[float, float]:
        """Return the ends that replace infinite ones: Gaussian, or the extreme scores where these are farther out."""
        share = 0.5 + 0.5 * coverage
        end = NormalDist().inv_cdf(share) * self.deviation(n_rows)
        return min(-end, self.quantile(n_rows, 1.0 - share)), max(end, self.quantile(n_rows, share))

    def quantile(self, n_rows: int, share: float) -> float:
        """Return the ``share``-quantile of the scores for a task of ``n_rows`` support rows."""
        levels = zip(self._midpoints, self.scores, strict=True)
        return float(self._interpolate(n_rows, np.array([np.interp(share, m, s) for m, s in levels])))

    def supports_quantile(self, share: float) -> bool:
        """Return whether there are enough tasks for the ``share``-quantile at every number of rows."""
        return all(1.0 - w.sum() <= min(share, 1.0 - share) + 1e-12 for w in self.weights)

    def deviation(self, n_rows: int) -> float:
        """Return the root mean square of the scores, which turns implied into actual standard deviations."""
        return float(np.sqrt(self._interpolate(n_rows, self._squares)))

    def _interpolate(self, n_rows: int, values: Array) -> Any:
        """Interpolate values (L, ..) of the numbers of rows linearly in log(1 + n)."""
        position = float(np.interp(np.log1p(n_rows), np.log1p(self.rows), np.arange(len(self.rows))))
        below, above = int(np.floor(position)), int(np.ceil(position))
        share = position - below
        # Infinite ends must not be multiplied by a share of zero.
        return values[below] if not share else (1.0 - share) * values[below] + share * values[above]


class Errors(NamedTuple):
    """Errors of query rows after adapting T tasks, in the scaling of the prior."""

    errors: Array  # (N,) target minus prediction
    variances: Array  # (N,) variance of the prediction in units of the noise variance
    task: NDArray[np.intp]  # (N,) positions of the rows' tasks
    squares: Array  # (T,) sums of squared residuals of the support rows
    n_rows: NDArray[np.int64]  # (T,) numbers of support rows

    def deviations(self, noise: float, noise_rows: float) -> Array:
        """Return the standard deviations of the errors that the posterior implies."""
        own = noise_variances(self.squares, self.n_rows, noise, noise_rows)[self.task]
        return np.asarray(np.sqrt(own * (1.0 + self.variances)))


def calibrate(
    held_out: Iterable[tuple[TaskSet, Any]],
    seed: list[int],
    sampling: SupportSampling,
    n_jobs: int | None = None,
) -> Calibration | None:
    """Collect scores on pairs of tasks and a prior that was not fitted to them; None where no task has a row.

    Each task is adapted to several numbers of its rows and predicts the others, as ``sampling`` says.  All priors have the
    same scaling.  Priors of cross-validation folds were fitted to fewer tasks than the prior in use: their errors are
    larger, and the intervals are slightly too wide.
    """
    pairs = [(tasks.single_rows(), prior) for tasks, prior in held_out if len(tasks)]
    sizes = np.concatenate([tasks.sizes for tasks, _ in pairs])
    n_repeats = 1 if sampling.in_order else max(1, min(MAX_REPEATS, ENOUGH_TASKS // len(sizes)))

    def errors(n_support: int, i: int) -> Errors:
        tasks, prior = pairs[i]
        episodes = sampling.query_all(tasks, n_support, [*seed, i], n_repeats)
        return prior.query_errors(episodes.support, episodes.query, n_jobs)

    levels = [(n, [errors(n, i) for i in range(len(pairs))]) for n in support_sizes(sizes, sampling)]
    return calibration_of(levels, n_repeats) if any(len(found.errors) for found in levels[-1][1]) else None


def calibration_of(levels: list[tuple[int, list[Errors]]], n_repeats: int = 1) -> Calibration:
    """Sort the scores at each of the increasing numbers of support rows."""
    noise = float(np.mean(np.concatenate([part.errors for part in levels[-1][1]]) ** 2))
    # Without any noise all scores are zero in any unit.
    noise = noise if noise > 1e-290 else 1.0
    errors, shares, weights = [], [], []
    for _, parts in levels:
        counts = [np.bincount(part.task, minlength=len(part.n_rows)) for part in parts]
        n_tasks = sum(np.count_nonzero(count) for count in counts)
        share = np.concatenate([1.0 / count[part.task] for part, count in zip(parts, counts, strict=True)])
        errors.append(np.concatenate([part.errors for part in parts]))
        shares.append(share / max(n_tasks, 1))
        weights.append(share / (n_tasks + 0.5 * n_repeats))

    def deviations(noise_rows: float) -> list[Array]:
        return [np.concatenate([part.deviations(noise, noise_rows) for part in parts]) for _, parts in levels]

    def log_loss(noise_rows: float) -> float:
        """Return the Gaussian log loss of the errors, with the best scale at each number of rows."""
        terms = zip(errors, shares, deviations(noise_rows), strict=True)
        return sum(
            float(w @ np.log(d)) + 0.5 * float(np.log(max(float(w @ (e / d) ** 2), 1e-290)))
            for e, w, d in terms
            if len(e)
        )

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


def support_sizes(sizes: NDArray[np.int64], sampling: SupportSampling) -> list[int]:
    """Return the numbers of support rows to calibrate at: 0, 1, 2, 4, .. and those that the user expects."""
    low, high = sampling.rows(sizes)
    size = float(np.median(sizes))
    last = round(max(high, size - LEAST_QUERY))
    doubling = [2**i for i in range(max(last, 1).bit_length()) if 2**i <= last / np.sqrt(2.0)]
    # One row at least remains to be predicted.
    most = max(int(sizes.max()) - 1, 0)
    return sorted({min(number, most) for number in (0, *doubling, round(low), round(high), last)})
