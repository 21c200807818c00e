"""Environments on which rules for the choice of a model are compared: real tables and simulations.

An environment draws training tasks, and new tasks with support and query rows.  Simulations come with a reference that
knows the parameters.  Everything here is drawn from one seed, so that two versions of the package see the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, softmax

from tailored import TaskSet, datasets

from ..benchmark.splits import Load, Split, clusters, lenk, multilevel, ratings, subspaces, with_oracle
from ..theory.bayes import BayesOracle

Array = NDArray[np.float64]
#: Predictions of the query rows, given the support rows.
Reference = Callable[[TaskSet, TaskSet], Array]

#: Environments with slower fits have three seeds by default and the others ten.
SLOW_SECONDS = 20.0
#: CPU time of a fit up to which an environment is part of a quick run.
QUICK_SECONDS = 5.0


@dataclass(frozen=True)
class Sample(Split):
    """One seed of a simulation whose reference is not a vector of weights, or whose errors exclude the noise."""

    reference: Reference | None = None
    values: Array | None = None  # the query targets without noise; errors are measured against them


@dataclass(frozen=True)
class Environment:
    """How an environment is drawn and what is measured on it."""

    about: str
    load: Load
    seconds: (
        float  # CPU time of one fit with the defaults, which determines the order and the number of seeds
    )
    rows: tuple[int | None, ...] = (None,)  # numbers of support rows; None means all of them
    #: "squared" (mean squared error), "weights" (mean of ‖ŵ − w‖), "log loss", or "deviance" (half the Poisson deviance).
    measure: str = "squared"
    options: dict[str, Any] = field(default_factory=dict)  # arguments of the learner
    overlap: float = 0.0  # new tasks per training task if all seeds split the same table, otherwise 0

    @property
    def n_seeds(self) -> int:
        return 3 if self.seconds > SLOW_SECONDS else 10


# --- references -----------------------------------------------------------------------------------------------------


def linear_predictions(tasks: TaskSet, weights: Array) -> Array:
    """Return <x, w> of every row; weights (T, d + 1) have the intercept last."""
    own = np.repeat(weights, tasks.sizes, axis=0)
    X, d = np.asarray(tasks.X), tasks.n_features
    return np.asarray((X * own[:, :d]).sum(axis=1) + own[:, d:].sum(axis=1))


def _moments(tasks: TaskSet, d: int) -> tuple[Array, Array]:
    """Return XᵀX and Xᵀy of each task, with a column of ones if d exceeds the number of columns."""
    X = np.hstack([np.asarray(tasks.X), np.ones((len(tasks.y), d - tasks.n_features))])
    rows = [slice(a, b) for a, b in zip(tasks.offsets[:-1], tasks.offsets[1:], strict=True)]
    return np.array([X[r].T @ X[r] for r in rows]), np.array([X[r].T @ tasks.y[r] for r in rows])


@dataclass(frozen=True)
class GaussianOracle(BayesOracle):
    """Exact posterior mean for coefficients N(mean, covariance), the intercept last, and Gaussian noise."""

    mean: Array
    covariance: Array
    noise: float

    def adapt_many(self, tasks: TaskSet) -> Array:
        XX, Xy = _moments(tasks, len(self.mean))
        system = np.eye(len(self.mean)) + self.covariance @ XX / self.noise**2
        right = (Xy - XX @ self.mean) @ self.covariance / self.noise**2
        return np.asarray(self.mean + np.linalg.solve(system, right[..., None])[..., 0])


@dataclass(frozen=True)
class PointsOracle(BayesOracle):
    """Posterior mean for weights that are uniform on the rows of ``points``."""

    points: Array
    noise: float

    def adapt_many(self, tasks: TaskSet) -> Array:
        XX, Xy = _moments(tasks, self.points.shape[1])
        fit = Xy @ self.points.T - np.einsum("pi,tij,pj->tp", self.points, XX, self.points, optimize=True) / 2
        return np.asarray(softmax(fit / self.noise**2, axis=1) @ self.points)


def random_intercepts(
    predictor: Callable[[TaskSet], Array],
    sd: float,
    mean: Callable[[Array], Array],
    log_likelihood: Callable[[Array, Array], Array],
) -> Reference:
    """Return the posterior mean of generalised linear models with a normal random intercept, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    def predict(support: TaskSet, query: TaskSet) -> Array:
        log_posterior = np.tile(np.log(weights), (len(support), 1))
        task = np.repeat(np.arange(len(support)), support.sizes)
        np.add.at(
            log_posterior, task, log_likelihood(support.y[:, None], predictor(support)[:, None] + sd * nodes)
        )
        posterior = np.repeat(softmax(log_posterior, axis=1), query.sizes, axis=0)
        return np.asarray((posterior * mean(predictor(query)[:, None] + sd * nodes)).sum(axis=1))

    return predict


