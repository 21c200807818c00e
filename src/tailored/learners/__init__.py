"""Meta-learners: from many tasks to a representation for each."""

from ._base import MetaLearner
from ._independent import IndependentLearner
from ._streaming import ConditionalLearner, UnconditionalLearner

__all__ = ["ConditionalLearner", "IndependentLearner", "MetaLearner", "UnconditionalLearner"]
