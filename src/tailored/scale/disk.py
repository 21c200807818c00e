"""Tasks of a table that is read in batches: a sample in memory, and statistics on disk.

One pass over the table partitions its rows by task and draws the sample.  When the model is
selected on the sample, each partition is converted to a block of statistics, and EM reads these
blocks.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._utils.threads import single_threaded_blas
from ..gaussian.rows import Tasks
from ..tasks.reading import label_keys, offsets_of
from ..tasks.task_set import TaskSet
from .base import Blocks, Reader, Reservoir, Statistics
from .scan import TaskScan

#: Number of partitions, and maximum size in bytes of the rows of whole tasks that are read at once.
N_PARTITIONS, READ_BYTES = 64, 256_000_000


class DiskSource:
    """The tasks of a table, whose rows and statistics are stored in an empty folder."""

    def __init__(self, scan: TaskScan, folder: Path, seed: int, n_threads: int = 1) -> None:
        self._rows, self._blocks, self._n_threads = folder / "rows", folder / "blocks", n_threads
        self._rows.mkdir()
        self._blocks.mkdir()
        self.reservoir = Reservoir(seed=seed)
        for tasks, position in scan.batches():
            try:
                self.reservoir = self.reservoir.take(tasks)
            except ValueError as error:
                raise ValueError(f"data: {position}: {error}") from error
            self._append(tasks)
        if not self.reservoir.batches:
            raise ValueError(
                f"data: {scan.table.name} has no rows, or can be read only once and was read before"
            )

    def _append(self, batch: TaskSet) -> None:
        """Append the rows of a batch to the files of the partitions of its tasks."""
        partition = (_keys(batch) % N_PARTITIONS).astype(np.intp)
        order = np.argsort(partition, kind="stable")
        batch, ends = batch[order], np.searchsorted(partition[order], np.arange(N_PARTITIONS + 1))
        for i in range(N_PARTITIONS):
            if ends[i] < ends[i + 1]:
                part = batch[ends[i] : ends[i + 1]]
                with open(self._rows / f"{i:02d}", "ab") as file:
                    pickle.dump((part.labels, part.sizes, part.X, part.y, part.side_info), file)

    def statistics(self, read: Reader) -> Statistics:
        """Write the statistics of all tasks in blocks."""
        loads = []
        for i, tasks in enumerate(self._tasks()):
            path = self._blocks / str(i)
            with single_threaded_blas(), open(path, "wb") as file:
                pickle.dump(read(tasks), file)
            loads.append(partial(_read_block, path))
        return Blocks(loads, len(read.scaling.columns), self._n_threads)

    def _tasks(self) -> Iterator[TaskSet]:
        """Yield all tasks, in sets of bounded size, with columns and encoding of the sample.

        A partition that is too large to be read at once is read several times, for some of its
        tasks each time.
        """
        for path in sorted(self._rows.iterdir()):
            n_parts = -(-path.stat().st_size // READ_BYTES)
            for part in range(n_parts):
                batches = [
                    batch if n_parts == 1 else batch[_keys(batch) // N_PARTITIONS % n_parts == part]
                    for batch in _read_rows(path, self.reservoir.sample)
                ]
                tasks = TaskSet.merge(batches).in_label_order()
                if len(tasks):
                    yield tasks


def _keys(tasks: TaskSet) -> Any:
    """Return the keys that assign tasks to partitions.  Their seed differs from that of the sample,
    so that partitions and sample are independent.
    """
    return label_keys(tasks.labels, 0x5AFE)


def _read_rows(path: Path, like: TaskSet) -> Iterator[TaskSet]:
    """Yield the batches in the file of a partition."""
    with open(path, "rb") as file:
        end = path.stat().st_size
        while file.tell() < end:
            labels, sizes, X, y, side = pickle.load(file)  # written by this process
            yield like.replace(X=X, y=y, offsets=offsets_of(sizes), labels=labels, side_info=side)


def _read_block(path: Path) -> Tasks:
    with open(path, "rb") as file:
        statistics: Tasks = pickle.load(file)  # written by this process
    return statistics
