"""Read labels, side information and long tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .._utils.frames import (
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
)
from .._utils.validation import (
    check_choice,
    check_finite,
    check_shape,
    is_missing,
    label_array,
    name_some,
    native,
    numbers_of,
    refuse_masked,
    warn,
)
from .encoding import (
    ROW_VALUES,
    Encoding,
    SideInfo,
    TaskColumns,
    as_columns,
    declared_types,
    missing_exposure,
    side_column,
    side_columns_of,
    side_values,
)
from .formula import ParsedFormula

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Grouping(NamedTuple):
    """The task of every row; tasks are numbered in the order in which their labels first appear."""

    codes: np.ndarray  # (N,) task number of each row
    labels: np.ndarray  # (T,) label of each task

    @property
    def first(self) -> np.ndarray:
        """First row of each task, (T,)."""
        first = np.empty(len(self.labels), np.int64)
        # NumPy keeps the last of several assignments to the same position.
        first[self.codes[::-1]] = np.arange(len(self.codes))[::-1]
        return first


def read_labels(labels: ValuesLike, name: str) -> np.ndarray:
    """Return labels as a 1-D array of booleans, numbers, strings or dates, else of objects."""
    refuse_masked(name, labels)
    if is_series(labels):
        column = nw.from_native(labels, series_only=True)
        has_numpy_type = column.dtype.is_integer() and column.dtype not in (nw.Int128, nw.UInt128)
        is_complete = not column.is_null().any()
        labels = column.to_numpy() if has_numpy_type and is_complete else column.to_list()
    if isinstance(labels, list | tuple):
        return label_array(list(labels))  # np.asarray would turn [1, "a"] into strings
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, with a label per entry; got shape {array.shape}.")
    return array if array.dtype.kind in "biufmMU" else label_array(array.tolist())


def distinct_labels(labels: ValuesLike, n_tasks: int) -> np.ndarray:
    """Return the labels of `n_tasks` tasks; none may be missing, and no two may be equal."""
    grouping = group_rows(labels, n_tasks, "labels")
    repeated = grouping.labels[np.bincount(grouping.codes) > 1]
    if len(repeated):
        raise ValueError(
            f"labels must be distinct, but these are repeated: {name_some(native(repeated))}."
        )
    return grouping.labels


def group_rows(groups: ValuesLike, n_rows: int, name: str = "groups") -> Grouping:
    """Number the tasks of the rows by first appearance of their labels; for None, all rows are one
    task, labelled 0.
    """
    if groups is None:
        return Grouping(np.zeros(n_rows, np.int64), np.zeros(1, np.int64))
    column = nw.from_native(groups, series_only=True) if is_series(groups) else None
    if column is not None and column.dtype == nw.String and not column.is_null().any():
        codes, distinct = factorize(column)
        grouping = Grouping(codes, label_array(distinct))
    else:
        grouping = group_labels(read_labels(groups, name), name)
    if len(grouping.codes) != n_rows:
        raise ValueError(f"{name}: expected {n_rows} labels, got {len(grouping.codes)}.")
    return grouping


def group_labels(labels: np.ndarray, name: str = "groups") -> Grouping:
    """Number the tasks of an array of labels by first appearance; raise ValueError for missing
    labels.
    """
    if labels.dtype.kind in "biufmM":
        unique, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        order = np.argsort(first)
        codes, distinct = np.argsort(order)[inverse], unique[order]
    else:
        known: dict[Any, int] = {}
        numbers = (known.setdefault(label, len(known)) for label in native(labels))
        try:
            codes = np.fromiter(numbers, np.int64, len(labels))
        except TypeError as error:
            raise TypeError(
                f"{name} must hold hashable labels, such as strings: {error}."
            ) from None
        distinct = label_array(list(known))
    missing = [is_missing(label) for label in native(distinct)]
    if any(missing):
        row = int(np.argmax(codes == missing.index(True)))
        raise ValueError(
            f"{name} has a missing label in row {row}. Label each row, or use "
            "TaskSet.from_frame(..., missing='drop'), which drops rows without a label."
        )
    return Grouping(codes, distinct)


def first_values(values: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row (T,) of each task's first value that is not missing, if there is one, and the
    rows with another value, apart from missing ones.
    """
    is_float = values.dtype.kind == "f"
    missing = (
        np.isnan(values) if is_float else np.array([is_missing(v) for v in values], dtype=bool)
    )
    rows = np.concatenate([np.flatnonzero(missing), np.flatnonzero(~missing)[::-1]])
    first = np.empty(codes.max(initial=-1) + 1, np.int64)
    first[codes[rows]] = rows  # NumPy keeps the last assignment, which is the first value
    return first, np.flatnonzero(~missing & (values != values[first][codes]))


