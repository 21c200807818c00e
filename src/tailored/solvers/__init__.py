"""How the paper's surrogate is minimised: Algorithm 1, with its step sizes given or selected on held-out tasks."""

from .algorithm_1 import StepSizes
from .search import PAPER_STEP_SIZES, DivergenceError, ProjectedSGD

__all__ = ["PAPER_STEP_SIZES", "DivergenceError", "ProjectedSGD", "StepSizes"]
