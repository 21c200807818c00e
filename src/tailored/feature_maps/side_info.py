"""Feature maps of the side information, and user-defined maps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._utils.validation import check_divisor, check_real, check_shape, is_missing, name_some, outside
from ..exceptions import UnknownCategoryWarning
from ..tasks.rows import dense
from ..tasks.task_set import Task, TaskSet
from .base import Array, FeatureMap, check_features


class SideInfoMap(FeatureMap):
    """Base of the maps that read only the side information."""

    needs_rows = False
    needs_side_info = True


class SideVector(SideInfoMap):
    """The side information itself.

    Numeric tables are not changed.  If a table also has categorical columns, these are one-hot encoded (an unknown
    category gives zeros) and the numeric columns are standardised, so that all have comparable scales.

    A missing number is replaced by the mean of the column in training.  A column with missing numbers in training also
    gets a missing-value indicator.  A missing category is encoded as a separate category if categories were missing in
    training, and as zeros otherwise.
    """

    #: Column means, if the table is numeric.
    means: Array | None = None
    #: Positions of the columns with a missing-value indicator, if the table is numeric.
    indicated: tuple[int, ...] = ()
    #: The categories, or mean and standard deviation, of each column, if the table has categories.
    categories: list[dict[str, Any]] | None

    def __init__(self) -> None:
        self.categories = None

    def restore(self) -> None:
        if self.means is not None:
            check_shape("means", self.means, None)
        n = 0 if self.means is None else len(self.means)
        if sorted(set(self.indicated)) != list(self.indicated) or not all(0 <= j < n for j in self.indicated):
            raise ValueError("indicated: must be increasing positions of numeric columns")
        for i, code in enumerate(self.categories or ()):
            _check_code(code, f"categories.{i}")

    def fit(self, tasks: TaskSet) -> SideVector:
        table = _side_table(tasks)
        for j, column in enumerate(table.T):
            if len(column) and all(is_missing(value) for value in column):
                name = repr(tasks.side_names[j]) if tasks.side_names else str(j)
                raise ValueError(f"side_info: column {name} has no value in any task; drop the column")
        if table.dtype == object:
            self.categories, self.means, self.indicated = [_encoding(column) for column in table.T], None, ()
        else:
            missing = np.isnan(table)
            self.categories, self.means = None, np.nanmean(table, axis=0)
            self.indicated = tuple(np.flatnonzero(missing.any(axis=0)).tolist())
        return self

    def transform(self, tasks: TaskSet) -> Array:
        return self._encode(tasks)[0]

    def known(self, tasks: TaskSet) -> NDArray[np.bool_]:
        """Return whether each feature of each task is observed, not imputed, (T, k)."""
        return self._encode(tasks)[1]

    @property
    def origins(self) -> list[int]:
        """The table column that each feature comes from."""
        if self.categories is None:
            assert self.means is not None
            return [*range(len(self.means)), *self.indicated]
        widths = [
            1 + bool(code.get("indicator", False)) if "mean" in code else len(code["values"])
            for code in self.categories
        ]
        return np.repeat(np.arange(len(widths)), widths).tolist()

    def contrasts(self) -> list[tuple[int, str, dict[int, float]]]:
        """Return (column, category, feature changes) for a unit of each number, and for each category against the first."""
        found, origins = list[tuple[int, str, dict[int, float]]](), self.origins
        for f, column in enumerate(origins):
            first, code = origins.index(column), {} if self.categories is None else self.categories[column]
            if "values" not in code:
                unit = {f: 1.0 / code.get("deviation", 1.0)} if f == first else {f: 1.0}
                found.append((column, "" if f == first else "missing", unit))
            elif f > first:
                value = code["values"][f - first]
                found.append((column, "missing" if value is None else str(value), {f: 1.0, first: -1.0}))
        return found

    def _encode(self, tasks: TaskSet) -> tuple[Array, NDArray[np.bool_]]:
        """Return the features, and a mask of the observed ones."""
        table = _side_table(tasks)
        codes = self.means if self.categories is None else self.categories
        if codes is not None and table.shape[1] != len(codes):
            raise ValueError(f"side_info: expected {len(codes)} columns as in fit, got {table.shape[1]}")
        if self.categories is None:
            values = _as_numbers(table, "the side information")
            missing = np.isnan(values)
            indicators = missing[:, list(self.indicated)]
            if missing.any() and self.means is not None:
                values = np.where(missing, self.means, values)
            return np.hstack([values, indicators]), np.hstack([~missing, np.ones_like(indicators)])
        _warn_of_unknown(table, self.categories, tasks.side_names)
        parts = [_encoded(column, code) for column, code in zip(table.T, self.categories, strict=True)]
        return np.hstack([values for values, _ in parts]), np.hstack([known for _, known in parts])


def _check_code(code: dict[str, Any], name: str) -> None:
    """Raise a ValueError unless this is the encoding of one column."""
    if set(code) == {"values"}:
        values = code["values"]
        if not isinstance(values, list) or len(set(values)) != len(values):
            raise ValueError(f"{name}: values must be a list of different categories")
    elif {"mean", "deviation"} <= set(code) <= {"mean", "deviation", "indicator"}:
        check_real(f"{name}.mean", code["mean"])
        check_divisor(f"{name}.deviation", check_real(f"{name}.deviation", code["deviation"]))
    else:
        raise ValueError(f"{name}: must have values, or a mean and a deviation")


def _as_numbers(table: NDArray[Any], what: str) -> Array:
    """Convert a table that was numeric in fit to floats; raise ValueError if it contains strings."""
    try:
        if table.dtype == object and any(isinstance(value, str) for value in table.ravel()):
            raise ValueError("strings")
        return table.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"side_info: {what} was numeric in fit and contains text now; give the same columns as in fit"
        ) from error


def _encoding(column: NDArray[Any]) -> dict[str, Any]:
    known = [value for value in column if not is_missing(value)]
    if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in known):
        values = np.array(known, dtype=float)
        return {
            "mean": float(values.mean()),
            "deviation": float(values.std()) or 1.0,
            "indicator": len(known) < len(column),
        }
    categories = sorted(set(known), key=lambda value: (str(type(value)), value))
    return {"values": [*categories, None] if len(known) < len(column) else categories}


def _encoded(column: NDArray[Any], encoding: dict[str, Any]) -> tuple[Array, NDArray[np.bool_]]:
    """Return the features for one column of a table with categories, and a mask of the observed ones."""
    missing = np.array([is_missing(value) for value in column], dtype=bool)
    if "mean" in encoding:
        numbers = _as_numbers(np.where(missing, encoding["mean"], column), "one of its columns")
        parts = [(numbers - encoding["mean"]) / encoding["deviation"]]
        if encoding.get("indicator", False):
            parts.append(missing.astype(float))
        known = np.column_stack([~missing, *(np.ones_like(missing) for _ in parts[1:])])
        return np.column_stack(parts), known
    positions = {value: j for j, value in enumerate(encoding["values"])}
    out = np.zeros((len(column), len(positions)))
    for t, value in enumerate(column):
        j = positions.get(None if missing[t] else value)
        if j is not None:
            out[t, j] = 1.0
    return out, np.ones(out.shape, dtype=bool)


def _warn_of_unknown(table: NDArray[Any], categories: list[Any], names: list[str] | None) -> None:
    """Warn about categories that did not occur in training."""
    for j, (column, encoding) in enumerate(zip(table.T, categories, strict=True)):
        known = encoding.get("values")
        unknown = [v for v in dict.fromkeys(column) if known is not None and v not in known]
        unknown = [value for value in unknown if not is_missing(value)]
        if unknown:
            treatment = "none of these, with zero indicators" if None in known else "a missing value"
            warnings.warn(
                f"side_info: column {repr(names[j]) if names else j}: {name_some(unknown, 3)} did not appear in training, "
                f"which had {name_some([v for v in known if v is not None], 3)}. It is treated as {treatment}.",
                UnknownCategoryWarning,
                stacklevel=outside(),
            )


class Transformer(SideInfoMap):
    """Any scikit-learn transformer applied to the table of side information; ``fitted`` is its fitted clone."""

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer
        self.fitted: Any = None

    def fit(self, tasks: TaskSet) -> Transformer:
        self.fitted = clone(self.transformer).fit(_side_table(tasks))
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.fitted is None:
            raise self._not_fitted()
        return dense(self.fitted.transform(_side_table(tasks)))


class CallableMap(FeatureMap):
    """``φ = function(task)`` where the task has ``X``, ``y``, ``side_info`` and ``label``."""

    def __init__(self, function: Callable[[Task], Any]) -> None:
        self.function = function

    needs_rows = False

    def transform(self, tasks: TaskSet) -> Array:
        rows: list[Array] = []
        for task in tasks:
            phi = np.atleast_1d(np.asarray(self.function(task), dtype=float))
            if phi.ndim != 1 or (rows and len(phi) != len(rows[0])):
                expected = f" of length {len(rows[0])}, as for the first task" if rows else ""
                raise ValueError(
                    f"feature_map: the callable must return a 1-D vector{expected}; for task {task.label!r} it returned "
                    f"shape {phi.shape}"
                )
            rows.append(phi)
        return check_features(np.array(rows), tasks)


def _side_table(tasks: TaskSet) -> NDArray[Any]:
    if tasks.side_info is None:
        raise ValueError(
            "side_info: this feature map needs side information and none was given; "
            "pass side_info=, or select a feature map of the task's own rows such as feature_map='mean'"
        )
    return tasks.side_info
