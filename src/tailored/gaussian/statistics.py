"""What a Gaussian model needs to know of a task: XᵀX, Xᵀy, yᵀy and the number of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from ..tasks import TaskSet, Units
from ..tasks.rows import BATCH_FLOATS, Rows, dense, frozen, predictions
from .dual import Stack, stacked
from .moments import NEGLIGIBLE, Model, Summed, Totals
from .passes import CHUNK
from .row_kernels import second_moments

Array = NDArray[np.float64]

#: Floats that the second moments of all tasks may take (1 GB).
LARGEST_STATISTICS = 125_000_000
#: Floats of XᵀX of the tasks that go through a step of EM together, in one thread.
BLOCK_FLOATS = 1 << 18
#: Columns up to which a compiled loop over all rows is faster than a matrix product for each task.
COMPILED_COLUMNS = 64
#: Where there are more columns than that: rows of a task that go by n × n systems, relative to its columns.
ROWS_PER_COLUMN = 0.5


@dataclass(frozen=True)
class TaskStatistics:
    """Sufficient statistics of T tasks under ``y = Xw + Gaussian noise``, whatever their sizes.

    Attributes
    ----------
    gram : array (T, d, d)
        XᵀX.
    cross : array (T, d)
        Xᵀy.
    square : array (T,)
        yᵀy.
    sizes : array (T,)
        Rows n, as floats.
    side : array (T, q), optional
        Features v(s) of the tasks that a prior mean may be linear in.
    rows : Rows, optional
        The rows themselves, where they are few beside the columns: passes then take n × n systems.
    n_threads : int
        Threads that a pass over these tasks takes; results are the same bits for any number.
    """

    gram: Array
    cross: Array
    square: Array
    sizes: Array
    side: Array | None = None
    rows: Rows | None = None
    n_threads: int = 1

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def n_features(self) -> int:
        return self.cross.shape[1]

    @property
    def n_rows(self) -> float:
        """Rows of all tasks (1 when there are none, because it is divided by)."""
        return max(float(self.sizes.sum()), 1.0)

    @classmethod
    def of(cls, tasks: TaskSet, units: Units, side: Array | None = None) -> TaskStatistics:
        """Statistics of the tasks' rows in these units, each from its own rows alone."""
        T, d = len(tasks), len(units.columns)
        if T * d * d > LARGEST_STATISTICS:
            raise ValueError(
                f"X: the second moments of {T} tasks with {d} columns take {8e-9 * T * d * d:.1f} GB, and at most "
                f"{8e-9 * LARGEST_STATISTICS:.1f} GB are formed"
            )
        gram, cross, square = np.empty((T, d, d)), np.empty((T, d)), np.empty(T)
        start = 0
        while start < T:
            # As many tasks as have their rows in a batch, or one.
            last = tasks.offsets[start] + BATCH_FLOATS // d
            stop = max(int(np.searchsorted(tasks.offsets, last, side="right")) - 1, start + 1)
            some, part = tasks[start:stop], slice(start, stop)
            if d <= COMPILED_COLUMNS:
                given = frozen(dense(some.X)), frozen(some.y), frozen(some.offsets, np.int64)
                second_moments(*given, *units.change, gram[part], cross[part], square[part])
            else:
                X, y = units.dense(some.X), units.targets(some.y)
                for t, (first, end) in enumerate(pairwise(some.offsets), start):
                    np.matmul(X[first:end].T, X[first:end], out=gram[t])
                    cross[t] = X[first:end].T @ y[first:end]
                    square[t] = y[first:end] @ y[first:end]
            start = stop
        rows = None
        if d > COMPILED_COLUMNS and len(tasks.y) < ROWS_PER_COLUMN * T * d:
            rows = Rows(units.dense(tasks.X), units.targets(tasks.y), tasks.offsets)
        return cls(gram, cross, square, tasks.sizes.astype(float), side, rows)

    @cached_property
    def stacks(self) -> list[Stack]:
        """The rows of tasks that have equally many."""
        assert self.rows is not None
        return stacked(self.rows)

    def totals(self) -> Totals:
        """Sums over all tasks."""
        return Totals(
            len(self),
            float(self.sizes.sum()),
            float(self.square.sum()),
            self.cross.sum(axis=0),
            self.gram.sum(axis=0),
        )

    def moments(self, model: Model, responsibilities: Array | None = None) -> Summed:
        """The sums of a step of EM."""
        return model.summed(self, None if responsibilities is None else responsibilities > NEGLIGIBLE)

    def blocks(self) -> list[slice]:
        """Tasks that are summed together: which they are depends on nothing but their number and size."""
        size = max(1, BLOCK_FLOATS // self.n_features**2 // CHUNK) * CHUNK
        return [slice(start, start + size) for start in range(0, max(len(self), 1), size)]

    def take(self, index: NDArray[np.intp] | slice) -> TaskStatistics:
        """The tasks at these positions."""
        side = None if self.side is None else self.side[index]
        rows = None if self.rows is None else self.rows.take(np.arange(len(self))[index])
        sums = self.gram[index], self.cross[index], self.square[index], self.sizes[index]
        return TaskStatistics(*sums, side, rows, self.n_threads)

    def shifted(self, weights: Array) -> TaskStatistics:
        """The same tasks with ``y − Xw`` for targets, w one of ``weights`` (T, d) for each."""
        fitted = np.matmul(self.gram, weights[:, :, None])[:, :, 0]
        square = np.maximum(self.square + np.einsum("td,td->t", fitted - 2.0 * self.cross, weights), 0.0)
        rows = self.rows
        if rows is not None:
            rows = rows._replace(y=rows.y - predictions(rows, weights))
        return replace(self, cross=self.cross - fitted, square=square, rows=rows)

    def squared_residuals(self, weights: Array) -> Array:
        """‖y − Xw‖² of each task, (T,), for one w (d,) or one for each task (T, d)."""
        if weights.ndim == 2:
            return self.shifted(weights).square
        fitted = (self.gram.reshape(-1, self.n_features) @ weights).reshape(self.cross.shape)
        return np.maximum(self.square + (fitted - 2.0 * self.cross) @ weights, 0.0)
