"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Jobs = Annotated[int, typer.Option(help="Parallel cells; -1 uses all cores.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Run the cells on the workers of the Dask scheduler at this address, such as tcp://10.0.0.5:8786; "
        "they must share the folders of results and data.",
        show_default="this machine",
    ),
]


def check_where(jobs: int, scheduler: str | None) -> None:
    """Refuse a number of jobs for a cluster, which has as many as its workers have threads."""
    if scheduler is not None and jobs != -1:
        raise typer.BadParameter(
            f"--jobs {jobs} is for this machine; with --scheduler the workers' threads decide"
        )
