"""Tasks of a Dask dataframe: a sample in this process, statistics of all tasks on the workers.

Dask's shuffle moves the rows of a task to one partition.  Workers compute statistics with the same
compiled loop as for rows in memory; a grouped sum over product columns took four times as long, and
ten times the memory of the rows.  An EM step sends the model to the workers and receives sums.  If
a worker dies, Dask recomputes its partitions from the dataframe, and the result is bitwise the
same.  Without a client, Dask computes the same partitions in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

from .._utils.records import cached_property
from .._utils.threads import single_threaded_blas
from ..exceptions import ShardError
from ..gaussian.mixture import Mixture
from ..gaussian.moments import Summed, Totals
from ..gaussian.rows import Tasks
from ..tasks.task_set import TaskSet
from .base import Blocks, Reader, Reservoir, Statistics, sum_in_order
from .scan import Batch, TaskScan

#: Maximum number of samples that are merged by one Dask task.
FAN_IN = 8


def fetch(client: Any, futures: Sequence[Any]) -> list[Any]:
    """Return the results of all futures in order.

    Raise `ShardError` if one failed, and ConnectionError without a scheduler.
    """
    from distributed import KilledWorker, wait

    try:
        wait(futures)
        failed = next((future for future in futures if future.status == "error"), None)
        if failed is None:
            return list(client.gather(list(futures)))
        error = failed.exception()
    except (CancelledError, OSError, TimeoutError) as lost:
        raise ConnectionError(
            f"scheduler: the connection of {client} was lost, and with it the statistics of the "
            f"tasks ({lost!r}). Start the scheduler and fit again."
        ) from lost
    reason = f"a partition failed ({type(error).__name__}: {error})"
    if isinstance(error, KilledWorker):
        reason = (
            "all workers that processed one partition died (the last was "
            f"{error.last_worker.address}). See the logs of the workers. Most often, a partition "
            "is larger than a worker's memory; use more partitions."
        )
    raise ShardError(reason) from error


@dataclass(frozen=True)
class ClusterStatistics:
    """Statistics of tasks on the workers of a cluster; the sums of the shards are added in order.

    Shards must be results of submitted tasks, because Dask cannot recompute scattered data after
    the death of a worker.
    """

    client: Any
    shards: Sequence[Any]
    n_features: int

    def totals(self) -> Totals:
        totals = [self._submit(methodcaller("totals"), shard) for shard in self.shards]
        return sum_in_order(fetch(self.client, totals))

    def sums(self, model: Mixture, shares: Any = None) -> Summed:
        """Return the expected statistics; ``shares`` are futures and stay on the workers."""
        # The model is the result of one task: the scheduler stores it once, and can send it to
        # workers that join later.
        sent = self._submit(_identity, model)
        earlier = [None] * len(self.shards) if shares is None else shares
        steps = [self._submit(_step, s, sent, r) for s, r in zip(self.shards, earlier, strict=True)]
        sums = [self._submit(attrgetter("sums"), step) for step in steps]
        return Summed(sum_in_order(fetch(self.client, sums)), steps)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.client.submit(function, *arguments, pure=False)


@dataclass(frozen=True)
class DaskSource:
    """The tasks of a Dask dataframe.  Each of its partitions becomes a shard of statistics."""

    scan: TaskScan
    seed: int  # seed of the sample

    @cached_property
    def frame(self) -> Any:
        return self.scan.table[self.scan.roles.names]

    @property
    def read(self) -> Callable[[Batch], TaskSet]:
        """Read a partition on a worker."""
        return partial(self.scan.roles.read_alone, encoding=self.scan.given_encoding)

    @cached_property
    def client(self) -> Any:
        """The client that is active at first use; None if Dask computes in this process."""
        try:
            from distributed import get_client

            return get_client()
        except (ImportError, ValueError):
            return None

    @cached_property
    def reservoir(self) -> Reservoir:
        from dask import delayed

        draw, merge = delayed(_draw_sample, pure=False), delayed(_merge_samples, pure=False)
        empty = Reservoir(seed=self.seed)
        samples = [
            draw(part, f"partition {i}", self.read, empty)
            for i, part in enumerate(self.frame.to_delayed())
        ]
        while len(samples) > 1:
            samples = [merge(samples[i : i + FAN_IN]) for i in range(0, len(samples), FAN_IN)]
        sample: Reservoir = self._compute(samples)[0]
        if not sample.batches:
            raise ValueError("data: the Dask dataframe has no rows")
        return sample

    def statistics(self, read: Reader) -> Statistics:
        """Compute the statistics of all tasks; with a client they stay on the workers."""
        from dask import delayed

        # The peer-to-peer shuffle would return rows in another order each time.
        whole = self.frame.shuffle(on=self.scan.roles.task, shuffle_method="tasks")
        # The reader is sent as one Dask task, because shared effects of many categories may be
        # large.
        reader = delayed(read, traverse=False, pure=False)
        compute = delayed(_shard, pure=False)
        shards = [
            compute(part, self.read, self.reservoir.sample[:0], reader)
            for part in whole.to_delayed()
        ]
        d = len(read.scaling.columns)
        if self.client is None:
            return Blocks([partial(_identity, shard) for shard in self._compute(shards)], d)
        statistics = ClusterStatistics(self.client, self.client.compute(shards), d)
        statistics.totals()  # if a partition cannot be read, raise here instead of in EM
        return statistics

    def _compute(self, graph: Sequence[Any]) -> list[Any]:
        if self.client is not None:
            return fetch(self.client, self.client.compute(list(graph)))
        import dask

        try:
            return list(dask.compute(*graph))
        except Exception as error:
            raise ShardError(f"{type(error).__name__}: {error}") from error


def _identity(value: Any) -> Any:
    return value


def _step(shard: Tasks, model: Mixture, earlier: Summed | None) -> Summed:
    # With several threads, the order of summation would depend on the number of cores.
    with single_threaded_blas():
        return shard.sums(model, None if earlier is None else earlier.shares)


def _draw_sample(
    part: Any, position: str, read: Callable[[Batch], TaskSet], empty: Reservoir
) -> Reservoir:
    return empty.take(read(Batch(part, position))).merged if len(part) else empty


def _merge_samples(samples: list[Reservoir]) -> Reservoir:
    """Merge samples: a task below all limits is complete in each of them."""
    total = replace(samples[0], batches=(), limit=min(sample.limit for sample in samples))
    for sample in samples:
        total = total.take(sample.sample) if sample.batches else total
    return total.merged


def _shard(
    part: Any, read: Callable[[Batch], TaskSet], no_tasks: TaskSet, statistics: Reader
) -> Tasks:
    with single_threaded_blas():
        tasks = read(Batch(part, "a partition")).in_label_order() if len(part) else no_tasks
        return statistics(tasks)
