"""How a table is read: one record, made from the first table and kept for all later ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._utils.validation import check_finite, is_missing, name_some
from ._columns import ColumnEncoding, day_of, declared, unknown_together, warn_of_unknown
from ._descriptions import Side
from ._frames import Frame, is_frame, read_frame, remaining

__all__ = ["Encoding", "TaskColumns", "columns_of_words", "types_of", "unknown_together"]

#: The columns of task labels: one, or several whose combinations are the labels.
TaskColumns = str | tuple[str, ...]
#: Kinds that a table's types declare, and their categories, by column.
Declared = Mapping[str, tuple[str, tuple[str, ...]]]


@dataclass(frozen=True)
class Encoding:
    """How a table was read, so that other tables are read the same way; made by `TaskSet.from_frame`.

    Columns are found by their names, in any order.  A category that was not in the first table is not an error: it stands at
    the mean of its columns, as a row of which it is not known what it is, and an `UnknownCategoryWarning` names it.

    Attributes
    ----------
    task : str, tuple of str or None
        The column of task labels, or the columns whose combinations are.
    target : str or None
    features : tuple of ColumnEncoding
        Of the inputs: name, ``kind`` ("number", "boolean", "words", "ordered", "date"), ``levels``, ``origin``, and the
        ``names`` of the columns of numbers that came of it.
    side : tuple of ColumnEncoding
        Of the descriptions, likewise; their words stay words, which the feature map encodes.
    dropped : tuple of (str, int)
        Why rows of the table were left out, and how many.
    """

    task: TaskColumns | None
    target: str | None
    features: tuple[ColumnEncoding, ...] = ()
    side: tuple[ColumnEncoding, ...] = ()
    dropped: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    # ------------------------------------------------------------------ inputs

    @classmethod
    def of(
        cls, frame: Frame, names: Sequence[str], task: TaskColumns | None, target: str | None
    ) -> tuple[Encoding, np.ndarray]:
        """The encoding of a table's columns of inputs, and their numbers (n, k)."""
        made = [ColumnEncoding.of(frame[name], f"Feature column {name!r}") for name in names]
        found = cls(task, target, tuple(column for column, _ in made))
        twice = [name for name, count in Counter(found.feature_names).items() if count > 1]
        if twice:
            raise ValueError(
                f"features: the words of one column make another of the name {twice[0]!r}, which there is already. Rename it."
            )
        advice = "Encode it as numbers, or list the columns to use in `features`."
        X, j = np.empty((len(frame), len(found.feature_names))), 0
        for column, values in made:
            k = len(column.names)
            # Numbers are read into their place, because they may be many.
            X[:, j : j + k] = (
                column.read(frame[column.name], f"Feature column {column.name!r}", advice).values
                if values is None
                else values
            )
            j += k
        return found, X

    def inputs(self, frame: Frame, name: str = "X") -> np.ndarray:
        """The inputs of another table, (n, k), from its columns of these names; ``name`` is that of the argument."""
        lost = [column.name for column in self.features if column.name not in frame.columns]
        if lost:
            raise ValueError(
                f"{name}: the frame has no column {name_some(lost)}; it has {name_some(frame.columns, 12)}."
            )
        X, j = np.empty((len(frame), len(self.feature_names))), 0
        for column in self.features:
            k = len(column.names)
            X[:, j : j + k], unknown = column.read(frame[column.name], f"Feature column {column.name!r}")
            warn_of_unknown(unknown, column, "taken for an average row of the training table")
            j += k
        return X

    def rows_of(self, X: Any) -> Any:
        """The inputs of a frame that has nothing else but the task, the target and the description.

        What is no frame, or has these columns of numbers already, comes back as it is.
        """
        if not is_frame(X):
            return X
        frame = read_frame(X, "X")
        if list(frame.columns) == list(self.feature_names):
            return X
        found = self.inputs(frame)
        known = {column.name for column in (*self.features, *self.side)} | {self.target, *self.task_columns}
        new = remaining(frame.columns, known)
        if new:
            raise ValueError(
                f"X: the frame has the column {name_some(new)}, which was no input in training; inputs are "
                f"{name_some([column.name for column in self.features], 12)}. Leave it out."
            )
        check_finite(found, "X", columns=self.feature_names)
        return found

    @property
    def task_columns(self) -> tuple[str, ...]:
        if self.task is None:
            return ()
        return (self.task,) if isinstance(self.task, str) else self.task

    @property
    def feature_names(self) -> np.ndarray:
        """Of the columns of numbers, such as "ses" and "sector=Public"."""
        return np.array([name for column in self.features for name in column.names], dtype=object)

    def positions(self, name: str) -> list[int]:
        """Columns of numbers that a column of the table became; or the one of that name."""
        names = list(self.feature_names)
        for column in self.features:
            if column.name == name:
                return [names.index(each) for each in column.names]
        return [names.index(name)] if name in names else []

    # ------------------------------------------------------------------ descriptions

    def with_side(self, side: Side, types: Declared) -> Encoding:
        """This and the encoding of descriptions that were read as they are; ``types`` are those of their table."""
        if side.values is None:
            return self
        names = side.names or [str(j) for j in range(side.values.shape[1])]
        made = [_of_values(name, side.values[:, j], types.get(name)) for j, name in enumerate(names)]
        return replace(self, side=tuple(made))

    def described(self, side: tuple[np.ndarray | None, list[str] | None]) -> Side:
        """Descriptions (a table, and the names of its columns) with ordered categories and dates as numbers."""
        side = Side(*side)
        if side.values is None or not self.side:
            return side
        names = side.names or [str(j) for j in range(side.values.shape[1])]
        known = {column.name: column for column in self.side}
        if side.names is None and len(names) == len(self.side):
            names = [column.name for column in self.side]
        if not any(known[name].kind in ("ordered", "date") for name in names if name in known):
            return side
        table = side.values.astype(object)
        for j, name in enumerate(names):
            if name in known and known[name].kind in ("ordered", "date"):
                table[:, j] = _values(known[name], table[:, j])
        numeric = all(isinstance(value, int | float | np.number) for value in table.ravel())
        return Side(table.astype(np.float64) if numeric else table, side.names)

    # ------------------------------------------------------------------ parts of tables

    def merged(self, n: int, other: Encoding, m: int) -> Encoding:
        """Of ``n`` rows and of ``m`` further ones of the same table, which need not have all columns."""

        def together(
            mine: tuple[ColumnEncoding, ...], theirs: tuple[ColumnEncoding, ...]
        ) -> tuple[ColumnEncoding, ...]:
            there = {column.name: column for column in theirs}
            return tuple(c.merged(n, there[c.name], m) if c.name in there else c for c in mine)

        return replace(
            self,
            features=together(self.features, other.features),
            side=together(self.side, other.side),
        )

    @property
    def encoded(self) -> list[str]:
        """Columns that say more than numbers: what they are read as depends on the whole table."""
        inputs = [column.name for column in self.features if column.kind not in ("number", "boolean")]
        return inputs + [column.name for column in self.side if column.kind in ("ordered", "date")]

    def check_plain(self, why: str) -> None:
        """Refuse columns of words, categories or dates, where no table is at hand as a whole; ``why`` says so."""
        if self.encoded:
            raise ValueError(
                f"data: column {name_some(self.encoded)} holds words, categories or dates, and {why}"
            )

    # ------------------------------------------------------------------ comparing

    def differs(self, other: Encoding) -> str | None:
        """In which column another table was read differently, in words; None where both were read alike."""
        pairs = ((self.features, other.features, True), (self.side, other.side, False))
        for mine, theirs, of_inputs in pairs:
            there = {column.name: column for column in theirs}
            for column in mine:
                found = there.get(column.name)
                if found is not None and _meaning(column, of_inputs) != _meaning(found, of_inputs):
                    return f"column {column.name!r} is {column.words()} here and {found.words()} there"
        return None


