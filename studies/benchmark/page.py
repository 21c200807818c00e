"""docs/benchmark.md, written from the finished trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..files import save_figure, write_text
from .results import Report
from .run import CURVE_SEEDS
from .tables import aims, before, cold, cross_validation, intervals, multilevel, oracle, summary, unit_changes
from .tables.tidy import curves_display, to_csv

_OPENING = """# Benchmark

Written by `python -m studies benchmark --report`; every number comes from the table of that run. Every method gets the same training
tasks to use as it likes, and is scored on the same rows of the same new tasks: mean over tasks of the mean absolute error
(MAE), unless a column says otherwise. All methods run with their defaults, and no argument depends on the data set, unless a
name says otherwise. Seeds {first} to {last} are not those on which the method was developed; some methods take fewer of
them. Times are processor seconds.
"""

_WHEN = """## When not to use this library

When every task has many more rows than columns, ridge or boosting for each task alone will do; with a handful of tasks there
is nothing to learn from; and where the relation inside a task is far from linear in the columns, give it better columns first.
The paper's learners (`ConditionalLearner`, `UnconditionalLearner`) are there for streams of tasks in constant memory, for
other losses, and to study the method: where the tables above show both, compare them there.
"""


def _figures(report: Report) -> str:
    parts = []
    if "rows" in report.figures:
        parts.append(f"![Error against support rows]({report.figures['rows']})\n")
    if "tasks" in report.figures:
        parts.append(f"## Few training tasks\n\nMeans over {CURVE_SEEDS} seeds.\n")
        parts.append(f"![Error against training tasks]({report.figures['tasks']})\n")
    return "\n".join(parts)


def _when_not(report: Report) -> str:
    return _WHEN


def _left_out(report: Report) -> str:
    if not report.skipped:
        return ""
    return "\n".join(["## Left out\n", *(f"- {name}: {why}" for name, why in report.skipped.items()), ""])


#: The page, section by section.
SECTIONS: tuple[Callable[[Report], str], ...] = (
    summary.short,
    aims.write,
    oracle.write,
    multilevel.write,
    multilevel.common,
    multilevel.forecasts,
    before.write,
    intervals.write,
    intervals.quantiles,
    unit_changes.write,
    cross_validation.write,
    cold.write,
    _figures,
    summary.full,
    summary.clipped,
    _when_not,
    _left_out,
)


def write_results(report: Report, out: Path, page_file: Path | None = None) -> list[Path]:
    """Write the table into ``out``, the figures there or beside the page, and the page; returns the files."""
    folder = out if page_file is None else page_file.parent / "figures"
    figures = {}
    for kind in ("rows", "tasks"):
        display = curves_display(report.results, kind)
        if display.curves:
            figures[kind] = folder / f"benchmark-{kind}.png"
            save_figure(display.plot(), figures[kind])
    texts = {out / "benchmark.csv": to_csv(report.results)}
    if page_file is not None:
        shown = {kind: f"figures/{path.name}" for kind, path in figures.items()}
        texts[page_file] = page(replace(report, figures=shown))
    for path, text in texts.items():
        write_text(path, text)
    return [*texts, *figures.values()]


def page(report: Report) -> str:
    """The whole page."""
    seeds = [trial.seed for trial, _ in report.results] or [0]
    opening = _OPENING.format(first=min(seeds), last=max(seeds))
    return "\n".join(part for part in (opening, *(write(report) for write in SECTIONS)) if part)
