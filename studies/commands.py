"""Commands of the studies: reproduce the paper, check its theory, compare methods."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailored._utils.tables import Table
from tailored.cli import console as cli_console
from tailored.cli.console import note, say

if TYPE_CHECKING:
    from .benchmark.tables import Line

Jobs = Annotated[int, typer.Option(help="Parallel cells; -1 uses all cores.")]
ResultsFolder = Annotated[Path, typer.Argument(help="Results folder of `reproduce`.")]


def reproduce(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            help="clusters-2, clusters-6, lenk, movielens, jester, all; or the path of a "
            ".toml file.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds (paper: 5).")] = None,
    step_sizes: Annotated[
        int | None, typer.Option(min=1, help="Number of step sizes, log-spaced (paper: 14).")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this method (repeat for several).", show_default="all"),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option(help="Rank limit of H, or 'exact' for none.", show_default="as configured"),
    ] = None,
    jobs: Jobs = -1,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke run at a tenth of the size.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the real data; nothing is downloaded then.")
    ] = None,
    figures: Annotated[
        bool,
        typer.Option("--figures/--no-figures", help="Draw the figures when the run is complete."),
    ] = True,
    as_published: Annotated[
        bool,
        typer.Option(
            "--as-published",
            help="Instead run the variants behind the published numbers, and compare seed by seed. "
            "Experiments: clusters-2, clusters-6, lenk, movielens, or all (default).",
        ),
    ] = False,
) -> None:
    """Run the paper's experiments: every seed, method and step size; write a table and draw the
    figures.
    """
    overrides = {"seeds": seeds, "step_sizes": step_sizes, "methods": method, "rank": rank}
    if as_published and (step_sizes or rank or quick or (seeds or 1) > 5):
        raise typer.BadParameter(
            "--as-published has five seeds, and no --step-sizes, --rank or --quick"
        )
    if not experiments and not as_published:
        raise typer.BadParameter("name experiments, or 'all'")
    with explained(_this_command(*([] if resume else ["--resume"]))):
        if as_published:
            _compare_with_published(
                experiments or ["all"], method, seeds or 5, out, data, jobs, resume
            )
            return
        from .reproduction.config import select_configs

        configs = select_configs(experiments or [], quick=quick, **overrides)
        _run(configs, out, data, jobs, resume)
        if figures:
            draw(out, out / "figures")


def plot(
    results: ResultsFolder,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figures.", show_default="RESULTS/figures")
    ] = None,
) -> None:
    """Redraw the figures (PNG and SVG) from a results folder; nothing is computed again."""
    with explained():
        draw(results, out or results / "figures")


def report(
    results: ResultsFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="Page to write.")] = Path(
        "reproduction.md"
    ),
    published: Annotated[
        Path | None,
        typer.Option(help="CSV file of published curves.", show_default="those of the paper"),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder for the figures.", show_default="figures, next to OUT"),
    ] = None,
    first_screen: Annotated[
        bool, typer.Option("--first-screen", help="Only print the table of README's first screen.")
    ] = False,
) -> None:
    """Write a page that compares a reproduction with the published numbers."""
    with explained():
        from .reproduction import report as pages

        if first_screen:
            from .reproduction.published import read_published
            from .reproduction.table import Results

            typer.echo(pages.first_screen(Results.read(results), read_published(published)))
            return
        folder = figures or out.parent / "figures"
        draw(results, folder, published)
        pages.write_report(results, out, published=published, figures=folder)
        say(f"page: {out}")


def theory(
    study: Annotated[
        list[str], typer.Argument(help="advantage, rates, bounds, or all.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder for the figures and tables.")] = Path("theory"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes, less than a minute.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the environments.")] = 0,
) -> None:
    """The paper's claims as measurements: each study writes a figure and a table."""
    with explained():
        from .theory.claims import STUDIES, write_study

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
        list[str] | None,
        typer.Option(help="Only this method (repeat for several).", show_default="all"),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of seeds.", show_default="30 of multilevel data sets, 10 of others"
        ),
    ] = None,
    first_seed: Annotated[int, typer.Option(help="First seed.")] = 200,
    jobs: Jobs = -1,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data sets instead of downloads.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Results; finished cells are reused.")] = Path(
        "benchmark"
    ),
    only_finished: Annotated[
        bool, typer.Option("--finished", help="Run no cell; show those that are finished.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List data sets and methods.")] = False,
) -> None:
    """Compare the learners with what a practitioner would use, on the same tasks."""
    # Finished trials are reused, so that the same command goes on.
    with explained(_this_command()):
        from .benchmark import polls
        from .benchmark.methods import METHODS
        from .benchmark.run import run_benchmark
        from .benchmark.suites import SUITES, seeds_of
        from .benchmark.tables import summarise, to_csv, write_tables
        from .files import make_folder, write_text

        if show_list:
            for name, suite in SUITES.items():
                say(f"{name:26} {suite.description}")
            say("\nmethods:")
            for name, one in METHODS.items():
                say(f"{name:26} {one.label.replace('`', '')}")
            return
        suites, methods = data_sets or list(SUITES), method or list(METHODS)
        _check_names("data set", suites, SUITES)
        _check_names("method", methods, METHODS)
        make_folder(out / "cells")
        results = run_benchmark(
            suites,
            methods,
            {name: seeds_of(name, first_seed, seeds) for name in suites},
            out / "cells",
            data=None if data is None else str(data),
            n_jobs=jobs,
            progress=True,
            only_finished=only_finished,
        )
        _print_lines(
            summarise(results), f"Mean absolute error on new tasks, seeds from {first_seed}"
        )
        if "polls" in suites and not only_finished and polls.missing(None) is None:
            write_text(out / "polls.csv", to_csv(*polls.stability_table(first_seed)))
        for path in write_tables(results, out):
            say(f"written: {path}")


