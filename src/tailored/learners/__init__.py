"""Meta-learners: from many tasks to a representation for each."""

from .adapted import AdaptedTasks
from .base import MetaLearner
from .empirical_bayes import EmpiricalBayesLearner
from .independent import IndependentLearner
from .objective import ConditionalLearner, UnconditionalLearner
from .task_regressor import TaskRegressor

__all__ = [
    "AdaptedTasks",
    "ConditionalLearner",
    "EmpiricalBayesLearner",
    "IndependentLearner",
    "MetaLearner",
    "TaskRegressor",
    "UnconditionalLearner",
]
