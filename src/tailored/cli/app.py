"""The command line: a thin layer over the library."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from .errors import explained, note
from .studies import benchmark, theory

if TYPE_CHECKING:
    from ..studies.demo import DemoResult

app = typer.Typer(
    help="Conditional meta-learning of linear representations.", no_args_is_help=True, add_completion=False
)
console = Console()


@app.callback()
def main() -> None:
    """Conditional meta-learning of linear representations."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the table.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the environment.")] = 0,
    tasks: Annotated[int, typer.Option(min=10, help="Number of training tasks.")] = 500,
    jobs: Annotated[int, typer.Option(help="Parallel candidates; -1 uses all cores.")] = -1,
) -> None:
    """Learn from six clusters of tasks with six methods; print a table, draw a figure."""
    from ..displays import DemoDisplay
    from ..studies.demo import run_demo

    errors = Console(stderr=True)
    result = run_demo(
        n_train=tasks, seed=seed, n_jobs=jobs, progress=True, announce=lambda name: errors.print(f"• {name}")
    )
    table = Table(title=f"Six clusters, {tasks} training tasks, {result.n_test} new tasks, seed {seed}")
    table.add_column("method")
    table.add_column("test error", justify="right")
    table.add_column("± s.e.", justify="right")
    table.add_column("training", justify="right")
    lines = ["method,mean_absolute_error,standard_error,seconds"]
    for method in result.methods:
        table.add_row(
            method.name, f"{method.mean:.4f}", f"{method.standard_error:.4f}", f"{method.seconds:.1f} s"
        )
        name = method.name.replace(",", "")
        lines.append(f"{name},{method.mean:.6f},{method.standard_error:.6f},{method.seconds:.2f}")
    console.print(table)
    out.mkdir(parents=True, exist_ok=True)
    (out / "demo.csv").write_text("\n".join(lines) + "\n")
    (out / "demo.md").write_text(_demo_markdown(result), encoding="utf-8")
    figure = DemoDisplay.from_result(result).plot()
    figure.savefig(out / "demo.png", dpi=150)
    console.print(f"figure: {out / 'demo.png'}   table: {out / 'demo.csv'}")


def _demo_markdown(result: DemoResult) -> str:
    """The demo's table as it stands in the README."""
    lines = ["| method | mean absolute error on new tasks | ± s.e. |", "|---|---|---|"]
    lines += [f"| {m.name} | {m.mean:.4f} | {m.standard_error:.4f} |" for m in result.methods]
    return "\n".join(lines) + "\n"


@app.command()
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
    jobs: Annotated[int, typer.Option(help="Parallel cells; -1 uses all cores.")] = -1,
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
        *(["--quick"] if quick else []),
        *_given("--preset", None if preset == "paper" else preset),
        *_given("--out", out),
        *_given("--data", data),
        *([] if figures else ["--no-figures"]),
        "--resume",
    ]
    with explained(resume_command=shlex.join(command)):
        from ..studies.reproduction import runner
        from ..studies.reproduction.config_files import select_configs
        from ..studies.reproduction.ticker import ticker

        configs = select_configs(
            experiments,
            preset=preset,
            quick=quick,
            seeds=seeds,
            step_sizes=step_sizes,
            methods=method,
            rank=rank,
        )
        place = None if data is None else str(data)
        plans = runner.plan(configs, out, data=place, resume=resume)
        for warning in (message for p in plans for message in p.damaged):
            note(f"warning: {warning}")
        missing = [(p, cell) for p in plans for cell in p.missing]
        kept = sum(len(p.cells) for p in plans) - len(missing)
        note(f"{len(missing)} cells to compute" + (f", {kept} kept" if kept else "") + f" in {out}")
        with ticker(len(missing), sum(p.cost(cell) for p, cell in missing)) as tick:
            summary = runner.execute(plans, out, data=place, n_jobs=jobs, tick=tick)
        _print_results(out, [config.name for config in configs])
        console.print(f"{summary.computed} cells in {summary.seconds:.0f} s   table: {summary.table}")
        if figures:
            _draw(out, out / "figures")


