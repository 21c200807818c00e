"""Prediction intervals of adapted tasks: conformal prediction over tasks.

A row of a new task is predicted with an error that is compared with its *spread*, what the representation
expects it to be.  How many spreads an interval must reach is counted on tasks that the learner was not fitted
to: a new task is one more draw from the same environment, so its rows miss as often as theirs do, whatever
the targets' distribution.  Tasks, not rows, are exchangeable, so every task has the same say (hierarchical
conformal prediction: Lee, Barber and Willett, 2023; Dunn, Wasserman and Ramdas, 2018).  One more task, which could be
anything, would be added on either side for a bound from below; it lies on one side only, and half of it on each
meets the coverage on average instead, which a few dozen tasks would exceed by several percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ._utils.algebra import solve
from ._utils.records import Record
from ._utils.validation import check_cone, check_divisor, check_shape

Array = NDArray[np.float64]

#: Rows of average noise that steady the estimate of a task's own noise.
NOISE_ROWS = 5.0
#: Floats of covariances that are looked up at a time (64 MB).
MOST_FLOATS = 8_000_000


def posterior_covariance(X: Array, theta: Array) -> Array:
    """Covariance (d, d) of the weights in units of the noise variance, given support rows ``X`` (n, d).

    That of a Gaussian prior of covariance θ/n in these units, ``(I + θXᵀX/n)⁻¹ θ / n``; the prior's own, θ, without
    rows.  Here and below, any number of tasks with n rows each may stand in axes before these.
    """
    n, d = X.shape[-2:]
    return theta if n == 0 else solve(np.eye(d) + theta @ (np.swapaxes(X, -1, -2) @ X) / n, theta) / n


def uncertainty(X: Array, theta: Array, x: Array) -> Array:
    """Variance of each prediction ``<x, w>`` in the same units, by the shorter way."""
    n, d = X.shape[-2:]
    if 0 < n < d:
        # The same by an n × n system: θ/n − θXᵀ (nI + XθXᵀ)⁻¹ Xθ/n.
        across = X @ theta
        seen = across @ np.swapaxes(x, -1, -2)
        solved = solve(across @ np.swapaxes(X, -1, -2) + n * np.eye(n), seen)
        variance = (np.sum((x @ theta) * x, axis=-1) - np.sum(seen * solved, axis=-2)) / n
    else:
        variance = np.sum((x @ posterior_covariance(X, theta)) * x, axis=-1)
    return np.maximum(variance, 0.0)


def spreads(
    X: Array, y: Array, theta: Array, weights: Array, x: Array, noise: float, n_rows: int | None = None
) -> Array:
    """The error expected at each row of ``x``: the task's own noise level, widened by the `uncertainty`.

    ``n_rows`` is the number of rows of the task, where ``X`` and ``y`` are others with the same second moments.
    """
    if n_rows is not None:
        # θ stands for the prior covariance θ/n: the same for as many rows as there are here.
        theta = theta * (X.shape[-2] / max(n_rows, 1)) if n_rows else theta
    own = own_noise(
        np.sum((y - _predicted(X, weights)) ** 2, axis=-1), X.shape[-2] if n_rows is None else n_rows, noise
    )
    return np.sqrt(own[..., None] * (1.0 + uncertainty(X, theta, x)))


def _predicted(X: Array, weights: Array) -> Array:
    return np.matmul(X, weights[..., None])[..., 0]


def own_noise(squares: Any, n_rows: Any, noise: float) -> Any:
    """Noise variance of a task: the mean of its squared residuals and of some that are average."""
    return (squares + NOISE_ROWS * noise) / (n_rows + NOISE_ROWS)


@dataclass(frozen=True)
class TaskSpreads(Record):
    """What `spreads` has to know of many tasks when their rows are gone.

    Attributes
    ----------
    n_rows, squares : arrays (T,)
        Numbers of support rows, and sums of their squared residuals.
    covariances : array (T, d, d)
        `posterior_covariance` of each task.
    """

    n_rows: NDArray[np.int64]
    squares: Array
    covariances: Array

    def __post_init__(self) -> None:
        n, d = len(self.n_rows), self.covariances.shape[-1]
        check_shape("n_rows", self.n_rows, n)
        check_shape("squares", self.squares, n)
        check_shape("covariances", self.covariances, n, d, d)

    def restore(self) -> None:
        check_cone("covariances", self.covariances)
        if (self.n_rows < 0).any() or (self.squares < 0).any():
            raise ValueError("squares: squares and numbers of rows must not be negative")

    def __call__(self, task: NDArray[np.intp], x: Array, noise: float) -> Array:
        """`spreads` of rows ``x`` (n, d) of the tasks at the positions ``task`` (n,)."""
        own = own_noise(self.squares, self.n_rows, noise)[task]
        return np.asarray(np.sqrt(own * (1.0 + np.maximum(self.variance(task, x), 0.0))))

    def variance(self, task: NDArray[np.intp], x: Array) -> Array:
        """Variance of the predictions of these rows, in units of the noise."""
        variance = np.empty(len(task))
        at_once = max(1, MOST_FLOATS // max(x.shape[1] ** 2, 1))
        for start in range(0, len(task), at_once):
            rows = slice(start, start + at_once)
            images = np.matmul(x[rows, None, :], self.covariances[task[rows]])[:, 0]
            variance[rows] = np.einsum("ij,ij->i", images, x[rows])
        return variance


@dataclass(frozen=True)
class Calibration(Record):
    """Errors of tasks that were not learned from, in spreads, at several numbers of support rows.

    Attributes
    ----------
    rows : array (L,)
        The numbers of support rows, increasing.
    scores, weights : lists of L arrays
        Sorted signed errors (target minus prediction, over spread); the weights of all tasks and of half a task more,
        the half of a new one that could lie beyond either end, add up to one.
    noise : float
        Mean square of the errors, steadying `spreads`.
    """

    rows: Array
    scores: list[Array]
    weights: list[Array]
    noise: float

    def __post_init__(self) -> None:
        check_shape("rows", self.rows, None)
        check_divisor("noise", self.noise)
        if not len(self.rows) or self.rows[0] < 0 or (np.diff(self.rows) <= 0).any():
            raise ValueError("rows: must be increasing numbers of rows")
        if not len(self.rows) == len(self.scores) == len(self.weights):
            raise ValueError("scores: must have one array, and one of weights, for each number of rows")
        for scores, weights in zip(self.scores, self.weights, strict=True):
            check_shape("weights", weights, len(scores))
            if not len(scores) or (np.diff(scores) < 0).any():
                raise ValueError("scores: must be sorted")
            if (weights < 0).any() or not 0.0 < weights.sum() <= 1.0 + 1e-6:
                raise ValueError("weights: must be positive and add up to at most one")

    def reach(self, n_rows: int, coverage: float) -> tuple[float, float]:
        """How many spreads below and above the prediction an interval goes, for a task of ``n_rows`` rows.

        Each side misses half of what may be missed; infinite where there are too few tasks to count that.
        """
        miss = 0.5 * (1.0 - coverage)
        levels = zip(self.scores, self.weights, strict=True)
        low, high = self._between(n_rows, np.array([_ends(s, w, miss) for s, w in levels]))
        return float(low), float(high)

    def quantile(self, n_rows: int, share: float) -> float:
        """How many spreads above the prediction a ``share`` of the targets ends, for a task of ``n_rows`` rows."""
        found = []
        for scores, weights in zip(self.scores, self.weights, strict=True):
            # Middles of the steps: the same share below as above one score, whichever the direction.
            middles = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
            found.append(float(np.interp(share, middles, scores)))
        return float(self._between(n_rows, np.array(found)))

    def counts(self, share: float) -> bool:
        """Whether tasks are enough to count a ``share`` from either side, at every number of rows."""
        return all(1.0 - w.sum() <= min(share, 1.0 - share) + 1e-12 for w in self.weights)

    def deviation(self, n_rows: int) -> float:
        """Root mean square of the errors in spreads: what makes a spread a standard deviation."""
        levels = zip(self.scores, self.weights, strict=True)
        squares = np.array([s @ (w * s) / w.sum() for s, w in levels])
        # Targets without any noise have no errors to count.
        return float(np.sqrt(self._between(n_rows, squares)))

    def _between(self, n_rows: int, values: Array) -> Any:
        """Values (L, ..) of the levels, interpolated in log(1 + n)."""
        place = float(np.interp(np.log1p(n_rows), np.log1p(self.rows), np.arange(len(self.rows))))
        below, above = int(np.floor(place)), int(np.ceil(place))
        share = place - below
        # An infinite end must not be multiplied by a share of zero.
        return values[below] if not share else (1.0 - share) * values[below] + share * values[above]

    def own_reach(self, n_rows: int, coverage: float) -> tuple[float, float]:
        """Where `reach` is infinite: a Gaussian's of the same `deviation`, or what the few tasks needed if that is more."""
        share = 0.5 + 0.5 * coverage
        own = NormalDist().inv_cdf(share) * self.deviation(n_rows)
        return min(-own, self.quantile(n_rows, 1.0 - share)), max(own, self.quantile(n_rows, share))


