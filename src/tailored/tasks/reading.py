"""Read labels, side information and long tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

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
)
from .._utils.validation import (
    check_choice,
    check_finite,
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
    Encoding,
    SideInfo,
    TaskColumns,
    as_columns,
    declared_types,
    missing_exposure,
    side_column,
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
        if has_numpy_type and not column.is_null().any():
            return np.asarray(column.to_numpy())
        return label_array(column.to_list())
    if isinstance(labels, list | tuple):
        return label_array(list(labels))  # np.asarray would turn [1, "a"] into strings
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, with a label per entry; got shape {array.shape}.")
    return array if array.dtype.kind in "biufmMU" else label_array(array.tolist())


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
    """Number the tasks of the rows by first appearance of their labels; for None, all rows are one
    task, labelled 0.
    """
    if groups is None:
        return Grouping(np.zeros(n_rows, np.int64), np.zeros(1, np.int64))
    column = nw.from_native(groups, series_only=True) if is_series(groups) else None
    is_text = column is not None and column.dtype == nw.String
    labels = groups if is_text else read_labels(groups, name)
    if len(labels) != n_rows:
        found = f"{name} has {len(labels)} labels, but X has {n_rows} rows"
        raise ValueError(f"{found}. Pass a label per row.")
    if is_text:
        codes, distinct = factorize(column)
        if (codes >= 0).all():
            return Grouping(codes, label_array(distinct))
        labels = read_labels(groups, name)  # `group_labels` refuses the missing ones
    return group_labels(labels, name)


def group_labels(labels: np.ndarray, name: str = "groups") -> Grouping:
    """Number the tasks of an array of labels by first appearance; raise ValueError for missing
    labels.
    """
    if labels.dtype.kind in "biufmM":
        unique, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        order = np.argsort(first)
        grouping = Grouping(np.argsort(order)[inverse], unique[order])
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
        grouping = Grouping(codes, label_array(list(known)))
    if grouping.labels.dtype.kind not in "biuU":
        for label, row in zip(native(grouping.labels), grouping.first, strict=True):
            if _is_incomplete(label):
                missing = f"{name} has a missing label ({label!r}) in row {row}"
                advice = "TaskSet.from_frame(..., missing='drop') drops rows without a label."
                raise ValueError(f"{missing}. Label each row. {advice}")
    return grouping


def _is_incomplete(label: object) -> bool:
    """Return whether a label is missing, or is a tuple with NaN, which is not equal to itself; None
    in a tuple is valid.
    """
    if isinstance(label, tuple):
        return any(value is not None and _is_incomplete(value) for value in label)
    return is_missing(label)


def first_difference(
    values: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, tuple[int, int] | None]:
    """Return the row (T,) of each task's first value that is not missing, if there is one, and two
    rows of one task with different values.

    The second result is None if the `values` (n,) are constant within tasks, apart from missing
    values.
    """
    is_float = values.dtype.kind == "f"
    missing = (
        np.isnan(values) if is_float else np.array([is_missing(v) for v in values], dtype=bool)
    )
    rows = np.concatenate([np.flatnonzero(missing), np.flatnonzero(~missing)[::-1]])
    first = np.empty(codes.max(initial=-1) + 1, np.int64)
    first[codes[rows]] = rows  # NumPy keeps the last assignment, which is the first value
    differs = ~missing & np.asarray(values != values[first][codes], dtype=bool)
    if not differs.any():
        return first, None
    row = int(np.argmax(differs))
    return first, (row, int(first[codes[row]]))


def positions_of(
    labels: np.ndarray, known: np.ndarray, *, same_kind: bool = False
) -> NDArray[np.int64]:
    """Return the position of each label among the known labels, or −1 if it is not known.

    Labels are compared as in Python, so 7 equals 7.0. If 7 is a known label, the label "7" raises
    ValueError. With `same_kind`, labels of another type than the known labels also raise
    ValueError, except strings, because "new" may be the name of a new task.
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
    names = {"b": "booleans", "U": "strings", "M": "dates", **dict.fromkeys("iuf", "numbers")}
    kinds = [names.get(array.dtype.kind) for array in (labels, known)]
    if same_kind and None not in kinds and kinds[0] not in (kinds[1], "strings"):
        raise ValueError(
            f"labels: they are {kinds[0]} here and were {kinds[1]} in fit. Use the same type."
        )
    return positions


