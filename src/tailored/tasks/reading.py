"""Read labels, side information and long tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._utils.frames import (
    Column,
    Frame,
    SideInfoLike,
    ValuesLike,
    check_columns,
    factorize,
    is_frame,
    is_null,
    is_series,
    numeric_column,
    other_columns,
    read_frame,
    require_columns,
)
from .._utils.validation import (
    check_choice,
    is_missing,
    label_array,
    name_some,
    native,
    refuse_masked,
    warn,
)
from .encoding import (
    MANY_CATEGORIES,
    ROW_VALUES,
    Declared,
    Encoding,
    SideInfo,
    TaskColumns,
    as_columns,
    declared_types,
    refuse_misread_text,
    side_column,
)
from .parsing import ParsedFormula

Keys = NDArray[np.uint64]

# Without 128-bit integers, which narwhals has but NumPy does not.
_INTEGERS = (nw.Int8, nw.Int16, nw.Int32, nw.Int64, nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64)
#: Names of the types of labels, by the kind of their NumPy dtype.
_KINDS = {"b": "booleans", "U": "strings", "M": "dates", **dict.fromkeys("iuf", "numbers")}
#: Matches the names of columns that are likely to contain identifiers: "student_id", "itemCode" or "patient".
_IDENTIFIER = re.compile(
    r"(^|[\W_])(?i:id|code|number|nr)$|[a-z](ID|Id|Code|Number|Nr)$|^(?i:account|customer|household|item|movie|participant|"
    r"patient|person|postcode|product|pupil|respondent|school|shop|store|student|subject|user|zip)$"
)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Grouping(NamedTuple):
    """The task of every row; tasks are numbered in the order in which their labels first appear."""

    codes: np.ndarray  # (N,) task number of each row
    labels: np.ndarray  # (T,) label of each task
    first: np.ndarray  # (T,) first row of each task


def read_labels(labels: ValuesLike, name: str) -> np.ndarray:
    """Return labels as a 1-D array of booleans, numbers, strings or dates, or else of Python objects."""
    refuse_masked(name, labels)
    if is_series(labels):
        column = nw.from_native(labels, series_only=True)
        if column.dtype in _INTEGERS and not column.is_null().any():
            return np.asarray(column.to_numpy())
        return label_array(column.to_list())
    if hasattr(labels, "__array__") or not isinstance(labels, list | tuple):
        array = np.asarray(labels)
        if array.ndim != 1:
            raise ValueError(
                f"{name} must be 1-D, with a label per entry; got shape {array.shape}."
            )
        return array if array.dtype.kind in "biufmMU" else label_array(array.tolist())
    # np.asarray would turn [1, "a"] into strings.
    return label_array(list(labels))


def distinct_labels(labels: ValuesLike, n_tasks: int) -> np.ndarray:
    """Return the labels of `n_tasks` tasks; none may be missing, and no two may be equal."""
    array = read_labels(labels, "labels")
    keys = native(array)
    if len(keys) != n_tasks:
        raise ValueError(f"labels has {len(keys)} entries for {n_tasks} tasks.")
    if any(_is_incomplete(key) for key in keys):
        raise ValueError("labels has a missing label (None or NaN). Label every task.")
    repeated = [key for key, count in Counter(keys).items() if count > 1]
    if repeated:
        verb = "appears" if len(repeated) == 1 else "appear"
        raise ValueError(
            f"labels must be distinct, but {name_some(repeated)} {verb} more than once."
        )
    return array.copy()


def group_rows(groups: ValuesLike, n_rows: int, name: str = "groups") -> Grouping:
    """Number the tasks of the rows by first appearance of their labels; for None, all rows are one task, labelled 0."""
    if groups is None:
        return Grouping(np.zeros(n_rows, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))
    strings = factorize(groups)
    labels = read_labels(groups, name) if strings is None else strings[0]
    if len(labels) != n_rows:
        raise ValueError(
            f"{name} has {len(labels)} labels, but X has {n_rows} rows. Pass a label per row."
        )
    if strings is None:
        return group_labels(labels, name)
    codes, distinct = strings
    return Grouping(codes, label_array(distinct), _first_rows(codes, len(distinct)))


def group_labels(labels: np.ndarray, name: str = "groups") -> Grouping:
    """Number the tasks of an array of labels by first appearance; raise ValueError for missing labels."""
    if labels.dtype.kind in "biufmM":
        unique, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        order = np.argsort(first)
        grouping = Grouping(np.argsort(order)[inverse], unique[order], first[order])
    else:
        known: dict[Any, int] = {}
        try:
            numbers = (known.setdefault(label, len(known)) for label in native(labels))
            codes = np.fromiter(numbers, np.int64, len(labels))
        except TypeError as error:
            raise TypeError(
                f"{name} must hold hashable labels, such as strings: {error}."
            ) from None
        refuse_other_spelling(list(known), list(known))
        grouping = Grouping(codes, label_array(list(known)), _first_rows(codes, len(known)))
    if grouping.labels.dtype.kind not in "biuU":
        for label, row in zip(native(grouping.labels), grouping.first, strict=True):
            if _is_incomplete(label):
                missing = f"{name} has a missing label ({label!r}) in row {row}"
                advice = "Label each row. TaskSet.from_frame(..., missing='drop') drops rows without a label."
                raise ValueError(f"{missing}. {advice}")
    return grouping


def _first_rows(codes: np.ndarray, n_tasks: int) -> np.ndarray:
    first = np.empty(n_tasks, np.int64)
    # NumPy keeps the last of several assignments to the same position.
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first


def _is_incomplete(label: object) -> bool:
    """Return whether a label is missing, or is a tuple with NaN, which is not equal to itself; None in a tuple is valid."""
    if isinstance(label, tuple):
        return any(value is not None and _is_incomplete(value) for value in label)
    return is_missing(label)


def first_difference(
    values: np.ndarray, codes: np.ndarray, first: np.ndarray
) -> tuple[np.ndarray, tuple[int, int] | None]:
    """Return the row (T,) of each task's first value that is not missing, and two rows of one task with different values.

    The second result is None if the `values` (n,) are constant within tasks, apart from missing values.
    """
    is_float = values.dtype.kind == "f"
    missing = (
        np.isnan(values) if is_float else np.array([is_missing(v) for v in values], dtype=bool)
    )
    present = np.flatnonzero(~missing)[::-1]
    first = first.copy()
    first[codes[present]] = present  # NumPy keeps the last assignment, which is the first row
    differs = ~missing & np.asarray(values != values[first][codes], dtype=bool)
    if not differs.any():
        return first, None
    row = int(np.argmax(differs))
    return first, (row, int(first[codes[row]]))


def positions_of(
    labels: np.ndarray, known: np.ndarray, *, same_kind: bool = False
) -> NDArray[np.int64]:
    """Return the position of each label among the known labels, or −1 if it is not known.

    Labels are compared as in Python, so 7 equals 7.0. If 7 is a known label, the label "7" raises ValueError. With
    `same_kind`, labels of another type than the known labels also raise ValueError, except strings, because "new" may
    be the name of a new task.
    """
    if labels.dtype == known.dtype != object and np.array_equal(labels, known):
        return np.arange(len(labels))
    if labels.dtype.kind == known.dtype.kind and known.dtype.kind in "iuU" and len(known):
        order = np.argsort(known)
        nearest = order[np.minimum(np.searchsorted(known, labels, sorter=order), len(known) - 1)]
        return np.where(known[nearest] == labels, nearest, -1)
    position = {label: t for t, label in enumerate(native(known))}
    positions = np.array([position.get(label, -1) for label in native(labels)], dtype=np.int64)
    refuse_other_spelling(native(labels[positions < 0]), list(position))
    kinds = [_KINDS.get(array.dtype.kind) for array in (labels, known)]
    if same_kind and None not in kinds and kinds[0] not in (kinds[1], "strings"):
        raise ValueError(
            f"labels: they are {kinds[0]} here and were {kinds[1]} in fit. Use the same type."
        )
    return positions


def refuse_other_spelling(labels: list[Any], known: list[Any]) -> None:
    """Raise ValueError if a label is a string and a known label is the number it spells, or vice versa."""
    if not labels or len({isinstance(label, str) for label in (*labels, *known)}) < 2:
        return
    spelled = {str(label).removesuffix(".0"): label for label in known}
    for label in labels:
        other = spelled.get(str(label).removesuffix(".0"), label)
        if isinstance(other, str) != isinstance(label, str):
            advice = "Write the labels as numbers everywhere, or as strings everywhere."
            raise ValueError(f"labels: {label!r} and {other!r} are different tasks. {advice}")


def mix(numbers: Keys) -> Keys:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def label_keys(labels: np.ndarray, seed: int = 0) -> Keys:
    """Return a pseudorandom number for each label that is the same in every process and task set.

    Equal labels, such as 7 and 7.0 or (7, 'a') and (7.0, 'a'), have equal keys. Different labels nearly always have different keys.
    """
    with np.errstate(over="ignore"):
        start = np.uint64(seed % 2**64) * _GOLDEN + _GOLDEN
        return mix(mix(_numbers(labels) + start) + start)


def row_keys(seed: np.ndarray, task: np.ndarray, row: np.ndarray) -> Keys:
    """Return pseudorandom numbers that depend only on the seed, the task's position and the row's position within the task.

    One random stream for all rows would make the draw of a task depend on the sizes of the tasks before it.
    """
    return mix(mix(seed + task.astype(np.uint64) * _GOLDEN) + row.astype(np.uint64) * _GOLDEN)


def _numbers(labels: np.ndarray) -> Keys:
    kind = labels.dtype.kind
    if kind in "biu":
        return labels.astype(np.uint64 if kind == "u" else np.int64).view(np.uint64)
    if kind in "mM":
        return labels.astype(f"{kind}8[ns]").view(np.uint64)
    return np.fromiter(
        (_number(label) for label in native(labels)), dtype=np.uint64, count=len(labels)
    )


def _number(label: object) -> int:
    if isinstance(label, int) or (
        isinstance(label, float) and label.is_integer() and abs(label) < 2.0**63
    ):
        return int(label) % 2**64
    if isinstance(label, float):
        return int(np.float64(label).view(np.uint64))
    return int.from_bytes(
        blake2b(repr(_canonical(label)).encode(), digest_size=8).digest(), "little"
    )


def _canonical(label: object) -> object:
    """Return the label with whole numbers in tuples as integers, because equal labels need the same text."""
    if isinstance(label, tuple):
        return tuple(map(_canonical, label))
    if isinstance(label, int | np.integer | np.bool_):
        return int(label)
    return int(label) if isinstance(label, float | np.floating) and label.is_integer() else label


BY_LABEL = (
    "Side information is aligned by task label, not by the order of tasks: pass a mapping {label: row}, "
    "a pandas DataFrame indexed by label, or (to TaskSet) a 2-D array with a row for every row of X."
)


#: Largest absolute value of side information (sums of squares must be finite), and largest weight or exposure.
MAX_VALUE, MAX_ROW_VALUE = 1e100, 1e15


def read_side_info(
    side_info: SideInfoLike,
    grouping: Grouping,
    *,
    task: Sequence[str] = (),
    like: Sequence[Any] = (),
    has_labels: bool = True,
) -> SideInfo:
    """Return side information with one row per task.

    Rows of mappings and frames are found by label; the columns ``task`` of a frame, or else its index, contain the labels.
    For tables with a row for every row of X and for ``like``, see `side_by_rows`. The values of a single task without a label
    (``has_labels=False``) may be a vector, a dict of named values, a Series, or a frame of one row.
    """
    labels, n_rows = native(grouping.labels), len(grouping.codes)
    if side_info is None:
        return SideInfo()
    refuse_masked("side_info", side_info)
    if has_labels:
        side_info = side_by_rows(side_info, grouping, like, task)
    elif is_frame(side_info):
        # The label 0 was not given by the user, so the index of the frame is ignored.
        frame = read_frame(side_info, "side_info")
        if len(frame) not in (1, n_rows):
            found = f"side_info has {len(frame)} rows for one task without a label"
            raise ValueError(f"{found}. Pass one row.")
        side_info = _side_of_rows(frame)
    elif is_series(side_info) or (isinstance(side_info, Mapping) and 0 not in side_info):
        side_info = {0: side_info}
    if isinstance(side_info, SideInfo):
        columns = [] if side_info.values is None else list(side_info.values.T)
        return side_from_columns(columns, side_info.names, grouping)
    if is_series(side_info) or isinstance(side_info, Mapping):
        rows = _by_index(side_info) if is_series(side_info) else side_info
        if missing := [label for label in labels if label not in rows]:
            raise _no_row(missing, list(rows))
        return side_from_rows([rows[label] for label in labels], labels)
    if is_frame(side_info):
        return _find_rows(read_frame(side_info, "side_info"), task, grouping.labels)
    if sp.issparse(side_info):
        raise TypeError("side_info is a sparse matrix; pass a dense array (side_info.toarray()).")
    # A list may mix numbers and strings; an object array keeps both.
    array = side_info if isinstance(side_info, np.ndarray) else np.asarray(side_info, dtype=object)
    if len(labels) == 1 and (array.ndim < 2 or (array.ndim == 2 and len(array) == 1)):
        return side_from_rows([array.ravel()], labels)
    if array.ndim != 2 or len(array) != n_rows:
        counts = f"{len(labels)} tasks, {n_rows} rows of X"
        raise TypeError(f"side_info is an array of shape {array.shape} ({counts}). {BY_LABEL}")
    return side_from_columns(list(array.T), None, grouping)


def side_by_rows(
    side_info: SideInfoLike, grouping: Grouping, like: Sequence[Any], task: Sequence[str] = ()
) -> Any:
    """Return a frame or Series with a row for every row of X as `SideInfo`; anything else is returned unchanged.

    Such a frame lacks the columns ``task``, and has no index, the default index, or that of ``like`` (groups, X or y).
    If it is constant within tasks, it may have another index of integers, as in a cross-validation fold. If that index
    contains all labels, ValueError is raised.
    """
    is_column = is_series(side_info)
    if not (is_column or is_frame(side_info)) or len(side_info) != len(grouping.codes):
        return side_info
    data = nw.from_native(side_info, series_only=True).to_frame() if is_column else side_info
    frame, labels = read_frame(data, "side_info"), set(native(grouping.labels))
    index = _row_index(frame)
    if (
        not frame.columns
        or (index and set(index) == labels)
        or (task and set(task) <= set(frame.columns))
    ):
        return side_info
    rows = _side_of_rows(frame)
    if index is None or index == list(range(len(index))) or index in map(_row_index, like):
        return rows
    is_integer = len(labels) < len(index) and all(isinstance(key, int) for key in index)
    columns = map(side_column, frame.iter_columns())
    differences = (
        first_difference(column, grouping.codes, grouping.first)[1] for column in columns
    )
    if is_integer and all(difference is None for difference in differences):
        if not labels <= set(index):
            return rows
        found = f"it has {len(index)} rows, as X has, and its index has all labels"
        by_row = "side_info.to_numpy() for a row per row of X"
        raise ValueError(f"side_info: {found}. Pass {by_row}, or a mapping {{label: row}}.")
    return side_info


def _side_of_rows(frame: Frame) -> SideInfo:
    columns = [side_column(column) for column in frame.iter_columns()]
    return SideInfo(np.column_stack(columns) if columns else None, _strings(frame.columns))


def _find_rows(frame: Frame, task: Sequence[str], labels: np.ndarray) -> SideInfo:
    """Return the rows of these labels, which are in the columns ``task`` of a frame, or in its index."""
    hint = ""
    if task and set(task) <= set(frame.columns):
        parts = [read_labels(frame[name].to_native(), "side_info") for name in task]
        keys = (
            parts[0] if len(task) == 1 else label_array(list(zip(*map(native, parts), strict=True)))
        )
        frame = frame.select(other_columns(frame.columns, task))
    else:
        hint = " A pandas DataFrame is searched by its index: call .set_index() with the labels' column."
        hint += f" Or give it the column {name_some(task)}." if task else ""
        keys = label_array(_index(frame.to_native(), hint))
    positions = positions_of(keys, labels)
    rows = np.flatnonzero(positions >= 0)
    counts = np.bincount(positions[rows], minlength=len(labels))
    if (counts > 1).any():
        repeated = native(labels[counts > 1])
        raise ValueError(
            f"side_info has several rows for task {name_some(repeated)}. Keep one row per task."
        )
    if (counts == 0).any():
        raise _no_row(native(labels[counts == 0]), native(keys), hint)
    rows = rows[np.argsort(positions[rows])]
    columns = [side_column(column)[rows] for column in frame.iter_columns()]
    return _table(columns, _strings(frame.columns), native(labels))


def _row_index(data: Any) -> list[Any] | None:
    """Return the index of a pandas frame or Series, None for other data."""
    data = nw.from_native(data, eager_only=True, allow_series=True, pass_through=True)
    index = nw.maybe_get_index(data) if isinstance(data, nw.DataFrame | nw.Series) else None
    return None if index is None else list(index.tolist())


def side_types(
    side_info: SideInfoLike, names: list[str] | None
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the declared types of the columns of side information, if it is a frame."""
    return (
        declared_types(read_frame(side_info, "side_info"), names or ())
        if is_frame(side_info)
        else {}
    )


