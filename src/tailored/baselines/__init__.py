"""What a practitioner would try first, and what the paper argues against or builds on.

All stand behind the learners' ``fit`` / ``adapt`` interface.  `BASELINES` are the simple ones, fitted in closed
form or by a mixed model; `EARLIER_METHODS` are meta-learners of the literature, each ending in a representation
τ(s) and a prior mean b(s), with hyper-parameters chosen on held-out tasks.  `RIVALS` read the description as well;
all but boosting are fitted by other programs, and ``missing()`` says what of them is not installed.
"""

from .base import Baseline, LinearTask
from .bias_learning import ConditionalBiasLearner, UnconditionalBiasLearner
from .boosting import MixedEffectsForest, PooledBoosting, RowBaseline
from .external import Lme4, StatsmodelsMixedLM
from .frank_wolfe import FrankWolfeLearner
from .multi_task import MultiTaskFeatureLearner
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
from .trace_constrained import TraceConstrainedLearner

#: Names of the earlier methods for tables and the command line.
EARLIER_METHODS = {
    "trace-constrained": TraceConstrainedLearner,
    "unconditional bias": UnconditionalBiasLearner,
    "conditional bias": ConditionalBiasLearner,
    "Frank-Wolfe": FrankWolfeLearner,
    "multi-task feature learning": MultiTaskFeatureLearner,
}

#: Names of what others fit: programs for mixed models, and curved functions of pooled rows.
RIVALS: dict[str, type[Baseline]] = {
    "lme4": Lme4,
    "statsmodels": StatsmodelsMixedLM,
    "boosting": PooledBoosting,
    "MERF": MixedEffectsForest,
}

__all__ = [
    "BASELINES",
    "EARLIER_METHODS",
    "RIVALS",
    "Baseline",
    "ConditionalBiasLearner",
    "FrankWolfeLearner",
    "GlobalMedian",
    "ItemUserBias",
    "LinearTask",
    "Lme4",
    "MixedEffectsForest",
    "MixedModel",
    "MultiTaskFeatureLearner",
    "PooledBoosting",
    "PooledRidge",
    "RidgePerTask",
    "RowBaseline",
    "StatsmodelsMixedLM",
    "TaskMean",
    "TaskMedian",
    "TraceConstrainedLearner",
    "UnconditionalBiasLearner",
]