# --- simulations ----------------------------------------------------------------------------------------------------


def _task_set(X: Array, y: Array, side: Array | None = None) -> TaskSet:
    """Return tasks from X (T, n, d), y (T, n) and side information (T, q)."""
    T, n, d = X.shape
    groups = np.repeat(np.arange(T), n)
    return TaskSet(X.reshape(T * n, d), y.ravel(), groups, None if side is None else side[groups])


def _split(
    tasks: TaskSet, n_train: int, n_given: int, *, train_rows: int | None = None, **known: Any
) -> Sample:
    """Use the first tasks for training, with all rows or the first ones; the first rows of the others are the support."""
    train = tasks[:n_train]
    if train_rows is not None:
        train = train.support_query(train_rows, shuffle=False)[0]
    support, query = tasks[n_train:].support_query(n_given, shuffle=False)
    return Sample(train, support, query, **known)


def angle(seed: int, data: str | None, *, d: int = 6, n_train: int = 400, n_rows: int = 20) -> Split:
    """Weights on a circle of radius 3 that no side information describes; noise 0.5; 4 rows given."""
    rng = np.random.default_rng(seed)
    plane = np.linalg.qr(rng.standard_normal((d, 2)))[0].T

    def on_circle(angles: Array) -> Array:
        return np.asarray(3.0 * np.column_stack([np.cos(angles), np.sin(angles)]) @ plane)

    weights = on_circle(rng.uniform(0.0, 2.0 * np.pi, n_train + 200))
    X = rng.standard_normal((len(weights), n_rows, d))
    y = np.einsum("tnd,td->tn", X, weights) + 0.5 * rng.standard_normal(X.shape[:2])
    oracle = PointsOracle(on_circle(np.linspace(0.0, 2.0 * np.pi, 2000, endpoint=False)), 0.5)
    return _split(_task_set(X, y), n_train, 4, oracle=oracle, weights=weights[n_train:])


def mixed_model(n_train: int, n_rows: int, d: int, *, full: bool = False, sd: float = 1.0) -> Load:
    """Random intercept with this standard deviation and, if full, correlated slopes (0.6); noise 1; 8 query rows."""

    def load(seed: int, data: str | None) -> Split:
        rng = np.random.default_rng([seed, n_train, n_rows, d, full])
        root = np.diag(np.eye(d + 1)[d] * sd)
        if full:
            root = rng.standard_normal((d + 1, d + 3))
            root *= (np.r_[np.full(d, 0.6), sd] / np.linalg.norm(root, axis=1))[:, None]
        mean = np.r_[0.7 * rng.standard_normal(d), 2.0]
        weights = mean + rng.standard_normal((n_train + 300, root.shape[1])) @ root.T
        X = rng.standard_normal((len(weights), n_rows + 8, d))
        y = np.einsum("tnd,td->tn", X, weights[:, :d]) + weights[:, d:]
        y += rng.standard_normal(y.shape)
        oracle = GaussianOracle(mean, root @ root.T, 1.0)
        return _split(_task_set(X, y), n_train, n_rows, train_rows=n_rows, oracle=oracle)

    return load


