"""Rows of many new tasks from frames, and their predictions as one table."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np

from .._utils.validation import name_some
from ..predicting import Predicted
from ..tasks import Encoding, TaskSet
from ..tasks.pairs import FrameRows, LongTable, check_has, read_rows


class Names(NamedTuple):
    """What a learner knows of the columns of a frame; None where it was fitted without names."""

    task: str | tuple[str, ...] | None
    target: str | None
    features: list[str] | None
    side: list[str] | None
    n_features: int
    n_side: int
    encoding: Encoding | None

    @classmethod
    def known(cls, learner: Any, task: Any, target: str | None) -> Names:
        columns = learner.columns_in_
        features = getattr(learner, "feature_names_in_", None)
        return cls(
            columns["task"] if task is None else task if isinstance(task, str) else tuple(task),
            columns["target"] if target is None else target,
            None if features is None else list(features),
            columns["side_info"],
            learner.n_features_in_,
            learner.n_side_info_in_,
            learner.encoding_,
        )

    @property
    def inputs(self) -> list[str]:
        """The columns of a frame that are inputs, where they are known."""
        if self.encoding is not None:
            return [column.name for column in self.encoding.features]
        return self.features or []

    @property
    def labels(self) -> list[str]:
        """The columns of labels."""
        if self.task is None:
            return []
        return [self.task] if isinstance(self.task, str) else list(self.task)


def read_asked(query: Any, names: Names, side_info: Any) -> FrameRows:
    """The tasks of the rows to predict; descriptions from ``side_info``, else from the query's own columns."""
    if isinstance(query, TaskSet):
        if side_info is not None:
            raise TypeError("side_info: a TaskSet brings its own side_info; leave it out, or pass a frame")
        return FrameRows(query, np.arange(len(query.y)))
    return _read(query, "query", names, None, side_info)


def read_given(support: Any, names: Names) -> TaskSet | None:
    """The tasks of the rows with targets."""
    if support is None or isinstance(support, TaskSet):
        return support
    if names.target is None:
        raise ValueError(
            "target: the learner was not fitted on a frame; say which column of support has the targets"
        )
    found = _read(support, "support", names, names.target, None).tasks
    return found if len(found) else None


def _read(frame: Any, name: str, names: Names, target: str | None, side_info: Any) -> FrameRows:
    if names.task is None:
        raise ValueError(
            f"task: the learner was not fitted on a frame; say which column of {name} has the tasks' labels"
        )
    present = nw.from_native(frame, eager_only=True).columns if _is_frame(frame) else []
    side = None
    if names.side is not None and side_info is None and set(names.side) <= set(present):
        side = names.side
    features = names.features
    if names.encoding is not None:
        features = None
    elif features is None:
        features = [c for c in present if c not in (*names.labels, names.target, *(side or ()))]
        if present and len(features) != names.n_features:
            raise ValueError(
                f"{name}: expected {names.n_features} columns of inputs as in fit, got {len(features)}: "
                f"{name_some(features, 12)}"
            )
    if _is_frame(frame) and not len(nw.from_native(frame, eager_only=True)):
        check_has(frame, name, [*names.labels, *([] if target is None else [target]), *names.inputs])
        return FrameRows(_no_tasks(names.n_features), np.zeros(0, dtype=np.intp))
    table = LongTable(frame, names.task, target, features, side_info, side, names.encoding)
    return read_rows(frame, name, table)


def _no_tasks(n_features: int) -> TaskSet:
    return TaskSet.from_arrays(
        np.zeros((0, n_features)), np.zeros(0), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    )


def _is_frame(data: Any) -> bool:
    return bool(nw.dependencies.is_into_dataframe(data)) or isinstance(data, nw.DataFrame)


def with_description(tasks: TaskSet, names: Names) -> TaskSet:
    """The tasks, if they are described where the learner was fitted on descriptions."""
    if names.n_side and tasks.side_info is None:
        columns = f" with the columns {name_some(names.side, 12)}" if names.side else ""
        raise ValueError(
            f"side_info: the learner was fitted with side information{columns}; pass side_info=, or frames or task "
            "sets that have it"
        )
    return tasks


def as_table(found: Predicted, query: Any, asked: FrameRows, names: Names) -> Any:
    """The numbers beside the labels of the query's rows, in a frame of the query's library or a structured array."""
    if isinstance(query, TaskSet):
        kinds = [("task", query.labels.dtype), *((column, np.float64) for column in found._fields)]
        table = np.empty(len(query.y), dtype=kinds)
        table["task"] = np.repeat(query.labels, query.sizes)
        for column, values in found._asdict().items():
            table[column] = values
        return table
    for label in names.labels:
        if label in found._fields:
            raise ValueError(
                f"task: rename the column {label!r}, it is a column of the table of predictions, too"
            )
    frame = nw.from_native(query, eager_only=True)
    columns = []
    for column, values in found._asdict().items():
        in_order = np.empty(len(values))
        in_order[asked.order] = values
        columns.append(nw.new_series(column, in_order, native_namespace=nw.get_native_namespace(frame)))
    return frame.select(names.labels).with_columns(*columns).to_native()
