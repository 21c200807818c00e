"""Linear mixed models of an environment of tasks, and mixtures of them, by EM on sufficient statistics."""

from .em import EMResult, Shrinkage, em, factor_target, fit_mixed_model, truncate
from .evidence import Expectation, Mixture, Posterior, Prior, adapt, influence, posterior
from .mixture import fit_mixture
from .side import fit_side
from .statistics import TaskStatistics, Units

__all__ = [
    "EMResult",
    "Expectation",
    "Mixture",
    "Posterior",
    "Prior",
    "Shrinkage",
    "TaskStatistics",
    "Units",
    "adapt",
    "em",
    "factor_target",
    "fit_mixed_model",
    "fit_mixture",
    "fit_side",
    "influence",
    "posterior",
    "truncate",
]
