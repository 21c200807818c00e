"""One column of a table, whatever it holds, as numbers: how it was read, so that it is read the same way again."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np

from .._utils.validation import is_missing, name_some, outside
from ..exceptions import UnknownCategoryWarning
from ._frames import Column, as_floats, coded_words, numeric_column

#: Different words that a column of inputs may hold: each but the first becomes a column of its own.
MOST_LEVELS = 1000
#: From so many on, words of which most appear once are names of rows.
MANY_LEVELS = 20

_DAY = 86_400.0 * 1e6  # in microseconds
_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)


class Read(NamedTuple):
    """The numbers of a column, (n, k), NaN where it has no value; and the words in it that were not known."""

    values: np.ndarray
    unknown: list[str]


@dataclass(frozen=True)
class ColumnEncoding:
    """How one column of a table becomes numbers.

    Attributes
    ----------
    name : str
    kind : {"number", "boolean", "words", "ordered", "date"}
        Booleans are 0 and 1.  Words of inputs are indicators, one for each but the first; those of descriptions stay
        words, for the feature map.  Ordered categories are their places, from 0, or themselves if they are numbers.  Dates
        are days, with fractions.
    levels : tuple of str
        The words; of ordered categories from the lowest to the highest.  The first of inputs' words, by the alphabet or
        by the order of the categories, has no indicator: the others are compared with it.
    origin : float
        Day zero of dates, counted from 1970-01-01: the first day seen.
    typical : tuple of float
        Means of the numbers of words and ordered categories, which one that was not seen stands at.
    """

    name: str
    kind: str = "number"
    levels: tuple[str, ...] = ()
    origin: float = 0.0
    typical: tuple[float, ...] = field(default=(), compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Of its columns of numbers."""
        if self.kind == "words":
            return tuple(f"{self.name}={level}" for level in self.levels[1:])
        return (self.name,)

    @property
    def scores(self) -> list[float]:
        """Of ordered categories."""
        try:
            return [float(level) for level in self.levels]
        except ValueError:
            return [float(i) for i in range(len(self.levels))]

    @property
    def first_day(self) -> str:
        return str(np.datetime64(0, "D") + np.timedelta64(int(self.origin), "D"))

    @classmethod
    def of(cls, column: Column, place: str) -> tuple[ColumnEncoding, np.ndarray | None]:
        """The encoding of a column of inputs, and its numbers if they are at hand; ``place`` names it in errors."""
        kind, levels = declared(column)
        if kind in ("number", "boolean"):
            return cls(str(column.name), kind), None
        days = days_of(column) if kind == "date" else None
        if kind == "words":
            codes, distinct = _coded(column)
            days = _days_of_words(codes, distinct)
            levels = levels or tuple(sorted(distinct))
            if days is None:
                _check_levels(levels, len(codes), place)
        if days is not None:
            origin = float(np.floor(np.nanmin(days))) if np.isfinite(days).any() else 0.0
            return cls(str(column.name), "date", origin=origin), (days - origin)[:, None]
        made = cls(str(column.name), kind, levels)
        values = made.read(column, place).values
        return replace(made, typical=_means(values[~np.isnan(values).any(axis=1)])), values

    def read(
        self,
        column: Column,
        place: str,
        advice: str = "It held numbers in the table that this one is read like.",
    ) -> Read:
        """The numbers of a column of the same name in another table."""
        if self.kind in ("number", "boolean"):
            return Read(numeric_column(column, place, advice)[:, None], [])
        if self.kind == "date":
            return Read((self._days(column, place) - self.origin)[:, None], [])
        if column.dtype.is_numeric() and not set(self.levels) & set(map(_word, column.unique().to_list())):
            raise ValueError(f"{place} held words ({name_some(self.levels, 3)}) and has numbers now.")
        codes, distinct = _coded(column)
        where = {level: i for i, level in enumerate(self.levels)}
        k = len(self.names)
        values = np.empty((len(distinct) + 1, k))
        values[:-1] = np.reshape([self._numbers(where.get(word)) for word in distinct], (len(distinct), k))
        values[-1] = np.nan  # of missing values
        return Read(values[codes], [word for word in distinct if word not in where])

    def value(self, found: Any) -> tuple[float, bool]:
        """The number that one entry of a description stands for, and whether it was known; numbers are it already."""
        if is_missing(found):
            return np.nan, True
        if isinstance(found, int | float | np.number):
            return float(found), True
        if self.kind == "date":
            day = day_of(found)
            if day is None:
                raise ValueError(
                    f"side_info: column {self.name!r} held dates and has {found!r} now; give a date, or one as "
                    "2026-01-31."
                )
            return day - self.origin, True
        if _word(found) in self.levels:
            return self.scores[self.levels.index(_word(found))], True
        return (self.typical or (np.nan,))[0], False

    def merged(self, n: int, other: ColumnEncoding, m: int) -> ColumnEncoding:
        """Of ``n`` rows and of ``m`` further ones of the same table."""
        kinds = {self.kind, other.kind}
        if kinds <= {"number", "boolean"}:
            return self if self.kind == other.kind else ColumnEncoding(self.name)
        if len(kinds) > 1 or (self.kind == "ordered" and self.levels != other.levels):
            raise ValueError(
                f"column {self.name!r} is {self.words()} in one part of the table and {other.words()} in another."
            )
        if self.kind == "date":
            return replace(self, origin=min(self.origin, other.origin))
        share = m / max(n + m, 1)
        if self.kind == "ordered":
            typical = (1.0 - share) * np.array(self.typical) + share * np.array(other.typical)
            return replace(self, typical=tuple(typical.tolist()))
        levels = tuple(sorted({*self.levels, *other.levels}))
        mine, theirs = self._shares(), other._shares()
        found = [(1.0 - share) * mine.get(v, 0.0) + share * theirs.get(v, 0.0) for v in levels[1:]]
        return replace(self, levels=levels, typical=tuple(found))

    def _shares(self) -> dict[str, float]:
        """The part of the rows that each word has."""
        return dict(zip(self.levels, (1.0 - sum(self.typical), *self.typical), strict=False))

    def _numbers(self, level: int | None) -> list[float]:
        if level is None:
            return list(self.typical) if self.typical else [0.0] * len(self.names)
        if self.kind == "ordered":
            return [self.scores[level]]
        return [float(level == i) for i in range(1, len(self.levels))]

    def _days(self, column: Column, place: str) -> np.ndarray:
        if declared(column)[0] == "date":
            return days_of(column)
        if declared(column)[0] == "words":
            days = _days_of_words(*_coded(column))
            if days is not None:
                return days
        raise ValueError(f"{place} held dates and is {column.dtype} now. Give dates, or words as 2026-01-31.")

    def words(self) -> str:
        """What was made of it, for people; see `TaskSet.describe`."""
        if self.kind == "date":
            return f"days since {self.first_day}"
        if self.kind == "ordered":
            low, high = (f"{score:g}" for score in (self.scores[0], self.scores[-1]))
            named = f"{low} ({self.levels[0]}) to {high} ({self.levels[-1]})"
            return f"{low} to {high}" if low == self.levels[0] else named
        if self.kind == "words":
            if len(self.levels) < 2:
                return f"always {self.levels[0] if self.levels else 'missing'}: left out"
            return f"{name_plainly(self.names)} (beside {self.levels[0]})"
        return "0 and 1" if self.kind == "boolean" else "as it is"


