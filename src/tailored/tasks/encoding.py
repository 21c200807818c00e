"""Encode the columns of a table as numbers.

`Encoding` is built from the training table and stored by learners, so that later tables are read in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np

from .._utils.frames import (
    DECIMAL_ADVICE,
    DECIMAL_COMMA,
    PLAIN_NUMBER,
    Column,
    Frame,
    RowsLike,
    SideInfoLike,
    ValuesLike,
    as_floats,
    factorize,
    numeric_column,
    read_frame,
    require_columns,
)
from .._utils.records import Record
from .._utils.validation import (
    check_finite,
    is_missing,
    name_some,
    warn,
)
from ..exceptions import UnknownCategoryWarning
from .formula import Formula

#: Minimum number of missing values for an indicator; with fewer, its coefficient would be too uncertain.
LEAST_MISSING = 10
#: Largest number of categories of a feature.
MAX_CATEGORIES = 1000
#: A feature with more categories is stored as one column of category codes instead of indicators.  If it has more than half
#: as many categories as rows, they are taken for row identifiers, which raises an error.
MANY_CATEGORIES = 20
#: Strings raise an error if there are at least this many distinct ones, not all integers, of which at least this fraction are numbers.
MIN_NUMBERS, SHARE_OF_NUMBERS = 10, 0.8

#: The column of task labels, or several columns whose combinations are the labels.
TaskColumns = str | tuple[str, ...]
#: Names of the optional values per row; see `TaskSet`.
ROW_VALUES = ("sample_weight", "frequency_weight", "exposure")
#: For each column, the kind according to its dtype, and its categories.
Declared = Mapping[str, tuple[str, tuple[str, ...]]]

_DAY = 86_400.0 * 1e6  # in microseconds
_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?)?", re.ASCII
)
_NUMBER = int | float | np.number
#: Matches a number that may have a decimal comma, thousands separators, or a percent or currency sign.
_WRITTEN_NUMBER = re.compile(
    r"[-+]?[$€£]?\s?(\d+([.,]\d*)?|[.,]\d+|\d{1,3}([., '\u2019]\d{3})+([.,]\d+)?)(e[-+]?\d+)?\s?[%$€£]?",
    re.ASCII | re.I,
)
#: Matches a date as spreadsheets write it, in which the day may be before or after the month.
_SPREADSHEET_DATE = re.compile(r"\d{1,2}([./])\d{1,2}\1(\d{2}|\d{4})( \d{1,2}:\d{2}.*)?", re.ASCII)


class SideInfo(NamedTuple):
    """Side information with a row per task (in `side_by_rows`, per row of X); float64, or object if a column is not numeric.

    Missing values are NaN in numeric columns and None in others.
    """

    values: np.ndarray | None = None
    names: list[str] | None = None


@dataclass(frozen=True)
class ColumnEncoding(Record):
    """How one column of a table is encoded as numbers.

    Booleans become 0 and 1. A categorical feature becomes one indicator for each category except the first. With more than
    20 categories (kind "levels") it becomes one column of category codes; unknown categories are −2, −3, …, and imputed
    values are −1. Categorical side information is not encoded here but by the feature map. Ordered categories become
    their positions, from 0, or their values if all are numbers. Dates become days, with fractions; times with a time
    zone are converted to UTC.

    The first of the `categories`, in alphabetical order or in the order of the categorical type, is the reference.
    `origin` is day zero of dates: the first day in the table, counted from 1970-01-01. `means` of the encoded columns
    replace unknown categories, and missing values if these are imputed. `has_missing` is whether at least `LEAST_MISSING` values
    were missing in training and imputed; the last column then indicates missing values.
    """

    name: str
    #: "number", "boolean", "categorical", "levels" (a categorical feature stored as category codes), "ordered" or "date".
    kind: str = "number"
    categories: tuple[str, ...] = ()
    origin: float = 0.0
    means: tuple[float, ...] = field(default=(), compare=False)
    has_missing: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        names: tuple[str, ...] = (self.name,)
        if self.kind == "categorical":
            names = tuple(f"{self.name}={category}" for category in self.categories[1:])
        return (*names, f"{self.name}=missing") if self.has_missing else names

    @property
    def scores(self) -> list[float]:
        """The numbers that encode ordered categories: their values if all are numbers, otherwise their positions."""
        try:
            return [float(category) for category in self.categories]
        except ValueError:
            return [float(i) for i in range(len(self.categories))]

    @classmethod
    def of(cls, column: Column, title: str, *, is_categorical: bool = False) -> ColumnEncoding:
        """Return the encoding of a feature; if it ``is_categorical``, numbers are categories."""
        name = str(column.name)
        kind, categories = declared_kind(column)
        if is_categorical and kind in ("number", "boolean"):
            numbers = sorted(column.drop_nulls().unique().to_list())
            kind, categories = "categorical", tuple(map(_text, numbers))
        if kind == "categorical":
            refuse_misread_text(column, title)
        days = _days(column, kind)
        if days is not None:
            first = np.floor(np.nanmin(days)) if np.isfinite(days).any() else 0.0
            return cls(name, "date", origin=float(first))
        if kind == "categorical":
            categories = categories or tuple(sorted(_coded(column)[1]))
            n, n_rows = len(categories), len(column)
            if n > MANY_CATEGORIES and (n > MAX_CATEGORIES or 2 * n > n_rows):
                found = f"{title} has {n} categories ({name_some(categories, 3)}) in {n_rows} rows"
                advice = (
                    "Identifiers do not predict new rows: list the other columns in `features`."
                )
                raise ValueError(f"{found}. {advice}")
        if not categories:
            return cls(name, kind)
        codes, distinct = _coded(column)
        counts = dict(
            zip(distinct, np.bincount(codes[codes >= 0], minlength=len(distinct)), strict=True)
        )
        frequencies = np.array([float(counts.get(category, 0)) for category in categories])
        encoding = cls(name, kind, categories)
        means = [frequencies @ encoding.scores] if kind == "ordered" else frequencies[1:]
        kind = "levels" if kind == "categorical" and len(categories) > MANY_CATEGORIES else kind
        total = max(frequencies.sum(), 1.0)
        return replace(encoding, kind=kind, means=tuple(float(mean / total) for mean in means))

    def read(self, column: Column, title: str, advice: str = "") -> tuple[np.ndarray, list[str]]:
        """Return the encoded values (n, k) of a column, with NaN for missing values, and its unknown categories.

        A categorical column with fewer than two categories has no indicators.  Its values are ones, or NaN if missing.
        """
        if self.kind in ("number", "boolean"):
            values = numeric_column(column, title, advice)[:, None]
            if self.kind == "boolean":
                other = values[(values != 0) & (values != 1) & ~np.isnan(values)]
                if other.size:
                    raise ValueError(
                        f"{title} held booleans in training: use 0 and 1, not {other[0]:g}."
                    )
            return values, []
        if self.kind == "date":
            days = _days(column, declared_kind(column)[0])
            if days is None:
                now = f"is {column.dtype} now. Use dates, or strings such as 2026-01-31."
                raise ValueError(f"{title} held dates in the training table and {now}")
            return (days - self.origin)[:, None], []
        codes, distinct = _coded(column)
        expected = set(self.categories)
        if column.dtype.is_numeric() and not expected & set(distinct):
            categories = f"categories ({name_some(self.categories, 3)})"
            raise ValueError(
                f"{title} held {categories} in the training table and has none of them now."
            )
        # One row per category, then one for each unknown category and one for missing values.
        unknown = [category for category in distinct if category not in expected]
        n, m, k = len(self.categories), len(unknown), max(len(self.names) - self.has_missing, 1)
        values = np.concatenate([np.arange(n), -2.0 - np.arange(m), [np.nan]])[:, None]
        if self.kind != "levels":
            known = (
                np.array(self.scores)[:, None] if self.kind == "ordered" else np.eye(n, k, k - n)
            )
            average = np.broadcast_to(self.means or np.zeros(k), (m, k))
            values = np.vstack([known, average, np.full(k, np.nan)])
        position = {category: i for i, category in enumerate((*self.categories, *unknown))}
        rows = np.array([*(position[category] for category in distinct), n + m])
        return values[rows[codes]], unknown

    def imputing(self, values: np.ndarray) -> ColumnEncoding:
        """Return the same encoding with imputation of missing values; `values` are the encoded training values."""
        missing = np.isnan(values).any(axis=1)
        if missing.all():
            raise ValueError(f"column {self.name!r} has no values to impute from. Leave it out.")
        means = self.means if self.categories else (float(values[~missing].mean()),)
        return replace(self, means=means, has_missing=bool(missing.sum() >= LEAST_MISSING))

    def impute(self, values: np.ndarray) -> np.ndarray:
        """Impute missing encoded values, and append their indicator if enough values were missing in training."""
        missing = np.isnan(values).any(axis=1)
        values = np.where(missing[:, None], -1.0 if self.kind == "levels" else self.means, values)
        # A column with a single category has no means, so the line above removes its only column.
        return np.column_stack([values, missing]) if self.has_missing else values

    def side_value(self, value: object) -> tuple[float, bool]:
        """Return one value of side information as a number, and whether its category is known.

        Numbers are taken as encoded values, as in ``TaskSet.side_info``, and returned unchanged.
        """
        if is_missing(value):
            return np.nan, True
        if isinstance(value, _NUMBER):
            return float(value), True
        if self.kind == "date":
            day = _day_of(value)
            if day is None:
                now = f"has {value!r} now. Use a date, or a string such as 2026-01-31."
                raise ValueError(
                    f"side_info: column {self.name!r} held dates in training and {now}"
                )
            return day - self.origin, True
        if _text(value) in self.categories:
            return self.scores[self.categories.index(_text(value))], True
        return (self.means or (np.nan,))[0], False

    def merged(self, n: int, other: ColumnEncoding, m: int) -> ColumnEncoding:
        """Return the joint encoding of `n` rows (this encoding) and `m` further rows of the same table (`other`)."""
        kinds = {self.kind, other.kind}
        if kinds <= {"number", "boolean"}:
            return self if self.kind == other.kind else ColumnEncoding(self.name)
        named = kinds <= {"categorical", "levels"}
        if (len(kinds) > 1 and not named) or (
            self.kind == "ordered" and self.categories != other.categories
        ):
            texts = f"{self.text()} in one part of the table and {other.text()} in another"
            raise ValueError(f"column {self.name!r} is {texts}. Use the same type in all parts.")
        if self.kind == "date":
            return replace(self, origin=min(self.origin, other.origin))
        share = m / max(n + m, 1)
        if self.kind == "ordered":
            means = (1.0 - share) * np.array(self.means) + share * np.array(other.means)
            return replace(self, means=tuple(means.tolist()))
        categories = tuple(sorted({*self.categories, *other.categories}))
        mine, theirs = self._frequencies(), other._frequencies()
        merged = [
            (1.0 - share) * mine.get(v, 0.0) + share * theirs.get(v, 0.0) for v in categories[1:]
        ]
        kind = "levels" if len(categories) > MANY_CATEGORIES else "categorical"
        return replace(self, kind=kind, categories=categories, means=tuple(merged))

    def _frequencies(self) -> dict[str, float]:
        """Return the relative frequency of each category."""
        return dict(zip(self.categories, (1.0 - sum(self.means), *self.means), strict=False))

    def text(self) -> str:
        """Describe the encoding in a few words; see `TaskSet.describe`."""
        if self.has_missing and len(self.categories) != 1:
            return f"{replace(self, has_missing=False).text()}; missing values are imputed"
        if self.kind == "date":
            return f"days since {np.datetime64(int(self.origin), 'D')}"
        if self.kind == "ordered":
            first, last = self.categories[0], self.categories[-1]
            low, high = self.scores[0], self.scores[-1]
            return (
                f"{first} to {last}"
                if f"{low:g}" == first
                else f"{low:g} ({first}) to {high:g} ({last})"
            )
        if self.kind == "levels":
            return f"one of {len(self.categories)} values, each with an effect of its own"
        if self.kind == "categorical":
            if not self.names:
                return f"always {self.categories[0] if self.categories else 'missing'}: dropped"
            return f"{list_some(self.names)} (reference: {self.categories[0]})"
        return "0 and 1" if self.kind == "boolean" else "a number"

    def meaning(self, role: str) -> tuple[Any, ...]:
        """Return the fields that determine the encoded values, including categories (for side information, only if ordered)."""
        kind = "number" if self.kind == "boolean" else self.kind
        categories = self.categories if role == "features" or kind == "ordered" else ()
        return kind, categories, self.origin, self.has_missing


@dataclass(frozen=True)
class Encoding(Record):
    """How a table was read, so that other tables can be read in the same way; see `TaskSet.from_frame`.

    Columns are found by their names, in any order. A category that was not in the training table causes an
    `UnknownCategoryWarning`. It is replaced by the means of the encoded columns, or for the kind "levels" by an average
    category.
    """

    task: (
        TaskColumns | None
    )  # the column of task labels, or columns whose combinations are the labels
    target: str | None
    features: tuple[ColumnEncoding, ...] = ()
    side_info: tuple[ColumnEncoding, ...] = ()  # the feature map encodes its categorical columns
    #: Reasons why rows of the table were dropped, and numbers of rows.
    dropped: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    classes: tuple[
        str | bool, ...
    ] = ()  # sorted classes of a target that is stored as class positions
    # Names of the columns with the optional values per row.
    sample_weight: str | None = None
    frequency_weight: str | None = None
    exposure: str | None = None
    time: str | None = None  # the feature that is the time of a row
    imputes: bool = False  # whether missing features are replaced by their means
    formula: Formula | None = (
        None  # the encoded columns are then products of those of the `features`
    )

    @classmethod
    def of(
        cls,
        frame: Frame,
        names: Sequence[str],
        task: TaskColumns | None,
        target: str | None,
        *,
        imputes: bool = False,
        categorical: Container[str] = (),
    ) -> tuple[Encoding, np.ndarray]:
        """Return the encoding of a table's features, and their encoded values (n, k); numbers in columns `categorical` are categories."""
        columns, titles = [], {name: f"Feature column {name!r}" for name in names}
        for name, title in titles.items():
            column = ColumnEncoding.of(frame[name], title, is_categorical=name in categorical)
            columns.append(
                column.imputing(column.read(frame[name], title)[0]) if imputes else column
            )
        encoding = cls(task, target, tuple(columns), imputes=imputes)
        repeated = [name for name, count in Counter(encoding.feature_names).items() if count > 1]
        if repeated:
            name = f"the name {repeated[0]!r} of an indicator"
            raise ValueError(
                f"features: {name} is also the name of another column. Rename that column."
            )
        advice = "Encode it as numbers, or list the columns to use in `features`."
        return encoding, encoding.encode_features(frame, advice=advice)

    def encode_features(
        self, frame: Frame, name: str = "X", advice: str = "It was numeric in the training table."
    ) -> np.ndarray:
        """Return the encoded features (n, k) of a table; `name` (the argument) and `advice` are used in errors."""
        require_columns(frame, name, [column.name for column in self.features])
        X, j = np.empty((len(frame), sum(len(column.names) for column in self.features))), 0
        for column in self.features:
            k, title = len(column.names), f"Feature column {column.name!r}"
            values, unknown = column.read(frame[column.name], title, advice)
            if not (
                k or self.imputes
            ):  # the missing values of other columns are found in the encoded values
                check_finite(values[:, 0], f"{name}, column {column.name!r},")
            X[:, j : j + k] = column.impute(values) if self.imputes else values[:, :k]
            other = (
                "an average category"
                if column.kind == "levels"
                else "the mean of the training table"
            )
            warn_unknown(unknown, column, f"replaced by {other}")
            j += k
        return self.design(X)

    def design(self, X: np.ndarray) -> np.ndarray:
        """Return the columns of the formula, if there is one, from the encoded columns of a table."""
        if self.formula is None:
            return X
        names = [name for column in self.features for name in column.names]
        for column in (column for column in self.features if column.kind == "categorical"):
            # The indicator of the first category, which has no encoded column.
            rest = 1.0 - X[:, [names.index(name) for name in column.names]].sum(axis=1)
            X, names = np.column_stack([X, rest]), [*names, f"{column.name}={column.categories[0]}"]
        return self.formula.design(X, names)

    def encode_target(self, column: Column, is_new: bool) -> tuple[Encoding, np.ndarray]:
        """Return the encoding with classes, and the targets; strings and booleans become positions of the sorted classes."""
        title = f"The target column {self.target!r}"
        is_text = column.dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object, nw.Boolean)
        if (is_new and not is_text) or not (is_new or self.classes):
            return self, numeric_column(column, title)
        values = column.drop_nulls().to_list()
        if is_new:
            is_class = column.dtype == nw.Boolean or all(isinstance(value, str) for value in values)
            if not (values and is_class):
                return self, numeric_column(column, title)
            self = replace(self, classes=tuple(sorted(set(values))))
        elif column.dtype.is_integer() and isinstance(self.classes[0], str):
            values = [
                str(value) for value in values
            ]  # a file in which all classes look like numbers
        y = np.full(len(column), np.nan)  # `TaskSet` raises ValueError for NaN
        y[~np.asarray(column.is_null().to_numpy(), dtype=bool)] = class_positions(
            self.classes, values, title
        )
        return self, y

    def read_columns(
        self, X: RowsLike, side_info: SideInfoLike, **values: ValuesLike
    ) -> tuple[SideInfoLike, dict[str, ValuesLike]]:
        """Return side information and values per row; those that are None are read from the columns of the frame X, if it has them."""
        frame, names = read_frame(X, "X"), [column.name for column in self.side_info]
        if side_info is None and names and len(frame) and set(names) <= set(frame.columns):
            side_info = SideInfo(
                np.column_stack([side_column(frame[name]) for name in names]), names
            )
        for role in [role for role, value in values.items() if value is None]:
            name = getattr(self, role)
            if name in frame.columns:
                values[role] = numeric_column(frame[name], role)
            elif role == "exposure" and name is not None:
                raise missing_exposure(self)
        return side_info, values

    @property
    def task_columns(self) -> tuple[str, ...]:
        return () if self.task is None else as_columns(self.task)

    @property
    def feature_names(self) -> np.ndarray:
        """Names of the encoded columns, such as "ses" and "sector=Public"."""
        names = [name for column in self.features for name in column.names]
        return np.array(names if self.formula is None else self.formula.names, dtype=object)

    @property
    def source_names(self) -> list[str]:
        """Name of the table column of each encoded column, such as "ses" and "sector"; with a formula, names of its columns."""
        if self.formula is not None:
            return self.formula.names
        return [column.name for column in self.features for _ in column.names]

    @property
    def levels(self) -> dict[int, int]:
        """Number of categories of each encoded column that contains category codes, by position of the column."""
        columns = [column for column in self.features if column.kind == "levels"]
        return {self.positions(column.name)[0]: len(column.categories) for column in columns}

    def with_indicators(self, X: np.ndarray) -> tuple[Encoding, np.ndarray]:
        """Return the encoding and the encoded features, with indicators instead of category codes."""
        columns, parts, first = [], [], 0
        for column in self.features:
            part = X[:, first : (first := first + len(column.names))]
            if column.kind == "levels":
                n, means = (
                    len(column.categories),
                    column.means or np.zeros(len(column.categories) - 1),
                )
                position = np.maximum(part[:, 0], -1.0).astype(np.intp)
                indicators = np.vstack([np.eye(n)[:, 1:], means])[position]
                part = np.hstack([indicators, part[:, 1:]])
                column = replace(column, kind="categorical")
            columns.append(column)
            parts.append(part)
        return replace(self, features=tuple(columns)), np.hstack(parts)

    def positions(self, name: object) -> list[int]:
        """Return the positions of the encoded columns of the table column with this name, or else of the encoded column."""
        found = [j for j, each in enumerate(self.source_names) if each == name]
        return found or [j for j, each in enumerate(self.feature_names) if each == name]

    def with_side_info(self, side: SideInfo, types: Declared) -> Encoding:
        """Return this encoding with that of side information; `types` is the result of `declared_types` for its table."""
        if side.values is None:
            return self
        names = side.names or [str(j) for j in range(side.values.shape[1])]
        columns = [
            _side_column(name, side.values[:, j], types.get(name)) for j, name in enumerate(names)
        ]
        return replace(self, side_info=tuple(columns))

    def encode_side_info(self, values: np.ndarray | None, names: list[str] | None) -> SideInfo:
        """Return side information with ordered categories and dates as numbers."""
        coded = {
            column.name: column for column in self.side_info if column.kind in ("ordered", "date")
        }
        if (
            values is None
            or not coded
            or (names is None and values.shape[1] != len(self.side_info))
        ):
            return SideInfo(values, names)
        table = values.astype(object)
        for j, column in enumerate(
            map(coded.get, names or [column.name for column in self.side_info])
        ):
            if column is not None:
                unknown: dict[str, None] = {}
                for t, value in enumerate(values[:, j]):
                    table[t, j], is_known = column.side_value(value)
                    unknown |= {} if is_known else {_text(value): None}
                warn_unknown(unknown, column, "replaced by the mean of the training tasks")
        numeric = all(isinstance(value, _NUMBER) for value in table.ravel())
        return SideInfo(table.astype(np.float64) if numeric else table, names)

    def merged(self, n: int, other: Encoding, m: int) -> Encoding:
        """Return the joint encoding of `n` rows and `m` further rows of the same table, which may lack columns."""
        parts = []
        for mine, theirs in ((self.features, other.features), (self.side_info, other.side_info)):
            others = {column.name: column for column in theirs}
            parts.append(
                tuple(c.merged(n, others[c.name], m) if c.name in others else c for c in mine)
            )
        return replace(self, features=parts[0], side_info=parts[1])

    @property
    def encoded(self) -> list[str]:
        """Columns whose encoding depends on the whole table: categories and dates, except unordered categories of side information."""
        features = [
            column.name for column in self.features if column.kind not in ("number", "boolean")
        ]
        return features + [
            column.name for column in self.side_info if column.kind in ("ordered", "date")
        ]

    def require_numbers(self, why: str) -> None:
        """Raise ValueError with the reason ``why`` if there are ``encoded`` columns, which contain categories or dates."""
        if self.encoded:
            raise ValueError(
                f"data: column {name_some(self.encoded)} holds categories or dates, and {why}"
            )

    def difference(self, other: Encoding) -> str | None:
        """Return a description of the first column that `other` encodes differently, or None."""
        for role in ("features", "side_info"):
            others = {column.name: column for column in getattr(other, role)}
            for column in getattr(self, role):
                there = others.get(column.name, column)
                if column.meaning(role) != there.meaning(role):
                    return f"column {column.name!r} was read as {column.text()} and is now {there.text()}"
        return None


