"""Encode the columns of a table as numbers.

`Encoding` is built from the training table and stored by learners, so that later tables are read in
the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import ArrayLike

from .._utils.frames import (
    Column,
    Frame,
    RowsLike,
    SideInfoLike,
    ValuesLike,
    as_floats,
    can_read,
    factorize,
    is_null,
    numeric_column,
    read_frame,
    require_columns,
)
from .._utils.records import Record
from .._utils.validation import check_finite, is_missing, list_some, name_some, native, warn
from ..exceptions import UnknownCategoryWarning
from .formula import Formula

#: A feature with more categories is stored as one column of category codes instead of indicators.
#: If it has more than half as many categories as rows, they are taken for row identifiers, which
#: raises an error.
MANY_CATEGORIES = 20

#: The column of task labels, or several columns whose combinations are the labels.
TaskColumns = str | tuple[str, ...]
#: Names of the optional values per row; see `TaskSet`.
ROW_VALUES = ("sample_weight", "frequency_weight", "exposure")

_MICROSECONDS_PER_DAY = 86_400e6
_NUMBER = int | float | np.number


class SideInfo(NamedTuple):
    """Side information with a row per task (in `side_of_rows`, per row of X).

    The values are float64, or object if a column is not numeric. Missing values are NaN in numeric
    columns and None in others.
    """

    values: np.ndarray | None = None
    names: list[str] | None = None
    types: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # see `declared_types`


@dataclass(frozen=True)
class ColumnEncoding(Record):
    """How one column of a table is read: as numbers, where booleans are 0 and 1.

    Subclasses encode dates and categories. Missing values may be imputed, and if at least ten
    values were missing in training (`has_missing`), the last encoded column indicates them.
    """

    kind: ClassVar[str] = "number"

    name: str
    #: Categories as strings; the first is the reference. Empty for numbers and dates.
    categories: tuple[str, ...] = ()
    #: Mean of the encoded training values, if missing values are imputed.
    mean: float = field(default=0.0, compare=False)
    has_missing: bool = False

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names of the encoded columns without the indicator of missing values."""
        return (self.name,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return self.own_names + (f"{self.name}=missing",) * self.has_missing

    @property
    def fill(self) -> Any:
        """The encoded value, or the value of each encoded column, that replaces a missing one."""
        return self.mean

    @classmethod
    def of(cls, column: Column) -> ColumnEncoding:
        """Return the encoding of a feature of this kind."""
        return cls(str(column.name))

    def read(self, column: Column) -> tuple[np.ndarray, list[str]]:
        """Return the encoded values (n, k) of a feature, NaN if missing, and unknown categories.

        A categorical column with fewer than two categories has no indicators. Its values are zeros,
        or NaN if missing.
        """
        return numeric_column(column, f"Feature column {self.name!r}")[:, None], []

    def imputing(self, values: np.ndarray) -> Self:
        """Return the encoding with imputation; `values` are the encoded training values."""
        missing = np.isnan(values).any(axis=1)
        if missing.all():
            raise ValueError(f"column {self.name!r} has no values to impute from. Leave it out.")
        mean = float(values[~missing].mean())
        # With fewer, the coefficient of the indicator would be too uncertain.
        return replace(self, mean=mean, has_missing=bool(missing.sum() >= 10))

    def impute(self, values: np.ndarray) -> np.ndarray:
        """Impute missing encoded values, and append their indicator if there is one."""
        missing = np.isnan(values).any(axis=1)
        values = np.where(missing[:, None], self.fill, values)[:, : len(self.own_names)]
        return np.column_stack([values, missing]) if self.has_missing else values

    def merged(self, other: ColumnEncoding) -> ColumnEncoding:
        """Return the joint encoding of two parts of a table."""
        if type(self) is not type(other):
            raise self._another_kind(other)
        return self

    def _another_kind(self, other: ColumnEncoding) -> ValueError:
        return ValueError(
            f"column {self.name!r} is {self.text()} in one part of the table and {other.text()} "
            "in another. Use the same type in all parts."
        )

    def text(self) -> str:
        """Describe the encoding in a few words; see `TaskSet.describe`."""
        if not self.names:
            return f"always {self.categories[0] if self.categories else 'missing'}: dropped"
        return self._text() + "; missing values are imputed" * self.has_missing

    def _text(self) -> str:
        return "a number"


@dataclass(frozen=True)
class DateEncoding(ColumnEncoding):
    """Dates as days, with fractions; times with a time zone are converted to UTC."""

    kind: ClassVar[str] = "date"
    origin: float = 0.0  # day zero: the first day of the table, counted from 1970-01-01

    @classmethod
    def of(cls, column: Column) -> DateEncoding:
        days = _days(column)
        first = np.floor(np.nanmin(days)) if np.isfinite(days).any() else 0.0
        return cls(str(column.name), origin=float(first))

    def read(self, column: Column) -> tuple[np.ndarray, list[str]]:
        if column.dtype not in (nw.Date, nw.Datetime):
            raise ValueError(
                f"Feature column {self.name!r} held dates in the training table and is "
                f"{column.dtype} now. Convert it: pandas.to_datetime(frame[{self.name!r}])."
            )
        return (_days(column) - self.origin)[:, None], []

    def number_of(self, value: Any) -> float:
        """Return a date of side information as a number."""
        if not isinstance(value, date | np.datetime64):
            raise ValueError(
                f"side_info: column {self.name!r} held dates in training and has {value!r} now. "
                "Use a date, such as datetime.date(2026, 1, 31)."
            )
        return _day_of(value) - self.origin

    def merged(self, other: ColumnEncoding) -> ColumnEncoding:
        if not isinstance(other, DateEncoding):
            raise self._another_kind(other)
        return replace(self, origin=min(self.origin, other.origin))

    def _text(self) -> str:
        return f"days since {np.datetime64(int(self.origin), 'D')}"


@dataclass(frozen=True)
class CategoryEncoding(ColumnEncoding):
    """Categories as one indicator for each of them except the first.

    Categories are in alphabetical order, or in that of a pandas dtype. An unknown category is
    replaced by the means of the indicators. Side information of this kind is stored as strings,
    which the feature map encodes.
    """

    kind: ClassVar[str] = "categorical"
    counts: tuple[float, ...] = field(default=(), compare=False)  # training rows by category

    @property
    def own_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category}" for category in self.categories[1:])

    @property
    def values(self) -> np.ndarray:
        """The encoded values of each category, (n_categories, k)."""
        n = len(self.categories)
        return np.eye(n, max(n - 1, 1), -1)

    @property
    def fill(self) -> Any:
        return self.values.T @ np.array(self.counts) / max(sum(self.counts), 1.0)

    @classmethod
    def of(cls, column: Column) -> CategoryEncoding:
        codes, distinct = _coded(column)
        categories = _in_order(column, distinct)
        n, n_rows = len(categories), len(codes)
        if cls is CategoryEncoding and n > MANY_CATEGORIES:
            if n > 1000 or 2 * n > n_rows:
                raise ValueError(
                    f"Feature column {column.name!r} has {n} categories "
                    f"({name_some(categories, 3)}) in {n_rows} rows. Identifiers do not predict "
                    "new rows: list the other columns in `features`."
                )
            cls = CodeEncoding
        numbers = np.bincount(codes[codes >= 0], minlength=len(distinct))
        counts = dict(zip(distinct, numbers.astype(float).tolist(), strict=True))
        return cls(
            str(column.name), categories, counts=tuple(counts.get(c, 0.0) for c in categories)
        )

    def read(self, column: Column) -> tuple[np.ndarray, list[str]]:
        codes, distinct = _coded(column)
        encoded = dict(zip(self.categories, self.values, strict=True))
        unknown = [category for category in distinct if category not in encoded]
        encoded.update(zip(unknown, self._unknown(len(unknown)), strict=True))
        # The code of a missing value is -1.
        missing = np.full(self.values.shape[1], np.nan)
        return np.vstack([*(encoded[category] for category in distinct), missing])[codes], unknown

    def _unknown(self, m: int) -> np.ndarray:
        """Return the encoded values (m, k) of m unknown categories."""
        return np.broadcast_to(self.fill, (m, self.values.shape[1]))

    def merged(self, other: ColumnEncoding) -> ColumnEncoding:
        if not isinstance(other, CategoryEncoding) or isinstance(other, OrderedEncoding):
            raise self._another_kind(other)
        counts = Counter[str]()
        for part in (self, other):
            counts.update(dict(zip(part.categories, part.counts, strict=True)))
        names = tuple(sorted(counts))
        kind = CodeEncoding if len(names) > MANY_CATEGORIES else CategoryEncoding
        return kind(self.name, names, counts=tuple(counts[name] for name in names))

    def _text(self) -> str:
        names = self.own_names or self.names
        return f"{list_some(names)} (reference: {self.categories[0]})"