def refuse_other_spelling(labels: list[Any], known: list[Any]) -> None:
    """Raise ValueError if a label is a string and a known label is the number it spells, or vice
    versa.
    """
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
    labels, n_rows = native(grouping.labels), len(grouping.codes)
    refuse_masked("side_info", side_info)
    if is_series(side_info) and not has_labels:
        side_info = {0: side_info}
    elif is_series(side_info):
        column = nw.from_native(side_info, series_only=True).to_frame()
        return _side_by_label(column, (), grouping)._replace(names=None, types={})
    if is_frame(side_info):
        frame = read_frame(side_info, "side_info")
        if has_labels:
            return _side_by_label(frame, task, grouping)
        # The label 0 was not given by the user, so the index of the frame is ignored.
        if len(frame) != 1:
            found = f"side_info has {len(frame)} rows for one task without a label"
            raise ValueError(f"{found}. Pass one row.")
        columns = list(map(side_column, frame.iter_columns()))
        return _table(columns, frame.columns, labels, declared_types(frame))
    if isinstance(side_info, Mapping):
        if not has_labels and 0 not in side_info:
            side_info = {0: side_info}
        keys = list(side_info)
        rows = [side_info[keys[i]] for i in _rows_by_label(keys, labels)]
        return side_from_rows(rows, labels)
    if sp.issparse(side_info):
        raise TypeError("side_info is a sparse matrix; pass a dense array (side_info.toarray()).")
    names = None
    if isinstance(side_info, SideInfo):
        side_info, names, _ = side_info
    # A list may mix numbers and strings; an object array keeps both.
    array = side_info if isinstance(side_info, np.ndarray) else np.asarray(side_info, dtype=object)
    if len(labels) == 1 and (array.ndim < 2 or (array.ndim == 2 and len(array) == 1)):
        return _table(list(array.reshape(1, -1).T), names, labels)
    if array.ndim != 2 or len(array) != n_rows:
        counts = f"{len(labels)} tasks, {n_rows} rows of X"
        raise TypeError(f"side_info is an array of shape {array.shape} ({counts}). {BY_LABEL}")
    return side_from_columns(list(array.T), names, grouping)


def _side_by_label(frame: Frame, task: Sequence[str], grouping: Grouping) -> SideInfo:
    """Return the rows of the tasks; the columns ``task``, or the index, have the labels."""
    labels, hint = native(grouping.labels), ""
    if task and set(task) <= set(frame.columns):
        parts = [native(read_labels(frame[name].to_native(), "side_info")) for name in task]
        keys = parts[0] if len(task) == 1 else list(zip(*parts, strict=True))
        frame = frame.select(other_columns(frame.columns, task))
    else:
        index = nw.maybe_get_index(frame)
        call = "call .set_index() with the labels' column"
        hint = f" A pandas DataFrame is searched by its index: {call}."
        hint += f" Or give it the column {name_some(task)}." if task else ""
        if index is None:
            raise TypeError(f"side_info has no index to find tasks by. {BY_LABEL}{hint}")
        keys = list(index.tolist())
        # With one row for each row of X, the index may number the rows.
        numbered = index.name is None and all(isinstance(key, int) for key in keys)
        if numbered and len(labels) < len(keys) == len(grouping.codes):
            advice = "If they are the rows of X, pass side_info.to_numpy()."
            raise ValueError(f"side_info has {len(keys)} rows, as X has. {advice}{hint}")
    rows = _rows_by_label(keys, labels, hint)
    columns = [side_column(column)[rows] for column in frame.iter_columns()]
    return _table(columns, frame.columns, labels, declared_types(frame))


def _by_index(series: Column) -> dict[Any, Any]:
    index = nw.maybe_get_index(nw.from_native(series, series_only=True))
    if index is None:
        raise TypeError(f"side_info is a column without an index. {BY_LABEL}")
    values = dict(zip(index.tolist(), series.to_list(), strict=True))
    if len(values) < len(index):
        raise ValueError("side_info is a Series with several entries for one label. Keep only one.")
    return values


