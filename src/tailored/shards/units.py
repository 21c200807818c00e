"""Statistics of tasks that were summed elsewhere, brought to other units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..gaussian import TaskStatistics
from ..tasks import Units

Array = NDArray[np.float64]


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
