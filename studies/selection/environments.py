"""Environments on which rules for the choice of a model are compared: real tables and simulations.

An environment draws training tasks, and new tasks with support and query rows.  Simulations come
with a reference that knows the parameters.  Everything here is drawn from one seed, so that two
versions of the package see the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, softmax

from tailored import TaskSet, datasets

from .. import curves
from ..benchmark.splits import (
    Load,
    Split,
    clusters,
    lenk,
    multilevel,
    ratings,
    subspaces,
    with_oracle,
)
from ..data import MULTILEVEL, Ratings, load_jester, load_movielens
from ..theory.bayes import BayesOracle

Array = NDArray[np.float64]
#: Predictions of the query rows, given the support rows.
Reference = Callable[[TaskSet, TaskSet], Array]


@dataclass(frozen=True)
class Sample(Split):
    """One seed of a simulation whose reference is not a vector of weights, or whose errors exclude
    the noise.
    """

    reference: Reference | None = None
    values: Array | None = None  # the query targets without noise; errors are measured against them


@dataclass(frozen=True)
class Environment:
    """How an environment is drawn and what is measured on it."""

    about: str
    load: Load
    rows: tuple[int | None, ...] = (None,)  # numbers of support rows; None means all of them
    #: "squared" (mean squared error), "weights" (mean of ‖ŵ − w‖), "log loss", or "deviance" (half
    #: the Poisson deviance).
    measure: str = "squared"
    options: dict[str, Any] = field(default_factory=dict)  # arguments of the learner
    overlap: float = (
        0.0  # new tasks per training task if all seeds split the same table, otherwise 0
    )
    n_seeds: int = 10  # by default; 3 where a fit takes more than 20 s of CPU time


# --- references
# -------------------------------------------------------------------------------------------------


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
    """Exact posterior mean for coefficients N(mean, covariance), the intercept last, and Gaussian
    noise.
    """

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
        fit = (
            Xy @ self.points.T
            - np.einsum("pi,tij,pj->tp", self.points, XX, self.points, optimize=True) / 2
        )
        return np.asarray(softmax(fit / self.noise**2, axis=1) @ self.points)


def random_intercepts(
    predictor: Callable[[TaskSet], Array],
    sd: float,
    mean: Callable[[Array], Array],
    log_likelihood: Callable[[Array, Array], Array],
) -> Reference:
    """Return the posterior mean of generalised linear models with a normal random intercept, by
    quadrature.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    def predict(support: TaskSet, query: TaskSet) -> Array:
        log_posterior = np.tile(np.log(weights), (len(support), 1))
        task = np.repeat(np.arange(len(support)), support.sizes)
        np.add.at(
            log_posterior,
            task,
            log_likelihood(support.y[:, None], predictor(support)[:, None] + sd * nodes),
        )
        posterior = np.repeat(softmax(log_posterior, axis=1), query.sizes, axis=0)
        return np.asarray((posterior * mean(predictor(query)[:, None] + sd * nodes)).sum(axis=1))

    return predict


# --- simulations
# -------------------------------------------------------------------------------------------------


def _split(
    X: Array,
    y: Array,
    n_train: int,
    n_given: int,
    *,
    side: Array | None = None,
    n_rows: int | None = None,
    **known: Any,
) -> Sample:
    """Split tasks X (T, n, d), y (T, n), side (T, q): the first ones are for training, with all
    rows or ``n_rows``.

    The first ``n_given`` rows of the others are their support.
    """
    T, n, d = X.shape
    groups = np.repeat(np.arange(T), n)
    tasks = TaskSet(X.reshape(T * n, d), y.ravel(), groups, None if side is None else side[groups])
    train = tasks[:n_train]
    if n_rows is not None:
        train = train.support_query(n_rows, shuffle=False)[0]
    support, query = tasks[n_train:].support_query(n_given, shuffle=False)
    return Sample(train, support, query, **known)