def _rows_by_label(keys: list[Any], labels: list[Any], hint: str = "") -> list[int]:
    """Return the position of each label among the keys, in which it must occur once."""
    counts = Counter(keys)
    if missing := [label for label in labels if label not in counts]:
        found = f"side_info has no row for task {name_some(missing)}"
        known = f"it has labels such as {name_some(keys, 3)}"
        advice = (
            "Add the rows, or leave these tasks out. Numbers do not match strings: 7 is not '7'."
        )
        raise ValueError(f"{found} ({known}). {advice}{hint}")
    if repeated := [label for label in labels if counts[label] > 1]:
        found = f"side_info has several rows for task {name_some(repeated)}"
        raise ValueError(f"{found}. Keep one row per task.")
    position = {key: row for row, key in enumerate(keys)}
    return [position[label] for label in labels]


def side_from_columns(
    columns: list[np.ndarray], names: list[str] | None, grouping: Grouping
) -> SideInfo:
    """Return side information given for every row of X; it must be constant within each task."""
    pairs = zip(columns, names or range(len(columns)), strict=True)
    values = [constant_values(column, grouping, repr(name)) for column, name in pairs]
    return _table(values, names, native(grouping.labels))


def constant_values(values: np.ndarray, grouping: Grouping, title: str) -> np.ndarray:
    """Return the value of each task in a column (n,) of side information.

    Raise ValueError if a task has several values.
    """
    first, rows = first_difference(values, grouping.codes)
    if rows is None:
        return np.asarray(values[first])
    here, there = native(values[list(rows)])
    label = native(grouping.labels)[grouping.codes[rows[0]]]
    found = f"column {title} of task {label!r} has the values {there!r} and {here!r}"
    advice = "Give each task one value, or leave the column out."
    raise ValueError(f"side information must be constant within a task, but {found}. {advice}")


def side_from_rows(rows: list[Any], labels: list[Any]) -> SideInfo:
    """Return side information given by task; a row is a scalar, a 1-D vector, or a mapping."""
    rows = [_by_index(row) if is_series(row) else row for row in rows]
    names = list(rows[0]) if all(isinstance(row, Mapping) for row in rows) else None
    cells: list[list[Any]] = []
    for row, label in zip(rows, labels, strict=True):
        if names is not None:
            cells.append([row.get(name) for name in names])
            found, first = (f"the keys {sorted(map(str, keys))}" for keys in (row, names))
        else:
            values = np.asarray(row, dtype=object)
            if values.ndim > 1 or isinstance(row, Mapping):
                kinds = "a number, a 1-D vector or, for all tasks, a dict of named values"
                expected = f"must be {kinds}; got {type(row).__name__}"
                raise TypeError(f"side information of task {label!r} {expected}.")
            cells.append(values.ravel().tolist())
            found, first = (f"{len(own)} values" for own in (cells[-1], cells[0]))
        if found != first:
            expected = f"and that of task {labels[0]!r} has {first}. Give all tasks the same."
            raise ValueError(f"side information of task {label!r} has {found}, {expected}")
    columns = [_objects(column) for column in zip(*cells, strict=True)]
    return _table(columns, names, labels)


def _objects(values: Iterable[Any]) -> np.ndarray:
    """Return a 1-D array of objects, with None for missing values."""
    # None is equal to itself, unlike NaN, NaT and pandas' NA.
    found = [None if is_missing(value) else value for value in values]
    return np.fromiter(found, dtype=object, count=len(found))


