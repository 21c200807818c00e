"""Limit BLAS to one thread, so that results are bitwise reproducible for any number of jobs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

#: BLAS may multiply matrices with more entries in several threads, which changes rounding (OpenBLAS: above 9,216 entries).
MAX_SINGLE_THREAD = 5_000


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """Return the BLAS libraries whose thread limit is per process, and those whose limit is per thread (OpenMP)."""
    # Cached, because the search takes a millisecond and the libraries do not change after NumPy is imported.
    blas = ThreadpoolController().select(user_api="blas").lib_controllers
    openmp = [
        lib for lib in blas if lib.internal_api == "openblas" and lib.threading_layer == "openmp"
    ]
    return [lib for lib in blas if lib not in openmp], openmp


def _set(libraries: list[Any], numbers: list[int]) -> None:
    for library, number in zip(libraries, numbers, strict=True):
        # threadpoolctl 3.7 and later only accept calls from one thread; the lock of _OneThread makes our calls safe.
        release = getattr(library, "clear_controlling_thread", lambda force: None)
        release(force=True)
        library.set_num_threads(number)
        release(force=True)


class _OneThread:
    """Limit BLAS to one thread in nested or concurrent contexts.

    The first context sets the limit of the process, and the last one restores the earlier number of threads. If each
    context restored the number it found, the second of two overlapping contexts would restore the limit of the first.
    A process that is forked meanwhile keeps the limit until all open contexts end in it. This never happens if another
    thread opened one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_open = 0
        self._before: list[int] = []
        self._own = threading.local()
        if hasattr(os, "register_at_fork"):
            release = self._lock.release
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=release, after_in_child=release
            )

    def __enter__(self) -> None:
        shared, own = _libraries()
        with self._lock:
            if own:
                before = [one.get_num_threads() for one in own]
                self._own.before = [*getattr(self._own, "before", ()), before]
                _set(own, [1] * len(own))
            if not self._n_open:
                self._before = [one.get_num_threads() for one in shared]
                _set(shared, [1] * len(shared))
            self._n_open += 1

    def __exit__(self, *error: object) -> None:
        shared, own = _libraries()
        with self._lock:
            self._n_open -= 1
            if not self._n_open:
                _set(shared, self._before)
            if own:
                _set(own, self._own.before.pop())


_one_thread = _OneThread()
_any_number = nullcontext()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Return a context in which BLAS and LAPACK use one thread.  The limit is per process, or per thread with OpenMP."""
    return _one_thread


def single_threaded_products(n_rows: int, n_columns: int) -> AbstractContextManager[None]:
    """Return `single_threaded_blas`, or a null context if BLAS uses one thread for matrices of this size.

    For a single small task, setting the limit takes longer than solving the task.
    """
    return _one_thread if (n_rows + n_columns) * n_columns > MAX_SINGLE_THREAD else _any_number


def single_threaded_openmp() -> AbstractContextManager[None]:
    """Return a context in which OpenMP uses one thread.

    OpenMP threads wait for each other in a busy loop, so a small fit can take minutes on a busy machine.
    """
    # Not cached: further libraries with OpenMP may be loaded later.
    context: AbstractContextManager[None] = ThreadpoolController().limit(
        limits=1, user_api="openmp"
    )
    return context


@cache
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    # A forked process does not inherit threads, so each process has its own pools.
    return ThreadPoolExecutor(n_threads, f"tailored-{process}")


def in_threads(work: Callable[..., None], calls: Sequence[tuple[Any, ...]], n_threads: int) -> None:
    """Call ``work`` with each argument tuple, in parallel threads; calls must not write to the same memory."""
    if n_threads == 1 or len(calls) < 2:
        for args in calls:
            work(*args)
        return
    for _ in _pool(n_threads, os.getpid()).map(lambda args: work(*args), calls):
        pass
