"""tailored: conditional meta-learning of linear representations.

From many small related regression tasks, learn a function that gives each task its own linear
representation, inferred from the task's side information; then fit a new task from a few rows.
"""

__version__ = "0.1.0.dev0"

from .learners import ConditionalLearner, IndependentLearner, UnconditionalLearner
from .persistence import load
from .regressor import TaskRegressor
from .tasks import Task, TaskSet

__all__ = [
    "ConditionalLearner",
    "IndependentLearner",
    "Task",
    "TaskRegressor",
    "TaskSet",
    "UnconditionalLearner",
    "load",
]
