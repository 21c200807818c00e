"""The recommended way to learn: a mixture of linear mixed models by EM, its form chosen on held-out tasks."""

from .common_part import learn_beside
from .data import Settings, TrainingData
from .learned import Learned
from .training import learn

__all__ = ["Learned", "Settings", "TrainingData", "learn", "learn_beside"]