def angle(
    seed: int, data: str | None, *, d: int = 6, n_train: int = 400, n_rows: int = 20
) -> Split:
    """Weights on a circle of radius 3 that no side information describes; noise 0.5; 4 support
    rows.
    """
    rng = np.random.default_rng(seed)
    plane = np.linalg.qr(rng.standard_normal((d, 2)))[0].T

    def on_circle(angles: Array) -> Array:
        return np.asarray(3.0 * np.column_stack([np.cos(angles), np.sin(angles)]) @ plane)

    weights = on_circle(rng.uniform(0.0, 2.0 * np.pi, n_train + 200))
    X = rng.standard_normal((len(weights), n_rows, d))
    y = np.einsum("tnd,td->tn", X, weights) + 0.5 * rng.standard_normal(X.shape[:2])
    oracle = PointsOracle(on_circle(np.linspace(0.0, 2.0 * np.pi, 2000, endpoint=False)), 0.5)
    return _split(X, y, n_train, 4, oracle=oracle, weights=weights[n_train:])


def mixed_model(n_train: int, n_rows: int, d: int, *, full: bool = False, sd: float = 1.0) -> Load:
    """Random intercept with this standard deviation and, if full, correlated slopes (0.6); noise 1;
    8 query rows.
    """

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
        return _split(X, y, n_train, n_rows, n_rows=n_rows, oracle=oracle)

    return load


def outliers(seed: int, data: str | None, *, n_train: int = 500, n_rows: int = 10) -> Split:
    """A mixed model in which 5 % of the rows have ten times the noise; the reference is the best
    linear predictor.
    """
    rng, n_given, sds = np.random.default_rng(seed), 3, np.array([0.1, 0.1, 0.3])
    weights = rng.standard_normal((n_train + 300, 3)) * sds
    X = rng.standard_normal((len(weights), n_rows, 2))
    values = np.einsum("tnd,td->tn", X, weights[:, :2]) + weights[:, 2:]
    noise = 0.2 * rng.standard_normal(values.shape)
    y = values + np.where(rng.random(values.shape) < 0.05, 10.0, 1.0) * noise
    oracle = GaussianOracle(np.zeros(3), np.diag(sds**2), 0.2 * np.sqrt(0.95 + 0.05 * 100.0))
    return _split(X, y, n_train, n_given, oracle=oracle, values=values[n_train:, n_given:].ravel())


def counts(
    seed: int, data: str | None, *, n_train: int = 200, n_rows: int = 8, shape: float = 1.0
) -> Split:
    """Overdispersed counts whose column differs mostly between tasks; random intercept of sd 2,
    mean about 65.
    """
    rng = np.random.default_rng(seed)
    T, intercept_sd = n_train + 400, 2.0
    x = rng.normal(0.0, 2.0, (T, 1)) + rng.normal(0.0, 0.3, (T, n_rows))
    X = np.stack([x, np.tile(np.arange(float(n_rows)), (T, 1))], axis=2)

    def predictor(tasks: TaskSet) -> Array:
        return np.asarray(1.5 + np.asarray(tasks.X) @ [0.7, -0.1])

    def log_likelihood(y: Array, f: Array) -> Array:
        log_odds = f - np.log(shape)
        return np.asarray(
            gammaln(y + shape) + y * log_odds - (y + shape) * np.logaddexp(0.0, log_odds)
        )

    eta = 1.5 + X @ [0.7, -0.1] + rng.normal(0.0, intercept_sd, (T, 1))
    rate = np.exp(eta) * rng.gamma(shape, 1.0 / shape, eta.shape)
    y = rng.poisson(np.minimum(rate, 1e6)).astype(float)
    reference = random_intercepts(predictor, intercept_sd, np.exp, log_likelihood)
    return _split(X, y, n_train, 3, reference=reference)


def category(seed: int, data: str | None, *, n_train: int = 130, n_rows: int = 30) -> Split:
    """Yes or no; a category of four values shifts the log odds, and two columns of the side
    information are noise.
    """
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
    return _split(X, y, n_train, 5, side=side, reference=reference)


# --- the table
# -------------------------------------------------------------------------------------------------


def _multilevel(name: str, n_given: int) -> Environment:
    about, load = MULTILEVEL[name].about, multilevel(name, n_given, in_time=False)
    return Environment(about, load, (0, n_given), overlap=1 / 3)


def _intercept(n_train: int, sd: float) -> Environment:
    about = f"y ~ 1 + (1 | g) without columns, {n_train} groups of 4 rows, sd {sd}"
    return Environment(about, mixed_model(n_train, 4, 0, sd=sd), (1, 4))