def _table(
    columns: list[np.ndarray],
    names: Sequence[Any] | None,
    labels: list[Any],
    types: Mapping[str, tuple[str, ...]] | None = None,
) -> SideInfo:
    """Join columns with a value per task; numbers become floats, other values stay objects.

    Names are kept if all are strings.
    """
    if not columns:
        advice = "Leave it out, or give every task at least one value."
        raise ValueError(f"side_info has no columns. {advice}")
    kept = list(names) if names and all(isinstance(name, str) for name in names) else None
    titles = list(map(repr, kept or range(len(columns))))
    columns = list(map(_as_column, columns, titles))
    for column, title in zip(columns, titles, strict=True):
        # Sums of squares must be finite.
        if column.dtype == np.float64 and (too_large := np.abs(column) > 1e100).any():
            t = int(np.argmax(too_large))
            value = f"({column.tolist()[t]!r}) for task {labels[t]!r}, column {title}"
            advice = "Use a larger unit, or NaN for a missing value."
            raise ValueError(f"side_info has an infinite or very large value {value}. {advice}")
    return SideInfo(np.column_stack(columns), kept, types or {})


def _as_column(column: np.ndarray, title: str) -> np.ndarray:
    """Return numbers as float64, NaN if missing, and other values as objects, None if missing."""
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    column = _objects(native(column))
    present = [value for value in column if value is not None]
    if not all(isinstance(value, Hashable) for value in present):
        raise TypeError(
            f"column {title} of side_info holds lists or other containers; use one number or "
            "category per cell."
        )
    kind = np.asarray(present).dtype.kind
    if kind == "c":
        raise ValueError(f"Complex data not supported: column {title} of side_info.")
    # A column without any value is one of NaN.
    return column.astype(np.float64) if kind in "biuf" else column