_KINDS = {"b": "booleans", "U": "strings", "M": "dates", **dict.fromkeys("iuf", "numbers")}


def positions_of(labels: np.ndarray, known: np.ndarray) -> NDArray[np.int64]:
    """Return the position of each label among the known labels, or −1 if it is not known.

    Labels are compared as in Python, so 7 equals 7.0. Raise ValueError for labels of another type
    than the known labels, except strings such as "new", if no known label is written so.
    """
    if labels.dtype == known.dtype != object and np.array_equal(labels, known):
        return np.arange(len(labels))
    if labels.dtype.kind == known.dtype.kind and known.dtype.kind in "iuU" and len(known):
        order = np.argsort(known)
        nearest = order[np.minimum(np.searchsorted(known, labels, sorter=order), len(known) - 1)]
        return np.where(known[nearest] == labels, nearest, -1)
    here, there = (_KINDS.get(array.dtype.kind) for array in (labels, known))
    if here and there and here != there and len(labels) and len(known):
        texts = {str(label).removesuffix(".0") for label in native(known)}
        if here != "strings" or not texts.isdisjoint(native(labels)):
            raise ValueError(
                f"labels: they are {here}, such as {native(labels)[0]!r}, and the known labels are "
                f"{there}, such as {native(known)[0]!r}. Use the same type."
            )
    position = {label: t for t, label in enumerate(native(known))}
    return np.array([position.get(label, -1) for label in native(labels)], dtype=np.int64)


def mix(numbers: Keys) -> Keys:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def label_keys(labels: np.ndarray, seed: int = 0) -> Keys:
    """Return a pseudorandom number for each label that is the same in every process and task set.

    Equal labels, such as 7 and 7.0 or (7, 'a') and (7.0, 'a'), have equal keys. Different labels
    nearly always have different keys.
    """
    kind = labels.dtype.kind
    if kind in "biu":
        numbers = labels.astype(np.uint64 if kind == "u" else np.int64).view(np.uint64)
    elif kind in "mM":
        numbers = labels.astype(f"{kind}8[ns]").view(np.uint64)
    else:
        numbers = np.fromiter(map(_number, native(labels)), dtype=np.uint64, count=len(labels))
    with np.errstate(over="ignore"):
        start = np.uint64(seed % 2**64) * _GOLDEN + _GOLDEN
        return mix(mix(numbers + start) + start)


def row_keys(seed: np.ndarray, task: np.ndarray, row: np.ndarray) -> Keys:
    """Return pseudorandom numbers that depend only on the seed, the task's position and the row's
    position within the task.

    One random stream for all rows would make the draw of a task depend on the sizes of the tasks
    before it.
    """
    return mix(mix(seed + task.astype(np.uint64) * _GOLDEN) + row.astype(np.uint64) * _GOLDEN)


def _number(label: object) -> int:
    label = _canonical(label)
    if isinstance(label, int):
        return label % 2**64
    if isinstance(label, float):
        return int(np.float64(label).view(np.uint64))
    return int.from_bytes(blake2b(repr(label).encode(), digest_size=8).digest(), "little")


def _canonical(label: Any) -> Any:
    """Return whole numbers as integers, because equal labels need the same text."""
    if isinstance(label, tuple):
        return tuple(map(_canonical, label))
    is_number = isinstance(label, int | float | np.number | np.bool_)
    return int(label) if is_number and label == label // 1 else label


BY_LABEL = (
    "Side information is aligned by task label, not by the order of tasks: pass a mapping "
    "{label: row}, a pandas DataFrame indexed by label, or (to TaskSet) a 2-D array with a row for "
    "every row of X."
)


