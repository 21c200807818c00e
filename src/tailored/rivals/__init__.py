"""Methods that the paper argues against or builds on, behind the same ``fit`` / ``adapt`` interface.

Each is a meta-learner like those of `tailored.learners`: it ends in a representation τ(s) and a prior mean
b(s), and adapts, predicts and scores through them.  Hyper-parameters left at "search" are chosen on held-out
tasks, all candidates seeing the same tasks.
"""

from .bias_learning import ConditionalBiasLearner, UnconditionalBiasLearner
from .frank_wolfe import FrankWolfeLearner
from .multi_task import MultiTaskFeatureLearner
from .trace_constrained import TraceConstrainedLearner

#: Names of the rivals for tables and the command line.
RIVALS = {
    "trace-constrained": TraceConstrainedLearner,
    "unconditional bias": UnconditionalBiasLearner,
    "conditional bias": ConditionalBiasLearner,
    "Frank-Wolfe": FrankWolfeLearner,
    "multi-task feature learning": MultiTaskFeatureLearner,
}

__all__ = [
    "RIVALS",
    "ConditionalBiasLearner",
    "FrankWolfeLearner",
    "MultiTaskFeatureLearner",
    "TraceConstrainedLearner",
    "UnconditionalBiasLearner",
]
