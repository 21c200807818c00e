"""The one place that shifts and scales data: rows in units in which they are learned from, and what numbers can hold.

Squares of squares of numbers are summed on the way from rows to weights.  A learner that works in the user's units takes
numbers whose squares of squares are numbers, too (`USERS_UNITS`); one that brings data to units of its own takes any whose
squares are (`ANY_UNITS`), and new rows up to `LARGEST` in these units.  All else is refused by name, before it overflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._utils.records import Record, cached_property
from .._utils.validation import check_divisor, check_real, check_shape
from .rows import Rows, dense, frozen, with_constant
from .task_set import TaskSet

Array = NDArray[np.float64]


class Sizes(NamedTuple):
    """How small the largest number of a column may be, and how large."""

    least: float
    most: float


USERS_UNITS = Sizes(1e-30, 1e30)
#: Of a new number in units of those that were learned from: beside a larger one the others are rounding.
LARGEST = 1e15
#: Squares of these, and the ratio of two of them times a square of `LARGEST`, are normal numbers.
ANY_UNITS = Sizes(1e-130, 1e130)
#: Root mean squares of columns with such numbers are larger.
LEAST_UNIT = 1e-150


def check_sizes(tasks: TaskSet, sizes: Sizes, *, new: bool = False) -> None:
    """Refuse columns, targets and descriptions that numbers of these sizes do not hold; ``new`` ones may be small."""
    least = 0.0 if new else sizes.least
    _refuse_outside("X", largest_entries(tasks.X), least, sizes.most, tasks.feature_names)
    _refuse_outside("y", largest_entries(tasks.y[:, None]), least, sizes.most)
    check_described(tasks, Sizes(least, sizes.most))


def check_described(tasks: TaskSet, sizes: Sizes) -> None:
    """The same of the descriptions alone."""
    if tasks.side_info is not None:
        found = largest_entries(_numbers(tasks.side_info))
        _refuse_outside("side_info", found, sizes.least, sizes.most, tasks.side_names)


def check_ratios(units: Units, names: Any = None) -> None:
    """Refuse columns whose weights have no variance that is a number."""
    ratios = np.abs(np.log10(units.weights))
    j = int(np.argmax(ratios))
    if ratios[j] > np.log10(ANY_UNITS.most):
        raise ValueError(
            f"X: column {j if names is None else repr(names[j])} has values of about {units.columns[j]:.1g} beside targets "
            f"of about {units.target:.1g}, and the variance of its weight is no number; rescale one of them"
        )


def check_reach(X: Any, weights: Array) -> None:
    """Refuse rows whose products with these weights no number holds."""
    with np.errstate(over="ignore"):
        reach = largest_entries(X) * np.abs(weights)
    if not np.all(reach <= LARGEST**2 * ANY_UNITS.most):
        j = int(np.argmax(reach))
        raise ValueError(
            f"X: column {j} has values up to {largest_entries(X)[j]:.3g}, which are too large for its weight of "
            f"{weights[j]:.3g}; rescale it, or drop those rows"
        )


def largest_entries(X: Any) -> Array:
    """The largest size of a number in each column, (d,); zero where there are no rows, or none but missing ones."""
    if X.shape[0] == 0 or X.shape[1] == 0:
        return np.zeros(X.shape[1])
    if sparse.issparse(X):
        return np.asarray(abs(X).max(axis=0).toarray(), dtype=float).ravel()
    # no array of absolute values
    return np.asarray(np.fmax(np.fmax.reduce(X, axis=0), -np.fmin.reduce(X, axis=0)))


def _numbers(table: NDArray[Any]) -> Array:
    """A table of descriptions with words and missing values as zeros."""
    if table.dtype != object:
        return np.nan_to_num(table, posinf=np.inf, neginf=-np.inf)
    number = (int, float, np.number)
    return np.array(
        [[float(v) if isinstance(v, number) and v == v else 0.0 for v in row] for row in table]
    ).reshape(table.shape)


def _refuse_outside(
    argument: str, found: Array, least: float, most: Any, names: Sequence[Any] | NDArray[Any] | None = None
) -> None:
    """Say which column is too large or too small, and what to divide it by; an array ``most`` is that of new rows."""
    large = ~(found <= most)
    outside = large | ((found > 0.0) & (found < least))
    if not outside.any():
        return
    j = int(np.argmax(outside))
    size = float(found[j])
    what = "the targets have" if argument == "y" else f"column {j if names is None else repr(names[j])} has"
    words = f"values up to {size:.3g}" if large[j] else f"no value larger than {size:.3g}"
    if not isinstance(most, float):
        raise ValueError(
            f"{argument}: {what} {words}, and {most[j]:.3g} is what numbers hold beside those of fit; give the units of "
            "fit, or drop those rows"
        )
    raise ValueError(
        f"{argument}: {what} {words}, and squares of numbers {f'above {most:g}' if large[j] else f'below {least:g}'} "
        f"are lost here; rescale {'them' if argument == 'y' else 'it'} (divide by {size:.1g})"
    )


@dataclass(frozen=True)
class Units(Record):
    """Shift and size of the columns and of the targets, and whether there is a constant column.

    Rows are brought to these units before anything is learned from them, so that nothing depends on the units in
    which a user measures; weights, representations and predictions are brought back.

    Attributes
    ----------
    columns, shift : arrays (d,)
        ``(x − shift) / columns`` are the inputs; the constant column, last where there is one, has 1 and 0.
    target, target_shift : float
    fit_intercept : bool
    """

    columns: Array
    target: float
    shift: Array
    target_shift: float = 0.0
    fit_intercept: bool = False

    def __post_init__(self) -> None:
        check_shape("columns", self.columns, None)
        check_shape("shift", self.shift, len(self.columns))

    def restore(self) -> None:
        check_divisor("columns", self.columns)
        # Its square is used, too.
        check_real("target", self.target, 1e-153, 1e153)
        if len(self.columns) <= self.fit_intercept:
            raise ValueError("columns: must have at least one column beside the intercept")
        if self.fit_intercept and (self.columns[-1], self.shift[-1]) != (1.0, 0.0):
            raise ValueError("columns: the column of the intercept must have the unit 1 and no shift")

    @classmethod
    def raw(cls, n_features: int, fit_intercept: bool = False) -> Self:
        """The user's own units."""
        d = n_features + fit_intercept
        return cls(np.ones(d), 1.0, np.zeros(d), 0.0, bool(fit_intercept))

    @classmethod
    def of(cls, tasks: TaskSet, fit_intercept: bool, *, centre: bool = False) -> Self:
        """Root mean squares of columns and targets, about their means where ``centre`` (an intercept takes them up).

        Sparse columns are not shifted: they would be sparse no more.
        """
        n = max(len(tasks.y), 1)
        d = tasks.n_features
        centre = centre and fit_intercept and len(tasks.y) > 0
        shift, X = np.zeros(d), tasks.X
        if centre and not tasks.is_sparse:
            shift = X.mean(axis=0)
            X = X - shift
        squares = X.multiply(X) if tasks.is_sparse else X * X
        columns = np.sqrt(np.asarray(squares.sum(axis=0), dtype=float).ravel() / n)
        target_shift = float(tasks.y.mean()) if centre else 0.0
        y = tasks.y - target_shift
        target = float(np.sqrt(y @ y / n))
        # A constant column is rounding about its mean, which is all there is to measure it by; one of zeros has no unit,
        # nor has one whose squares are: held-out tasks may have it where the others have zeros.
        columns = np.where(columns > 1e-13 * np.abs(shift), columns, np.abs(shift))
        columns = np.where(columns > LEAST_UNIT, columns, 1.0)
        target = target if target > 1e-13 * abs(target_shift) else abs(target_shift)
        target = target if target > LEAST_UNIT else 1.0
        if fit_intercept:
            columns, shift = np.append(columns, 1.0), np.append(shift, 0.0)
        return cls(columns, target, shift, target_shift, bool(fit_intercept))

    @classmethod
    def of_entries(cls, tasks: TaskSet, fit_intercept: bool) -> Self:
        """Root mean squares of what is stored of each column, so that a rare one is no smaller than a common one.

        Columns are not shifted; targets are centred where an intercept takes that up.
        """
        X, centred = sparse.csr_array(tasks.X), cls.of(tasks, fit_intercept, centre=True)
        squares = np.bincount(X.indices, weights=X.data**2, minlength=tasks.n_features)
        counts = np.bincount(X.indices, weights=X.data != 0.0, minlength=tasks.n_features)
        columns = np.sqrt(squares / np.maximum(counts, 1.0))
        columns = np.where(columns > LEAST_UNIT, columns, 1.0)
        if fit_intercept:
            columns = np.append(columns, 1.0)
        return replace(centred, columns=columns, shift=np.zeros(len(columns)))

    def at_first_rows(self, tasks: TaskSet) -> Self:
        """The same with columns shifted by the mean of the tasks' first rows, where an intercept takes that up."""
        first = tasks.offsets[:-1][tasks.sizes > 0]
        if not self.fit_intercept or tasks.is_sparse or not len(first):
            return self
        return replace(self, shift=np.append(tasks.X[first].mean(axis=0), 0.0))

    @cached_property
    def _limits(self) -> tuple[Array, float, float, float]:
        """What columns and targets may be as large as, and squares that are surely less for all of either."""
        given = len(self.columns) - self.fit_intercept
        largest = USERS_UNITS.most if self.is_raw else LARGEST
        columns = np.minimum(largest * self.columns[:given], ANY_UNITS.most)
        target = min(largest * self.target, ANY_UNITS.most)
        return columns, target, float(columns.min(initial=np.inf)) ** 2, target**2

    def hold(self, X: Array, y: Array) -> bool:
        """Whether rows are surely finite and not too large: one pass over them, for the usual case."""
        _, _, squares, target_squares = self._limits
        return bool(np.vdot(X, X) <= squares and np.vdot(y, y) <= target_squares)

    def check(self, X: Any, y: Array | None = None, names: Any = None) -> None:
        """Refuse finite rows that are too large in these units."""
        columns, target, squares, target_squares = self._limits
        flat = X.data if sparse.issparse(X) else X
        if not np.vdot(flat, flat) <= squares:
            _refuse_outside("X", largest_entries(X), 0.0, columns, names)
        if y is not None and not np.vdot(y, y) <= target_squares:
            _refuse_outside("y", largest_entries(y[:, None]), 0.0, np.array([target]))

    @cached_property
    def weights(self) -> Array:
        """Factor (d,) from weights in these units to weights of the raw columns."""
        return self.target / self.columns

    @cached_property
    def is_raw(self) -> bool:
        return (
            self.target == 1.0
            and self.target_shift == 0.0
            and bool((self.columns == 1.0).all())
            and not self.shift.any()
        )

    @cached_property
    def change(self) -> tuple[Array, Array, float, float]:
        """Shift of the user's columns, factor, and the same of the targets, as compiled loops read them."""
        given = len(self.columns) - self.fit_intercept
        columns = frozen(self.shift[:given]), frozen(1.0 / self.columns[:given])
        return *columns, float(self.target_shift), float(1.0 / self.target)

    def dense(self, X: Any) -> Array:
        """Dense inputs in these units, with the constant column."""
        X = dense(X)
        if not self.is_raw:
            d = X.shape[1]
            X = (X - self.shift[:d]) / self.columns[:d]
        return with_constant(X) if self.fit_intercept else X

    def targets(self, y: Array) -> Array:
        """Targets in these units."""
        return y if self.is_raw else (y - self.target_shift) / self.target

    def rows(self, tasks: TaskSet) -> Rows:
        """The rows of tasks in these units; sparse ones stay sparse."""
        if self.is_raw:
            return Rows.of(tasks, self.fit_intercept)
        y = self.targets(tasks.y)
        if tasks.is_sparse and not self.shift.any():
            X = (tasks.X * (1.0 / self.columns[: tasks.n_features])[None, :]).tocsr()
            if self.fit_intercept:
                X = sparse.hstack([X, np.ones((X.shape[0], 1))], format="csr")
            return Rows(X, y, tasks.offsets)
        return Rows(self.dense(tasks.X), y, tasks.offsets)

    def raw_weights(self, weights: Array) -> Array:
        """Weights (.., d) of the raw columns, the intercept last, for weights in these units."""
        if self.is_raw:
            return weights
        with np.errstate(over="ignore", invalid="ignore"):
            out = weights * self.weights
            if self.fit_intercept:
                out[..., -1] += self.target_shift - out[..., :-1] @ self.shift[:-1]
        if not np.isfinite(out).all():
            raise ValueError(
                "X: rows are so large beside those of fit that their weights are no numbers; give the units of fit, or drop "
                "those rows"
            )
        return out

    def raw_differences(self, weights: Array) -> Array:
        """What a difference (d,) of weights in these units is for the raw columns."""
        return weights if self.is_raw else np.asarray(self.target * (self._back @ weights))

    def raw_representation(self, theta: Array) -> Array:
        """θ (.., d, d) of the raw columns, for one in these units."""
        if self.is_raw:
            return theta
        return self._back @ theta @ self._back.T

    def raw_deviations(self, covariance: Array) -> Array:
        """Standard deviations (.., d) of weights of the raw columns, for a covariance in these units.

        Raw variances may be no numbers.
        """
        variances = np.diagonal(self.raw_representation(covariance), axis1=-2, axis2=-1)
        return np.asarray(self.target * np.sqrt(np.maximum(variances, 0.0)))

    @cached_property
    def _back(self) -> Array:
        """A with ``w_raw = target (A w)``, up to the shift of the targets."""
        A = np.diag(1.0 / self.columns)
        if self.fit_intercept:
            A[-1, :-1] = -self.shift[:-1] / self.columns[:-1]
        return A

    def raw_predictions(self, predictions: Array) -> Array:
        """Predictions of the raw targets."""
        return predictions if self.is_raw else self.target * predictions + self.target_shift
