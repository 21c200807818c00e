"""Interfaces of task sources: a sample of whole tasks, and the statistics of all tasks.

The learner selects a model on the sample.  EM then fits the selected model to all tasks, for which it only needs sums over
tasks.  Tasks can be in memory, in a table that is read in batches, on a Dask cluster, or on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._utils.threads import single_threaded_blas
from ..gaussian.em import Source as Statistics
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import NEGLIGIBLE, Summed, Sums, Totals
from ..gaussian.rows import Tasks, statistics_of
from ..tasks.rows import Array, Scaling
from ..tasks.task_set import TaskSet
from .reservoir import Reservoir

Part = TypeVar("Part", Totals, Sums)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Reader:
    """Convert tasks to their sufficient statistics.

    ``side`` computes features (T, q) of the side information.  ``residuals`` subtracts the predictions of the shared
    regressor from the targets.
    """

    scaling: Scaling
    side: Callable[[TaskSet], Array] | None = None
    residuals: Callable[[TaskSet], TaskSet] | None = None

    def __call__(self, tasks: TaskSet) -> Tasks:
        side = None if self.side is None else self.side(tasks)
        return statistics_of(tasks if self.residuals is None else self.residuals(tasks), self.scaling, side)


class TaskSource(Protocol):
    """Tasks to learn from: a random sample of whole tasks, and statistics of all of them."""

    @property
    def reservoir(self) -> Reservoir:
        """The sample, to which tasks can be added; `Reservoir.is_whole` tells whether it contains all tasks."""

    @property
    def target_range(self) -> tuple[float, float]:
        """Smallest and largest target."""

    def statistics(self, read: Reader) -> Statistics:
        """Return the statistics of all tasks, for EM."""


def sum_in_order(parts: Iterable[Part]) -> Part:
    """Add the parts from first to last, so that the result is bitwise reproducible."""
    return reduce(add, parts)


@dataclass(frozen=True)
class LazyBlock:
    """Statistics of a block of tasks, which are loaded each time they are needed."""

    load: Callable[[], Tasks]
    n_features: int

    def totals(self) -> Totals:
        return self.load().totals()

    def sums(self, model: Mixture, shares: NDArray[np.uint8] | None = None) -> Summed:
        """Return the expected sufficient statistics.

        To save memory, ``shares`` has one bit per component: whether its responsibility is not negligible.
        """
        K = model.n_components
        among = None if shares is None else np.unpackbits(shares, axis=1, count=K).astype(bool)
        expected = self.load().posterior(model, Want(sums=True), among)
        kept = None if K == 1 else np.packbits(expected.shares > NEGLIGIBLE, axis=1)
        return Summed(expected.sums, kept)


@dataclass(frozen=True)
class Blocks:
    """Statistics of several blocks of tasks, summed in the order of the blocks."""

    blocks: Sequence[Statistics]
    n_threads: int = 1  # number of blocks that are summed in parallel; results do not depend on it

    @property
    def n_features(self) -> int:
        return self.blocks[0].n_features

    def totals(self) -> Totals:
        return sum_in_order(self._map(lambda block: block.totals(), self.blocks))

    def sums(self, model: Mixture, shares: Any = None) -> Summed:
        earlier = [None] * len(self.blocks) if shares is None else shares
        kept = []

        def each() -> Iterator[Sums]:
            for summed in self._map(lambda block, r: block.sums(model, r), self.blocks, earlier):
                kept.append(summed.shares)
                yield summed.sums

        with single_threaded_blas():
            return Summed(sum_in_order(each()), kept)

    def _map(self, function: Callable[..., Result], *arguments: Sequence[Any]) -> Iterator[Result]:
        """Return the results for all blocks in order."""
        if self.n_threads == 1:
            yield from map(function, *arguments)
            return
        with ThreadPoolExecutor(self.n_threads) as pool:
            yield from pool.map(function, *arguments)
