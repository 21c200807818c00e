"""Tasks in a Dask dataframe: a sample of whole tasks comes here, the statistics of all tasks stay on the workers.

Rows are brought together by Dask's own shuffle, and the workers sum them with the compiled loop that sums rows in
memory: products as columns and a grouped sum take four times as long, and ten times the memory of the rows.  Without a
client Dask computes in this process, with the same shards and the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .._threads import single_threaded_blas
from ..exceptions import ShardError
from ..mixed_models import Source, TaskStatistics
from ..tasks import TaskSet
from ..tasks.scans import Columns
from .cluster import ClusterShards, fetched, wait_for_a_worker
from .parts import Parts
from .reservoir import Reservoir

#: Samples that are put together at once, on a worker.
FAN_IN = 8

StatisticsOf = Callable[[TaskSet], TaskStatistics]


@dataclass(frozen=True)
class DaskTasks:
    """Tasks in a long Dask dataframe; its partitions say how many shards there are.

    Attributes
    ----------
    frame : dask.dataframe.DataFrame
    columns : Columns
        Which of its columns are what, the features named.
    """

    frame: Any
    columns: Columns

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

    def sample(self, empty: Reservoir) -> Reservoir:
        """A reservoir filled with whole tasks, which may have rows in any partitions."""
        from dask import delayed

        read, put_together = delayed(_sampled, pure=False), delayed(_together, pure=False)
        found = [read(part, self.columns, empty) for part in self.frame[self.columns.names].to_delayed()]
        while len(found) > 1:
            found = [put_together(found[i : i + FAN_IN]) for i in range(0, len(found), FAN_IN)]
        try:
            filled: Reservoir = self._computed(found)[0]
        except ShardError as error:
            raise self._about_partitions(error) from error
        return filled

    def source(self, like: TaskSet, statistics_of: StatisticsOf) -> Source:
        """Statistics of all tasks, whose columns are those of ``like``; with a client they stay on the workers."""
        from dask import delayed

        # Not the peer-to-peer shuffle: its rows come in another order each time.
        whole = self.frame[self.columns.names].shuffle(on=self.columns.task, shuffle_method="tasks")
        summed = delayed(_shard, pure=False)
        shards = [summed(part, self.columns, like[:0], statistics_of) for part in whole.to_delayed()]
        try:
            if self.client is None:
                return Parts(self._computed(shards))
            n_features = statistics_of(like[:0]).n_features
            source = ClusterShards(self.client, self.client.compute(shards), n_features)
            # A shard that cannot be read is named now, not in EM.
            source.totals()
        except ShardError as error:
            raise self._about_partitions(error) from error
        return source

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

        look, last = delayed(_readable, pure=False), self.frame.npartitions
        for number, part in enumerate(self.frame[self.columns.names].to_delayed()):
            try:
                self._computed([look(part, self.columns)])
            except ShardError as found:
                words = str(found.__cause__ or found)
                return ShardError(f"data: partition {number} (of 0 to {last - 1}) cannot be read: {words}")
        return error


# --- what runs on a worker


def _tasks(part: Any, columns: Columns) -> TaskSet:
    return TaskSet.from_frame(
        part,
        task=columns.task,
        target=columns.target,
        features=columns.features,
        side_columns=columns.side or None,
    )


def _sampled(part: Any, columns: Columns, empty: Reservoir) -> Reservoir:
    return empty.take(_tasks(part, columns)) if len(part) else empty


def _together(found: list[Reservoir]) -> Reservoir:
    """One reservoir of several: a task of the whole sample is in the sample of each part where it has rows."""
    one = replace(found[0], tasks=None, limit=min(other.limit for other in found))
    for other in found:
        one = one if other.tasks is None else one.take(other.tasks)
    return one


def _shard(part: Any, columns: Columns, none: TaskSet, statistics_of: StatisticsOf) -> TaskStatistics:
    with single_threaded_blas():
        return statistics_of(_tasks(part, columns) if len(part) else none)


def _readable(part: Any, columns: Columns) -> int:
    return len(_tasks(part, columns)) if len(part) else 0
