"""Reading tasks from one long dataframe, a row per observation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._validation import check_features, native
from ._descriptions import Side, read_side_table, side_column, side_from_columns
from ._frames import Frame, Grouping, check_columns, group_rows, numeric_column, read_frame


class FrameColumns(NamedTuple):
    """The columns of task labels and of targets."""

    task: str
    target: str | None


Long = tuple[np.ndarray, np.ndarray, Grouping, Side, np.ndarray, FrameColumns]


def read_long(
    frame: Any, columns: FrameColumns, features: Any, side_info: Any = None, side_columns: Any = None
) -> Long:
    """Return inputs, target, tasks, side information and names; for `TaskSet.from_frame`.

    Without a target, zeros stand for it.
    """
    data = read_frame(frame, "frame")
    if side_info is not None and side_columns is not None:
        raise ValueError("side_info and side_columns exclude each other: join them in one frame first.")
    task, target = columns
    check_columns(data, "task", [task])
    if target is not None:
        check_columns(data, "target", [target], [task])
    taken = [name for name in columns if name is not None]
    aside = check_columns(data, "side_columns", side_columns or [], taken)
    if features is None:
        features = [name for name in data.columns if name not in (task, target, *aside)]
    names = check_columns(data, "features", features, taken)

    grouping = group_rows(data[task].to_native(), len(data))
    X = _inputs(data, names)
    y = np.zeros(len(X)) if target is None else numeric_column(data[target], f"The target column {target!r}")
    if aside:
        side = side_from_columns([side_column(data[name]) for name in aside], aside, grouping)
    else:
        side = read_side_table(side_info, task, native(grouping.labels))
    return X, y, grouping, side, np.array(names, dtype=object), columns


def _inputs(data: Frame, names: list[str]) -> np.ndarray:
    advice = "Encode it as numbers, or list the columns to use in `features`."
    X = np.empty((len(data), len(names)))
    for j, name in enumerate(names):
        X[:, j] = numeric_column(data[name], f"Feature column {name!r}", advice)
    checked: np.ndarray = check_features(X)
    return checked
