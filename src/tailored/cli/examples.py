"""Commands `demo`, which compares learners on synthetic clusters of tasks, and `datasets`, which lists real data sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .console import console, make_table, note, report_errors, say

#: Number of validation tasks, of new tasks, and of observed rows per task.  As many rows again are to be predicted.
N_VALIDATION, N_TEST, N_ROWS = 100, 200, 10
#: Names of the coefficients.  The tasks of cluster i differ in the i-th one, and their other coefficients are zero.
COEFFICIENTS = ("slope", "bend", "level")
#: Standard deviation of that coefficient, whose mean is zero, and of the noise.
COEFFICIENT_STD, NOISE = 2.0, 0.5
INDEPENDENT, ALGORITHM_1 = "IndependentLearner", "ConditionalLearner (Algorithm 1)"
ORACLE, OURS = "IndependentLearner (tau=oracle)", "EmpiricalBayesLearner"
BAYES = "Bayes (cluster and variances known)"
EXPLANATION = f"""\
The side information of a task is its cluster. IndependentLearner, UnconditionalLearner and ConditionalLearner have
the paper's settings with fit_intercept=True. Their step sizes are selected on {N_VALIDATION} further tasks.
tau=oracle minimises the paper's bound. The error of Bayes is the lowest that any method can expect."""
#: Methods whose curves are drawn, with colour and dashes.
CURVES = {INDEPENDENT: ("#d55e00", "--"), ALGORITHM_1: ("#009e73", "-."), OURS: ("#0072b2", "-")}


class DemoResult(NamedTuple):
    """Results of the demo."""

    errors: dict[str, Any]  # by method: mean absolute error of each new task, (n_test,)
    tasks: list[Any]  # for the drawn task of each cluster, a pair of TaskSets: observed and predicted rows
    weights: dict[str, Any]  # by method: coefficients of the drawn tasks, (n_clusters, d)
    representations: dict[str, Any]  # "learned" and "oracle": τ(s) of each cluster, (n_clusters, d, d)

    def rows(self) -> list[tuple[str, float, float]]:
        """Return the name, mean error and standard error of each method, sorted by decreasing error."""
        errors = self.errors.items()
        means = [(name, each.mean(), each.std(ddof=1) / len(each) ** 0.5) for name, each in errors]
        return sorted(means, key=lambda row: -row[1])


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for figure and table.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the synthetic tasks.")] = 0,
    tasks: Annotated[int, typer.Option(min=10, help="Number of training tasks.")] = 300,
    jobs: Annotated[int, typer.Option(help="Number of CPU cores; -1 uses all.")] = -1,
) -> None:
    """Learn a representation for each of three clusters of synthetic tasks; write a table and a figure.

    Example: tailored demo --out demo
    """
    with report_errors():
        out.mkdir(parents=True, exist_ok=True)
        result = run_demo(n_train=tasks, seed=seed, n_jobs=jobs)
        title = f"{tasks} training and {N_TEST} new tasks of {N_ROWS} rows, seed {seed}"
        shown = make_table(title, ["method"], ["mean absolute error", "± s.e."])
        for name, mean, error in result.rows():
            shown.add_row(name, f"{mean:.4f}", f"{error:.4f}")
        console.print(shown)
        say(EXPLANATION)
        csv, figure = out / "demo.csv", out / "demo.png"
        lines = [f"{name},{mean:.6f},{error:.6f}" for name, mean, error in result.rows()]
        csv.write_text("\n".join(["method,mean_absolute_error,standard_error", *lines]) + "\n", "utf-8")
        draw_demo(result).savefig(figure, dpi=150, metadata={"Software": None})
        say(f"figure: {figure}   table: {csv}")


def basis(x: Any) -> Any:
    """Return the inputs at x: Legendre polynomials of degree 1, 2 and 0, orthonormal for x uniform on [-1, 1]."""
    import numpy as np

    return np.stack([3**0.5 * x, 5**0.5 * (1.5 * x**2 - 0.5), np.ones_like(x)], axis=-1)


