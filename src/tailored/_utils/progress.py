"""Progress bars: off in the library unless asked for, silent when nobody is looking.

Stages of a long computation go to the log ``tailored`` as well, which is silent unless somebody configures it.
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
    """What a long computation is doing: a line of the log at the end of every stage, and the name of the bar.

    Parameters
    ----------
    name : str
        The computation.
    update : callable or None
        Takes ``advance`` and ``description`` of a bar.
    """

    def __init__(self, name: str, update: Callable[..., None] | None = None) -> None:
        self._name, self._update = name, update
        self._stage, self._since = "", perf_counter()

    def begin(self, stage: str) -> None:
        """The last stage is over and this one begins; none begins where it is empty."""
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
        found = Stages(name, update)
        yield found
        found.begin("")


@contextmanager
def progress_bar(description: str, total: int, *, enabled: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that advances the bar, or None when there is no bar to show.

    A bar is shown when ``enabled``, standard error is a terminal and rich is installed (the ``cli``
    extra); a missing rich is no reason to stop a long computation.
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
