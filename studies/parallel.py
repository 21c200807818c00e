"""Cells of a study side by side: the processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import joblib
from joblib.parallel import LokyBackend, get_active_backend

from tailored.sources.dask import TIMEOUT, wait_for_worker

from .files import ResultsError, WorkerError


def in_any_order(
    function: Callable[..., Any], cells: Iterable[tuple[Any, ...]], n_jobs: int | None
) -> Iterator[Any]:
    """``function(*cell)`` of all cells, as they are finished; ``joblib.parallel_config`` says where."""
    backend, _ = get_active_backend()
    # A generator where the backend can give one; others report when everything is done.
    as_they_come = getattr(backend, "supports_return_generator", False)
    first: dict[str, Any] = {}
    if isinstance(backend, LokyBackend) and "backend_kwargs" in signature(joblib.Parallel).parameters:
        first = {"initializer": _belong_to, "initargs": (os.getpid(),)}
    parallel = joblib.Parallel(
        n_jobs=n_jobs, batch_size=1, return_as="generator_unordered" if as_they_come else "list", **first
    )
    parent = None if first else os.getpid()
    yield from parallel(joblib.delayed(_alone)(parent, function, *cell) for cell in cells)


def _alone(parent: int | None, function: Callable[..., Any], *cell: Any) -> Any:
    """What a worker does: within a cell nothing goes back to the cluster."""
    if parent is not None and multiprocessing.current_process().name.startswith("LokyProcess"):
        # joblib before 1.5 has no other way to a worker than its cells.
        _belong_to(parent)
    with joblib.parallel_config(backend="threading", n_jobs=1):
        return function(*cell)


def _binding() -> Callable[[int], None]:
    # A function that is made by another one is sent with its code: a worker runs it before it imports this package.
    def belong_to(parent: int) -> None:
        """Leave interrupts to the process that started this one, and end when that has ended."""
        import os
        import signal
        import threading
        import time

        def end_with_parent() -> None:
            while os.getppid() == parent:
                time.sleep(0.5)
            os._exit(1)

        name = f"tailored-child-of-{parent}"
        if all(thread.name != name for thread in threading.enumerate()):
            # A terminal sends Ctrl-C to the workers as well, who would only print where they were; the parent ends them.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            # Killed, it ends nobody: a worker would finish its cell, and wait minutes for another.
            threading.Thread(target=end_with_parent, name=name, daemon=True).start()

    return belong_to


_belong_to = _binding()


def connect(address: str, timeout: float | None = None) -> Any:
    """Return a client of the Dask scheduler at an address such as "tcp://127.0.0.1:8786", once it has a worker."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("scheduler: clusters need Dask; install 'tailored[cluster]'") from error
    timeout = TIMEOUT if timeout is None else timeout
    try:
        client = Client(address, timeout=timeout)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConnectionError(
            f"scheduler: no Dask scheduler answers at {address} ({error}); is `dask scheduler` running there?"
        ) from error
    try:
        wait_for_worker(client, timeout)
    except BaseException:
        client.close()
        raise
    return client


@contextmanager
def on_scheduler(address: str | None, *folders: Path | None) -> Iterator[None]:
    """Cells go to the workers of the Dask scheduler at this address; None: to processes of this machine.

    Workers store cells themselves: all of them must see the ``folders``.
    """
    if address is None:
        yield
        return
    with connect(address) as client:
        for folder in filter(None, folders):
            for worker, there in client.run(os.path.isdir, str(folder)).items():
                if not there:
                    raise ResultsError(
                        f"the worker {worker} does not see the folder {folder}: workers store and read cells there, so "
                        "it must be on a disk that all of them share"
                    )
        with joblib.parallel_config(backend="dask", client=client):
            backend, _ = get_active_backend()
        with joblib.parallel_config(backend=_telling(type(backend))(client=client)):
            yield


def _telling(backend: type[Any]) -> Any:
    """Joblib's backend of Dask, which waits for ever for a cell whose workers have died, made to say so."""

    class Telling(backend):
        def submit(self, func: Any, callback: Any = None) -> Any:
            future = super().submit(func, callback)
            future.add_done_callback(lambda done: callback(done) if done.exception() is not None else None)
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            if not isinstance(out, Future):
                return super().retrieve_result_callback(out)
            try:
                return out.result()
            except KilledWorker as error:
                raise WorkerError(
                    f"a cell ends every worker that takes it ({error.last_worker.address} was the last); the workers' "
                    "logs say why"
                ) from error

    from distributed import KilledWorker

    return Telling
