"""Adam over mini-batches of tasks."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_int
from .base import Problem
from .best import Best
from .factored import FactoredSolver
from .factors import FactoredObjective

#: First step, in the coordinates of the start; it is halved whenever nothing is gained.
STEP = 0.01
#: Steps at least between two looks at the held-out tasks: passes over few tasks go together.
STEPS_BETWEEN = 16
#: Decay of the averages of the gradient and of its square.
DECAY = 0.9, 0.999


class Adam(FactoredSolver):
    """Adam over mini-batches of the tasks, judged by the mean of the latest iterates.

    Under the query risk, support rows are drawn anew for every pass.  A piece of a stream is learned from in
    several passes, from where the last one ended, so that how the stream is cut does matter.

    Parameters
    ----------
    batch_size : int, default=32
        Tasks in a step.
    max_passes : int, default=50
        Passes over the tasks.
    """

    patience = 5

    def __init__(self, batch_size: int = 32, max_passes: int = 50) -> None:
        self.batch_size = batch_size
        self.max_passes = max_passes

    def check(self, *, inner: str, rank: int | None, conditional: bool) -> None:
        super().check(inner=inner, rank=rank, conditional=conditional)
        check_int("batch_size", self.batch_size)

    def _climb(
        self, problem: Problem, objective: FactoredObjective, best: Best, rng: np.random.Generator
    ) -> None:
        start, here = best.state.factors, best.state.coordinates
        vector, step = start.pack(), STEP
        first, second, n_steps = np.zeros_like(vector), np.zeros_like(vector), 0
        total, n_summed = np.zeros_like(vector), 0
        beta, gamma = DECAY
        for number in range(1, self.max_passes + 1):
            batch = here.enter(problem.redraw(number - 1))
            n_pieces = max(1, round(len(batch) / self.batch_size))
            for piece in np.array_split(rng.permutation(len(batch)), n_pieces):
                g = objective(start.unpack(vector), batch.take(piece))[1].pack()
                n_steps += 1
                first = beta * first + (1.0 - beta) * g
                second = gamma * second + (1.0 - gamma) * g * g
                size = np.sqrt(second / (1.0 - gamma**n_steps))
                vector = vector - step * first / (1.0 - beta**n_steps) / np.where(size > 0, size, 1.0)
                total, n_summed = total + vector, n_summed + 1
            if problem.tick is not None:
                problem.tick(1)
            if not np.isfinite(vector).all():
                break
            if n_summed < STEPS_BETWEEN and number < self.max_passes:
                continue
            gained = best.offer(start.unpack(total / n_summed), number)
            total, n_summed = np.zeros_like(vector), 0
            if best.exhausted:
                break
            if not gained:
                step /= 2.0
                vector = best.factors.pack()