def side_from_columns(
    columns: list[np.ndarray], names: list[str] | None, grouping: Grouping
) -> SideInfo:
    """Return side information given for every row of X; it must be constant within each task."""
    values = [
        constant_values(column, grouping, _title(j, names)) for j, column in enumerate(columns)
    ]
    return _table(values, names, native(grouping.labels))


def constant_values(values: np.ndarray, grouping: Grouping, title: str) -> np.ndarray:
    """Return the value of each task in a column (n,) of side information; raise ValueError if a task has several."""
    first, rows = first_difference(values, grouping.codes, grouping.first)
    if rows is None:
        return np.asarray(values[first])
    here, there = native(values[list(rows)])
    label = native(grouping.labels)[grouping.codes[rows[0]]]
    found = f"column {title} of task {label!r} has the values {there!r} and {here!r}"
    advice = "Give each task one value, or leave the column out."
    raise ValueError(f"side information must be constant within a task, but {found}. {advice}")


def side_from_rows(rows: list[Any], labels: list[Any]) -> SideInfo:
    """Return side information given by task; a row is a scalar, a 1-D vector, or a mapping of named values."""
    if all(type(row) is np.ndarray and row.ndim == 1 and row.dtype.kind in "biuf" for row in rows):
        _check_widths([row.size for row in rows], labels)
        return _table(list(np.stack(rows).T), None, labels)
    rows = [_by_index(row) if is_series(row) else row for row in rows]
    names = None
    if all(isinstance(row, Mapping) for row in rows):
        names = list(rows[0])
        for label, row in zip(labels, rows, strict=True):
            if set(row) != set(names):
                expected = (
                    f"and that of task {labels[0]!r} has {names}. Give every task the same keys."
                )
                raise ValueError(
                    f"side information of task {label!r} has the keys {list(row)}, {expected}"
                )
        cells = [[row[name] for name in names] for row in rows]
    else:
        cells = [_cells(row, label) for row, label in zip(rows, labels, strict=True)]
        _check_widths([len(row) for row in cells], labels)
    columns = [
        np.fromiter(column, dtype=object, count=len(rows)) for column in zip(*cells, strict=True)
    ]
    return _table(columns, _strings(names), labels)


