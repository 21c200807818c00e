"""`scan`: tasks from a long table that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._utils.records import cached_property
from .._utils.validation import check_choice, name_some
from ._columns import ColumnEncoding
from ._descriptions import Side, side_column
from ._frames import read_frame, remaining
from ._task_set import TaskSet
from .encoding import Encoding, types_of
from .tables import Batch, Table, batch_rows, open_table


class Columns(NamedTuple):
    """Which columns of a long table are what; ``features`` None are all others."""

    task: str
    target: str
    features: tuple[str, ...] | None = None
    side: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: str, target: str, features: Any, side_columns: Any) -> Columns:
        for name, value in (("features", features), ("side_columns", side_columns)):
            if isinstance(value, str):
                raise TypeError(f"{name} must be a list of column names; got {value!r}. Write [{value!r}].")
            if value is not None and not isinstance(value, Iterable):
                raise TypeError(f"{name} must be a list of column names; got {value!r}.")
        return cls(task, target, None if features is None else tuple(features), tuple(side_columns or ()))

    def among(self, names: Sequence[str]) -> Columns:
        """The same with the features named, checked to be there, once and with no other role."""
        check_choice("task", self.task, names)
        check_choice("target", self.target, names)
        taken = [self.task, self.target]
        for name in self.side:
            check_choice("side_columns", name, names)
        features = self.features
        if features is None:
            features = tuple(remaining(names, (*taken, *self.side)))
        for name in features:
            check_choice("features", name, names)
        for argument, listed in (("features", features), ("side_columns", self.side)):
            for i, name in enumerate(listed):
                if name in listed[:i]:
                    raise ValueError(f"{argument} names the column {name!r} twice.")
                if name in taken:
                    raise ValueError(
                        f"{argument} names the column {name!r}, which is the task's label or the target."
                    )
        if not features:
            raise ValueError(f"features: no column is left for the inputs; there are {name_some(names, 12)}")
        return self._replace(features=features)

    @property
    def names(self) -> list[str]:
        """All that are read."""
        return list(dict.fromkeys([self.task, self.target, *(self.features or ()), *self.side]))


class Piece(NamedTuple):
    """Tasks with some of their rows, and words for where these were read."""

    tasks: TaskSet
    place: str


@dataclass(frozen=True)
class TaskScan:
    """Tasks in a long table; made by `scan`, and read when a learner is fitted to it.

    Attributes
    ----------
    table : Table
    columns : Columns
    in_engine : bool
        Whether rows stay where they are.
    given : Encoding or None
        How the table is to be read, where the user has said so.
    """

    table: Table
    columns: Columns
    in_engine: bool = False
    given: Encoding | None = None

    @cached_property
    def encoding(self) -> Encoding | None:
        """How the table is read: as was said, or as all of its rows say, which takes a pass over columns of words.

        None of a table that can be read once: its first batch decides.
        """
        if self.given is not None or self.table.once:
            return self.given
        known = None if self.table.columns is None else self.columns.among(self.table.columns)
        names = None if known is None else known.names
        size = batch_rows(16 if names is None else len(names))
        found: Encoding | None = None
        for batch in self.table.batches(names, size):
            frame = read_frame(batch.frame, "data")
            found = _looked_at(frame, self.columns.among(frame.columns), batch.place)
            break
        if found is None or not found.encoded:
            return found  # numbers are what they are
        some, n_rows = self._only(found), 0
        for batch in self.table.batches(None if names is None else some.names, size):
            frame = read_frame(batch.frame, "data")
            # The first rows were looked at already, and are so many of none.
            found = found.merged(n_rows, _looked_at(frame, some, batch.place), len(frame))
            n_rows += len(frame)
        return found

    def _only(self, found: Encoding) -> Columns:
        """The columns whose reading depends on the whole table."""
        inputs = tuple(column.name for column in found.features if column.name in found.encoded)
        side = tuple(column.name for column in found.side if column.name in found.encoded)
        return self.columns._replace(features=inputs, side=side)

    def pieces(self, skip: int = 0) -> Iterator[Piece]:
        """The tasks, batch by batch; a task may be in several of them.  The first ``skip`` batches are left out."""
        known = None if self.table.columns is None else self.columns.among(self.table.columns)
        wanted = None if known is None else known.names
        n_columns = 16 if wanted is None else len(wanted)
        kind: tuple[str, str] | None = None
        encoding = self.encoding
        for number, batch in enumerate(self.table.batches(wanted, batch_rows(n_columns))):
            columns, found = known, list(read_frame(batch.frame, "data").columns)
            if columns is None:
                known = columns = self.columns.among(found)
            lost = [name for name in columns.names if name not in found]
            new = [name for name in found if name not in columns.names] if number else []
            if lost or (new and self.columns.features is None):
                change = f"has no column {lost[0]!r}" if lost else f"has the new column {new[0]!r}"
                raise ValueError(
                    f"data: {batch.place} {change}; the first batch had {name_some(columns.names, 12)}"
                )
            if number < skip:
                continue
            tasks = _read(batch, columns, encoding)
            if encoding is None and tasks.encoding is not None:
                tasks.encoding.check_plain("this table can be read only once; pass encoding= to scan")
                encoding = tasks.encoding
            here = tasks.labels.dtype.kind
            kind = kind or (here, batch.place)
            if here != kind[0] and not {here, kind[0]} <= set("biuf"):
                raise ValueError(
                    f"data: labels in {batch.place} are of another type than before ({tasks.labels.dtype}); labels match "
                    "by value and type, so 7 is not '7'"
                )
            yield Piece(tasks, batch.place)

    def without_tasks(self, features: Sequence[str]) -> TaskSet:
        """No task, with the names that the table's columns have."""
        side = self.columns.side
        return TaskSet.from_arrays(
            np.zeros((0, len(features))),
            np.zeros(0),
            np.zeros(1, dtype=np.int64),
            np.zeros(0, dtype=np.int64),
            np.zeros((0, len(side))) if side else None,
            list(side) or None,
            np.array(features, dtype=object),
            self.encoding or self._of_numbers(features),
        )

    def _of_numbers(self, features: Sequence[str]) -> Encoding:
        """How a table that can be read once is read."""
        inputs = tuple(ColumnEncoding(name) for name in features)
        side = tuple(ColumnEncoding(name) for name in self.columns.side)
        return Encoding(self.columns.task, self.columns.target, inputs, side)


