"""Tasks under a prior of many columns, factors plus a diagonal: only the columns that they use are touched.

For a `Prior` whose representation is `LowRank`.  Posterior means are in closed form, so that there is nothing to
solve; and what is open about a prediction is read off the factors' scores, a column's own deviation being taken as
open even where the task has seen it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._utils.records import Record
from ._utils.validation import check_cone, check_shape
from .gaussian.factors import FactorRows, Factors, posterior, row_means, row_variances, scaled_rows
from .gaussian.mixture import Want
from .intervals import own_noise
from .prior import Prior
from .representation import LowRank
from .tasks import TaskSet

Array = NDArray[np.float64]


def is_wide(prior: Prior) -> bool:
    """Whether its tasks are adapted here."""
    return isinstance(prior.conditioning, LowRank)


class Spreads(NamedTuple):
    """Of tasks, in the units of the prior: weights (T, d), and errors expected at rows of them."""

    weights: Array
    of_rows: FactorSpreads


@dataclass(frozen=True)
class FactorSpreads(Record):
    """What the spreads of rows are computed from when the support rows are gone.

    Attributes
    ----------
    n_rows, squares : arrays (T,)
        Numbers of support rows, and sums of their squared residuals.
    covariances : array (T, q, q)
        Of the factors' scores, in units of the noise.
    """

    n_rows: NDArray[np.int64]
    squares: Array
    covariances: Array

    def __post_init__(self) -> None:
        n, q = len(self.n_rows), self.covariances.shape[-1]
        check_shape("n_rows", self.n_rows, n)
        check_shape("squares", self.squares, n)
        check_shape("covariances", self.covariances, n, q, q)

    def restore(self) -> None:
        check_cone("covariances", self.covariances)
        if (self.n_rows < 0).any() or (self.squares < 0).any():
            raise ValueError("squares: squares and numbers of rows must not be negative")

    def variances(self, prior: Prior, X: Any, task: NDArray[np.intp]) -> Array:
        """Of predictions, in units of the noise, at rows X of the tasks at these positions."""
        rows = scaled_rows(X, prior.units)
        return np.maximum(row_variances(_factors(prior), rows, task, self.covariances), 0.0)

    def __call__(self, prior: Prior, X: Any, task: NDArray[np.intp], noise: float) -> Array:
        """The error expected at each row, in the units of the prior."""
        own = own_noise(self.squares, self.n_rows, noise)
        return np.sqrt(own[task] * (1.0 + self.variances(prior, X, task)))


def adapt(prior: Prior, tasks: TaskSet) -> Spreads:
    """Adapt tasks, whose targets are what the common part leaves."""
    side = None if prior.feature_map is None else prior.feature_map.transform(tasks)
    rows = FactorRows.of(tasks, prior.units, side)
    expected = posterior(rows, _factors(prior), want=Want(means=True, covariances=True))
    weights = expected.means[:, 0]
    return Spreads(weights, FactorSpreads(tasks.sizes, rows.squared_residuals(weights), expected.covariances))


def centres(prior: Prior, X: Any, task: NDArray[np.intp], weights: Array) -> Array:
    """``<x, w>`` at rows of the tasks at these positions, in the units of the prior."""
    return row_means(scaled_rows(X, prior.units), task, weights)


def representation(prior: Prior, task: TaskSet, columns: Any = None) -> Array:
    """θ of a task's raw columns, at some of them; all of them where there are few enough."""
    factor = float(prior.size_factors(task.sizes)[0])
    if columns is None or prior.units.shift.any():
        whole = prior.units.raw_representation(factor * prior.conditioning(np.zeros(0)))
        return np.array(whole if columns is None else whole[np.ix_(columns, columns)])
    at = np.arange(prior.conditioning.n_features)[columns]
    scale = 1.0 / prior.units.columns[at]
    return np.asarray(factor * prior.conditioning(np.zeros(0), at) * np.outer(scale, scale))


def _factors(prior: Prior) -> Factors:
    """Return the prior of the coefficients in units of the noise."""
    conditioning, bias = prior.conditioning, prior.bias
    assert isinstance(conditioning, LowRank)
    effect = bias.linear if bias.conditional else np.zeros((len(bias.constant), conditioning.n_side))
    return Factors(bias.constant, conditioning.factors, conditioning.diagonal, 1.0, effect)