def outliers(seed: int, data: str | None, *, n_train: int = 500, n_rows: int = 10) -> Split:
    """A mixed model in which 5 % of the rows have ten times the noise; the reference is the best linear predictor."""
    rng, given = np.random.default_rng(seed), 3
    sds = np.array([0.1, 0.1, 0.3])
    weights = rng.standard_normal((n_train + 300, 3)) * sds
    X = rng.standard_normal((len(weights), n_rows, 2))
    values = np.einsum("tnd,td->tn", X, weights[:, :2]) + weights[:, 2:]
    y = values + 0.2 * rng.standard_normal(values.shape) * np.where(
        rng.random(values.shape) < 0.05, 10.0, 1.0
    )
    oracle = GaussianOracle(np.zeros(3), np.diag(sds**2), 0.2 * np.sqrt(0.95 + 0.05 * 100.0))
    return _split(_task_set(X, y), n_train, given, oracle=oracle, values=values[n_train:, given:].ravel())


def counts(seed: int, data: str | None, *, n_train: int = 200, n_rows: int = 8, shape: float = 1.0) -> Split:
    """Overdispersed counts whose column differs mostly between tasks; random intercept of sd 2, mean about 65."""
    rng = np.random.default_rng(seed)
    T, intercept_sd = n_train + 400, 2.0
    x = rng.normal(0.0, 2.0, (T, 1)) + rng.normal(0.0, 0.3, (T, n_rows))
    X = np.stack([x, np.tile(np.arange(float(n_rows)), (T, 1))], axis=2)

    def predictor(tasks: TaskSet) -> Array:
        return np.asarray(1.5 + np.asarray(tasks.X) @ [0.7, -0.1])

    def log_likelihood(y: Array, f: Array) -> Array:
        log_odds = f - np.log(shape)
        return np.asarray(gammaln(y + shape) + y * log_odds - (y + shape) * np.logaddexp(0.0, log_odds))

    eta = 1.5 + X @ [0.7, -0.1] + rng.normal(0.0, intercept_sd, (T, 1))
    rate = np.exp(eta) * rng.gamma(shape, 1.0 / shape, eta.shape)
    y = rng.poisson(np.minimum(rate, 1e6)).astype(float)
    reference = random_intercepts(predictor, intercept_sd, np.exp, log_likelihood)
    return _split(_task_set(X, y), n_train, 3, reference=reference)


def category(seed: int, data: str | None, *, n_train: int = 130, n_rows: int = 30) -> Split:
    """Yes or no; a category of four values shifts the log odds, and two columns of the side information are noise."""
    rng = np.random.default_rng(seed)
    T = n_train + 100
    kind = rng.integers(4, size=T)
    side = np.hstack([np.eye(4)[kind], rng.standard_normal((T, 2))])
    X = rng.standard_normal((T, n_rows, 1))

    def predictor(tasks: TaskSet) -> Array:
        shift = np.asarray(tasks.side_info, dtype=float)[:, :4] @ [-0.6, -0.2, 0.2, 0.6]
        return np.asarray(np.repeat(shift, tasks.sizes) + 0.3 * np.asarray(tasks.X)[:, 0])

    def log_likelihood(y: Array, f: Array) -> Array:
        return np.asarray(y * f - np.logaddexp(0.0, f))

    eta = (-0.6 + 0.4 * kind + rng.normal(0.0, 0.8, T))[:, None] + 0.3 * X[..., 0]
    y = (rng.random(eta.shape) < expit(eta)).astype(float)
    reference = random_intercepts(predictor, 0.8, expit, log_likelihood)
    return _split(_task_set(X, y, side), n_train, 5, reference=reference)


# --- the table ------------------------------------------------------------------------------------------------------


def _multilevel(name: str, n_given: int, seconds: float) -> Environment:
    about = f"{datasets.MULTILEVEL[name].about}; a quarter of the groups is new"
    return Environment(
        about, multilevel(name, n_given, in_time=False), seconds, (0, n_given), overlap=1.0 / 3.0
    )