def read_side_info(
    side_info: SideInfoLike,
    grouping: Grouping,
    *,
    task: Sequence[str] = (),
    has_labels: bool = True,
) -> SideInfo:
    """Return side information with one row per task.

    Rows of mappings, Series and frames are found by label; the columns ``task`` of a frame, or else
    its index, contain the labels. Arrays, and `SideInfo`, have a row for every row of X. A single
    task without a label (``has_labels=False``) may have a vector, a dict of named values, a Series,
    or a frame of one row.
    """
    if side_info is None:
        return SideInfo()
    refuse_masked("side_info", side_info)
    labels = native(grouping.labels)
    if isinstance(side_info, SideInfo):
        assert side_info.values is not None
        names: Sequence[Any] = side_info.names or range(side_info.values.shape[1])
        return side_of_columns(dict(zip(names, side_info.values.T, strict=True)), grouping)
    if not has_labels:
        side_info = _by_label_zero(side_info)
    if is_series(side_info):
        side_info = nw.from_native(side_info, series_only=True).to_frame()
    if is_frame(side_info):
        return _side_by_label(read_frame(side_info, "side_info"), task, grouping)
    if isinstance(side_info, Mapping):
        keys = list(side_info)
        rows = [side_info[keys[i]] for i in _rows_by_label(keys, labels)]
        return side_of_tasks(rows, labels)
    if sp.issparse(side_info):
        raise TypeError("side_info is a sparse matrix; pass a dense array (side_info.toarray()).")
    # A list may mix numbers and strings; an object array keeps both.
    array = side_info if isinstance(side_info, np.ndarray) else np.asarray(side_info, dtype=object)
    n_rows = len(grouping.codes)
    if len(labels) == 1 and (array.ndim < 2 or (array.ndim == 2 and len(array) == 1)):
        return side_of_tasks([array], labels)
    if array.ndim != 2 or len(array) != n_rows:
        raise TypeError(
            f"side_info is an array of shape {array.shape} ({len(labels)} tasks, {n_rows} rows of "
            f"X). {BY_LABEL}"
        )
    return side_of_columns(dict(enumerate(array.T)), grouping)


def _by_label_zero(side_info: SideInfoLike) -> SideInfoLike:
    """Return the row of a task without a label as a mapping from its label 0, except arrays.

    The index of a frame is ignored, because the user did not choose the label.
    """
    if is_frame(side_info):
        frame = read_frame(side_info, "side_info")
        if len(frame) != 1:
            raise ValueError(
                f"side_info has {len(frame)} rows for one task without a label. Pass one row."
            )
        return {0: {name: values[0] for name, values in side_columns_of(frame).items()}}
    is_row = is_series(side_info) or (isinstance(side_info, Mapping) and 0 not in side_info)
    return {0: side_info} if is_row else side_info


def _side_by_label(frame: Frame, task: Sequence[str], grouping: Grouping) -> SideInfo:
    """Return the rows of the tasks; the columns ``task``, or the index, have the labels."""
    labels, index = native(grouping.labels), nw.maybe_get_index(frame)
    if task and set(task) <= set(frame.columns):
        parts = [native(read_labels(frame[name].to_native(), "side_info")) for name in task]
        keys = parts[0] if len(task) == 1 else list(zip(*parts, strict=True))
        frame = frame.select(other_columns(frame.columns, task))
    elif index is None:
        raise TypeError(f"side_info has no index or column {name_some(task)} of labels. {BY_LABEL}")
    else:
        keys = index.tolist()
        # With one row for each row of X, the index may number the rows.
        is_numbered = index.name is None and all(isinstance(key, int) for key in keys)
        if is_numbered and len(labels) < len(keys) == len(grouping.codes):
            raise ValueError(
                f"side_info has {len(keys)} rows, as X has. If they are the rows of X, pass "
                "side_info.to_numpy(). If they are tasks, call .set_index() with the labels."
            )
    rows = _rows_by_label(keys, labels)
    columns = {name: values[rows] for name, values in side_columns_of(frame).items()}
    return _side_table(columns, labels, declared_types(frame))


def _rows_by_label(keys: list[Any], labels: list[Any]) -> list[int]:
    """Return the position of each label among the keys, in which it must occur once."""
    counts = Counter(keys)
    if missing := [label for label in labels if label not in counts]:
        raise ValueError(
            f"side_info has no row for task {name_some(missing)} (it has labels such as "
            f"{name_some(keys, 3)}). Add the rows, or leave these tasks out. Labels are in the "
            "column of the task, or in the index of a pandas DataFrame: call .set_index() with "
            "this column. Numbers do not match strings: 7 is not '7'."
        )
    if repeated := [label for label in labels if counts[label] > 1]:
        raise ValueError(
            f"side_info has several rows for task {name_some(repeated)}. Keep one row per task."
        )
    position = {key: row for row, key in enumerate(keys)}
    return [position[label] for label in labels]


