"""Prediction intervals of adapted tasks: conformal prediction over tasks.

A row of a new task is predicted with an error that is compared with its *spread*, what the representation
expects it to be.  How many spreads an interval must reach is counted on tasks that the learner was not fitted
to: a new task is one more draw from the same environment, so its rows miss as often as theirs do, whatever
the targets' distribution.  Tasks, not rows, are exchangeable, so every task has the same say and one more task
that could be anything is added (hierarchical conformal prediction: Lee, Barber and Willett, 2023; Dunn,
Wasserman and Ramdas, 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Rows of average noise that steady the estimate of a task's own noise.
NOISE_ROWS = 5.0
#: Share of the query rows on which the model in use is nearer to the held-out one than the ends are moved.
#: Where targets take few values, many scores are nearly equal, and a small drift would let all of them out.
DRIFT = 0.9


def uncertainty(X: Array, theta: Array, x: Array) -> Array:
    """Variance of each prediction ``<x, w>`` in units of the noise variance, given support rows ``X`` (n, d).

    That of a Gaussian prior of covariance θ/n in these units: ``xᵀ (I + θXᵀX/n)⁻¹ θ x / n``; the prior's own,
    xᵀθx, without rows.
    """
    n, d = X.shape
    if n == 0:
        return np.einsum("ij,ij->i", x @ theta, x)
    if n < d:
        # The same by an n × n system: θ/n − θXᵀ (nI + XθXᵀ)⁻¹ Xθ/n.
        across = X @ theta
        seen = across @ x.T
        solved = np.linalg.solve(across @ X.T + n * np.eye(n), seen)
        variance = (np.einsum("ij,ij->i", x @ theta, x) - np.einsum("ij,ij->j", seen, solved)) / n
    else:
        posterior = np.linalg.solve(np.eye(d) + theta @ (X.T @ X) / n, theta) / n
        variance = np.einsum("ij,ij->i", x @ posterior, x)
    return np.maximum(variance, 0.0)


def spreads(X: Array, y: Array, theta: Array, weights: Array, x: Array, noise: float) -> Array:
    """The error expected at each row of ``x``: the task's own noise level, widened by the `uncertainty`."""
    own = (np.sum((y - X @ weights) ** 2) + NOISE_ROWS * noise) / (len(y) + NOISE_ROWS)
    return np.sqrt(own * (1.0 + uncertainty(X, theta, x)))


@dataclass(frozen=True)
class Calibration:
    """Errors of tasks that were not learned from, in spreads, at several numbers of support rows.

    Attributes
    ----------
    rows : array (L,)
        The numbers of support rows, increasing.
    scores, weights : lists of L arrays
        Sorted signed errors (target minus prediction, over spread); the weights of all tasks and of one more,
        which could be anything, add up to one.
    noise : float
        Mean square of the errors, steadying `spreads`.
    drifts : array (L,)
        How many spreads lie between the predictions of the model whose errors these are and of the model that
        intervals are for; ends are moved out by so much.  Zero where the two are the same.
    """

    rows: Array
    scores: list[Array]
    weights: list[Array]
    noise: float
    drifts: Array

    def reach(self, n_rows: int, coverage: float) -> tuple[float, float]:
        """How many spreads below and above the prediction an interval goes, for a task of ``n_rows`` rows.

        Each side misses half of what may be missed.  Between the numbers of rows of the calibration the
        reach is interpolated in log(1 + n).
        """
        ends = np.array(
            [_ends(s, w, 0.5 * (1.0 - coverage)) for s, w in zip(self.scores, self.weights, strict=True)]
        )
        ends += self.drifts[:, None] * [-1.0, 1.0]
        place = float(np.interp(np.log1p(n_rows), np.log1p(self.rows), np.arange(len(self.rows))))
        below, above = int(np.floor(place)), int(np.ceil(place))
        share = place - below
        # An infinite end must not be multiplied by a share of zero.
        mixed = ends[below] if not share else (1.0 - share) * ends[below] + share * ends[above]
        return float(mixed[0]), float(mixed[1])

    def own_reach(self, n_rows: int, coverage: float) -> tuple[float, float]:
        """The model's own reach, a Gaussian's, and at least that of any calibration task: where `reach` is infinite."""
        own = NormalDist().inv_cdf(0.5 + 0.5 * coverage)
        scores = np.concatenate(self.scores)
        low, high = (end if np.isfinite(end) else 0.0 for end in self.reach(n_rows, coverage))
        return min(low, -own, float(scores.min())), max(high, own, float(scores.max()))


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


@dataclass(frozen=True)
class Adapted:
    """One calibration task: support rows, what was adapted on them, and query rows with their targets.

    ``later`` are the weights that the model in use gives the task, where it is not the one that was held out.
    """

    X: Array
    y: Array
    theta: Array
    weights: Array
    query_X: Array
    query_y: Array
    later: Array | None = None


def calibrate(levels: Sequence[tuple[int, Sequence[Adapted]]]) -> Calibration:
    """Scores of tasks, each given once per level: numbers of support rows, increasing, and adapted tasks."""
    errors = [[task.query_y - task.query_X @ task.weights for task in tasks] for _, tasks in levels]
    noise = float(np.mean(np.concatenate(errors[-1]) ** 2))
    # Targets without any noise have no scale: any will do for a score of zero.
    noise = noise if noise > 0 else 1.0
    scores, weights, drifts = [], [], []
    for (_, tasks), missed in zip(levels, errors, strict=True):
        spread = [spreads(t.X, t.y, t.theta, t.weights, t.query_X, noise) for t in tasks]
        score = np.concatenate(missed) / np.concatenate(spread)
        sizes = np.array([len(error) for error in missed])
        order = np.argsort(score, kind="stable")
        scores.append(score[order])
        weights.append(np.repeat(1.0 / (sizes * (len(tasks) + 1)), sizes)[order])
        drifts.append(_drift(tasks, spread))
    return Calibration(
        np.array([float(rows) for rows, _ in levels]), scores, weights, noise, np.array(drifts)
    )


def _drift(tasks: Sequence[Adapted], spread: list[Array]) -> float:
    """The `DRIFT` quantile of the distance between two models' predictions, in spreads."""
    moved = [
        np.abs(task.query_X @ (task.later - task.weights)) / width
        for task, width in zip(tasks, spread, strict=True)
        if task.later is not None
    ]
    return float(np.quantile(np.concatenate(moved), DRIFT)) if moved else 0.0
