"""Solvers that minimise the paper's objectives.

A solver is an object with its settings, given to a learner as ``solver``.  `SOLVERS` lists the names.
"""

from __future__ import annotations

from .._utils.validation import check_choice
from .base import DivergenceError, Solver
from .lbfgs import LBFGS
from .projected import PAPER_STEP_SIZES, ProjectedSGD, StepSizes

#: Valid names of a learner's ``solver``.
SOLVERS: dict[str, type[Solver]] = {"projected": ProjectedSGD, "lbfgs": LBFGS}


def get_solver(solver: str | Solver) -> Solver:
    """Return the solver itself, or the one of this name with its default settings."""
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
    "DivergenceError",
    "ProjectedSGD",
    "Solver",
    "StepSizes",
    "get_solver",
]