@contextmanager
def explained(resume_command: str | None = None) -> Iterator[None]:
    """Report errors that a user can cause in one message; say how to continue where cells were
    kept.
    """
    again = (
        f"\nFinished cells are kept. Continue with:\n  {resume_command}" if resume_command else ""
    )
    with cli_console.report_errors():
        from .files import ResultsError, WriteError
        from .reproduction.config import ConfigError

        try:
            yield
        except KeyboardInterrupt:
            note(again.strip())
            raise
        except WriteError as error:
            note(f"error: {error}{again}")
            raise typer.Exit(1) from error
        except (ConfigError, ResultsError) as error:
            note(f"error: {error}")
            raise typer.Exit(1) from error


def _this_command(*options: str) -> str:
    return shlex.join(["python", "-m", "studies", *sys.argv[1:], *options])


def _run(configs: list[Any], out: Path, data: Path | None, jobs: int, resume: bool) -> None:
    from tailored._utils.progress import progress_bar

    from .reproduction import runner

    source = None if data is None else str(data)
    plans = runner.plan(configs, out, data=source, resume=resume)
    for warning in (message for p in plans for message in p.damaged):
        note(f"warning: {warning}")
    missing = [(p, cell) for p in plans for cell in p.missing]
    kept = sum(len(p.cells) for p in plans) - len(missing)
    note(f"{len(missing)} cells to compute" + (f", {kept} kept" if kept else "") + f" in {out}")
    with progress_bar("reproduce", len(missing), enabled=True) as advance:
        tick = None if advance is None else lambda: advance(1)
        summary = runner.execute(plans, out, data=source, n_jobs=jobs, tick=tick)
    _print_results(out, [config.name for config in configs])
    say(f"{summary.computed} cells in {summary.seconds:.0f} s   table: {summary.table}")


def _compare_with_published(
    names: list[str],
    method: list[str] | None,
    seeds: int,
    out: Path,
    data: Path | None,
    jobs: int,
    resume: bool,
) -> None:
    from .files import ResultsError
    from .reproduction import as_published as variants

    experiments, methods = (
        variants.EXPERIMENTS if "all" in names else names,
        method or variants.METHODS,
    )
    _check_names("published experiment whose data are known", experiments, variants.EXPERIMENTS)
    _check_names("method", methods, variants.METHODS)
    chosen = [(e, m) for e, m in variants.VARIANTS if e in experiments and m in methods]
    if not chosen:
        raise typer.BadParameter(
            f"no published run of {', '.join(methods)} with {', '.join(experiments)}"
        )
    wanted = [(*pair, seed) for pair in chosen for seed in range(seeds)]
    source = None if data is None else str(data)
    table = variants.compare_all(wanted, out, data=source, n_jobs=jobs, resume=resume)
    title = "Test error after all training tasks, and the largest difference over the checkpoints"
    formats = {"seed": "d", "step": ".5g", "published": ".6f", "reproduced": ".6f"}
    formats |= {"largest_difference": ".1e", "algorithm_1": ".4f"}
    rows = [
        [row["experiment"], row["method"], *(f"{row[k]:{how}}" for k, how in formats.items())]
        for row in table.to_dict("records")
    ]
    _print_table(
        title, ["experiment", "method", *(name.replace("_", " ") for name in formats)], rows
    )
    say(f"table: {out / variants.RESULTS_FILE}")
    if failing := variants.failing(table):
        limit = f"differ from the published errors by more than {variants.TOLERANCE:g}"
        raise ResultsError(f"{len(failing)} runs {limit}: {', '.join(failing)}")


