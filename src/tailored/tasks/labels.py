"""Task labels: read them, group rows by them, find them, and hash them."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import NDArray

from .._utils.frames import factorize, is_series
from .._utils.validation import is_missing, label_array, name_some, native, refuse_masked

Keys = NDArray[np.uint64]

# narwhals has 128-bit integers, NumPy does not.
_INTEGERS = (nw.Int8, nw.Int16, nw.Int32, nw.Int64, nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Grouping(NamedTuple):
    """The task of every row; tasks are numbered in the order in which their labels first appear."""

    codes: np.ndarray  # (N,) task number of each row
    labels: np.ndarray  # (T,) label of each task
    first: np.ndarray  # (T,) first row of each task


# --- read


def read_labels(labels: Any, name: str) -> np.ndarray:
    """Return labels as a 1-D array: integers, floats, strings or dates, else Python objects."""
    refuse_masked(name, labels)
    if is_series(labels):
        column = nw.from_native(labels, series_only=True)
        if column.dtype in _INTEGERS and not column.is_null().any():
            return np.asarray(column.to_numpy())
        return label_array(column.to_list())
    if hasattr(labels, "__array__") or not isinstance(labels, list | tuple):
        array = np.asarray(labels)
        if array.ndim != 1:
            raise ValueError(f"{name} must be 1-D, with a label per entry; got shape {array.shape}.")
        return array if array.dtype.kind in "biufmMU" else label_array(array.tolist())
    # np.asarray would turn [1, "a"] into strings.
    return label_array(list(labels))


def distinct_labels(labels: Any, n_tasks: int) -> np.ndarray:
    """Return the labels of `n_tasks` tasks; none may be missing, and no two may be equal."""
    array = read_labels(labels, "labels")
    keys = native(array)
    if len(keys) != n_tasks:
        raise ValueError(f"labels has {len(keys)} entries for {n_tasks} tasks.")
    if any(_is_incomplete(key) for key in keys):
        raise ValueError("labels has a missing label (None or NaN). Name every task.")
    repeated = [key for key, count in Counter(keys).items() if count > 1]
    if repeated:
        raise ValueError(f"labels must be distinct, but {name_some(repeated)} appears more than once.")
    return array.copy()


# --- group


def group_rows(groups: Any, n_rows: int) -> Grouping:
    """Number the tasks of the rows by first appearance of their labels; None is one task with the label 0."""
    if groups is None:
        return Grouping(np.zeros(n_rows, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))
    strings = factorize(groups)
    labels = read_labels(groups, "groups") if strings is None else strings[0]
    if len(labels) != n_rows:
        raise ValueError(f"groups has {len(labels)} labels, but X has {n_rows} rows. Pass a label per row.")
    if strings is None:
        return group_labels(labels)
    codes, distinct = strings
    return Grouping(codes, label_array(distinct), _first_rows(codes, len(distinct)))


def group_labels(labels: np.ndarray) -> Grouping:
    """Number the tasks of an array of labels by first appearance; missing labels are an error."""
    if labels.dtype.kind in "biufmM":
        unique, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        grouping = Grouping(rank[inverse], unique[order], first[order])
    else:
        codes_by_label: dict[Any, int] = {}
        try:
            codes = np.fromiter(
                (codes_by_label.setdefault(label, len(codes_by_label)) for label in native(labels)),
                np.int64,
                len(labels),
            )
        except TypeError as error:
            raise TypeError(
                f"groups must hold hashable labels, such as integers or strings: {error}."
            ) from None
        grouping = Grouping(codes, label_array(list(codes_by_label)), _first_rows(codes, len(codes_by_label)))
    if not _never_missing(grouping.labels):
        for label, row in zip(native(grouping.labels), grouping.first, strict=True):
            if _is_incomplete(label):
                raise ValueError(
                    f"groups has a missing label ({label!r}) in row {row}. Name every row's task."
                )
    return grouping


def _first_rows(codes: np.ndarray, n_tasks: int) -> np.ndarray:
    first = np.empty(n_tasks, np.int64)
    # With repeated positions NumPy keeps the last assignment.
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first


def _never_missing(labels: np.ndarray) -> bool:
    return labels.dtype.kind in "biuU" or (labels.dtype.kind == "f" and not np.isnan(labels).any())


def _is_incomplete(label: Any) -> bool:
    """Return whether a label is missing, or is a tuple with NaN, which is not equal to itself."""
    if isinstance(label, tuple):
        return any(value is not None and _is_incomplete(value) for value in label)
    return is_missing(label)


def first_difference(values: np.ndarray, codes: np.ndarray, first: np.ndarray) -> tuple[int, int] | None:
    """Return the first row whose value differs from its task's first row, and that first row.

    The result is None if the values (n,) are constant within tasks. Two missing values are equal.
    """
    if values.dtype == object:
        # Missing objects (None, NaN, NaT, pandas' NA) become None, which is equal to itself.
        values = np.fromiter((None if is_missing(v) else v for v in values), dtype=object, count=len(values))
    expected = values[first][codes]
    differs = np.asarray(values != expected, dtype=bool)
    if values.dtype.kind == "f":
        differs &= ~(np.isnan(values) & np.isnan(expected))
    if not differs.any():
        return None
    row = int(np.argmax(differs))
    return row, int(first[codes[row]])


# --- find


def positions_of(labels: np.ndarray, known: np.ndarray) -> NDArray[np.int64]:
    """Return the position of each label among the known ones, −1 where it is not among them.

    Labels are equal as in Python: 7 and 7.0 are, 7 and "7" are not.
    """
    if labels.dtype == known.dtype != object and np.array_equal(labels, known):
        return np.arange(len(labels))
    if labels.dtype.kind == known.dtype.kind and known.dtype.kind in "iuU" and len(known):
        order = np.argsort(known)
        nearest = order[np.minimum(np.searchsorted(known, labels, sorter=order), len(known) - 1)]
        return np.where(known[nearest] == labels, nearest, -1)
    position = {label: t for t, label in enumerate(native(known))}
    return np.array([position.get(label, -1) for label in native(labels)], dtype=np.int64)


# --- hash


def mix(numbers: Any) -> Keys:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def label_keys(labels: np.ndarray, seed: int = 0) -> Keys:
    """Return a pseudorandom number for each label, which is the same in every process and task set.

    Equal labels, such as 7 and 7.0, have equal keys. Different labels nearly always have different keys.
    """
    with np.errstate(over="ignore"):
        start = np.uint64(seed % 2**64) * _GOLDEN + _GOLDEN
        return mix(mix(_numbers(labels) + start) + start)


def row_keys(seed: np.ndarray, task: np.ndarray, row: np.ndarray) -> Keys:
    """Return pseudorandom numbers that depend only on the seed, the task's position and the row within it.

    One random stream for all rows would make the draw of a task depend on the sizes of the tasks before it.
    """
    return mix(mix(seed + task.astype(np.uint64) * _GOLDEN) + row.astype(np.uint64) * _GOLDEN)


def _numbers(labels: np.ndarray) -> Keys:
    kind = labels.dtype.kind
    if kind in "biu":
        return labels.astype(np.uint64 if kind == "u" else np.int64).view(np.uint64)
    if kind in "mM":
        return labels.astype(f"{kind}8[ns]").view(np.uint64)
    if kind == "f":
        values = labels.astype(np.float64)
        whole = (values == np.round(values)) & (np.abs(values) < 2.0**63)
        integers = np.where(whole, values, 0.0).astype(np.int64).view(np.uint64)
        return np.where(whole, integers, values.view(np.uint64))
    return np.fromiter((_number(label) for label in native(labels)), dtype=np.uint64, count=len(labels))


def _number(label: Any) -> int:
    if isinstance(label, int) or (isinstance(label, float) and label.is_integer() and abs(label) < 2.0**63):
        return int(label) % 2**64
    if isinstance(label, float):
        return int(np.float64(label).view(np.uint64))
    return int.from_bytes(blake2b(repr(label).encode(), digest_size=8).digest(), "little")