def _mixed(size: str) -> Environment:
    n_train, n_rows, d = map(int, size.split("-")[:3])
    full = size.endswith("full")
    about = f"random intercept{' and slopes' * full}, {n_train} tasks of {n_rows} rows, d = {d}"
    return Environment(about, mixed_model(n_train, n_rows, d, full=full), (1, n_rows // 2, n_rows))


def _circle(n_noise: int) -> Environment:
    about = f"weights on a circle that the side information indexes, and {n_noise} noise columns"
    return Environment(about, with_oracle(curves.make_circle, 400, 20, 3, n_noise), (0, 3))


def _hint() -> Environment:
    load = with_oracle(datasets.make_clusters, 600, 40, 8, n_clusters=6, hint=0.7)
    return Environment("six clusters with a noisy hint", load, (1, 3, 8))


def _ratings(read: Callable[..., Ratings], n_train: int) -> Environment:
    about = f"ratings of the 20 most rated items, {n_train} / 100 users"
    return Environment(about, ratings(read, n_train, 100), overlap=100 / n_train)


def _subspaces(n_train: int, d: int, rank: int, n_rows: int, n_clusters: int = 1) -> Environment:
    where = "a shared subspace" if n_clusters == 1 else f"{n_clusters} orthogonal subspaces"
    about = f"weights in {where} of rank {rank}, {n_train} tasks of {n_rows} rows, d = {d}"
    return Environment(about, subspaces(n_train, d, rank, n_rows, n_clusters), measure="weights")


def _counts(loss: str, n_seeds: int = 10) -> Environment:
    about, options = f"overdispersed counts, loss={loss!r}", {"loss": loss}
    return Environment(about, counts, (0, 3), "deviance", options, n_seeds=n_seeds)


#: Training tasks, rows, columns and random effects: a fraction of all combinations in which every
#: pair of values occurs.
_MIXED = """15-8-1-full 15-4-3-full 15-8-8-full 15-4-1-intercept 15-8-3-intercept
60-4-1-full 60-8-3-full 60-4-8-full 60-8-1-intercept 60-4-3-intercept
400-8-1-full 400-4-3-full 400-8-8-full 400-4-8-intercept"""

#: Names on the command line.  They are run in this order, which is about that of the CPU time of a
#: fit.
ENVIRONMENTS: dict[str, Environment] = {
    "sleepstudy": _multilevel("sleepstudy", 4),
    "oxboys": _multilevel("oxboys", 3),
    # A mixture is selected on about one seed in ten.
    "outliers": Environment("a mixed model with 5 % outliers", outliers, (0, 1, 3), n_seeds=40),
    **{
        f"intercept-{n}-{sd}": _intercept(n, sd)
        for n in (20, 60, 200, 400)
        for sd in (0.42, 0.75, 1.34)
    },
    **{f"mixed-{size}": _mixed(size) for size in _MIXED.split()},
    "egsingle": _multilevel("egsingle", 2),
    "early": _multilevel("early", 1),
    "bdf": _multilevel("bdf", 6),
    "exam": _multilevel("exam", 8),
    "hsb82": _multilevel("hsb82", 8),
    "lenk": Environment("computer survey, 140 / 30 random people", lenk, overlap=30 / 140),
    "angle": Environment("weights on a circle without side information", angle, measure="weights"),
    "clusters-2": Environment("the paper's two clusters", clusters(2)),
    "movielens": _ratings(load_movielens, 300),
    "category": Environment(
        "yes or no; side information with a category", category, (0, 5), "log loss"
    ),
    "circle": _circle(0),
    "circle-noise-20": _circle(20),
    "hint": _hint(),
    "jester": _ratings(load_jester, 350),
    "circle-noise-50": _circle(50),
    "clusters-6": Environment("the paper's six clusters", clusters(6)),
    "subspace-100": _subspaces(100, 100, 5, 25),
    "counts-negative-binomial": _counts("negative_binomial"),
    "subspaces-3": _subspaces(600, 60, 3, 20, 3),
    "subspace-400": _subspaces(400, 100, 5, 25),
    "subspace-1600": _subspaces(1600, 100, 5, 25),
    "counts-poisson": _counts("poisson", n_seeds=3),
}
