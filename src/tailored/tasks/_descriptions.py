"""Side information in any of its forms, as one row per task found by the task's label."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp

from .._utils.validation import is_missing, name_some, native
from ._frames import (
    Column,
    Frame,
    Grouping,
    is_frame,
    is_series,
    numeric_column,
    read_frame,
    read_labels,
    remaining,
)

BY_LABEL = (
    "Side information is aligned by task label, never by position: pass a mapping {label: row}, "
    "a pandas DataFrame indexed by label, or (to TaskSet) a 2-D array with a row for every row of X."
)


class Side(NamedTuple):
    """Side information with a row per task; float64, or object if a column is not numeric.

    Missing values have a place: NaN among numbers, None among words.
    """

    values: np.ndarray | None = None
    names: list[str] | None = None


def read_side(side_info: Any, grouping: Grouping, anonymous: bool) -> Side:
    """Return the constructor's `side_info` as a row per task.

    `anonymous` says that the user named no task (`groups=None`). The one task has then no label to be found
    by, and its own row is taken in any form: a dict of named values, a Series, a frame of one row.
    """
    labels = native(grouping.labels)
    if side_info is None:
        return Side()
    if is_frame(side_info):
        frame = read_frame(side_info, "side_info")
        if not anonymous:
            return side_from_index(side_info, frame, labels)
        # the label 0 is ours: an index that happens to hold it says nothing about this task
        if len(frame) != 1:
            raise ValueError(
                f"side_info has {len(frame)} rows for one task without a label. Pass its own row."
            )
        return side_from_frame(frame, [0], labels)
    if is_series(side_info):
        values = _by_index(side_info)
        return side_from_mapping({0: values} if anonymous else values, labels)
    if isinstance(side_info, Mapping):
        named = anonymous and 0 not in side_info
        return side_from_mapping({0: side_info} if named else side_info, labels)
    if sp.issparse(side_info):
        raise TypeError("side_info is a sparse matrix; pass a dense array (side_info.toarray()).")
    # lists may mix numbers and strings; objects keep both as they are
    array = side_info if isinstance(side_info, np.ndarray) else np.asarray(side_info, dtype=object)
    if len(labels) == 1 and (array.ndim < 2 or (array.ndim == 2 and len(array) == 1)):
        return side_from_rows([array.ravel()], labels)
    if array.ndim != 2 or len(array) != len(grouping.codes):
        counts = f"{len(labels)} tasks, {len(grouping.codes)} rows of X"
        raise TypeError(f"side_info is an array of shape {array.shape} ({counts}). {BY_LABEL}")
    return side_from_columns(list(array.T), None, grouping)


def read_side_table(side_info: Any, task: list[str], labels: list[Any]) -> Side:
    """Return `from_frame`'s `side_info` as a row per task, whose label stands in the columns `task`."""
    side_info = _by_index(side_info) if is_series(side_info) else side_info
    if side_info is None:
        return Side()
    if isinstance(side_info, Mapping):
        return side_from_mapping(side_info, labels)
    if not is_frame(side_info):
        raise TypeError(f"side_info is of type {type(side_info).__name__}. {BY_LABEL}")
    frame = read_frame(side_info, "side_info")
    if set(task) <= set(frame.columns):
        keys = [read_labels(frame[name].to_native(), "side_info") for name in task]
        rows = _find(keys[0] if len(task) == 1 else _tuples(keys), labels)
        kept = remaining(frame.columns, task)
        told = frame.drop([name for name in frame.columns if name not in kept])
        return side_from_frame(told, rows, labels)
    return side_from_index(side_info, frame, labels, f" Or give it the column {name_some(task)}.")