def columns_of_words(X: Any) -> list[str]:
    """Columns of a frame that are no numbers; none of what is no frame."""
    if not is_frame(X):
        return []
    frame = read_frame(X, "X")
    if not all(isinstance(name, str) for name in frame.columns):
        return []  # scikit-learn has its say about such names
    kinds = {name: declared(frame[name])[0] for name in frame.columns}
    return [name for name, kind in kinds.items() if kind not in ("number", "boolean")]


def types_of(frame: Frame, names: Iterable[str]) -> Declared:
    """What the types of a table say about columns of descriptions: which are ordered, and which true or false."""
    found = {name: declared(frame[name]) for name in names}
    return {name: kind for name, kind in found.items() if kind[0] in ("ordered", "boolean")}


def _meaning(column: ColumnEncoding, of_inputs: bool) -> tuple[Any, ...]:
    """What the numbers depend on; words of descriptions are the feature map's."""
    kind = "number" if column.kind == "boolean" else column.kind
    return kind, column.levels if of_inputs or kind == "ordered" else (), column.origin


def _of_values(name: str, values: np.ndarray, kind: tuple[str, tuple[str, ...]] | None) -> ColumnEncoding:
    """The encoding of a column of descriptions, by what is in it."""
    known = [value for value in values.tolist() if not is_missing(value)]
    if kind is not None and kind[0] == "boolean":
        return ColumnEncoding(name, "boolean")
    if kind is not None:
        made = ColumnEncoding(name, "ordered", kind[1])
        scores = [made.value(str(value))[0] for value in known]
        return replace(made, typical=(float(np.mean(scores)) if scores else 0.0,))
    if not known or all(isinstance(value, int | float | np.number) for value in known):
        return ColumnEncoding(name)
    days = [day for value in known if (day := day_of(value)) is not None]
    if len(days) == len(known):
        return ColumnEncoding(name, "date", origin=float(np.floor(min(days))))
    return ColumnEncoding(name, "words", tuple(sorted({str(value) for value in known})))


def _values(column: ColumnEncoding, entries: np.ndarray) -> list[float]:
    found = [column.value(entry) for entry in entries]
    unknown = dict.fromkeys(str(entry) for entry, (_, known) in zip(entries, found, strict=True) if not known)
    warn_of_unknown(unknown, column, "taken for an average task")
    return [value for value, _ in found]