def _no_row(missing: list[Any], known: list[Any], hint: str = "") -> ValueError:
    return ValueError(
        f"side_info has no row for task {name_some(missing)} (it has labels such as {name_some(known, 3)}). "
        f"Add the rows, or leave these tasks out. Numbers do not match strings: 7 is not '7'.{hint}"
    )


def _cells(row: Any, label: Any) -> list[Any]:
    if isinstance(row, np.ndarray | list | tuple):
        values = row if isinstance(row, np.ndarray) else np.asarray(row, dtype=object)
        if values.ndim == 1:
            return values.tolist() if values.dtype.kind == "O" else list(values)
    elif not isinstance(row, Mapping) and np.ndim(row) == 0:
        return [row]
    expected = "a number, a 1-D vector or, for all tasks, a dict of named values"
    raise TypeError(
        f"side information of task {label!r} must be {expected}; got {type(row).__name__}."
    )


def _check_widths(widths: list[int], labels: list[Any]) -> None:
    for label, width in zip(labels, widths, strict=True):
        if width != widths[0]:
            expected = (
                f"and that of task {labels[0]!r} has {widths[0]}. Give every task the same number."
            )
            raise ValueError(f"side information of task {label!r} has {width} values, {expected}")


def _table(columns: list[np.ndarray], names: list[str] | None, labels: list[Any]) -> SideInfo:
    """Join columns with a value per task; numbers become floats, other values stay objects."""
    if not columns:
        raise ValueError(
            "side_info has no columns. Leave it out, or give every task at least one value."
        )
    columns = [_as_column(column, _title(j, names)) for j, column in enumerate(columns)]
    for j, column in enumerate(columns):
        if column.dtype == np.float64 and (too_large := np.abs(column) > MAX_VALUE).any():
            t = int(np.argmax(too_large))
            value = f"({column.tolist()[t]!r}) for task {labels[t]!r}, column {_title(j, names)}"
            advice = "Use a larger unit, or NaN for a missing value."
            raise ValueError(f"side_info has an infinite or very large value {value}. {advice}")
    return SideInfo(np.column_stack(columns), names)


