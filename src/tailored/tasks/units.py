"""The one place that shifts and scales data: rows in units in which they are learned from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._records import Record
from ._task_set import TaskSet
from .rows import Rows, dense, frozen, with_constant

Array = NDArray[np.float64]


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
        # A constant column is rounding about its mean, and has no unit; neither has one of zeros.
        known = columns > 1e-13 * np.abs(shift)
        columns = np.where(known & (columns > 0), columns, 1.0)
        target = target if target > 1e-13 * abs(target_shift) and target > 0 else 1.0
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
        columns = np.where(columns > 0, columns, 1.0)
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
        out = weights * self.weights
        if self.fit_intercept:
            out[..., -1] += self.target_shift - out[..., :-1] @ self.shift[:-1]
        return out

    def raw_differences(self, weights: Array) -> Array:
        """What a difference (d,) of weights in these units is for the raw columns."""
        return weights if self.is_raw else np.asarray(self.target * (self._back @ weights))

    def raw_representation(self, theta: Array) -> Array:
        """θ (.., d, d) of the raw columns, for one in these units."""
        if self.is_raw:
            return theta
        return self._back @ theta @ self._back.T

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
