"""The variants of Algorithm 1 that produced the published numbers, run on the published data and compared seed by seed.

``seeds.csv`` has the published errors. `VARIANTS` says what the published runs compute. `algorithm_1` is the algorithm
of the text on the same data.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from tailored._utils.progress import progress_bar
from tailored._utils.threads import single_threaded_blas
from tailored.datasets import fetch_lenk, fetch_movielens
from tailored.losses import get_loss
from tailored.representation.bias import Bias
from tailored.solvers.base import TaskBatch
from tailored.solvers.objectives import Surrogate
from tailored.solvers.projected import StepSizes, Trajectory
from tailored.solvers.projected import run as run_solver
from tailored.tasks.rows import Rows

from ..files import ResultsError, write_text
from ..parallel import in_any_order

Array = NDArray[np.float64]
Task = tuple[Array, Array]

STEPS = 10 ** np.linspace(-5, 5, 14)
#: Two runs are the same if no compared error differs by more.
AGREES = 1e-10
#: The command fails if a run that rounding does not decide differs by more.
TOLERANCE = 1e-8
RESULTS_FILE = "as-published.csv"


@dataclass(frozen=True)
class Variant:
    """A version of Algorithm 1; the defaults are those of the text, apart from the first iterate.

    Published curves average the iterates after each update; the text averages those before it.
    """

    pseudo_inverse: bool = False  # u = pinv(θ) w with the last iterate w of the task; else u = Xᵀs / n
    trace_term: bool = True  # 2 XᵀX / n² in the gradient
    projection: bool = True  # onto positive semidefinite matrices
    at_averages: bool = False  # gradients at the running averages; else at the iterates
    rows_of_file: bool = (
        False  # n in the trace term: support rows of user t in file order; else of the t-th task
    )
    feature_matrix: str = ""  # "reshape" or "kronecker"; "" has H = 0


AVERAGED = Variant(at_averages=True, feature_matrix="reshape")
WITHOUT_TRACE = Variant(trace_term=False, projection=False)
VARIANTS: dict[tuple[str, str], Variant | None] = {
    ("clusters-2", "independent"): None,
    ("clusters-2", "unconditional"): Variant(pseudo_inverse=True),
    ("clusters-2", "conditional"): AVERAGED,
    ("clusters-6", "independent"): None,
    ("clusters-6", "unconditional"): Variant(pseudo_inverse=True),
    ("clusters-6", "conditional"): AVERAGED,
    ("lenk", "independent"): None,
    ("lenk", "unconditional"): WITHOUT_TRACE,
    ("lenk", "conditional"): Variant(False, False, False, at_averages=True, feature_matrix="reshape"),
    ("lenk", "conditional-kronecker"): Variant(
        False, False, False, at_averages=True, feature_matrix="kronecker"
    ),
    ("movielens", "independent"): None,
    ("movielens", "unconditional"): Variant(pseudo_inverse=True, rows_of_file=True),
    ("movielens", "conditional"): AVERAGED,
}
#: Algorithm 1 with side information takes minutes here (H has 820 rows), and is run for seed 0 only.
SLOW = ("clusters-2", "clusters-6")
EXPERIMENTS = list(dict.fromkeys(experiment for experiment, _ in VARIANTS))
METHODS = list(dict.fromkeys(method for _, method in VARIANTS))


#: Runs that may differ: rounding decides the first two kinds, and the third shows the effect of the reshape.
MAY_DIFFER = {("lenk", "independent", seed) for seed in range(5)}
MAY_DIFFER |= {("movielens", "unconditional", seed) for seed in range(1, 5)}
MAY_DIFFER |= {("lenk", "conditional-kronecker", seed) for seed in range(5)}


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
    """Draw the published tasks of a seed with NumPy's legacy generator; ``path`` is the folder of the real data."""
    rng = np.random.RandomState(seed)
    if experiment == "lenk":
        return _lenk(rng, path)
    return _movielens(rng, path) if experiment == "movielens" else _clusters(rng, int(experiment[-1]))


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
    tasks = fetch_lenk(path=path).tasks
    X = np.column_stack([np.ones(len(tasks.y)), tasks.X]).reshape(-1, 20, 14)
    y = tasks.y.reshape(-1, 20)
    rng.shuffle(np.arange(170))  # not used, but it advances the generator
    orders = [rng.permutation(16) for _ in range(170)]
    support = [(X[t, order], y[t, order]) for t, order in enumerate(orders)]
    query = [(X[t, 16:], y[t, 16:]) for t in range(170)]
    return _split(support, query, tikhonov, [100, 40, 30])


