"""The command line: a thin layer over the library."""

import os
from typing import Annotated

import typer

from .models import Evaluate, Fit, Predict, Report, Summary

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        from .._version import __version__

        typer.echo(f"tailored {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Fit a linear regression for each of many groups with few rows, and predict new groups."""
    # Figures are written to files, so matplotlib must not look for a window system.
    os.environ.setdefault("MPLBACKEND", "Agg")


for _command in (Fit, Predict, Evaluate, Summary, Report):
    app.command()(_command)
