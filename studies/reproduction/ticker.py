"""Progress of a run: a bar with rate and time left on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds between two lines when standard error is a file.
QUIET_SECONDS = 15.0


class Pace:
    """Cells done, and the time left guessed from the cost of what is done and what is not."""

    def __init__(self, n_cells: int, cost: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.n_cells = n_cells
        self.cost = cost
        self.clock = clock
        self.start = clock()
        self.done = 0
        self.paid = 0.0

    def tick(self, cost: float) -> None:
        self.done += 1
        self.paid += cost

    def __str__(self) -> str:
        elapsed = max(self.clock() - self.start, 1e-9)
        rate = self.done / elapsed
        if not self.done:
            return f"{self.done}/{self.n_cells} cells"
        left = elapsed * max(self.cost - self.paid, 0.0) / self.paid
        return f"{self.done}/{self.n_cells} cells, {rate:.2g} cells/s, {_clock(left)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


@contextmanager
def ticker(n_cells: int, cost: float) -> Iterator[Callable[[float], None]]:
    """Yield a function to call with the cost of every finished cell."""
    pace = Pace(n_cells, cost)
    bar = _bar(cost) if sys.stderr.isatty() else None
    if bar is None:
        last = pace.start

        def tick(amount: float) -> None:
            nonlocal last
            pace.tick(amount)
            if pace.clock() - last > QUIET_SECONDS or pace.done == pace.n_cells:
                last = pace.clock()
                print(pace, file=sys.stderr, flush=True)

        yield tick
        return
    with bar:
        task = bar.add_task(str(pace), total=cost)

        def tick(amount: float) -> None:
            pace.tick(amount)
            bar.update(task, advance=amount, description=str(pace))

        yield tick


def _bar(cost: float) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))
