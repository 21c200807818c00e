"""`scan`: tasks from a long table that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._validation import check_choice, name_some
from ._frames import read_frame
from ._long_frames import FrameColumns
from ._task_set import TaskSet
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
            features = tuple(name for name in names if name not in (*taken, *self.side))
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
    """

    table: Table
    columns: Columns
    in_engine: bool = False

    def pieces(self, skip: int = 0) -> Iterator[Piece]:
        """The tasks, batch by batch; a task may be in several of them.  The first ``skip`` batches are left out."""
        known = None if self.table.columns is None else self.columns.among(self.table.columns)
        wanted = None if known is None else known.names
        n_columns = 16 if wanted is None else len(wanted)
        kind: tuple[str, str] | None = None
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
            tasks = _read(batch, columns)
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
            FrameColumns(self.columns.task, self.columns.target),
        )


def _read(batch: Batch, columns: Columns) -> TaskSet:
    try:
        return TaskSet.from_frame(
            batch.frame,
            task=columns.task,
            target=columns.target,
            features=columns.features,
            side_columns=columns.side or None,
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
        The columns of inputs; all remaining ones when absent, which must then be numeric.
    side_columns : sequence of str, optional
        Columns with the side information, constant within each task.  A table of descriptions is joined to the rows
        first, by the library that reads them.
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
    columns = Columns.of(task, target, features, side_columns)
    if table.columns is not None:
        columns.among(table.columns)
    if in_engine and table.data is None:
        raise ValueError(
            "in_engine: a lazy frame, a relation or a dataframe can sum for itself; files and batches cannot"
        )
    return TaskScan(table, columns, bool(in_engine) or table.is_dask)
