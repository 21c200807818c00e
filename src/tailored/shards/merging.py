"""Statistics of tasks that were summed in several places: added up by label, and brought to other units."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..mixed_models import TaskStatistics
from ..tasks import Units
from ..tasks.pieces import grouped

Array = NDArray[np.float64]


class LabelledStatistics(NamedTuple):
    """Statistics of tasks, and the tasks' labels (T,)."""

    labels: np.ndarray
    statistics: TaskStatistics


def merge_statistics(parts: Iterable[LabelledStatistics]) -> LabelledStatistics:
    """The tasks of all parts, in the order in which their labels first appear, with the sums of their statistics.

    Parts are added in their order, so that the same parts give the same bits.
    """
    parts = list(parts)
    grouping = grouped([part.labels for part in parts])
    order = np.argsort(grouping.codes, kind="stable")
    starts = np.searchsorted(grouping.codes[order], np.arange(len(grouping.labels)))

    def sums(name: str) -> Any:
        values = np.concatenate([getattr(part.statistics, name) for part in parts])
        return np.add.reduceat(values[order], starts, axis=0)

    side = None
    if parts[0].statistics.side is not None:
        side = np.concatenate([part.statistics.side for part in parts])[grouping.first]
    found = TaskStatistics(sums("gram"), sums("cross"), sums("square"), sums("sizes"), side)
    return LabelledStatistics(grouping.labels, found)


def in_units(statistics: TaskStatistics, have: Units, want: Units) -> TaskStatistics:
    """Statistics of the same rows in other units; ``have`` is with the constant column, which shifts are made of.

    Nothing cancels where both shift the columns by about their means.
    """
    assert have.fit_intercept
    last = statistics.n_features - 1
    A = np.diag(have.columns / np.append(want.columns[:last], 1.0))
    A[:last, last] = (have.shift[:last] - want.shift[:last]) / want.columns[:last]
    if not want.fit_intercept:
        A = A[:last]
    a = have.target / want.target
    c = (have.target_shift - want.target_shift) / want.target
    totals, constant = statistics.cross[:, last], statistics.gram[:, :, last]
    return TaskStatistics(
        np.matmul(np.matmul(A, statistics.gram), A.T),
        (a * statistics.cross + c * constant) @ A.T,
        np.maximum(a * a * statistics.square + 2.0 * a * c * totals + c * c * statistics.sizes, 0.0),
        statistics.sizes,
        statistics.side,
    )