def side_from_columns(columns: list[np.ndarray], names: list[str] | None, grouping: Grouping) -> Side:
    """Return side information given for every row of X, checked to be constant within each task."""
    labels = native(grouping.labels)
    side = _table([column[grouping.first] for column in columns], names, labels)
    for j, column in enumerate(columns):
        column = _with_none(column) if column.dtype == object else column
        expected = column[grouping.first][grouping.codes]
        differs = np.asarray(column != expected, dtype=bool)
        if column.dtype.kind == "f":
            differs &= ~(np.isnan(column) & np.isnan(expected))
        if differs.any():
            row = int(np.argmax(differs))
            task = grouping.codes[row]
            here, there = native(column[[row, grouping.first[task]]])
            raise ValueError(
                f"side information must be constant within a task, but column {_column(j, names)} of task "
                f"{labels[task]!r} is {there!r} in row {grouping.first[task]} and {here!r} in row {row}. "
                "Pass one row per task, in a mapping {label: row}."
            )
    return side


def side_from_index(data: Any, frame: Frame, labels: list[Any], hint: str = "") -> Side:
    """Return the rows of a pandas frame whose index holds the tasks' labels."""
    hint = f" A pandas DataFrame is searched by its index: call .set_index() with the labels' column.{hint}"
    return side_from_frame(frame, _find(_index(data, hint), labels, hint), labels)


def side_from_frame(frame: Frame, rows: Sequence[int], labels: list[Any]) -> Side:
    """Return the columns of a frame; task t has its values in row `rows[t]`."""
    take = np.asarray(rows, dtype=np.int64)
    columns = [side_column(column)[take] for column in frame.iter_columns()]
    return _table(columns, _strings(frame.columns), labels)


def side_column(column: Column) -> np.ndarray:
    """Return a column as float64 if it is numeric, else as objects: categories stay categories."""
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return numeric_column(column, f"Column {column.name!r} of side_info")
    if column.dtype in (nw.Categorical, nw.Enum):
        column = column.cast(nw.String)  # categories that are integers would pass for numbers
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def side_from_mapping(mapping: Mapping[Any, Any], labels: list[Any]) -> Side:
    """Return the rows of a mapping from labels to rows."""
    lost = [label for label in labels if label not in mapping]
    if lost:
        raise _lost(lost, list(mapping))
    return side_from_rows([mapping[label] for label in labels], labels)


