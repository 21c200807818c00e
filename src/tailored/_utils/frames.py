"""Read and build dataframes of pandas, polars and pyarrow.

narwhals reads them, so these libraries are not imported here, except pandas by `as_frame`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import narwhals.stable.v1 as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from sklearn.utils.validation import column_or_1d

from .validation import check_choice, name_some, numbers_of, refuse_masked

# Frames of narwhals are generic in the type of the native frame, which is not known here.
Frame: TypeAlias = Any
Column: TypeAlias = Any
# Arguments as users pass them: arrays, lists, or frames and columns of any library.
RowsLike: TypeAlias = Any  # rows (n, d), dense, sparse or a frame
ValuesLike: TypeAlias = (
    Any  # a value for each row (n,), such as a target, a label or a weight; may be None
)
SideInfoLike: TypeAlias = Any  # see `TaskSet`; may be None

# Types that are never frames.  Checking these with narwhals would cost more than reading a small
# task.
_PLAIN = (np.ndarray, list, tuple, dict, str, int, float)


def is_frame(data: object) -> bool:
    """Return whether `read_frame` accepts `data`: a dataframe in memory, or a Dask dataframe."""
    return not isinstance(data, _PLAIN) and (
        isinstance(data, nw.DataFrame) or nw.dependencies.is_into_dataframe(data) or is_dask(data)
    )


def is_series(data: object) -> bool:
    """Return whether narwhals can read `data` as a column in memory."""
    return not isinstance(data, _PLAIN) and (
        isinstance(data, nw.Series) or nw.dependencies.is_into_series(data)
    )


def is_dask(data: object) -> bool:
    """Return whether `data` is a Dask dataframe."""
    return bool(nw.dependencies.is_dask_dataframe(data))


def is_tensor(data: object) -> bool:
    """Return whether `data` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.Tensor)


def read_frame(data: Any, name: str) -> Frame:
    """Return `data` as a narwhals dataframe in memory; raise TypeError if it is not a dataframe."""
    if not is_frame(data):
        lazy = " Call .collect() on a lazy frame." if hasattr(data, "collect") else ""
        raise TypeError(
            f"{name} must be a dataframe (pandas, polars or pyarrow); got "
            f"{type(data).__name__}.{lazy}"
        )
    try:
        return nw.from_native(data.compute() if is_dask(data) else data, eager_only=True)
    except DuplicateError as error:  # it names the columns
        raise ValueError(f"{name}: {error}") from None


def other_columns(names: Iterable[str], excluded: Container[str | None]) -> list[str]:
    """Return the names that are not excluded, without index columns of pandas files."""
    return [
        name
        for name in names
        if name not in excluded and not re.fullmatch(r"__index_level_\d+__", str(name))
    ]


def check_columns(frame: Frame, name: str, columns: object, taken: Sequence[str] = ()) -> list[str]:
    """Return an argument's column names as a list; each must exist, occur once and have no other
    role.
    """
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        advice = f" Write [{columns!r}]." if isinstance(columns, str) else ""
        raise TypeError(f"{name} must be a list of column names; got {columns!r}.{advice}")
    columns = list(columns)
    for i, column in enumerate(columns):
        if not isinstance(column, str):
            raise TypeError(
                f"{name}: column names must be strings; got {column!r}. Rename the columns, for "
                "example with frame.columns.astype(str)."
            )
        check_choice(name, column, frame.columns)
        if column in columns[:i]:
            raise ValueError(f"{name} names the column {column!r} twice. Name it once.")
        if column in taken:
            raise ValueError(
                f"{name} names the column {column!r}, as another argument does. Choose another one."
            )
    return columns


