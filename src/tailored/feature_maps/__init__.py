"""Feature maps Φ: a vector φ (k,) of features for each task.

"mean" and "angle" average over the task's rows, and "ridge" estimates its weights.  "vector" and transformers read the
side information.  A callable may use both, and a list of maps joins them.  The named maps do not depend on the order of
the rows and are defined for a task without rows.  To add a map, define its class and add its name to `FEATURE_MAPS`.

The learners scale φ to unit root-mean-square norm over the training tasks: the norm of a mean embedding can be as small
as 0.06, and the effect of a step of H on τ is proportional to its fourth power.
"""

from .base import FeatureMap
from .registry import FEATURE_MAPS, JoinedMaps, get_feature_map
from .rows import AngleMap, MeanEmbedding, RidgeEstimate
from .side_info import CallableMap, SideVector, Transformer

__all__ = [
    "FEATURE_MAPS",
    "AngleMap",
    "CallableMap",
    "FeatureMap",
    "JoinedMaps",
    "MeanEmbedding",
    "RidgeEstimate",
    "SideVector",
    "Transformer",
    "get_feature_map",
]
