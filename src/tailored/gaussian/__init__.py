"""Linear mixed models of an environment of tasks, and mixtures of them, by EM on sufficient statistics."""

from .em import EMResult, Shrinkage, em, factor_target, fit_mixed_model, truncate
from .mixture import Expectation, Mixture, TaskPriors, adapt, influence
from .moments import Moments, Source, Summed, Totals
from .side import SideForm, fit_side, side_forms
from .starts import fit_mixture
from .statistics import TaskStatistics
from .stepwise import Stepwise
from .uncertainty import MeanCovariance, mean_covariance, task_covariances

__all__ = [
    "EMResult",
    "Expectation",
    "MeanCovariance",
    "Mixture",
    "Moments",
    "Shrinkage",
    "SideForm",
    "Source",
    "Stepwise",
    "Summed",
    "TaskPriors",
    "TaskStatistics",
    "Totals",
    "adapt",
    "em",
    "factor_target",
    "fit_mixed_model",
    "fit_mixture",
    "fit_side",
    "influence",
    "mean_covariance",
    "side_forms",
    "task_covariances",
    "truncate",
]
