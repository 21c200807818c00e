"""The registry of feature maps, and maps joined to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._utils.validation import check_choice, check_divisor
from ..tasks.task_set import TaskSet
from .base import Array, FeatureMap
from .rows import AngleMap, MeanEmbedding, RidgeEstimate
from .side_info import CallableMap, SideVector, Transformer

#: Valid names of a learner's ``feature_map``, besides "auto".
FEATURE_MAPS: dict[str, Callable[[], FeatureMap]] = {
    "mean": MeanEmbedding,
    "ridge": RidgeEstimate,
    "angle": AngleMap,
    "vector": SideVector,
}


def get_feature_map(spec: Any, *, has_side_info: bool) -> FeatureMap:
    """Return the map that a learner's ``feature_map`` argument specifies, not yet fitted.

    ``"auto"`` is "vector" if the tasks have side information and "ridge" otherwise.  A list gives `JoinedMaps`.
    """
    if isinstance(spec, str):
        if spec == "auto":
            spec = "vector" if has_side_info else "ridge"
        return FEATURE_MAPS[check_choice("feature_map", spec, [*FEATURE_MAPS, "auto"])]()
    if isinstance(spec, FeatureMap):
        copied = spec.__class__.__new__(spec.__class__)
        copied.__dict__.update(spec.__dict__)
        return copied
    if isinstance(spec, list | tuple):
        return JoinedMaps(spec)
    if hasattr(spec, "transform") and hasattr(spec, "fit"):
        return Transformer(spec)
    if callable(spec):
        return CallableMap(spec)
    raise TypeError(
        f"feature_map: expected one of {sorted(FEATURE_MAPS)}, 'auto', a FeatureMap, a callable, a "
        f"scikit-learn transformer or a list of these, got {type(spec).__name__}"
    )


class JoinedMaps(FeatureMap):
    """``φ = (φ_1 / a_1, φ_2 / a_2, ..)``: the features of several maps, concatenated.

    The a_i scale the norm of each block to root mean square one over the training tasks, so that all maps have the
    same weight.  ``feature_map=["vector", "ridge"]`` joins a task's side information and an estimate from its rows.

    Parameters
    ----------
    maps : sequence
        Anything that a learner accepts as ``feature_map``.
    """

    parts: list[FeatureMap]
    norms: list[float]

    def __init__(self, maps: Sequence[Any] = ()) -> None:
        self.maps = list(maps)
        self.parts = []
        self.norms = []

    def restore(self) -> None:
        if len(self.parts) != len(self.norms):
            raise ValueError("norms: must be one for each map")
        check_divisor("norms", self.norms)

    @property
    def needs_rows(self) -> bool:
        return any(part.needs_rows for part in self.parts)

    @property
    def needs_side_info(self) -> bool:
        return any(part.needs_side_info for part in self.parts)

    def fit(self, tasks: TaskSet) -> JoinedMaps:
        if not self.maps:
            raise ValueError("feature_map: give at least one map to join")
        has_side_info = tasks.side_info is not None
        self.parts = [get_feature_map(spec, has_side_info=has_side_info).fit(tasks) for spec in self.maps]
        norms = [float(np.sqrt(np.mean(np.sum(part.transform(tasks) ** 2, axis=1)))) for part in self.parts]
        self.norms = [norm if norm > 0 else 1.0 for norm in norms]
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if not self.parts:
            raise self._not_fitted()
        return np.hstack(
            [part.transform(tasks) / norm for part, norm in zip(self.parts, self.norms, strict=True)]
        )
