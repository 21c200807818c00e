"""What the commands print."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.table import Table

console = Console()


def note(message: str) -> None:
    """Say something beside the results."""
    # Plain text on standard error: paths and numbers are not markup, and a pipe must not see them.
    typer.echo(message, err=True)


def say(message: str) -> None:
    """Print a line of results as it is: a path is no markup, and is not broken over two lines."""
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def table(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: columns of names to the left, columns of numbers, set to the right, after them."""
    made = Table(title=title)
    for column in names:
        made.add_column(column)
    for column in numbers:
        made.add_column(column, justify="right")
    return made
