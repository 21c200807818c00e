"""Features of tasks: their base class, and `SideVector`, the side information as numbers."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Stored
from .._utils.validation import is_missing, numbers_of
from .encoding import warn_unknown
from .rows import Array
from .task_set import TaskSet


class FeatureMap(Stored, ABC):
    """Base class of the feature maps; ``fit`` reads training tasks, and ``transform`` returns
    features (T, k).
    """

    #: Whether the map needs the task's rows.
    needs_rows: ClassVar[bool] = True
    #: Whether the map needs the task's side information.
    needs_side_info: ClassVar[bool] = False

    def fit(self, tasks: TaskSet) -> FeatureMap:
        """Learn parameters from the tasks; most maps have none."""
        return self

    @abstractmethod
    def transform(self, tasks: TaskSet) -> Array:
        """Return the features of every task, (T, k)."""

    def __repr__(self) -> str:
        """Return the class name and the constructor arguments."""
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        arguments = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({arguments})"

    def _not_fitted(self) -> ValueError:
        return ValueError(
            f"feature_map: this {type(self).__name__} is not fitted; call fit(tasks) first"
        )


class SideVector(FeatureMap):
    """The side information itself: numbers, missing-value indicators, and indicators of categories.

    If a table has categorical columns, the numeric columns are standardised.  A missing number is
    replaced by the mean of the column in training, and an unknown category gives zeros.
    """

    needs_rows, needs_side_info = False, True
    #: The categories of each column, with None for missing values; None instead of the list for a
    #: numeric column.
    categories: list[list[Any] | None] | None = None
    #: Means, shifts and scales of the numeric columns, (3, m).
    numbers: Array | None = None
    #: Positions of the numeric columns with a missing-value indicator.
    indicated: tuple[int, ...] = ()

    def fit(self, tasks: TaskSet) -> SideVector:
        table = side_table(tasks)
        for name, column in zip(_names(tasks), table.T, strict=True):
            if all(is_missing(value) for value in column):
                raise ValueError(
                    f"side_info: column {name!r} has no value in any task; drop the column"
                )
        is_mixed = table.dtype == object
        self.categories = [_categories(column) if is_mixed else None for column in table.T]
        values = table[:, self._numeric].astype(float)
        means = np.nanmean(values, axis=0)
        shifts, scales = np.zeros_like(means), np.ones_like(means)
        if is_mixed:
            deviations = np.nanstd(values, axis=0)
            shifts, scales = means, np.where(deviations > 0.0, deviations, 1.0)
        self.numbers = np.array([means, shifts, scales])
        missing = np.isnan(values).any(axis=0)
        self.indicated = tuple(np.array(self._numeric, dtype=int)[missing].tolist())
        return self

    def transform(self, tasks: TaskSet) -> Array:
        values, table = self._numbers(tasks), side_table(tasks)
        assert self.numbers is not None
        means, shifts, scales = self.numbers
        missing = np.isnan(values)
        features = [(np.where(missing, means, values) - shifts) / scales]
        features.append(missing[:, np.searchsorted(self._numeric, self.indicated)].astype(float))
        for j, categories in self._categorical:
            features.append(_one_hot(table[:, j], categories, _names(tasks)[j]))
        return np.hstack(features)

    def known(self, tasks: TaskSet) -> NDArray[np.bool_]:
        """Return whether each feature of each task is observed, not imputed, (T, k)."""
        known = np.ones((len(tasks), len(self.origins)), dtype=bool)
        known[:, : len(self._numeric)] = ~np.isnan(self._numbers(tasks))
        return known

    def _numbers(self, tasks: TaskSet) -> Array:
        """Return the numeric columns, with NaN for missing values."""
        if self.categories is None:
            raise self._not_fitted()
        table = side_table(tasks)
        if table.shape[1] != len(self.categories):
            raise ValueError(
                f"side_info: expected {len(self.categories)} columns as in fit, got "
                f"{table.shape[1]}"
            )
        with numbers_of("side_info"):
            return np.asarray(table[:, self._numeric], dtype=float)

    @property
    def _numeric(self) -> list[int]:
        return [j for j, values in enumerate(self.categories or ()) if values is None]

    @property
    def _categorical(self) -> list[tuple[int, list[Any]]]:
        return [(j, values) for j, values in enumerate(self.categories or ()) if values is not None]

    @property
    def origins(self) -> list[int]:
        """The table column that each feature comes from."""
        return [
            *self._numeric,
            *self.indicated,
            *(j for j, values in self._categorical for _ in values),
        ]

    def contrasts(self) -> list[tuple[int, str, dict[int, float]]]:
        """Return (column, category, feature changes) for a unit of each number, each missing-value
        indicator, and each category against the first.
        """
        assert self.numbers is not None
        scales = self.numbers[2].tolist()
        found = [(j, "", {f: 1.0 / scales[f]}) for f, j in enumerate(self._numeric)]
        found += [(j, "missing", {f: 1.0}) for f, j in enumerate(self.indicated, len(found))]
        first = len(found)
        for j, values in self._categorical:
            names = ["missing" if value is None else str(value) for value in values]
            found += [(j, name, {first + i: 1.0, first: -1.0}) for i, name in enumerate(names) if i]
            first += len(values)
        return found


def _names(tasks: TaskSet) -> Sequence[Any]:
    """Return the names of the columns of side information, or their positions."""
    return tasks.side_names or range(tasks.n_side_info)


def _categories(column: NDArray[Any]) -> list[Any] | None:
    """Return the categories of a column of a table with objects; None if it is numeric."""
    known = [value for value in column if not is_missing(value)]
    if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in known):
        return None
    categories = sorted(set(known), key=lambda value: (str(type(value)), value))
    return [*categories, None] if len(known) < len(column) else categories


def _one_hot(column: NDArray[Any], categories: list[Any], name: Any) -> Array:
    """Return the indicators of the categories of a column; warn about unknown categories."""
    positions = {value: j for j, value in enumerate(categories)}
    keys = [None if is_missing(value) else value for value in column]
    unknown = dict.fromkeys(key for key in keys if key is not None and key not in positions)
    known = [value for value in categories if value is not None]
    warn_unknown(name, unknown, known, "their indicators are zero")
    at = np.array([positions.get(key, -1) for key in keys])
    return (at[:, None] == np.arange(len(positions))).astype(float)


def side_table(tasks: TaskSet) -> NDArray[Any]:
    """Return the table of side information; raise ValueError if there is none."""
    if tasks.side_info is None:
        raise ValueError(
            "side_info: this feature map needs side information, but none was given; "
            "pass side_info=, or select a feature map of the task's own rows such as "
            "feature_map='mean'"
        )
    return tasks.side_info