def _print_results(out: Path, names: list[str]) -> None:
    from .reproduction.published import read_published
    from .reproduction.table import Results

    results, published = Results.read(out), read_published()
    title = "Test error after all training tasks: mean (standard deviation over seeds)"
    rows = []
    for name in names:
        for method in results.methods(name):
            final = results.curves(name, method).final
            spread = f"{final.std(ddof=1):.2g}" if len(final) > 1 else "-"
            there = published.get(name, {}).get(method)
            quoted = f"{there.mean:.4g} ({there.deviation:.2g})" if there else "-"
            rows.append([name, method, quoted, f"{final.mean():.4g} ({spread})", str(len(final))])
    _print_table(title, ["experiment", "method", "published", "measured", "seeds"], rows)


def draw(results: Path, out: Path, published: Path | None = None) -> None:
    """Draw the figures of a results folder, and say where they are."""
    from .reproduction.figures import draw_all
    from .reproduction.published import read_published

    for path in draw_all(results, out, published=read_published(published)):
        say(f"figure: {path}")


def _check_names(kind: str, names: Iterable[str], valid: Iterable[str]) -> None:
    for name in names:
        if name not in valid:
            raise typer.BadParameter(f"{name!r} is not a {kind}; valid names: {', '.join(valid)}")


def _print_lines(lines: list[Line], title: str) -> None:
    rows = []
    for line in lines:
        same = line.method == line.best_baseline
        difference = (
            "best baseline" if same else f"{line.difference:+.2f} %" if line.best_baseline else ""
        )
        p_value = "" if same or line.p_value != line.p_value else f"{line.p_value:.1e}"
        error = f"{line.mean:.4f} ± {line.deviation:.4f}"
        rows.append([line.suite, line.method, error, difference, p_value, f"{line.seconds:.1f} s"])
    _print_table(title, ["data set", "method", "error", "against best baseline", "p", "fit"], rows)


def _print_table(title: str, names: list[str], rows: list[list[str]]) -> None:
    say(str(Table.of_rows(title, names, rows, n_printed=len(rows))))


# --- environments for the choice of a model


def environments(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Environments; all of them when absent (see --list).", show_default=False
        ),
    ] = None,
    label: Annotated[
        str, typer.Option(help="Name of the version of the package that is run.")
    ] = "new",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Run no cell; compare two labels, OLD and NEW.", show_default=False),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of seeds.",
            show_default="10; a few environments have others, see --list",
        ),
    ] = None,
    first_seed: Annotated[int, typer.Option(help="First seed.")] = 5000,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed of every environment with fast fits.")
    ] = False,
    jobs: Jobs = 1,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data sets instead of downloads.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Results; finished cells are reused.")] = Path(
        "environments"
    ),
    show_list: Annotated[bool, typer.Option("--list", help="List the environments.")] = False,
) -> None:
    """Measure the default learner on many environments; compare two versions of the package on the
    same seeds.
    """
    with explained(None if compare else _this_command()):
        from .files import write_text
        from .selection import cells
        from .selection.environments import ENVIRONMENTS

        if show_list:
            for name, one in ENVIRONMENTS.items():
                say(f"{name:26} {one.n_seeds:2} seeds  {one.about}")
            return
        chosen = names or [n for n, one in ENVIRONMENTS.items() if not quick or one.n_seeds >= 10]
        _check_names("known environment", chosen, ENVIRONMENTS)
        if compare is None:
            number = 1 if quick and seeds is None else seeds
            ranges = {
                n: range(first_seed, first_seed + (number or ENVIRONMENTS[n].n_seeds))
                for n in chosen
            }
            folder = None if data is None else str(data)
            cells.run_cells(label, ranges, out, data=folder, n_jobs=jobs, progress=True)
        table = cells.read(out)
        table = table[table["environment"].isin(chosen)]
        found = cells.summarise(table, label) if compare is None else cells.compare(table, *compare)
        path = out / f"{'-'.join(compare or (label,))}.csv"
        write_text(path, found.to_csv(float_format="%.6g"))
        say(cells.to_text(found))
        say(f"written: {path}")
