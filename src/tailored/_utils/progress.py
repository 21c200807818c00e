"""Progress bars, which are off by default and only shown on a terminal.

The stages of a long computation are also written to the logger ``tailored``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

LOG = logging.getLogger("tailored")


class Stages:
    """The stages of a long computation: each is logged when it ends, and shown as the name of the bar.

    Parameters
    ----------
    name : str
        Name of the computation.
    update : callable or None
        Called with the keywords ``advance`` or ``description`` of the bar.
    """

    def __init__(self, name: str, update: Callable[..., None] | None = None) -> None:
        self._name, self._update = name, update
        self._stage, self._since = "", perf_counter()

    def begin(self, stage: str) -> None:
        """End the last stage and begin this one; an empty name begins none."""
        now = perf_counter()
        if self._stage:
            LOG.info("%s: %s took %.1f s", self._name, self._stage, now - self._since)
        self._stage, self._since = stage, now
        if stage:
            LOG.debug("%s: %s", self._name, stage)
            if self._update is not None:
                self._update(description=f"{self._name}: {stage}")

    def __call__(self, amount: int) -> None:
        """Advance the bar."""
        if self._update is not None:
            self._update(advance=amount)


@contextmanager
def stages(name: str, total: int, *, enabled: bool) -> Iterator[Stages]:
    """Yield `Stages`, with a bar as in `progress_bar`."""
    with _bar(name, total, enabled) as update:
        current = Stages(name, update)
        yield current
        current.begin("")


@contextmanager
def progress_bar(description: str, total: int, *, enabled: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that advances the bar, or None without a bar.

    A bar is shown if ``enabled``, standard error is a terminal and rich is installed (the ``cli`` extra).
    """
    with _bar(description, total, enabled) as update:
        if update is None:
            yield None
            return

        def advance(amount: int) -> None:
            update(advance=amount)

        yield advance


@contextmanager
def _bar(description: str, total: int, enabled: bool) -> Iterator[Callable[..., None] | None]:
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(description, total=total)

        def update(**changes: Any) -> None:
            progress.update(bar, **changes)

        yield update
