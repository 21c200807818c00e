"""Baselines of the benchmark that are not part of the package.

``missing()`` of a baseline that another program fits returns what is not installed.
"""

from .base import (
    Baseline,
    MixedModel,
    PooledBoosting,
    PooledRidge,
    RidgePerTask,
    TaskMean,
)
from .mixed_models import Lme4
from .simple import GlobalMedian, ItemUserBias, TaskMedian
from .trees import BoostedMixedModel, MixedEffectsForest

#: Simple baselines by their names in tables.
SIMPLE: dict[str, type[Baseline]] = {
    "global median": GlobalMedian,
    "task mean": TaskMean,
    "task median": TaskMedian,
    "ridge per task": RidgePerTask,
    "pooled ridge + task offset": PooledRidge,
    "item and user bias": ItemUserBias,
    "mixed model": MixedModel,
}

#: Baselines that read side information, by their names in tables; all but boosting are fitted by
#: other programs.
RIVALS: dict[str, type[Baseline]] = {
    "lme4": Lme4,
    "boosting": PooledBoosting,
    "MERF": MixedEffectsForest,
    "GPBoost": BoostedMixedModel,
}
