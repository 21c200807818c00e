"""Linear mixed models of tasks, and mixtures of them, by EM on sufficient statistics."""

from .em import EMResult, Shrinkage, Source, em, factor_target, fit_mixed_model, truncate
from .mixture import Mixture, TaskPriors, adapt
from .moments import Expected, Moments, Summed, Sums, Totals, Want, influence
from .rows import TaskRows, Tasks, statistics_of
from .side import SideForm, fit_side, side_forms
from .starts import fit_mixture
from .stepwise import Stepwise
from .uncertainty import MeanCovariance, mean_covariance, task_covariances

__all__ = [
    "EMResult",
    "Expected",
    "MeanCovariance",
    "Mixture",
    "Moments",
    "Shrinkage",
    "SideForm",
    "Source",
    "Stepwise",
    "Summed",
    "Sums",
    "TaskPriors",
    "TaskRows",
    "Tasks",
    "Totals",
    "Want",
    "adapt",
    "em",
    "factor_target",
    "fit_mixed_model",
    "fit_mixture",
    "fit_side",
    "influence",
    "mean_covariance",
    "side_forms",
    "statistics_of",
    "task_covariances",
    "truncate",
]
