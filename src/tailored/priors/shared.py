"""Effects that all tasks share: curves of columns, products of two columns, and effects of
categories.

They are subtracted from the targets (for classes and counts, from the linear predictors), and the
prior is learned for the residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .._utils.records import Record
from ..gaussian.responses import Response
from ..tasks.features import SideVector
from ..tasks.rows import Array, Index, Matrix, dense
from ..tasks.task_set import TaskSet
from .side_features import Curve


@dataclass(frozen=True)
class SharedCurve(Record):
    """A nonlinear function of one column, or a smooth function of it that is multiplied by a
    feature of the side information.
    """

    curve: Curve
    coef: Array  # (k,) coefficients of the basis functions
    level: float  # constant that is subtracted, so that the mean over the training rows is zero
    by: int = -1  # position of the feature of the side information; -1 if not multiplied
    centre: float = 0.0  # constant that is subtracted from this feature

    def __call__(self, X: Array, inputs: Array) -> Array:
        values = self.curve(X) @ self.coef - self.level
        return np.asarray(values if self.by < 0 else values * (inputs[:, self.by] - self.centre))

    def describe(self, names: Sequence[str], side_names: Sequence[str]) -> str:
        differs = f" that differs by {side_names[self.by]}" if self.by >= 0 else ""
        return f"a curve of {names[self.curve.column]}{differs}"


@dataclass(frozen=True)
class SharedProduct(Record):
    """The product of two centred columns and a coefficient, minus ``level``, its mean over the
    training rows.
    """

    columns: tuple[int, int]
    centre: tuple[float, float]
    coef: float
    level: float

    def __call__(self, X: Array, inputs: Array) -> Array:
        (i, j), (a, b) = self.columns, self.centre
        return np.asarray(self.coef * (X[:, i] - a) * (X[:, j] - b) - self.level)

    def describe(self, names: Sequence[str], side_names: Sequence[str]) -> str:
        i, j = self.columns
        return f"the product of {names[i]} and {names[j]} (centred, coefficient {self.coef:.3g})"


@dataclass(frozen=True)
class SharedLevels(Record):
    """An effect for each category of a column, or for each value of a numeric column, shrunk
    towards zero.
    """

    column: int
    effects: Array  # (n,) effect of each category code or value
    variances: Array  # (n,) variances of the errors of the effects
    #: Estimated variance of the effects, and of the error for an unknown category or value.
    variance: float
    values: Array | None = None  # (n,) the values, increasing; None for the codes of categories

    def _positions(self, X: Array) -> Index:
        """Return the position of the category or value of each row; -1 if it is missing or did not
        occur in training.
        """
        x = X[:, self.column]
        if self.values is None:
            return np.where((x >= 0) & (x < len(self.effects)), x, -1).astype(np.intp)
        at = np.minimum(np.searchsorted(self.values, x), len(self.values) - 1)
        return np.where(self.values[at] == x, at, -1)

    def __call__(self, X: Array, inputs: Array) -> Array:
        return np.append(self.effects, 0.0)[self._positions(X)]

    def errors_of(self, X: Array) -> tuple[Index, Array]:
        """Return the category of each row (n,), and the error variance of each category; unknown
        categories are last.
        """
        category = self._positions(X)
        codes, other = np.unique(X[category < 0, self.column], return_inverse=True)
        category[category < 0] = len(self.effects) + other
        return category, np.append(self.variances, np.full(len(codes), self.variance))

    def describe(self, names: Sequence[str], side_names: Sequence[str]) -> str:
        name, std = names[self.column], float(np.sqrt(self.variance))
        return f"effects of {len(self.effects)} values of {name} (std {std:.3g})"


#: A single shared effect.
SharedEffect = SharedCurve | SharedProduct | SharedLevels


@dataclass(frozen=True)
class SharedEffects(Record):
    """The sum of the shared effects, in the units of the targets or of the linear predictor."""

    effects: tuple[SharedEffect, ...]
    skewness: float = 0.0  # of the responses of the training tasks, see `Likelihood.skewness`
    #: None if side information is not used
    encoder: SideVector | None = field(default=None, kw_only=True)

    def encode(self, tasks: TaskSet) -> Array:
        """Return the encoded side information of each task, (T, k); k is 0 if it is not used."""
        return np.zeros((len(tasks), 0)) if self.encoder is None else self.encoder.transform(tasks)

    def encode_rows(self, tasks: TaskSet) -> Array:
        """Return the encoded side information of the task of each row, (n, k)."""
        return np.repeat(self.encode(tasks), tasks.sizes, axis=0)

    @property
    def levels(self) -> list[SharedLevels]:
        """The effects of categories and of values."""
        return [effect for effect in self.effects if isinstance(effect, SharedLevels)]

    @property
    def coded_columns(self) -> list[int]:
        """Positions of the columns of category codes, which nothing else uses."""
        return [one.column for one in self.levels if one.values is None]

    def describe(self, names: Sequence[str], side_names: Sequence[str]) -> str:
        """Return a description of the effects, given the names of the columns of X and of the side
        information.
        """
        side = (
            [] if self.encoder is None else [side_names[origin] for origin in self.encoder.origins]
        )
        return "; ".join(effect.describe(names, side) for effect in self.effects)

    def predict(self, X: Matrix, inputs: Array) -> Array:
        """Return the sum of the effects for each row, (n,); ``inputs`` (n, k) are encoded side
        information.
        """
        rows = dense(X)
        return sum((effect(rows, inputs) for effect in self.effects), np.zeros(len(rows)))

    def error_variances(self, X: Matrix) -> Array:
        """Return the error variance of the category effects of each row, (n,)."""
        rows = dense(X)
        each = (one.errors_of(rows) for one in self.levels)
        return sum((variances[category] for category, variances in each), np.zeros(len(rows)))

    def own_columns(self, X: Matrix) -> Matrix:
        """Return the rows with category codes replaced by zeros."""
        if not self.coded_columns:
            return X
        rows = dense(X).copy()
        rows[:, self.coded_columns] = 0.0
        return rows

    def residual_tasks(self, tasks: TaskSet, response: Response) -> TaskSet:
        """Remove the effects from tasks: subtract them from targets, or for classes and counts add
        them to log exposure.
        """
        part = self.predict(tasks.X, self.encode_rows(tasks))
        rest = response.without_part(tasks, part, self.error_variances(tasks.X), self.skewness)
        return rest.replace(X=self.own_columns(tasks.X))
