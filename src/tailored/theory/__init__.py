"""The paper's claims as computable quantities: the surrogate, oracles and bounds.

Every bound is a function of named quantities that returns a `Bound`.  `bound_from_tasks` estimates the quantities
from a `TaskSet` and reports which ones were estimated.
"""

from .bounds import (
    BOUNDS,
    Bound,
    conditional_optimum,
    convergence_rate,
    fixed_function,
    gradient_norm,
    independent_learning,
    learned_function,
    previous_optimum,
    theory_step,
    trace_constrained_oracle,
    unconditional_optimum,
    within_task_generalization,
)
from .estimates import Quantities, bound_from_quantities, bound_from_tasks, estimate_quantities
from .oracles import oracle_representation, previous_oracle, variational_trace_norm
from .surrogate import SurrogateValue, surrogate

__all__ = [
    "BOUNDS",
    "Bound",
    "Quantities",
    "SurrogateValue",
    "bound_from_quantities",
    "bound_from_tasks",
    "conditional_optimum",
    "convergence_rate",
    "estimate_quantities",
    "fixed_function",
    "gradient_norm",
    "independent_learning",
    "learned_function",
    "oracle_representation",
    "previous_optimum",
    "previous_oracle",
    "surrogate",
    "theory_step",
    "trace_constrained_oracle",
    "unconditional_optimum",
    "variational_trace_norm",
    "within_task_generalization",
]
