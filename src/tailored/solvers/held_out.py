"""The held-out tasks of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..tasks import TaskSet
from ..tasks.episodes import split_rows

Pairs = tuple[tuple[TaskSet, TaskSet], ...]


@dataclass(frozen=True)
class HeldOutPool:
    """Support and query rows of the tasks that are held out of a stream.

    In every block of ``1 / fraction`` consecutive tasks one, never the first, is held out, until
    ``limit`` tasks are there; after that all tasks train.  Until a first task is held out, the pool
    falls back on the first training tasks.  Everything follows from ``seed`` and the position in the
    stream; a pool that takes tasks in is a new one.
    """

    fraction: float
    support: float
    seed: int
    limit: int = 300
    fallback_limit: int = 4
    held_out: Pairs = ()
    fallback: Pairs = ()
    n_held_out: int = 0
    n_fallback: int = 0

    def partition(self, tasks: TaskSet, first_position: int) -> tuple[HeldOutPool, NDArray[np.bool_]]:
        """The pool after these tasks, the first of which is number ``first_position``, and which of them train."""
        block = max(2, round(1.0 / self.fraction))
        train, n_held_out = np.ones(len(tasks), dtype=bool), self.n_held_out
        for t in range(len(tasks)):
            number, place = divmod(first_position + t, block)
            chosen = 1 + int(np.random.default_rng([self.seed, 0, number]).integers(block - 1))
            if place == chosen and n_held_out < self.limit:
                train[t] = False
                n_held_out += 1
        held = np.flatnonzero(~train)
        early = np.flatnonzero(train)[: max(0, self.fallback_limit - self.n_fallback)]
        pool = replace(
            self,
            held_out=self.held_out + self._pairs(tasks[held], first_position + held),
            fallback=self.fallback + self._pairs(tasks[early], first_position + early),
            n_held_out=n_held_out,
            n_fallback=self.n_fallback + len(early),
        )
        return pool, train

    def add(self, tasks: TaskSet) -> HeldOutPool:
        """The pool with tasks that the user set aside."""
        positions = range(self.n_held_out, self.n_held_out + len(tasks))
        pairs = self._pairs(tasks, positions)
        return replace(self, held_out=self.held_out + pairs, n_held_out=self.n_held_out + len(tasks))

    def tasks(self) -> tuple[TaskSet, TaskSet]:
        """All held-out tasks as one (support, query) pair, so that the arithmetic is the same however
        the stream was cut; the first training tasks where none of these has a row to be asked about."""
        asked = next((some for some in (self.held_out, self.fallback) if _asks(some)), None)
        if asked is None:
            raise ValueError(
                "X: no task that was held out has a row to be asked about; give tasks with more rows, validation=, or a "
                "solver that chooses nothing, such as ProjectedSGD(step=0.1)"
            )
        support, query = zip(*asked, strict=True)
        return TaskSet.concat(support, relabel=True), TaskSet.concat(query, relabel=True)

    def _pairs(self, tasks: TaskSet, positions: Sequence[int] | NDArray[np.intp]) -> Pairs:
        return (split_rows(tasks, positions, self.support, (self.seed, 1)),) if len(tasks) else ()


def _asks(pairs: Pairs) -> bool:
    return any(len(query.y) for _, query in pairs)
