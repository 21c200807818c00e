"""What EM asks of tasks: sums over them, whatever holds the tasks.

Given the parameters of a model, tasks answer with K d² numbers that add up: whether they are an array in memory, blocks
on a disk, on the workers of a cluster or on a GPU is not EM's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Responsibilities at most this are those of components that a task has left.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Totals:
    """What does not depend on a model: the number of tasks and rows, and yᵀy, Xᵀy and XᵀX of all rows."""

    n_tasks: int
    n_rows: float
    square: float
    cross: Array
    gram: Array

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.n_tasks + other.n_tasks,
            self.n_rows + other.n_rows,
            self.square + other.square,
            self.cross + other.cross,
            self.gram + other.gram,
        )

    def times(self, factor: float) -> Totals:
        """Of so many times as many tasks like these."""
        return Totals(
            round(factor * self.n_tasks),
            factor * self.n_rows,
            factor * self.square,
            factor * self.cross,
            factor * self.gram,
        )

    def squared_residuals(self, b: Array) -> float:
        """‖y − Xb‖² over all rows."""
        return max(self.square + float((self.gram @ b - 2.0 * self.cross) @ b), 0.0)


@dataclass(frozen=True)
class Moments:
    """What a step of EM needs of tasks, under a mixture of K components with means b_k.

    Attributes
    ----------
    log_evidence : float
        Of all tasks.
    counts : array (K,)
        Responsibilities.
    first : array (K, d)
        Σ_t r_tk (m_tk − b_k), m the posterior mean of a task's weights.
    second : array (K, d, d)
        Σ_t r_tk E(w − b_k)(w − b_k)ᵀ: about the means, because sums about zero would cancel.
    residual : float
        Σ_tk r_tk E‖y − Xw‖².
    """

    log_evidence: float
    counts: Array
    first: Array
    second: Array
    residual: float

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.log_evidence + other.log_evidence,
            self.counts + other.counts,
            self.first + other.first,
            self.second + other.second,
            self.residual + other.residual,
        )

    def times(self, factor: float) -> Moments:
        """Of so many times as many tasks like these."""
        return Moments(
            factor * self.log_evidence,
            factor * self.counts,
            factor * self.first,
            factor * self.second,
            factor * self.residual,
        )


class Summed(NamedTuple):
    """Moments, and the responsibilities (T, K) behind them.

    The latter stay where the tasks are and are EM's to hand back: tasks need not be asked again about the components
    that they have left.  None where they are not kept.
    """

    moments: Moments
    responsibilities: Any = None


class Model(Protocol):
    """What tasks are asked about: see `Mixture`."""

    def summed(self, statistics: Any, among: NDArray[np.bool_] | None = None) -> Summed:
        """Sums over a block of tasks in memory; ``among`` (T, K) says which components they are asked about."""


class Source(Protocol):
    """Tasks that EM can learn from."""

    @property
    def n_features(self) -> int: ...

    def totals(self) -> Totals:
        """Sums that need no model."""

    def moments(self, model: Model, responsibilities: Any = None) -> Summed:
        """Sums under a model; earlier ``responsibilities`` say which components the tasks are asked about."""
