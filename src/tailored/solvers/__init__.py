"""Solvers that minimise the paper's objectives.

A solver is an object that holds its settings.  Pass it, or its name in `SOLVERS`, to a learner as ``solver``.
"""

from __future__ import annotations

from .._utils.validation import check_choice
from .base import DivergenceError, Solver
from .lbfgs import LBFGS
from .projected import PAPER_STEP_SIZES, ProjectedSGD, StepSizes

#: Valid names of a learner's ``solver``.
SOLVERS: dict[str, type[Solver]] = {"projected": ProjectedSGD, "lbfgs": LBFGS}


def get_solver(solver: str | Solver) -> Solver:
    """Return a solver object unchanged, or the solver with the given name and default settings."""
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
