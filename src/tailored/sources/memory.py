"""Tasks in memory that exceed the sample.  Statistics that do not fit into memory are recomputed at each EM step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from ..gaussian.moments import LARGEST_STATISTICS
from ..gaussian.rows import Tasks, statistics_of
from ..tasks.reading import label_keys
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .base import Blocks, LazyBlock, Reader, Statistics
from .reservoir import Reservoir

#: Number of floats of XᵀX in one block (64 MB).
BLOCK_FLOATS = 8_000_000


@dataclass(frozen=True)
class MemorySource:
    """All tasks of a `TaskSet`.  Labels and seed determine the sample."""

    tasks: TaskSet
    seed: int
    n_threads: int = 1

    @cached_property
    def reservoir(self) -> Reservoir:
        return Reservoir(seed=self.seed).take(self.tasks)

    @property
    def target_range(self) -> tuple[float, float]:
        return float(self.tasks.y.min()), float(self.tasks.y.max())

    def statistics(self, read: Reader) -> Statistics:
        """Return blocks of tasks, sorted by the hash of their labels; a single block if targets are not Gaussian."""
        d = len(read.scaling.columns)
        size = max(1, BLOCK_FLOATS // d**2)
        order = np.argsort(label_keys(self.tasks.labels, self.seed), kind="stable")
        if read.scaling.response != "gaussian":
            return replace(read(self.tasks[order]), n_threads=self.n_threads)
        index = [order[start : start + size] for start in range(0, len(order), size)]
        tasks = self.tasks
        if read.residuals is not None:
            y = [read.residuals(tasks[start : start + size]).y for start in range(0, len(tasks), size)]
            tasks = tasks.replace(y=np.concatenate(y))
        side = [None if read.side is None else read.side(self.tasks[block]) for block in index]

        # Each block copies its rows when it is summed: sorting all rows at once would need twice their memory.
        def load(block: NDArray[np.intp], side: Array | None) -> Tasks:
            return statistics_of(tasks[block], read.scaling, side)

        loads = [partial(load, *arguments) for arguments in zip(index, side, strict=True)]
        if len(tasks) * d * d <= LARGEST_STATISTICS:
            return Blocks([load() for load in loads], self.n_threads)
        return Blocks([LazyBlock(load, d) for load in loads], self.n_threads)
