"""One BLAS thread, so that results are the same bits for any number of jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    # Scanning the loaded libraries costs a millisecond; they do not change once NumPy is in.
    return ThreadpoolController()


def single_threaded_blas() -> AbstractContextManager[None]:
    """A context in which BLAS and LAPACK use one thread (process-wide, restored on exit)."""
    context: AbstractContextManager[None] = _controller().limit(limits=1, user_api="blas")
    return context


def single_threaded_openmp() -> AbstractContextManager[None]:
    """The same for OpenMP, whose threads wait for each other in a loop: on a busy machine a small fit takes minutes."""
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
