"""tailored: conditional meta-learning of linear representations.

From many small related regression tasks, learn a function that gives each task its own linear
representation, inferred from the task's side information; then fit a new task from a few rows.
"""

from ._version import __version__
from .files.format import load
from .learners import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    UnconditionalLearner,
)
from .sources.scan import scan
from .tasks import Task, TaskSet

__all__ = [
    "ConditionalLearner",
    "EmpiricalBayesLearner",
    "IndependentLearner",
    "Task",
    "TaskRegressor",
    "TaskSet",
    "UnconditionalLearner",
    "__version__",
    "load",
    "scan",
]