def declared(column: Column) -> tuple[str, tuple[str, ...]]:
    """The kind of a column by its type, and the categories whose order is the user's."""
    dtype = column.dtype
    if dtype in (nw.Categorical, nw.Enum):
        native = column.to_native()
        categories = tuple(_word(value) for value in column.cat.get_categories().to_list())
        # pandas says so in its dtype, pyarrow in its type; those of polars are ordered where the user listed them.
        kind = getattr(native, "dtype", getattr(native, "type", None))
        if dtype == nw.Enum or getattr(kind, "ordered", False):
            return "ordered", categories
        if not (hasattr(kind, "ordered") and hasattr(kind, "categories")):
            return "words", ()  # the order is that of appearance
        used = set(map(_word, column.drop_nulls().unique().to_list()))
        return "words", tuple(word for word in categories if word in used)
    if dtype == nw.Boolean:
        return "boolean", ()
    if dtype in (nw.Date, nw.Datetime):
        return "date", ()
    if dtype == nw.String:
        return "words", ()
    if dtype == nw.Object:
        known = [value for value in column.to_list() if not is_missing(value)]
        if known and all(isinstance(value, date) for value in known):
            return "date", ()
        if known and all(isinstance(value, bool) for value in known):
            return "boolean", ()
        if any(isinstance(value, str) for value in known):
            return "words", ()
    return "number", ()


