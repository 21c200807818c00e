"""Commands `demo`, which compares methods on six clusters of synthetic tasks, and `datasets`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .console import console, make_table, note, report_errors, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Clusters, test tasks, and rows of a test task to adapt on; the other 40 are predicted.
N_CLUSTERS, N_TEST, SUPPORT_ROWS = 6, 100, 40
OURS = "EmpiricalBayesLearner"


class DemoResult(NamedTuple):
    """Results of the demo."""

    errors: dict[str, NDArray[np.float64]]  # mean absolute error of every test task, (n_test,), by method
    noise_floor: float  # mean absolute noise of the predicted rows
    #: Share of τ(s) of a task of cluster i in the subspace of cluster j, averaged over test tasks, (m, m).
    subspace_share: NDArray[np.float64]

    def rows(self) -> list[tuple[str, float, float]]:
        """Return name, mean error and its standard error of every method, the largest error first."""
        rows = [
            (name, float(errors.mean()), float(errors.std(ddof=1) / len(errors) ** 0.5))
            for name, errors in self.errors.items()
        ]
        return sorted(rows, key=lambda row: -row[1])


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the table.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the synthetic tasks.")] = 0,
    tasks: Annotated[int, typer.Option(min=10, help="Number of training tasks.")] = 500,
    jobs: Annotated[int, typer.Option(help="Number of CPU cores; -1 uses all.")] = -1,
) -> None:
    """Compare the learner with baselines on synthetic tasks; write a table and a figure.

    Example: tailored demo --out demo
    """
    with report_errors():
        out.mkdir(parents=True, exist_ok=True)
        options: Any = {"seed": seed, "n_jobs": jobs, "announce": lambda name: note(f"fitting {name}")}
        result = run_demo(n_train=tasks, **options)
        n_test = len(result.errors[OURS])
        title = f"Six clusters, {tasks} training tasks, {n_test} new tasks, seed {seed}"
        shown = make_table(title, ["method"], ["mean absolute error", "± s.e."])
        for name, mean, error in result.rows():
            shown.add_row(name, f"{mean:.4f}", f"{error:.4f}")
        console.print(shown)
        csv, figure = out / "demo.csv", out / "demo.png"
        lines = [f"{name},{mean:.6f},{error:.6f}" for name, mean, error in result.rows()]
        csv.write_text("\n".join(["method,mean_absolute_error,standard_error", *lines]) + "\n")
        draw_demo(result).savefig(figure, dpi=150, metadata={"Software": None})
        say(f"figure: {figure}   table: {csv}")


def run_demo(*, n_train: int, seed: int, n_jobs: int, announce: Callable[[str], None]) -> DemoResult:
    """Fit the learner and simple methods to synthetic clusters; predict new tasks.

    All methods are fitted to `SUPPORT_ROWS` rows of each training task.  Of a test task, they adapt on as many rows and
    predict the other ones.
    """
    import numpy as np

    from ..baselines import MixedModel, PooledRidge, RidgePerTask, TaskMean
    from ..datasets import make_clusters
    from ..learners.empirical_bayes import EmpiricalBayesLearner

    options: Any = {"n_clusters": N_CLUSTERS, "n_rows": 2 * SUPPORT_ROWS, "random_state": seed}
    tasks, truth = make_clusters(n_train + N_TEST, **options, return_truth=True)
    support, query = tasks.support_query(SUPPORT_ROWS, shuffle=False)
    train, test_support, test_query = support[:n_train], support[n_train:], query[n_train:]
    learner = EmpiricalBayesLearner(loss="absolute", n_jobs=n_jobs)
    methods: list[Any] = [TaskMean(), PooledRidge(), RidgePerTask(), MixedModel(), learner]
    errors = {}
    for method in methods:
        name = type(method).__name__
        announce(name)
        errors[name] = method.fit(train).task_errors(test_support, test_query)
    weights = np.repeat(truth.weights[n_train:], test_query.sizes, axis=0)
    noise = test_query.y - np.einsum("nd,nd->n", test_query.X, weights)
    taus = learner.representation(test_support)[:, :-1, :-1]  # without the intercept
    inside = np.einsum("jdr,tde,jer->tj", truth.bases, taus, truth.bases)
    share, clusters = inside / np.trace(taus, axis1=1, axis2=2)[:, None], truth.clusters[n_train:]
    shares = np.array([share[clusters == i].mean(axis=0) for i in range(N_CLUSTERS)])
    return DemoResult(errors, float(np.abs(noise).mean()), shares)


def draw_demo(result: DemoResult) -> Any:
    """Draw the errors of the methods and the share of τ(s) in each subspace; return the figure."""
    import numpy as np

    from ..displays.base import pyplot

    layout: Any = {"figsize": (9.5, 3.4), "width_ratios": [1.35, 1], "layout": "constrained"}
    figure, (left, right) = pyplot().subplots(1, 2, **layout)
    names, means, errors = zip(*result.rows(), strict=True)
    positions = np.arange(len(names))[::-1]
    left.errorbar(means, positions, xerr=2 * np.array(errors), fmt="o", color="#0072b2", capsize=3)
    left.axvline(result.noise_floor, color="0.5", linestyle=":", label="noise of the predicted rows")
    left.set_yticks(positions, names)
    left.set_xlim(left=0)
    left.set_xlabel("mean absolute error on new tasks (bars: ± 2 standard errors)")
    left.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.385))
    image = right.imshow(result.subspace_share, cmap="Blues", vmin=0)
    numbers = np.arange(len(result.subspace_share))
    for set_ticks in (right.set_xticks, right.set_yticks):
        set_ticks(numbers, [str(j + 1) for j in numbers])
    right.set_xlabel("subspace of cluster j")
    right.set_ylabel("task of cluster i")
    right.set_title("share of τ(s) in each subspace", fontsize=10)
    figure.colorbar(image, ax=right, shrink=0.85)
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