def _movielens(rng: np.random.RandomState, path: str | None) -> Data:
    tasks = fetch_movielens(path=path).tasks
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
            (rows, rows) if place < 200 else train_test_split(rows, test_size=0.25, random_state=rng)
        )
        support.append((X[chosen], y[chosen]))
        query.append((X[rest], y[rest]))
    n_of_file = np.array([len(support[place][1]) for place in np.argsort(drawn)], dtype=float)
    return _split(support, query, mean_embedding, [200, 100, 100])._replace(n_of_file=n_of_file)


def _split(support: list[Task], query: list[Task], phi: Callable[..., Array], sizes: Sequence[int]) -> Data:
    ends = np.cumsum([0, *sizes])
    parts = [
        Part(*_padded(support[a:b]), *_padded(query[a:b]), np.array([phi(*task) for task in support[a:b]]))
        for a, b in pairwise(ends)
    ]
    return Data(*parts, n_of_file=parts[0].n)


def _padded(tasks: list[Task]) -> tuple[Array, Array, Array]:
    n = np.array([len(y) for _, y in tasks], dtype=float)
    X = np.zeros((len(tasks), int(n.max()), tasks[0][0].shape[1]))
    y = np.zeros(X.shape[:2])
    for t, (rows, targets) in enumerate(tasks):
        X[t, : len(targets)], y[t, : len(targets)] = rows, targets
    return X, y, n


def one_pass(theta: Array, X: Array, y: Array, n: Array) -> tuple[Array, Array, Array]:
    """Return the subgradients, the last iterate, and the mean of the iterates after each step.

    ``theta`` (..., d, d), ``X`` (..., n, d), ``y`` (..., n) and ``n`` (...) have common leading axes after broadcasting.
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
    """Return the mean over tasks of the mean absolute error of a task, for ``thetas`` (..., T, d, d)."""
    w = one_pass(thetas, part.X, part.y, part.n)[2]
    errors = np.abs(np.einsum("tnd,...td->...tn", part.query_X, w) - part.query_y)
    return np.asarray((errors.sum(axis=-1) / part.query_n).mean(axis=-1))


def feature_matrix(kind: str, phi: Array, d: int) -> Array:
    """Return T(φ) (dk, d): ``I ⊗ φ`` of the text, or the reshape of the published runs."""
    if kind == "kronecker":
        return np.kron(np.eye(d), phi[:, None])
    return np.tensordot(np.eye(d), phi, 0).reshape(d * len(phi), d)


def used_rows(kind: str, d: int, k: int) -> NDArray[np.intp]:
    """Return the rows of T(φ) that are not zero for every φ; other rows and columns of H stay zero."""
    return np.flatnonzero(feature_matrix(kind, np.ones(k), d).any(axis=1))


def projected(A: Array) -> Array:
    """Return the nearest positive semidefinite matrices."""
    values, V = np.linalg.eigh(A)
    return np.asarray((V * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(V, -1, -2))


def run_variant(
    data: Data, variant: Variant, checkpoints: Sequence[int], steps: Array = STEPS, *, dense: bool = False
) -> tuple[Array, Array]:
    """Run a variant with all step sizes.

    H is stored on `used_rows`, which is exact; ``dense`` stores all of it.

    Returns
    -------
    test : ndarray of shape (n_checkpoints, n_steps)
    validation : ndarray of shape (n_steps,)
        Errors at the end of training.
    """
    train, kind = data.train, variant.feature_matrix
    (T, _, d), k = train.X.shape, train.phi.shape[1]
    rows = np.arange(d * k) if dense else used_rows(kind, d, k) if kind else np.arange(0)
    matrices = [
        np.array([feature_matrix(kind, phi, d)[rows] if kind else np.zeros((0, d)) for phi in part.phi])
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
        u = (np.linalg.pinv(theta) @ w[..., None])[..., 0] if variant.pseudo_inverse else signs @ X / n
        gradient = -0.5 * u[:, :, None] * u[:, None, :]
        if variant.trace_term:
            gradient = gradient + 2 * X.T @ X / (data.n_of_file[t] if variant.rows_of_file else n) ** 2
        C, H = C - step * gradient, H - step * (M @ gradient @ M.T)
        if variant.projection:
            C, H = projected(C), projected(H)
        total_C, total_H = total_C + C, total_H + H
        start = identity if variant.at_averages else 0.0
        mean_C, mean_H = (start + total_C) / (t + 1), total_H / (t + 1)
        at_C, at_H = (mean_C, mean_H) if variant.at_averages else (C, H)
        if t + 1 in checkpoints:
            curve.append(test_error(tau(mean_C[:, None], mean_H[:, None], matrices[2]), data.test))
    return np.array(curve), test_error(tau(mean_C[:, None], mean_H[:, None], matrices[1]), data.validation)


def algorithm_1(data: Data, method: str) -> float:
    """Return the test error of Algorithm 1 as in the text (Eq. 18, dual gradient), by the library's solver."""
    train, k = data.train, data.train.phi.shape[1] if method == "conditional" else 0
    d, loss = train.X.shape[2], get_loss("absolute")
    if method == "independent":
        return float(test_error(np.eye(d), data.test))
    is_row = np.arange(train.X.shape[1]) < train.n[:, None]
    support = Rows(train.X[is_row], train.y[is_row], np.cumsum([0, *train.n.astype(int)]))
    batch = TaskBatch(support, None, train.phi[:, :k], np.ones(len(train.n)))
    C0, bias = np.eye(d), Bias.zero("none", d, k)
    runs = [Trajectory.start(StepSizes(step, step, step), C0, bias, k, None) for step in STEPS.tolist()]
    run_solver(runs, batch, Surrogate(loss, loss.lipschitz, "online"))
    learned = [one.average() for one in runs if not one.failure]
    validation = [
        float(test_error(one.evaluate(data.validation.phi[:, :k]), data.validation)) for one in learned
    ]
    return float(test_error(learned[int(np.argmin(validation))].evaluate(data.test.phi[:, :k]), data.test))


