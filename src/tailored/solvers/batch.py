"""The training tasks as solvers see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..tasks import Rows
from ..tasks.rows import Index, joined

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TaskBatch:
    """What a pass needs of each task, in stream order.

    ``squared_scale`` is the mean of ‖φ‖² that φ is measured in.  Dividing φ by its root-mean-square norm c is
    the same as multiplying the step of H by c⁻⁴ and that of B by c⁻² with φ left as it is.  A `fit` knows all
    training tasks, and has one number for all of them; in a stream it is the running mean up to and including
    each task.  ``columns`` are the non-zero columns of sparse tasks.  ``lipschitz`` replaces the objective's
    constant task by task, for losses that have none of their own.
    """

    support: Rows
    query: Rows | None
    phis: Array
    squared_scale: Array
    columns: Sequence[Index] | None = None
    lipschitz: Array | None = None

    def __len__(self) -> int:
        return len(self.phis)

    def slice(self, start: int, stop: int) -> TaskBatch:
        return TaskBatch(
            self.support.tasks(start, stop),
            None if self.query is None else self.query.tasks(start, stop),
            self.phis[start:stop],
            self.squared_scale[start:stop],
            None if self.columns is None else self.columns[start:stop],
            None if self.lipschitz is None else self.lipschitz[start:stop],
        )

    def take(self, index: Index) -> TaskBatch:
        """The tasks at these positions, in this order."""
        return TaskBatch(
            self.support.take(index),
            None if self.query is None else self.query.take(index),
            self.phis[index],
            self.squared_scale[index],
            None if self.columns is None else [self.columns[t] for t in index],
            None if self.lipschitz is None else self.lipschitz[index],
        )


def concatenated(batches: Sequence[TaskBatch]) -> TaskBatch:
    """The tasks of several batches, one batch after the other."""
    if len(batches) == 1:
        return batches[0]
    queries = [batch.query for batch in batches if batch.query is not None]
    constants = [batch.lipschitz for batch in batches if batch.lipschitz is not None]
    return TaskBatch(
        joined([batch.support for batch in batches]),
        joined(queries) if queries else None,
        np.concatenate([batch.phis for batch in batches]),
        np.concatenate([batch.squared_scale for batch in batches]),
        [own for batch in batches for own in batch.columns or ()] or None,
        np.concatenate(constants) if constants else None,
    )


def mean_square(phis: Array) -> float:
    """Mean of ‖φ‖² over the tasks: with it as ``squared_scale``, φ acts as if its root mean square were one."""
    return float(np.einsum("tk,tk->", phis, phis) / max(len(phis), 1))
