"""Tasks in a Dask dataframe: a sample of whole tasks comes here, the statistics of all tasks stay on the workers.

Rows are brought together by Dask's own shuffle, and the workers sum them with the compiled loop that sums rows in
memory: products as columns and a grouped sum take four times as long, and ten times the memory of the rows.  Without a
client Dask computes in this process, with the same shards and the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from .._utils.threads import single_threaded_blas
from ..exceptions import ShardError
from ..gaussian import Source, TaskStatistics
from ..tasks import TaskScan, TaskSet, Units
from ..tasks.pieces import in_label_order
from ..tasks.scans import Columns
from .cluster import ClusterShards, fetched, wait_for_a_worker
from .parts import Parts
from .reservoir import Reservoir

#: Samples that are put together at once, on a worker.
FAN_IN = 8

StatisticsOf = Callable[[TaskSet], TaskStatistics]


class Drawn(NamedTuple):
    """Whole tasks of some rows, and the least and largest target of all of them."""

    reservoir: Reservoir
    low: float = np.inf
    high: float = -np.inf


@dataclass(frozen=True)
class DaskCollection:
    """The tasks of a scanned Dask dataframe, whose partitions say how many shards there are.

    Attributes
    ----------
    scan : TaskScan
    seed : int
        Of the sample.
    """

    scan: TaskScan
    seed: int

    @cached_property
    def columns(self) -> Columns:
        return self.scan.columns.among(list(self.scan.table.data.columns))

    @cached_property
    def frame(self) -> Any:
        return self.scan.table.data[self.columns.names]

    @cached_property
    def client(self) -> Any:
        """The client that is active when this is first asked; None where Dask computes in this process."""
        try:
            from distributed import get_client

            client = get_client()
        except (ImportError, ValueError):
            return None
        wait_for_a_worker(client)
        return client

    @cached_property
    def _drawn(self) -> Drawn:
        from dask import delayed

        read, put_together = delayed(_drawn, pure=False), delayed(_together, pure=False)
        found = [read(part, self.columns, Reservoir(seed=self.seed)) for part in self.frame.to_delayed()]
        while len(found) > 1:
            found = [put_together(found[i : i + FAN_IN]) for i in range(0, len(found), FAN_IN)]
        try:
            drawn: Drawn = self._computed(found)[0]
        except ShardError as error:
            raise self._about_partitions(error) from error
        if not len(drawn.reservoir):
            raise ValueError(f"data: {self.scan.table.name} has no rows")
        return drawn

    @property
    def reservoir(self) -> Reservoir:
        """The sample as it may go on growing."""
        return self._drawn.reservoir

    @property
    def target_range(self) -> tuple[float, float]:
        return self._drawn.low, self._drawn.high

    def source(
        self,
        units: Units,
        describe: Callable[[TaskSet], NDArray[np.float64]] | None = None,
        leave: Callable[[TaskSet], TaskSet] | None = None,
        *,
        name: str = "",
        n_threads: int = 1,
    ) -> Source:
        """Statistics of all tasks as `Collection.source` has them; with a client they stay on the workers."""
        from dask import delayed

        # Not the peer-to-peer shuffle: its rows come in another order each time.
        whole = self.frame.shuffle(on=self.columns.task, shuffle_method="tasks")
        # Handed out once: a regressor of all tasks may be large.
        statistics_of = delayed(partial(_statistics, units, describe, leave), traverse=False, pure=False)
        summed = delayed(_shard, pure=False)
        shards = [
            summed(part, self.columns, self.reservoir.sample[:0], statistics_of)
            for part in whole.to_delayed()
        ]
        try:
            if self.client is None:
                return Parts(self._computed(shards))
            source = ClusterShards(self.client, self.client.compute(shards), len(units.columns))
            # A shard that cannot be read is named now, not in EM.
            source.totals()
        except ShardError as error:
            raise self._about_partitions(error) from error
        return source

    def forget_rows(self) -> None:
        """Nothing of the rows is kept."""

    def _computed(self, graph: Sequence[Any]) -> list[Any]:
        """The results, in order."""
        if self.client is not None:
            return fetched(self.client, self.client.compute(list(graph)))
        import dask

        try:
            return list(dask.compute(*graph))
        except Exception as error:
            raise ShardError(f"{type(error).__name__}: {error}") from error

    def _about_partitions(self, error: ShardError) -> ShardError:
        """The same error, naming the partition of the frame that cannot be read, if that is why."""
        from dask import delayed

        look, last = delayed(_readable, pure=False), self.frame.npartitions - 1
        for number, part in enumerate(self.frame.to_delayed()):
            try:
                self._computed([look(part, self.columns)])
            except ShardError as found:
                words = str(found.__cause__ or found)
                return ShardError(f"data: partition {number} (of 0 to {last}) cannot be read: {words}")
        return error


# --- what runs on a worker


def _tasks(part: Any, columns: Columns) -> TaskSet:
    tasks = TaskSet.from_frame(
        part,
        task=columns.task,
        target=columns.target,
        features=columns.features,
        side_columns=columns.side or None,
    )
    assert tasks.encoding is not None
    tasks.encoding.check_plain("the partitions of a Dask dataframe are read one by one; encode it as numbers")
    return tasks


def _drawn(part: Any, columns: Columns, empty: Reservoir) -> Drawn:
    if not len(part):
        return Drawn(empty)
    tasks = _tasks(part, columns)
    return Drawn(empty.take(tasks), float(tasks.y.min()), float(tasks.y.max()))


def _together(found: list[Drawn]) -> Drawn:
    """One sample of several: a task of the whole one is in the sample of each part where it has rows."""
    one = replace(found[0].reservoir, pieces=(), limit=min(other.reservoir.limit for other in found))
    for other in found:
        one = one.take(other.reservoir.sample) if len(other.reservoir) else one
    return Drawn(one, min(other.low for other in found), max(other.high for other in found))


def _statistics(units: Units, describe: Any, leave: Any, tasks: TaskSet) -> TaskStatistics:
    side = None if describe is None else describe(tasks)
    return TaskStatistics.of(tasks if leave is None else leave(tasks), units, side)


def _shard(part: Any, columns: Columns, none: TaskSet, statistics_of: StatisticsOf) -> TaskStatistics:
    with single_threaded_blas():
        return statistics_of(in_label_order(_tasks(part, columns)) if len(part) else none)


def _readable(part: Any, columns: Columns) -> int:
    return len(_tasks(part, columns)) if len(part) else 0
