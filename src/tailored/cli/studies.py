"""Commands of the demo, of the theory studies and of the benchmark."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import explained
from .options import Jobs, Scheduler, check_where
from .output import console, note, say, table

if TYPE_CHECKING:
    from ..studies.benchmark.tables.summary import Line


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the table.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the environment.")] = 0,
    tasks: Annotated[int, typer.Option(min=10, help="Number of training tasks.")] = 500,
    jobs: Annotated[int, typer.Option(help="Parallel candidates; -1 uses all cores.")] = -1,
) -> None:
    """Learn from six clusters of tasks with six methods; print a table, draw a figure."""
    with explained():
        from ..studies.demo import run_demo, write_demo

        result = run_demo(
            n_train=tasks, seed=seed, n_jobs=jobs, progress=True, announce=lambda name: note(f"• {name}")
        )
        title = f"Six clusters, {tasks} training tasks, {result.n_test} new tasks, seed {seed}"
        shown = table(title, ["method"], ["test error", "± s.e.", "training"])
        for method in result.methods:
            numbers = f"{method.mean:.4f}", f"{method.standard_error:.4f}", f"{method.seconds:.1f} s"
            shown.add_row(method.name, *numbers)
        console.print(shown)
        csv, figure = write_demo(result, out)
        say(f"figure: {figure}   table: {csv}")


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
    with explained():
        from ..studies.theory import STUDIES, write_study

        names = list(STUDIES) if study == ["all"] else study
        _check_names("study", names, [*STUDIES, "all"])
        for name in names:
            _, csv, figure = write_study(name, out, quick=quick, seed=seed, progress=True)
            say(f"{name}: figure {figure}   table {csv}")


def benchmark(
    data_sets: Annotated[
        list[str] | None,
        typer.Argument(help="Data sets; all of them when absent (see --list).", show_default=False),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method (repeat for several).", show_default="all")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of seeds.", show_default="30 of multilevel data sets, 10 of others"),
    ] = None,
    first_seed: Annotated[int, typer.Option(help="First seed.")] = 200,
    tasks: Annotated[
        list[int] | None, typer.Option(help="Also so many training tasks, for a curve (repeat).")
    ] = None,
    jobs: Jobs = -1,
    scheduler: Scheduler = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data sets instead of downloads.")] = None,
    out: Annotated[Path, typer.Option(help="Results; finished cells are reused.")] = Path("benchmark"),
    report: Annotated[Path | None, typer.Option(help="Write the page of results to this file.")] = None,
    before: Annotated[
        Path | None, typer.Option(help="Results of an earlier version on the same seeds, to show beside.")
    ] = None,
    only_finished: Annotated[
        bool, typer.Option("--finished", help="Run no cell; show those that are finished.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List data sets and methods.")] = False,
) -> None:
    """Compare the learners with what a practitioner would use, on the same tasks."""
    # Finished trials are reused, so that the same command goes on.
    with explained(resume_command=shlex.join(["tailored", *sys.argv[1:]])):
        from ..studies.benchmark import METHODS, SUITES, Report, run_benchmark, seeds_of
        from ..studies.benchmark.page import write_results
        from ..studies.benchmark.recipe import recipe
        from ..studies.benchmark.tables.before import read_before
        from ..studies.benchmark.tables.summary import summarise
        from ..studies.files import make_folder
        from ..studies.parallel import on_scheduler

        check_where(jobs, scheduler)
        if show_list:
            for name, suite in SUITES.items():
                console.print(f"{name:26} {suite.description}", markup=False)
            console.print("\nmethods:")
            for name, one in METHODS.items():
                console.print(f"{name:26} {one.label.replace('`', '')}", markup=False)
            return
        suites, methods = data_sets or list(SUITES), method or list(METHODS)
        _check_names("data set", suites, SUITES)
        _check_names("method", methods, METHODS)
        if scheduler is not None:
            # Workers need not have been started in this folder.
            out, data = out.absolute(), None if data is None else data.absolute()
        make_folder(out / "cells")
        with on_scheduler(scheduler, out / "cells", data):
            results = run_benchmark(
                suites,
                methods,
                {name: seeds_of(name, first_seed, seeds) for name in suites},
                out / "cells",
                task_counts=tasks or (),
                data=None if data is None else str(data),
                n_jobs=jobs,
                progress=True,
                only_finished=only_finished,
            )
        _print_lines(summarise(results), f"Mean absolute error on new tasks, seeds from {first_seed}")
        collected = Report(
            results,
            {} if before is None else read_before(before),
            [] if report is None else recipe(out),
            skipped=results.skipped,
        )
        for path in write_results(collected, out, report):
            say(f"written: {path}")


def _check_names(kind: str, names: Iterable[str], valid: Iterable[str]) -> None:
    for name in names:
        if name not in valid:
            raise typer.BadParameter(f"{name!r} is not a {kind}; valid names: {', '.join(valid)}")


def _print_lines(lines: list[Line], title: str) -> None:
    shown = table(title, ["data set", "method"], ["error", "against best baseline", "p", "fit"])
    for place, line in enumerate(lines):
        same = line.method == line.best_baseline
        shown.add_row(
            line.suite,
            line.method,
            f"{line.mean:.4f} ± {line.deviation:.4f}",
            "best baseline" if same else f"{line.difference:+.2f} %" if line.best_baseline else "",
            "" if same or line.p_value != line.p_value else f"{line.p_value:.1e}",
            f"{line.seconds:.1f} s",
            end_section=[other.suite for other in lines[place + 1 : place + 2]] != [line.suite],
        )
    console.print(shown)
