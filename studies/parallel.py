"""Compute the cells of a study in parallel processes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import joblib


def in_any_order(
    function: Callable[..., Any], cells: Iterable[tuple[Any, ...]], n_jobs: int | None
) -> Iterator[Any]:
    """Yield ``function(*cell)`` of all cells in the order in which they are finished."""
    parallel = joblib.Parallel(
        n_jobs=n_jobs, batch_size=1, return_as="generator_unordered", initializer=_ignore_interrupts
    )
    yield from parallel(joblib.delayed(_alone)(function, *cell) for cell in cells)


def _alone(function: Callable[..., Any], *cell: Any) -> Any:
    """Compute a cell in one thread."""
    with joblib.parallel_config(backend="threading", n_jobs=1):
        return function(*cell)


def _ignore_interrupts() -> None:
    # A terminal sends Ctrl-C to the workers as well; the parent ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
