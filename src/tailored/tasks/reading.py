"""Read tasks from a long table, with a row per observation, and return predictions as a table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np

from .._utils.frames import (
    Frame,
    check_columns,
    is_frame,
    is_null,
    numeric_column,
    other_columns,
    read_frame,
)
from .._utils.validation import check_choice, label_array, native, outside
from ..exceptions import SecondGroupingWarning
from .encoding import MANY_CATEGORIES, Declared, Encoding, TaskColumns, as_columns, declared_types
from .labels import Grouping, group_labels, group_rows
from .side_info import SideInfo, read_side_table, side_column, side_from_columns

#: How rows with missing values are treated.
MISSING = ("error", "drop")
#: Rows of a table that are examined for a second grouping.
GROUPING_ROWS = 100_000


class TaskRows(NamedTuple):
    """The rows of a long table, their targets and tasks, side information, and how the table was read."""

    X: np.ndarray
    y: np.ndarray
    grouping: Grouping
    side: SideInfo
    names: np.ndarray
    encoding: Encoding


@dataclass(frozen=True)
class LongTable:
    """A long dataframe and the roles of its columns; see `TaskSet.from_frame`.

    With an `encoding`, the table is read like the one that the encoding was made from. Without a target, the
    targets are zero.
    """

    frame: Any
    task: TaskColumns
    target: str | None
    features: Sequence[str] | None = None
    side_info: Any = None
    side_columns: Sequence[str] | None = None
    encoding: Encoding | None = None
    missing: str = "error"

    def read(self) -> TaskRows:
        """Read the table; values are checked later, when the rows of each task are collected."""
        data = read_frame(self.frame, "frame")
        check_choice("missing", self.missing, MISSING)
        if self.side_info is not None and self.side_columns is not None:
            raise ValueError("side_info and side_columns exclude each other: join them in one frame first.")
        task = as_columns(self.task)
        roles = [*task, *([] if self.target is None else [self.target])]
        check_columns(data, "task", task)
        if self.target is not None:
            check_columns(data, "target", [self.target], task)
        side_names = check_columns(data, "side_columns", self.side_columns or [], roles)
        names = self._feature_columns(data, roles, side_names)
        dropped: tuple[tuple[str, int], ...] = ()
        if self.missing == "drop":
            data, dropped = self._drop_incomplete(data, names)
        if not len(data):
            reasons = "; ".join(f"{count:,} have {reason}" for reason, count in dropped)
            raise ValueError(f"frame has no {'complete rows: ' + reasons if reasons else 'rows'}.")
        grouping = group_tasks(data, self.task)
        if self.encoding is None:
            encoding, X = Encoding.of(data, names, self.task, self.target)
            warn_second_grouping(data, encoding, grouping)
        else:
            encoding, X = self.encoding, self.encoding.encode_features(data, "frame")
            encoding = replace(encoding, task=self.task, target=self.target)
        side, types = self._read_side_info(data, side_names, grouping)
        if self.encoding is None:
            encoding = encoding.with_side_info(side, types)
        side = encoding.encode_side_info(*side)
        y = np.zeros(len(data))
        if self.target is not None:
            y = numeric_column(data[self.target], f"The target column {self.target!r}")
        return TaskRows(X, y, grouping, side, encoding.feature_names, replace(encoding, dropped=dropped))

    def _feature_columns(self, data: Frame, roles: list[str], side_names: list[str]) -> list[str]:
        if self.encoding is not None:
            names = [column.name for column in self.encoding.features]
            if self.features is not None and list(self.features) != names:
                raise ValueError("features: the encoding names the features; leave features out.")
            return names
        features = self.features
        if features is None:
            features = other_columns(data.columns, (*roles, *side_names))
        return check_columns(data, "features", features, roles)

    def _read_side_info(
        self, data: Frame, side_names: list[str], grouping: Grouping
    ) -> tuple[SideInfo, Declared]:
        """Return side information before it is encoded, and the declared types of its table."""
        if side_names:
            columns = [side_column(data[name]) for name in side_names]
            return side_from_columns(columns, side_names, grouping), declared_types(data, side_names)
        side = read_side_table(self.side_info, list(as_columns(self.task)), grouping.labels)
        if not is_frame(self.side_info):
            return side, {}
        return side, declared_types(read_frame(self.side_info, "side_info"), side.names or [])

    def _drop_incomplete(self, data: Frame, names: list[str]) -> tuple[Frame, tuple[tuple[str, int], ...]]:
        """Return the rows without missing values, and how many were dropped for which first reason."""
        keep, dropped = np.ones(len(data), dtype=bool), []
        reasons = [(f"no {name!r}, the task", name) for name in as_columns(self.task)]
        reasons += [(f"no {self.target!r}, the target", self.target)] if self.target is not None else []
        reasons += [(f"no {name!r}", name) for name in names if name in data.columns]
        for reason, name in reasons:
            incomplete = keep & is_null(data[name])
            if incomplete.any():
                dropped.append((reason, int(incomplete.sum())))
                keep &= ~incomplete
        return (data if keep.all() else data.filter(keep.tolist())), tuple(dropped)


def group_tasks(data: Frame, task: TaskColumns) -> Grouping:
    """Return the task of every row; each combination of several columns is a task, labelled by a tuple."""
    if isinstance(task, str):
        return group_rows(data[task].to_native(), len(data))
    parts = [group_rows(data[name].to_native(), len(data)) for name in task]
    codes = parts[0].codes
    for part in parts[1:]:
        codes = codes * len(part.labels) + part.codes
    grouping = group_labels(codes)
    labels = [[native(part.labels)[i] for i in part.codes[grouping.first]] for part in parts]
    return grouping._replace(labels=label_array(list(zip(*labels, strict=True))))


def warn_second_grouping(data: Frame, encoding: Encoding, grouping: Grouping) -> None:
    """Warn about features that look like a second grouping: many values, each with several rows.

    The model has random effects for one grouping, the tasks. Values of another one would get a fixed effect
    each, which does not extend to new values.
    """
    task = " and ".join(map(repr, encoding.task_columns))
    if len(data) > GROUPING_ROWS:
        data, grouping = data.head(GROUPING_ROWS), grouping._replace(codes=grouping.codes[:GROUPING_ROWS])
    n_tasks = len(np.unique(grouping.codes))
    for column in encoding.features:
        is_integer = column.kind == "number" and data[column.name].dtype.is_integer()
        has_many = column.kind == "categorical" and len(column.categories) > MANY_CATEGORIES
        if not (is_integer or has_many) or len(grouping.labels) < 2 or data[column.name].is_null().any():
            continue
        values = group_rows(data[column.name].to_native(), len(data))
        n_values = len(values.labels)
        # With fewer than two rows per value, it is a rounded measurement.
        if n_values <= MANY_CATEGORIES or len(data) < 2 * n_values:
            continue
        n_pairs = len(np.unique(values.codes * len(grouping.labels) + grouping.codes))
        is_nested = n_pairs == n_values and n_pairs > n_tasks
        # Integers that cross the tasks may be counts; nested in tasks they are identifiers.
        if is_integer and not is_nested:
            continue
        if is_nested:
            relation = f"nested in {task}: each of its {n_values} values appears in one task only"
            advice = f"make each value a task, task=[{task}, {column.name!r}] (labels are then tuples),"
        elif n_pairs == n_tasks:
            relation = f"above {task}: each task has one of its {n_values} values"
            advice = f"use features of these groups as side information (side_columns=) instead of {column.name!r},"
        else:
            relation = f"crossed with {task}: each of its {n_values} values appears in {n_pairs / n_values:.3g} tasks on average"
            advice = f"use {column.name!r} as the task instead, if new groups are of this kind,"
        warnings.warn(
            f"column {column.name!r} looks like a second grouping, {relation}. The model has random effects for "
            f"tasks only; other columns are fixed effects or numbers. You can {advice} or leave the column out of "
            "`features`. For crossed random effects use a mixed-model package such as lme4.",
            SecondGroupingWarning,
            stacklevel=outside(),
        )


def prediction_frame(
    columns: Mapping[str, np.ndarray], query: Any, order: np.ndarray, task: Sequence[str]
) -> Any:
    """Return predictions next to the task labels of a query frame, as a frame of the same library.

    Entry i of the columns belongs to row ``order[i]`` of the query.
    """
    for label in task:
        if label in columns:
            raise ValueError(
                f"task: the column {label!r} has the name of a column of predictions; rename it."
            )
    frame = read_frame(query, "query")
    series = []
    for name, values in columns.items():
        in_order = np.empty(len(values))
        in_order[order] = values
        series.append(nw.new_series(name, in_order, native_namespace=nw.get_native_namespace(frame)))
    return frame.select(list(task)).with_columns(*series).to_native()
