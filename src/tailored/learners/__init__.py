"""Meta-learners: from many tasks to a representation for each."""

from ._base import MetaLearner
from ._empirical_bayes import EmpiricalBayesLearner
from .independent import IndependentLearner
from .objective import ConditionalLearner, UnconditionalLearner
from .task_regressor import TaskRegressor

__all__ = [
    "ConditionalLearner",
    "EmpiricalBayesLearner",
    "IndependentLearner",
    "MetaLearner",
    "TaskRegressor",
    "UnconditionalLearner",
]
