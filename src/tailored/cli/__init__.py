"""The command line: a thin layer over the library."""

import os

import typer

from .data import datasets
from .reproduction import plot, report, reproduce
from .studies import benchmark, demo, theory

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Conditional meta-learning of linear representations."""
    # Figures go to files: no window system is needed, or asked for.
    os.environ.setdefault("MPLBACKEND", "Agg")


for command in (demo, reproduce, plot, report, theory, benchmark, datasets):
    app.command()(command)
