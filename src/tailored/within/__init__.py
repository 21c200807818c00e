"""Within-task algorithms: one task's weights from its rows, given its representation."""

from ._solve import WITHIN, WithinSolution, WithinSolutions, solve, solve_many

__all__ = ["WITHIN", "WithinSolution", "WithinSolutions", "solve", "solve_many"]
