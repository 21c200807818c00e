"""Tasks of a table that is read in batches: a sample in memory, and statistics of all tasks on disk.

One pass over the table partitions its rows by task and draws the sample.  When the scaling is known, each partition is
converted to blocks of statistics.  All files are in one folder.  An interrupted fit resumes there from the last journal
entry and from the completed blocks.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .._utils.files import write_atomically
from .._utils.threads import single_threaded_blas
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import NEGLIGIBLE, Moments, Summed, Totals
from ..gaussian.rows import Tasks
from ..tasks.reading import label_keys
from ..tasks.rows import Scaling
from ..tasks.task_set import TaskSet, offsets_of
from .base import Blocks, Reader, Statistics
from .reservoir import Reservoir
from .scan import TaskScan

#: Number of values that are read between two journal entries (800 MB).
JOURNAL_NUMBERS = 100_000_000
#: Number of partitions, and the size in bytes up to which a partition is read at once.
N_PARTITIONS, PARTITION_BYTES = 64, 64_000_000
#: Seed of the keys that partition tasks.  It differs from that of samples, which would otherwise fall into one partition.
PARTITION_SEED = 0x5AFE


# ---------------------------------------------------------------- files


def _write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value).encode())


def _write_array(file: IO[bytes], array: np.ndarray) -> None:
    """Append an array; one of objects (numbers, strings, None) is stored as JSON."""
    if array.dtype == object:
        array = np.frombuffer(json.dumps(array.tolist()).encode(), dtype=np.uint8)
        np.lib.format.write_array(file, np.array(["json"]))
    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def _read_array(file: IO[bytes]) -> np.ndarray:
    """Read the next array that `_write_array` wrote."""
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind != "U" or array.shape != (1,) or array[0] != "json":
        return array
    rows = json.loads(np.lib.format.read_array(file, allow_pickle=False).tobytes())
    if not rows or not isinstance(rows[0], list):
        return np.fromiter(rows, dtype=object, count=len(rows))
    table = np.empty((len(rows), len(rows[0])), dtype=object)
    table[:] = rows
    return table


def _write_tasks(file: IO[bytes], tasks: TaskSet) -> None:
    """Append rows, labels and side information of tasks, without column names."""
    side = np.zeros((len(tasks), 0)) if tasks.side_info is None else tasks.side_info
    for array in (tasks.labels, tasks.sizes, tasks.X, tasks.y, side):
        _write_array(file, array)


def _read_tasks(file: IO[bytes], like: TaskSet) -> TaskSet:
    """Read the next tasks, with the column names and the encoding of ``like``."""
    labels, sizes, X, y, side = (_read_array(file) for _ in range(5))
    side_info: Any = None if like.side_info is None else side
    return like.replace(X=X, y=y, offsets=offsets_of(sizes), labels=labels, side_info=side_info)


# ---------------------------------------------------------------- rows, partitioned by task


@dataclass(frozen=True)
class PartitionedRows:
    """Rows on disk, partitioned by task: each batch is appended to the files of the partitions of its tasks.

    When all batches have been added, a partition contains whole tasks.  One that is too large to be read at once is
    partitioned again.
    """

    folder: Path
    depth: int = 0  # how often these tasks were partitioned before

    def path(self, partition: int) -> Path:
        return self.folder / f"{partition:02d}.rows"

    def sizes(self) -> list[int]:
        """Return the size of each partition's file in bytes."""
        paths = map(self.path, range(N_PARTITIONS))
        return [path.stat().st_size if path.exists() else 0 for path in paths]

    def truncate(self, sizes: list[int]) -> None:
        """Remove what was appended since the partitions had these ``sizes``."""
        for partition, size in enumerate(sizes):
            if self.path(partition).exists():
                os.truncate(self.path(partition), size)

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
                with open(self.path(i), "ab") as file:
                    _write_tasks(file, batch[ends[i] : ends[i + 1]])

    def flush(self) -> None:
        """Flush all appended rows to disk (fsync)."""
        for partition in range(N_PARTITIONS):
            if self.path(partition).exists():
                with open(self.path(partition), "rb+") as file:
                    os.fsync(file.fileno())

    def tasks(self, partition: int, like: TaskSet) -> Iterator[TaskSet]:
        """Return the whole tasks of a partition in sets that fit into memory, with the column names of ``like``."""
        path = self.path(partition)
        if not path.exists() or not path.stat().st_size:
            return
        if path.stat().st_size <= PARTITION_BYTES:
            yield TaskSet.merge(self._batches(path, like)).in_label_order()
            return
        finer = PartitionedRows(self.folder / f"{partition:02d}", self.depth + 1)
        finer.clear()  # remove what an interrupted fit left
        for batch in self._batches(path, like):
            finer.add(batch)
        if max(finer.sizes()) == path.stat().st_size:
            # A single task cannot be partitioned.
            yield TaskSet.merge(self._batches(path, like))
        else:
            for i in range(N_PARTITIONS):
                yield from finer.tasks(i, like)
        finer.clear()

    @staticmethod
    def _batches(path: Path, like: TaskSet) -> Iterator[TaskSet]:
        with open(path, "rb") as file:
            end = path.stat().st_size
            while file.tell() < end:
                yield _read_tasks(file, like)

    def clear(self) -> None:
        """Delete the files."""
        for partition in range(N_PARTITIONS):
            self.path(partition).unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()


