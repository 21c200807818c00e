"""Learning from tables that need not fit into memory: what `EmpiricalBayesLearner.fit` does with a `TaskScan`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..common import OutOfFold
from ..empirical_bayes.streaming import places
from ..feature_maps import SideFeatures
from ..gaussian import Source
from ..shards import Collection, DaskCollection, Reservoir
from ..shards.engine import EngineCollection
from ..tasks import TaskScan, TaskSet, Units


def refuse_beside_scan(**given: Any) -> None:
    """A table brings its own targets, labels and descriptions."""
    for name, value in given.items():
        if value is not None:
            raise TypeError(f"{name}: a scan brings its own columns; name them in tailored.scan")


@contextmanager
def work_folder(checkpoint: Any) -> Iterator[Path]:
    """The folder of a fit: the user's, which stays, or one that is deleted with all that is in it."""
    if checkpoint is not None:
        yield Path(checkpoint)
        return
    with tempfile.TemporaryDirectory(prefix="tailored-") as folder:
        yield Path(folder)


class TaskCollection(Protocol):
    """A random sample of whole tasks, and a way to statistics of all of them."""

    @property
    def reservoir(self) -> Reservoir:
        """The sample, or all tasks, as it may go on growing."""

    @property
    def target_range(self) -> tuple[float, float]: ...

    def source(
        self,
        units: Units,
        describe: Callable[[TaskSet], NDArray[np.float64]] | None = None,
        leave: Callable[[TaskSet], TaskSet] | None = None,
        *,
        name: str,
        n_threads: int = 1,
    ) -> Source:
        """Statistics of all tasks in some units, with features of their descriptions, of what is left of their targets."""

    def forget_rows(self) -> None:
        """No more statistics will be asked for."""


def collect(scan: TaskScan, folder: Path, seed: int, arguments: dict[str, Any]) -> TaskCollection:
    """A sample of the scan's tasks, and a way to statistics of all of them."""
    if scan.table.is_dask:
        return DaskCollection(scan, seed)
    if scan.in_engine:
        return EngineCollection(scan, folder, seed=seed)
    return Collection(scan, folder, seed=seed, about={"arguments": arguments})


class AllTasks:
    """All tasks of a collection as a source for EM, in the units and features that the sample was learned in."""

    def __init__(self, collection: TaskCollection, sample: TaskSet, n_threads: int) -> None:
        self._collection, self._sample, self._n_threads = collection, sample, n_threads
        self.n_tasks = 0

    def __call__(self, units: Units, side: SideFeatures | None, common: OutOfFold | None = None) -> Source:
        leave = None if common is None else partial(_leave, common, self._sample)
        kind = "alone" if common is None else "left"
        source = self._collection.source(units, side, leave, name=kind, n_threads=self._n_threads)
        self.n_tasks = source.totals().n_tasks
        return source


def _leave(common: OutOfFold, sample: TaskSet, tasks: TaskSet) -> TaskSet:
    """What the common part leaves of tasks' targets; those of the sample are served by one that has not seen them."""
    return common.leave(tasks, places(sample, tasks))
