"""The variants of Algorithm 1 that produced the published numbers, run on the published data and
compared seed by seed.

``seeds.csv`` has the published errors. `VARIANTS` says what the published runs compute.
`algorithm_1` is the algorithm of the text on the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from tailored._utils.progress import progress_bar
from tailored._utils.threads import single_threaded_blas
from tailored.losses import get_loss
from tailored.paper.algorithm_1 import StepSizes, Surrogate, Trajectory
from tailored.paper.algorithm_1 import run as run_solver
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows

from ..data import load_lenk, load_movielens
from ..files import ResultsError, write_text
from ..parallel import in_any_order

Array = NDArray[np.float64]
Task = tuple[Array, Array]

STEPS = 10 ** np.linspace(-5, 5, 14)
#: A run agrees if no compared error differs by more.
AGREES = 1e-10
#: The command fails if a run outside `MAY_DIFFER` differs by more.
TOLERANCE = 1e-8
RESULTS_FILE = "as-published.csv"
#: The table that the documentation shows.
COMMITTED = Path(__file__).parents[2] / "docs" / "figures" / RESULTS_FILE
KEY = ["experiment", "method", "seed"]


@dataclass(frozen=True)
class Variant:
    """What a published run computes; the defaults are the text's.

    All variants average the iterates after each update; the text averages those before it.
    """

    pseudo_inverse: bool = (
        False  # u = pinv(θ) w with the last iterate w of the task, instead of Xᵀs / n
    )
    trace_term: bool = True  # 2 XᵀX / n² in the gradient, and the projection that is needed then
    rows_of_file: bool = (
        False  # n in that term is of user t in the file, instead of the t-th drawn user
    )
    feature_matrix: str = ""  # T(φ): "kronecker" is the text's I ⊗ φ; "" has H = 0
    at_averages: bool = False  # gradients at running averages, instead of iterates

    def __str__(self) -> str:
        words = {
            "`u = pinv(θ) w`": self.pseudo_inverse,
            "no trace term": not self.trace_term,
            "n of another user": self.rows_of_file,
            "T(φ) instead of I ⊗ φ": self.feature_matrix == "reshape",
            "gradients at running averages": self.at_averages,
        }
        return "; ".join(text for text, holds in words.items() if holds)


EQ_23, RESHAPED = Variant(pseudo_inverse=True), Variant(feature_matrix="reshape", at_averages=True)
#: By experiment and method; None is θ = I.
VARIANTS: dict[tuple[str, str], Variant | None] = {
    ("clusters-2", "independent"): None,
    ("clusters-2", "unconditional"): EQ_23,
    ("clusters-2", "conditional"): RESHAPED,
    ("clusters-6", "independent"): None,
    ("clusters-6", "unconditional"): EQ_23,
    ("clusters-6", "conditional"): RESHAPED,
    ("lenk", "independent"): None,
    ("lenk", "unconditional"): Variant(trace_term=False),
    ("lenk", "conditional"): replace(RESHAPED, trace_term=False),
    # not published: it shows the effect of the reshape
    ("lenk", "conditional-kronecker"): replace(
        RESHAPED, trace_term=False, feature_matrix="kronecker"
    ),
    ("movielens", "independent"): None,
    ("movielens", "unconditional"): replace(EQ_23, rows_of_file=True),
    ("movielens", "conditional"): RESHAPED,
}
EXPERIMENTS = list(dict.fromkeys(experiment for experiment, _ in VARIANTS))
METHODS = list(dict.fromkeys(method for _, method in VARIANTS))
#: Seeds of runs that are compared but may differ; rounding decides the published ones (see
#: `published_section`).
MAY_DIFFER: dict[tuple[str, str], Sequence[int]] = {
    ("lenk", "independent"): range(5),
    ("lenk", "conditional-kronecker"): range(5),
    ("movielens", "unconditional"): range(1, 5),
}
#: Algorithm 1 with side information takes minutes here (H has 820 rows); it is run for seed 0 only.
SLOW = [("clusters-2", "conditional"), ("clusters-6", "conditional")]


class Part(NamedTuple):
    """Tasks, padded with zeros to a common number of rows; ``phi`` (T, k) is not scaled."""

    X: Array
    y: Array
    n: Array
    query_X: Array
    query_y: Array
    query_n: Array
    phi: Array


class Data(NamedTuple):
    """The tasks of one seed."""

    train: Part
    validation: Part
    test: Part
    n_of_file: Array  # number of support rows of each user, in the order of the file


def mean_embedding(X: Array, y: Array) -> Array:
    """Return ``Xᵀ(y, 1) / n`` row by row, and a one."""
    return np.append((X.T @ np.column_stack([y, np.ones(len(y))]) / len(y)).ravel(), 1.0)


def tikhonov(X: Array, y: Array) -> Array:
    """Return the ridge solution with λ = 1 of rows with one more column of ones."""
    X = np.column_stack([X, np.ones(len(y))])
    return np.asarray(np.linalg.solve(X.T @ X + np.eye(X.shape[1]), X.T @ y))


def load(experiment: str, seed: int, path: str | None = None) -> Data:
    """Draw the published tasks of a seed with NumPy's legacy generator; ``path`` is the folder of
    the real data.
    """
    rng = np.random.RandomState(seed)
    if experiment == "lenk":
        return _lenk(rng, path)
    return (
        _movielens(rng, path) if experiment == "movielens" else _clusters(rng, int(experiment[-1]))
    )


def _clusters(rng: np.random.RandomState, m: int) -> Data:
    cluster = rng.randint(m, size=(1, 900))[0]
    columns = rng.choice(np.arange(20), 2 * m, replace=False).reshape(m, 2)
    support, query = [], []
    for j in cluster:
        X = rng.randn(80, 20)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        w = np.zeros((20, 1))
        w[columns[j]] = rng.randn(2, 1)
        y = (X @ (w / np.linalg.norm(w)))[:, 0] + 0.1 * rng.randn(80)
        chosen, rest = train_test_split(np.arange(80), test_size=0.5, random_state=rng)
        support.append((X[chosen], y[chosen]))
        query.append((X[rest], y[rest]))
    return _split(support, query, mean_embedding, [500, 300, 100])


def _lenk(rng: np.random.RandomState, path: str | None) -> Data:
    tasks = load_lenk(path).tasks
    X = np.column_stack([np.ones(len(tasks.y)), tasks.X]).reshape(-1, 20, 14)
    y = tasks.y.reshape(-1, 20)
    rng.shuffle(np.arange(170))  # not used, but it advances the generator
    orders = [rng.permutation(16) for _ in range(170)]
    support = [(X[t, order], y[t, order]) for t, order in enumerate(orders)]
    query = [(X[t, 16:], y[t, 16:]) for t in range(170)]
    return _split(support, query, tikhonov, [100, 40, 30])


def _movielens(rng: np.random.RandomState, path: str | None) -> Data:
    tasks = load_movielens(path).tasks
    users = []
    for a, b in pairwise(tasks.offsets):
        order = np.argsort(tasks.X[a:b].argmax(axis=1))  # from the most to the least rated movie
        users.append((tasks.X[a:b][order], tasks.y[a:b][order]))
    drawn = rng.permutation(400)
    support, query = [], []
    for place, user in enumerate(drawn):
        X, y = users[user]
        rows = np.arange(len(y))
        chosen, rest = (
            (rows, rows)
            if place < 200
            else train_test_split(rows, test_size=0.25, random_state=rng)
        )
        support.append((X[chosen], y[chosen]))
        query.append((X[rest], y[rest]))
    n_of_file = np.array([len(support[place][1]) for place in np.argsort(drawn)], dtype=float)
    return _split(support, query, mean_embedding, [200, 100, 100])._replace(n_of_file=n_of_file)


def _split(
    support: list[Task], query: list[Task], phi: Callable[..., Array], sizes: Sequence[int]
) -> Data:
    parts = [
        Part(
            *_padded(support[a:b]),
            *_padded(query[a:b]),
            np.array([phi(*task) for task in support[a:b]]),
        )
        for a, b in pairwise(np.cumsum([0, *sizes]))
    ]
    return Data(parts[0], parts[1], parts[2], parts[0].n)


def _padded(tasks: list[Task]) -> tuple[Array, Array, Array]:
    n = np.array([len(y) for _, y in tasks], dtype=float)
    X = np.zeros((len(tasks), int(n.max()), tasks[0][0].shape[1]))
    y = np.zeros(X.shape[:2])
    for t, (rows, targets) in enumerate(tasks):
        X[t, : len(targets)], y[t, : len(targets)] = rows, targets
    return X, y, n


def one_pass(theta: Array, X: Array, y: Array, n: Array) -> tuple[Array, Array, Array]:
    """Return the subgradients, the last iterate, and the mean of the iterates after each step, for
    many tasks.
    """
    shape = np.broadcast_shapes(theta.shape[:-2], X.shape[:-2])
    w, total = np.zeros((*shape, X.shape[-1])), np.zeros((*shape, X.shape[-1]))
    signs = np.zeros((*shape, X.shape[-2]))
    for i in range(X.shape[-2]):
        x, is_row = X[..., i, :], i < n
        s = np.where(y[..., i] < np.einsum("...d,...d", x, w), 1.0, -1.0)
        moved = (1 - 1 / (i + 1)) * w - (theta @ x[..., None])[..., 0] * s[..., None] / (i + 1)
        w = np.where(is_row[..., None], moved, w)
        total += np.where(is_row[..., None], moved, 0.0)
        signs[..., i] = np.where(is_row, s, 0.0)
    return signs, w, total / n[..., None]


def test_error(thetas: Array, part: Part) -> Array:
    """Return the mean over tasks of the mean absolute error of a task, for ``thetas`` (..., T, d,
    d).
    """
    w = one_pass(thetas, part.X, part.y, part.n)[2]
    errors = np.abs(np.einsum("tnd,...td->...tn", part.query_X, w) - part.query_y)
    return np.asarray((errors.sum(axis=-1) / part.query_n).mean(axis=-1))


def feature_matrix(kind: str, phi: Array, d: int) -> Array:
    """Return T(φ) (dk, d): ``I ⊗ φ`` of the text, or the reshape of the published runs."""
    if kind == "kronecker":
        return np.asarray(np.kron(np.eye(d), phi[:, None]))
    return np.asarray(np.tensordot(np.eye(d), phi, 0).reshape(d * len(phi), d))


def used_rows(kind: str, d: int, k: int) -> NDArray[np.intp]:
    """Return the rows of T(φ) that are not zero for every φ; other rows and columns of H stay
    zero.
    """
    return np.flatnonzero(feature_matrix(kind, np.ones(k), d).any(axis=1))


def projected(A: Array) -> Array:
    """Return the nearest positive semidefinite matrices."""
    values, V = np.linalg.eigh(A)
    return np.asarray((V * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(V, -1, -2))


def run_variant(
    data: Data,
    variant: Variant,
    checkpoints: Sequence[int],
    steps: Array = STEPS,
    *,
    dense: bool = False,
) -> tuple[Array, Array]:
    """Return test errors (n_checkpoints, n_steps) and validation errors at the end (n_steps,) of a
    variant.

    H is stored on `used_rows`, which is exact; ``dense`` stores all of it.
    """
    train, kind = data.train, variant.feature_matrix
    (T, _, d), k = train.X.shape, train.phi.shape[1]
    rows = np.arange(d * k) if dense else used_rows(kind, d, k) if kind else np.arange(0)
    matrices = [
        np.array(
            [feature_matrix(kind, phi, d)[rows] if kind else np.zeros((0, d)) for phi in part.phi]
        )
        for part in data[:3]
    ]

    def tau(C: Array, H: Array, M: Array) -> Array:
        return np.asarray(C + np.swapaxes(M, -1, -2) @ H @ M)

    step, identity = steps[:, None, None], np.eye(d)
    C, H = np.tile(identity, (len(steps), 1, 1)), np.zeros((len(steps), len(rows), len(rows)))
    at_C, at_H, total_C, total_H = C, H, 0.0 * C, 0.0 * H
    curve = []
    for t in range(T):
        n, M = int(train.n[t]), matrices[0][t]
        X, y, theta = train.X[t, :n], train.y[t, :n], tau(at_C, at_H, M)
        signs, w, _ = one_pass(theta, X, y, np.array(n))
        u = (
            (np.linalg.pinv(theta) @ w[..., None])[..., 0]
            if variant.pseudo_inverse
            else signs @ X / n
        )
        gradient = -0.5 * u[:, :, None] * u[:, None, :]
        if variant.trace_term:
            gradient = (
                gradient + 2 * X.T @ X / (data.n_of_file[t] if variant.rows_of_file else n) ** 2
            )
        C, H = C - step * gradient, H - step * (M @ gradient @ M.T)
        if variant.trace_term:
            C, H = projected(C), projected(H)
        total_C, total_H = total_C + C, total_H + H
        start = identity if variant.at_averages else 0.0
        mean_C, mean_H = (start + total_C) / (t + 1), total_H / (t + 1)
        at_C, at_H = (mean_C, mean_H) if variant.at_averages else (C, H)
        if t + 1 in checkpoints:
            curve.append(test_error(tau(mean_C[:, None], mean_H[:, None], matrices[2]), data.test))
    return np.array(curve), test_error(
        tau(mean_C[:, None], mean_H[:, None], matrices[1]), data.validation
    )


def algorithm_1(data: Data, method: str) -> float:
    """Return the test error of Algorithm 1 as in the text (Eq. 18, dual gradient), by the library's
    solver.
    """
    train, validation, test, _ = data
    d, k, loss = (
        train.X.shape[2],
        train.phi.shape[1] if method == "conditional" else 0,
        get_loss("absolute"),
    )
    if method == "independent":
        return float(test_error(np.eye(d), test))
    is_row = np.arange(train.X.shape[1]) < train.n[:, None]
    support = Rows(train.X[is_row], train.y[is_row], np.cumsum([0, *train.n.astype(int)]))
    runs = [Trajectory(StepSizes(step, step), np.eye(d), k) for step in STEPS.tolist()]
    surrogate = Surrogate(WithinTask(loss, "online"), loss.lipschitz)
    run_solver(runs, support, train.phi[:, :k], np.ones(len(train.n)), surrogate)
    learned = [one.average() for one in runs if not one.failure]
    best = min(
        learned, key=lambda one: float(test_error(one.evaluate(validation.phi[:, :k]), validation))
    )
    return float(test_error(best.evaluate(test.phi[:, :k]), test))


def published_errors() -> pd.DataFrame:
    """Return the published test errors at checkpoints: the columns of `KEY`, n_tasks and
    test_error.
    """
    with (resources.files(__package__) / "seeds.csv").open() as file:
        return pd.read_csv(file)


def compare(experiment: str, method: str, seed: int, path: str | None = None) -> dict[str, Any]:
    """Run a published variant, and Algorithm 1, on the published data of a seed; return a row of
    the table.
    """
    published = (
        published_errors()
        .set_index(KEY)
        .loc[[(experiment, method.removesuffix("-kronecker"), seed)]]
    )
    variant, step, own = VARIANTS[experiment, method], np.nan, np.nan
    # The largest steps of some variants overflow; they are not selected.
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        data = load(experiment, seed, path)
        if method != "conditional-kronecker" and (seed == 0 or (experiment, method) not in SLOW):
            own = algorithm_1(data, method)
        curve = np.full(len(published), own)
        if variant is not None:
            test, validation = run_variant(data, variant, published["n_tasks"].tolist())
            chosen = int(np.nanargmin(validation))
            curve, step = test[:, chosen], STEPS[chosen]
    gaps = np.abs(curve - published["test_error"].to_numpy())
    return dict(zip(KEY, (experiment, method, seed), strict=True)) | {
        "step": float(step),
        "published": float(published["test_error"].iloc[-1]),
        "reproduced": float(curve[-1]),
        "largest_difference": float(gaps.max()),
        # number of checkpoints before the first one that differs
        "agreeing": int(np.argmin(np.append(gaps <= AGREES, False))),
        "checkpoints": len(gaps),
        "algorithm_1": own,
    }


def read_comparisons(path: Path) -> pd.DataFrame:
    """Read a table of results."""
    try:
        table = pd.read_csv(path)
        return table.astype(
            {"seed": int, "agreeing": int, "largest_difference": float, "algorithm_1": float}
        )
    except (OSError, KeyError, ValueError) as error:
        advice = "Remove it, or choose another folder"
        raise ResultsError(
            f"{path} is not a table of compared runs ({error!r}). {advice}"
        ) from error


def compare_all(
    wanted: Sequence[tuple[str, str, int]],
    out: Path,
    *,
    data: str | None,
    n_jobs: int | None,
    resume: bool,
) -> pd.DataFrame:
    """Compare published runs with their reproduction; the table in ``out`` is rewritten after each
    run.
    """
    path = out / RESULTS_FILE
    rows = read_comparisons(path).to_dict("records") if path.exists() else []
    if rows and not resume:
        kept = f"{path} already has {len(rows)} finished runs"
        raise ResultsError(
            f"{kept}: add --resume to keep them and compute the rest, or choose another --out"
        )
    finished = {tuple(row[name] for name in KEY) for row in rows}
    missing = [(*key, data) for key in wanted if key not in finished]
    with progress_bar("as published", len(missing), enabled=True) as advance:
        for row in in_any_order(compare, missing, n_jobs):
            rows.append(row)
            write_text(path, pd.DataFrame(rows).sort_values(KEY).to_csv(index=False))
            advance(1)
    return pd.DataFrame(rows).set_index(KEY, drop=False).loc[list(wanted)]


def failing(table: pd.DataFrame) -> list[str]:
    """Return the names of the runs that should agree and do not."""
    return [
        f"{row.experiment} {row.method} seed {row.seed}"
        for row in table.itertuples()
        if row.seed not in MAY_DIFFER.get((row.experiment, row.method), ())
        and not row.largest_difference <= TOLERANCE
    ]


def published_section(results: Path | None = None) -> str:
    """Return the section of the reproduction page about the published runs, from a table of
    `compare_all`.
    """
    table = read_comparisons(results or COMMITTED)
    head = [
        "experiment",
        "method",
        "what the published run computes",
        "seeds that agree",
        "largest difference",
    ]
    lines, names = [[*head, "published", "Algorithm 1"], ["---"] * 7], {}
    for (experiment, method), variant in VARIANTS.items():
        runs = table[(table["experiment"] == experiment) & (table["method"] == method)]
        if runs.empty:
            raise ResultsError(
                f"no run of {experiment} {method}: finish `reproduce --as-published` first"
            )
        agreeing, both = (
            runs[runs["largest_difference"] <= AGREES],
            runs.dropna(subset="algorithm_1"),
        )
        different = runs.drop(agreeing.index)
        names[f"{experiment}_{method}".replace("-", "_")] = {
            **{
                name: f"{runs[name].mean():#.4g}"
                for name in ("published", "reproduced", "algorithm_1")
            },
            **{name: ", ".join(map(str, different[name])) for name in ("seed", "agreeing")},
        }
        if method == "conditional-kronecker":
            continue
        note = "" if len(both) == len(runs) else f" (seed {', '.join(map(str, both['seed']))})"
        means = [f"{both[name].mean():#.4g}{note}" for name in ("published", "algorithm_1")]
        worst = f"{agreeing['largest_difference'].max():.1g}"
        agree = f"{len(agreeing)} of {len(runs)}"
        lines.append([experiment, method, str(variant or "θ = I"), agree, worst, *means])
    text = (resources.files(__package__) / "as_published.md").read_text()
    sizes = {f"rows_{d}": len(used_rows("reshape", d, k)) for d, k in ((20, 41), (14, 15))}
    return text.format(
        table="\n".join(f"| {' | '.join(line)} |" for line in lines), **names, **sizes
    )
