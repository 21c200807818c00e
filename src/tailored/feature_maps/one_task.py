"""The features of `PosteriorMap` for a single task.

A task of forty rows is little arithmetic, and the batched routines spend it in calls: per component, per level
and per block of features.  Here the model is laid out once as a few flat arrays, so that a task takes one
matrix product, one compiled loop over the components, and one more product for all levels together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..mixed_models import Mixture
from ..mixed_models.kernels import component_posteriors, first_pass, summarise
from ..tasks import Units
from .summaries import NOISE_ROWS, Level

Array = NDArray[np.float64]

_NOTHING = np.empty(0)


class _Statistics(NamedTuple):
    """XᵀX, Xᵀy, yᵀy and n of the task, and v(s)."""

    gram: Array
    cross: Array
    square: float
    n: int
    side: Array | None


@dataclass(frozen=True)
class _Summaries:
    """The summaries of L levels: ``(1, ψ_1, 1, ψ_2, ..) = matrix @ [w, 2L log noise levels, v] + constant``.

    ``noises`` (2L,) steady the noise levels, ``knots`` are the tips of the hat functions, and ``hat`` says by
    which of them an entry is multiplied.
    """

    matrix: Array
    constant: Array
    centres: Array
    noises: Array
    knots: list[float]
    hat: NDArray[np.intp]

    @classmethod
    def of(cls, levels: Sequence[Level], n_side: int) -> _Summaries | None:
        numbered = [(i, level.summary) for i, level in enumerate(levels)]
        summarised = [(i, summary) for i, summary in numbered if summary is not None]
        if not summarised:
            return None
        d, L, q = len(summarised[0][1].centre), len(summarised), n_side
        rows, constants, hat = [], [], []
        for at, (i, summary) in enumerate(summarised):
            m = len(summary.mean)
            matrix = np.zeros((1 + m, d + 2 * L + q))
            constant = np.zeros(1 + m)
            matrix[1 : 1 + d, :d] = summary.axes.T
            constant[1 : 1 + d] = -summary.centre @ summary.axes
            for j, column in enumerate((d + at, d + L + at)):
                matrix[1 + d + j, column] = 1.0 / summary.noise_deviation[j]
                constant[1 + d + j] = -summary.noise_mean[j] / summary.noise_deviation[j]
            matrix[3 + d :, d + 2 * L :] = np.eye(m - d - 2, q)
            matrix /= summary.norm
            constant[1:] = (constant[1:] - summary.mean) / summary.norm
            constant[0] = 1.0
            rows.append(matrix)
            constants.append(constant)
            hat += [i] * (1 + m)
        summaries = [summary for _, summary in summarised]
        noises = [summary.noise for summary in summaries] + [summary.spread for summary in summaries]
        return cls(
            np.vstack(rows),
            np.concatenate(constants),
            np.stack([summary.centre for summary in summaries]),
            NOISE_ROWS * np.array(noises),
            [log1p(level.rows) for level in levels],
            np.array(hat),
        )

    def __call__(self, task: _Statistics, weights: Array, images: Array) -> Array:
        """Products of the hats and the summaries; ``images`` are the centres times XᵀX."""
        summary = summarise(
            weights,
            task.gram,
            task.cross,
            task.square,
            task.n,
            _NOTHING if task.side is None else task.side,
            images,
            self.centres,
            self.noises,
            NOISE_ROWS,
            self.matrix,
            self.constant,
        )
        return np.asarray(self._hats(task.n)[self.hat] * summary)

    def _hats(self, n: int) -> Array:
        """All h_i(n), as `hats` has them."""
        knots, at = self.knots, log1p(n)
        out = np.zeros(len(knots))
        if len(knots) == 1 or at >= knots[-1]:
            out[-1] = 1.0
        else:
            after = max(bisect_right(knots, at), 1)
            out[after] = max((at - knots[after - 1]) / (knots[after] - knots[after - 1]), 0.0)
            out[after - 1] = 1.0 - out[after]
        return out


@dataclass(frozen=True)
class OneTask:
    """The arrays of a `PosteriorModel`, in its units.

    ``points`` stacks what is multiplied by XᵀX: the roots of all components as rows (those of component k are
    ``starts[k]:starts[k + 1]``), the K means, and the centres of the levels.  ``taus`` (K, d²) are the
    W_k / σ².
    """

    units: Units
    points: Array
    starts: NDArray[np.int64]
    means: Array
    gates: Array  # (K, 1 + q), or (K, 1) where the proportions are the same for all tasks
    averaged: bool
    noise: float
    slope: Array | None  # Γ
    taus: Array
    summaries: _Summaries | None

    @classmethod
    def of(
        cls,
        units: Units,
        mixture: Mixture,
        levels: Sequence[Level],
        n_side: int,
    ) -> OneTask:
        K, d = mixture.means.shape
        # A single component is certain, and its evidence is never asked for.
        roots = [L.T for L in mixture.roots] if K > 1 else []
        summaries = _Summaries.of(levels, n_side)
        centres = np.zeros((0, d)) if summaries is None else summaries.centres
        return cls(
            units,
            np.ascontiguousarray(np.vstack([*roots, mixture.means, centres])),
            np.cumsum([0, *(len(rows) for rows in roots)]),
            mixture.means,
            np.log(mixture.proportions)[:, None] if mixture.gates is None else mixture.gates,
            mixture.averaged and K > 1,
            mixture.noise,
            mixture.side,
            (mixture.covariances / mixture.noise).reshape(K, d * d),
            summaries,
        )

    def __call__(self, X: Array, y: Array, side: Array | None) -> Array:
        """φ (k,) of the task with dense rows X (n, d), y (n,) and features ``side`` (q,) of its description."""
        X, y = self.units.dense(X), self.units.targets(y)
        task = _Statistics(X.T @ X, y @ X, float(y @ y), len(y), side)
        images = self.points @ task.gram
        shift = None if self.slope is None or side is None else self.slope @ side
        r, mean, cross = self._posterior(task, images, shift)
        parts = [np.sqrt(r), r]
        if side is not None and (shift is not None or self.gates.shape[1] > 1):
            parts.append(side)
        if self.averaged or self.summaries is not None:
            d = len(self.units.columns)
            tau = (r @ self.taus).reshape(d, d)
        if self.averaged:
            parts.append(mean + tau @ (task.gram @ mean - cross) - r @ self.means)
        if self.summaries is not None:
            if self.averaged:
                weights = mean if shift is None else mean + shift
            else:
                b = r @ self.means if shift is None else r @ self.means + shift
                weights = first_pass(tau, b, task.gram, task.cross)
            centres = images[len(images) - len(self.summaries.centres) :]
            parts.append(self.summaries(task, weights, centres))
        return np.concatenate(parts)

    def _posterior(self, task: _Statistics, images: Array, shift: Array | None) -> tuple[Array, Array, Array]:
        """Responsibilities (K,), the posterior mean of w without Γv, and Xᵀy less what Γv predicts."""
        cross, square = task.cross, task.square
        if shift is not None:
            fitted = task.gram @ shift
            square = max(square + float((fitted - 2.0 * cross) @ shift), 0.0)
            cross = cross - fitted
        if len(self.means) == 1:
            return np.ones(1), self.means[0], cross
        args = images, self.points, self.starts, cross, square, task.n, self.noise
        joint, means = component_posteriors(*args)
        joint += self.gates[:, 0]
        if self.gates.shape[1] > 1 and task.side is not None:
            joint += self.gates[:, 1:] @ task.side
        r = np.exp(joint - joint.max())
        r /= r.sum()
        return r, r @ means, cross
