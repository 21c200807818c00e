"""Shards of statistics on the workers of a Dask cluster: an EM step sends a model out and gets sums back.

A shard is the result of a Dask task.  One that is lost with its worker is computed again from where its rows came
from, so that a worker's death changes no bit of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from .._utils.threads import single_threaded_blas
from ..exceptions import ShardError
from ..gaussian import TaskStatistics
from ..gaussian.moments import Model, Moments, Summed, Totals
from .parts import in_order

#: Seconds that a scheduler has to answer, and a cluster to have a worker.
PATIENCE = 30.0


def connect(address: str, patience: float | None = None) -> Any:
    """A client of the Dask scheduler at an address such as "tcp://127.0.0.1:8786", which has workers."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("scheduler: clusters need Dask; install 'tailored[cluster]'") from error
    patience = PATIENCE if patience is None else patience
    try:
        client = Client(address, timeout=patience)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConnectionError(
            f"scheduler: no Dask scheduler answers at {address} ({error}); is `dask scheduler` running there?"
        ) from error
    try:
        wait_for_a_worker(client, patience)
    except BaseException:
        client.close()
        raise
    return client


def wait_for_a_worker(client: Any, patience: float = PATIENCE) -> None:
    """Return when the cluster has a worker; without one it would be silent for ever."""
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError as error:
        raise ConnectionError(
            f"scheduler: {_address(client)} has no workers after {patience:g} s; start some with "
            f"`dask worker {_address(client)}`"
        ) from error


def _address(client: Any) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "the scheduler"


@dataclass(frozen=True)
class ClusterShards:
    """Tasks whose statistics are on the workers.

    Attributes
    ----------
    client : distributed.Client
    shards : sequence of futures of TaskStatistics
        In the order in which their sums are added.  Results of submitted tasks: scattered data would be lost with
        their worker.
    n_features : int
    """

    client: Any
    shards: Sequence[Any]
    n_features: int

    def totals(self) -> Totals:
        return in_order(fetched(self.client, [self._submit(_totals, shard) for shard in self.shards]))

    def moments(self, model: Model, responsibilities: Any = None) -> Summed:
        """Sums under a model; the ``responsibilities`` are futures, and stay where the shards are."""
        # One task that hands the model out: the scheduler has it once, and can hand it to a worker that comes later.
        sent = self._submit(_itself, model)
        if getattr(model, "n_components", 2) == 1:
            sums = [self._submit(_moments, shard, sent) for shard in self.shards]
            return Summed(in_order(fetched(self.client, sums)))
        earlier = [None] * len(self.shards) if responsibilities is None else responsibilities
        found = [self._submit(_step, s, sent, r) for s, r in zip(self.shards, earlier, strict=True)]
        sums = [self._submit(_first, one) for one in found]
        return Summed(in_order(fetched(self.client, sums)), found)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.client.submit(function, *arguments, pure=False)


def fetched(client: Any, futures: Sequence[Any]) -> list[Any]:
    """The results, in order, each fetched as soon as it is there; `ShardError` names the first that failed.

    All are waited for: what else could be finished is, and stays on the workers.
    """
    from distributed import KilledWorker

    found, errors = _outcomes(client, futures)
    suspects = [future for future in futures if isinstance(errors.get(future.key), KilledWorker)]
    if 1 < len(suspects) == len(errors):
        # Dask suspects all that waited on a worker that died; alone, only the guilty ones fail again.
        errors = {}
        for suspect in suspects:
            client.retry([suspect])
            # Asked through a task of its own: a result that comes back before `retry` does is forgotten by its future.
            probe = client.submit(_itself, suspect, pure=False)
            alone, failed = _outcomes(client, [probe])
            if failed:
                errors[suspect.key] = failed[probe.key]
            else:
                found[suspect.key] = alone[probe.key]
    for number, future in enumerate(futures):
        if future.key in errors:
            error = errors[future.key]
            raise ShardError(f"shard {number + 1} of {len(futures)} {_words(error)}") from error
    return [found[future.key] for future in futures]


def _outcomes(client: Any, futures: Sequence[Any]) -> tuple[dict[str, Any], dict[str, BaseException]]:
    """Results and errors, by the futures' keys."""
    from distributed import as_completed

    found, errors = {}, {}
    try:
        for future, result in as_completed(futures, with_results=True, raise_errors=False):
            if future.status == "cancelled":
                raise CancelledError
            if future.status == "error":
                errors[future.key] = future.exception()
            else:
                found[future.key] = result
    except (CancelledError, OSError, TimeoutError) as error:
        raise _gone(client, error) from error
    return found, errors


def _gone(client: Any, error: BaseException) -> ConnectionError:
    return ConnectionError(
        f"scheduler: {_address(client)} has gone away, and the shards with it ({error!r}); start it again and fit anew"
    )


def _words(error: BaseException) -> str:
    from distributed import KilledWorker

    if not isinstance(error, KilledWorker):
        return f"failed ({type(error).__name__}: {error})"
    return (
        f"ends every worker that takes it ({error.last_worker.address} was the last). Look into the workers' logs: most "
        "often a shard is larger than a worker's memory, and more partitions help. The other shards are kept on the workers"
    )


# --- what runs on a worker


def _itself(value: Any) -> Any:
    return value


def _totals(shard: TaskStatistics) -> Totals:
    return shard.totals()


def _step(shard: TaskStatistics, model: Model, earlier: Summed | None) -> Summed:
    # One thread, or another number of cores would sum in another order.
    with single_threaded_blas():
        return shard.moments(model, None if earlier is None else earlier.responsibilities)


def _moments(shard: TaskStatistics, model: Model) -> Moments:
    return _step(shard, model, None).moments


def _first(summed: Summed) -> Moments:
    return summed.moments
