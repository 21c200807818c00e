"""Statistics of tasks in blocks on disk, of which one is in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from itertools import starmap
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..gaussian import Summed, TaskStatistics, Totals
from ..gaussian.moments import NEGLIGIBLE, Model
from .files import read_array, write_array, write_whole

Result = TypeVar("Result")


@dataclass(frozen=True)
class StatisticsOnDisk:
    """Blocks of statistics, summed in their order: a source for EM in the memory of one block for each thread.

    Attributes
    ----------
    blocks : tuple of Path
        Files that `write_block` wrote.
    n_features : int
    n_threads : int
        Blocks that are summed side by side; results do not depend on it.
    """

    blocks: tuple[Path, ...]
    n_features: int
    n_threads: int = 1

    def totals(self) -> Totals:
        return reduce(add, self._each(_totals, [()] * len(self.blocks)))

    def moments(self, model: Model, responsibilities: Any = None) -> Summed:
        """Sums under a model; ``responsibilities`` are bits, which components a task has not left."""
        asked = responsibilities or [None] * len(self.blocks)
        found = self._each(partial(_moments, model), [(bits,) for bits in asked])
        total, kept = None, []
        for moments, bits in found:
            total = moments if total is None else total + moments
            kept.append(bits)
        assert total is not None
        # A single component is nobody's to leave.
        return Summed(total, kept if len(moments.counts) > 1 else None)

    def _each(self, work: Callable[..., Result], arguments: list[tuple[Any, ...]]) -> Iterator[Result]:
        """The work on every block, in their order."""
        jobs = [(path, *more) for path, more in zip(self.blocks, arguments, strict=True)]
        if self.n_threads == 1:
            yield from starmap(work, jobs)
            return
        with ThreadPoolExecutor(self.n_threads) as pool:
            yield from pool.map(lambda job: work(*job), jobs)


def _totals(path: Path) -> Totals:
    return read_block(path).totals()


def _moments(model: Any, path: Path, bits: NDArray[np.uint8] | None) -> tuple[Any, NDArray[np.uint8]]:
    statistics = read_block(path)
    among = None if bits is None else np.unpackbits(bits, axis=1, count=model.n_components).astype(bool)
    summed = model.summed(statistics, among)
    return summed.moments, np.packbits(np.asarray(summed.responsibilities) > NEGLIGIBLE, axis=1)


def write_block(path: Path, statistics: TaskStatistics) -> None:
    """Write statistics, of XᵀX the upper half."""
    i, j = np.triu_indices(statistics.n_features)
    side = np.zeros((len(statistics), 0)) if statistics.side is None else statistics.side

    def write(file: Any) -> None:
        for array in (
            statistics.gram[:, i, j],
            statistics.cross,
            statistics.square,
            statistics.sizes,
            side,
        ):
            write_array(file, array)

    write_whole(path, write)


def read_block(path: Path) -> TaskStatistics:
    """What `write_block` wrote."""
    try:
        with open(path, "rb") as file:
            half, cross, square, sizes, side = (read_array(file) for _ in range(5))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"checkpoint: the block {path} cannot be read ({error}); delete it and fit again"
        ) from error
    d = cross.shape[1]
    places = np.empty((d, d), dtype=np.intp)
    i, j = np.triu_indices(d)
    places[i, j] = places[j, i] = np.arange(len(i))
    gram = np.take(half, places.ravel(), axis=1).reshape(len(sizes), d, d)
    return TaskStatistics(gram, cross, square, sizes, side if side.shape[1] else None)
