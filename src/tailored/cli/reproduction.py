"""Commands of the reproduction: run the paper's experiments, draw them, compare them with the paper."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import explained
from .options import Jobs, Scheduler, check_where
from .output import console, note, say, table

ResultsFolder = Annotated[Path, typer.Argument(help="Results folder of `tailored reproduce`.")]


def reproduce(
    experiments: Annotated[
        list[str],
        typer.Argument(
            help="clusters-2, clusters-6, lenk, movielens, jester, all; or the path of a .toml file.",
            show_default=False,
        ),
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds (paper: 5).")] = None,
    step_sizes: Annotated[
        int | None, typer.Option(min=1, help="Number of step sizes, log-spaced (paper: 14).")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only this method (repeat for several).", show_default="all")
    ] = None,
    rank: Annotated[
        str | None, typer.Option(help="Rank limit of H, or 'exact' for none.", show_default="as configured")
    ] = None,
    jobs: Jobs = -1,
    scheduler: Scheduler = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run at a tenth of the size.")] = False,
    preset: Annotated[
        str, typer.Option(help="paper: Algorithm 1; practical: what the library recommends.")
    ] = "paper",
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the real data; nothing is downloaded then.")
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw the figures when the run is complete.")
    ] = True,
) -> None:
    """Run the paper's experiments: every seed, method and step size; write a table and draw the figures."""
    command = [
        *("tailored", "reproduce", *experiments),
        *_given("--seeds", seeds),
        *_given("--step-sizes", step_sizes),
        *(part for name in method or [] for part in ("--method", name)),
        *_given("--rank", rank),
        *_given("--jobs", None if jobs == -1 else jobs),
        *_given("--scheduler", scheduler),
        *(["--quick"] if quick else []),
        *_given("--preset", None if preset == "paper" else preset),
        *_given("--out", out),
        *_given("--data", data),
        *([] if figures else ["--no-figures"]),
        "--resume",
    ]
    overrides = {"seeds": seeds, "step_sizes": step_sizes, "methods": method, "rank": rank}
    with explained(resume_command=shlex.join(command)):
        from ..studies.reproduction.config_files import select_configs

        configs = select_configs(experiments, preset=preset, quick=quick, **overrides)
        check_where(jobs, scheduler)
        _run(configs, out, data, jobs, resume, scheduler)
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


def _given(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


def _run(
    configs: list[Any], out: Path, data: Path | None, jobs: int, resume: bool, scheduler: str | None
) -> None:
    from ..studies.parallel import on_scheduler
    from ..studies.reproduction import runner
    from ..studies.reproduction.ticker import ticker

    if scheduler is not None:
        # Workers need not have been started in this folder.
        out, data = out.absolute(), None if data is None else data.absolute()
    source = None if data is None else str(data)
    plans = runner.plan(configs, out, data=source, resume=resume)
    for warning in (message for p in plans for message in p.damaged):
        note(f"warning: {warning}")
    missing = [(p, cell) for p in plans for cell in p.missing]
    kept = sum(len(p.cells) for p in plans) - len(missing)
    note(f"{len(missing)} cells to compute" + (f", {kept} kept" if kept else "") + f" in {out}")
    cost = sum(p.cost(cell) for p, cell in missing)
    with on_scheduler(scheduler, out, data), ticker(len(missing), cost) as tick:
        summary = runner.execute(plans, out, data=source, n_jobs=jobs, tick=tick)
    _print_results(out, [config.name for config in configs])
    say(f"{summary.computed} cells in {summary.seconds:.0f} s   table: {summary.table}")


def _print_results(out: Path, names: list[str]) -> None:
    from ..studies.reproduction.published import read_published
    from ..studies.reproduction.table import Results

    results, published = Results.read(out), read_published()
    title = "Test error after all training tasks: mean (standard deviation over seeds)"
    shown = table(title, ["experiment", "method"], ["published", "measured", "seeds"])
    for name in names:
        for method in results.methods(name):
            final = results.curves(name, method).final
            spread = f"{final.std(ddof=1):.2g}" if len(final) > 1 else "-"
            there = published.get(name, {}).get(method)
            quoted = f"{there.mean:.4g} ({there.deviation:.2g})" if there else "-"
            shown.add_row(name, method, quoted, f"{final.mean():.4g} ({spread})", str(len(final)))
    console.print(shown)


def draw(results: Path, out: Path, published: Path | None = None) -> None:
    """Draw the figures of a results folder, and say where they are."""
    from ..studies.reproduction.figures import draw_all
    from ..studies.reproduction.published import read_published

    for path in draw_all(results, out, published=read_published(published)):
        say(f"figure: {path}")
