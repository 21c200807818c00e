"""tailored: conditional meta-learning of linear representations.

From many small related regression tasks, learn a function that gives each task its own linear
representation, inferred from the task's side information; then fit a new task from a few rows.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .evaluation import evaluate
    from .files import load
    from .learners.adapted_task import AdaptedTask, AdaptedTasks
    from .learners.classifier import EmpiricalBayesClassifier, TaskClassifier
    from .learners.empirical_bayes import EmpiricalBayesLearner
    from .paper.learners import ConditionalLearner, IndependentLearner, UnconditionalLearner
    from .paper.within_task import TaskRegressor
    from .scale.scan import scan
    from .show.displays import EffectsDisplay, PriorPathDisplay, ShrinkageDisplay, TaskFitDisplay
    from .show.report import write_report
    from .tasks.task_set import Task, TaskSet

__all__ = [
    "AdaptedTask",
    "AdaptedTasks",
    "ConditionalLearner",
    "EffectsDisplay",
    "EmpiricalBayesClassifier",
    "EmpiricalBayesLearner",
    "IndependentLearner",
    "PriorPathDisplay",
    "ShrinkageDisplay",
    "Task",
    "TaskClassifier",
    "TaskFitDisplay",
    "TaskRegressor",
    "TaskSet",
    "UnconditionalLearner",
    "__version__",
    "evaluate",
    "load",
    "scan",
    "write_report",
]

_SUBMODULES = ["datasets", "evaluation", "exceptions", "losses", "paper"]
#: Modules that define the names above.  The module of `load` comes after the learners, because the
#: classes of stored objects must be imported first.
_MODULES = [
    "tasks.task_set",
    "scale.scan",
    "learners.adapted_task",
    "learners.classifier",
    "paper.learners",
    "paper.within_task",
    "files",
    "evaluation",
    "show.displays",
    "show.report",
]


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
