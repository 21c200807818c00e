"""What users hand over, in the form the numerics want it: dataframes and task labels.

Dataframes are read through narwhals, so pandas, polars and pyarrow are accepted and none is imported here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import narwhals.stable.v1 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from .._utils.validation import check_choice, check_features, is_missing, label_array, name_some, native

# narwhals has a class per stability level; naming one would refuse the others
Frame: TypeAlias = Any
Column: TypeAlias = Any
Rows: TypeAlias = Any  # ndarray or csr_array; scipy has no types to say so

# asking narwhals about each of these would cost more than the rest of reading a small task
PLAIN = (np.ndarray, list, tuple, dict, str, int, float)
# the names under which pandas stores the numbers of rows in a file of Arrow or parquet
_INDEX = re.compile(r"__index_level_\d+__")
# NumPy has no 128 bits
_WHOLE = (nw.Int8, nw.Int16, nw.Int32, nw.Int64, nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64)


class Grouping(NamedTuple):
    """The task of every row; tasks are numbered in the order in which their labels first appear."""

    codes: np.ndarray  # (N,) task number of each row
    labels: np.ndarray  # (T,) label of each task
    first: np.ndarray  # (T,) first row of each task


# --- dataframes


def remaining(names: Iterable[str], taken: Container[str | None]) -> list[str]:
    """The columns that nobody named, without the index that pandas puts beside them in its files."""
    return [name for name in names if name not in taken and not _INDEX.fullmatch(str(name))]


def is_frame(data: Any) -> bool:
    """Whether narwhals can read `data` as a dataframe held in memory, or Dask can bring it there."""
    return not isinstance(data, PLAIN) and (
        isinstance(data, nw.DataFrame) or nw.dependencies.is_into_dataframe(data) or is_dask(data)
    )


def is_series(data: Any) -> bool:
    """Whether narwhals can read `data` as a column held in memory."""
    return not isinstance(data, PLAIN) and (
        isinstance(data, nw.Series) or nw.dependencies.is_into_series(data)
    )


def is_dask(data: Any) -> bool:
    return bool(nw.dependencies.is_dask_dataframe(data))


def read_frame(data: Any, name: str) -> Frame:
    """Return `data` as a narwhals dataframe."""
    if not is_frame(data):
        lazy = " Call .collect() on a lazy frame." if hasattr(data, "collect") else ""
        raise TypeError(
            f"{name} must be a dataframe (pandas, polars or pyarrow); got {type(data).__name__}.{lazy}"
        )
    try:
        return nw.from_native(data.compute() if is_dask(data) else data, eager_only=True)
    except DuplicateError:
        twice = [column for column, count in Counter(_column_names(data)).items() if count > 1]
        raise ValueError(
            f"{name} has several columns with the name {name_some(twice)}. Rename them, or keep one each."
        ) from None


def _column_names(data: Any) -> list[Any]:
    names = getattr(data, "column_names", None)
    return list(data.columns if names is None else names)


def numeric_column(column: Column, words: str, advice: str = "Encode it as numbers.") -> np.ndarray:
    """Return a numeric or boolean column as float64, missing values as NaN; `words` name it in errors."""
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return as_floats(column)
    # pandas' object and sparse columns may hold numbers all the same
    values = np.asarray(column.to_native()) if column.dtype in (nw.Object, nw.Unknown) else None
    if values is not None and values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {words} has dtype {values.dtype}.")
    if values is not None and not any(isinstance(v, str | bytes) for v in values.ravel()):
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError):
            pass
        except OverflowError:
            raise ValueError(f"{words} has a number beyond 1e308. Give it in another unit.") from None
    raise ValueError(f"{words} is not numeric (it is {column.dtype}). {advice}")


def as_floats(column: Column) -> np.ndarray:
    """A column of numbers as float64, missing values as NaN; whole numbers beyond 2⁵³ are rounded."""
    try:
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):  # pyarrow does not round
        return np.array([np.nan if v is None else float(v) for v in column.to_list()], dtype=np.float64)


def read_features(X: Any, min_rows: int = 1) -> tuple[Rows, np.ndarray | None]:
    """Return `X` checked (see `check_features`) and its column names, if it is a dataframe with any."""
    if not is_frame(X):
        return check_features(X, min_rows), None
    frame = read_frame(X, "X")
    values = np.empty(frame.shape)
    for j, column in enumerate(frame.iter_columns()):
        advice = "Encode it as numbers, or read the table with TaskSet.from_frame, which does."
        values[:, j] = numeric_column(column, f"Column {column.name!r} of X", advice)
    names = frame.columns
    named = names and all(isinstance(name, str) for name in names)
    return check_features(values, min_rows), np.array(names, dtype=object) if named else None


def read_target(y: Any) -> Any:
    """Return `y` as NumPy can read it: a column of a dataframe keeps its missing values as NaN."""
    return numeric_column(nw.from_native(y, series_only=True), "y") if is_series(y) else y


def check_columns(frame: Frame, name: str, columns: Any, taken: Sequence[str] = ()) -> list[str]:
    """Return the column names of an argument, each checked to be there, once and with no other role."""
    if isinstance(columns, str):
        raise TypeError(f"{name} must be a list of column names; got {columns!r}. Write [{columns!r}].")
    if not isinstance(columns, Iterable):
        raise TypeError(f"{name} must be a list of column names; got {columns!r}.")
    columns = list(columns)
    for i, column in enumerate(columns):
        check_choice(name, column, frame.columns)
        if column in columns[:i]:
            raise ValueError(f"{name} names the column {column!r} twice.")
        if column in taken:
            raise ValueError(f"{name} names the column {column!r}, which is the task's label or the target.")
    return columns


# --- task labels


def read_labels(labels: Any, name: str) -> np.ndarray | list[Any]:
    """Return labels as a 1-D array of NumPy's own types, or as a list of Python objects."""
    if is_series(labels):
        column = nw.from_native(labels, series_only=True)
        whole = column.dtype in _WHOLE and not column.is_null().any()
        return column.to_numpy() if whole else column.to_list()
    if hasattr(labels, "__array__") or not isinstance(labels, list | tuple):
        array = np.asarray(labels)
        if array.ndim != 1:
            raise ValueError(f"{name} must be 1-D, with a label per entry; got shape {array.shape}.")
        return array if array.dtype.kind in "biufmM" else array.tolist()
    # a list of Python's own: np.asarray would turn [1, "a"] into strings
    return list(labels)


