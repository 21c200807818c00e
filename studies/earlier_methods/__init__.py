"""Meta-learners of the literature that the paper compares with or builds on.

Each learns a representation τ(s) and a prior mean b(s), and selects its hyper-parameters on
held-out tasks.
"""

from .bias_learning import ConditionalBiasLearner, UnconditionalBiasLearner
from .multi_task import MultiTaskFeatureLearner
from .searched import SearchedLearner
from .trace_constrained import TraceConstrainedLearner

#: The earlier methods by their names in tables.
EARLIER_METHODS: dict[str, type[SearchedLearner]] = {
    "trace-constrained": TraceConstrainedLearner,
    "unconditional bias": UnconditionalBiasLearner,
    "conditional bias": ConditionalBiasLearner,
    "multi-task feature learning": MultiTaskFeatureLearner,
}
