"""tailored: conditional meta-learning of linear representations.

From many small related regression tasks, learn a function that gives each task its own linear
representation, inferred from the task's side information; then fit a new task from a few rows.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .files import load
    from .learners.classifier import EmpiricalBayesClassifier, TaskClassifier
    from .learners.empirical_bayes import EmpiricalBayesLearner
    from .learners.paper import ConditionalLearner, IndependentLearner, UnconditionalLearner
    from .learners.task_regressor import AdaptedTasks, TaskRegressor
    from .sources.scan import scan
    from .tasks.task_set import Task, TaskSet

__all__ = [
    "AdaptedTasks",
    "ConditionalLearner",
    "EmpiricalBayesClassifier",
    "EmpiricalBayesLearner",
    "IndependentLearner",
    "Task",
    "TaskClassifier",
    "TaskRegressor",
    "TaskSet",
    "UnconditionalLearner",
    "__version__",
    "load",
    "scan",
]

_SUBMODULES = [
    "baselines",
    "datasets",
    "displays",
    "evaluation",
    "exceptions",
    "feature_maps",
    "losses",
]
_SUBMODULES += ["report", "solvers", "theory"]
#: Modules that define the names above.  The module of `load` comes last, because the classes of
#: stored objects must be imported first.
_MODULES = ["tasks.task_set", "sources.scan", "learners.task_regressor", "learners.classifier"]
_MODULES += ["learners.paper", "files"]


def __getattr__(name: str) -> Any:
    """Import names and submodules on first use, which keeps `tailored --help` fast."""
    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    for module in _MODULES if name in __all__ else ():
        if hasattr(found := import_module(f".{module}", __name__), name):
            return globals().setdefault(name, getattr(found, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES]
