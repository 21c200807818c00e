"""From a table to blocks of statistics on disk and a sample of whole tasks, in memory that does not grow with it.

One pass over the table parts its rows by task (`Spill`), draws the sample, and notes the range of the targets; when the
units are known, each part becomes blocks of statistics.  All of it lives in one folder.  Whoever is killed finds
there how far it came: rows up to the last note in the journal, and blocks that are whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .._utils.threads import single_threaded_blas
from ..gaussian import Source, TaskStatistics
from ..tasks import TaskScan, TaskSet, Units
from .disk import StatisticsOnDisk, write_block
from .files import read_tasks, write_tasks, write_whole
from .recorded import Recorded
from .reservoir import Reservoir
from .spill import PARTS, Spill

Array = NDArray[np.float64]

#: Numbers that are read between two notes in the journal (800 MB).
NOTE_NUMBERS = 100_000_000


@dataclass(frozen=True)
class Journal:
    """How far a table was read: batches, rows, the range of targets, bytes in each part, the sample's limit, names."""

    n_batches: int = 0
    n_rows: int = 0
    low: float = np.inf
    high: float = -np.inf
    sizes: tuple[int, ...] = (0,) * PARTS
    limit: int = 0
    features: tuple[str, ...] = ()
    done: bool = False


class Collection:
    """The tasks of a table in a folder.

    Parameters
    ----------
    scan : TaskScan
    folder : Path
    seed : int
        Of the sample.
    about : dict
        What else the folder's content depends on; another one is refused.
    """

    def __init__(self, scan: TaskScan, folder: Path, *, seed: int, about: dict[str, Any]) -> None:
        self._scan, self._folder = scan, folder
        self._rows = Spill(folder / "rows")
        self._sample = Reservoir(seed=seed)
        self.journal = Journal()
        folder.mkdir(parents=True, exist_ok=True)
        claim = {"table": scan.table.name, "columns": list(scan.columns), "encoding": repr(scan.given)}
        self._claim({**claim, "seed": seed, **about})
        self._recover()
        if not self.journal.done:
            self._read()

    @property
    def reservoir(self) -> Reservoir:
        """The sample as it may go on growing."""
        return self._sample

    @property
    def target_range(self) -> tuple[float, float]:
        return self.journal.low, self.journal.high

    def source(
        self,
        units: Units,
        describe: Callable[[TaskSet], Array] | None = None,
        leave: Callable[[TaskSet], TaskSet] | None = None,
        *,
        name: str,
        n_threads: int = 1,
    ) -> Source:
        """`statistics` as a source for EM, which goes on where it was killed."""
        statistics = self.statistics(units, describe, leave, name=name, n_threads=n_threads)
        return Recorded(statistics, self._folder / f"moments-{name}")

    def statistics(
        self,
        units: Units,
        describe: Callable[[TaskSet], Array] | None = None,
        leave: Callable[[TaskSet], TaskSet] | None = None,
        *,
        name: str,
        n_threads: int = 1,
    ) -> StatisticsOnDisk:
        """Statistics of all tasks in these units, of which a part that is done is not done again.

        ``describe`` gives features of the tasks, and ``leave`` the tasks with what is left of their targets; ``name`` stands
        for both.
        """
        folder = self._folder / f"blocks-{name}-{_digest(units)}"
        folder.mkdir(exist_ok=True)
        blocks: list[Path] = []
        for part in range(PARTS):
            listed = folder / f"{part:02d}.json"
            if not listed.exists():
                names = self._blocks(folder, part, units, describe, leave)
                write_whole(listed, partial(_write_json, names))
            blocks += [folder / name for name in json.loads(listed.read_text())]
        return StatisticsOnDisk(tuple(blocks), len(units.columns), n_threads)

    def _blocks(
        self,
        folder: Path,
        part: int,
        units: Units,
        describe: Callable[[TaskSet], Array] | None,
        leave: Callable[[TaskSet], TaskSet] | None,
    ) -> list[str]:
        names = []
        for i, tasks in enumerate(self._rows.tasks(part, self.reservoir.sample)):
            side = None if describe is None else describe(tasks)
            with single_threaded_blas():
                statistics = TaskStatistics.of(tasks if leave is None else leave(tasks), units, side)
            names.append(f"{part:02d}-{i}.block")
            write_block(folder / names[-1], statistics)
        return names

    def forget_rows(self) -> None:
        """Delete the rows, when no more statistics will be asked for."""
        self._rows.clear()

    # ------------------------------------------------------------------ reading

    def _claim(self, about: dict[str, Any]) -> None:
        """Write down what the folder is for, or see that it is for this."""
        path, words = self._folder / "about.json", json.dumps(about, default=str, sort_keys=True)
        if not path.exists():
            write_whole(path, lambda file: file.write(words.encode()))
        elif path.read_text() != words:
            theirs = json.loads(path.read_text())
            mine = json.loads(words)
            other = [name for name in mine if theirs.get(name) != mine[name]]
            raise ValueError(
                f"checkpoint: {self._folder} was begun with another {other[0] if other else 'setting'} "
                f"({theirs.get(other[0]) if other else ''}); give another folder, or delete it"
            )

    def _recover(self) -> None:
        """Go back to the last note: its journal, its sample, and parts as long as they were."""
        path = self._folder / "journal.json"
        if path.exists():
            noted = json.loads(path.read_text())
            self.journal = Journal(**noted)
            like = self._scan.without_tasks(self.journal.features)
            with open(self._folder / f"sample-{self.journal.n_batches}.tasks", "rb") as file:
                self._sample = replace(
                    self._sample, pieces=(read_tasks(file, like),), limit=self.journal.limit
                )
        if not self.journal.done:
            self._rows.cut_back(list(self.journal.sizes))

    def _read(self) -> None:
        at, sample, unnoted = self.journal, self._sample, 0
        for tasks, place in self._scan.pieces(skip=at.n_batches):
            try:
                self._rows.add(tasks)
                sample = sample.take(tasks)
            except ValueError as error:
                raise ValueError(f"data: {place}: {error}") from error
            at = replace(
                at,
                n_batches=at.n_batches + 1,
                n_rows=at.n_rows + len(tasks.y),
                features=tuple(map(str, tasks.feature_names)),  # type: ignore[arg-type]
                low=min(at.low, float(tasks.y.min())),
                high=max(at.high, float(tasks.y.max())),
            )
            unnoted += tasks.X.size
            if unnoted > NOTE_NUMBERS:
                self._note(at, sample)
                unnoted = 0
        if not len(sample):
            raise ValueError(f"data: {self._scan.table.name} has no rows")
        self._note(replace(at, done=True), sample)

    def _note(self, at: Journal, sample: Reservoir) -> None:
        self._rows.sync()
        at = replace(at, sizes=tuple(self._rows.sizes()), limit=sample.limit)
        kept = sample.sample
        new = self._folder / f"sample-{at.n_batches}.tasks"
        write_whole(new, lambda file: write_tasks(file, kept))
        write_whole(self._folder / "journal.json", partial(_write_json, asdict(at)))
        for old in self._folder.glob("sample-*.tasks"):
            if old != new:
                old.unlink()
        self.journal, self._sample = at, sample


def _write_json(value: Any, file: IO[bytes]) -> None:
    file.write(json.dumps(value).encode())


def _digest(units: Units) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for numbers in (units.columns, units.shift, [units.target, units.target_shift, units.fit_intercept]):
        digest.update(np.ascontiguousarray(numbers, dtype=float).tobytes())
    return digest.hexdigest()
