"""The paper, whole and on its own: its learners, Algorithm 1, the within-task algorithm, and its
theory.

The names that users need are `tailored.ConditionalLearner`, `UnconditionalLearner` and
`IndependentLearner`; those below set a learner's step sizes and feature map.
"""

from ..tasks.features import SideVector
from . import theory as theory
from .feature_maps import AngleMap, MeanEmbedding, RidgeEstimate
from .step_size import ProjectedSGD

__all__ = ["AngleMap", "MeanEmbedding", "ProjectedSGD", "RidgeEstimate", "SideVector"]
