"""Commands of the theory studies and of the benchmark; `cli` registers them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from .errors import explained

console = Console()


def theory(
    study: Annotated[
        list[str],
        typer.Argument(help="advantage, rates, bounds, or all.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the figures and tables.")] = Path("theory"),
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, a few seconds.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the environments.")] = 0,
) -> None:
    """The paper's claims as measurements: each study writes a figure and a table."""
    from ..studies.theory import STUDIES, write_study

    names = list(STUDIES) if study == ["all"] else study
    for name in names:
        if name not in STUDIES:
            raise typer.BadParameter(f"{name!r} is not a study; valid names: {', '.join(STUDIES)}, all")
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        _, table, figure = write_study(name, out, quick=quick, seed=seed, progress=True)
        console.print(f"{name}: figure {figure}   table {table}")


def benchmark(
    data_sets: Annotated[
        list[str] | None,
        typer.Argument(help="Data sets; all of them when absent (see --list).", show_default=False),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method (repeat for several).", show_default="all")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 10,
    first_seed: Annotated[int, typer.Option(help="First seed.")] = 100,
    tasks: Annotated[
        list[int] | None, typer.Option(help="Also so many training tasks, for a curve (repeat).")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Parallel cells; -1 uses all cores.")] = -1,
    data: Annotated[Path | None, typer.Option(help="Folder with the data sets instead of downloads.")] = None,
    out: Annotated[Path, typer.Option(help="Results; finished cells are reused.")] = Path("benchmark"),
    report: Annotated[Path | None, typer.Option(help="Write the page of results to this file.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List data sets and methods.")] = False,
) -> None:
    """Compare the learners with what a practitioner would use, on the same tasks."""
    from ..progress import progress_bar
    from ..studies.benchmark import METHODS, SUITES, run_benchmark
    from ..studies.benchmark.page import page
    from ..studies.benchmark.report import CurveDisplay, summarise, to_csv
    from ..studies.benchmark.run import list_cells

    if show_list:
        for name, suite in SUITES.items():
            console.print(f"{name:16} {suite.description}")
        console.print("methods: " + "; ".join(METHODS))
        return
    suites, methods = data_sets or list(SUITES), method or list(METHODS)
    for kind, names, valid in (("data set", suites, SUITES), ("method", methods, METHODS)):
        for name in names:
            if name not in valid:
                raise typer.BadParameter(f"{name!r} is not a {kind}; valid names: {', '.join(valid)}")
    seed_list = list(range(first_seed, first_seed + seeds))
    total = len(list_cells(suites, methods, seed_list, tasks or ()))
    # Finished cells are reused, so that the same command goes on.
    with (
        explained(resume_command=shlex.join(["tailored", *sys.argv[1:]])),
        progress_bar("Benchmark", total, enabled=True) as tick,
    ):
        results = run_benchmark(
            suites,
            methods,
            seed_list,
            out / "cells",
            task_counts=tasks or (),
            data=None if data is None else str(data),
            n_jobs=jobs,
            tick=tick,
        )
    (out / "benchmark.csv").write_text(to_csv(results), encoding="utf-8")
    lines = summarise(results)
    table = Table(title=f"Mean absolute error on new tasks, {seeds} seeds from {first_seed}")
    for column in ("data set", "method", "error", "against best baseline", "p", "fit"):
        table.add_column(column, justify="left" if column in ("data set", "method") else "right")
    for line in lines:
        same = line.method == line.best_baseline
        table.add_row(
            line.suite,
            line.method,
            f"{line.mean:.4f} ± {line.deviation:.4f}",
            "best baseline" if same else f"{line.difference:+.2f} %",
            "" if same or line.p_value != line.p_value else f"{line.p_value:.1e}",
            f"{line.seconds:.1f} s",
            end_section=line is lines[-1] or lines[lines.index(line) + 1].suite != line.suite,
        )
    console.print(table)
    folder = out if report is None else report.parent / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    figures = {}
    for kind in ("rows", *(["tasks"] if tasks else [])):
        path = folder / f"benchmark-{kind}.png"
        CurveDisplay(results, kind).plot().savefig(path, dpi=150)
        figures[kind] = f"{folder.name}/{path.name}"
    if report is not None:
        report.write_text(page(results, figures), encoding="utf-8")
    console.print(f"table: {out / 'benchmark.csv'}   figures: {folder}")
