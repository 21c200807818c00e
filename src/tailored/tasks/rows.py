"""The rows of many tasks as numerical code sees them: clean float64 arrays, one task after the other.

Here stand the few operations that every part of the library needs on them: the constant column of an intercept,
the prediction of each row by its own task's weights, and the error of each task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ._task_set import TaskSet

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Floats that one array over a batch of tasks may take (64 MB).
BATCH_FLOATS = 8_000_000


class Rows(NamedTuple):
    """Rows of several tasks: flat ``X`` (N, d), dense or CSR, ``y`` (N,), and ``offsets`` (T + 1,)."""

    X: Any
    y: Array
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, tasks: TaskSet, fit_intercept: bool = False) -> Self:
        """The rows of a task set, with the constant column where there is an intercept."""
        X = tasks.X
        if fit_intercept:
            if tasks.is_sparse:
                X = sparse.hstack([X, np.ones((X.shape[0], 1))], format="csr")
            else:
                X = with_constant(X)
        return cls(X, tasks.y, tasks.offsets)

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def is_sparse(self) -> bool:
        return bool(sparse.issparse(self.X))

    def tasks(self, start: int, stop: int) -> Rows:
        """Tasks start .. stop - 1."""
        offsets = self.offsets[start : stop + 1]
        span = slice(offsets[0], offsets[-1])
        return Rows(self.X[span], self.y[span], offsets - offsets[0])

    def take(self, index: Index) -> Rows:
        """The tasks at these positions, in this order."""
        sizes = self.sizes[index]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        # position within the task plus where the task starts
        where = np.arange(offsets[-1]) + np.repeat(self.offsets[index] - offsets[:-1], sizes)
        return Rows(self.X[where], self.y[where], offsets)

    def columns(self) -> list[Index]:
        """Non-zero columns of each task of sparse rows."""
        pointers = self.X.indptr[self.offsets]
        return [np.unique(self.X.indices[a:b]).astype(np.intp) for a, b in pairwise(pointers)]

    def compressed(self, columns: Index) -> Rows:
        """The dense columns of sparse rows; the other columns are zero and need no algebra."""
        return Rows(np.ascontiguousarray(dense(self.X[:, columns])), self.y, self.offsets)


def joined(parts: Sequence[Rows]) -> Rows:
    """The tasks of several sets of rows, one set after the other."""
    sizes = np.concatenate([part.sizes for part in parts])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    X = [part.X for part in parts]
    stacked = sparse.vstack(X, format="csr") if parts[0].is_sparse else np.concatenate(X)
    return Rows(stacked, np.concatenate([part.y for part in parts]), offsets)


def dense(X: Any) -> Array:
    """A dense array of a dense or sparse one."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float)


def frozen(values: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """A read-only C-contiguous array: compiled code then sees one type, whoever owns the memory."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def with_constant(X: Array) -> Array:
    """``[X, 1]``: the intercept is one more weight whose prior is learned with the others."""
    return np.hstack([X, np.ones((len(X), 1))])


def dense_rows(X: Any, fit_intercept: bool) -> Array:
    """Rows, dense or CSR, as a dense array, with the constant column where there is an intercept."""
    return with_constant(dense(X)) if fit_intercept else dense(X)


def batches(tasks: TaskSet, width: int | None = None) -> Iterator[TaskSet]:
    """The tasks in pieces whose (d + 1, width) matrices fit into `BATCH_FLOATS`; no tasks are one empty piece."""
    d = tasks.n_features + 1
    size = max(1, BATCH_FLOATS // (d * max(d, width or d)))
    for start in range(0, max(len(tasks), 1), size):
        yield tasks[start : start + size]


def segment_sums(values: Array, offsets: NDArray[np.int64]) -> Array:
    """Sum the rows of each task; tasks without rows give zero (`np.add.reduceat` would not)."""
    total = np.zeros((len(offsets) - 1, *values.shape[1:]))
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        total[filled] = np.add.reduceat(values, offsets[:-1][filled], axis=0)
    return total


def predictions(rows: Rows, weights: Array) -> Array:
    """Prediction of every row by its own task's weights (T, d)."""
    task = np.repeat(np.arange(len(weights)), rows.sizes)
    return sparse_products(rows.X, weights, task) if rows.is_sparse else _products(rows.X, weights[task])


def sparse_products(X: Any, weights: Array, task: Index) -> Array:
    """``<x, w>`` of CSR rows by the weights (T, d) of their tasks, read at stored entries alone."""
    entries = np.diff(X.indptr)
    of_row = np.repeat(np.arange(len(entries)), entries)
    products = X.data * weights[task[of_row], X.indices]
    return np.bincount(of_row, weights=products, minlength=len(entries)).astype(float)


def _products(X: Array, weights: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", X, weights))


def clipped(values: Array, clip: tuple[float, float] | None) -> Array:
    """The predictions inside the range, where there is one."""
    return values if clip is None else np.clip(values, *clip)


def task_means(values: Array, offsets: NDArray[np.int64]) -> Array:
    """Mean of the values of each task (NaN for a task without rows): of losses, THE error of a task."""
    sizes = np.diff(offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sizes > 0, segment_sums(values, offsets) / sizes, np.nan)


def mean_error(losses: Array, offsets: NDArray[np.int64]) -> float:
    """Mean over tasks of the mean loss of their rows; infinite rather than NaN, and where no task has a row."""
    means = task_means(losses, offsets)
    means = means[np.diff(offsets) > 0]
    error = float(means.mean()) if len(means) else np.inf
    return error if np.isfinite(error) else np.inf