def _looked_at(frame: Any, columns: Columns, place: str) -> Encoding:
    """How these rows alone would be read."""
    try:
        found, _ = Encoding.of(frame, columns.features or (), columns.task, columns.target)
    except ValueError as error:
        raise ValueError(f"data: {place}: {error}") from error
    if not columns.side:
        return found
    values = np.empty((len(frame), len(columns.side)), dtype=object)
    for j, name in enumerate(columns.side):
        values[:, j] = side_column(frame[name])
    return found.with_side(Side(values, list(columns.side)), types_of(frame, columns.side))


def _read(batch: Batch, columns: Columns, encoding: Encoding | None) -> TaskSet:
    try:
        return TaskSet.from_frame(
            batch.frame,
            task=columns.task,
            target=columns.target,
            features=columns.features if encoding is None else None,
            side_columns=columns.side or None,
            encoding=encoding,
        )
    except ValueError as error:
        raise ValueError(f"data: {batch.place}: {error}") from error


def scan(
    data: Any,
    *,
    task: str,
    target: str,
    features: Sequence[str] | None = None,
    side_columns: Sequence[str] | None = None,
    encoding: Encoding | None = None,
    in_engine: bool = False,
) -> TaskScan:
    """Tasks in a long table, a row per observation, that is read when a learner is fitted to it.

    Rows of a task may stand anywhere in the table; memory does not grow with it.

    Parameters
    ----------
    data : path, Arrow reader or dataset, polars LazyFrame, DuckDB relation, Dask or other dataframe, or iterable of them
        A path is a parquet file or a folder of them.
    task, target : str
        The columns of task labels and of the quantity to predict.
    features : sequence of str, optional
        The columns of inputs; all remaining ones when absent.  Words, categories and dates are encoded as by
        `TaskSet.from_frame`, for which the table is read once more; tables that can be read once, those of Dask, and rows
        that stay in an engine need numbers.
    side_columns : sequence of str, optional
        Columns with the side information, constant within each task.  A table of descriptions is joined to the rows
        first, by the library that reads them.
    encoding : Encoding, optional
        That of another table, which this one is read like.
    in_engine : bool, default=False
        Rows stay in the engine of a lazy frame or relation: it sums products of columns for each task, and only the sums,
        and the rows of a sample of 5,000 tasks, come here.  Nothing but labels and their numbers of rows is held for all
        tasks at once.  Those of a Dask dataframe always do: statistics of its tasks stay on its cluster.

    Returns
    -------
    TaskScan
        For `EmpiricalBayesLearner.fit`.
    """
    table = open_table(data)
    if encoding is not None:
        if features is not None:
            raise ValueError("features: the encoding says which columns are inputs; leave features out.")
        features = [column.name for column in encoding.features]
    columns = Columns.of(task, target, features, side_columns)
    if table.columns is not None:
        columns.among(table.columns)
    if in_engine and table.data is None:
        raise ValueError(
            "in_engine: a lazy frame, a relation or a dataframe can sum for itself; files and batches cannot"
        )
    stays = bool(in_engine) or table.is_dask
    if stays and encoding is not None:
        encoding.check_plain("rows that stay where they are must be numbers there")
    return TaskScan(table, columns, stays, encoding)
