"""Tasks of a table that is read in batches: a sample in memory, and statistics of all tasks on disk.

One pass over the table partitions its rows by task and draws the sample.  When the scaling is known, each partition is
converted to blocks of statistics.  All files are in one temporary folder.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from .._utils.threads import single_threaded_blas
from ..gaussian.mixture import unpacked
from ..gaussian.moments import Moments
from ..gaussian.rows import Tasks
from ..tasks.reading import label_keys
from ..tasks.task_set import TaskSet, offsets_of
from .base import Blocks, LazyBlock, Reader, Statistics
from .reservoir import Reservoir
from .scan import TaskScan

#: Number of partitions, and maximum size in bytes of a partition that is read at once.
N_PARTITIONS, PARTITION_BYTES = 64, 64_000_000
#: Seed of the keys that assign tasks to partitions.  It differs from that of samples, so that the two are independent.
PARTITION_SEED = 0x5AFE


@dataclass(frozen=True)
class PartitionedRows:
    """Rows on disk, partitioned by task: each batch is appended to the files of the partitions of its tasks.

    When all batches have been added, a partition contains whole tasks.  A partition that is too large to be read at once is
    partitioned again.
    """

    folder: Path
    depth: int = 0  # number of times that these tasks have already been partitioned

    def path(self, partition: int) -> Path:
        return self.folder / f"{partition:02d}.rows"

    def add(self, batch: TaskSet) -> None:
        """Append the rows of a batch."""
        keys = label_keys(batch.labels, PARTITION_SEED + self.depth)
        partition = (keys % np.uint64(N_PARTITIONS)).astype(np.intp)
        order = np.argsort(partition, kind="stable")
        batch, ends = batch[order], np.searchsorted(partition[order], np.arange(N_PARTITIONS + 1))
        self.folder.mkdir(parents=True, exist_ok=True)
        for i in range(N_PARTITIONS):
            if ends[i] < ends[i + 1]:
                part = batch[ends[i] : ends[i + 1]]
                with open(self.path(i), "ab") as file:
                    pickle.dump((part.labels, part.sizes, part.X, part.y, part.side_info), file)

    def tasks(self, partition: int, like: TaskSet) -> Iterator[TaskSet]:
        """Return the whole tasks of a partition in sets that fit into memory, with the column names of ``like``."""
        path = self.path(partition)
        if not path.exists():
            return
        if path.stat().st_size <= PARTITION_BYTES:
            yield TaskSet.merge(self._batches(path, like)).in_label_order()
            return
        finer = PartitionedRows(self.folder / f"{partition:02d}", self.depth + 1)
        for batch in self._batches(path, like):
            finer.add(batch)
        if max(file.stat().st_size for file in finer.folder.glob("*.rows")) == path.stat().st_size:
            # A single task cannot be partitioned.
            yield TaskSet.merge(self._batches(path, like))
        else:
            for i in range(N_PARTITIONS):
                yield from finer.tasks(i, like)
        shutil.rmtree(finer.folder)

    @staticmethod
    def _batches(path: Path, like: TaskSet) -> Iterator[TaskSet]:
        """Return the batches of a file, with the column names and the encoding of ``like``."""
        with open(path, "rb") as file:
            end = path.stat().st_size
            while file.tell() < end:
                labels, sizes, X, y, side = pickle.load(file)  # written by this process
                yield like.replace(X=X, y=y, offsets=offsets_of(sizes), labels=labels, side_info=side)


def write_block(path: Path, statistics: Tasks) -> None:
    """Write statistics; for XᵀX, only the lower triangle is written."""
    i, j = np.tril_indices(statistics.n_features)
    side = np.zeros((len(statistics), 0)) if statistics.side is None else statistics.side
    with open(path, "wb") as file:
        for array in (statistics.gram[:, i, j], statistics.cross, statistics.square, statistics.sizes, side):
            np.save(file, np.ascontiguousarray(array))


def read_block(path: Path) -> Moments:
    """Read the statistics that `write_block` wrote."""
    with open(path, "rb") as file:
        triangle, cross, square, sizes, side = (np.load(file) for _ in range(5))
    gram = np.take(triangle, unpacked(cross.shape[1]), axis=1)
    return Moments(gram, cross, square, sizes, side if side.shape[1] else None)


class DiskSource:
    """The tasks of a table, stored in an empty folder.  ``seed`` is the seed of the sample."""

    def __init__(self, scan: TaskScan, folder: Path, *, seed: int, n_threads: int = 1) -> None:
        self._folder, self._n_threads = folder, n_threads
        self._rows = PartitionedRows(folder / "rows")
        self.reservoir, self.target_range = Reservoir(seed=seed), (np.inf, -np.inf)
        for tasks, position in scan.batches():
            try:
                self._rows.add(tasks)
                self.reservoir = self.reservoir.take(tasks)
            except ValueError as error:
                raise ValueError(f"data: {position}: {error}") from error
            low, high = self.target_range
            self.target_range = min(low, float(tasks.y.min())), max(high, float(tasks.y.max()))
        if not len(self.reservoir):
            raise ValueError(f"data: {scan.table.name} has no rows")

    def statistics(self, read: Reader) -> Statistics:
        """Write the statistics of all tasks."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        blocks: list[LazyBlock] = []
        for partition in range(N_PARTITIONS):
            for tasks in self._rows.tasks(partition, self.reservoir.sample):
                path = folder / f"{len(blocks)}.block"
                with single_threaded_blas():
                    write_block(path, read(tasks))
                blocks.append(LazyBlock(partial(read_block, path), len(read.scaling.columns)))
        return Blocks(blocks, self._n_threads)
