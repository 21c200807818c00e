"""Maps of the side information that came with the task, and functions of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ..tasks import Task, TaskSet
from ..tasks.rows import dense
from ._base import Array, FeatureMap


class DescriptionMap(FeatureMap):
    """Base of the maps that read the table of side information and no rows."""

    @property
    def needs_rows(self) -> bool:
        return False

    @property
    def needs_side_info(self) -> bool:
        return True


class SideVector(DescriptionMap):
    """The side information as it is.

    Numeric tables are taken unchanged.  When a table also has categorical columns, these become
    one-hot (a category unseen in training gives zeros) and the numeric columns are standardised, so
    that an age in years does not drown the rest.
    """

    def __init__(self) -> None:
        #: Of a table with categories: per column its categories, or its (mean, deviation).
        self.categories: list[Any] | None = None

    def fit(self, tasks: TaskSet) -> SideVector:
        table = _side_table(tasks)
        mixed = table.dtype == object
        self.categories = [_encoding(column) for column in table.T] if mixed else None
        return self

    def transform(self, tasks: TaskSet) -> Array:
        table = _side_table(tasks)
        if self.categories is None:
            try:
                return table.astype(float)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    "side_info: the side information was numeric in fit and has text now; "
                    "give the same columns as in fit"
                ) from error
        if table.shape[1] != len(self.categories):
            raise ValueError(
                f"side_info: expected {len(self.categories)} columns as in fit, got {table.shape[1]}"
            )
        from sklearn.preprocessing import OneHotEncoder  # slow to import, rarely needed

        parts = []
        for column, encoding in zip(table.T, self.categories, strict=True):
            if "mean" in encoding:
                parts.append((column.astype(float)[:, None] - encoding["mean"]) / encoding["deviation"])
            else:
                encoder = OneHotEncoder(
                    categories=[np.array(encoding["values"], dtype=object)],
                    handle_unknown="ignore",
                    sparse_output=False,
                )
                parts.append(encoder.fit_transform(column.astype(object)[:, None]))
        return np.hstack(parts)


def _encoding(column: NDArray[Any]) -> dict[str, Any]:
    if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in column):
        values = column.astype(float)
        return {"mean": float(values.mean()), "deviation": float(values.std()) or 1.0}
    return {"values": sorted(set(column.tolist()), key=lambda value: (str(type(value)), value))}


class Transformer(DescriptionMap):
    """Any scikit-learn transformer applied to the table of side information.

    Attributes
    ----------
    fitted : transformer or None
        A fitted clone of ``transformer``.
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer
        self.fitted: Any = None

    def fit(self, tasks: TaskSet) -> Transformer:
        self.fitted = clone(self.transformer).fit(_side_table(tasks))
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.fitted is None:
            raise ValueError("feature_map: this Transformer is not fitted; call fit(tasks) first")
        return dense(self.fitted.transform(_side_table(tasks)))


class CallableMap(FeatureMap):
    """``φ = function(task)`` where the task has ``X``, ``y``, ``side_info`` and ``label``."""

    def __init__(self, function: Callable[[Task], Any]) -> None:
        self.function = function

    @property
    def needs_rows(self) -> bool:
        return False

    def transform(self, tasks: TaskSet) -> Array:
        rows: list[Array] = []
        for task in tasks:
            phi = np.atleast_1d(np.asarray(self.function(task), dtype=float))
            if phi.ndim != 1 or not np.isfinite(phi).all():
                raise ValueError(
                    f"feature_map: the callable must return a finite 1-D vector; for task {task.label!r} "
                    f"it returned shape {phi.shape}"
                    + ("" if np.isfinite(phi).all() else " with NaN or infinity")
                )
            if rows and len(phi) != len(rows[0]):
                raise ValueError(
                    f"feature_map: the callable returned {len(phi)} features for task {task.label!r} "
                    f"and {len(rows[0])} for the first task; the number must not change"
                )
            rows.append(phi)
        return np.array(rows)


def _side_table(tasks: TaskSet) -> NDArray[Any]:
    if tasks.side_info is None:
        raise ValueError(
            "side_info: this feature map reads the side information of a task and none was given; "
            "pass side_info=, or choose a feature map of the task's own rows such as feature_map='mean'"
        )
    return tasks.side_info
