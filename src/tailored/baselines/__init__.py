"""Simple methods that learners are compared with, behind the learners' ``fit`` and ``adapt``."""

from .base import Baseline, LinearTask
from .boosting import PooledBoosting, RowBaseline
from .simple import (
    BASELINES,
    GlobalMedian,
    ItemUserBias,
    MixedModel,
    PooledRidge,
    RidgePerTask,
    TaskMean,
    TaskMedian,
)

__all__ = [
    "BASELINES",
    "Baseline",
    "GlobalMedian",
    "ItemUserBias",
    "LinearTask",
    "MixedModel",
    "PooledBoosting",
    "PooledRidge",
    "RidgePerTask",
    "RowBaseline",
    "TaskMean",
    "TaskMedian",
]
