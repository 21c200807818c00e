"""A bounded random sample of whole tasks, drawn by label while rows arrive in any order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record, cached_property
from ..tasks.reading import Keys, label_keys
from ..tasks.task_set import TaskSet, check_same_columns

#: Maximum number of tasks in a sample, and maximum number of values in their rows (64 MB).
SAMPLE_TASKS, SAMPLE_NUMBERS = 5_000, 8_000_000
#: Value of `Reservoir.limit` while all tasks are in the sample.  One in 2⁶⁴ labels has this key and is never drawn.
NO_LIMIT = np.iinfo(np.uint64).max
#: Maximum number of batches that are stored separately before they are merged.
MAX_BATCHES = 32


@dataclass(frozen=True)
class Reservoir(Record):
    """A random sample: the tasks with the smallest keys (`label_keys`), which depend only on labels and seed.

    A task in the sample has been in it since its first row, so its rows are complete.  `take` returns a new reservoir.
    Batches are merged, and rows of dropped tasks removed, only when enough rows have been added.  The time to add a batch
    therefore does not grow with the rows of the sample, on average.
    """

    size: int = SAMPLE_TASKS  # maximum number of tasks
    numbers: int = SAMPLE_NUMBERS  # maximum number of values in their rows
    seed: int = 0  # seed of the keys
    batches: tuple[
        TaskSet, ...
    ] = ()  # in order of arrival; the first has at least two thirds of the rows
    limit: int = NO_LIMIT  # tasks with this key or a larger one are not in the sample

    def __len__(self) -> int:
        return len(self._index[0])

    @cached_property
    def sample(self) -> TaskSet:
        """The sampled tasks in order of arrival; there must be at least one."""
        if self.is_whole:
            return TaskSet.merge(self.batches)
        sampled = (self._sampled(batch) for batch in self.batches)
        return TaskSet.merge(batch for batch in sampled if len(batch))

    @property
    def is_whole(self) -> bool:
        """Whether the sample contains all tasks, because none has been dropped."""
        return self.limit == NO_LIMIT

    def _sampled(self, batch: TaskSet) -> TaskSet:
        """Return the tasks of a batch that are in the sample."""
        return (
            batch
            if self.is_whole
            else batch[label_keys(batch.labels, self.seed) < np.uint64(self.limit)]
        )

    @cached_property
    def _index(self) -> tuple[Keys, NDArray[np.int64]]:
        """The keys of the sampled tasks, ascending, and the number of values in their rows."""
        index = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
        for batch in self.batches:
            index = self._add(index, batch)
        n = int(np.searchsorted(index[0], np.uint64(self.limit)))
        return index[0][:n], index[1][:n]

    def _add(
        self, index: tuple[Keys, NDArray[np.int64]], batch: TaskSet
    ) -> tuple[Keys, NDArray[np.int64]]:
        """Return the index after adding a batch."""
        keys = np.concatenate([index[0], label_keys(batch.labels, self.seed)])
        keys, position = np.unique(keys, return_inverse=True)
        counts = np.zeros(len(keys), dtype=np.int64)
        np.add.at(counts, position, np.concatenate([index[1], _counts(batch)]))
        return keys, counts

    def take(self, batch: TaskSet) -> Reservoir:
        """Return the reservoir after adding a batch of new tasks or of further rows of earlier tasks."""
        batch = self._sampled(batch)
        if not len(batch):
            return self
        # Raise an error here if the batch could not be merged later.
        if self.batches:
            check_same_columns([self.batches[0], batch])
        (keys, counts), limit = self._add(self._index, batch), self.limit
        n = int(np.searchsorted(np.cumsum(counts), self.numbers, side="right"))
        # At least one task is kept, however many rows it has.
        n = max(min(n, self.size), 1)
        if n < len(keys):
            limit = int(keys[n])
        after = replace(self, batches=(*self.batches, batch), limit=limit)
        vars(after)["_index"] = keys[:n], counts[:n]
        first, *later = (len(each.y) for each in after.batches)
        if later and (2 * sum(later) > first or len(after.batches) > MAX_BATCHES):
            return replace(after, batches=(after.sample,))
        return after


def _counts(tasks: TaskSet) -> NDArray[np.int64]:
    """Return the number of values in the rows of each task."""
    if tasks.is_sparse:
        return np.asarray(np.diff(tasks.X.indptr[tasks.offsets]) + tasks.sizes, dtype=np.int64)
    return np.asarray(tasks.sizes * (tasks.n_features + 1), dtype=np.int64)