def side_of_columns(columns: Mapping[Any, np.ndarray], grouping: Grouping) -> SideInfo:
    """Return side information given for every row of X; it must be constant within each task."""
    labels, of_tasks = native(grouping.labels), {}
    for name, values in columns.items():
        first, others = first_values(values, grouping.codes)
        if len(others):
            task = grouping.codes[others[0]]
            there, here = native(values[[first[task], others[0]]])
            raise ValueError(
                f"side information must be constant within a task, but column {name!r} of task "
                f"{labels[task]!r} has the values {there!r} and {here!r}. Give each task one "
                "value, or leave the column out."
            )
        of_tasks[name] = values[first]
    return _side_table(of_tasks, labels)


def side_of_tasks(rows: list[Any], labels: list[Any]) -> SideInfo:
    """Return side information given by task; a row is a scalar, a vector, or a mapping."""
    entries = []
    for row, label in zip(rows, labels, strict=True):
        if nw.dependencies.is_pandas_series(row):
            row = row.to_dict()
        if not isinstance(row, Mapping):
            row = dict(enumerate(np.asarray(row, dtype=object).ravel()))
        entries.append(row)
        if row.keys() != entries[0].keys():
            raise ValueError(
                f"side_info of task {label!r} has the columns {list(row)}, and that of task "
                f"{labels[0]!r} has {list(entries[0])}. Give all tasks the same."
            )
    columns = {
        name: np.fromiter((entry[name] for entry in entries), dtype=object, count=len(entries))
        for name in entries[0]
    }
    return _side_table(columns, labels)


def _side_table(
    columns: Mapping[Any, np.ndarray],
    labels: list[Any],
    types: Mapping[str, tuple[str, ...]] | None = None,
) -> SideInfo:
    """Join columns with a value per task. Names are kept if all are strings."""
    if not columns:
        raise ValueError("side_info has no columns. Leave it out, or give every task a value.")
    columns = {name: side_values(column) for name, column in columns.items()}
    for name, column in columns.items():
        # Sums of squares must be finite.
        if column.dtype == np.float64 and (too_large := np.abs(column) > 1e100).any():
            t = int(np.argmax(too_large))
            raise ValueError(
                f"side_info has an infinite or very large value ({column[t]:g}) for task "
                f"{labels[t]!r}, column {name!r}. Use a larger unit, or NaN for a missing value."
            )
    names = list(columns) if all(isinstance(name, str) for name in columns) else None
    return SideInfo(np.column_stack(list(columns.values())), names, types or {})


def check_row_values(name: str, values: ValuesLike, n_rows: int) -> NDArray[np.float64] | None:
    """Return an optional argument as a positive number for each row, or None; frequencies and
    ``weights`` may be zero.
    """
    if values is None:
        return None
    refuse_masked(name, values)
    with numbers_of(name):
        array = np.array(values, dtype=float)
    check_shape(name, array, n_rows)
    may_be_zero, largest = name in ("frequency_weight", "weights"), 1e15
    bad = ~((array >= 0 if may_be_zero else array > 0) & (array <= largest))
    if bad.any():
        row = int(np.argmax(bad))
        least = "zero or positive" if may_be_zero else "positive (not zero)"
        raise ValueError(
            f"{name}: row {row} has {array[row]:g}; all must be {least} and at most {largest:g}. "
            "Drop rows with other values."
        )
    return array


