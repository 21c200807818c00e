"""Side information in any of its forms, as one row per task that is found by the task's label."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp

from .._utils.frames import Column, Frame, is_frame, is_series, numeric_column, other_columns, read_frame
from .._utils.validation import is_missing, label_array, name_some, native, refuse_masked
from .labels import Grouping, first_difference, positions_of, read_labels

BY_LABEL = (
    "Side information is aligned by task label, never by position: pass a mapping {label: row}, "
    "a pandas DataFrame indexed by label, or (to TaskSet) a 2-D array with a row for every row of X."
)


#: Largest absolute value; squares of larger ones overflow in sums.
MAX_VALUE = 1e100


class SideInfo(NamedTuple):
    """Side information with a row per task; float64, or object if a column is not numeric.

    Missing values are NaN in numeric columns and None in others.
    """

    values: np.ndarray | None = None
    names: list[str] | None = None


def read_side_info(side_info: Any, grouping: Grouping, *, has_labels: bool) -> SideInfo:
    """Return the argument `side_info` of `TaskSet` as a row per task.

    A single task without a label (`groups=None`) takes its own row in any form: a dict of named values, a
    Series, or a frame of one row.
    """
    labels = native(grouping.labels)
    if side_info is None:
        return SideInfo()
    refuse_masked("side_info", side_info)
    if is_frame(side_info):
        frame = read_frame(side_info, "side_info")
        if has_labels:
            return _from_index(side_info, frame, grouping.labels)
        # The label 0 was not given by the user, so the index of the frame is ignored.
        if len(frame) != 1:
            raise ValueError(
                f"side_info has {len(frame)} rows for one task without a label. Pass its own row."
            )
        return _from_frame(frame, [0], labels)
    if is_series(side_info):
        values = _by_index(side_info)
        return _from_mapping(values if has_labels else {0: values}, labels)
    if isinstance(side_info, Mapping):
        return _from_mapping(side_info if has_labels or 0 in side_info else {0: side_info}, labels)
    if sp.issparse(side_info):
        raise TypeError("side_info is a sparse matrix; pass a dense array (side_info.toarray()).")
    # A list may mix numbers and strings; an object array keeps both.
    array = side_info if isinstance(side_info, np.ndarray) else np.asarray(side_info, dtype=object)
    if len(labels) == 1 and (array.ndim < 2 or (array.ndim == 2 and len(array) == 1)):
        return side_from_rows([array.ravel()], labels)
    if array.ndim != 2 or len(array) != len(grouping.codes):
        counts = f"{len(labels)} tasks, {len(grouping.codes)} rows of X"
        raise TypeError(f"side_info is an array of shape {array.shape} ({counts}). {BY_LABEL}")
    return side_from_columns(list(array.T), None, grouping)


def read_side_table(side_info: Any, task: list[str], labels: np.ndarray) -> SideInfo:
    """Return the argument `side_info` of `from_frame` as a row per task; the columns `task` hold the labels."""
    side_info = _by_index(side_info) if is_series(side_info) else side_info
    if side_info is None:
        return SideInfo()
    if isinstance(side_info, Mapping):
        return _from_mapping(side_info, native(labels))
    if not is_frame(side_info):
        raise TypeError(f"side_info is of type {type(side_info).__name__}. {BY_LABEL}")
    frame = read_frame(side_info, "side_info")
    if not set(task) <= set(frame.columns):
        return _from_index(side_info, frame, labels, f" Or give it the column {name_some(task)}.")
    keys = [read_labels(frame[name].to_native(), "side_info") for name in task]
    tuples = keys[0] if len(task) == 1 else label_array(list(zip(*map(native, keys), strict=True)))
    kept = frame.select(other_columns(frame.columns, task))
    return _from_frame(kept, _rows_of(tuples, labels), native(labels))


def side_from_columns(columns: list[np.ndarray], names: list[str] | None, grouping: Grouping) -> SideInfo:
    """Return side information given for every row of X; it must be constant within each task."""
    labels = native(grouping.labels)
    table = _table([column[grouping.first] for column in columns], names, labels)
    for j, column in enumerate(columns):
        check_constant(column, grouping, _title(j, names))
    return table


def check_constant(values: np.ndarray, grouping: Grouping, title: str) -> None:
    """Raise ValueError if a column (n,) of side information differs between rows of one task."""
    rows = first_difference(values, grouping.codes, grouping.first)
    if rows is None:
        return
    here, there = native(values[list(rows)])
    label = native(grouping.labels)[grouping.codes[rows[0]]]
    raise ValueError(
        f"side information must be constant within a task, but column {title} of task {label!r} has the "
        f"values {there!r} and {here!r}. Pass one row per task, in a mapping {{label: row}}."
    )


def side_column(column: Column) -> np.ndarray:
    """Return a column as float64 if it is numeric, else as objects."""
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return numeric_column(column, f"Column {column.name!r} of side_info")
    if column.dtype in (nw.Categorical, nw.Enum):
        column = column.cast(nw.String)  # integer categories must not be read as numbers
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def side_from_rows(rows: list[Any], labels: list[Any]) -> SideInfo:
    """Return one row per task; a row is a scalar, a 1-D vector, or a mapping of named values."""
    if all(type(row) is np.ndarray and row.ndim == 1 and row.dtype.kind in "biuf" for row in rows):
        _check_widths([row.size for row in rows], labels)
        return _table(list(np.stack(rows).T), None, labels)
    rows = [_by_index(row) if is_series(row) else row for row in rows]
    names = None
    if all(isinstance(row, Mapping) for row in rows):
        names = list(rows[0])
        for label, row in zip(labels, rows, strict=True):
            if set(row) != set(names):
                raise ValueError(
                    f"side information of task {label!r} has the keys {list(row)}, and of task {labels[0]!r} "
                    f"the keys {names}. Give every task the same keys."
                )
        cells = [[row[name] for name in names] for row in rows]
    else:
        cells = [_cells(row, label) for row, label in zip(rows, labels, strict=True)]
        _check_widths([len(row) for row in cells], labels)
    columns = [np.fromiter(column, dtype=object, count=len(rows)) for column in zip(*cells, strict=True)]
    return _table(columns, _strings(names), labels)


def _from_index(data: Any, frame: Frame, labels: np.ndarray, hint: str = "") -> SideInfo:
    """Return the rows of a pandas frame whose index holds the tasks' labels."""
    hint = f" A pandas DataFrame is searched by its index: call .set_index() with the labels' column.{hint}"
    rows = _rows_of(label_array(_index(data, hint)), labels, hint)
    return _from_frame(frame, rows, native(labels))


