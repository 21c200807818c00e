"""The command of pages: about one's own model, or about a reproduction."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import UsageError, explained, in_one_line
from .models import Columns, Describe, Missing, read_tasks
from .output import say
from .reproduction import draw


def report(
    source: Annotated[
        Path,
        typer.Argument(
            help="Model that `tailored fit` wrote, or folder that `reproduce` wrote.", show_default=False
        ),
    ],
    data: Annotated[
        str | None, typer.Option(help="Of a model: the table it was learned from, or another one like it.")
    ] = None,
    describe: Describe = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The page to write.", show_default="report.html, or reproduction.md"
        ),
    ] = None,
    missing: Missing = "error",
    coverage: Annotated[float, typer.Option(help="Of a model: of the intervals.")] = 0.9,
    published: Annotated[
        Path | None,
        typer.Option(help="Of a reproduction: CSV file of published curves.", show_default="the paper's"),
    ] = None,
    limited: Annotated[
        Path | None,
        typer.Option(help="Of a reproduction: results with a rank limit, compared where seeds are shared."),
    ] = None,
    more_seeds: Annotated[
        Path | None, typer.Option(help="Of a reproduction: results of some experiments with more seeds.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Of a reproduction: folder to draw the figures into.", show_default="figures, beside OUT"
        ),
    ] = None,
) -> None:
    """Write a page: about your model and its data, or about a reproduction beside the published numbers.

    Example: tailored report model.tailored --data pupils.csv --describe schools.csv -o report.html
    """
    if source.is_dir():
        _of_reproduction(source, out or Path("reproduction.md"), published, limited, more_seeds, figures)
    else:
        _of_model(source, data, describe, out or Path("report.html"), missing, coverage)


def _of_model(
    source: Path, data: str | None, describe: str | None, out: Path, missing: str, coverage: float
) -> None:
    with in_one_line():
        from ..persistence import load
        from ..report import write_report

        if not source.exists():
            raise UsageError(f"source: there is no file or folder {source}")
        if data is None:
            raise UsageError(
                "--data: a page about a model needs the table it was learned from, or another one like it"
            )
        if not out.parent.is_dir():
            raise UsageError(f"--out: there is no folder {out.parent}")
        learner = load(source)
        known = learner.columns_in_
        if known["task"] is None:
            raise UsageError(f"source: {source} was not learned from a table; use tailored.report in Python")
        side = known["side_info"] if describe is None else None
        asked = Columns(known["task"], known["target"], side, _inputs(learner))
        tasks = read_tasks(data, asked, describe, missing, learner)
        write_report(learner, tasks, out, coverage=coverage, progress=sys.stderr.isatty())
        say(f"page: {out}")


def _inputs(learner: Any) -> list[str]:
    """The columns of a table that the model reads."""
    return [column.name for column in learner.encoding_.features]


def _of_reproduction(
    results: Path,
    out: Path,
    published: Path | None,
    limited: Path | None,
    more: Path | None,
    figures: Path | None,
) -> None:
    with explained():
        from ..studies.reproduction.report import write_report

        folder = figures or out.parent / "figures"
        draw(results, folder, published)
        write_report(results, out, published=published, limited=limited, more_seeds=more, figures=folder)
        say(f"page: {out}")