# ---------------------------------------------------------------- blocks of statistics


@dataclass(frozen=True)
class BlockFile:
    """Statistics of a block of tasks in a file, read whenever they are needed."""

    path: Path
    n_features: int

    def totals(self) -> Totals:
        return read_block(self.path).totals()

    def sums(self, model: Mixture, shares: NDArray[np.uint8] | None = None) -> Summed:
        """Return the sums of an EM step.

        ``shares`` are kept as bits, which components have a share that is not negligible, to save memory.
        """
        K = model.n_components
        among = None if shares is None else np.unpackbits(shares, axis=1, count=K).astype(bool)
        expected = read_block(self.path).posterior(model, Want(sums=True), among)
        kept = None if K == 1 else np.packbits(expected.shares > NEGLIGIBLE, axis=1)
        return Summed(expected.sums, kept)


def write_block(path: Path, statistics: Tasks) -> None:
    """Write statistics, with the upper triangle of XᵀX."""
    i, j = np.triu_indices(statistics.n_features)
    side = np.zeros((len(statistics), 0)) if statistics.side is None else statistics.side
    arrays = (statistics.gram[:, i, j], statistics.cross, statistics.square, statistics.sizes, side)

    def write(file: IO[bytes]) -> None:
        for array in arrays:
            _write_array(file, array)

    write_atomically(path, write)


def read_block(path: Path) -> Moments:
    """Read the statistics that `write_block` wrote."""
    try:
        with open(path, "rb") as file:
            triangle, cross, square, sizes, side = (_read_array(file) for _ in range(5))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"checkpoint: the block {path} cannot be read ({error}); delete it and fit again"
        ) from error
    d = cross.shape[1]
    position = np.empty((d, d), dtype=np.intp)
    i, j = np.triu_indices(d)
    position[i, j] = position[j, i] = np.arange(len(i))
    gram = np.take(triangle, position.ravel(), axis=1).reshape(len(sizes), d, d)
    return Moments(gram, cross, square, sizes, side if side.shape[1] else None)


# ---------------------------------------------------------------- the source


class TableDigest:
    """Number of batches and rows, columns, and a hash of the content of the part of a table that was read.

    Without ``with_hash`` the content is not hashed, which saves about a seventh of the time of the pass.
    """

    def __init__(self, *, with_hash: bool) -> None:
        self.n_batches, self._n_rows, self._columns, self._with_hash = 0, 0, "", with_hash
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, frame: Any) -> None:
        """Add a batch, a narwhals dataframe."""
        columns = ", ".join(f"{name} ({frame[name].dtype})" for name in frame.columns)
        self._columns = self._columns or columns
        self._hash.update(f"{columns}, {len(frame)} rows".encode())
        for name in frame.columns if self._with_hash else ():
            values = frame[name].to_numpy()
            is_numeric = values.dtype.kind in "biufmM"
            self._hash.update(values.tobytes() if is_numeric else repr(values.tolist()).encode())
        self.n_batches += 1
        self._n_rows += len(frame)

    def summary(self) -> dict[str, Any]:
        return {"columns": self._columns, "rows": self._n_rows, "content": self._hash.hexdigest()}