@dataclass(frozen=True)
class CodeEncoding(CategoryEncoding):
    """More than `MANY_CATEGORIES` categories of a feature as one column of category codes.

    Imputed values are −1, and unknown categories −2, −3, ….
    """

    kind: ClassVar[str] = "levels"

    own_names = ColumnEncoding.own_names  # one column

    @property
    def values(self) -> np.ndarray:
        return np.arange(len(self.categories), dtype=float)[:, None]

    @property
    def fill(self) -> Any:
        return -1.0

    def _unknown(self, m: int) -> np.ndarray:
        return -2.0 - np.arange(m)[:, None]

    def _text(self) -> str:
        return f"one of {len(self.categories)} values, each with an effect of its own"


@dataclass(frozen=True)
class OrderedEncoding(CategoryEncoding):
    """Ordered categories as their values if all are numbers, otherwise as positions from 0."""

    kind: ClassVar[str] = "ordered"

    own_names = ColumnEncoding.own_names  # one column

    @property
    def values(self) -> np.ndarray:
        try:
            return np.array(self.categories, dtype=float)[:, None]
        except ValueError:
            return np.arange(len(self.categories), dtype=float)[:, None]

    def number_of(self, value: Any) -> float:
        """Return a category of side information as a number."""
        encoded = dict(zip(self.categories, self.values[:, 0].tolist(), strict=True))
        if (text := _text(value)) in encoded:
            return encoded[text]
        warn_unknown(self.name, [text], self.categories)
        return float(self.fill[0])

    def merged(self, other: ColumnEncoding) -> ColumnEncoding:
        if self != other:
            raise self._another_kind(other)
        assert isinstance(other, OrderedEncoding)
        counts = np.add(self.counts, other.counts)
        return replace(self, counts=tuple(counts.tolist()))

    def _text(self) -> str:
        first, last = self.categories[0], self.categories[-1]
        low, high = self.values[[0, -1], 0]
        if f"{low:g}" == first:
            return f"{first} to {last}"
        return f"{low:g} ({first}) to {high:g} ({last})"


