"""Run the studies from a checkout: ``python -m studies COMMAND``."""

import os

import typer

from .commands import benchmark, environments, plot, report, reproduce, theory

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Reproduce the paper, check its theory, compare methods."""
    # Figures are written to files, so that no window system is needed.
    os.environ.setdefault("MPLBACKEND", "Agg")


for command in (reproduce, plot, report, theory, benchmark, environments):
    app.command()(command)

if __name__ == "__main__":
    app(prog_name="python -m studies")