def require_columns(frame: Frame, name: str, columns: Iterable[str]) -> None:
    """Raise ValueError if a frame lacks some of the columns."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise ValueError(
            f"{name}: the frame has no column {name_some(missing)}; it has "
            f"{name_some(frame.columns, 12) or 'no columns'}."
        )


def numeric_column(column: Column, title: str) -> np.ndarray:
    """Return a numeric or boolean column as float64 with NaN for missing values.

    `title` names the column in errors. pandas columns of dtype object or Sparse may contain
    numbers.
    """
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return as_floats(column)
    texts = [(row, text) for row, text in enumerate(column.to_list()) if isinstance(text, str)]
    if not texts and column.dtype in (nw.Object, nw.Unknown):
        values = np.asarray(column.to_native())
        with suppress(TypeError, ValueError, OverflowError):
            if values.dtype.kind != "c":
                return values.astype(np.float64)
    found = f"it is {column.dtype}"
    if texts:  # one that is not a number, if there is one
        row, text = next((each for each in texts if not can_read(float, each[1])), texts[0])
        found = f"it has {text!r} in row {row}"
    raise ValueError(
        f"{title} is not numeric ({found}). Encode it as numbers, or leave it out of the features."
    )


def can_read(read: Callable[[str], object], text: str) -> bool:
    """Return whether ``read`` accepts a text."""
    try:
        read(text)
    except ValueError:
        return False
    return True


def as_floats(column: Column) -> np.ndarray:
    """Return a numeric column as float64 with NaN for missing values; integers beyond 2⁵³ are
    rounded.
    """
    try:
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):  # pyarrow does not round
        return np.array(
            [np.nan if v is None else float(v) for v in column.to_list()], dtype=np.float64
        )


def is_null(column: Column) -> np.ndarray:
    """Return a mask of the missing values of a column; NaN counts as missing."""
    null = np.asarray(column.is_null().to_numpy(), dtype=bool)
    return null | np.isnan(as_floats(column)) if column.dtype.is_float() else null


def factorize(column: Column) -> tuple[np.ndarray, list[str]]:
    """Return the code of each row of a column of strings, −1 if it is missing, and the strings.

    Strings are in order of appearance.
    """
    strings = column.to_native()
    if hasattr(strings, "factorize"):  # pandas; four times as fast as narwhals
        codes, known = strings.factorize()
        return np.asarray(codes, np.int64), known.tolist()
    distinct = column.drop_nulls().unique(maintain_order=True).to_list()
    if not distinct:
        return np.full(len(column), -1), []
    codes = column.replace_strict(distinct, list(range(len(distinct))), return_dtype=nw.Int64)
    return np.asarray(codes.fill_null(-1).to_numpy(), np.int64), distinct


def check_target(y: ValuesLike, n_rows: int) -> np.ndarray:
    """Return `y` as a 1-D float64 array of `n_rows` values, with NaN for missing values of a
    dataframe column; NaN and infinity are left to `check_finite`.
    """
    if y is None:
        raise ValueError(
            "y should be a 1d array of numbers, but the target y is None. Pass a value per row."
        )
    if is_series(y):
        y = numeric_column(nw.from_native(y, series_only=True), "y")
    if type(y) is not np.ndarray or y.dtype != np.float64 or y.ndim != 1:
        refuse_masked("y", y)
        with numbers_of("y"):
            y = np.asarray(y)
            if y.dtype.kind not in "biufcO":
                raise ValueError(
                    f"y must hold numbers; got dtype {y.dtype}. Encode the target as numbers."
                )
            y = column_or_1d(y, dtype=np.float64, warn=True)
    if y.shape[0] != n_rows:
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: X has "
            f"{n_rows} rows, y has {y.shape[0]}."
        )
    return y


def as_frame(columns: Mapping[str, Any]) -> Any:
    """Return columns of equal length as a pandas DataFrame, or as a structured array if pandas is
    not installed.
    """
    try:
        import pandas
    except ImportError:
        return as_records({name: np.asarray(values) for name, values in columns.items()})
    return pandas.DataFrame(dict(columns))


def as_records(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return columns of equal length as a structured array."""
    n_rows = len(next(iter(columns.values())))
    table = np.empty(n_rows, dtype=[(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        table[name] = values
    return table


def with_columns(data: Frame, names: Sequence[str], columns: Mapping[str, np.ndarray]) -> Any:
    """Return these columns of a dataframe with new columns appended, as a dataframe of the same
    library; as pandas for a Dask dataframe.
    """
    frame = read_frame(data, "query")
    native = nw.get_native_namespace(frame)
    series = [
        nw.new_series(name, values, native_namespace=native) for name, values in columns.items()
    ]
    return frame.select(list(names)).with_columns(*series).to_native()
