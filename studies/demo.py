"""The demo: what side information is worth for a new task of which ten rows are known.

    python -m studies.demo [--out FOLDER] [--seed SEED]       # or `make demo`

The tasks are those of the paper's Example "Clusters" with m = 3 and C(s) = I: the tasks of a
cluster differ in one coefficient, their other coefficients are zero, and the side information is
the cluster.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)

Array = NDArray[np.float64]

#: Numbers of training tasks, of validation tasks for step sizes, and of new tasks.
N_TRAIN, N_VALIDATION, N_NEW = 300, 100, 200
#: Observed rows of each task; as many rows again of the new tasks are predicted.
N_ROWS = 10
#: Standard deviation of the coefficient in which the tasks of a cluster differ, and of the noise.
COEFFICIENT_STD, NOISE = 2.0, 0.5
ALONE = "each task on its own"
ONE = "one representation for all tasks"
ALGORITHM_1 = "Algorithm 1: a representation by cluster"
MIXED_MODEL = "mixed model without side information"
OURS = "EmpiricalBayesLearner"
BEST = "best possible"
MESSAGE = "Ten rows of a new task are enough if its side information tells what to expect"
#: The methods that are drawn for one task, with colour and dashes.
DRAWN = {ALONE: ("#d55e00", "--"), ALGORITHM_1: ("#009e73", "-."), OURS: ("#0072b2", "-")}


def basis(x: Array) -> Array:
    """Return the inputs at x: Legendre polynomials of degree 1, 2 and 0, orthonormal for x uniform
    on [-1, 1].
    """
    return np.stack([3**0.5 * x, 5**0.5 * (1.5 * x**2 - 0.5), np.ones_like(x)], axis=-1)


def run(seed: int, n_train: int = N_TRAIN) -> tuple[dict[str, Array], dict[str, Any], TaskSet]:
    """Return the mean absolute error of each new task by method, the fitted learners, and the new
    tasks with all rows.
    """
    rng, d, n_known = np.random.default_rng(seed), 3, n_train + N_VALIDATION
    clusters = np.eye(d)[rng.integers(d, size=n_known + N_NEW)]  # one-hot encoded
    coefficient = COEFFICIENT_STD * rng.standard_normal((len(clusters), 1))
    X = basis(rng.uniform(-1.0, 1.0, (len(clusters), 2 * N_ROWS)))
    own = np.einsum("tnd,td->tn", X, clusters)  # the input that the task's coefficient belongs to
    y = coefficient * own + NOISE * rng.standard_normal(own.shape)
    groups = np.repeat(np.arange(len(clusters)), 2 * N_ROWS)
    features = X[..., :-1].reshape(-1, d - 1)  # the learners add the constant input
    tasks = TaskSet(features, y.ravel(), groups, side_info=dict(enumerate(clusters)))
    support, query = tasks.support_query(N_ROWS, shuffle=False)
    validation = support[n_train:n_known], query[n_train:n_known]
    methods: dict[str, Any] = {
        ALONE: IndependentLearner.paper(fit_intercept=True),
        ONE: UnconditionalLearner.paper(fit_intercept=True),
        ALGORITHM_1: ConditionalLearner.paper(feature_map="vector", fit_intercept=True),
        MIXED_MODEL: EmpiricalBayesLearner(covariance="full"),
        OURS: EmpiricalBayesLearner(),
    }
    errors = {}
    for name, learner in methods.items():
        has_steps = name in (ONE, ALGORITHM_1)
        train, new = support[:n_train], support[n_known:]
        if name == MIXED_MODEL:
            train, new = (each.replace(side_info=None, side_names=None) for each in (train, new))
        learner.fit(train, **({"validation": validation} if has_steps else {}))
        errors[name] = learner.task_errors(new, query[n_known:], loss="absolute")
    # The posterior mean given the cluster and both variances has the lowest expected error.
    own, y, old = own[n_known:], y[n_known:], slice(N_ROWS)
    precision = (own[:, old] ** 2).sum(axis=1) + (NOISE / COEFFICIENT_STD) ** 2
    posterior = (own[:, old] * y[:, old]).sum(axis=1) / precision
    errors[BEST] = np.abs(posterior[:, None] * own - y)[:, N_ROWS:].mean(axis=1)
    return errors, methods, tasks[n_known:]


def table(errors: dict[str, Array]) -> str:
    """Return the mean error of each method with its standard error, sorted by decreasing error."""
    lines = [f"{'mean absolute error on new tasks':>60}  standard error"]
    for name, each in sorted(errors.items(), key=lambda item: -item[1].mean()):
        lines.append(f"{name:44}{each.mean():16.3f}{each.std(ddof=1) / len(each) ** 0.5:16.3f}")
    return "\n".join(lines)


def draw(errors: dict[str, Array], methods: dict[str, Any], new: TaskSet) -> Any:
    """Draw the fits of one new task, and the errors of all methods; return the figure."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.0), layout="constrained")
    figure.suptitle(MESSAGE, fontsize=12)
    # A task of the second cluster with a large coefficient: its rows follow a bent line.
    support, query = new.support_query(N_ROWS, shuffle=False)
    in_second = np.flatnonzero(np.asarray(new.side_info, dtype=float)[:, 1] == 1.0)
    sizes = [np.ptp(new[[int(t)]].y) for t in in_second]
    shown = int(in_second[np.argsort(sizes)[-len(sizes) // 4]])
    x = np.linspace(-1.0, 1.0, 101)
    for name, (colour, dashes) in DRAWN.items():
        weights = np.asarray(methods[name].adapt_many(support))[shown]
        left.plot(x, basis(x) @ weights, dashes, color=colour, linewidth=1.8, label=name)
    for part, style in ((query, {"mfc": "white"}), (support, {})):
        rows = part[[shown]]
        label = "observed" if part is support else "to predict"
        left.plot(rows.X[:, 0] / 3**0.5, rows.y, "o", color="black", ms=4, label=label, **style)
    left.set(title="A new task and its fits", xlabel="x", ylabel="y")
    left.legend(loc="lower center", frameon=False, fontsize=8)
    ranked = sorted((name for name in errors if name != BEST), key=lambda name: errors[name].mean())
    for place, name in enumerate(ranked):
        each = errors[name]
        bar = 2.0 * each.std(ddof=1) / len(each) ** 0.5
        colour = DRAWN.get(name, ("0.35",))[0]
        right.errorbar(each.mean(), place, xerr=bar, fmt="o", color=colour, capsize=3)
    right.axvline(errors[BEST].mean(), color="0.35", linestyle="--", linewidth=1.0)
    right.text(errors[BEST].mean(), len(ranked) - 1.5, f" {BEST}", color="0.35", fontsize=8)
    right.set_yticks(range(len(ranked)), ranked)
    right.set(title="Errors on 200 new tasks", xlabel="mean absolute error (± 2 standard errors)")
    right.set_xlim(left=0.0)
    return figure


def main() -> None:
    """Print the table, and write the figure."""
    parser = argparse.ArgumentParser(prog="python -m studies.demo")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the figure")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tasks")
    options = parser.parse_args()
    errors, methods, new = run(options.seed)
    print(f"{N_TRAIN} training tasks and {N_NEW} new tasks of three clusters, {N_ROWS} rows each\n")
    print(table(errors))
    options.out.mkdir(parents=True, exist_ok=True)
    mpl.use("Agg")
    draw(errors, methods, new).savefig(options.out / "demo.png", dpi=150)
    print(f"\n{MESSAGE}: see {options.out / 'demo.png'}")


if __name__ == "__main__":
    main()
