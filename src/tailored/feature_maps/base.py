"""Base class and helpers of the feature maps."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from .._utils.records import Fitted
from .._utils.validation import native
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet


class FeatureMap(Fitted, ABC):
    """Base of the feature maps: ``fit`` on the training tasks, ``transform`` to (T, k)."""

    #: Whether the map needs the task's rows.
    needs_rows: ClassVar[bool] = True
    #: Whether the map needs the task's side information.
    needs_side_info: ClassVar[bool] = False

    def fit(self, tasks: TaskSet) -> FeatureMap:
        """Learn parameters from the tasks; most maps have none."""
        return self

    @abstractmethod
    def transform(self, tasks: TaskSet) -> Array:
        """Return the features of every task, (T, k)."""

    def __repr__(self) -> str:
        """Return the class name and the constructor arguments."""
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def _not_fitted(self) -> ValueError:
        return ValueError(f"feature_map: this {type(self).__name__} is not fitted; call fit(tasks) first")


def check_features(phis: Array, tasks: TaskSet, n_side: int | None = None) -> Array:
    """Return the features; raise ValueError if one is not finite or their number differs from that in fit."""
    if n_side is not None and phis.shape[1] != n_side:
        raise ValueError(
            f"side_info: the feature map gives {phis.shape[1]} features, but it gave {n_side} in fit; "
            "give the same side information columns as in fit"
        )
    if not np.isfinite(phis).all():
        bad = native(tasks.labels[~np.isfinite(phis).all(axis=1)])[0]
        raise ValueError(f"feature_map: NaN or infinity in the features of task {bad!r}")
    return phis