def read_long_table(
    frame: Frame,
    task: TaskColumns,
    target: str | None,
    *,
    row_columns: Mapping[str, str | None],
    features: Sequence[str] | None = None,
    side_info: SideInfoLike = None,
    side_columns: Sequence[str] | None = None,
    encoding: Encoding | None = None,
    missing: str = "error",
    time: str | None = None,
    formula: ParsedFormula | None = None,
) -> tuple[dict[str, Any], np.ndarray]:
    """Read a long dataframe; for the arguments see `TaskSet.from_frame`, for the result `collect`.

    With an `encoding`, the table is read like the table of that encoding. Without a target, the
    targets are zero. With a `formula`, the features are its columns.
    """
    data = read_frame(frame, "frame")
    is_new = encoding is None
    check_choice("missing", missing, ("error", "drop", "impute"))
    values = _row_columns(data, encoding, target, row_columns)
    names, side_names = _features_and_side(
        data, task, {"target": target, **values}, features, side_info, side_columns, encoding
    )
    if time is not None and time not in names:
        raise ValueError(f"time: {time!r} is not one of the features: {name_some(names, 12)}")
    dropped: list[tuple[str, int]] = []
    if missing != "error":
        used = [*values.values(), *(names if missing == "drop" else ())]
        data, dropped = complete_rows(data, (*as_columns(task), target, *used))
    if not len(data):
        reasons = "".join(f"; {count:,} have {reason}" for reason, count in dropped)
        raise ValueError(f"frame has no rows that can be used{reasons}.")
    grouping = group_tasks(data, task)
    if encoding is None:
        categorical = () if formula is None else formula.categorical
        encoding, X = Encoding.of(
            data, names, task, target, imputes=missing == "impute", categorical=categorical
        )
        if formula is not None:
            encoding, X = formula.apply(encoding, X)
    else:
        encoding = replace(encoding, task=task, target=target)
        X = encoding.encode_features(data, "frame")
    if side_names:
        side_data = data.select(side_names)
        types = declared_types(side_data)
        side = side_of_columns(side_columns_of(side_data), grouping)._replace(types=types)
    else:
        side = read_side_info(side_info, grouping, task=as_columns(task))
    encoding, y = encoding.encode_target(data, is_new)
    row_values = {role: numeric_column(data[name], role) for role, name in values.items()}
    encoding = replace(encoding, dropped=tuple(dropped), time=time or encoding.time, **values)
    return collect(X, y, grouping, side, encoding, row_values)


def _features_and_side(
    data: Frame,
    task: TaskColumns,
    roles: Mapping[str, str | None],
    features: Sequence[str] | None,
    side_info: SideInfoLike,
    side_columns: Sequence[str] | None,
    encoding: Encoding | None,
) -> tuple[list[str], list[str]]:
    """Return the columns of features and of side information; ``roles`` are those of other columns.

    By default, the columns of side information are those of the encoding, if the table has all of
    them, and without an encoding those that are constant within tasks.
    """
    if isinstance(side_info, np.ndarray | list | tuple):
        raise TypeError(f"side_info is of type {type(side_info).__name__}. {BY_LABEL}")
    if side_info is not None and side_columns is not None:
        raise ValueError(
            "Pass side_info or side_columns, not both. To use both, join the columns of side_info "
            "to the frame and list all of them in side_columns."
        )
    used = labels = check_columns(data, "task", as_columns(task))
    for role, name in roles.items():
        used = used + check_columns(data, role, [] if name is None else [name], used)
    # The parts of a label with several columns can also be features or side information.
    taken = used[len(labels) :] if len(labels) > 1 else used
    has_default = side_info is None and side_columns is None
    side_names = check_columns(data, "side_columns", side_columns or (), taken)
    if encoding is not None:
        names = [column.name for column in encoding.features]
        if features is not None and list(features) != names:
            raise ValueError("features: the encoding determines the features; leave features out.")
        known = [column.name for column in encoding.side_info]
        is_complete = set(known) <= set(data.columns) - set(names)
        return names, known if has_default and is_complete else side_names
    others = other_columns(data.columns, (*used, *side_names))
    names = check_columns(data, "features", others if features is None else features, taken)
    if features is None and has_default:
        side_names = _constant_columns(data, task, names)
        names = [name for name in names if name not in side_names]
    return names, side_names


