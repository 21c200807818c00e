"""How the paper's objectives are minimised: Algorithm 1, with its step sizes given or selected on held-out tasks."""

from .base import DivergenceError
from .projected import PAPER_STEP_SIZES, ProjectedSGD, StepSizes

__all__ = ["PAPER_STEP_SIZES", "DivergenceError", "ProjectedSGD", "StepSizes"]