@dataclass(frozen=True)
class Encoding(Record):
    """How a table was read, so that other tables can be read in the same way; see
    `TaskSet.from_frame`.

    Columns are found by their names, in any order. A category that was not in the training table
    causes an `UnknownCategoryWarning`. It is replaced by an average category: by the means of the
    encoded columns, except for the kind "levels".
    """

    task: TaskColumns | None  # column of task labels, or columns whose combinations are the labels
    target: str | None
    features: tuple[ColumnEncoding, ...] = ()
    side_info: tuple[ColumnEncoding, ...] = ()  # the feature map encodes its categorical columns
    #: Reasons why rows of the table were dropped, and numbers of rows.
    dropped: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    classes: tuple[str | bool, ...] = ()  # sorted classes of a target stored as class positions
    # Names of the columns with the optional values per row.
    sample_weight: str | None = None
    frequency_weight: str | None = None
    exposure: str | None = None
    time: str | None = None  # the feature that is the time of a row
    imputes: bool = False  # whether missing features are replaced by their means
    formula: Formula | None = None  # the encoded columns are products of those of the `features`

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
        """Return the encoding of a table's features, and their encoded values (n, k).

        Numbers in the columns `categorical` are categories.
        """
        columns = []
        for name in names:
            kind = encoding_class(frame[name], is_categorical=name in categorical)
            column = kind.of(frame[name])
            columns.append(column.imputing(column.read(frame[name])[0]) if imputes else column)
        encoding = cls(task, target, tuple(columns), imputes=imputes)
        repeated = [name for name, count in Counter(encoding.feature_names).items() if count > 1]
        if repeated:
            raise ValueError(
                f"features: the name {repeated[0]!r} of an indicator is also the name of another "
                "column. Rename that column."
            )
        return encoding, encoding.encode_features(frame)

    def encode_features(self, frame: Frame, name: str = "X") -> np.ndarray:
        """Return the encoded features (n, k) of a table; `name` is the argument in errors."""
        require_columns(frame, name, [column.name for column in self.features])
        parts = [np.empty((len(frame), 0))]
        for column in self.features:
            k = len(column.own_names)
            values, unknown = column.read(frame[column.name])
            if not k and not self.imputes:  # other missing values are found in the encoded values
                check_finite(values[:, 0], f"{name}, column {column.name!r},")
            parts.append(column.impute(values) if self.imputes else values[:, :k])
            warn_unknown(column.name, unknown, column.categories)
        return self.design(np.hstack(parts))

    def design(self, X: np.ndarray) -> np.ndarray:
        """Return the columns of the formula, if any, from the encoded columns of a table."""
        if self.formula is None:
            return X
        names = [name for column in self.features for name in column.names]
        for column in (column for column in self.features if column.kind == "categorical"):
            # The indicator of the first category, which has no encoded column.
            rest = 1.0 - X[:, [names.index(name) for name in column.names]].sum(axis=1)
            X, names = np.column_stack([X, rest]), [*names, f"{column.name}={column.categories[0]}"]
        return self.formula.design(X, names)

    def encode_target(self, frame: Frame, is_new: bool) -> tuple[Encoding, np.ndarray]:
        """Return the encoding with classes, and the targets, which are zero without a column.

        Strings and booleans become positions of the sorted classes.
        """
        if self.target is None:
            return self, np.zeros(len(frame))
        column, title = frame[self.target], f"The target column {self.target!r}"
        if is_new:
            refuse_misread_text(column, title)
            if column.dtype in (nw.String, nw.Categorical, nw.Enum, nw.Boolean):
                self = replace(self, classes=tuple(sorted(set(column.drop_nulls().to_list()))))
        if not self.classes:
            return self, numeric_column(column, title)
        y = np.full(len(column), np.nan)  # `collect` raises ValueError for NaN
        y[~is_null(column)] = class_positions(self.classes, column.drop_nulls().to_list(), title)
        return self, y

    def read_columns(
        self, X: RowsLike, side_info: SideInfoLike, **values: ValuesLike
    ) -> tuple[SideInfoLike, dict[str, ValuesLike]]:
        """Return side information and values per row.

        Those that are None are read from the columns of the frame X, if it has them.
        """
        frame, names = read_frame(X, "X"), [column.name for column in self.side_info]
        if side_info is None and names and len(frame) and set(names) <= set(frame.columns):
            side_info = side_of_rows(frame.select(names))
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
        """Name of the table column of each encoded column, such as "ses" and "sector".

        With a formula, names of its columns.
        """
        if self.formula is not None:
            return self.formula.names
        return [column.name for column in self.features for _ in column.names]

    @property
    def levels(self) -> dict[int, int]:
        """Number of categories of each encoded column of category codes, by its position."""
        columns = [column for column in self.features if isinstance(column, CodeEncoding)]
        return {self.positions(column.name)[0]: len(column.categories) for column in columns}

    def with_indicators(self, X: np.ndarray) -> tuple[Encoding, np.ndarray]:
        """Return the encoding and the features with indicators instead of category codes."""
        columns, parts = [], []
        ends = np.cumsum([len(column.names) for column in self.features])
        for column, part in zip(self.features, np.split(X, ends[:-1], axis=1), strict=True):
            if isinstance(column, CodeEncoding):
                column = CategoryEncoding(**vars(column))
                position = np.maximum(part[:, 0], -1.0).astype(np.intp)
                indicators = np.vstack([column.values, column.fill])[position]
                part = np.hstack([indicators, part[:, 1:]])
            columns.append(column)
            parts.append(part)
        return replace(self, features=tuple(columns)), np.hstack(parts)

    def positions(self, name: object) -> list[int]:
        """Return the positions of the encoded columns of a table's column, or of one of them."""
        found = [j for j, each in enumerate(self.source_names) if each == name]
        return found or [j for j, each in enumerate(self.feature_names) if each == name]

    def with_side_info(self, side: SideInfo) -> Encoding:
        """Return this encoding with that of side information."""
        if side.values is None:
            return self
        names = side.names or [str(j) for j in range(side.values.shape[1])]
        columns = zip(names, side.values.T, strict=True)
        return replace(
            self,
            side_info=tuple(side_encoding(name, v, side.types.get(name)) for name, v in columns),
        )

    def encode_side_info(
        self, values: np.ndarray | None, names: list[str] | None
    ) -> np.ndarray | None:
        """Return side information with ordered categories and dates as numbers.

        Numbers are taken as encoded values, as in ``TaskSet.side_info``, and not changed.
        """
        order = [column.name for column in self.side_info] if names is None else names
        if values is None or values.dtype != object or values.shape[1] != len(order):
            return values
        table, coded = [], {column.name: column for column in self.coded_side_info}
        for name, column in zip(order, values.T, strict=True):
            if name in coded:
                numbers = [
                    value if isinstance(value, _NUMBER | None) else coded[name].number_of(value)
                    for value in column
                ]
                column = np.array(numbers, dtype=float)
            table.append(side_values(column))
        return np.column_stack(table)

    def merged(self, other: Encoding) -> Encoding:
        """Return the joint encoding of the same columns in two parts of a table."""
        features = zip(self.features, other.features, strict=True)
        side_info = zip(self.side_info, other.side_info, strict=True)
        return replace(
            self,
            features=tuple(mine.merged(theirs) for mine, theirs in features),
            side_info=tuple(mine.merged(theirs) for mine, theirs in side_info),
        )

    def with_columns(self, other: Encoding) -> Encoding:
        """Return this encoding with the columns of another one that has some of its columns."""
        columns = {column.name: column for column in (*other.features, *other.side_info)}
        return replace(
            self,
            features=tuple(columns.get(column.name, column) for column in self.features),
            side_info=tuple(columns.get(column.name, column) for column in self.side_info),
        )

    @property
    def encoded(self) -> list[str]:
        """Columns whose encoding depends on the whole table: categories and dates.

        Unordered categories of side information are not among them.
        """
        features = [c.name for c in self.features if c.kind != "number"]
        return features + [c.name for c in self.coded_side_info]

    @property
    def coded_side_info(self) -> list[DateEncoding | OrderedEncoding]:
        """Columns of side information that are stored as numbers: ordered categories and dates."""
        return [c for c in self.side_info if isinstance(c, DateEncoding | OrderedEncoding)]

    def difference(self, other: Encoding) -> str | None:
        """Return a description of the first column that `other` encodes differently, or None."""
        for role in ("features", "side_info"):
            others = {column.name: column for column in getattr(other, role)}
            for column in getattr(self, role):
                there = others.get(column.name, column)
                # The feature map encodes unordered categories of side information.
                by_map = role == "side_info" and column.kind == there.kind == "categorical"
                if column != there and not by_map:
                    return (
                        f"column {column.name!r} was read as {column.text()} and is now "
                        f"{there.text()}"
                    )
        return None


