"""How the paper's objectives are minimised.

A solver is an object with its settings, given to a learner as ``solver``; `SOLVERS` lists them by name.
"""

from __future__ import annotations

from .._utils.validation import check_choice
from .adam import Adam
from .base import DivergenceError, Problem, Solution, Solver
from .batch import TaskBatch
from .held_out import HeldOutPool
from .lbfgs import LBFGS
from .means import MeanAtTasks
from .projected import ProjectedSGD
from .steps import PAPER_STEP_SIZES, StepSizes
from .trajectory import Trajectory

#: Valid names of a learner's ``solver`` (besides objects).
SOLVERS: dict[str, type[Solver]] = {"projected": ProjectedSGD, "adam": Adam, "lbfgs": LBFGS}


def get_solver(solver: str | Solver) -> Solver:
    """A solver as it is, or the one of this name with its default settings."""
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, str):
        return SOLVERS[check_choice("solver", solver, SOLVERS)]()
    raise TypeError(
        f"solver: expected one of {sorted(SOLVERS)} or an object of tailored.solvers, "
        f"got {type(solver).__name__}"
    )


__all__ = [
    "LBFGS",
    "PAPER_STEP_SIZES",
    "SOLVERS",
    "Adam",
    "DivergenceError",
    "HeldOutPool",
    "MeanAtTasks",
    "Problem",
    "ProjectedSGD",
    "Solution",
    "Solver",
    "StepSizes",
    "TaskBatch",
    "Trajectory",
    "get_solver",
]
