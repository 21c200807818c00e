"""A bounded random sample of whole tasks, drawn by label while rows arrive in any order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

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


class Index(NamedTuple):
    """Index of the tasks of a sample; with it, a batch without side information is added without reading earlier rows."""

    keys: Keys  # keys of the sampled tasks, ascending
    counts: NDArray[np.int64]  # number of values in the rows of each sampled task
    batch_keys: tuple[Keys, ...] = ()  # keys of the tasks in each batch, including dropped tasks

    def add(self, batch: Keys, counts: NDArray[np.int64]) -> Index:
        keys, position = np.unique(np.concatenate([self.keys, batch]), return_inverse=True)
        total = np.zeros(len(keys), dtype=np.int64)
        np.add.at(total, position, np.concatenate([self.counts, counts]))
        return Index(keys, total, (*self.batch_keys, batch))


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
    batches: tuple[TaskSet, ...] = ()  # in order of arrival; the first has at least two thirds of the rows
    limit: int = NO_LIMIT  # tasks with this key or a larger one are not in the sample

    def __len__(self) -> int:
        return len(self._index.keys)

    @cached_property
    def sample(self) -> TaskSet:
        """The sampled tasks in order of arrival; there must be at least one."""
        if self.is_whole:
            return TaskSet.merge(self.batches)
        sampled = (keys < np.uint64(self.limit) for keys in self._index.batch_keys)
        pairs = zip(self.batches, sampled, strict=True)
        return TaskSet.merge(batch[some] for batch, some in pairs if some.any())

    @property
    def is_whole(self) -> bool:
        """Whether the sample contains all tasks, because none has been dropped."""
        return self.limit == NO_LIMIT

    @cached_property
    def _index(self) -> Index:
        index = Index(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))
        for batch in self.batches:
            index = index.add(label_keys(batch.labels, self.seed), _counts(batch))
        n = int(np.searchsorted(index.keys, np.uint64(self.limit)))
        return index._replace(keys=index.keys[:n], counts=index.counts[:n])

    def contains(self, tasks: TaskSet) -> NDArray[np.bool_]:
        """Return a mask of the tasks that have rows in the sample."""
        return np.isin(label_keys(tasks.labels, self.seed), self._index.keys)

    def with_earlier_rows(self, tasks: TaskSet) -> TaskSet:
        """Return ``tasks`` with the rows of the reservoir in front of the rows of the same tasks."""
        keys = label_keys(tasks.labels, self.seed)[self.contains(tasks)]
        wanted = [np.isin(batch_keys, keys) for batch_keys in self._index.batch_keys]
        earlier = [batch[some] for batch, some in zip(self.batches, wanted, strict=True) if some.any()]
        everything = TaskSet.merge([*earlier, tasks])
        return everything[everything.index_of(tasks.labels)]

    def take(self, batch: TaskSet) -> Reservoir:
        """Return the reservoir after adding a batch of new tasks or of further rows of earlier tasks."""
        keys = label_keys(batch.labels, self.seed)
        if not self.is_whole:
            sampled = keys < np.uint64(self.limit)
            batch, keys = batch[sampled], keys[sampled]
        if not len(batch):
            return self
        # Raise an error here if the batch could not be merged later.
        if self.batches:
            check_same_columns([self.batches[0], batch])
        if batch.side_info is not None and self.contains(batch).any():
            self.with_earlier_rows(batch)
        index, limit = self._index.add(keys, _counts(batch)), self.limit
        n = int(np.searchsorted(np.cumsum(index.counts), self.numbers, side="right"))
        # At least one task is kept, however many rows it has.
        n = max(min(n, self.size), 1)
        if n < len(index.keys):
            limit = int(index.keys[n])
            index = index._replace(keys=index.keys[:n], counts=index.counts[:n])
        after = replace(self, batches=(*self.batches, batch), limit=limit)
        vars(after)["_index"] = index
        first, *later = (len(each.y) for each in after.batches)
        if later and (2 * sum(later) > first or len(after.batches) > MAX_BATCHES):
            return replace(after, batches=(after.sample,))
        return after


def _counts(tasks: TaskSet) -> NDArray[np.int64]:
    """Return the number of values in the rows of each task."""
    if tasks.is_sparse:
        return np.asarray(np.diff(tasks.X.indptr[tasks.offsets]) + tasks.sizes, dtype=np.int64)
    return np.asarray(tasks.sizes * (tasks.n_features + 1), dtype=np.int64)
