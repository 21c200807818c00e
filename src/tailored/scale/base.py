"""Task sources: a sample of whole tasks, and the statistics of all tasks.

The learner selects a model on the sample.  EM then fits the selected model to all tasks, for which
it only needs sums over tasks.  Tasks can be in memory, in a table that is read in batches, on a
Dask cluster, or on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record, cached_property
from .._utils.threads import in_threads, single_threaded_blas
from ..gaussian.em import Source as Statistics
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import LARGEST_STATISTICS, NEGLIGIBLE, Summed, Sums, Totals
from ..gaussian.responses import Gaussian, Response
from ..gaussian.rows import Tasks
from ..tasks.reading import label_keys
from ..tasks.rows import Array, Scaling
from ..tasks.task_set import TaskSet, check_same_columns

Part = TypeVar("Part", Totals, Sums)

#: Maximum number of floats of XᵀX in one block of tasks in memory (64 MB).
BLOCK_FLOATS = 8_000_000


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


@dataclass(frozen=True)
class Reader:
    """Convert tasks to the statistics that EM uses.

    ``side`` computes features (T, q) of the side information, and ``residuals`` subtracts shared
    effects from the targets.
    """

    scaling: Scaling
    side: Callable[[TaskSet], Array] | None = None
    residuals: Callable[[TaskSet], TaskSet] | None = None
    response: Response = field(default_factory=Gaussian)

    def __call__(self, tasks: TaskSet) -> Tasks:
        side = None if self.side is None else self.side(tasks)
        rest = tasks if self.residuals is None else self.residuals(tasks)
        return self.response.statistics(rest, self.scaling, side)


class TaskSource(Protocol):
    """Tasks to learn from: a random sample of whole tasks, and statistics of all of them."""

    @property
    def reservoir(self) -> Reservoir:
        """The sample; `Reservoir.is_whole` is True if it contains all tasks."""

    def statistics(self, read: Reader) -> Statistics:
        """Return the statistics of all tasks, for EM."""


def sum_in_order(parts: Iterable[Part]) -> Part:
    """Add the parts from first to last, so that the result is bitwise reproducible."""
    return reduce(add, parts)


@dataclass(frozen=True)
class Blocks:
    """Statistics of several blocks of tasks, summed in the order of the blocks."""

    loads: Sequence[Callable[[], Tasks]]  # called each time the statistics of a block are needed
    n_features: int
    n_threads: int = 1  # number of blocks that are summed in parallel; results do not depend on it

    def totals(self) -> Totals:
        calls = [(load,) for load in self.loads]
        return sum_in_order(in_threads(lambda load: load().totals(), calls, self.n_threads))

    def sums(self, model: Mixture, shares: Any = None) -> Summed:
        """Return the expected sufficient statistics.

        To save memory, the ``shares`` of a block have one bit per task and component: whether the
        responsibility is not negligible.
        """
        K = model.n_components

        def sums_of(load: Callable[[], Tasks], earlier: NDArray[np.uint8] | None) -> Summed:
            among = None
            if earlier is not None:
                among = np.unpackbits(earlier, axis=1, count=K).astype(bool)
            expected = load().posterior(model, Want(sums=True), among)
            kept = None if K == 1 else np.packbits(expected.shares > NEGLIGIBLE, axis=1)
            return Summed(expected.sums, kept)

        earlier = [None] * len(self.loads) if shares is None else shares
        calls = list(zip(self.loads, earlier, strict=True))
        with single_threaded_blas():
            found = in_threads(sums_of, calls, self.n_threads)
        sums = sum_in_order(each.sums for each in found)
        return Summed(sums, [each.shares for each in found])


@dataclass(frozen=True)
class MemorySource:
    """All tasks of a `TaskSet`.  Statistics that are too large are recomputed at each EM step."""

    tasks: TaskSet
    seed: int  # determines the sample, together with the labels
    n_threads: int = 1

    @cached_property
    def reservoir(self) -> Reservoir:
        return Reservoir(seed=self.seed).take(self.tasks)

    def statistics(self, read: Reader) -> Statistics:
        """Return blocks of tasks in the order of their keys; a single block unless Gaussian."""
        d = len(read.scaling.columns)
        size = max(1, BLOCK_FLOATS // d**2)
        order = np.argsort(label_keys(self.tasks.labels, self.seed), kind="stable")
        if not read.response.is_gaussian:
            return replace(read(self.tasks[order]), n_threads=self.n_threads)

        # Each block copies its rows when it is loaded: sorting all rows at once would need twice
        # their memory.
        def load(start: int) -> Tasks:
            return read(self.tasks[order[start : start + size]])

        loads: list[Callable[[], Tasks]] = [
            partial(load, start) for start in range(0, len(order), size)
        ]
        if len(order) * d * d <= LARGEST_STATISTICS:
            loads = [cache(each) for each in loads]  # statistics that fit into memory are kept
        return Blocks(loads, d, self.n_threads)
