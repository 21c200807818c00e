"""Within-task algorithms."""

from .solving import WITHIN, WithinSolution, WithinSolutions, solve, solve_many

__all__ = ["WITHIN", "WithinSolution", "WithinSolutions", "solve", "solve_many"]