@dataclass(frozen=True)
class Journal:
    """Progress of the pass over a table."""

    n_batches: int = 0
    digest: dict[str, Any] = field(default_factory=dict)  # `TableDigest.summary` of these batches
    low: float = np.inf  # range of the targets
    high: float = -np.inf
    sizes: tuple[int, ...] = (0,) * N_PARTITIONS  # size of each partition in bytes
    limit: int = 0  # `Reservoir.limit` of the sample
    features: tuple[str, ...] = ()  # names
    done: bool = False  # whether the whole table was read


class DiskSource:
    """The tasks of a table, in a folder.

    A folder that was used before is only accepted for the same table and the same settings.  Its content is compared by
    the hash of all values that were read, which takes a pass over the table.  ``seed`` is that of the sample; ``settings``
    is what else the content of the folder depends on, None for a temporary folder, which is never used again.
    """

    def __init__(
        self, scan: TaskScan, folder: Path, *, seed: int, settings: dict[str, Any] | None, n_threads: int = 1
    ) -> None:
        self._scan, self._folder, self._n_threads = scan, folder, n_threads
        self._is_temporary = settings is None
        self._rows = PartitionedRows(folder / "rows")
        self.reservoir = Reservoir(seed=seed)
        self.journal = Journal()
        folder.mkdir(parents=True, exist_ok=True)
        if settings is not None:
            roles = {f"column roles ({name})": value for name, value in scan.roles._asdict().items()}
            self._check_settings({**roles, "encoding": repr(scan.given_encoding), "seed": seed, **settings})
        self._restore()
        self._read()

    @property
    def target_range(self) -> tuple[float, float]:
        return self.journal.low, self.journal.high

    def statistics(self, read: Reader) -> Statistics:
        """Write the statistics of all tasks, except for blocks that an interrupted fit has written."""
        kind = "targets" if read.residuals is None else "residuals"
        folder = self._folder / f"blocks-{kind}-{_digest_scaling(read.scaling)}"
        folder.mkdir(exist_ok=True)
        blocks: list[BlockFile] = []
        for partition in range(N_PARTITIONS):
            names = folder / f"{partition:02d}.json"
            if not names.exists():
                _write_json(names, self._write_blocks(folder, partition, read))
            blocks += [
                BlockFile(folder / name, len(read.scaling.columns)) for name in json.loads(names.read_text())
            ]
        return Blocks(blocks, self._n_threads)

    def _write_blocks(self, folder: Path, partition: int, read: Reader) -> list[str]:
        names = []
        for i, tasks in enumerate(self._rows.tasks(partition, self.reservoir.sample)):
            with single_threaded_blas():
                statistics = read(tasks)
            names.append(f"{partition:02d}-{i}.block")
            write_block(folder / names[-1], statistics)
        return names

    def close(self) -> None:
        """Delete the rows; the statistics stay in the folder."""
        self._rows.clear()

    def _check_settings(self, settings: dict[str, Any]) -> None:
        """Store the settings in a new folder, or check that they are those of the folder."""
        path, mine = self._folder / "settings.json", json.loads(json.dumps(settings, default=str))
        if not path.exists():
            _write_json(path, mine)
            return
        stored = json.loads(path.read_text())
        for name in [*mine, *stored]:
            if mine.get(name) != stored.get(name):
                raise ValueError(
                    f"checkpoint: the folder {self._folder} was written with {name} = {stored.get(name)!r}, and this fit "
                    f"has {mine.get(name)!r}. Use another folder, or delete this one."
                )

    def _check_digest(self, digest: TableDigest) -> None:
        """Raise if the part of the table that the folder contains is not the one read now."""
        for name, found in digest.summary().items():
            stored = self.journal.digest[name]
            if stored != found:
                what = f"other {name}" + ("" if name == "content" else f": {stored} there, {found} here")
                raise ValueError(
                    f"checkpoint: the folder {self._folder} was written for other data than {self._scan.table.name} "
                    f"({what}). Use another folder, or delete this one."
                )

    def _restore(self) -> None:
        """Restore the state of the last journal entry: sample and sizes of the partitions."""
        path = self._folder / "journal.json"
        if path.exists():
            self.journal = Journal(**json.loads(path.read_text()))
            like = self._scan.without_tasks(self.journal.features)
            with open(self._folder / f"sample-{self.journal.n_batches}.tasks", "rb") as file:
                batches = (_read_tasks(file, like),)
            self.reservoir = replace(self.reservoir, batches=batches, limit=self.journal.limit)
        if not self.journal.done:
            self._rows.truncate(list(self.journal.sizes))

    def _read(self) -> None:
        """Read the table: compare the part that the folder contains, and add the rest."""
        state, sample, n_numbers = self.journal, self.reservoir, 0
        digest = TableDigest(with_hash=not self._is_temporary)
        n_stored, is_done = state.n_batches, state.done

        def observe(frame: Any) -> None:
            digest.add(frame)
            if digest.n_batches == n_stored:
                self._check_digest(digest)

        for tasks, position in self._scan.batches(n_stored, observe):
            if is_done:
                self._check_digest(digest)  # raises: the table has more batches than the folder
            try:
                self._rows.add(tasks)
                sample = sample.take(tasks)
            except ValueError as error:
                raise ValueError(f"data: {position}: {error}") from error
            state = replace(
                state,
                n_batches=digest.n_batches,
                features=tuple(map(str, tasks.feature_names)),  # type: ignore[arg-type]
                low=min(state.low, float(tasks.y.min())),
                high=max(state.high, float(tasks.y.max())),
            )
            n_numbers += tasks.X.size + len(tasks.y)
            if n_numbers > JOURNAL_NUMBERS:
                self._write_journal(state, sample, digest)
                n_numbers = 0
        if digest.n_batches < n_stored:
            self._check_digest(digest)
        if not len(sample):
            raise ValueError(f"data: {self._scan.table.name} has no rows")
        if not is_done:
            self._write_journal(replace(state, done=True), sample, digest)

    def _write_journal(self, state: Journal, sample: Reservoir, digest: TableDigest) -> None:
        self._rows.flush()
        state = replace(state, sizes=tuple(self._rows.sizes()), limit=sample.limit, digest=digest.summary())
        new = self._folder / f"sample-{state.n_batches}.tasks"
        write_atomically(new, lambda file: _write_tasks(file, sample.sample))
        _write_json(self._folder / "journal.json", asdict(state))
        for old in self._folder.glob("sample-*.tasks"):
            if old != new:
                old.unlink()
        self.journal, self.reservoir = state, sample


def digest_tasks(tasks: TaskSet | None) -> str:
    """Return a hash of the rows, labels and side information of tasks."""
    digest = hashlib.blake2b(digest_size=16)
    if tasks is not None:
        X = tasks.X
        for part in [X.indptr, X.indices, X.data] if tasks.is_sparse else [X]:
            digest.update(part.tobytes())
        digest.update(tasks.y.tobytes() + tasks.offsets.tobytes())
        side = [] if tasks.side_info is None else tasks.side_info.tolist()
        digest.update(repr((tasks.labels.tolist(), side)).encode())
    return digest.hexdigest()


def _digest_scaling(scaling: Scaling) -> str:
    values = [*scaling.columns, *scaling.shift, scaling.target, scaling.target_shift, scaling.fit_intercept]
    return hashlib.blake2b(np.array(values, dtype=float).tobytes(), digest_size=8).hexdigest()