@dataclass(frozen=True)
class Comparison:
    """One published run and its reproduction: a row of the table of results."""

    experiment: str
    method: str
    seed: int
    step: float  # selected on the validation tasks; NaN without a step
    published: float  # test errors at the end of training
    reproduced: float
    largest_difference: float  # over all checkpoints, absolute
    agreeing: int  # number of checkpoints that agree before the first that does not
    checkpoints: int
    algorithm_1: float  # test error of the algorithm of the text on the same data; NaN if it was not run

    @property
    def agrees(self) -> bool:
        return self.largest_difference <= AGREES

    @property
    def fails(self) -> bool:
        """Whether the run should agree, and does not."""
        key = self.experiment, self.method, self.seed
        return key not in MAY_DIFFER and not self.largest_difference <= TOLERANCE


@lru_cache(maxsize=1)
def published_runs() -> dict[tuple[str, str, int], dict[int, float]]:
    """Return the published test errors at checkpoints, by experiment, method and seed."""
    runs: dict[tuple[str, str, int], dict[int, float]] = {}
    for row in csv.DictReader(io.StringIO((resources.files(__package__) / "seeds.csv").read_text())):
        key = row["experiment"], row["method"], int(row["seed"])
        runs.setdefault(key, {})[int(row["n_tasks"])] = float(row["test_error"])
    return runs


def compare(experiment: str, method: str, seed: int, path: str | None = None) -> Comparison:
    """Run a published variant and Algorithm 1 on the published data of a seed."""
    published = published_runs()[experiment, method.removesuffix("-kronecker"), seed]
    variant = VARIANTS[experiment, method]
    # The largest steps of some variants overflow; they are not selected.
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        data = load(experiment, seed, path)
        is_skipped = method == "conditional-kronecker" or (
            method == "conditional" and experiment in SLOW and seed
        )
        own, step = np.nan if is_skipped else algorithm_1(data, method), np.nan
        if variant is None:
            curve = np.full(len(published), own)
        else:
            test, validation = run_variant(data, variant, list(published))
            chosen = int(np.nanargmin(validation))
            curve, step = test[:, chosen], float(STEPS[chosen])
    gaps = np.abs(curve - list(published.values()))
    agreeing = int(np.argmin(np.append(gaps <= AGREES, False)))
    ends = list(published.values())[-1], float(curve[-1]), float(gaps.max())
    return Comparison(experiment, method, seed, step, *ends, agreeing, len(gaps), own)


