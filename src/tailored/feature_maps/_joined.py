"""Which map a learner's ``feature_map`` argument stands for, and several maps joined to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._utils.validation import check_choice, check_divisor
from ..tasks import TaskSet
from ._adapted import AdaptedWeights
from ._base import Array, FeatureMap, mean_norm
from ._description import CallableMap, SideVector, Transformer
from ._estimates import PosteriorMean
from ._ridge import RidgeEstimate
from ._rows import AngleMap, FourierEmbedding, MeanEmbedding
from .posterior import PosteriorMap

#: Valid names of a learner's ``feature_map`` (besides "auto", and besides objects).
FEATURE_MAPS: dict[str, Callable[[], FeatureMap]] = {
    "mean": MeanEmbedding,
    "ridge": RidgeEstimate,
    "angle": AngleMap,
    "fourier": FourierEmbedding,
    "vector": SideVector,
    "tuned ridge": partial(RidgeEstimate, "auto"),
    "posterior mean": PosteriorMean,
    "posterior": PosteriorMap,
}


class JoinedMaps(FeatureMap):
    """``φ = (φ_1 / a_1, φ_2 / a_2, ..)``: the features of several maps, side by side.

    The a_i bring each block's norm to root mean square one over the training tasks, so that every map has
    the same say.  ``feature_map=["vector", "ridge"]`` joins a task's description to what its rows show.

    Parameters
    ----------
    maps : sequence
        Anything that a learner takes as ``feature_map``.
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
        self.norms = [mean_norm(part.transform(tasks)) for part in self.parts]
        return self

    def transform(self, tasks: TaskSet) -> Array:
        return self._join([part.transform(tasks) for part in self.parts])

    def transform_one(self, task: TaskSet) -> Array:
        return self._join([part.transform_one(task) for part in self.parts])

    def _join(self, blocks: list[Array]) -> Array:
        if not blocks:
            raise ValueError("feature_map: these JoinedMaps are not fitted; call fit(tasks) first")
        return np.hstack([block / norm for block, norm in zip(blocks, self.norms, strict=True)])


def get_feature_map(spec: Any, *, has_side_info: bool) -> FeatureMap:
    """The map that a learner's ``feature_map`` argument stands for, not yet fitted.

    ``"auto"`` is "vector" when the tasks carry side information and "ridge" otherwise; a list is `JoinedMaps`,
    and a meta-learner stands for its `AdaptedWeights`.
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
    if hasattr(spec, "adapt_many") and not isinstance(spec, type):
        return AdaptedWeights(spec)
    if hasattr(spec, "transform") and hasattr(spec, "fit"):
        return Transformer(spec)
    if callable(spec):
        return CallableMap(spec)
    raise TypeError(
        f"feature_map: expected one of {sorted(FEATURE_MAPS)}, 'auto', a FeatureMap, a callable, a "
        f"scikit-learn transformer, a meta-learner or a list of these, got {type(spec).__name__}"
    )