def group_rows(groups: Any, n_rows: int) -> Grouping:
    """Number the tasks of the rows by first appearance of their labels; one task when `groups` is None."""
    if groups is None:
        return Grouping(np.zeros(n_rows, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))
    words = coded_words(groups)
    groups = read_labels(groups, "groups") if words is None else words.codes
    if len(groups) != n_rows:
        raise ValueError(f"groups has {len(groups)} labels, but X has {n_rows} rows. Pass a label per row.")
    if words is not None:
        return Grouping(
            words.codes, label_array(words.distinct), _first_places(words.codes, len(words.distinct))
        )
    if isinstance(groups, np.ndarray):
        labels, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        grouping = Grouping(rank[inverse], labels[order], first[order])
    else:
        seen: dict[Any, int] = {}
        try:
            codes = np.fromiter((seen.setdefault(g, len(seen)) for g in groups), np.int64, n_rows)
        except TypeError as error:
            raise TypeError(
                f"groups must hold hashable labels, such as integers or strings: {error}."
            ) from None
        grouping = Grouping(codes, label_array(list(seen)), _first_places(codes, len(seen)))
    if not _are_complete(grouping.labels):
        for label, row in zip(native(grouping.labels), grouping.first, strict=True):
            if _is_incomplete(label):
                raise ValueError(
                    f"groups has a missing label ({label!r}) in row {row}. Name every row's task."
                )
    return grouping


class Words(NamedTuple):
    """Words of a column: the number of each row's by first appearance, and the distinct ones."""

    codes: np.ndarray
    distinct: list[str]


def coded_words(groups: Any) -> Words | None:
    """By the hash table of the column's own library; None for what is no column of words, or has missing ones."""
    if not is_series(groups):
        return None
    column = groups if isinstance(groups, nw.Series) else nw.from_native(groups, series_only=True)
    if column.dtype != nw.String or column.is_null().any():
        return None
    words = column.to_native()
    if hasattr(words, "factorize"):  # pandas
        codes, distinct = words.factorize()
        return Words(np.asarray(codes, np.int64), distinct.tolist())
    if hasattr(words, "replace_strict"):  # polars
        distinct = words.unique(maintain_order=True)
        codes = words.replace_strict(distinct, np.arange(len(distinct)))
        return Words(np.asarray(codes.to_numpy(), np.int64), distinct.to_list())
    if hasattr(words, "dictionary_encode"):  # pyarrow
        coded = words.dictionary_encode().combine_chunks()
        return Words(np.asarray(coded.indices.to_numpy(), np.int64), coded.dictionary.to_pylist())
    return None


def _first_places(codes: np.ndarray, n_tasks: int) -> np.ndarray:
    """The first row of each task."""
    first = np.empty(n_tasks, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of repeated positions the last assignment stays
    return first


def _are_complete(labels: np.ndarray) -> bool:
    """Whether labels are of a type that has no missing values; others are looked at one by one."""
    return labels.dtype.kind in "biuU" or (labels.dtype.kind == "f" and not np.isnan(labels).any())


def _is_incomplete(label: Any) -> bool:
    """Whether a label is missing, or a tuple that holds NaN, which is equal to nothing and would part the rows."""
    if isinstance(label, tuple):
        return any(value is not None and _is_incomplete(value) for value in label)
    return is_missing(label)


def read_distinct(labels: Any, n_tasks: int) -> np.ndarray:
    """Return the labels of tasks given one by one, checked to be complete and distinct."""
    labels = read_labels(labels, "labels")
    keys = native(labels) if isinstance(labels, np.ndarray) else labels
    if len(keys) != n_tasks:
        raise ValueError(f"labels has {len(keys)} entries for {n_tasks} tasks.")
    if any(_is_incomplete(key) for key in keys):
        raise ValueError("labels has a missing label (None or NaN). Name every task.")
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise ValueError(f"labels must be distinct, but {name_some(twice)} appears more than once.")
    return labels.copy() if isinstance(labels, np.ndarray) else label_array(keys)
