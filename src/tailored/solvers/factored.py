"""What the solvers over factors of H and C share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from .._utils.threads import single_threaded_blas
from .._utils.validation import check_int
from .base import Problem, Solution, Solver
from .best import Best
from .factors import FactoredObjective
from .start import start
from .trajectory import Callback


class FactoredSolver(Solver):
    """Moves the factors of H = MMᵀ and C = FFᵀ and the prior mean, and keeps the best iterate.

    Starts from the C and b₀ of a linear mixed model and a small random M; every iterate is judged on the
    held-out tasks.
    """

    #: Times in a row that the held-out tasks gain nothing, after which the solver stops.
    patience: int
    max_passes: int

    def n_ticks(self, n_tasks: int) -> int:
        return self.max_passes

    def check(self, *, inner: str, rank: int | None, conditional: bool) -> None:
        name = type(self).__name__
        check_int("max_passes", self.max_passes)
        if inner != "exact":
            raise ValueError(f"inner: {name} differentiates the exact solution; use inner='exact'")
        if conditional and rank is None:
            raise ValueError(
                f"rank: {name} works on a factor of H with so many columns; give a rank, for instance rank=32"
            )

    def solve(self, problem: Problem, state: Any = None, callback: Callback | None = None) -> Solution:
        if callback is not None:
            raise ValueError(f"callback: {type(self).__name__} has no iterates to show; use ProjectedSGD")
        rng = np.random.default_rng(problem.seed)
        if problem.batch.lipschitz is not None:
            # all tasks are at hand: one constant for all of them
            constant = float(problem.batch.lipschitz[-1])
            problem = replace(problem, objective=problem.objective.with_lipschitz(constant))
        with single_threaded_blas():
            here = start(problem, rng) if state is None else state
            mean = FactoredObjective(problem.objective, here.coordinates.unit, problem.n_jobs)
            best = Best(problem, here, self.patience)
            self._climb(problem, mean, best, rng)
        return best.solution()

    @abstractmethod
    def _climb(
        self, problem: Problem, objective: FactoredObjective, best: Best, rng: np.random.Generator
    ) -> None:
        """Offer iterates to ``best`` until it is exhausted or the passes are."""