def check_row_values(name: str, values: ValuesLike, n_rows: int) -> NDArray[np.float64] | None:
    """Return an optional argument as a positive number for each row, or None; frequencies and
    ``weights`` may be zero.
    """
    if values is None:
        return None
    refuse_masked(name, values)
    try:
        array = np.array(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected a number for each row ({error})") from None
    if array.shape != (n_rows,):
        raise ValueError(f"{name}: expected {n_rows} numbers, one per row, got shape {array.shape}")
    may_be_zero, largest = name in ("frequency_weight", "weights"), 1e15
    bad = ~(((array > 0) | (array == 0) & may_be_zero) & (array <= largest))
    if bad.any():
        row = int(np.argmax(bad))
        least = "zero or positive" if may_be_zero else "positive (not zero)"
        allowed = f"all must be {least} and at most {largest:g}. Drop rows with other values."
        raise ValueError(f"{name}: row {row} has {array[row]:g}; {allowed}")
    return array


def read_long_table(
    frame: Frame,
    task: TaskColumns,
    target: str | None,
    *,
    features: Sequence[str] | None = None,
    side_info: SideInfoLike = None,
    side_columns: Sequence[str] | None = None,
    encoding: Encoding | None = None,
    missing: str = "error",
    row_columns: Mapping[str, str | None] | None = None,
    time: str | None = None,
    formula: ParsedFormula | None = None,
) -> tuple[dict[str, Any], np.ndarray]:
    """Read a long dataframe; for the arguments see `TaskSet.from_frame`, for the result `collect`.

    With an `encoding`, the table is read like the table of that encoding. Without a target, the
    targets are zero. With a `formula`, the features are its columns.
    """
    data, is_new, labels = read_frame(frame, "frame"), encoding is None, as_columns(task)
    check_choice("missing", missing, ("error", "drop", "impute"))
    if encoding is not None and missing == "impute" and not encoding.imputes:
        advice = "Use missing='impute' for the training table."
        raise ValueError(f"missing: the encoding has no column means for imputation. {advice}")
    values = _row_columns(data, encoding, target, row_columns or {})
    names, side_names = _features_and_side(
        data, task, {"target": target, **values}, features, side_info, side_columns, encoding
    )
    if time is not None and time not in names:
        raise ValueError(f"time: {time!r} is not one of the features: {name_some(names, 12)}")
    dropped: list[tuple[str, int]] = []
    if missing != "error":
        used = [*values.values(), *(names if missing == "drop" else ())]
        data, dropped = complete_rows(data, labels, target, used)
    if not len(data):
        reasons = "; ".join(f"{count:,} have {reason}" for reason, count in dropped)
        raise ValueError(f"frame has no {'complete rows: ' + reasons if reasons else 'rows'}.")
    grouping = group_tasks(data, task)
    if encoding is None:
        categorical = () if formula is None else formula.categorical
        encoding, X = Encoding.of(
            data, names, task, target, imputes=missing == "impute", categorical=categorical
        )
        warn_second_grouping(data, encoding, grouping)
        if formula is not None:
            encoding, X = formula.apply(encoding, X)
    else:
        encoding = replace(encoding, task=task, target=target)
        X = encoding.encode_features(data, "frame")
    side = read_side_info(side_info, grouping, task=labels)
    side = _with_columns(side, data.select(side_names), grouping)
    if is_new:
        encoding = encoding.with_side_info(side)
    encoding, y = encoding.encode_target(data, is_new)
    row_values = {
        role: check_row_values(role, numeric_column(data[name], role), len(data))
        for role, name in values.items()
    }
    encoding = replace(encoding, dropped=tuple(dropped), time=time or encoding.time, **values)
    return collect(X, y, grouping, side, encoding, row_values)


def _with_columns(side: SideInfo, data: Frame, grouping: Grouping) -> SideInfo:
    """Return side information with further columns, which have a value for each row of X."""
    if not data.columns:
        return side
    columns = list(map(side_column, data.iter_columns()))
    table: Any = side_from_columns(columns, data.columns, grouping).values
    table = table if side.values is None else np.column_stack([side.values, table])
    types = {**side.types, **declared_types(data)}
    return SideInfo(table, [*(side.names or ()), *data.columns], types)


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

    By default, the columns of side information are those of the encoding that `side_info` lacks, if
    the table has all of them.
    """
    if isinstance(side_info, np.ndarray | list | tuple):
        raise TypeError(f"side_info is of type {type(side_info).__name__}. {BY_LABEL}")
    if side_info is not None and side_columns is not None:
        advice = "To use both, join the columns of side_info to the frame and list all of them"
        raise ValueError(f"Pass side_info or side_columns, not both. {advice} in side_columns.")
    used = labels = check_columns(data, "task", as_columns(task))
    for role, name in roles.items():
        used = used + check_columns(data, role, [] if name is None else [name], used)
    # The parts of a label with several columns can also be features or side information.
    taken = used[len(labels) :] if len(labels) > 1 else used
    given = read_frame(side_info, "side_info").columns if is_frame(side_info) else []
    if encoding is not None:
        names = [column.name for column in encoding.features]
        if side_columns is None and (given or side_info is None):
            side_columns = [c.name for c in encoding.side_info if c.name not in given]
            if not set(side_columns) <= set(data.columns) - set(names):
                side_columns = ()
        if features is not None and list(features) != names:
            raise ValueError("features: the encoding determines the features; leave features out.")
        return names, check_columns(data, "side_columns", side_columns or (), taken)
    side_names = check_columns(data, "side_columns", side_columns or (), taken)
    others = other_columns(data.columns, (*used, *side_names))
    names = check_columns(data, "features", others if features is None else features, taken)
    if features is None and side_columns is None and (side_info is None or is_frame(side_info)):
        constant = _constant_columns(data, task, names)
        names = [name for name in names if name not in constant]
        side_names = [name for name in constant if name not in given]
    return names, side_names


def collect(
    X: Any,
    y: np.ndarray,
    grouping: Grouping,
    side: SideInfo,
    encoding: Encoding | None,
    row_values: Mapping[str, np.ndarray | None],
) -> tuple[dict[str, Any], np.ndarray]:
    """Check the values of rows, encode side information, and collect the rows of each task.

    Return the attributes of a `TaskSet`, and the order of the rows: row i of the tasks is row
    ``order[i]`` of the table.
    """
    codes, labels = grouping

    def where(row: int) -> str:
        return f"task {native(labels[codes[row] : codes[row] + 1])[0]!r}, row {row}"

    if encoding is None:
        check_finite(X, "X", where)
        check_finite(y, "y", where)
    else:
        side = side._replace(values=encoding.encode_side_info(side.values, side.names))
        target = None if encoding.target is None else [encoding.target]
        reader = "from_frame" if encoding.formula is None else "from_formula"
        drop, impute = (f"TaskSet.{reader}(..., missing='{how}')" for how in ("drop", "impute"))
        advice = f"Drop those rows, for example with {drop}."
        imputing = f" To impute them, fit with {impute}." * (encoding.formula is None)
        check_finite(X, "X", where, encoding.source_names, advice + imputing)
        check_finite(y if target is None else y[:, None], "y", where, target, advice)
    order = np.argsort(codes, kind="stable")
    if (frequency := row_values.get("frequency_weight")) is not None:
        order = order[frequency[order] > 0]
        if encoding is not None and (count := len(codes) - len(order)):
            dropped = (*encoding.dropped, ("frequency_weight 0", count))
            encoding = replace(encoding, dropped=dropped)
    # Copies: the user's arrays must neither become read-only nor be shared. `take` is faster than
    # indexing.
    rows = {"X": X[order] if sp.issparse(X) else X.take(order, axis=0), "y": y.take(order)}
    for name, value in row_values.items():
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
    roles = ROW_VALUES if target is not None else ("exposure",)
    named = {role: getattr(encoding, role, None) for role in roles}
    exposure = named["exposure"] if given.get("exposure") is None else None
    if exposure is not None and exposure not in data.columns:
        raise missing_exposure(encoding)
    weight = getattr(encoding, "sample_weight", None)
    if weight in data.columns:
        named["sample_weight"] = weight
    named |= {role: name for role, name in given.items() if name is not None}
    return {role: name for role, name in named.items() if name is not None}


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
        names = [name for name in names if not first_difference(columns[name], grouping.codes)[1]]
    several = grouping.first[np.bincount(grouping.codes) > 1]
    if len(several) < 10:
        return []
    values = {name: native(columns[name][several]) for name in names}
    constant = [n for n in names if len({str(v) for v in values[n] if not is_missing(v)}) > 1]
    if constant:
        found = name_some(constant, len(constant))
        advice = "To keep them as features, use TaskSet.from_frame(..., side_columns=[])."
        warn(f"constant within every task, so read as side information: {found}. {advice}")
    return constant


def complete_rows(
    data: Frame, task: Sequence[str], target: str | None = None, others: Sequence[str] = ()
) -> tuple[Frame, list[tuple[str, int]]]:
    """Return the rows that are complete in these columns, and the number of incomplete rows by
    reason.
    """
    roles = dict.fromkeys(task, ", the task")
    if target is not None:
        roles[target] = ", the target"
    complete, dropped = np.ones(len(data), dtype=bool), []
    for name in (*roles, *(name for name in others if name in data.columns)):
        incomplete = complete & is_null(data[name])
        if incomplete.any():
            dropped.append((f"no {name!r}{roles.get(name, '')}", int(incomplete.sum())))
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


def warn_second_grouping(data: Frame, encoding: Encoding, grouping: Grouping) -> None:
    """Warn about features that look like identifiers: many values, each in one task only.

    Identifiers within tasks are not predictive for new tasks. Measurements that are distinct by
    chance are not integers, or have a wide range.
    """
    task = " and ".join(map(repr, encoding.task_columns))
    n_tasks = len(grouping.labels)
    for column in encoding.features:
        is_integer = column.kind == "number" and data[column.name].dtype.is_integer()
        if not (is_integer or column.kind == "levels") or data[column.name].is_null().any():
            continue
        codes, labels = group_rows(data[column.name].to_native(), len(data))
        n_values, n_pairs = len(labels), len(np.unique(codes * n_tasks + grouping.codes))
        if n_values <= max(MANY_CATEGORIES, n_tasks) or n_values != n_pairs or n_tasks == 1:
            continue
        found = f"column {column.name!r} has {n_values} values, each in one task only"
        leave_out = "leave the column out of `features`"
        # Rounded measurements that are equal by chance also occur in other tasks.
        if len(data) - n_values >= n_tasks:
            nested = f"make each value a task, task=[{task}, {column.name!r}], or {leave_out}"
            warn(f"{found}, like a second grouping in {task}: {nested}.")
        elif is_integer and len(data) > 100 and np.ptp(labels) < 2 * n_values:
            warn(f"{found}. If they number the rows, {leave_out}.")
