"""Progress bars: off in the library unless asked for, silent when nobody is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(description: str, total: int, *, enabled: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that advances the bar, or None when there is no bar to show.

    A bar is shown when ``enabled``, standard error is a terminal and rich is installed (the ``cli``
    extra); a missing rich is no reason to stop a long computation.
    """
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

        def advance(amount: int) -> None:
            progress.advance(bar, amount)

        yield advance
