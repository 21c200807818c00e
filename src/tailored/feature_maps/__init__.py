"""Feature maps Φ: the side information of a task in, a vector φ (k,) out.

Data set maps read the task's own rows: averages over them ("mean", "angle", "fourier"), an estimate of the
weights ("ridge", "tuned ridge", "posterior mean"); a meta-learner stands for the weights that it gives the task.  "vector" and transformers
read the side information that came with the task; a callable reads both; a list of maps joins them.  The
named ones are invariant to the order of the rows, and defined for a task without rows.

Scaling φ to unit root-mean-square norm over the training tasks is the learners' business: the raw norm of a
mean embedding can be as small as 0.06, and the effect of a step of H on τ goes with its fourth power.
"""

from ._adapted import AdaptedWeights
from ._base import FeatureMap, check_features
from ._description import CallableMap, SideVector, Transformer
from ._estimates import PosteriorMean
from ._joined import FEATURE_MAPS, JoinedMaps, get_feature_map
from ._ridge import RidgeEstimate
from ._rows import AngleMap, FourierEmbedding, MeanEmbedding
from .posterior import PosteriorMap, PosteriorModel
from .side_features import Curve, SideFeatures
from .side_map import SideMap
from .summaries import Level, TaskSummary

__all__ = [
    "FEATURE_MAPS",
    "AdaptedWeights",
    "AngleMap",
    "CallableMap",
    "Curve",
    "FeatureMap",
    "FourierEmbedding",
    "JoinedMaps",
    "Level",
    "MeanEmbedding",
    "PosteriorMap",
    "PosteriorMean",
    "PosteriorModel",
    "RidgeEstimate",
    "SideFeatures",
    "SideMap",
    "SideVector",
    "TaskSummary",
    "Transformer",
    "check_features",
    "get_feature_map",
]
