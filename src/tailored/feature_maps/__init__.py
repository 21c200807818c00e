"""Feature maps Φ: a vector φ (k,) of features for each task.

"mean" and "angle" aggregate the task's rows, and "ridge" estimates its weights.  "vector", transformers and callables
read the side information; without it, a callable reads the task.  The named maps do not depend on
the order of the rows and are defined for a task without rows.  To add a map, define its class and
add its name to `FEATURE_MAPS`.
"""

from __future__ import annotations

from copy import copy

from .._utils.validation import check_choice
from .maps import (
    AngleMap,
    CallableMap,
    FeatureMap,
    MeanEmbedding,
    RidgeEstimate,
    SideVector,
    Transformer,
)

__all__ = ["AngleMap", "MeanEmbedding", "RidgeEstimate", "SideVector"]

#: Valid names of a learner's ``feature_map``, besides "auto".
FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    "mean": MeanEmbedding,
    "ridge": RidgeEstimate,
    "angle": AngleMap,
    "vector": SideVector,
}
#: What ``feature_map`` may be besides these names and "auto", for error messages.
OTHERS = "a FeatureMap, a callable or a scikit-learn transformer"


def get_feature_map(spec: object, *, has_side_info: bool) -> FeatureMap:
    """Return the feature map for a learner's ``feature_map`` argument, not yet fitted.

    ``"auto"`` is "vector" if the tasks have side information and "ridge" otherwise.
    """
    if isinstance(spec, str):
        if spec == "auto":
            spec = "vector" if has_side_info else "ridge"
        return FEATURE_MAPS[
            check_choice("feature_map", spec, [*FEATURE_MAPS, "auto"], also=OTHERS)
        ]()
    if isinstance(spec, FeatureMap):
        return copy(spec)
    if hasattr(spec, "transform") and hasattr(spec, "fit"):
        return Transformer(spec)
    if callable(spec):
        return CallableMap(spec)
    raise TypeError(
        f"feature_map: expected one of {sorted(FEATURE_MAPS)}, 'auto', or {OTHERS}; got {type(spec).__name__}"
    )
