"""Reading tasks from one long dataframe, a row per observation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._utils.validation import check_choice, check_features, label_array, name_some, native
from ._descriptions import Side, read_side_table, side_column, side_from_columns
from ._frames import (
    Frame,
    Grouping,
    check_columns,
    group_rows,
    is_frame,
    numeric_column,
    read_frame,
    remaining,
)
from ._second_groups import warn_of_groupings
from .encoding import Declared, Encoding, TaskColumns, types_of

#: What is done with rows that lack something.
MISSING = ("error", "drop")


class Long(NamedTuple):
    """What a long table says: rows, their targets and tasks, descriptions of the tasks, and how all that was read."""

    X: np.ndarray
    y: np.ndarray
    grouping: Grouping
    side: Side
    names: np.ndarray
    encoding: Encoding


@dataclass(frozen=True)
class LongTable:
    """A long dataframe and what the user said of its columns; see `TaskSet.from_frame`.

    ``encoding`` is that of an earlier table, which this one is read like.  Without a target, zeros stand for it.
    """

    frame: Any
    task: TaskColumns
    target: str | None
    features: Sequence[str] | None = None
    side_info: Any = None
    side_columns: Sequence[str] | None = None
    encoding: Encoding | None = None
    missing: str = "error"

    def read(self) -> Long:
        data = read_frame(self.frame, "frame")
        check_choice("missing", self.missing, MISSING)
        if self.side_info is not None and self.side_columns is not None:
            raise ValueError("side_info and side_columns exclude each other: join them in one frame first.")
        roles = [*task_columns(self.task), *([] if self.target is None else [self.target])]
        check_columns(data, "task", task_columns(self.task))
        if self.target is not None:
            check_columns(data, "target", [self.target], task_columns(self.task))
        aside = check_columns(data, "side_columns", self.side_columns or [], roles)
        names = self._features(data, roles, aside)
        data, dropped = self._complete(data, names) if self.missing == "drop" else (data, ())
        if not len(data):
            lost = "; ".join(f"{count:,} have {words}" for words, count in dropped)
            raise ValueError(f"frame has no row{' that lacks nothing: ' + lost if lost else 's'}.")
        grouping = group_tasks(data, self.task)
        if self.encoding is None:
            encoding, X = Encoding.of(data, names, self.task, self.target)
            warn_of_groupings(data, encoding, grouping)
        else:
            encoding, X = self.encoding, self.encoding.inputs(data, "frame")
            encoding = replace(encoding, task=self.task, target=self.target)
        _check_inputs(X, names)
        side, types = self._side(data, aside, grouping)
        if self.encoding is None:
            encoding = encoding.with_side(side, types)
        return Long(
            check_features(X),
            self._targets(data),
            grouping,
            encoding.described(side),
            encoding.feature_names,
            replace(encoding, dropped=dropped),
        )

    def _features(self, data: Frame, roles: list[str], aside: list[str]) -> list[str]:
        if self.encoding is not None:
            names = [column.name for column in self.encoding.features]
            if self.features is not None and list(self.features) != names:
                raise ValueError("features: the encoding says which columns are inputs; leave features out.")
            return names
        features = self.features
        if features is None:
            features = remaining(data.columns, (*roles, *aside))
        return check_columns(data, "features", features, roles)

    def _targets(self, data: Frame) -> np.ndarray:
        if self.target is None:
            return np.zeros(len(data))
        return numeric_column(data[self.target], f"The target column {self.target!r}")

    def _side(self, data: Frame, aside: list[str], grouping: Grouping) -> tuple[Side, Declared]:
        """Descriptions as they are, and what the types of their table say."""
        if aside:
            columns = [side_column(data[name]) for name in aside]
            return side_from_columns(columns, aside, grouping), types_of(data, aside)
        side = read_side_table(self.side_info, task_columns(self.task), native(grouping.labels))
        if not is_frame(self.side_info):
            return side, {}
        return side, types_of(read_frame(self.side_info, "side_info"), side.names or [])

    def _complete(self, data: Frame, names: list[str]) -> tuple[Frame, tuple[tuple[str, int], ...]]:
        """The rows that lack nothing, and why others were left out; the first reason counts."""
        keep, dropped = np.ones(len(data), dtype=bool), []
        reasons = [(f"no {name!r}, the task", name) for name in task_columns(self.task)]
        reasons += [(f"no {self.target!r}, the target", self.target)] if self.target is not None else []
        reasons += [(f"no {name!r}", name) for name in names if name in data.columns]
        for words, name in reasons:
            lost = keep & _is_missing(data[name])
            if lost.any():
                dropped.append((words, int(lost.sum())))
                keep &= ~lost
        return (data if keep.all() else data.filter(keep.tolist())), tuple(dropped)


def _check_inputs(X: np.ndarray, names: list[str]) -> None:
    """Inputs are needed, and words that are the same everywhere are none."""
    if X.shape[1]:
        return
    if not names:
        raise ValueError("features: no column is left for the inputs beside the task's and the target's.")
    raise ValueError(
        f"features: {name_some(names)} holds one word in all rows, which tells nothing. Name another column."
    )


def task_columns(task: str | Sequence[str]) -> list[str]:
    if not isinstance(task, Sequence):
        raise TypeError(f"task must be the name of a column, or a list of them; got {task!r}.")
    return [task] if isinstance(task, str) else list(task)


def group_tasks(data: Frame, task: TaskColumns) -> Grouping:
    """The task of every row; of several columns each combination is one, and its label a tuple."""
    if isinstance(task, str):
        return group_rows(data[task].to_native(), len(data))
    parts = [group_rows(data[name].to_native(), len(data)) for name in task]
    codes = parts[0].codes
    for part in parts[1:]:
        codes = codes * len(part.labels) + part.codes
    grouping = group_rows(codes, len(data))
    words = [[native(part.labels)[i] for i in part.codes[grouping.first]] for part in parts]
    return grouping._replace(labels=label_array(list(zip(*words, strict=True))))


def _is_missing(column: Any) -> np.ndarray:
    lost = np.asarray(column.is_null().to_numpy(), dtype=bool)
    if column.dtype.is_float():
        lost = lost | np.isnan(np.asarray(column.to_numpy(), dtype=float))
    return lost