def read_comparisons(path: Path) -> list[Comparison]:
    """Read a table of results."""
    kinds: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
    try:
        return [
            Comparison(*(kinds[str(f.type)](row[f.name]) for f in fields(Comparison)))
            for row in csv.DictReader(io.StringIO(path.read_text()))
        ]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise ResultsError(
            f"{path} is not a table of compared runs ({error!r}). Remove it, or choose another --out"
        ) from error


def write_comparisons(path: Path, comparisons: Sequence[Comparison]) -> None:
    """Write a table of results with all digits, in the order of `VARIANTS`."""
    places = {key: place for place, key in enumerate(VARIANTS)}
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(Comparison)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        asdict(c) for c in sorted(comparisons, key=lambda c: (places[c.experiment, c.method], c.seed))
    )
    write_text(path, text.getvalue())


def compare_all(
    experiments: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    out: Path,
    *,
    data: str | None = None,
    n_jobs: int | None = None,
    resume: bool = False,
) -> list[Comparison]:
    """Compare published runs with their reproduction; the table in ``out`` is rewritten after each run."""
    path = out / RESULTS_FILE
    finished = {
        (c.experiment, c.method, c.seed): c for c in (read_comparisons(path) if path.exists() else [])
    }
    if finished and not resume:
        kept = f"{path} already has {len(finished)} finished runs"
        raise ResultsError(f"{kept}: add --resume to keep them and compute the rest, or choose another --out")
    wanted = [(e, m, s) for e, m in VARIANTS for s in range(seeds) if e in experiments and m in methods]
    missing = [(*key, data) for key in wanted if key not in finished]
    with progress_bar("as published", len(missing), enabled=True) as advance:
        for one in in_any_order(compare, missing, n_jobs):
            finished[one.experiment, one.method, one.seed] = one
            write_comparisons(path, list(finished.values()))
            advance(1)
    return [finished[key] for key in wanted]


def published_section(results: Path | None = None) -> str:
    """Return the section of the reproduction page about the published runs, from a table of `compare_all`."""
    runs: dict[tuple[str, str], list[Comparison]] = {}
    for run in read_comparisons(results or Path(__file__).parents[2] / "docs" / "figures" / RESULTS_FILE):
        runs.setdefault((run.experiment, run.method), []).append(run)
    lines = [
        "| experiment | method | what the published run computes | seeds that agree | largest difference | published "
        "| Algorithm 1 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (experiment, method), group in runs.items():
        if "-" in method:
            continue
        agreeing = [run for run in group if run.agrees]
        largest = f"{max(run.largest_difference for run in agreeing):.0e}" if agreeing else "–"
        both = [run for run in group if np.isfinite(run.algorithm_1)]
        seeds = "" if len(both) == len(group) else f" (seed {', '.join(str(run.seed) for run in both)})"
        cells = [
            experiment,
            method,
            _in_words(VARIANTS[experiment, method]),
            f"{len(agreeing)} of {len(group)}",
            largest,
        ]
        cells += [
            _mean(run.published for run in both) + seeds,
            _mean(run.algorithm_1 for run in both) + seeds,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    names = {
        f"{experiment}_{method}".replace("-", "_"): {
            "published": _mean(run.published for run in group),
            "reproduced": _mean(run.reproduced for run in group),
            "algorithm_1": _mean(run.algorithm_1 for run in group),
            "differing": ", ".join(str(run.seed) for run in group if not run.agrees),
            "agreeing_points": ", ".join(str(run.agreeing) for run in group if not run.agrees),
        }
        for (experiment, method), group in runs.items()
    }
    sizes = {f"rows_{d}": len(used_rows("reshape", d, k)) for d, k in ((20, 41), (14, 15))}
    text = (resources.files(__package__) / "as_published.md").read_text()
    return text.format(table="\n".join(lines), **names, **sizes)


def _mean(values: Iterable[float]) -> str:
    return f"{np.mean(list(values)):.4g}"


def _in_words(variant: Variant | None) -> str:
    if variant is None:
        return "θ = I"
    words = {
        "`u = pinv(θ) w`": variant.pseudo_inverse,
        "no trace term, no projection": not variant.trace_term,
        "n of another user": variant.rows_of_file,
        "T(φ) instead of I ⊗ φ": variant.feature_matrix == "reshape",
        "gradients at running averages": variant.at_averages,
    }
    return "; ".join(text for text, holds in words.items() if holds)
