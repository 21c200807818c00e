"""tailored: conditional meta-learning of linear representations.

From many small related regression tasks, learn a function that gives each task its own linear
representation, inferred from the task's side information; then fit a new task from a few rows.
"""

from ._version import __version__
from .files.format import load
from .learners.adapted import AdaptedTasks
from .learners.classifier import EmpiricalBayesClassifier, TaskClassifier
from .learners.empirical_bayes import EmpiricalBayesLearner
from .learners.objective import ConditionalLearner, IndependentLearner, UnconditionalLearner
from .learners.task_regressor import TaskRegressor
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