def _ends(scores: Array, weights: Array, miss: float) -> tuple[float, float]:
    """The least score that at most ``miss`` lies above, and the same from below; infinite if there is none."""
    # Rounding of the sums must not decide whether an end is finite.
    enough = 1.0 - miss - 1e-12
    from_below, from_above = np.cumsum(weights), np.cumsum(weights[::-1])
    high = int(np.searchsorted(from_below, enough))
    low = int(np.searchsorted(from_above, enough))
    return (
        float(scores[::-1][low]) if low < len(scores) else -np.inf,
        float(scores[high]) if high < len(scores) else np.inf,
    )


class Adapted(NamedTuple):
    """Calibration tasks of n support and q query rows each: (m, n, d), (m, n); θ (m, d, d), w (m, d); (m, q, d), (m, q)."""

    X: Array
    y: Array
    theta: Array
    weights: Array
    query_X: Array
    query_y: Array

    @property
    def errors(self) -> Array:
        """Target minus prediction of the query rows, (m, q)."""
        return self.query_y - _predicted(self.query_X, self.weights)

    def spreads(self, noise: float) -> Array:
        """The errors expected, (m, q)."""
        return spreads(self.X, self.y, self.theta, self.weights, self.query_X, noise)


class Asked(Protocol):
    """Calibration tasks with q query rows each: how far they were missed, and by how much they could be."""

    @property
    def errors(self) -> Array: ...

    def spreads(self, noise: float) -> Array: ...


def calibrate(levels: Sequence[tuple[int, Sequence[Asked]]], n_repeats: int = 1) -> Calibration:
    """Scores of tasks, each given ``n_repeats`` times per level: numbers of rows, increasing, and adapted tasks."""
    errors = [[tasks.errors for tasks in groups] for _, groups in levels]
    noise = float(np.mean(np.concatenate([found.ravel() for found in errors[-1]]) ** 2))
    # Targets without any noise have no scale: any will do for a score of zero.
    noise = noise if noise > 0 else 1.0
    scores, weights = [], []
    for (_, groups), missed in zip(levels, errors, strict=True):
        n_tasks = sum(len(found) for found in missed)
        pairs = list(zip(groups, missed, strict=True))
        found = [m / t.spreads(noise) for t, m in pairs]
        score = np.concatenate([part.ravel() for part in found])
        share = np.concatenate([np.full(part.size, 1.0 / part.shape[1]) for part in found])
        order = np.argsort(score, kind="stable")
        scores.append(score[order])
        weights.append(share[order] / (n_tasks + 0.5 * n_repeats))
    return Calibration(np.array([float(rows) for rows, _ in levels]), scores, weights, noise)
