"""Meta-learners: from many tasks to a representation for each."""

from ._base import MetaLearner
from ._conditional import ConditionalLearner
from ._empirical_bayes import EmpiricalBayesLearner
from ._independent import IndependentLearner
from ._unconditional import UnconditionalLearner
from .task_regressor import TaskRegressor

__all__ = [
    "ConditionalLearner",
    "EmpiricalBayesLearner",
    "IndependentLearner",
    "MetaLearner",
    "TaskRegressor",
    "UnconditionalLearner",
]
