"""The command line: a thin layer over the library."""

import os
from collections.abc import Callable
from typing import Annotated

import typer

from .data import datasets
from .demo import demo
from .errors import OneLineErrors
from .models import evaluate, fit, predict, summary
from .reports import report

__all__ = ["app"]

app = typer.Typer(cls=OneLineErrors, no_args_is_help=True, pretty_exceptions_show_locals=False)

OWN, EXAMPLES = "Tables of your own", "Examples"


def _version(asked: bool) -> None:
    if asked:
        from .._version import __version__

        typer.echo(f"tailored {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """From many small related regression tasks, learn a model for each task; fit a new one from a few rows."""
    # Figures go to files: no window system is needed, or asked for.
    os.environ.setdefault("MPLBACKEND", "Agg")


_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    OWN: (fit, predict, evaluate, summary, report),
    EXAMPLES: (demo, datasets),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
