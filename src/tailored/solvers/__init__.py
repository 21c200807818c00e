"""Algorithm 1, which minimises the paper's surrogate, with step sizes that are given or selected on held-out tasks."""

from .algorithm_1 import StepSizes
from .search import PAPER_STEP_SIZES, DivergenceError, ProjectedSGD

__all__ = ["PAPER_STEP_SIZES", "DivergenceError", "ProjectedSGD", "StepSizes"]