def _as_column(column: np.ndarray, title: str) -> np.ndarray:
    """Return numbers as float64, with NaN for missing values, and other values as objects, with None for missing values."""
    kind = column.dtype.kind
    if kind == "O":
        # None is equal to itself, unlike NaN, NaT and pandas' NA.
        column = np.fromiter(
            (None if is_missing(v) else v for v in column), dtype=object, count=len(column)
        )
        if not all(isinstance(value, Hashable) for value in column):
            raise TypeError(
                f"column {title} of side_info holds lists or other containers; use numbers."
            )
        present = [value for value in column if value is not None]
        # A column without any value is numeric: a column of NaN.
        kind = np.asarray(present).dtype.kind if present else "f"
    if kind == "c":
        raise ValueError(f"Complex data not supported: column {title} of side_info.")
    if kind in "biuf":
        return column.astype(np.float64)  # None becomes NaN
    return np.fromiter(native(column), dtype=object, count=len(column))


def _strings(names: Sequence[Any] | None) -> list[str] | None:
    return (
        list(names) if names is not None and all(isinstance(name, str) for name in names) else None
    )


def _title(j: int, names: list[str] | None) -> str:
    return repr(names[j]) if names else str(j)


def _index(data: Any, hint: str = "") -> list[Any]:
    index = _row_index(data)
    if index is None:
        kind = f"{type(data).__module__.split('.')[0]} {type(data).__name__}"
        raise TypeError(
            f"side_info is a {kind}, which has no index to find tasks by. {BY_LABEL}{hint}"
        )
    return index