def collect(
    X: Any,
    y: np.ndarray,
    grouping: Grouping,
    side: SideInfo,
    encoding: Encoding | None,
    row_values: Mapping[str, ValuesLike],
) -> tuple[dict[str, Any], np.ndarray]:
    """Check the values of rows, encode side information, and collect the rows of each task.

    Return the attributes of a `TaskSet`, and the order of the rows: row i of the tasks is row
    ``order[i]`` of the table.
    """
    codes, labels = grouping
    weights = {name: check_row_values(name, value, len(y)) for name, value in row_values.items()}

    def where(row: int) -> str:
        return f"task {native(labels)[codes[row]]!r}, row {row}"

    if encoding is None:
        check_finite(X, "X", where)
        check_finite(y, "y", where)
    else:
        if not encoding.side_info:
            encoding = encoding.with_side_info(side)
        side = side._replace(values=encoding.encode_side_info(side.values, side.names))
        advice = "Drop those rows, for example with missing='drop'."
        impute = " Or impute them: fit with TaskSet.from_frame(..., missing='impute')."
        check_finite(X, "X", where, encoding.source_names, advice + impute)
        check_finite(y, "y", where, advice=advice)
    order = np.argsort(codes, kind="stable")
    if (frequency := weights.get("frequency_weight")) is not None:
        order = order[frequency[order] > 0]
        if encoding is not None and (count := len(codes) - len(order)):
            dropped = (*encoding.dropped, ("frequency_weight 0", count))
            encoding = replace(encoding, dropped=dropped)
    # Copies: the user's arrays must neither become read-only nor be shared. `take` is faster than
    # indexing.
    rows = {"X": X[order] if sp.issparse(X) else X.take(order, axis=0), "y": y.take(order)}
    for name, value in weights.items():
        rows[name] = None if value is None else value.take(order)
    fields = {
        "offsets": offsets_of(np.bincount(codes[order], minlength=len(labels))),
        "labels": labels,
        "side_info": side.values,
        "side_names": side.names,
        "feature_names": None if encoding is None else encoding.feature_names,
        "encoding": encoding,
    }
    return rows | fields, order


def offsets_of(sizes: ArrayLike) -> np.ndarray:
    """Return the offsets (T + 1,) of tasks with these numbers of rows."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _row_columns(
    data: Frame, encoding: Encoding | None, target: str | None, given: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the columns with optional values per row, by default those of the encoding.

    Without targets, these are its exposure, and its sample weight if the table has this column.
    """
    columns = {role: getattr(encoding, role, None) for role in ROW_VALUES}
    if target is None:
        columns["frequency_weight"] = None
        if columns["sample_weight"] not in data.columns:
            columns["sample_weight"] = None
    columns |= {role: name for role, name in given.items() if name is not None}
    if columns["exposure"] not in (None, given.get("exposure"), *data.columns):
        raise missing_exposure(encoding)
    return {role: name for role, name in columns.items() if name is not None}


def _constant_columns(data: Frame, task: TaskColumns, names: list[str]) -> list[str]:
    """Return the columns that become side information, with a warning.

    They are constant within tasks, but not in the table. Tasks with one row are ignored; if fewer
    than 10 others are left, the result is empty.
    """
    for n_rows in (1_000, len(data)):  # most columns vary within the first tasks
        part, _ = complete_rows(data.head(n_rows), as_columns(task))
        if not names or not len(part):
            return []
        grouping = group_tasks(part, task)
        columns = {name: side_column(part[name]) for name in names}
        names = [name for name in names if not len(first_values(columns[name], grouping.codes)[1])]
    several = grouping.first[np.bincount(grouping.codes) > 1]
    if len(several) < 10:
        return []
    values = {name: native(columns[name][several]) for name in names}
    constant = [n for n in names if len({str(v) for v in values[n] if not is_missing(v)}) > 1]
    if constant:
        warn(
            "constant within every task, so read as side information: "
            f"{name_some(constant, len(constant))}. To keep them as features, use "
            "TaskSet.from_frame(..., side_columns=[])."
        )
    return constant


def complete_rows(data: Frame, names: Iterable[str | None]) -> tuple[Frame, list[tuple[str, int]]]:
    """Return the rows that are complete in the columns with these names, and the number of
    incomplete rows by reason.
    """
    complete, dropped = np.ones(len(data), dtype=bool), []
    for name in names:
        if name not in data.columns:
            continue  # no target, or a feature for which `encode_features` raises an error
        incomplete = complete & is_null(data[name])
        if incomplete.any():
            dropped.append((f"no {name!r}", int(incomplete.sum())))
            complete &= ~incomplete
    return data if complete.all() else data.filter(complete.tolist()), dropped


def group_tasks(data: Frame, task: TaskColumns) -> Grouping:
    """Return the task of every row; each combination of several columns is a task, labelled by a
    tuple.
    """
    titles = {name: f"The task column {name!r}" for name in as_columns(task)}
    parts = [group_rows(data[name].to_native(), len(data), title) for name, title in titles.items()]
    if isinstance(task, str):
        return parts[0]
    codes = parts[0].codes
    for part in parts[1:]:
        codes = codes * len(part.labels) + part.codes
    grouping = group_labels(codes)
    labels = [native(part.labels[part.codes[grouping.first]]) for part in parts]
    return grouping._replace(labels=label_array(list(zip(*labels, strict=True))))
