"""The recommended way to learn: a mixture of linear mixed models by EM, its form chosen on held-out tasks."""

from .data import Settings, TrainingData
from .training import Learned, learn

__all__ = ["Learned", "Settings", "TrainingData", "learn"]
