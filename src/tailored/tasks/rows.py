"""The rows of many tasks as clean float64 arrays, and the operations that numerical code needs on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .task_set import TaskSet, offsets_of, rows_of_tasks

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Largest number of floats in an array over a batch of tasks (64 MB).
BATCH_FLOATS = 8_000_000


class Rows(NamedTuple):
    """Rows of several tasks: flat ``X`` (N, d), dense or CSR, ``y`` (N,), and ``offsets`` (T + 1,)."""

    X: Any
    y: Array
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, tasks: TaskSet, fit_intercept: bool = False) -> Self:
        """Return the rows of a task set, with a constant column for the intercept."""
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
        """Return tasks start .. stop - 1."""
        offsets = self.offsets[start : stop + 1]
        span = slice(offsets[0], offsets[-1])
        return Rows(self.X[span], self.y[span], offsets - offsets[0])

    def take(self, index: Index) -> Rows:
        """Return the tasks at these positions, in this order."""
        rows, offsets = rows_of_tasks(self.offsets, index)
        return Rows(self.X[rows], self.y[rows], offsets)

    def columns(self) -> list[Index]:
        """Return the non-zero columns of each task of sparse rows."""
        pointers = self.X.indptr[self.offsets]
        return [np.unique(self.X.indices[a:b]).astype(np.intp) for a, b in pairwise(pointers)]

    def compressed(self, columns: Index) -> Rows:
        """Return these columns of sparse rows as a dense array; the other columns must be zero."""
        return Rows(np.ascontiguousarray(dense(self.X[:, columns])), self.y, self.offsets)


def joined(parts: Sequence[Rows]) -> Rows:
    """Join the tasks of several sets of rows, one set after the other."""
    sizes = np.concatenate([part.sizes for part in parts])
    X = [part.X for part in parts]
    stacked = sparse.vstack(X, format="csr") if parts[0].is_sparse else np.concatenate(X)
    return Rows(stacked, np.concatenate([part.y for part in parts]), offsets_of(sizes))


def dense(X: Any) -> Array:
    """Return a dense float array of a dense or sparse one."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float)


def frozen(values: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """Return a read-only C-contiguous array, so that compiled code needs one specialisation."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def with_constant(X: Array) -> Array:
    """Return ``[X, 1]``; the weight of the constant column is the intercept."""
    return np.hstack([X, np.ones((len(X), 1))])


def dense_rows(X: Any, fit_intercept: bool) -> Array:
    """Return rows as a dense array, with a constant column for the intercept."""
    return with_constant(dense(X)) if fit_intercept else dense(X)


def batches(tasks: TaskSet, width: int | None = None) -> Iterator[TaskSet]:
    """Yield batches of tasks whose (d + 1, width) matrices fit into `BATCH_FLOATS`; no tasks are one empty batch."""
    d = tasks.n_features + 1
    size = max(1, BATCH_FLOATS // (d * max(d, width or d)))
    for start in range(0, max(len(tasks), 1), size):
        yield tasks[start : start + size]


def segment_sums(values: Array, offsets: NDArray[np.int64]) -> Array:
    """Sum the rows of each task; a task without rows gives zero, unlike `np.add.reduceat`."""
    total = np.zeros((len(offsets) - 1, *values.shape[1:]))
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        total[filled] = np.add.reduceat(values, offsets[:-1][filled], axis=0)
    return total


def predictions(rows: Rows, weights: Array) -> Array:
    """Predict every row with the weights (T, d) of its task."""
    task = np.repeat(np.arange(len(weights)), rows.sizes)
    if rows.is_sparse:
        return sparse_products(rows.X, weights, task)
    return np.asarray(np.einsum("ij,ij->i", rows.X, weights[task]))


def sparse_products(X: Any, weights: Array, task: Index) -> Array:
    """Return ``<x, w>`` of CSR rows with the weights (T, d) of their tasks, from the stored entries alone."""
    entries = np.diff(X.indptr)
    of_row = np.repeat(np.arange(len(entries)), entries)
    products = X.data * weights[task[of_row], X.indices]
    return np.bincount(of_row, weights=products, minlength=len(entries)).astype(float)


def clipped(values: Array, clip: tuple[float, float] | None) -> Array:
    """Clip predictions to a range, if there is one."""
    return values if clip is None else np.clip(values, *clip)


def task_means(values: Array, offsets: NDArray[np.int64]) -> Array:
    """Return the mean of each task's values, NaN for a task without rows."""
    sizes = np.diff(offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sizes > 0, segment_sums(values, offsets) / sizes, np.nan)


def mean_error(losses: Array, offsets: NDArray[np.int64]) -> float:
    """Return the mean over tasks of the mean loss of their rows; infinity instead of NaN, or without rows."""
    means = task_means(losses, offsets)
    means = means[np.diff(offsets) > 0]
    error = float(means.mean()) if len(means) else np.inf
    return error if np.isfinite(error) else np.inf
