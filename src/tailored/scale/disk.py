"""Tasks of a table that is read in batches: a sample in memory, and statistics on disk.

One pass over the table partitions its rows by task and draws the sample.  When the model is
selected on the sample, each partition is converted to a block of statistics, and EM reads these
blocks.  A checkpoint is a folder that keeps the blocks.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import joblib
import numpy as np

from .. import _version
from .._utils.files import write_atomically
from .._utils.frames import read_frame
from .._utils.threads import single_threaded_blas
from ..gaussian.mixture import unpacked
from ..gaussian.moments import Moments
from ..gaussian.rows import Tasks
from ..tasks.reading import label_keys, offsets_of
from ..tasks.task_set import TaskSet
from .base import Blocks, Reader, Reservoir, Statistics
from .scan import TaskScan

#: Number of partitions, and maximum size in bytes of the rows of whole tasks that are read at once.
N_PARTITIONS, READ_BYTES = 64, 256_000_000


class PartitionedRows:
    """Rows on disk: each batch is appended to the files of the partitions of its tasks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.close()  # remove the rows of an interrupted fit
        folder.mkdir(parents=True)

    def add(self, batch: TaskSet) -> None:
        """Append the rows of a batch."""
        partition = (_keys(batch) % N_PARTITIONS).astype(np.intp)
        order = np.argsort(partition, kind="stable")
        batch, ends = batch[order], np.searchsorted(partition[order], np.arange(N_PARTITIONS + 1))
        for i in range(N_PARTITIONS):
            if ends[i] < ends[i + 1]:
                part = batch[ends[i] : ends[i + 1]]
                with open(self.folder / f"{i:02d}", "ab") as file:
                    pickle.dump((part.labels, part.sizes, part.X, part.y, part.side_info), file)

    def tasks(self, like: TaskSet) -> Iterator[TaskSet]:
        """Yield all tasks, in sets of bounded size, with the columns and the encoding of ``like``.

        A partition that is too large to be read at once is read several times, for some of its
        tasks each time.
        """
        for path in sorted(self.folder.iterdir()):
            n_parts = -(-path.stat().st_size // READ_BYTES)
            for part in range(n_parts):
                batches = [
                    batch if n_parts == 1 else batch[_keys(batch) // N_PARTITIONS % n_parts == part]
                    for batch in _read_rows(path, like)
                ]
                tasks = TaskSet.merge(batches).in_label_order()
                if len(tasks):
                    yield tasks

    def close(self) -> None:
        """Delete the rows."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _keys(tasks: TaskSet) -> Any:
    """Return the keys that assign tasks to partitions.  Their seed differs from that of the sample,
    so that partitions and sample are independent.
    """
    return label_keys(tasks.labels, 0x5AFE)


def _read_rows(path: Path, like: TaskSet) -> Iterator[TaskSet]:
    with open(path, "rb") as file:
        end = path.stat().st_size
        while file.tell() < end:
            labels, sizes, X, y, side = pickle.load(file)  # written by this process
            yield like.replace(X=X, y=y, offsets=offsets_of(sizes), labels=labels, side_info=side)


def write_block(path: Path, statistics: Tasks) -> None:
    """Write statistics; for XᵀX, only the lower triangle is written."""
    i, j = np.tril_indices(statistics.n_features)
    side = np.zeros((len(statistics), 0)) if statistics.side is None else statistics.side
    arrays = (statistics.gram[:, i, j], statistics.cross, statistics.square, statistics.sizes, side)

    def write(file: IO[bytes]) -> None:
        for array in arrays:
            np.save(file, np.ascontiguousarray(array))

    write_atomically(path, write)


def read_block(path: Path) -> Moments:
    """Read the statistics that `write_block` wrote; raise ValueError if this is not possible."""
    try:
        with open(path, "rb") as file:
            triangle, cross, square, sizes, side = (np.load(file) for _ in range(5))
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(
            f"checkpoint: the block {path} cannot be read ({error}). Delete the folder "
            f"{path.parent}, and fit again."
        ) from error
    gram = np.take(triangle, unpacked(cross.shape[1]), axis=1)
    return Moments(gram, cross, square, sizes, side if side.shape[1] else None)


class DiskSource:
    """The tasks of a table, whose statistics are stored in a folder.

    ``settings`` are all on which the statistics depend; None for a folder that is never reused.
    Otherwise, the file checkpoint.json is written after the last block, with the settings and a
    hash of the table.  A later fit with this folder reads the table once, to compare the hash and
    to draw the sample, and reuses the blocks.
    """

    def __init__(
        self,
        scan: TaskScan,
        folder: Path,
        seed: int,
        settings: dict[str, Any] | None = None,
        n_threads: int = 1,
    ) -> None:
        self._folder, self._n_threads, self._is_kept = folder, n_threads, settings is not None
        self._record, self._stored = folder / "checkpoint.json", {}
        self._rows = PartitionedRows(folder / "tailored-rows")
        if self._is_kept and self._record.exists():
            self._stored = json.loads(self._record.read_text())
        roles = {f"columns ({name})": value for name, value in scan.roles._asdict().items()}
        versions = {"version of tailored": _version.__version__, "encoding": scan.given_encoding}
        described = {**roles, **versions, "seed": seed, **(settings or {})}
        self._described = {name: repr(value) for name, value in described.items()}
        self._check()
        self.reservoir = Reservoir(seed=seed)
        self._read(scan)
        self._check()

    def _read(self, scan: TaskScan) -> None:
        """Partition the rows, draw the sample, and describe the content of the table."""
        types, n_rows, content = "", 0, hashlib.blake2b(digest_size=16)
        for tasks, batch in scan.batches():
            try:
                self.reservoir = self.reservoir.take(tasks)
                if not self._stored:
                    self._rows.add(tasks)
            except ValueError as error:
                raise ValueError(f"data: {batch.position}: {error}") from error
            if self._is_kept:  # the hash takes a seventh of the time of the pass
                frame = read_frame(batch.frame, "data")
                types, n_rows = str(dict(frame.schema)), n_rows + len(frame)
                for name in frame.columns:
                    content.update(joblib.hash(frame[name].to_numpy()).encode())
        if not len(self.reservoir):
            raise ValueError(
                f"data: {scan.table.name} has no rows, or can be read only once and was read before"
            )
        table = {"column types": types, "number of rows": n_rows, "hash": content.hexdigest()}
        self._described |= {f"{name} (table)": str(value) for name, value in table.items()}

    def _check(self) -> None:
        """Raise ValueError if the folder was written for another table or with other settings."""
        for name, value in self._described.items():
            if self._stored.get(name, value) != value:
                raise ValueError(
                    f"checkpoint: the folder {self._folder} was written with {name} = "
                    f"{self._stored[name]}, and this fit has {value}. Use another folder, or "
                    "delete this one."
                )

    def statistics(self, read: Reader) -> Statistics:
        """Write the statistics of all tasks, or reuse those of a completed checkpoint."""
        n_blocks = self._stored.get("blocks", 0)
        if not n_blocks:
            for tasks in self._rows.tasks(self.reservoir.sample):
                with single_threaded_blas():
                    statistics = read(tasks)
                write_block(self._path(n_blocks), statistics)
                n_blocks += 1
            stored = {**self._described, "blocks": n_blocks}
            write_atomically(self._record, json.dumps(stored).encode())
        loads = [partial(read_block, self._path(i)) for i in range(n_blocks)]
        return Blocks(loads, len(read.scaling.columns), self._n_threads)

    def _path(self, block: int) -> Path:
        return self._folder / f"{block}.block"

    def close(self) -> None:
        """Delete the rows; the statistics stay in the folder."""
        self._rows.close()
