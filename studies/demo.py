"""The command `demo` compares learners on synthetic clusters of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from tailored._utils.tables import Table
from tailored.cli.console import note, report_errors, say

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
the paper's settings with fit_intercept=True. The step sizes of the last two are selected on {N_VALIDATION} further tasks.
tau=oracle minimises the paper's bound. Bayes has the lowest possible expected error."""
#: Methods whose curves are drawn, with colour and dashes.
CURVES = {INDEPENDENT: ("#d55e00", "--"), ALGORITHM_1: ("#009e73", "-."), OURS: ("#0072b2", "-")}


class DemoResult(NamedTuple):
    """Results of the demo."""

    errors: dict[str, Any]  # by method: mean absolute error of each new task, (n_test,)
    tasks: list[
        Any
    ]  # for the drawn task of each cluster, a pair of TaskSets: observed and predicted rows
    weights: dict[str, Any]  # by method: coefficients of the drawn tasks, (n_clusters, d)
    representations: dict[
        str, Any
    ]  # "learned" and "oracle": τ(s) of each cluster, (n_clusters, d, d)

    def rows(self) -> list[tuple[str, float, float]]:
        """Return the name, mean error and standard error of each method, sorted by decreasing error."""
        errors = self.errors.items()
        means = [(name, each.mean(), each.std(ddof=1) / len(each) ** 0.5) for name, each in errors]
        return sorted(means, key=lambda row: -row[1])


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for figure and table.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the synthetic tasks.")] = 0,
    tasks: Annotated[int, typer.Option(min=10, help="Number of training tasks.")] = 300,
    jobs: Annotated[int, typer.Option(help="Number of CPU cores; -1 uses all.")] = -1,
) -> None:
    """Learn a representation for each of three clusters of synthetic tasks; write a table and a figure.

    Example: python -m studies demo --out demo
    """
    with report_errors():
        out.mkdir(parents=True, exist_ok=True)
        result = run_demo(n_train=tasks, seed=seed, n_jobs=jobs)
        title = f"{tasks} training and {N_TEST} new tasks of {N_ROWS} rows, seed {seed}"
        rows = [(name, f"{mean:.4f}", f"{error:.4f}") for name, mean, error in result.rows()]
        say(f"{Table.of_rows(title, ('method', 'mean absolute error', 'std. error'), rows)}\n")
        say(EXPLANATION)
        csv, figure = out / "demo.csv", out / "demo.png"
        lines = [f"{name},{mean:.6f},{error:.6f}" for name, mean, error in result.rows()]
        csv.write_text(
            "\n".join(["method,mean_absolute_error,standard_error", *lines]) + "\n", "utf-8"
        )
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

    from tailored.learners.empirical_bayes import EmpiricalBayesLearner
    from tailored.paper.learners import ConditionalLearner, IndependentLearner, UnconditionalLearner
    from tailored.paper.theory import oracle_representation
    from tailored.tasks.task_set import TaskSet

    from .rivals.base import MixedModel

    rng, d, n_known = np.random.default_rng(seed), len(COEFFICIENTS), n_train + N_VALIDATION
    clusters = np.eye(d)[rng.integers(d, size=n_known + N_TEST)]  # one-hot encoded
    coefficient = COEFFICIENT_STD * rng.standard_normal((len(clusters), 1))
    X = basis(rng.uniform(-1.0, 1.0, (len(clusters), 2 * N_ROWS)))
    own = np.einsum("tnd,td->tn", X, clusters)  # the input that the task's coefficient belongs to
    y = coefficient * own + NOISE * rng.standard_normal(own.shape)
    groups = np.repeat(np.arange(len(clusters)), 2 * N_ROWS)
    # The learners add the constant input.
    tasks = TaskSet(
        X[..., :-1].reshape(-1, d - 1), y.ravel(), groups, side_info=dict(enumerate(clusters))
    )
    support, query = tasks.support_query(N_ROWS, shuffle=False)
    train, validation = support[:n_train], (support[n_train:n_known], query[n_train:n_known])
    new, predicted = support[n_known:], query[n_known:]
    covariances = [COEFFICIENT_STD**2 * np.diag(cluster) for cluster in np.eye(d)]
    oracle = np.array([oracle_representation(W, np.eye(d), n=N_ROWS, L=1.0) for W in covariances])
    settings: Any = {"fit_intercept": True, "n_jobs": n_jobs}
    methods: dict[str, Any] = {
        INDEPENDENT: IndependentLearner.paper(**settings),
        "UnconditionalLearner": UnconditionalLearner.paper(**settings),
        ALGORITHM_1: ConditionalLearner.paper(feature_map="vector", **settings),
        ORACLE: IndependentLearner.paper(tau=lambda s: oracle[np.argmax(s)], **settings),
        "MixedModel": MixedModel(),
        OURS: EmpiricalBayesLearner(loss="absolute", n_jobs=n_jobs),
    }
    errors = {}
    for name, method in methods.items():
        note(f"fitting {name}")
        has_steps = isinstance(method, ConditionalLearner | UnconditionalLearner)
        method.fit(train, **({"validation": validation} if has_steps else {}))
        errors[name] = method.task_errors(new, predicted)
    # The posterior mean given the cluster and both variances has the lowest expected error.
    own, y, old = own[n_known:], y[n_known:], slice(N_ROWS)
    precision = (own[:, old] ** 2).sum(axis=1) + (NOISE / COEFFICIENT_STD) ** 2
    posterior = (own[:, old] * y[:, old]).sum(axis=1) / precision
    errors[BAYES] = np.abs(posterior[:, None] * own - y)[:, N_ROWS:].mean(axis=1)
    # Draw the task of each cluster whose coefficient is at the upper quartile of its absolute value.
    sizes = np.abs(coefficient * clusters)[n_known:]
    shown = [int(np.argsort(each)[-(np.count_nonzero(each) // 4) - 1]) for each in sizes.T]
    weights = {name: np.asarray(methods[name].adapt_many(new))[shown] for name in CURVES}
    learned = np.array([methods[ALGORITHM_1].representation(side_info=each) for each in np.eye(d)])
    drawn = [(new[[i]], predicted[[i]]) for i in shown]
    return DemoResult(errors, drawn, weights, {"learned": learned, "oracle": oracle})


def draw_demo(result: DemoResult) -> Any:
    """Draw a new task of each cluster, τ(s) as learned and of the oracle, and the errors; return the figure."""
    import numpy as np

    from tailored.show.display import PALETTE, RC, pyplot

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
            ax.plot(*points, "o", color="black", markersize=3.5, label="observed", zorder=4)
            unknown = {"color": "0.6", "mfc": "white", "markersize": 3.5}
            ax.plot(*new, "o", label="not yet observed", **unknown)
            for name, (color, dashes) in CURVES.items():
                ax.plot(
                    x,
                    basis(x) @ result.weights[name][i],
                    dashes,
                    color=color,
                    linewidth=1.8,
                    label=name,
                )
            ax.set(
                title=f"new task of cluster {i + 1}: tasks differ in {COEFFICIENTS[i]}", ylabel="y"
            )
            for cell, (source, each) in zip(grid[i], result.representations.items(), strict=True):
                image = cell.imshow(each[i], cmap=colors, vmin=-limit, vmax=limit)
                cell.set_title(f"cluster {i + 1}, {source}", fontsize=9)
                cell.spines[:].set_visible(True)
        cell.set_xticks(range(len(COEFFICIENTS)), COEFFICIENTS)
        cell.set_yticks(range(len(COEFFICIENTS)), COEFFICIENTS)
        axes[-1].set_xlabel("x")
        left.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
        middle.colorbar(
            image, ax=grid, location="bottom", shrink=0.8, aspect=30, label="entry of τ(s)"
        )
        ax, rows = right.subplots(), [row for row in result.rows() if row[0] != BAYES]
        for at, (name, mean, error) in enumerate(rows[::-1]):
            ax.errorbar(
                mean, at, xerr=2.0 * error, fmt="o", color=CURVES.get(name, ["0.35"])[0], capsize=3
            )
        best, top = result.errors[BAYES].mean(), ax.get_xaxis_transform()
        ax.axvline(best, color="0.35", linestyle="--", linewidth=1.0, zorder=0)
        ax.text(best, 1.01, BAYES, color="0.35", transform=top, ha="center", fontsize=8)
        ax.set_yticks(range(len(rows)), [name.replace(" (", "\n(") for name, *_ in rows[::-1]])
        ax.margins(y=0.08)
        ax.set(xlim=(0.0, None), xlabel="mean absolute error\n(± 2 standard errors)")
    return figure
