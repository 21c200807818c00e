"""Shifts of the prior mean that were learned on query rows.

A shift of the prior mean moves the weights of a task without rows fully, and those of a task with many rows hardly at all.
One linear map is therefore learned for each of a few support sizes, and interpolated between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record
from .._utils.validation import check_shape
from ..feature_maps.posterior import TaskSummary
from ..gaussian.rows import Tasks

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MeanShift(Record):
    """The shift ``B (1, ψ(s))`` of the prior mean of tasks with about ``rows`` support rows.

    Attributes
    ----------
    rows : float
    B : array (d, 1 + m) or None
        None for no shift.
    summary : TaskSummary or None
        Computes the summary ψ(s), (m,), of a task's rows; None for no shift.
    """

    rows: float
    B: Array | None = None
    summary: TaskSummary | None = None

    def check_shapes(self, d: int, q: int) -> None:
        """Raise ValueError unless this shifts d weights, given q features of side information."""
        if (self.B is None) != (self.summary is None):
            raise ValueError("B: a shift needs both B and summary")
        if self.B is not None and self.summary is not None:
            self.summary.check_shapes(d, q)
            check_shape("B", self.B, d, 1 + len(self.summary.mean))


def mean_shifts(shifts: Sequence[MeanShift], statistics: Tasks, weights: Array) -> Array | None:
    """Return the shift of each task's prior mean, (T, d), given its weights without shifts; None if all are zero."""
    if all(shift.B is None for shift in shifts):
        return None
    total = None
    for shift, height in zip(shifts, interpolation(shifts, statistics.sizes), strict=True):
        if shift.B is None or not height.any():
            continue
        assert shift.summary is not None
        psi = shift.summary(statistics, weights)
        added = height[:, None] * (shift.B[:, 0] + psi @ shift.B[:, 1:].T)
        total = added if total is None else total + added
    return total


def interpolation(shifts: Sequence[MeanShift], sizes: NDArray[np.int64] | Array) -> Array:
    """Return the factors (L, T) of the shifts in a linear interpolation in log(1 + n)."""
    knots = np.log1p([shift.rows for shift in shifts])
    return np.array([np.interp(np.log1p(sizes), knots, tip) for tip in np.eye(len(knots))])