def _mixed(n_train: int, n_rows: int, d: int, full: bool, seconds: float) -> Environment:
    effects = "intercept and slopes" if full else "intercept"
    about = f"random {effects}, {n_train} tasks of {n_rows} rows, d = {d}"
    return Environment(about, mixed_model(n_train, n_rows, d, full=full), seconds, (1, n_rows // 2, n_rows))


def _circle(n_noise: int, seconds: float) -> Environment:
    about = f"weights on a circle that the side information indexes, and {n_noise} noise columns"
    return Environment(about, with_oracle(datasets.make_circle, 400, 20, 3, n_noise), seconds, (0, 3))


def _counts(loss: str, seconds: float) -> Environment:
    about = f"overdispersed counts, loss {loss!r}"
    return Environment(about, counts, seconds, (0, 3), "deviance", {"loss": loss})


#: (training tasks, rows, columns, whether slopes vary): a fraction of all combinations in which every pair of values occurs.
_MIXED = {
    (15, 8, 1, True): 0.4,
    (15, 4, 3, True): 0.4,
    (15, 8, 3, False): 0.4,
    (15, 4, 1, False): 0.4,
    (15, 8, 8, True): 0.4,
    (60, 4, 1, True): 2.0,
    (60, 8, 3, True): 2.0,
    (60, 4, 8, True): 2.0,
    (60, 8, 1, False): 2.0,
    (60, 4, 3, False): 2.0,
    (400, 8, 1, True): 6.0,
    (400, 4, 3, True): 6.0,
    (400, 8, 8, True): 6.0,
    (400, 4, 8, False): 6.0,
}

_ALL: dict[str, Environment] = {
    **{
        f"intercept-{n}-{sd}": Environment(
            f"y ~ 1 + (1 | g) without columns, {n} groups of 4 rows, sd {sd}",
            mixed_model(n, 4, 0, sd=sd),
            1.0,
            (1, 4),
        )
        for n in (20, 60, 200, 400)
        for sd in (0.42, 0.75, 1.34)
    },
    **{
        f"mixed-{n}-{rows}-{d}-{'full' if full else 'intercept'}": _mixed(n, rows, d, full, seconds)
        for (n, rows, d, full), seconds in _MIXED.items()
    },
    "sleepstudy": _multilevel("sleepstudy", 4, 0.3),
    "oxboys": _multilevel("oxboys", 3, 0.3),
    "exam": _multilevel("exam", 8, 2.0),
    "early": _multilevel("early", 1, 3.0),
    "bdf": _multilevel("bdf", 6, 5.0),
    "hsb82": _multilevel("hsb82", 8, 5.0),
    "egsingle": _multilevel("egsingle", 2, 15.0),
    "clusters-2": Environment("the paper's two clusters", clusters(2), 15.0),
    "clusters-6": Environment("the paper's six clusters", clusters(6), 16.0),
    "lenk": Environment("computer survey, 140 / 30 random people", lenk, 5.0, overlap=30 / 140),
    "movielens": Environment(
        "20 most rated movies, 300 / 100 users",
        ratings(datasets.fetch_movielens, 300, 100),
        10.0,
        overlap=100 / 300,
    ),
    "jester": Environment(
        "20 most rated jokes, 350 / 100 users",
        ratings(datasets.fetch_jester, 350, 100),
        10.0,
        overlap=100 / 350,
    ),
    "hint": Environment(
        "six clusters with a noisy hint",
        with_oracle(datasets.make_clusters, 600, 40, 8, n_clusters=6, hint=0.7),
        21.0,
        (1, 3, 8),
    ),
    "circle": _circle(0, 8.0),
    "circle-noise-20": _circle(20, 19.0),
    "circle-noise-50": _circle(50, 25.0),
    "angle": Environment("weights on a circle without side information", angle, 15.0, measure="weights"),
    "subspace-100": Environment("a shared subspace", subspaces(100, 100, 5, 25), 30.0, measure="weights"),
    "subspace-400": Environment("a shared subspace", subspaces(400, 100, 5, 25), 60.0, measure="weights"),
    "subspace-1600": Environment("a shared subspace", subspaces(1600, 100, 5, 25), 200.0, measure="weights"),
    "subspaces-3": Environment("low-rank clusters", subspaces(600, 60, 3, 20, 3), 40.0, measure="weights"),
    "counts-poisson": _counts("poisson", 10.0),
    "counts-negative-binomial": _counts("negative_binomial", 10.0),
    "outliers": Environment("a mixed model with 5 % outliers", outliers, 9.0, (0, 1, 3)),
    "category": Environment("yes or no with a category of tasks", category, 15.0, (0, 5), "log loss"),
}

#: Names on the command line; the fastest first.
ENVIRONMENTS = dict(sorted(_ALL.items(), key=lambda item: item[1].seconds))
