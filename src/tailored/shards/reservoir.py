"""A bounded random sample of whole tasks, whatever order their rows come in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..tasks import TaskSet
from ..tasks.pieces import label_keys, merged

#: Tasks of a sample that forms are chosen on, as many as `fit` looks at, and numbers in their rows (64 MB).
SAMPLE_TASKS, SAMPLE_NUMBERS = 5_000, 8_000_000
#: No key is as large, or one label in 2⁶⁴ is never drawn.
EVERY = np.iinfo(np.uint64).max


@dataclass(frozen=True)
class Reservoir:
    """The tasks with the smallest keys (`label_keys`): a random sample that only depends on the labels.

    A task that is in it has been in it since its first row, so that its rows are all there.  Taking more in makes a
    new one.

    Attributes
    ----------
    size, numbers : int
        Tasks, and numbers in their rows, that it may hold.
    seed : int
        Of the keys.
    tasks : TaskSet or None
        In the order in which they came; None before the first.
    limit : int
        Tasks with this key or a larger one are let go.
    """

    size: int = SAMPLE_TASKS
    numbers: int = SAMPLE_NUMBERS
    seed: int = 0
    tasks: TaskSet | None = None
    limit: int = EVERY

    def __len__(self) -> int:
        return 0 if self.tasks is None else len(self.tasks)

    @property
    def sample(self) -> TaskSet:
        """The tasks, of which there are some."""
        assert self.tasks is not None
        return self.tasks

    @property
    def is_whole(self) -> bool:
        """Whether no task was let go yet."""
        return self.limit == EVERY

    def holds(self, tasks: TaskSet) -> np.ndarray:
        """Which of these tasks are in the sample, or would be."""
        return np.asarray(label_keys(tasks.labels, self.seed) < np.uint64(self.limit))

    def take(self, piece: TaskSet) -> Reservoir:
        """The sample after these tasks, or further rows of earlier ones."""
        inside = piece if self.is_whole else piece[self.holds(piece)]
        if not len(inside):
            return self
        tasks = inside if self.tasks is None else merged([self.tasks, inside])
        keys = label_keys(tasks.labels, self.seed)
        order = np.argsort(keys)
        held = np.cumsum(_numbers(tasks)[order])
        fits = int(np.searchsorted(held, self.numbers, side="right"))
        # One task is always kept, however many rows it has.
        fits = max(min(fits, self.size), 1)
        if fits == len(tasks):
            return replace(self, tasks=tasks)
        limit = int(keys[order[fits]])
        return replace(self, tasks=tasks[np.flatnonzero(keys < np.uint64(limit))], limit=limit)


def _numbers(tasks: TaskSet) -> np.ndarray:
    """Numbers in the rows of each task."""
    if tasks.is_sparse:
        return np.asarray(np.diff(tasks.X.indptr[tasks.offsets]) + tasks.sizes)
    return tasks.sizes * (tasks.n_features + 1)
