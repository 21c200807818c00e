"""Progress bars, which are off by default in Python and only shown on a terminal.

The stages of a long computation are also written to the logger ``tailored``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from time import perf_counter

LOG = logging.getLogger("tailored")


def printable(text: str) -> str:
    """Replace control characters in names from user data: they could disturb a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def one_line(text: str) -> str:
    """Return `printable` text without line breaks."""
    return printable(text).replace("\n", "�")


class Stages:
    """The stages of a long computation: each is logged when it ends, and shown next to the bar.

    ``update`` changes the bar, with the keyword ``advance`` or ``description``; None without a bar.
    """

    def __init__(self, name: str, update: Callable[..., None] | None = None) -> None:
        self._name, self._update = name, update
        self._stage, self._since = "", perf_counter()

    def begin(self, stage: str) -> None:
        """End the current stage and begin this one; with an empty name, no stage begins."""
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
def progress_bar(name: str, total: int, *, enabled: bool) -> Iterator[Stages]:
    """Yield `Stages`, with a bar if ``enabled``, on a terminal, and rich is installed."""
    if not enabled or not sys.stderr.isatty() or find_spec("rich") is None:
        stages = Stages(name)
        yield stages
    else:
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

        columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            stages = Stages(name, partial(bar.update, bar.add_task(name, total=total)))
            yield stages
    stages.begin("")
