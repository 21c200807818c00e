"""The best iterate of a solver, judged on held-out tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .base import Problem, Solution
from .factors import Factors
from .start import State

#: Multiples of τ outside this range are not tried.
SCALE_RANGE = 2.0**-12, 2.0**12


def best_scale(error: Callable[[float], float], scale: float) -> tuple[float, float]:
    """Walk from ``scale``, doubling or halving, to where the error stops falling; (scale, error)."""
    here = error(scale)
    least, ratio = min((error(scale * ratio), ratio) for ratio in (0.5, 2.0))
    while least < here and SCALE_RANGE[0] <= scale * ratio <= SCALE_RANGE[1]:
        scale, here = scale * ratio, least
        least = error(scale * ratio)
    return scale, here


class Best:
    """The best factors met so far with their multiple of τ, and how long ago that was; the start is among them."""

    def __init__(self, problem: Problem, state: State, patience: int) -> None:
        self.problem, self.state, self.patience = problem, state, patience
        self.factors, self.scale, self.error, self.waited = state.factors, state.scale, np.inf, 0
        self.history: list[dict[str, Any]] = []
        self.offer(state.factors, 0)

    def _error(self, factors: Factors, scale: float) -> float:
        assert self.problem.judge is not None
        raw = self.state.coordinates.leave(factors)
        conditioning = raw.conditioning(self.problem.rank).scale(scale)
        return self.problem.judge(conditioning, raw.bias(self.problem.start.bias.kind))

    def offer(self, factors: Factors, iteration: int) -> bool:
        """Judge new factors by the multiple of them that does best; whether they are the best so far."""
        if self.problem.calibrate:
            scale, error = best_scale(lambda c: self._error(factors, c), self.scale)
        else:
            scale, error = self.scale, self._error(factors, self.scale)
        self.history.append({"iteration": iteration, "scale": scale, "error": error})
        gained = error < self.error
        if gained:
            self.factors, self.scale, self.error = factors, scale, error
        self.waited = 0 if gained else self.waited + 1
        return gained

    @property
    def exhausted(self) -> bool:
        return self.waited >= self.patience

    def solution(self) -> Solution:
        """What the solver returns."""
        raw = self.state.coordinates.leave(self.factors)
        prior = self.problem.solved(
            raw.conditioning(self.problem.rank).scale(self.scale), raw.bias(self.problem.start.bias.kind)
        )
        state = replace(self.state, factors=self.factors, scale=self.scale)
        n_iter = max(self.history[-1]["iteration"], 1)
        return Solution(prior, state, self.history, self.error, self.scale, n_iter, {})
