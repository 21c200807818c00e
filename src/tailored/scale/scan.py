"""`scan`: read tasks from a long table that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._utils.frames import check_columns, is_dask, other_columns, read_frame
from .._utils.records import cached_property
from .._utils.validation import name_some
from ..tasks.encoding import Encoding
from ..tasks.task_set import TaskSet
from .tables import Batch, Table, batch_rows, open_table


class ColumnRoles(NamedTuple):
    """Roles of the columns of a long table."""

    task: str
    target: str
    features: list[str]
    side: list[str]

    @classmethod
    def of(cls, table: Any, task: str, target: str, features: Any, side: Any) -> ColumnRoles:
        """Check the arguments of `scan`; by default, all remaining columns are features."""
        reserved = check_columns(table, "task", [task])
        reserved += check_columns(table, "target", [target], reserved)
        side = check_columns(table, "side_columns", side or (), reserved)
        if features is None:
            features = other_columns(table.columns, (*reserved, *side))
        return cls(task, target, check_columns(table, "features", features, reserved), side)

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return list(dict.fromkeys([self.task, self.target, *self.features, *self.side]))

    def read(self, batch: Batch, encoding: Encoding | None = None) -> TaskSet:
        """Read some rows; without an ``encoding``, it is inferred from these rows alone."""
        try:
            return TaskSet.from_frame(
                batch.frame,
                task=self.task,
                target=self.target,
                features=self.features if encoding is None else None,
                side_columns=self.side,
                encoding=encoding,
            )
        except ValueError as error:
            raise ValueError(f"data: {batch.position}: {error}") from error

    def read_alone(self, batch: Batch, encoding: Encoding | None) -> TaskSet:
        """Read some rows of a table that is read once; without an ``encoding``, only numbers."""
        tasks = self.read(batch, encoding)
        encoded = [] if encoding is not None or tasks.encoding is None else tasks.encoding.encoded
        if encoded:
            raise ValueError(
                f"data: column {name_some(encoded)} holds categories or dates, and the parts "
                "of this table are read only once, or by several workers. Pass encoding= to scan, "
                "such as encoding_ of a learner or encoding of a TaskSet, or convert the column to "
                "numbers."
            )
        return tasks


class TaskBatch(NamedTuple):
    """Some rows of tasks, and the batch they were read from."""

    tasks: TaskSet
    batch: Batch


@dataclass(frozen=True)
class TaskScan:
    """Tasks in a long table, as returned by `scan` and read by `EmpiricalBayesLearner.fit`."""

    table: Any  # a `Table` or a Dask dataframe
    roles: ColumnRoles
    given_encoding: Encoding | None = None  # the ``encoding`` passed to `scan`

    def __repr__(self) -> str:
        return f"TaskScan(task={self.roles.task!r}, target={self.roles.target!r})"

    @property
    def is_dask(self) -> bool:
        return is_dask(self.table)

    @cached_property
    def encoding(self) -> Encoding | None:
        """The encoding passed to `scan`, or inferred by a pass over columns that are not numbers.

        None for a table that can be read only once.
        """
        if self.given_encoding is not None or self.table.once:
            return self.given_encoding
        first = next(self._read(self.roles.names), None)
        encoding = None if first is None else self.roles.read(first).encoding
        if encoding is None or not encoding.encoded:
            return encoding
        # Read only the columns whose encoding depends on the whole table.
        features, side = (
            [name for name in names if name in encoding.encoded]
            for names in (self.roles.features, self.roles.side)
        )
        roles, n_rows = self.roles._replace(features=features, side=side), 0
        for batch in self._read(roles.names):
            other = roles.read(batch).encoding
            assert other is not None
            # The first batch is already part of the encoding, with weight n_rows = 0.
            encoding = encoding.merged(n_rows, other, len(batch.frame))
            n_rows += len(batch.frame)
        return encoding

    def _read(self, names: list[str]) -> Iterator[Batch]:
        table: Table = self.table
        return table.batches(names, batch_rows(len(self.roles.names)))

    def batches(self) -> Iterator[TaskBatch]:
        """Read the tasks batch by batch; a task may be in several batches."""
        encoding, kinds = self.encoding, set()
        for batch in self._read(self.roles.names):
            tasks = self.roles.read_alone(batch, encoding)
            encoding = tasks.encoding
            kinds.add(tasks.labels.dtype.kind)
            if len(kinds) > 1 and not kinds <= set("biuf"):
                raise ValueError(
                    f"data: {batch.position}: the labels have another type ({tasks.labels.dtype}) "
                    "than in earlier batches; a number does not match a string, so 7 is not '7'. "
                    "Convert them to one type."
                )
            yield TaskBatch(tasks, batch)


def scan(
    data: Any,
    *,
    task: str,
    target: str,
    features: Sequence[str] | None = None,
    side_columns: Sequence[str] | None = None,
    encoding: Encoding | None = None,
) -> TaskScan:
    """Describe tasks in a long table, with a row per observation, that is read in batches.

    The rows of a task may be anywhere in the table.  The memory of a fit does not grow with the
    table.

    Parameters
    ----------
    data : path, object with Arrow's C stream, or Dask dataframe
        A parquet file, a folder of them, or a list of paths; or anything with the method
        ``__arrow_c_stream__``: pyarrow tables and readers, pandas and polars frames, DuckDB
        relations, ADBC cursors.  Streams other than frames and DuckDB relations are read only once.
    task, target : str
        Columns of the task labels and of the target.
    features : sequence of str, optional
        Columns of the features; by default all remaining columns, encoded as in
        `TaskSet.from_frame`. Those of a Dask dataframe and of a stream that is read only once must
        be numeric, or have an ``encoding``.
    side_columns : sequence of str, optional
        Columns with side information, constant within each task.
    encoding : Encoding, optional
        ``encoding`` of a `TaskSet`, or ``encoding_`` of a learner, to encode this table in the same
        way.

    Returns
    -------
    TaskScan
        Input of `EmpiricalBayesLearner.fit`.
    """
    for name, column in {"task": task, "target": target}.items():
        if not isinstance(column, str):
            raise TypeError(
                f"{name} must be the name of one column; got {column!r}. Join several columns in "
                "one column first."
            )
    if encoding is not None:
        if features is not None:
            raise ValueError(
                "features: the encoding determines the features; leave out features or encoding"
            )
        features = [column.name for column in encoding.features]
    table = data if is_dask(data) else open_table(data)
    columns = table if is_dask(data) else read_frame(table.schema.empty_table(), "data")
    return TaskScan(table, ColumnRoles.of(columns, task, target, features, side_columns), encoding)
