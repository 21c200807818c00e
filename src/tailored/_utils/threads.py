"""One BLAS thread, so that results are the same bits for any number of jobs."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

#: Numbers in a matrix from which BLAS may part its products, and round otherwise (OpenBLAS: 9,216).
PARTED_NUMBERS = 5_000


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """The BLAS libraries whose number of threads is the process's, and those that ask the calling thread's OpenMP."""
    # Looking for them costs a millisecond; they do not change once NumPy is in.
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [one for one in found if one.internal_api == "openblas" and one.threading_layer == "openmp"]
    return [one for one in found if one not in own], own


def _set(libraries: list[Any], numbers: list[int]) -> None:
    for library, number in zip(libraries, numbers, strict=True):
        # From version 3.7 on, threadpoolctl only listens to the thread that was first; here a lock keeps the peace.
        let_go = getattr(library, "clear_controlling_thread", lambda force: None)
        let_go(force=True)
        library.set_num_threads(number)
        let_go(force=True)


class _OneThread:
    """BLAS at one thread while anybody wants that: the first who comes sets the limit, the last who goes lifts it.

    The number of threads is the process's.  Were each to restore what it found, the second of two that overlap would
    restore the limit of the first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: Counter[int] = Counter()  # how often each thread is inside
        self._before: list[int] = []
        self._own = threading.local()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._after_fork
            )

    def __enter__(self) -> None:
        me, (shared, own) = threading.get_ident(), _libraries()
        with self._lock:
            if own and not self._holders[me]:
                self._own.before = [one.get_num_threads() for one in own]
                _set(own, [1] * len(own))
            if not self._holders:
                self._before = [one.get_num_threads() for one in shared]
                _set(shared, [1] * len(shared))
            self._holders[me] += 1

    def __exit__(self, *error: object) -> None:
        me, (_, own) = threading.get_ident(), _libraries()
        with self._lock:
            self._go(me, 1)
            if own and not self._holders[me]:
                _set(own, self._own.before)

    def _go(self, holder: int, times: int) -> None:
        self._holders[holder] -= times
        if not self._holders[holder]:
            del self._holders[holder]
        if not self._holders:
            _set(_libraries()[0], self._before)

    def _after_fork(self) -> None:
        # The other threads are not here, and will never go.
        for holder, times in list(self._holders.items()):
            if holder != threading.get_ident():
                self._go(holder, times)
        self._lock.release()


_one_thread = _OneThread()


def single_threaded_blas() -> AbstractContextManager[None]:
    """A context in which BLAS and LAPACK use one thread (process-wide, as before when the last such context is left)."""
    return _one_thread


def single_threaded_products(n_rows: int, n_columns: int) -> AbstractContextManager[None]:
    """The same where products with rows and columns as many are large enough for BLAS to part them among threads.

    For a single task, where setting the limit takes longer than the solution.
    """
    return _one_thread if (n_rows + n_columns) * n_columns > PARTED_NUMBERS else nullcontext()


def single_threaded_openmp() -> AbstractContextManager[None]:
    """The same for OpenMP, whose threads wait for each other in a loop: on a busy machine a small fit takes minutes.

    Its limit is the calling thread's own: there is nothing to count.
    """
    # Not kept: libraries with their own OpenMP may have been loaded since.
    context: AbstractContextManager[None] = ThreadpoolController().limit(limits=1, user_api="openmp")
    return context


@cache
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    # A fork has none of its parent's threads: each process has pools of its own.
    return ThreadPoolExecutor(n_threads, f"tailored-{process}")


def in_threads(work: Callable[..., None], calls: Sequence[tuple[Any, ...]], n_threads: int) -> None:
    """Call ``work`` with each of ``calls``, which write where no other does."""
    if n_threads == 1 or len(calls) < 2:
        for args in calls:
            work(*args)
        return
    for _ in _pool(n_threads, os.getpid()).map(lambda args: work(*args), calls):
        pass