def as_columns(task: TaskColumns | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the task columns as a tuple."""
    if not isinstance(task, Sequence):
        raise TypeError(
            f"task must be the name of a column (a string), or a list of names; got {task!r}."
        )
    return (task,) if isinstance(task, str) else tuple(task)


def class_positions(classes: ArrayLike, labels: ArrayLike, title: str = "y") -> np.ndarray:
    """Return the positions of labels among the classes; raise ValueError for other labels."""
    classes, labels = native(np.asarray(classes)), native(np.asarray(labels))
    position = {label: float(k) for k, label in enumerate(classes)}
    if any(isinstance(label, list) for label in labels):
        raise ValueError(f"{title}: expected one label per row, got an array of two dimensions")
    if unknown := {label for label in labels if label not in position}:
        raise ValueError(
            f"{title}: fit had the classes {name_some(classes, 12)}, but not "
            f"{name_some(sorted(unknown, key=str))}"
        )
    return np.array([position[label] for label in labels])


def warn_unknown(
    name: Any,
    unknown: Iterable[Any],
    known: Iterable[Any],
    treatment: str = "replaced by an average category",
) -> None:
    """Warn about categories that the training table did not have."""
    if unknown := list(unknown):
        warn(
            f"column {name!r}: {name_some(unknown, 3)} did not appear in training, where the "
            f"column held {name_some(known, 3)}; {treatment}",
            UnknownCategoryWarning,
        )


def missing_exposure(encoding: Encoding | None) -> ValueError:
    """Return the error for rows without exposures if the training tasks had exposures."""
    name = None if encoding is None else encoding.exposure
    frame = "" if name is None else f", or a frame with the column {name!r}"
    return ValueError(
        "exposure: fit had exposures, and these rows have none. Pass exposure= with a number for "
        f"each row{frame}. Ones mean one unit per row."
    )


def side_column(column: Column) -> np.ndarray:
    """Return a column of side information as float64 if it is numeric, else as objects."""
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return as_floats(column)
    if column.dtype in (nw.Categorical, nw.Enum):
        codes, distinct = _coded(column)  # integer categories must not be read as numbers
        return np.array([*distinct, None], dtype=object)[codes]
    refuse_misread_text(column, f"Column {column.name!r}")
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def side_columns_of(frame: Frame) -> dict[str, np.ndarray]:
    """Return the columns of a frame with side information by name."""
    return {column.name: side_column(column) for column in frame.iter_columns()}


def side_of_rows(frame: Frame) -> SideInfo:
    """Return the columns of a frame as side information with a row per row of X."""
    return SideInfo(np.column_stack(list(side_columns_of(frame).values())), frame.columns)


def side_values(column: np.ndarray) -> np.ndarray:
    """Return numbers as float64, NaN if missing, and other values as objects, None if missing."""
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    # None is equal to itself, unlike NaN, NaT and pandas' NA.
    values = [None if is_missing(value) else value for value in native(column)]
    is_numeric = all(isinstance(value, _NUMBER | np.bool_ | None) for value in values)
    if is_numeric:
        return np.array(values, dtype=float)
    return np.fromiter(values, dtype=object, count=len(values))


def side_encoding(
    name: str, values: np.ndarray, categories: tuple[str, ...] | None
) -> ColumnEncoding:
    """Return the encoding of a column of side information; ``categories`` are those of an ordered
    dtype, in order.
    """
    present = [value for value in values.tolist() if not is_missing(value)]
    texts = Counter(map(_text, present))
    if categories is not None:
        counts = tuple(float(texts[category]) for category in categories)
        return OrderedEncoding(name, categories, counts=counts)
    if all(isinstance(value, _NUMBER) for value in present):
        return ColumnEncoding(name)
    if all(isinstance(value, date | np.datetime64) for value in present):
        return DateEncoding(name, origin=float(np.floor(min(map(_day_of, present)))))
    return CategoryEncoding(name, tuple(sorted(texts)))


def encoding_class(column: Column, *, is_categorical: bool) -> type[ColumnEncoding]:
    """Return how a feature is encoded, according to its dtype; numbers may be categories."""
    refuse_misread_text(column, f"Feature column {column.name!r}")
    if column.dtype in (nw.Date, nw.Datetime):
        return DateEncoding
    if _is_ordered(column):
        return OrderedEncoding
    is_categorical |= column.dtype in (nw.String, nw.Categorical, nw.Enum)
    return CategoryEncoding if is_categorical else ColumnEncoding


def declared_types(frame: Frame) -> dict[str, tuple[str, ...]]:
    """Return the categories of the columns of side information whose dtypes are ordered."""
    return {c.name: _declared(c) for c in frame.iter_columns() if _is_ordered(c)}


def _is_ordered(column: Column) -> bool:
    """Return whether a column is a polars Enum, or has categories with an order."""
    native = column.to_native()
    # pandas stores `ordered` in the dtype, pyarrow in the type.
    kind = getattr(native, "dtype", getattr(native, "type", None))
    return bool(column.dtype == nw.Enum or getattr(kind, "ordered", False))


def _declared(column: Column) -> tuple[str, ...]:
    """Return the categories of a categorical dtype."""
    if column.dtype not in (nw.Categorical, nw.Enum):
        return ()
    return tuple(map(_text, column.cat.get_categories().to_list()))


def _in_order(column: Column, distinct: list[str]) -> tuple[str, ...]:
    """Return the categories of a column in the order of its dtype, numbers by size, and others in
    alphabetical order; ``distinct`` are those that occur.
    """
    if column.dtype.is_numeric():
        return tuple(sorted(distinct, key=float))
    declared = _declared(column)
    if _is_ordered(column):
        return declared
    has_order = declared and column.implementation.is_pandas_like()
    return tuple(sorted(distinct, key=declared.index if has_order else None))


def refuse_misread_text(column: Column, title: str) -> None:
    """Raise ValueError for strings most of which are numbers or ISO dates.

    Strings are read as categories, so numbers would get an indicator each.
    """
    if column.dtype != nw.String:
        return
    distinct = column.drop_nulls().unique().to_list()
    for read, kind, call in (
        (float, "numbers", "to_numeric"),
        (datetime.fromisoformat, "dates", "to_datetime"),
    ):
        others = [text for text in distinct if not can_read(read, text)]
        if 2 * len(others) < len(distinct):
            example = next(text for text in distinct if text not in others)
            also = f", but also {name_some(others, 3)}" if others else ""
            name = f"frame[{column.name!r}]"
            raise ValueError(
                f"{title} holds {kind} as strings, such as {example!r}{also}. Convert it: "
                f"pandas.{call}({name}). If they are categories, use {name}.astype('category')."
            )


def _days(column: Column) -> np.ndarray:
    """Return days since 1970-01-01 of a column of dates, with NaN for missing values."""
    stamps = column.cast(nw.Datetime("us")) if column.dtype == nw.Date else column
    return as_floats(stamps.dt.timestamp("us")) / _MICROSECONDS_PER_DAY


def _day_of(value: Any) -> float:
    """Return the day of a date or a time, with a fraction, since 1970-01-01."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    microseconds = np.array(value, dtype="datetime64[us]").astype(np.int64)
    return float(microseconds) / _MICROSECONDS_PER_DAY


def _coded(column: Column) -> tuple[np.ndarray, list[str]]:
    """Return the category code of each row, −1 if it is missing, and the categories."""
    if column.dtype in (nw.Categorical, nw.Enum):
        is_text = column.cat.get_categories().dtype == nw.String
        # Other categories are written by `_text`, because libraries write 1.0 as "1" or as "1.0".
        column = column.cast(nw.String) if is_text else column
    if column.dtype == nw.String:
        return factorize(column)
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
