"""Reading tasks from one long dataframe, a row per observation."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._validation import check_features, native
from ._descriptions import Side, read_side_table, side_column, side_from_columns
from ._frames import Grouping, check_columns, group_rows, numeric_column, read_frame


def read_long(
    frame: Any, task: str, target: str, features: Any, side_info: Any, side_columns: Any
) -> tuple[np.ndarray, np.ndarray, Grouping, Side, np.ndarray]:
    """Return inputs, target, tasks, side information and feature names; for `TaskSet.from_frame`."""
    data = read_frame(frame, "frame")
    if side_info is not None and side_columns is not None:
        raise ValueError("side_info and side_columns exclude each other: join them in one frame first.")
    check_columns(data, "task", [task])
    check_columns(data, "target", [target], [task])
    aside = check_columns(data, "side_columns", side_columns or [], [task, target])
    if features is None:
        features = [name for name in data.columns if name not in (task, target, *aside)]
    names = check_columns(data, "features", features, [task, target])

    grouping = group_rows(data[task].to_native(), len(data))
    advice = "Encode it as numbers, or list the columns to use in `features`."
    X = np.empty((len(data), len(names)))
    for j, name in enumerate(names):
        X[:, j] = numeric_column(data[name], f"Feature column {name!r}", advice)
    X = check_features(X)
    y = numeric_column(data[target], f"The target column {target!r}")
    if aside:
        side = side_from_columns([side_column(data[name]) for name in aside], aside, grouping)
    else:
        side = read_side_table(side_info, task, native(grouping.labels))
    return X, y, grouping, side, np.array(names, dtype=object)