def run_demo(*, n_train: int, seed: int, n_jobs: int) -> DemoResult:
    """Fit the paper's learners, a mixed model and `EmpiricalBayesLearner` to clusters of tasks, and predict new tasks.

    This is the paper's Example "Clusters" with m = 3 and C(s) = I: the ranges of W(s) are orthogonal lines.  All methods
    are fitted to `N_ROWS` rows of each training task and adapt to `N_ROWS` rows of each new task.
    """
    import numpy as np

    from ..baselines import MixedModel
    from ..learners.empirical_bayes import EmpiricalBayesLearner
    from ..learners.paper import ConditionalLearner, IndependentLearner, UnconditionalLearner
    from ..tasks.task_set import TaskSet
    from ..theory import oracle_representation

    rng, d = np.random.default_rng(seed), len(COEFFICIENTS)
    n_known = n_train + N_VALIDATION
    n_tasks = n_known + N_TEST
    side_info = np.eye(d)[rng.integers(d, size=n_tasks)]
    weights = COEFFICIENT_STD * rng.standard_normal((n_tasks, 1)) * side_info
    X = basis(rng.uniform(-1.0, 1.0, (n_tasks, 2 * N_ROWS)))
    y = np.einsum("tnd,td->tn", X, weights) + NOISE * rng.standard_normal(X.shape[:2])
    label = np.repeat(np.arange(n_tasks), 2 * N_ROWS)
    # The learners add the constant input.
    tasks = TaskSet(X[..., :-1].reshape(-1, d - 1), y.ravel(), label, side_info=dict(enumerate(side_info)))
    support, query = tasks.support_query(N_ROWS, shuffle=False)
    train, validation = support[:n_train], tasks[n_train:n_known]
    new, predicted = support[n_known:], query[n_known:]

    covariances = COEFFICIENT_STD**2 * np.eye(d)[:, :, None] * np.eye(d)[:, None, :]  # W(s) of each cluster
    oracle = np.array([oracle_representation(W, np.eye(d), n=N_ROWS, L=1.0) for W in covariances])
    settings: Any = {"fit_intercept": True, "n_jobs": n_jobs}
    algorithm_1 = ConditionalLearner.paper(feature_map="vector", **settings)
    methods: dict[str, Any] = {
        INDEPENDENT: IndependentLearner.paper(**settings),
        "UnconditionalLearner": UnconditionalLearner.paper(**settings),
        ALGORITHM_1: algorithm_1,
        ORACLE: IndependentLearner.paper(tau=lambda s: oracle[np.argmax(s)], **settings),
        "MixedModel": MixedModel(),
        OURS: EmpiricalBayesLearner(loss="absolute", n_jobs=n_jobs),
    }
    errors, coefficients = {}, {}
    for name, method in methods.items():
        note(f"fitting {name}")
        selects = isinstance(method, ConditionalLearner | UnconditionalLearner)
        method.fit(train, **({"validation": validation} if selects else {}))
        errors[name] = method.task_errors(new, predicted)
        coefficients[name] = np.asarray(method.adapt_many(new))
    # The posterior mean given the cluster, its covariance and the noise has the lowest expected error.
    X, y, W = X[n_known:], y[n_known:, :, None], covariances[side_info[n_known:].argmax(axis=1)]
    given, gain = X[:, :N_ROWS], W @ X[:, :N_ROWS].swapaxes(1, 2)
    posterior = gain @ np.linalg.solve(given @ gain + NOISE**2 * np.eye(N_ROWS), y[:, :N_ROWS])
    errors[BAYES] = np.abs(X[:, N_ROWS:] @ posterior - y[:, N_ROWS:]).mean(axis=(1, 2))
    # Draw the task of each cluster whose coefficient is at the upper quartile of its absolute value.
    size = np.abs(weights[n_known:])
    shown = [np.argsort(each)[-(np.count_nonzero(each) // 4) - 1] for each in size.T]
    learned = np.array([algorithm_1.representation(side_info=s) for s in np.eye(d)])
    return DemoResult(
        errors,
        [(new[[i]], predicted[[i]]) for i in shown],
        {name: each[shown] for name, each in coefficients.items()},
        {"learned": learned, "oracle": oracle},
    )


def draw_demo(result: DemoResult) -> Any:
    """Draw a new task of each cluster, τ(s) as learned and of the oracle, and the errors; return the figure."""
    import numpy as np

    from ..displays.base import PALETTE, RC, draw_points, pyplot

    with pyplot().rc_context(RC):
        from matplotlib.colors import LinearSegmentedColormap

        figure = pyplot().figure(figsize=(10.0, 5.0), layout="constrained")
        left, middle, right = figure.subfigures(1, 3, width_ratios=[1.22, 1.08, 1.15], wspace=0.03)
        axes = left.subplots(len(COEFFICIENTS), 1, sharex=True, sharey=True)
        grid = middle.subplots(len(COEFFICIENTS), 2, sharex=True, sharey=True)
        limit = max(np.abs(each).max() for each in result.representations.values())
        colors = LinearSegmentedColormap.from_list("", [PALETTE[1], "white", PALETTE[0]])
        x = np.linspace(-1.0, 1.0, 101)
        for i, (ax, (observed, predicted)) in enumerate(zip(axes, result.tasks, strict=True)):
            points, new = ((each.X[:, 0] / 3**0.5, each.y) for each in (observed, predicted))
            draw_points(ax, points, "o", "black", markersize=3.5, label="observed", zorder=4)
            draw_points(ax, new, "o", "0.6", filled=False, markersize=3.5, label="not yet observed")
            for name, (color, dashes) in CURVES.items():
                curve = basis(x) @ result.weights[name][i]
                ax.plot(x, curve, dashes, color=color, linewidth=1.8, label=name)
            ax.set(title=f"new task of cluster {i + 1}: tasks differ in {COEFFICIENTS[i]}", ylabel="y")
            for ax, (source, each) in zip(grid[i], result.representations.items(), strict=True):
                image = ax.imshow(each[i], cmap=colors, vmin=-limit, vmax=limit)
                ax.set_title(f"cluster {i + 1}, {source}", fontsize=9)
                ax.spines[:].set_visible(True)
        ax.set_xticks(range(len(COEFFICIENTS)), COEFFICIENTS)
        ax.set_yticks(range(len(COEFFICIENTS)), COEFFICIENTS)
        axes[-1].set_xlabel("x")
        left.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2, columnspacing=1.0
        )
        middle.colorbar(
            image, ax=grid, orientation="horizontal", shrink=0.8, aspect=30, label="entry of τ(s)"
        )
        ax, rows = right.subplots(), [row for row in result.rows() if row[0] != BAYES]
        for at, (name, mean, error) in enumerate(rows[::-1]):
            color = CURVES.get(name, ("0.35",))[0]
            ax.errorbar(mean, at, xerr=2.0 * error, fmt="o", color=color, capsize=3)
        best, top = result.errors[BAYES].mean(), ax.get_xaxis_transform()
        ax.axvline(best, color="0.35", linestyle="--", linewidth=1.0, zorder=0)
        ax.text(best, 1.01, BAYES, color="0.35", transform=top, ha="center", fontsize=8)
        ax.set_yticks(range(len(rows)), [name.replace(" (", "\n(") for name, *_ in rows[::-1]])
        ax.set(
            xlim=(0.0, None),
            ylim=(-0.4, len(rows) - 0.6),
            xlabel="mean absolute error\n(± 2 standard errors)",
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