def _from_frame(frame: Frame, rows: Sequence[int] | np.ndarray, labels: list[Any]) -> SideInfo:
    """Return the columns of a frame; task t has its values in row `rows[t]`."""
    take = np.asarray(rows, dtype=np.int64)
    columns = [side_column(column)[take] for column in frame.iter_columns()]
    return _table(columns, _strings(frame.columns), labels)


def _from_mapping(mapping: Mapping[Any, Any], labels: list[Any]) -> SideInfo:
    missing = [label for label in labels if label not in mapping]
    if missing:
        raise _no_row(missing, list(mapping))
    return side_from_rows([mapping[label] for label in labels], labels)


def _rows_of(keys: np.ndarray, labels: np.ndarray, hint: str = "") -> np.ndarray:
    """Return the row of each label in a table with the labels `keys`, which may hold others in any order."""
    task = positions_of(keys, labels)
    rows = np.flatnonzero(task >= 0)
    counts = np.bincount(task[rows], minlength=len(labels))
    if (counts > 1).any():
        repeated = native(labels[counts > 1])
        raise ValueError(f"side_info has several rows for task {name_some(repeated)}. Keep one each.")
    if (counts == 0).any():
        raise _no_row(native(labels[counts == 0]), native(keys), hint)
    return rows[np.argsort(task[rows])]


