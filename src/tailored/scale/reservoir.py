"""A bounded random sample of whole tasks, drawn by label while rows arrive in any order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record, cached_property
from ..tasks.reading import label_keys
from ..tasks.task_set import TaskSet, check_same_columns

#: Value of `Reservoir.limit` while all tasks are in the sample.  One in 2⁶⁴ labels has this key and
#: is never drawn.
NO_LIMIT = np.iinfo(np.uint64).max


@dataclass(frozen=True)
class Reservoir(Record):
    """A random sample: the tasks with the smallest keys, which depend only on labels and seed.

    A task in the sample has been in it since its first row, so its rows are complete.  `take`
    returns a new reservoir. Batches are merged, and rows of dropped tasks removed, only when enough
    rows have been added.  The time to add a batch therefore does not grow with the rows of the
    sample, on average.
    """

    size: int = 5_000  # maximum number of tasks
    numbers: int = 8_000_000  # maximum number of values in their rows (64 MB)
    seed: int = 0  # seed of the keys
    batches: tuple[TaskSet, ...] = ()  # in order of arrival
    limit: int = NO_LIMIT  # tasks with this key or a larger one are not in the sample

    def __len__(self) -> int:
        return len(self.sample) if self.batches else 0

    @property
    def sample(self) -> TaskSet:
        """The sampled tasks in order of arrival; there must be at least one."""
        return self.merged.batches[0]

    @property
    def is_whole(self) -> bool:
        """Whether the sample contains all tasks, because none has been dropped."""
        return self.merged.limit == NO_LIMIT

    @cached_property
    def merged(self) -> Reservoir:
        """The same sample as a single batch, without the tasks that it has no space for."""
        if not self.batches:
            return self
        tasks = TaskSet.merge(self.batches)
        keys = label_keys(tasks.labels, self.seed)
        order = np.argsort(keys)
        n = int(np.searchsorted(np.cumsum(_counts(tasks)[order]), self.numbers, side="right"))
        # At least one task is kept, however many rows it has.
        n = max(min(n, self.size), 1)
        if n >= len(keys):
            return replace(self, batches=(tasks,))
        limit = keys[order[n]]
        return replace(self, batches=(tasks[keys < limit],), limit=int(limit))

    def take(self, batch: TaskSet) -> Reservoir:
        """Return the reservoir with a batch of new tasks or further rows of earlier tasks."""
        if self.limit != NO_LIMIT:
            batch = batch[label_keys(batch.labels, self.seed) < np.uint64(self.limit)]
        if not len(batch):
            return self
        # Raise an error here if the batch could not be merged later.
        if self.batches:
            check_same_columns([self.batches[0], batch])
        after = replace(self, batches=(*self.batches, batch))
        first, *later = (len(each.y) for each in after.batches)
        return after.merged if 2 * sum(later) > first else after


def _counts(tasks: TaskSet) -> NDArray[np.int64]:
    """Return the number of values in the rows of each task."""
    if tasks.is_sparse:
        return np.asarray(np.diff(tasks.X.indptr[tasks.offsets]) + tasks.sizes, dtype=np.int64)
    return np.asarray(tasks.sizes * (tasks.n_features + 1), dtype=np.int64)
