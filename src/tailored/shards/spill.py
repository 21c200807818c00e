"""Rows of tasks that come in any order, parted on disk so that the rows of a task come together.

Each piece is cut by the keys of its labels and appended to the files of as many parts; a part holds whole tasks when
all pieces are in, and is small enough to be read at once, or is parted again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..tasks import TaskSet
from ..tasks.pieces import in_label_order, label_keys, merged
from .files import read_tasks, write_tasks

#: Parts that pieces are cut into, and the bytes up to which a part is read at once.
PARTS, PART_BYTES = 64, 64_000_000
#: Of the keys that part labels: not those that draw samples, or a part would hold all of the sample.
SEED = 0x5AFE


@dataclass(frozen=True)
class Spill:
    """Tasks parted into the files of a folder.

    Attributes
    ----------
    folder : Path
    level : int
        How often these tasks were parted before.
    """

    folder: Path
    level: int = 0

    def path(self, part: int) -> Path:
        return self.folder / f"{part:02d}.rows"

    def sizes(self) -> list[int]:
        """Bytes in the file of each part."""
        paths = map(self.path, range(PARTS))
        return [path.stat().st_size if path.exists() else 0 for path in paths]

    def cut_back(self, sizes: list[int]) -> None:
        """Forget what was appended since the parts had these `sizes`."""
        for part, size in enumerate(sizes):
            if self.path(part).exists():
                os.truncate(self.path(part), size)

    def add(self, piece: TaskSet) -> None:
        """Append the rows of a piece to the parts of their tasks."""
        if piece.is_sparse:
            raise TypeError("data: rows of sparse tasks cannot be parted on disk; give dense columns")
        part = (label_keys(piece.labels, SEED + self.level) % np.uint64(PARTS)).astype(np.intp)
        order = np.argsort(part, kind="stable")
        piece, ends = piece[order], np.searchsorted(part[order], np.arange(PARTS + 1))
        self.folder.mkdir(parents=True, exist_ok=True)
        for i in range(PARTS):
            if ends[i] < ends[i + 1]:
                with open(self.path(i), "ab") as file:
                    write_tasks(file, piece[ends[i] : ends[i + 1]])

    def sync(self) -> None:
        """See all that was appended on the disk."""
        for part in range(PARTS):
            if self.path(part).exists():
                with open(self.path(part), "rb+") as file:
                    os.fsync(file.fileno())

    def tasks(self, part: int, like: TaskSet) -> Iterator[TaskSet]:
        """The whole tasks of a part, in sets that fit into memory; columns are named as those of ``like``."""
        path = self.path(part)
        if not path.exists() or not path.stat().st_size:
            return
        if path.stat().st_size <= PART_BYTES:
            yield in_label_order(merged(self._pieces(path, like)))
            return
        finer = Spill(self.folder / f"{part:02d}", self.level + 1)
        # One that was left half-way is begun again.
        finer.clear()
        for piece in self._pieces(path, like):
            finer.add(piece)
        if max(finer.sizes()) == path.stat().st_size:
            # A single task: it cannot be parted.
            yield merged(self._pieces(path, like))
        else:
            for i in range(PARTS):
                yield from finer.tasks(i, like)
        finer.clear()

    @staticmethod
    def _pieces(path: Path, like: TaskSet) -> Iterator[TaskSet]:
        with open(path, "rb") as file:
            end = path.stat().st_size
            while file.tell() < end:
                yield read_tasks(file, like)

    def clear(self) -> None:
        """Delete the files."""
        for part in range(PARTS):
            self.path(part).unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()