def as_columns(task: TaskColumns | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the task columns as a tuple."""
    if not isinstance(task, Sequence):
        raise TypeError(
            f"task must be the name of a column (a string), or a list of names; got {task!r}."
        )
    return (task,) if isinstance(task, str) else tuple(task)


def class_positions(classes: Sequence[Any], labels: Iterable[Any], title: str = "y") -> np.ndarray:
    """Return the positions of labels among the classes; raise ValueError for other labels."""
    labels, known = list(labels), {label: float(k) for k, label in enumerate(classes)}
    with suppress(KeyError, TypeError):
        return np.array([known[label] for label in labels])
    if any(isinstance(label, list) for label in labels):
        raise ValueError(f"{title}: expected one label per row, got an array of two dimensions")
    unknown = name_some(sorted({label for label in labels if label not in known}, key=str))
    raise ValueError(
        f"{title}: fit had the classes {name_some(list(classes), 12)}, but not {unknown}"
    )


def missing_exposure(encoding: Encoding | None) -> ValueError:
    """Return the error for rows without exposures if the training tasks had exposures."""
    name = None if encoding is None else encoding.exposure
    column, frame = (
        ("", "") if name is None else (f" (column {name!r})", ", or a frame with this column")
    )
    advice = f"Pass exposure= with a number for each row{frame}. Ones mean one unit per row."
    return ValueError(f"exposure: fit had exposures{column}, and these rows have none. {advice}")


def side_column(column: Column) -> np.ndarray:
    """Return a column of side information as float64 if it is numeric, else as objects."""
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return numeric_column(column, f"Column {column.name!r} of side_info")
    if column.dtype in (nw.Categorical, nw.Enum):
        codes, distinct = _coded(column)  # integer categories must not be read as numbers
        return np.array([*distinct, None], dtype=object)[codes]
    refuse_misread_text(column, f"side_info: column {column.name!r}")
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def declared_types(frame: Frame, names: Iterable[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the kinds and categories of the columns of side information whose dtypes are ordered or boolean."""
    kinds = {name: declared_kind(frame[name]) for name in names}
    return {name: kind for name, kind in kinds.items() if kind[0] in ("ordered", "boolean")}


def declared_kind(column: Column) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a column according to its dtype, and its categories if the dtype gives their order."""
    dtype = column.dtype
    if dtype in (nw.Categorical, nw.Enum):
        native = column.to_native()
        categories = tuple(_text(value) for value in column.cat.get_categories().to_list())
        # pandas stores `ordered` in the dtype, pyarrow in the type. A polars Enum is ordered by definition.
        native_type = getattr(native, "dtype", getattr(native, "type", None))
        if dtype == nw.Enum or getattr(native_type, "ordered", False):
            return "ordered", categories
        if not (hasattr(native_type, "ordered") and hasattr(native_type, "categories")):
            return "categorical", ()  # the categories are in order of appearance
        used = set(map(_text, column.drop_nulls().unique().to_list()))
        return "categorical", tuple(category for category in categories if category in used)
    if dtype == nw.Object:
        present = [value for value in column.to_list() if not is_missing(value)]
        for type_, kind in ((date, "date"), (bool, "boolean")):
            if present and all(isinstance(value, type_) for value in present):
                return kind, ()
        return "categorical" if any(isinstance(value, str) for value in present) else "number", ()
    kinds = {nw.Boolean: "boolean", nw.Date: "date", nw.Datetime: "date", nw.String: "categorical"}
    return next((kind for type_, kind in kinds.items() if dtype == type_), "number"), ()


def _side_column(
    name: str, values: np.ndarray, kind: tuple[str, tuple[str, ...]] | None
) -> ColumnEncoding:
    """Return the encoding of a column of side information from its values and declared kind."""
    present = [value for value in values.tolist() if not is_missing(value)]
    if kind is not None:
        encoding = ColumnEncoding(name, *kind)
        scores = [encoding.side_value(_text(value))[0] for value in present if encoding.categories]
        return replace(encoding, means=(float(np.mean(scores)),)) if scores else encoding
    if all(isinstance(value, _NUMBER) for value in present):
        return ColumnEncoding(name)
    days = [day for value in present if (day := _day_of(value)) is not None]
    if len(days) == len(present):
        return ColumnEncoding(name, "date", origin=float(np.floor(min(days))))
    categories = tuple(sorted({_text(value) for value in present}))
    return ColumnEncoding(name, "categorical", categories)


def refuse_misread_text(column: Column, title: str) -> None:
    """Raise ValueError if strings are mostly numbers, or all are dates as spreadsheets write them: they would become categories.

    Integers are accepted as categories: a file reader reads them as numbers, so they were made strings on purpose.
    """
    if column.dtype not in (nw.String, nw.Object) or declared_kind(column)[0] != "categorical":
        return
    codes, distinct = _coded(column)
    values = [value.strip() for value in distinct]
    if values and all(map(_SPREADSHEET_DATE.fullmatch, values)):
        found = f"{distinct[0]!r} in row {int(np.argmax(codes == 0))} looks like a date"
        raise ValueError(
            f"{title}: {found}. Write dates as 2026-01-31, or convert them (pandas.to_datetime)."
        )
    texts = [value for value in values if not _WRITTEN_NUMBER.fullmatch(value)]
    fractions = [value for value in values if not value.removeprefix("-").isdecimal()]
    has_commas = not texts and any(DECIMAL_COMMA.fullmatch(value) for value in values)
    are_numbers = len(values) >= MIN_NUMBERS and len(values) - len(texts) >= SHARE_OF_NUMBERS * len(
        values
    )
    if not fractions or not (are_numbers or has_commas):
        return
    # The first of these values is the reason why the column was not read as numbers.
    reason = (
        texts or [value for value in fractions if not PLAIN_NUMBER.fullmatch(value)] or fractions
    )[0]
    k = values.index(reason)
    found = f"{distinct[k]!r} in row {int(np.argmax(codes == k))}"
    found = (
        f"they are strings, such as {found}"
        if PLAIN_NUMBER.fullmatch(reason)
        else f"{found} is not read as one"
    )
    advice = "Convert strings to numbers (pandas.to_numeric). In a file, remove percent signs, currency signs and thousands separators."
    if texts:
        advice = "Leave the cell of a missing value empty. If the values are categories, add a letter to each."
    advice += f" {DECIMAL_ADVICE}" * has_commas
    raise ValueError(f"{title}: most values look like numbers, but {found}. {advice}")


def _days(column: Column, kind: str) -> np.ndarray | None:
    """Return days since 1970-01-01 of dates, or of strings if all are dates, as in a file without types; else None."""
    if kind == "date" and column.dtype != nw.Object:
        stamps = column.cast(nw.Datetime("us")) if column.dtype == nw.Date else column
        return as_floats(stamps.dt.timestamp("us")) / _DAY
    if kind == "date":
        values = [None if is_missing(value) else value for value in column.to_list()]
        return np.array(
            [np.nan if value is None else _day_of(value) for value in values], dtype=float
        )
    codes, distinct = _coded(column) if kind == "categorical" else (np.zeros(0, np.int64), [])
    days = [_day_of(text) for text in distinct]
    return np.array([*days, np.nan], dtype=float)[codes] if days and None not in days else None


def _day_of(value: object) -> float | None:
    """Return the day of a date, a time or an ISO 8601 string, with a fraction; None for other values."""
    if isinstance(value, str) and _ISO.fullmatch(value.strip()):
        with suppress(ValueError):
            value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if not isinstance(value, date | np.datetime64):
        return None
    return float(np.array(value, dtype="datetime64[us]").astype(np.int64)) / _DAY


def _coded(column: Column) -> tuple[np.ndarray, list[str]]:
    """Return the category code of each row, −1 if it is missing, and the categories."""
    if column.dtype in (nw.Categorical, nw.Enum):
        categories = column.cat.get_categories().to_list()
        # Other categories are written by `_text`, because libraries write 1.0 as "1" or as "1.0".
        column = column.cast(nw.String) if all(isinstance(c, str) for c in categories) else column
    strings = factorize(column)
    if strings is not None:
        return strings
    codes: dict[str, int] = {}
    rows = (
        -1 if is_missing(v) else codes.setdefault(_text(v), len(codes)) for v in column.to_list()
    )
    return np.fromiter(rows, dtype=np.int64, count=len(column)), list(codes)


def _text(value: object) -> str:
    """Return a category as a string; 2 and 2.0 are the same category."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def warn_unknown(unknown: Iterable[str], column: ColumnEncoding, treatment: str) -> None:
    """Warn about categories that the training table did not have."""
    if categories := list(unknown):
        known = f"where the column held {name_some(column.categories, 3)}"
        message = f"{name_some(categories, 3)} did not appear in training, {known}; {treatment}"
        warn(f"column {column.name!r}: {message}", UnknownCategoryWarning)


def list_some(names: Iterable[str], limit: int = 4) -> str:
    """Return the first few names without quotes, and the number of further names."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
