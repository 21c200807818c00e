"""The command that writes an HTML page about a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import UsageError, in_one_line
from .models import Columns, Describe, Missing, TrustRegressor, read_tasks
from .output import say


def report(
    source: Annotated[Path, typer.Argument(help="Model that `tailored fit` wrote.", show_default=False)],
    data: Annotated[
        str,
        typer.Option(help="Table that the model was fitted to, or another one like it.", show_default=False),
    ],
    describe: Describe = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Page to write.")] = Path("report.html"),
    missing: Missing = "error",
    coverage: Annotated[float, typer.Option(help="Nominal coverage of the intervals, e.g. 0.9.")] = 0.9,
    trust_regressor: TrustRegressor = False,
) -> None:
    """Write an HTML page about your model and its data.

    Example: tailored report model.tailored --data pupils.csv --describe schools.csv -o report.html
    """
    with in_one_line():
        from ..files.format import load
        from ..report import write_report

        if not source.exists():
            raise UsageError(f"source: there is no file {source}")
        if not out.parent.is_dir():
            raise UsageError(f"--out: there is no folder {out.parent}")
        learner = load(source, trust_regressor=trust_regressor)
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