def _no_row(missing: list[Any], known: list[Any], hint: str = "") -> ValueError:
    return ValueError(
        f"side_info has no row for task {name_some(missing)} (it has labels such as {name_some(known, 3)}). "
        f"Add the rows, or leave these tasks out; labels match by value and type, so 7 is not '7'.{hint}"
    )


def _cells(row: Any, label: Any) -> list[Any]:
    if isinstance(row, np.ndarray | list | tuple):
        values = row if isinstance(row, np.ndarray) else np.asarray(row, dtype=object)
        if values.ndim == 1:
            return values.tolist() if values.dtype.kind == "O" else list(values)
    elif not isinstance(row, Mapping) and np.ndim(row) == 0:
        return [row]
    raise TypeError(
        f"side information of task {label!r} must be a number, a 1-D vector or, for all tasks, a dict "
        f"of named values; got {type(row).__name__}."
    )


def _check_widths(widths: list[int], labels: list[Any]) -> None:
    for label, width in zip(labels, widths, strict=True):
        if width != widths[0]:
            raise ValueError(
                f"side information of task {label!r} has {width} values, and of task {labels[0]!r} "
                f"{widths[0]}. Give every task the same number."
            )


def _table(columns: list[np.ndarray], names: list[str] | None, labels: list[Any]) -> SideInfo:
    """Join columns with a value per task; numeric ones become floats, others stay objects."""
    if not columns:
        raise ValueError("side_info has no columns. Leave it out, or give every task at least one value.")
    columns = [_as_column(column, _title(j, names)) for j, column in enumerate(columns)]
    for j, column in enumerate(columns):
        too_large = np.abs(column) > MAX_VALUE if column.dtype == np.float64 else np.zeros(0, dtype=bool)
        if too_large.any():
            t = int(np.argmax(too_large))
            raise ValueError(
                f"side_info has an infinite or very large value ({column.tolist()[t]!r}) for task {labels[t]!r}, "
                f"column {_title(j, names)}. Use a smaller unit, or NaN for a missing value."
            )
    dtype = np.float64 if all(column.dtype == np.float64 for column in columns) else object
    table = np.empty((len(labels), len(columns)), dtype=dtype)
    for j, column in enumerate(columns):
        table[:, j] = column
    return SideInfo(table, names)


def _as_column(column: np.ndarray, title: str) -> np.ndarray:
    """Return numbers as float64 and other values as objects; every missing object becomes None."""
    kind = column.dtype.kind
    if kind == "O":
        values = (None if is_missing(value) else value for value in column)
        column = np.fromiter(values, dtype=object, count=len(column))
        if not all(isinstance(value, Hashable) for value in column):
            raise TypeError(f"column {title} of side_info holds lists or other containers; give it numbers.")
        present = [value for value in column if value is not None]
        # A column without any value is numeric: a column of NaN.
        kind = np.asarray(present).dtype.kind if present else "f"
    if kind == "c":
        raise ValueError(f"Complex data not supported: column {title} of side_info.")
    if kind in "biuf":
        return column.astype(np.float64)  # None becomes NaN
    return np.fromiter(native(column), dtype=object, count=len(column))


def _strings(names: Sequence[Any] | None) -> list[str] | None:
    return list(names) if names is not None and all(isinstance(name, str) for name in names) else None


def _title(j: int, names: list[str] | None) -> str:
    return repr(names[j]) if names else str(j)


def _index(data: Any, hint: str = "") -> list[Any]:
    index = nw.maybe_get_index(nw.from_native(data, eager_only=True, allow_series=True))
    if index is None:
        kind = f"{type(data).__module__.split('.')[0]} {type(data).__name__}"
        raise TypeError(f"side_info is a {kind}, which has no index to find tasks by. {BY_LABEL}{hint}")
    return list(index.tolist())


def _by_index(series: Column) -> dict[Any, Any]:
    index = _index(series)
    values = dict(zip(index, series.to_list(), strict=True))
    if len(values) < len(index):
        raise ValueError("side_info is a Series with several entries for one label. Keep one each.")
    return values
