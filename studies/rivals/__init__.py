"""Baselines that are fitted by other programs, and boosting.

``missing()`` of a baseline returns what is not installed that it needs.
"""

from tailored.baselines import Baseline, PooledBoosting

from .forest import MixedEffectsForest
from .mixed_models import Lme4, StatsmodelsMixedLM

#: The baselines by their names in tables.
RIVALS: dict[str, type[Baseline]] = {
    "lme4": Lme4,
    "statsmodels": StatsmodelsMixedLM,
    "boosting": PooledBoosting,
    "MERF": MixedEffectsForest,
}
