"""Limit BLAS to one thread, so that results are bitwise reproducible for any number of jobs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")


@cache
def _libraries() -> list[Any]:
    """Return the BLAS libraries."""
    # Cached, because the search takes a millisecond and the libraries do not change after NumPy is
    # imported.
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set(numbers: Sequence[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=True):
        # threadpoolctl 3.7 and later only accept calls from one thread; the lock of _OneThread
        # makes our calls safe.
        release = getattr(library, "clear_controlling_thread", lambda force: None)
        release(force=True)
        library.set_num_threads(number)
        release(force=True)


class _OneThread:
    """Limit BLAS to one thread in nested or concurrent contexts.

    The first context sets the limit of the process, and the last one restores the earlier number of
    threads. If each context restored the number it found, the second of two overlapping contexts
    would restore the limit of the first. Later contexts set the limit again, because OpenMP has one
    for each thread; such a thread keeps it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_open = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_open:
                self._before = [library.get_num_threads() for library in _libraries()]
            self._n_open += 1
            _set([1] * len(self._before))

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_open -= 1
            if not self._n_open:
                _set(self._before)


_one_thread = _OneThread()
_any_number = nullcontext()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Return a context in which BLAS and LAPACK use one thread."""
    return _one_thread


def single_threaded_products(n_rows: int, n_columns: int) -> AbstractContextManager[None]:
    """Return `single_threaded_blas`, or a null context if BLAS uses one thread for this size.

    For a single small task, setting the limit takes longer than solving the task.
    """
    # With more entries, BLAS may use several threads, which changes rounding (OpenBLAS: above
    # 9,216).
    return _one_thread if (n_rows + n_columns) * n_columns > 5_000 else _any_number


@cache
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    # A forked process does not inherit threads, so each process has its own pools.
    return ThreadPoolExecutor(n_threads, f"tailored-{process}")


def in_threads(
    work: Callable[..., Result], calls: Sequence[tuple[Any, ...]], n_threads: int
) -> list[Result]:
    """Call ``work`` with each argument tuple, in parallel threads; return the results in order."""
    if n_threads == 1 or len(calls) < 2:
        return [work(*args) for args in calls]
    return list(_pool(n_threads, os.getpid()).map(lambda args: work(*args), calls))