def side_from_rows(rows: list[Any], labels: list[Any]) -> Side:
    """Return one row per task; a row is a scalar, a 1-D vector, or a mapping of named values."""
    if all(type(row) is np.ndarray and row.ndim == 1 and row.dtype.kind in "biuf" for row in rows):
        _check_widths([row.size for row in rows], labels)
        return _table(list(np.stack(rows).T), None, labels)
    rows = [_by_index(row) if is_series(row) else row for row in rows]
    if all(isinstance(row, Mapping) for row in rows):
        names = list(rows[0])
        for label, row in zip(labels, rows, strict=True):
            if set(row) != set(names):
                raise ValueError(
                    f"side information of task {label!r} has the keys {list(row)}, and of task {labels[0]!r} "
                    f"the keys {names}. Give every task the same keys."
                )
        cells = [[row[name] for name in names] for row in rows]
        return _table(_transpose(cells, labels), _strings(names), labels)
    return _table(
        _transpose([_cells(r, label) for r, label in zip(rows, labels, strict=True)], labels), None, labels
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


def _transpose(rows: list[list[Any]], labels: list[Any]) -> list[np.ndarray]:
    _check_widths([len(row) for row in rows], labels)
    return [np.fromiter(column, dtype=object, count=len(rows)) for column in zip(*rows, strict=True)]


def _check_widths(widths: list[int], labels: list[Any]) -> None:
    for label, width in zip(labels, widths, strict=True):
        if width != widths[0]:
            raise ValueError(
                f"side information of task {label!r} has {width} values, and of task {labels[0]!r} "
                f"{widths[0]}. Give every task the same number."
            )


def _table(columns: list[np.ndarray], names: list[str] | None, labels: list[Any]) -> Side:
    """Join columns with a value per task; numeric ones become floats, others stay as they are."""
    if not columns:
        raise ValueError("side_info has no columns. Leave it out, or give every task at least one value.")
    columns = [_tidy(column, j, names) for j, column in enumerate(columns)]
    for j, column in enumerate(columns):
        bad = np.isinf(column) if column.dtype == np.float64 else np.zeros(0, dtype=bool)
        if bad.any():
            t = int(np.argmax(bad))
            raise ValueError(
                f"side_info has an infinite value ({column.tolist()[t]!r}) for task {labels[t]!r}, "
                f"column {_column(j, names)}. Give a number, or NaN where it is missing."
            )
    dtype = np.float64 if all(column.dtype == np.float64 for column in columns) else object
    table = np.empty((len(labels), len(columns)), dtype=dtype)
    for j, column in enumerate(columns):
        table[:, j] = column
    return Side(table, names)


def _tidy(column: np.ndarray, j: int, names: list[str] | None) -> np.ndarray:
    kind = column.dtype.kind
    if kind == "O":
        column = _with_none(column)
        if not all(isinstance(value, Hashable) for value in column):
            raise TypeError(
                f"column {_column(j, names)} of side_info holds lists or the like; give it numbers."
            )
        known = [value for value in column if value is not None]
        # of a column without any value nothing is known, numbers least of all
        kind = np.asarray(known).dtype.kind if known else "f"
    if kind == "c":
        raise ValueError(f"Complex data not supported: column {_column(j, names)} of side_info.")
    if kind in "biuf":
        return column.astype(np.float64)  # None becomes NaN
    return np.fromiter(native(column), dtype=object, count=len(column))


def _with_none(column: np.ndarray) -> np.ndarray:
    """The objects of a column; None, NaN, NaT and pandas' NA all become None."""
    return np.fromiter((None if is_missing(v) else v for v in column), dtype=object, count=len(column))


def _strings(names: Sequence[Any]) -> list[str] | None:
    return list(names) if all(isinstance(name, str) for name in names) else None


def _column(j: int, names: list[str] | None) -> str:
    return repr(names[j]) if names else str(j)


def _index(data: Any, hint: str = "") -> list[Any]:
    index = nw.maybe_get_index(nw.from_native(data, eager_only=True, allow_series=True))
    if index is None:
        kind = f"{type(data).__module__.split('.')[0]} {type(data).__name__}"
        raise TypeError(f"side_info is a {kind}, without an index to find tasks by. {BY_LABEL}{hint}")
    return index.tolist()


def _by_index(series: Column) -> dict[Any, Any]:
    index = _index(series)
    values = dict(zip(index, series.to_list(), strict=True))
    if len(values) < len(index):
        raise ValueError("side_info is a Series with several entries for one label. Keep one each.")
    return values


def _tuples(keys: list[Any]) -> list[Any]:
    return list(zip(*(native(key) if isinstance(key, np.ndarray) else key for key in keys), strict=True))


def _find(keys: np.ndarray | list[Any], labels: list[Any], hint: str = "") -> list[int]:
    """Return the position of each label among `keys`, which may hold others and be in any order."""
    keys = native(keys) if isinstance(keys, np.ndarray) else keys
    rows: dict[Any, int] = {}
    wanted, twice = set(labels), []
    for i, key in enumerate(keys):
        if rows.setdefault(key, i) != i and key in wanted:
            twice.append(key)
    if twice:
        raise ValueError(
            f"side_info has several rows for task {name_some(dict.fromkeys(twice))}. Keep one each."
        )
    lost = [label for label in labels if label not in rows]
    if lost:
        raise _lost(lost, keys, hint)
    return [rows[label] for label in labels]


def _lost(lost: list[Any], known: list[Any], hint: str = "") -> ValueError:
    return ValueError(
        f"side_info has no row for task {name_some(lost)} (it has labels such as {name_some(known, 3)}). "
        f"Add the rows, or leave these tasks out; labels match by value and type, so 7 is not '7'.{hint}"
    )
