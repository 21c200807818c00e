"""Commands `demo`, which compares methods on synthetic schools, and `datasets`, which lists real data sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .console import console, make_table, note, report_errors, say

#: Number of new schools, observed pupils per school, and pupils to predict per new school.
N_TEST, SUPPORT_ROWS, QUERY_ROWS = 200, 4, 10
#: Mean (intercept, slope) of each kind of school, their standard deviations within a kind, and the noise std.
KINDS, WITHIN, NOISE = ((45.0, 4.0), (65.0, 0.0)), (3.0, 0.3), 6.0
OURS = "EmpiricalBayesLearner"
#: Methods whose lines are drawn: name in the legend, colour and dashes.
LINES = {
    "PooledRidge": ("pooled slope", "#009e73", ":"),
    "RidgePerTask": ("own rows alone", "#d55e00", "--"),
    OURS: ("tailored", "#0072b2", "-"),
}


class DemoResult(NamedTuple):
    """Results of the demo."""

    errors: dict[str, Any]  # by method: mean absolute error of each new school, (n_test,)
    schools: list[Any]  # for each school in the figure, a pair of TaskSets: observed and predicted pupils
    lines: dict[str, Any]  # by method: slope and intercept for each school in the figure, (n_drawn, 2)

    def rows(self) -> list[tuple[str, float, float]]:
        """Return the name, mean error and standard error of each method, sorted by decreasing error."""
        errors = self.errors.items()
        means = [(name, each.mean(), each.std(ddof=1) / len(each) ** 0.5) for name, each in errors]
        return sorted(means, key=lambda row: -row[1])


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for figure and table.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the synthetic schools.")] = 0,
    tasks: Annotated[int, typer.Option(min=10, help="Number of training schools.")] = 300,
    jobs: Annotated[int, typer.Option(help="Number of CPU cores; -1 uses all.")] = -1,
) -> None:
    """Compare the learner with baselines on synthetic schools; write a table and a figure.

    Example: tailored demo --out demo
    """
    with report_errors():
        out.mkdir(parents=True, exist_ok=True)
        result = run_demo(n_train=tasks, seed=seed, n_jobs=jobs)
        title = f"{tasks} training and {N_TEST} new schools of {SUPPORT_ROWS} pupils, seed {seed}"
        shown = make_table(title, ["method"], ["mean absolute error", "± s.e."])
        for name, mean, error in result.rows():
            shown.add_row(name, f"{mean:.4f}", f"{error:.4f}")
        console.print(shown)
        csv, figure = out / "demo.csv", out / "demo.png"
        lines = [f"{name},{mean:.6f},{error:.6f}" for name, mean, error in result.rows()]
        csv.write_text("\n".join(["method,mean_absolute_error,standard_error", *lines]) + "\n")
        draw_demo(result).savefig(figure, dpi=150, metadata={"Software": None})
        say(f"figure: {figure}   table: {csv}")


def run_demo(*, n_train: int, seed: int, n_jobs: int) -> DemoResult:
    """Fit the learner and baselines to schools of two kinds, and predict pupils of new schools.

    The score of a pupil depends on the hours of homework.  The kind of a school determines its regression line and is
    not observed.  All methods are fitted to `SUPPORT_ROWS` pupils of each training school and adapt to `SUPPORT_ROWS`
    pupils of each new school.
    """
    import numpy as np

    from ..baselines import MixedModel, PooledRidge, RidgePerTask, TaskMean
    from ..learners.empirical_bayes import EmpiricalBayesLearner
    from ..tasks.task_set import TaskSet

    rng = np.random.default_rng(seed)
    n_schools, n_rows = n_train + N_TEST, SUPPORT_ROWS + QUERY_ROWS
    kinds = rng.integers(len(KINDS), size=n_schools)
    weights = np.array(KINDS)[kinds] + WITHIN * rng.standard_normal((n_schools, 2))
    school = np.repeat(np.arange(n_schools), n_rows)
    hours = rng.uniform(0.0, 10.0, len(school))
    score = weights[school, 0] + weights[school, 1] * hours + NOISE * rng.standard_normal(len(school))
    support, query = TaskSet(hours[:, None], score, school).support_query(SUPPORT_ROWS, shuffle=False)
    train, new, predicted = support[:n_train], support[n_train:], query[n_train:]
    learner = EmpiricalBayesLearner(loss="absolute", n_jobs=n_jobs)
    methods: list[Any] = [TaskMean(), PooledRidge(), RidgePerTask(), MixedModel(), learner]
    errors, lines = {}, {}
    for method in methods:
        name = type(method).__name__
        note(f"fitting {name}")
        errors[name] = method.fit(train).task_errors(new, predicted)
        adapted = method.adapt_many(new)
        lines[name] = np.asarray(getattr(adapted, "weights_", adapted))
    # Schools whose own fits have a low, a typical and a high slope.
    shown = np.argsort(lines["RidgePerTask"][:, 0])[[N_TEST // 10, N_TEST // 2, 9 * N_TEST // 10]]
    schools = [(new[[i]], predicted[[i]]) for i in shown]
    return DemoResult(errors, schools, {name: each[shown] for name, each in lines.items()})


def draw_demo(result: DemoResult) -> Any:
    """Draw three schools with their lines, and the errors of the methods; return the figure."""
    import numpy as np

    from ..displays.base import RC, draw_points, pyplot

    with pyplot().rc_context(RC):
        figure = pyplot().figure(figsize=(10.0, 3.3), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=[1.4, 1.0], wspace=0.02)
        axes = left.subplots(1, len(result.schools), sharex=True, sharey=True)
        ends = np.array([0.0, 10.0])
        for i, (ax, (observed, predicted)) in enumerate(zip(axes, result.schools, strict=True)):
            points, new = (observed.X[:, 0], observed.y), (predicted.X[:, 0], predicted.y)
            draw_points(ax, points, "o", "black", markersize=4.5, label="observed", zorder=4)
            draw_points(ax, new, "o", "0.6", filled=False, markersize=4.5, label="not yet observed")
            for name, (label, color, dashes) in LINES.items():
                slope, intercept = result.lines[name][i]
                ax.plot(ends, intercept + slope * ends, dashes, color=color, linewidth=1.8, label=label)
            ax.set(title=f"new school {i + 1}", xlabel="hours of homework")
        axes[0].set_ylabel("score of a pupil")
        handles = axes[0].get_legend_handles_labels()
        left.legend(*handles, loc="outside upper center", ncols=5, columnspacing=1.2)
        ax, rows = right.subplots(), result.rows()
        for y, (name, mean, error) in enumerate(rows[::-1]):
            color = LINES.get(name, ("", "0.35"))[1]
            ax.errorbar(mean, y, xerr=2.0 * error, fmt="o", color=color, capsize=3)
        noise = NOISE * np.sqrt(2.0 / np.pi)  # expected absolute value of the noise
        ax.axvline(noise, color="0.35", linestyle="--", linewidth=1.0, zorder=0)
        above: Any = {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "bottom", "fontsize": 8}
        ax.text(noise, 1.01, "error of the true lines (noise)", color="0.35", **above)
        ax.set_yticks(range(len(rows)), [name for name, *_ in rows[::-1]])
        ax.set(
            xlim=(0.0, None), ylim=(-0.6, len(rows) - 0.4), xlabel="mean absolute error ± 2 standard errors"
        )
    return figure


def datasets() -> None:
    """List the real data sets: source, licence, citation and local copy.

    Example: tailored datasets
    """
    with report_errors():
        from ..datasets import SOURCES, get_data_home

        home = get_data_home()
        for source in SOURCES.values():
            state = "downloaded" if (home / source.file).exists() else "not downloaded yet"
            size = f"{source.size / 1e6:.2g} MB"
            console.print(f"[bold]{source.name}[/bold]  {source.file}, {size}", highlight=False)
            say(f"  source   {source.url}\n  licence  {source.licence}\n  cite     {source.citation}")
            say(f"  cache    {home / source.file} ({state})")
        folder = os.environ.get("TAILORED_DATA")
        state = f"set to {folder}; its files are used and nothing is downloaded" if folder else "not set"
        say(f"TAILORED_DATA (folder with local copies): {state}")
