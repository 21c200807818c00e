"""L-BFGS on the mean objective over all tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy import optimize

from .._utils.threads import single_threaded_blas
from .._utils.validation import check_int
from ..tasks.rows import Array
from .base import Problem, Solution, Solver, concatenate
from .factored import FactoredObjective, Factors, Start, find_start

#: Number of past steps and gradient differences that L-BFGS keeps.
MEMORY = 20
#: Number of splits of each task into support and query rows for the query risk; one split would be overfitted.
SPLITS = 4
#: Multiples of τ outside this range are not tried.
SCALE_RANGE = 2.0**-12, 2.0**12


class LBFGS(Solver):
    """L-BFGS on factors of H = MMᵀ and C = FFᵀ and on the prior mean, over all tasks at once.

    The initial C and b₀ are those of a linear mixed model, and the initial M is small and random.  Every iterate is
    evaluated on the held-out tasks.  The solver stops when their error has not decreased for 10 iterations, and returns
    the best iterate.

    Parameters
    ----------
    max_passes : int, default=50
        Largest number of iterations.
    """

    streams: ClassVar[bool] = False
    patience: ClassVar[int] = 10  # iterations without a smaller error on the held-out tasks before it stops

    def __init__(self, max_passes: int = 50) -> None:
        self.max_passes = max_passes

    def n_ticks(self, n_tasks: int) -> int:
        return self.max_passes

    def check(self, *, inner: str, rank: int | None, conditional: bool) -> None:
        check_int("max_passes", self.max_passes)
        if inner != "exact":
            raise ValueError("inner: LBFGS differentiates the exact solution; use inner='exact'")
        if conditional and rank is None:
            raise ValueError(
                "rank: LBFGS needs a factor of H with a fixed number of columns; give a rank, for instance rank=32"
            )

    def solve(self, problem: Problem, state: Any = None) -> Solution:
        with single_threaded_blas():
            start = find_start(problem, np.random.default_rng(problem.seed)) if state is None else state
            best = BestIterate(problem, start)
            self._minimise(problem, start, best)
        return best.solution()

    def _minimise(self, problem: Problem, start: Start, best: BestIterate) -> None:
        """Evaluate iterates until ``patience`` or ``max_passes`` is reached."""
        objective = FactoredObjective(problem.objective, start.coordinates.unit, problem.n_jobs)
        n_splits = SPLITS if problem.objective.needs_query else 1
        batch = start.coordinates.batch(concatenate([problem.redraw(i) for i in range(n_splits)]))
        factors = start.factors
        # Divide by the initial value, because the tolerances of L-BFGS are absolute.
        size = objective(factors, batch)[0] or 1.0

        def function(vector: Array) -> tuple[float, Array]:
            value, gradient = objective(factors.unpack(vector), batch)
            if not np.isfinite(value):
                return np.inf, np.zeros_like(vector)
            return value / size, gradient.pack() / size

        def evaluate(vector: Array) -> None:
            best.evaluate(factors.unpack(vector.copy()))
            if problem.tick is not None:
                problem.tick(1)
            if best.n_without_gain >= self.patience:
                raise StopIteration

        vector, settings = factors.pack(), {"jac": True, "method": "L-BFGS-B", "callback": evaluate}
        while best.n_without_gain < self.patience and (left := self.max_passes - best.n_iter) > 0:
            before = best.n_iter
            options = {"maxiter": left, "maxcor": MEMORY, "maxfun": 20 * left}
            result = optimize.minimize(function, vector, options=options, **settings)
            vector = result.x
            # A kink of the loss can end the line search.  Restart without the stored curvature, if the last
            # run made at least one iteration.
            if result.status != 2 or best.n_iter == before:
                break


class BestIterate:
    """The initial or later factors with the smallest error on the held-out tasks, and their multiple of τ."""

    def __init__(self, problem: Problem, start: Start) -> None:
        self.problem, self.start = problem, start
        self.factors, self.scale, self.error = start.factors, start.scale, np.inf
        self.n_without_gain = 0
        self.history: list[dict[str, Any]] = []
        self.evaluate(start.factors)

    @property
    def n_iter(self) -> int:
        return len(self.history) - 1

    def evaluate(self, factors: Factors) -> None:
        """Compute the error with the best multiple of τ; keep the factors if their error is the smallest so far."""

        def error_of(scale: float) -> float:
            assert self.problem.held_out_error is not None
            raw = self.start.coordinates.original(factors)
            conditioning = raw.conditioning(self.problem.rank).scale(scale)
            return self.problem.held_out_error(conditioning, raw.bias(self.problem.start.bias.kind))

        tuned = self.problem.tune_scale
        scale, error = best_scale(error_of, self.scale) if tuned else (self.scale, error_of(self.scale))
        self.history.append({"iteration": len(self.history), "scale": scale, "error": error})
        self.n_without_gain += 1
        if error < self.error:
            self.factors, self.scale, self.error, self.n_without_gain = factors, scale, error, 0

    def solution(self) -> Solution:
        """Return the best iterate as a solution."""
        raw = self.start.coordinates.original(self.factors)
        prior = self.problem.prior(
            raw.conditioning(self.problem.rank).scale(self.scale), raw.bias(self.problem.start.bias.kind)
        )
        state = replace(self.start, factors=self.factors, scale=self.scale)
        return Solution(prior, state, self.history, self.error, self.scale, max(self.n_iter, 1), {})


def best_scale(error: Callable[[float], float], scale: float) -> tuple[float, float]:
    """Double or halve ``scale`` while the error decreases; return the scale and its error."""
    here = error(scale)
    least, ratio = min((error(scale * ratio), ratio) for ratio in (0.5, 2.0))
    while least < here and SCALE_RANGE[0] <= scale * ratio <= SCALE_RANGE[1]:
        scale, here = scale * ratio, least
        least = error(scale * ratio)
    return scale, here
