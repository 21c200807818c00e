"""Tasks of a table that is read in batches: a sample in memory, and statistics of all tasks on disk.

One pass over the table partitions its rows by task and draws the sample.  When the scaling is known, each partition is
converted to blocks of statistics.  All files are in one folder.  If an interrupted fit is repeated with this folder, it reads
the table again, checks that its content has not changed, and reuses the completed blocks.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import joblib
import numpy as np

from .._utils.files import write_atomically
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
#: Seed of the keys that assign tasks to partitions.  It differs from the seed of the sample, so that partitions and
#: sample are independent.
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
        if batch.is_sparse:
            raise TypeError("data: sparse tasks cannot be partitioned on disk; pass dense columns")
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
        """Yield the whole tasks of a partition in sets of bounded size (or one larger task), with the columns of ``like``."""
        path = self.path(partition)
        if not path.exists() or not path.stat().st_size:
            return
        if path.stat().st_size <= PARTITION_BYTES:
            yield TaskSet.merge(self._batches(path, like)).in_label_order()
            return
        finer = PartitionedRows(self.folder / f"{partition:02d}", self.depth + 1)
        finer.clear()  # remove files of an interrupted fit
        for batch in self._batches(path, like):
            finer.add(batch)
        if max(file.stat().st_size for file in finer.folder.glob("*.rows")) == path.stat().st_size:
            # A single task cannot be partitioned.
            yield TaskSet.merge(self._batches(path, like))
        else:
            for i in range(N_PARTITIONS):
                yield from finer.tasks(i, like)
        finer.clear()

    @staticmethod
    def _batches(path: Path, like: TaskSet) -> Iterator[TaskSet]:
        """Yield the batches of a file, with the column names and the encoding of ``like``."""
        with open(path, "rb") as file:
            end = path.stat().st_size
            while file.tell() < end:
                labels, sizes, X, y, side = pickle.load(file)  # written by this process
                yield like.replace(
                    X=X, y=y, offsets=offsets_of(sizes), labels=labels, side_info=side
                )

    def clear(self) -> None:
        """Delete the files, and the folder if it is then empty."""
        for partition in range(N_PARTITIONS):
            self.path(partition).unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()


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
            f"checkpoint: the block {path} cannot be read ({error}). Delete the folder {path.parent}, and fit again."
        ) from error
    gram = np.take(triangle, unpacked(cross.shape[1]), axis=1)
    return Moments(gram, cross, square, sizes, side if side.shape[1] else None)


class DiskSource:
    """The tasks of a table, stored in a folder.

    A folder can only be reused with the same table and the same settings.  Tables are compared by a hash of all values.
    ``seed`` is the seed of the sample.  ``settings`` are all other settings on which the files depend; None for a temporary
    folder, which is never reused.
    """

    def __init__(
        self,
        scan: TaskScan,
        folder: Path,
        *,
        seed: int,
        settings: dict[str, Any] | None,
        n_threads: int = 1,
    ) -> None:
        self._scan, self._folder, self._n_threads = scan, folder, n_threads
        self._rows = PartitionedRows(folder / "rows")
        self._rows.clear()  # remove files of an interrupted fit
        self.reservoir = Reservoir(seed=seed)
        folder.mkdir(parents=True, exist_ok=True)
        if settings is not None:
            roles = {
                f"column roles ({name})": value for name, value in scan.roles._asdict().items()
            }
            settings = {**roles, "encoding": repr(scan.given_encoding), "seed": seed, **settings}
            self._check("settings", settings)
        # A temporary folder does not need the hash, which takes a seventh of the time of the pass.
        digest = self._read(with_hash=settings is not None)
        if settings is not None:
            self._check("table", digest)

    def _read(self, *, with_hash: bool) -> dict[str, Any]:
        """Partition the rows of the table and draw the sample; return columns, number of rows and hash of the table."""
        columns, n_rows, content = "", 0, hashlib.blake2b(digest_size=16)
        for tasks, position, frame in self._scan.batches():
            types = ", ".join(f"{name} ({frame[name].dtype})" for name in frame.columns)
            columns, n_rows = columns or types, n_rows + len(frame)
            content.update(f"{types}, {len(frame)} rows".encode())
            for name in frame.columns if with_hash else ():
                content.update(joblib.hash(frame[name].to_numpy()).encode())
            try:
                self._rows.add(tasks)
                self.reservoir = self.reservoir.take(tasks)
            except ValueError as error:
                raise ValueError(f"data: {position}: {error}") from error
        if not len(self.reservoir):
            raise ValueError(f"data: {self._scan.table.name} has no rows")
        return {"columns": columns, "rows": n_rows, "content": content.hexdigest()}

    def _check(self, name: str, values: dict[str, Any]) -> None:
        """Store the values in a new folder, or check that they equal those stored in the folder."""
        path, mine = self._folder / f"{name}.json", json.loads(json.dumps(values, default=str))
        if not path.exists():
            write_atomically(path, json.dumps(mine).encode())
            return
        stored = json.loads(path.read_text())
        for key in [*mine, *stored]:
            if mine.get(key) != stored.get(key):
                raise ValueError(
                    f"checkpoint: the folder {self._folder} was written with {key} = {stored.get(key)!r} of the {name}, "
                    f"and this fit has {mine.get(key)!r}. Use another folder, or delete this one."
                )

    def statistics(self, read: Reader) -> Statistics:
        """Return the statistics of all tasks, written to disk; partitions that an interrupted fit has completed are reused."""
        kind = "targets" if read.residuals is None else "residuals"
        scaling = read.scaling
        values = [
            scaling.columns,
            scaling.shift,
            scaling.target,
            scaling.target_shift,
            scaling.fit_intercept,
        ]
        folder = self._folder / f"blocks-{kind}-{joblib.hash(values)}"
        folder.mkdir(exist_ok=True)
        blocks: list[LazyBlock] = []
        for partition in range(N_PARTITIONS):
            names = folder / f"{partition:02d}.json"
            if not names.exists():
                written = []
                for i, tasks in enumerate(self._rows.tasks(partition, self.reservoir.sample)):
                    with single_threaded_blas():
                        statistics = read(tasks)
                    written.append(f"{partition:02d}-{i}.block")
                    write_block(folder / written[-1], statistics)
                write_atomically(names, json.dumps(written).encode())
            stored = json.loads(names.read_text())
            blocks += [
                LazyBlock(partial(read_block, folder / name), len(scaling.columns))
                for name in stored
            ]
        return Blocks(blocks, self._n_threads)

    def close(self) -> None:
        """Delete the rows; the statistics stay in the folder."""
        self._rows.clear()


def digest_tasks(tasks: TaskSet | None) -> str:
    """Return a hash of the rows, labels and side information of tasks; the empty string for None."""
    if tasks is None:
        return ""
    return str(joblib.hash([tasks.X, tasks.y, tasks.offsets, tasks.labels, tasks.side_info]))
