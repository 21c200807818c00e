"""L-BFGS over all tasks at once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from .base import Problem
from .batch import concatenated
from .best import Best
from .factored import FactoredSolver
from .factors import FactoredObjective

Array = NDArray[np.float64]

#: Pairs that are kept.
MEMORY = 20
#: Draws of support rows that are seen of every task under the query risk; with a single one it learns which
#: rows are in it.
DRAWS = 4


class LBFGS(FactoredSolver):
    """L-BFGS over all tasks at once, stopped when the held-out tasks gain nothing any more.

    Parameters
    ----------
    max_passes : int, default=50
        Iterations.
    """

    streams: ClassVar[bool] = False
    patience = 10

    def __init__(self, max_passes: int = 50) -> None:
        self.max_passes = max_passes

    def _climb(
        self, problem: Problem, objective: FactoredObjective, best: Best, rng: np.random.Generator
    ) -> None:
        n_draws = DRAWS if problem.objective.needs_query else 1
        batch = best.state.coordinates.enter(concatenated([problem.redraw(i) for i in range(n_draws)]))
        start = best.state.factors
        # relative to the start, because the tolerances of L-BFGS are absolute
        size = objective(start, batch)[0] or 1.0

        def function(vector: Array) -> tuple[float, Array]:
            value, gradient = objective(start.unpack(vector), batch)
            if not np.isfinite(value):
                return np.inf, np.zeros_like(vector)
            return value / size, gradient.pack() / size

        def judge(vector: Array) -> None:
            best.offer(start.unpack(vector.copy()), len(best.history))
            if problem.tick is not None:
                problem.tick(1)
            if best.exhausted:
                raise StopIteration

        vector = start.pack()
        while not best.exhausted and (left := self.max_passes - len(best.history) + 1) > 0:
            before = len(best.history)
            found = optimize.minimize(
                function,
                vector,
                jac=True,
                method="L-BFGS-B",
                callback=judge,
                options={"maxiter": left, "maxcor": MEMORY, "maxfun": 20 * left},
            )
            vector = found.x
            # A kink of the loss ends the line search early: forget the curvature and go on from there, once
            # at least one iteration has been made.
            if found.status != 2 or len(best.history) == before:
                break
