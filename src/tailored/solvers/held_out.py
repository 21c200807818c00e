"""Hold out tasks of a stream for selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..tasks.episodes import split_rows
from ..tasks.task_set import TaskSet

Pairs = tuple[tuple[TaskSet, TaskSet], ...]


@dataclass(frozen=True)
class HeldOutPool:
    """Support and query rows of the tasks that are held out of a stream.

    One task in every block of ``1 / fraction`` consecutive tasks is held out, never the first of the block, up to
    ``limit`` tasks.  All later tasks are used for training.  Until the first task is held out, the pool uses the
    first training tasks instead.  The draws depend only on ``seed`` and the position in the stream.
    """

    fraction: float
    support: float
    seed: int
    limit: int = 300
    fallback_limit: int = 4
    held_out: Pairs = ()
    fallback: Pairs = ()

    def partition(self, tasks: TaskSet, first_position: int) -> tuple[HeldOutPool, NDArray[np.bool_]]:
        """Hold out some of these tasks; return the extended pool and a mask of the training tasks.

        ``first_position`` is the position of the first task in the stream.
        """
        block = max(2, round(1.0 / self.fraction))
        train, n_held_out = np.ones(len(tasks), dtype=bool), _n_tasks(self.held_out)
        for t in range(len(tasks)):
            number, position = divmod(first_position + t, block)
            drawn = 1 + int(np.random.default_rng([self.seed, 0, number]).integers(block - 1))
            if position == drawn and n_held_out < self.limit:
                train[t] = False
                n_held_out += 1
        held = np.flatnonzero(~train)
        early = np.flatnonzero(train)[: max(0, self.fallback_limit - _n_tasks(self.fallback))]
        pool = replace(
            self,
            held_out=self.held_out + self._pairs(tasks[held], first_position + held),
            fallback=self.fallback + self._pairs(tasks[early], first_position + early),
        )
        return pool, train

    def add(self, tasks: TaskSet) -> HeldOutPool:
        """Return the pool extended by validation tasks from the user."""
        first = _n_tasks(self.held_out)
        return replace(self, held_out=self.held_out + self._pairs(tasks, range(first, first + len(tasks))))

    def add_pair(self, support: TaskSet, query: TaskSet) -> HeldOutPool:
        """Return the pool extended by support and query rows from the user."""
        return replace(self, held_out=(*self.held_out, (support, query)))

    def tasks(self) -> tuple[TaskSet, TaskSet]:
        """Return all held-out tasks as one (support, query) pair.

        Joining them makes the result bitwise independent of how the stream was split.
        """
        pools = (self.held_out, self.fallback)
        pairs = next((pairs for pairs in pools if any(len(query.y) for _, query in pairs)), None)
        if pairs is None:
            raise ValueError(
                "X: none of the held-out tasks has a query row. Give tasks with more rows, validation=, or a "
                "step size, such as solver=ProjectedSGD(step=0.1)"
            )
        support, query = zip(*pairs, strict=True)
        return TaskSet.concat(support, relabel=True), TaskSet.concat(query, relabel=True)

    def _pairs(self, tasks: TaskSet, positions: Sequence[int] | NDArray[np.intp]) -> Pairs:
        return (split_rows(tasks, positions, self.support, (self.seed, 1)),) if len(tasks) else ()


def _n_tasks(pairs: Pairs) -> int:
    return sum(len(support) for support, _ in pairs)
