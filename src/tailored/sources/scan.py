"""`scan`: read tasks from a long table that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._utils.frames import check_columns, list_names, other_columns, read_frame
from .._utils.records import cached_property
from .._utils.validation import name_some
from ..tasks.encoding import Encoding, SideInfo, declared_types, side_column
from ..tasks.task_set import TaskSet
from .tables import Table, batch_rows, open_table


class ColumnRoles(NamedTuple):
    """Roles of the columns of a long table; ``features=None`` means all other columns."""

    task: str
    target: str
    features: tuple[str, ...] | None = None
    side: tuple[str, ...] = ()

    def resolve(self, table: Any) -> ColumnRoles:
        """Return the roles with ``features`` filled in; raise ValueError if a column is missing or its roles conflict."""
        reserved = check_columns(table, "task", [self.task])
        reserved += check_columns(table, "target", [self.target], reserved)
        side = check_columns(table, "side_columns", self.side, reserved)
        features = self.features
        if features is None:
            features = tuple(other_columns(table.columns, (*reserved, *side)))
        return self._replace(features=tuple(check_columns(table, "features", features, reserved)))

    def read(self, frame: Any, encoding: Encoding | None = None) -> TaskSet:
        """Read a dataframe with resolved roles."""
        features = self.features if encoding is None else None
        return TaskSet.from_frame(
            frame,
            task=self.task,
            target=self.target,
            features=features,
            side_columns=self.side,
            encoding=encoding,
        )

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return list(dict.fromkeys([self.task, self.target, *(self.features or ()), *self.side]))


class TaskBatch(NamedTuple):
    """Some rows of tasks, the position of these rows in the table (for error messages), and their dataframe."""

    tasks: TaskSet
    position: str
    frame: Any


@dataclass(frozen=True)
class TaskScan:
    """Tasks in a long table, as returned by `scan` and read by `EmpiricalBayesLearner.fit`."""

    table: Table
    roles: ColumnRoles
    given_encoding: Encoding | None = None  # the ``encoding`` passed to `scan`

    def __repr__(self) -> str:
        return (
            f"TaskScan({self.table.name!r}, task={self.roles.task!r}, target={self.roles.target!r})"
        )

    @cached_property
    def encoding(self) -> Encoding | None:
        """The encoding of the columns: the one passed to `scan`, or one inferred by a pass over categorical columns.

        None for a table that can be read only once; its encoding is inferred from the first batch.
        """
        if self.given_encoding is not None or self.table.once:
            return self.given_encoding
        names, size = self._columns_to_read()
        encoding: Encoding | None = None
        for batch in self.table.batches(names, size):
            frame = read_frame(batch.frame, "data")
            encoding = _infer_encoding(frame, self.roles.resolve(frame), batch.position)
            break
        if encoding is None or not encoding.encoded:
            return encoding  # numeric columns need no further pass
        # Read only the columns whose encoding depends on the whole table.
        columns = (encoding.features, encoding.side_info)
        features, side = (
            tuple(c.name for c in some if c.name in encoding.encoded) for some in columns
        )
        categorical, n_rows = self.roles._replace(features=features, side=side), 0
        for batch in self.table.batches(None if names is None else categorical.names, size):
            frame = read_frame(batch.frame, "data")
            # The first batch is already part of the encoding, with weight n_rows = 0.
            found = _infer_encoding(frame, categorical, batch.position)
            encoding, n_rows = encoding.merged(n_rows, found, len(frame)), n_rows + len(frame)
        return encoding

    def _columns_to_read(self) -> tuple[list[str] | None, int]:
        """Return the columns to read, None if only the first batch shows them, and the maximum number of rows per batch."""
        if self.table.columns is None:
            return None, batch_rows(16)
        names = self.roles.resolve(self.table).names
        return names, batch_rows(len(names))

    def batches(self) -> Iterator[TaskBatch]:
        """Read the tasks batch by batch; a task may be in several batches."""
        roles, first_kind, encoding = None, "", self.encoding
        for number, batch in enumerate(self.table.batches(*self._columns_to_read())):
            frame = read_frame(batch.frame, "data")
            if roles is None:
                roles = self.roles.resolve(frame)
            self._check_columns(roles, frame.columns, batch.position, is_first=number == 0)
            try:
                tasks = roles.read(batch.frame, encoding)
            except ValueError as error:
                raise ValueError(f"data: {batch.position}: {error}") from error
            if encoding is None and tasks.encoding is not None:
                tasks.encoding.require_numbers(
                    "this table can be read only once; pass encoding= to scan"
                )
                encoding = tasks.encoding
            kind = tasks.labels.dtype.kind
            first_kind = first_kind or kind
            if kind != first_kind and not {kind, first_kind} <= set("biuf"):
                raise ValueError(
                    f"data: {batch.position}: the labels have another type ({tasks.labels.dtype}) than in earlier batches; "
                    "a number does not match a string, so 7 is not '7'. Convert them to one type."
                )
            yield TaskBatch(tasks, batch.position, frame.select(roles.names))

    def _check_columns(
        self, roles: ColumnRoles, names: Sequence[str], where: str, *, is_first: bool
    ) -> None:
        missing = [name for name in roles.names if name not in names]
        new = [] if is_first else [name for name in names if name not in roles.names]
        if missing or (new and self.roles.features is None):
            change = (
                f"has no column {missing[0]!r}" if missing else f"has the new column {new[0]!r}"
            )
            raise ValueError(
                f"data: {where} {change}; the first batch had {name_some(roles.names, 12)}"
            )


def _infer_encoding(frame: Any, roles: ColumnRoles, position: str) -> Encoding:
    """Return the encoding inferred from these rows alone."""
    try:
        encoding, _ = Encoding.of(frame, roles.features or (), roles.task, roles.target)
    except ValueError as error:
        raise ValueError(f"data: {position}: {error}") from error
    if not roles.side:
        return encoding
    values = np.empty((len(frame), len(roles.side)), dtype=object)
    for j, name in enumerate(roles.side):
        values[:, j] = side_column(frame[name])
    return encoding.with_side_info(
        SideInfo(values, list(roles.side)), declared_types(frame, roles.side)
    )


def scan(
    data: Any,
    *,
    task: str,
    target: str,
    features: Sequence[str] | None = None,
    side_columns: Sequence[str] | None = None,
    encoding: Encoding | None = None,
) -> TaskScan:
    """Describe tasks in a long table, one row per observation, for a learner that reads it in batches.

    The rows of a task may be anywhere in the table.  The memory that a fit needs does not grow with the table.

    Parameters
    ----------
    data : path, Arrow reader or dataset, polars LazyFrame, DuckDB relation, Dask or other dataframe, or iterable of dataframes
        A path is a parquet file or a folder of parquet files; a list of files is also accepted.  Statistics of a Dask
        dataframe stay on its cluster.
    task, target : str
        Columns of the task labels and of the target.
    features : sequence of str, optional
        Columns of the features; by default all remaining columns.  Strings, categories and dates are encoded as in
        `TaskSet.from_frame`, which requires one more pass over the table.  The features of a Dask dataframe must be
        numeric.  Those of a table that can be read only once must be numeric unless ``encoding`` is passed.
    side_columns : sequence of str, optional
        Columns with side information, constant within each task.  To use a separate table of side information, join it to
        the rows first.
    encoding : Encoding, optional
        Encoding of another table, to encode this table in the same way.

    Returns
    -------
    TaskScan
        Input of `EmpiricalBayesLearner.fit`.
    """
    table = open_table(data)
    if encoding is not None:
        if features is not None:
            raise ValueError(
                "features: the encoding determines the features; leave out features or encoding"
            )
        if table.dask_frame is not None:
            encoding.require_numbers(
                "the partitions of a Dask dataframe must be numeric; encode such columns first"
            )
        features = [column.name for column in encoding.features]
    for name, column in {"task": task, "target": target}.items():
        if not isinstance(column, str):
            raise TypeError(
                f"{name} must be the name of one column; got {column!r}. Join several columns in one column first."
            )
    names = None if features is None else tuple(list_names("features", features))
    roles = ColumnRoles(task, target, names, tuple(list_names("side_columns", side_columns or ())))
    if table.columns is not None:
        roles.resolve(table)
    return TaskScan(table, roles, encoding)