@app.command()
def plot(
    results: Annotated[Path, typer.Argument(help="Results folder of `tailored reproduce`.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figures.", show_default="RESULTS/figures")
    ] = None,
) -> None:
    """Redraw the figures (PNG and SVG) from a results folder; nothing is computed again."""
    with explained():
        _draw(results, out or results / "figures")


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Results folder of `tailored reproduce`.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("reproduction.md"),
    published: Annotated[
        Path | None, typer.Option(help="CSV file of published curves.", show_default="the paper's")
    ] = None,
    limited: Annotated[
        Path | None, typer.Option(help="Results with a rank limit, to compare with where seeds are shared.")
    ] = None,
    more_seeds: Annotated[
        Path | None, typer.Option(help="Results of some of the experiments with more seeds.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder to draw the figures into.", show_default="figures, beside OUT")
    ] = None,
) -> None:
    """Compare a results folder with the published numbers; write a Markdown page and its figures."""
    with explained():
        from ..studies.reproduction.report import write_report

        folder = figures or out.parent / "figures"
        _draw(results, folder, published)
        write_report(
            results, out, published=published, limited=limited, more_seeds=more_seeds, figures=folder
        )
        console.print(f"page: {out}")


app.command()(theory)
app.command()(benchmark)


@app.command()
def datasets() -> None:
    """List the real data sets: where they come from, their licence, where they are looked for."""
    with explained():
        import os

        from ..datasets import SOURCES, get_data_home
        from ..datasets._fetch import DATA_VARIABLE

        home = get_data_home()
        for source in SOURCES.values():
            console.print(
                f"[bold]{source.name}[/bold]  {source.file}, {source.size / 1e6:.2g} MB", highlight=False
            )
            console.print(f"  source   {source.url}", highlight=False, soft_wrap=True)
            console.print(f"  licence  {source.licence}", highlight=False, soft_wrap=True)
            console.print(f"  cite     {source.citation}", highlight=False, soft_wrap=True)
            state = "downloaded" if (home / source.file).exists() else "not downloaded yet"
            console.print(f"  cache    {home / source.file} ({state})", highlight=False, soft_wrap=True)
        local = os.environ.get(DATA_VARIABLE)
        where = f"set to {local}: used instead, no network" if local else "not set"
        console.print(
            f"{DATA_VARIABLE} (a folder with local copies): {where}", highlight=False, soft_wrap=True
        )


def _given(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


def _print_results(out: Path, names: list[str]) -> None:
    from ..studies.reproduction.published import read_published
    from ..studies.reproduction.table import Results

    results, published = Results.read(out), read_published()
    table = Table(title="Test error after all training tasks: mean (standard deviation over seeds)")
    for column in ("experiment", "method", "published", "measured", "seeds"):
        table.add_column(column, justify="left" if column in ("experiment", "method") else "right")
    for name in names:
        for method in results.methods(name):
            final = results.curves(name, method).final
            spread = f"{final.std(ddof=1):.2g}" if len(final) > 1 else "-"
            there = published.get(name, {}).get(method)
            quoted = f"{there.mean:.4g} ({there.deviation:.2g})" if there else "-"
            table.add_row(name, method, quoted, f"{final.mean():.4g} ({spread})", str(len(final)))
    console.print(table)


def _draw(results: Path, out: Path, published: Path | None = None) -> None:
    import matplotlib as mpl

    mpl.use("Agg")  # files only: no window system is needed, or asked for
    from ..displays.figures import draw_all
    from ..studies.reproduction.published import read_published

    ends = {
        name: {method: numbers.mean for method, numbers in by_method.items()}
        for name, by_method in read_published(published).items()
    }
    for path in draw_all(results, out, published=ends):
        console.print(f"figure: {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    app()