def days_of(column: Column) -> np.ndarray:
    """Days from 1970-01-01, with fractions; times with a zone are those of Greenwich."""
    if column.dtype == nw.Object:
        found = (np.nan if is_missing(value) else _day(value) for value in column.to_list())
        return np.fromiter(found, dtype=float, count=len(column))
    stamps = column.cast(nw.Datetime("us")) if column.dtype == nw.Date else column
    return as_floats(stamps.dt.timestamp("us")) / _DAY


def day_of(value: Any) -> float | None:
    """The day that a date, a time or such a word stands for; None for anything else."""
    if isinstance(value, date | np.datetime64):
        return _day(value)
    if isinstance(value, str) and _ISO.fullmatch(value.strip()):
        try:
            return _day(datetime.fromisoformat(value.strip()))
        except ValueError:
            return None
    return None


def _day(value: Any) -> float:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return float(np.datetime64(value, "us").astype(np.int64)) / _DAY


def _days_of_words(codes: np.ndarray, distinct: list[str]) -> np.ndarray | None:
    """Words that are dates, all of them, as a file without types has them."""
    days = [day_of(word) for word in distinct]
    if not days or any(day is None for day in days):
        return None
    return np.array([*days, np.nan], dtype=float)[codes]


def _coded(column: Column) -> tuple[np.ndarray, list[str]]:
    """The number of each row's word, −1 where there is none, and the words."""
    if column.dtype in (nw.Categorical, nw.Enum):
        column = column.cast(nw.String)
    words = coded_words(column)
    if words is not None:
        return words.codes, words.distinct
    seen: dict[str, int] = {}
    rows = (-1 if is_missing(v) else seen.setdefault(_word(v), len(seen)) for v in column.to_list())
    return np.fromiter(rows, dtype=np.int64, count=len(column)), list(seen)


def _word(value: Any) -> str:
    """A category as a word: 2 and 2.0 are the same one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _means(values: np.ndarray) -> tuple[float, ...]:
    return tuple(values.mean(axis=0).tolist()) if len(values) else (0.0,) * values.shape[1]


def _check_levels(levels: tuple[str, ...], n_rows: int, place: str) -> None:
    if len(levels) <= MANY_LEVELS or (len(levels) <= MOST_LEVELS and 2 * len(levels) <= n_rows):
        return
    raise ValueError(
        f"{place} holds {len(levels)} different words ({name_some(levels, 3)}) in {n_rows} rows: names of rows, or of "
        "another grouping, tell nothing about new rows. List the columns to use in `features`, without it."
    )


#: Unknown words by column and what was done with them, where several tables are read before they are named.
_GATHERED: ContextVar[dict[tuple[ColumnEncoding, str], dict[str, None]] | None] = ContextVar(
    "unknown words", default=None
)


@contextmanager
def unknown_together() -> Iterator[None]:
    """Name the unknown words of all tables that are read here at once, and not table by table."""
    found: dict[tuple[ColumnEncoding, str], dict[str, None]] = {}
    token = _GATHERED.set(found)
    try:
        yield
    finally:
        _GATHERED.reset(token)
    for (column, done), words in found.items():
        warn_of_unknown(words, column, done)


def warn_of_unknown(unknown: Iterable[str], column: ColumnEncoding, done: str) -> None:
    """Say which words of a column were not there before, and what was done with them."""
    words, gathered = list(unknown), _GATHERED.get()
    if words and gathered is not None:
        gathered.setdefault((column, done), {}).update(dict.fromkeys(words))
    elif words:
        warnings.warn(
            f"column {column.name!r}: {name_some(words, 3)} did not appear in training, where it held "
            f"{name_some(column.levels, 3)}; {done}",
            UnknownCategoryWarning,
            stacklevel=outside(),
        )


def name_plainly(words: Iterable[str], limit: int = 4) -> str:
    """The first few, without quotes, and how many more there are."""
    words = list(words)
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(words[:limit]) + more