def _by_index(series: Column) -> dict[Any, Any]:
    index = _index(series)
    values = dict(zip(index, series.to_list(), strict=True))
    if len(values) < len(index):
        raise ValueError("side_info is a Series with several entries for one label. Keep only one.")
    return values


#: Valid values of ``missing``: how rows with missing values are treated.
MISSING = ("error", "drop", "impute")
#: Number of rows that are searched for a second grouping, and number of rows searched first for constant columns.
GROUPING_ROWS, FIRST_ROWS = 100_000, 1_000
#: Number of rows above which integers look like row numbers, if more than this fraction is distinct and most integers of their
#: range occur.  Integers of a wide range, such as incomes, may also be distinct in almost all rows.
MANY_ROWS, ALMOST_ALL = 100, 0.9
#: If this many tasks have two or more rows, columns that are constant within every task become side information by default.
MIN_TASKS = 10


def check_row_values(name: str, values: ValuesLike, n_rows: int) -> NDArray[np.float64] | None:
    """Return an optional argument as a positive number for each row, or None; frequencies and ``weights`` may be zero."""
    if values is None:
        return None
    refuse_masked(name, values)
    try:
        array = np.array(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected a number for each row ({error})") from None
    if array.shape != (n_rows,):
        raise ValueError(f"{name}: expected {n_rows} numbers, one per row, got shape {array.shape}")
    may_be_zero = name in ("frequency_weight", "weights")
    bad = ~(((array > 0) | (array == 0) & may_be_zero) & (array <= MAX_ROW_VALUE))
    if bad.any():
        row, least = (
            int(np.argmax(bad)),
            "zero or positive" if may_be_zero else "positive (not zero)",
        )
        allowed = f"all must be {least} and at most {MAX_ROW_VALUE:g}. Drop rows with other values."
        raise ValueError(f"{name}: row {row} has {array[row]:g}; {allowed}")
    return array


@dataclass(frozen=True)
class LongTable:
    """A long dataframe and the roles of its columns; see `TaskSet.from_frame`.

    With an `encoding`, the table is read like the table of that encoding. Without a target, the targets are zero.
    """

    frame: Frame
    task: TaskColumns
    target: str | None
    features: Sequence[str] | None = None
    side_info: SideInfoLike = None
    side_columns: Sequence[str] | None = None
    encoding: Encoding | None = None
    missing: str = "error"
    row_columns: Mapping[str, str | None] = field(default_factory=dict)
    time: str | None = None
    formula: ParsedFormula | None = None  # the features are then its columns

    def read(self) -> tuple[np.ndarray, np.ndarray, Grouping, SideInfo, Encoding, dict[str, Any]]:
        """Return rows, targets, tasks, side information before it is encoded, the encoding and the values per row."""
        data = read_frame(self.frame, "frame")
        check_choice("missing", self.missing, MISSING)
        if self.side_info is not None and self.side_columns is not None:
            raise ValueError(
                "Pass side_info or side_columns, not both. To use both, join the columns of side_info to the frame and list "
                "all of them in side_columns."
            )
        task = check_columns(data, "task", as_columns(self.task))
        if isinstance(self.side_info, np.ndarray | list | tuple):
            raise TypeError(f"side_info is of type {type(self.side_info).__name__}. {BY_LABEL}")
        roles = task + check_columns(
            data, "target", [] if self.target is None else [self.target], task
        )
        for role, name in self._row_columns.items():
            require_columns(data, role, [name])
            roles = roles + check_columns(data, role, [name], roles)
        # The parts of a label with several columns can also be features or side information.
        taken = roles[len(task) :] if len(task) > 1 else roles
        side_names = check_columns(data, "side_columns", self._side_columns(data), taken)
        names = self._feature_columns(
            data, other_columns(data.columns, (*roles, *side_names)), taken
        )
        if self.encoding is None:
            for name in names:
                refuse_misread_text(data[name], f"Feature column {name!r}")
            if self.target is not None:
                refuse_misread_text(data[self.target], f"The target column {self.target!r}")
        if self.encoding is None and self.features is None and self.side_columns is None:
            constant = self._constant_columns(data, task, names)
            names = [name for name in names if name not in constant]
            side_names = [name for name in constant if name not in self._side_table]
        data, dropped = self._complete(data, task, names)
        grouping = group_tasks(data, self.task)
        if self.encoding is None:
            imputes = self.missing == "impute"
            options: Any = {"categorical": () if self.formula is None else self.formula.categorical}
            encoding, X = Encoding.of(
                data, names, self.task, self.target, imputes=imputes, **options
            )
            warn_second_grouping(data, encoding, grouping)
            if self.formula is not None:
                encoding, X = self.formula.apply(encoding, X)
        elif self.missing == "impute" and not self.encoding.imputes:
            raise ValueError(
                "missing: the encoding has no column means for imputation. Use missing='impute' for the training table."
            )
        else:
            encoding, X = self.encoding, self.encoding.encode_features(data, "frame")
            encoding = replace(encoding, task=self.task, target=self.target)
        side, types = self._read_side_info(data, side_names, grouping)
        if self.encoding is None:
            encoding = encoding.with_side_info(side, types)
        y = np.zeros(len(data))
        if self.target is not None:
            encoding, y = encoding.encode_target(data[self.target], self.encoding is None)
        given = {role: numeric_column(data[name], role) for role, name in self._row_columns.items()}
        row_values = {
            role: check_row_values(role, values, len(data)) for role, values in given.items()
        }
        encoding = replace(encoding, dropped=dropped, **self._row_columns)
        if self.time is not None:
            check_columns(data, "time", [self.time])
            if self.time not in names:
                raise ValueError(
                    f"time: {self.time!r} is not one of the features: {name_some(names, 12)}"
                )
            encoding = replace(encoding, time=self.time)
        return X, y, grouping, side, encoding, row_values

    def _complete(
        self, data: Frame, task: Sequence[str], names: Sequence[str]
    ) -> tuple[Frame, tuple[tuple[str, int], ...]]:
        """Return the rows that can be used, and the numbers of dropped rows by reason."""
        dropped: tuple[tuple[str, int], ...] = ()
        if self.missing != "error":
            features = names if self.missing == "drop" else ()
            others = [
                name for name in (*self._row_columns.values(), *features) if name in data.columns
            ]
            complete, dropped = complete_rows(data, task, self.target, others)
            data = data if complete.all() else data.filter(complete.tolist())
        if not len(data):
            reasons = "; ".join(f"{count:,} have {reason}" for reason, count in dropped)
            raise ValueError(f"frame has no {'complete rows: ' + reasons if reasons else 'rows'}.")
        return data, dropped

    @property
    def _row_columns(self) -> dict[str, Any]:
        """Columns with optional values per row, by default those of the encoding.

        Without targets, these are its exposure, and its sample weight if the table has this column.
        """
        roles = ROW_VALUES if self.target is not None else ("exposure",)
        named = {role: getattr(self.encoding, role, None) for role in roles}
        weight = getattr(self.encoding, "sample_weight", None)
        if weight in read_frame(self.frame, "frame").columns:
            named["sample_weight"] = weight
        named |= {role: name for role, name in self.row_columns.items() if name is not None}
        return {role: name for role, name in named.items() if name is not None}

    def _feature_columns(self, data: Frame, others: list[str], taken: list[str]) -> list[str]:
        if self.encoding is not None:
            names = [column.name for column in self.encoding.features]
            if self.features is not None and list(self.features) != names:
                raise ValueError(
                    "features: the encoding determines the features; leave features out."
                )
            return names
        return check_columns(
            data, "features", others if self.features is None else self.features, taken
        )

    def _side_columns(self, data: Frame) -> Sequence[str]:
        """Return the columns of side information.

        By default these are the columns of the encoding that `side_info` lacks, if the table has all of them.
        """
        if self.side_columns is not None or self.encoding is None:
            return self.side_columns or ()
        features = {column.name for column in self.encoding.features}
        names = [
            column.name for column in self.encoding.side_info if column.name not in self._side_table
        ]
        usable = (self._side_table or self.side_info is None) and set(names) <= set(
            data.columns
        ) - features
        return names if usable else ()

    @property
    def _side_table(self) -> list[str]:
        """Columns of `side_info`, if it is a frame."""
        return read_frame(self.side_info, "side_info").columns if is_frame(self.side_info) else []

    def _constant_columns(self, data: Frame, task: list[str], names: list[str]) -> list[str]:
        """Return the columns that become side information, with a warning: those that vary between tasks, but not within.

        Tasks with one row are ignored; if fewer than `MIN_TASKS` others are left, the result is empty.
        """
        if not (self.side_info is None or is_frame(self.side_info)):
            return []
        for n_rows in (FIRST_ROWS, len(data)):  # most columns vary within the first tasks
            part = data.head(n_rows)
            labelled, _ = complete_rows(part, task, None, ())
            if not labelled.any():
                return []
            part = part if labelled.all() else part.filter(labelled.tolist())
            codes, _, first = grouping = group_tasks(part, self.task)
            columns = {name: side_column(part[name]) for name in names}
            names = [
                name for name in names if first_difference(columns[name], codes, first)[1] is None
            ]
            if not names:
                return []
        several = grouping.first[np.bincount(grouping.codes) > 1]
        if len(several) < MIN_TASKS:
            return []
        present = {
            name: (v for v in native(columns[name][several]) if not is_missing(v)) for name in names
        }
        constant = [name for name, values in present.items() if len(set(map(str, values))) > 1]
        if constant:
            found = f"constant within every task, so read as side information: {name_some(constant, len(constant))}"
            warn(f"{found}. To keep a column as a feature, list the columns to use in `features`.")
        return constant

    def _read_side_info(
        self, data: Frame, side_names: list[str], grouping: Grouping
    ) -> tuple[SideInfo, Declared]:
        """Return side information before it is encoded, and the declared types of its columns."""
        side = read_side_info(
            self.side_info, grouping, task=as_columns(self.task), like=[self.frame]
        )
        types = side_types(self.side_info, side.names)
        if side_names:
            columns = [side_column(data[name]) for name in side_names]
            values: Any = side_from_columns(columns, side_names, grouping).values
            values = values if side.values is None else np.column_stack([side.values, values])
            side = SideInfo(values, [*(side.names or ()), *side_names])
            types |= declared_types(data, side_names)
        return side, types


def complete_rows(
    data: Frame, task: Sequence[str], target: str | None, others: Sequence[str]
) -> tuple[NDArray[np.bool_], tuple[tuple[str, int], ...]]:
    """Return a mask of the rows that are complete in these columns, and the number of incomplete rows by reason."""
    complete, dropped = np.ones(len(data), dtype=bool), []
    reasons = [(f"no {name!r}, the task", name) for name in task]
    reasons += [(f"no {target!r}, the target", target)] if target is not None else []
    for reason, name in (*reasons, *((f"no {name!r}", name) for name in others)):
        incomplete = complete & is_null(data[name])
        if incomplete.any():
            dropped.append((reason, int(incomplete.sum())))
            complete &= ~incomplete
    return complete, tuple(dropped)


def group_tasks(data: Frame, task: TaskColumns) -> Grouping:
    """Return the task of every row; each combination of several columns is a task, labelled by a tuple."""
    titles = {name: f"The task column {name!r}" for name in as_columns(task)}
    parts = [group_rows(data[name].to_native(), len(data), title) for name, title in titles.items()]
    if isinstance(task, str):
        return parts[0]
    codes = parts[0].codes
    for part in parts[1:]:
        codes = codes * len(part.labels) + part.codes
    grouping = group_labels(codes)
    labels = [[native(part.labels)[i] for i in part.codes[grouping.first]] for part in parts]
    return grouping._replace(labels=label_array(list(zip(*labels, strict=True))))


def warn_second_grouping(data: Frame, encoding: Encoding, grouping: Grouping) -> None:
    """Warn about features that look like a second grouping: many values, each of which occurs in one task only.

    Each category has an effect, but identifiers within tasks are not predictive for new tasks. Integers are read as numbers,
    so also warn if they look like row numbers, or if the column has the name of an identifier.
    """
    task = " and ".join(map(repr, encoding.task_columns))
    if len(data) > GROUPING_ROWS:
        data, grouping = (
            data.head(GROUPING_ROWS),
            grouping._replace(codes=grouping.codes[:GROUPING_ROWS]),
        )
    n_tasks = len(np.unique(grouping.codes))
    for column in encoding.features:
        is_integer = column.kind == "number" and data[column.name].dtype.is_integer()
        if not (is_integer or column.kind == "levels") or data[column.name].is_null().any():
            continue
        values = group_rows(data[column.name].to_native(), len(data))
        labels = values.labels
        if (n_values := len(labels)) <= MANY_CATEGORIES:
            continue
        n_pairs = len(np.unique(values.codes * len(grouping.labels) + grouping.codes))
        is_nested = n_values == n_pairs > n_tasks and len(grouping.labels) > 1
        # Rounded measurements that are equal by chance also occur in other tasks.
        if is_nested and len(data) - n_values >= n_tasks:
            message = (
                f"looks like a second grouping, nested in {task}: each of its {n_values} values appears in one task only. You can "
                f"make each value a task, task=[{task}, {column.name!r}] (labels are then tuples), or leave the column out of `features`."
            )
        elif (
            is_integer
            and len(data) > MANY_ROWS
            and n_values > max(ALMOST_ALL * len(data), np.ptp(labels) / 2)
        ):
            message = f"holds {n_values} different integers in {len(data)} rows. If they are identifiers, leave the column out of `features`."
        elif is_integer and _IDENTIFIER.search(column.name):
            advice = "If they are identifiers, make them strings, so that each has an effect, or leave the column out of `features`."
            message = f"holds {n_values} different integers and is read as numbers. {advice}"
        else:
            continue
        warn(f"column {column.name!r} {message}")
