"""The rows of many tasks as float64 arrays, their scaling, and operations on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis, min_max_axis

from .._utils.records import Record, cached_property
from .task_set import TaskSet

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Matrix = NDArray[np.float64] | sparse.csr_array

#: Largest number of floats in an array over a batch of tasks (64 MB).
BATCH_FLOATS = 8_000_000


class Rows(NamedTuple):
    """Rows of several tasks: ``X`` (N, d), dense or CSR, ``y`` (N,), and ``offsets`` (T + 1,)."""

    X: Any
    y: Array
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, tasks: TaskSet, fit_intercept: bool = False) -> Self:
        """Return the rows of a task set; with ``fit_intercept``, a constant column is appended."""
        X = tasks.X
        if fit_intercept:
            ones = np.ones((X.shape[0], 1))
            X = sparse.hstack([X, ones], format="csr") if tasks.is_sparse else np.hstack([X, ones])
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


def dense(X: Any) -> Array:
    """Return a dense or sparse array as a dense float array."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float)


def frozen(values: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """Return a read-only C-contiguous array, so that compiled code needs one specialisation."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def dense_rows(X: Any, fit_intercept: bool) -> Array:
    """Return rows as a dense array; with an intercept, the last column is constant."""
    return np.hstack([dense(X), np.ones((X.shape[0], 1))]) if fit_intercept else dense(X)


def batches(tasks: TaskSet, width: int | None = None) -> Iterator[TaskSet]:
    """Yield batches of tasks (at least one) whose (d + 1, width) matrices fit into `BATCH_FLOATS`;
    without tasks, one empty batch.
    """
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


def in_content_order(tasks: TaskSet, seed: int = 0) -> TaskSet:
    """Return the tasks in a pseudorandom order that is determined by ``seed`` and by their rows.

    Draws in this order do not depend on the units, or on the order in which the tasks were given.
    Labels only break ties between tasks with the same size and the same distances of their means
    from the centre.
    """
    tasks = tasks.in_label_order(seed)
    rows = np.column_stack([tasks.y, dense(tasks.X[:, :50])])  # more columns would take long
    sizes, frequency = tasks.n_observed, tasks.frequency_weight
    rows = rows if frequency is None else rows * frequency[:, None]
    means = segment_sums(rows, tasks.offsets) / np.where(sizes > 0, sizes, 1.0)[:, None]
    # Scaled distances from the centre do not depend on the unit, the origin or the sign of a
    # column.
    distances = np.abs(means - means.mean(axis=0))
    largest = distances.max(axis=0, initial=0.0)
    distances = np.round(distances / np.where(largest > 0, largest, 1.0), 9)
    order = np.lexsort((*distances.T[::-1], sizes))
    return tasks[np.random.default_rng(seed).permutation(order)]


def predictions(rows: Rows, weights: Array) -> Array:
    """Predict every row with the weights (T, d) of its task."""
    task = np.repeat(np.arange(len(weights)), rows.sizes)
    if rows.is_sparse:
        return sparse_products(rows.X, weights, task)
    return np.asarray(np.einsum("ij,ij->i", rows.X, weights[task]))


def sparse_products(X: Any, weights: Array, task: Index) -> Array:
    """Return ``<x, w>`` of CSR rows with the weights (T, d) of their tasks, using only the stored
    entries.
    """
    entries = np.diff(X.indptr)
    of_row = np.repeat(np.arange(len(entries)), entries)
    products = X.data * weights[task[of_row], X.indices]
    return np.bincount(of_row, weights=products, minlength=len(entries)).astype(float)


def task_means(values: Array, offsets: NDArray[np.int64], frequency: Array | None = None) -> Array:
    """Return the mean of each task's values, weighted by ``frequency``; NaN for a task without
    rows.
    """
    frequency = np.ones(len(values)) if frequency is None else frequency
    sizes = segment_sums(frequency, offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sizes > 0, segment_sums(values * frequency, offsets) / sizes, np.nan)


def standard_errors(values: Array) -> Array:
    """Return the standard errors of means over the last axis, the tasks; 0 for fewer than two
    tasks.
    """
    n = values.shape[-1]
    return np.asarray(
        values.std(axis=-1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(values.shape[:-1])
    )


def overall_mean(tasks: TaskSet) -> float:
    """Return the mean of all targets, or their rate per unit of exposure; 0 without rows."""
    exposure, frequency = _exposure_and_frequency(tasks)
    total = float(frequency @ exposure)
    return float(frequency @ tasks.y) / total if total else 0.0


def _exposure_and_frequency(tasks: TaskSet) -> list[Array]:
    values = (tasks.exposure, tasks.frequency_weight)
    return [np.ones(len(tasks.y)) if value is None else value for value in values]


def support_means(support: TaskSet, query: TaskSet, overall: float, *, smooth: bool) -> Array:
    """Predict query rows by the mean (or rate) of the support rows of the same task, or ``overall``
    if there are none.

    ``smooth`` adds a row with the overall mean to each task, because a predicted probability or
    rate of zero has infinite loss.
    """
    (observed, frequency), (asked, _) = map(_exposure_and_frequency, (support, query))
    more = float(asked.mean()) if smooth and len(asked) else 0.0
    totals = segment_sums(frequency * observed, support.offsets) + more
    sums = segment_sums(frequency * support.y, support.offsets) + more * overall
    rates = np.divide(sums, totals, np.full(len(sums), overall), where=totals > 0)
    return np.asarray(np.repeat(rates, query.sizes) * asked)


def mean_error(losses: Array, offsets: NDArray[np.int64]) -> float:
    """Return the mean over tasks of their mean loss; infinity if it is not finite or no task has
    rows.
    """
    means = task_means(losses, offsets)[np.diff(offsets) > 0]
    error = float(means.mean()) if len(means) else np.inf
    return error if np.isfinite(error) else np.inf


#: Largest absolute value of a feature or target, as a multiple of the scale of the training data:
#: with larger values, all other values would be lost to rounding.
LIMIT = 1e15
#: The same limit for features in models of classes and counts, whose linear predictor is
#: exponentiated.
RESPONSE_LIMIT = 1e4
#: Columns with a smaller root mean square are not scaled, and those above its inverse are an error,
#: because ratios of two scales and their squares must be finite.
LEAST_SCALE = 1e-70


@dataclass(frozen=True)
class Scaling(Record):
    """Shift and scale of the columns and of the targets, and whether there is a constant column.

    The scaled rows are ``(x − shift) / columns``, the scaled targets ``(y − target_shift) /
    target``. A constant column is last, with the scale 1 and the shift 0.
    """

    columns: Array
    target: float
    shift: Array
    target_shift: float = 0.0
    fit_intercept: bool = False
    limit: float = LIMIT  # largest absolute value of a feature, as a multiple of its scale

    @classmethod
    def raw(cls, n_features: int, fit_intercept: bool = False) -> Self:
        """Return the scaling that keeps the user's units."""
        d = n_features + fit_intercept
        return cls(np.ones(d), 1.0, np.zeros(d), 0.0, bool(fit_intercept))

    @classmethod
    def of(cls, tasks: TaskSet, fit_intercept: bool, *, centre: bool = False) -> Self:
        """Return a scaling by root mean squares; with `centre` and an intercept, columns and
        targets are shifted by their means.

        Sparse columns stay sparse until `dense` subtracts the shift.
        """
        centre = centre and fit_intercept
        shift, columns = _shift_and_scale(tasks.X, centre)
        (target_shift,), target = _shift_and_scale(tasks.y[:, None], centre)
        _check_limit("X", columns, np.full(len(columns), 1 / LEAST_SCALE), tasks.feature_names)
        _check_limit("y", target, np.array([1 / LEAST_SCALE]))
        if fit_intercept:
            columns, shift = np.append(columns, 1.0), np.append(shift, 0.0)
        return cls(columns, float(target[0]), shift, float(target_shift), bool(fit_intercept))

    @classmethod
    def of_entries(cls, tasks: TaskSet, fit_intercept: bool) -> Self:
        """Return a scaling by the root mean square of each column's non-zero entries, which is not
        small for sparse columns.

        Columns are not shifted. Targets are centred if there is an intercept.
        """
        X, centred = sparse.csr_array(tasks.X), cls.of(tasks, fit_intercept, centre=True)
        counts = (X != 0.0).sum(axis=0)
        columns = np.sqrt(X.multiply(X).sum(axis=0) / np.maximum(counts, 1))
        columns = np.where(columns > LEAST_SCALE, columns, 1.0)
        if fit_intercept:
            columns = np.append(columns, 1.0)
        return replace(centred, columns=columns, shift=np.zeros(len(columns)))

    def weighted_rows(self, tasks: TaskSet) -> tuple[Array, Array]:
        """Return the scaled rows and targets of tasks, multiplied by the square roots of their
        weights.
        """
        X, y = self.dense(tasks.X), self.targets(tasks.y)
        if (weights := tasks.row_weights) is None:
            return X, y
        roots = np.sqrt(weights)
        return X * roots[:, None], y * roots

    def at_first_rows(self, tasks: TaskSet) -> Self:
        """Return the same scales, with columns shifted by the mean of the tasks' first rows if
        there is an intercept.
        """
        first = tasks.offsets[:-1][tasks.sizes > 0]
        if not self.fit_intercept or not len(first):
            return self
        mean = np.asarray(tasks.X[first].sum(axis=0), dtype=float).ravel() / len(first)
        return replace(self, shift=np.append(mean, 0.0))

    @cached_property
    def _squared_limits(self) -> tuple[float, float]:
        n_features = len(self.columns) - self.fit_intercept
        least = self.limit * float(self.columns[:n_features].min(initial=np.inf))
        target = LIMIT * self.target
        return least * least, target * target  # a power would raise OverflowError

    def holds(self, X: Any, y: Array | None = None) -> bool:
        """Return whether the sums of squares prove that all values are finite and within the
        limits.
        """
        columns, target = self._squared_limits
        flat = X if isinstance(X, np.ndarray) else X.data
        return bool(np.vdot(flat, flat) <= columns and (y is None or np.vdot(y, y) <= target))

    def check(self, X: Any, y: Array | None = None, names: Any = None) -> None:
        """Raise ValueError for features beyond ``limit``, or targets beyond `LIMIT`, times the
        scale of the training data.
        """
        if self.holds(X, y):
            return
        _check_limit("X", _largest(X), self.limit * self.columns[: X.shape[1]], names)
        if y is not None:
            _check_limit("y", _largest(y[:, None]), np.array([LIMIT * self.target]))

    @cached_property
    def is_raw(self) -> bool:
        is_shifted = self.target_shift != 0.0 or self.shift.any()
        return not is_shifted and self.target == 1.0 and bool((self.columns == 1.0).all())

    @cached_property
    def change(self) -> tuple[Array, Array, float, float]:
        """Shifts and inverse scales of the features, and shift and inverse scale of the targets,
        for compiled loops.
        """
        n_features = len(self.columns) - self.fit_intercept
        columns = frozen(self.shift[:n_features]), frozen(1.0 / self.columns[:n_features])
        return *columns, float(self.target_shift), float(1.0 / self.target)

    def dense(self, X: Any) -> Array:
        """Return scaled rows as a dense array; with an intercept, the last column is constant."""
        if self.is_raw:
            return dense_rows(X, self.fit_intercept)
        n, d = X.shape
        out = np.ones((n, d + self.fit_intercept))
        np.subtract(dense(X), self.shift[:d], out=out[:, :d])
        out[:, :d] /= self.columns[:d]
        return out

    def targets(self, y: Array) -> Array:
        """Return scaled targets."""
        return y if self.is_raw else (y - self.target_shift) / self.target

    @cached_property
    def weights(self) -> Array:
        """Factor (d,) from weights of scaled columns to weights of the user's columns."""
        return self.target / self.columns

    def raw_weights(self, weights: Array) -> Array:
        """Return weights (.., d) of the user's columns, given those of the scaled columns; an
        intercept is last.
        """
        if self.is_raw:
            return weights
        out = weights * self.weights
        if self.fit_intercept:
            out[..., -1] += self.target_shift - out @ self.shift  # the last shift is zero
        return out

    def raw_differences(self, weights: Array) -> Array:
        """Return a difference (d,) of weights for the user's columns."""
        return weights if self.is_raw else np.asarray(self.target * (self._back @ weights))

    def raw_representation(self, theta: Array) -> Array:
        """Return θ (.., d, d) for the user's columns; the scale of the targets is not included."""
        if self.is_raw:
            return theta
        out = self._back @ theta @ self._back.T
        # Differences that consist of rounding errors, far from the zero of the columns, are zero.
        size = np.abs(self._back) @ np.abs(theta) @ np.abs(self._back.T)
        return np.asarray(np.where(np.abs(out) <= 1e-15 * size, 0.0, out))

    def raw_deviations(self, covariance: Array) -> Array:
        """Return standard deviations (.., d) of weights of the user's columns, given a covariance
        for the scaled columns.

        They are NaN for weights that depend on a weight whose variance is NaN.
        """
        unknown = np.isnan(np.diagonal(covariance, axis1=-2, axis2=-1)) @ (self._back.T != 0)
        known = self.raw_representation(np.where(np.isnan(covariance), 0.0, covariance))
        variances = np.maximum(np.diagonal(known, axis1=-2, axis2=-1), 0.0)
        return np.asarray(self.target * np.sqrt(np.where(unknown, np.nan, variances)))

    def log_volume(self, n_rows: float, fixed: NDArray[np.bool_]) -> float:
        """Return the log of the factor by which scaling raises the density of ``n_rows`` targets.

        The coefficients ``fixed`` (d,) are integrated out, as in a restricted density.
        """
        return float(
            (n_rows - fixed.sum()) * np.log(self.target) + np.log(self.columns[fixed]).sum()
        )

    def centred_deviations(self, covariance: Array) -> Array:
        """Return standard deviations (d,) like `raw_deviations`, but with the intercept at the
        shift of the columns.
        """
        return np.asarray(
            self.target * np.sqrt(np.maximum(np.diagonal(covariance), 0.0)) / self.columns
        )

    @cached_property
    def _back(self) -> Array:
        return self.back(np.arange(len(self.columns)))

    def back(self, rows: Index) -> Array:
        """Return rows of the matrix A with ``w_raw = target (A w)``, up to the shift of the
        targets.
        """
        d = len(self.columns)
        A = np.zeros((len(rows), d))
        A[np.arange(len(rows)), rows] = 1.0 / self.columns[rows]
        if self.fit_intercept:
            A[rows == d - 1, :-1] = -self.shift[:-1] / self.columns[:-1]
        return A


def _shift_and_scale(values: Any, centre: bool) -> tuple[Array, Array]:
    """Return the mean of each column, or zero without `centre`, and its root mean square difference
    from it.
    """
    n, d = values.shape
    shift = np.asarray(values.sum(axis=0)).ravel() / max(n, 1) if centre else np.zeros(d)
    with np.errstate(over="ignore"):  # `_check_limit` raises an error that names the column
        if sparse.issparse(values) and n:
            means, variances = mean_variance_axis(values, axis=0)
            scale = np.sqrt(variances + (means - shift) ** 2)
        else:
            scale = np.sqrt(((dense(values) - shift) ** 2).sum(axis=0) / max(n, 1))
    # The scale of a constant column is only rounding errors, so it is the absolute constant.
    scale = np.where(scale > 1e-13 * np.abs(shift), scale, np.abs(shift))
    return shift, np.where(scale > LEAST_SCALE, scale, 1.0)


def column_range(X: Any) -> Array:
    """Return the smallest and the largest value of each column, (2, d); without rows, ∞ and −∞."""
    if sparse.issparse(X) and min(X.shape):
        return np.array(min_max_axis(X, 0))
    X = dense(X)
    return np.array([X.min(0, initial=np.inf), X.max(0, initial=-np.inf)])


def _largest(X: Any) -> Array:
    """Return the largest absolute value of each column, (d,); 0 without rows."""
    low, high = column_range(X)
    return np.maximum(np.maximum(high, -low), 0.0)


def _check_limit(name: str, values: Array, limits: Array, names: Any = None) -> None:
    """Raise ValueError if a value (d,) exceeds its limit, or is not finite."""
    beyond = ~(values <= limits)
    if not beyond.any():
        return
    j = int(np.argmax(beyond))
    column = f"column {j if names is None else repr(names[j])} has"
    title = "the targets have" if name == "y" else column
    sizes = f"({values[j]:.3g}, limit {limits[j]:.3g})".replace("inf, ", "")
    advice = "Rescale the data, use the same units in fit and predict, or drop those rows."
    raise ValueError(f"{name}: {title} values too large for this model {sizes}. {advice}")
