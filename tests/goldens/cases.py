"""The table of the golden values: small seeded tasks, and the learners that are fitted to them.

The tasks are drawn with NumPy alone, because they must stay the same when the library's generators
change. When the API changes, change the learners here; the names of cases stay as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from folds import few_folds
from studies.earlier_methods import EARLIER_METHODS
from studies.rivals import SIMPLE
from tailored import (
    ConditionalLearner,
    EmpiricalBayesClassifier,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
    UnconditionalLearner,
)
from tailored.losses import Huber, Pinball
from tailored.paper import ProjectedSGD

# ---------------------------------------------------------------- tasks


class Environment(NamedTuple):
    """Tasks to learn from, tasks to hold out, and new tasks with support and query rows."""

    train: TaskSet
    validation: TaskSet
    support: TaskSet
    query: TaskSet


def environment(draw, name, sizes, *, new_sizes=(6, 6, 0, 4, 7)):
    """Draw tasks one after the other; ``draw(n)`` gives the n rows and targets of one, and its side
    information if there is any.
    """

    def tasks(parts, label):
        return TaskSet.from_tasks(parts, [f"{label} {t}" for t in range(len(parts))])

    train = tasks([draw(n) for n in sizes], name)
    validation = tasks([draw(10) for _ in range(12)], "held out")
    new = list(zip(new_sizes, [draw(n + 5) for n in new_sizes], strict=True))
    support = tasks([(X[:n], y[:n], *side) for n, (X, y, *side) in new], "new")
    query = tasks([(X[n:], y[n:], *side) for n, (X, y, *side) in new], "new")
    return Environment(train, validation, support, query)


def targets(X, w, noise):
    """Return X w + noise to six decimals, without BLAS, whose last bits differ between machines."""
    return np.round((X * w).sum(axis=1) + noise, 6)


@cache
def clusters():
    """Weights in one of two orthogonal planes."""
    rng = np.random.default_rng(101)
    planes = np.array([[[1, 1, 1, 1], [1, -1, 1, -1]], [[1, 1, -1, -1], [1, -1, -1, 1]]]) / 2.0

    def draw(n):
        X = np.round(0.5 * rng.normal(size=(n, 4)), 6)
        first, second = planes[rng.integers(2)]
        w = 3.0 * (rng.normal() * first + rng.normal() * second)
        return X, targets(X, w, 0.2 * rng.normal(size=n))

    return environment(draw, "task", [10] * 40)


@cache
def ragged():
    """Tasks of many sizes, some of one row and some without any; weights around a mean."""
    rng = np.random.default_rng(102)

    def draw(n):
        X = np.round(rng.normal(size=(n, 3)) * [1.0, 2.0, 0.5], 6)
        w = np.array([1.0, -0.5, 0.3]) + rng.normal(size=3) * [0.8, 0.2, 0.5]
        return X, targets(X, w, 0.3 + 0.3 * rng.standard_t(4, size=n))

    sizes = np.concatenate([[0, 1, 0, 1, 1, 0, 1], rng.integers(2, 15, size=27)])
    return environment(draw, "unit", rng.permutation(sizes), new_sizes=(5, 9, 0, 2, 1))


@cache
def ratings():
    """Sparse one-hot rows: users rate some of eight items, on a scale without ties."""
    rng = np.random.default_rng(103)
    items = rng.normal(size=8)
    taste = rng.normal(size=(8, 2))

    def draw(n):
        rated = np.sort(rng.choice(8, size=n, replace=False)) if n <= 8 else rng.integers(8, size=n)
        noise = 3.0 + items[rated] + 0.5 * rng.normal() + 0.3 * rng.normal(size=n)
        y = targets(taste[rated], rng.normal(size=2), noise)
        return sp.csr_array(np.eye(8)[rated]), y

    return environment(draw, "user", [5 + t % 3 for t in range(32)])


@cache
def numbers():
    """Two numbers of side information that move the weights, and skewed noise."""
    rng = np.random.default_rng(104)

    def draw(n):
        X, s = np.round(rng.normal(size=(n, 3)), 6), np.round(rng.normal(size=2), 6)
        w = np.ones(3) + rng.normal(size=3) * [1.0, 0.5, 0.1]
        w[:2] += 2.0 * s
        return X, targets(X, w, 0.5 * (rng.exponential(size=n) - 1.0)), s

    return environment(draw, "place", [9] * 36)


@cache
def words():
    """Side information with an age and two columns of words; the last new task is from a new
    city.
    """
    rng = np.random.default_rng(105)
    sexes = {"f": [1.0, 0.0, 0.0], "m": [-1.0, 0.5, 0.0]}
    cities = {"Genoa": 0.5, "London": -0.5, "Paris": 0.0}

    def draw(n):
        sex, city = str(rng.choice(list(sexes))), str(rng.choice(list(cities)))
        age = float(rng.integers(20, 80))
        X = np.round(rng.normal(size=(n, 3)), 6)
        w = np.array(sexes[sex]) + [0.0, cities[city], age / 40.0] + 0.3 * rng.normal(size=3)
        return X, targets(X, w, 0.3 * rng.normal(size=n)), {"age": age, "sex": sex, "city": city}

    made = environment(draw, "person", [8] * 36)
    side_info = made.support.side_info.copy()
    side_info[-1, made.support.side_names.index("city")] = "Rome"
    new = (tasks.replace(side_info=side_info) for tasks in made[2:])
    return Environment(*made[:2], *new)


@cache
def signs():
    """Targets -1 and +1."""
    rng = np.random.default_rng(106)
    directions = rng.normal(size=(2, 3))

    def draw(n):
        X = np.round(rng.normal(size=(n, 3)), 6)
        w = 2.0 * rng.normal() * directions[rng.integers(2)]
        return X, np.where(targets(X, w, 0.3 * rng.normal(size=n)) > 0, 1.0, -1.0)

    return environment(draw, "sign", [12] * 30)


@cache
def counts():
    """Counts whose rates differ between tasks, with one number of side information."""
    rng = np.random.default_rng(107)

    def draw(n):
        X, s = np.round(rng.normal(size=(n, 2)), 6), np.round(rng.normal(size=1), 6)
        log_rate = targets(X, np.array([0.4, -0.2]) + 0.3 * rng.normal(size=2), 0.5 * s)
        return X, rng.poisson(np.exp(log_rate + 0.5 * rng.normal())), s

    return environment(draw, "count", [8] * 30)


# ---------------------------------------------------------------- learners


@dataclass(frozen=True)
class Case:
    """A learner, the tasks that it is fitted to, and how.

    ``n_pieces`` > 0 means `partial_fit` with so many pieces.  ``validation`` passes the held-out
    tasks to `fit`, ``intervals`` calibrates intervals on them afterwards, and ``n_train`` keeps the
    first tasks.  Numbers are equal to ``tolerance``, relative to the largest of the same quantity.
    """

    learner: Any
    tasks: Callable[[], Environment] = clusters
    n_pieces: int = 0
    validation: bool = False
    intervals: bool = False
    n_train: int | None = None
    tolerance: float = 1e-9


def by_em(learner, tasks=clusters, **how):
    """EM stops where its evidence hardly grows, and its extrapolated steps amplify rounding errors
    on the way there: with other BLAS kernels, numbers may differ by the tolerance.
    """
    return Case(learner, tasks, tolerance=1e-3, **how)


def bayes(tasks=clusters, *, loss="absolute", **options):
    """The recommended learner; two folds instead of five, to be quick."""
    how = {k: options.pop(k) for k in ("validation", "intervals", "n_train") if k in options}
    return by_em(few_folds(loss=loss, **options), tasks, **how)


def projected(feature_map="auto", *, step="search", steps=(0.1, 1.0), **options):
    """Algorithm 1."""
    solver = ProjectedSGD(step, step_sizes=steps, step_ratios=(0.0, 1.0))
    options = {"fit_intercept": False, "rank": 4, **options}
    return ConditionalLearner(feature_map, solver=solver, **options)


def unconditional(*, step="search", **options):
    solver = ProjectedSGD(step, step_sizes=(0.1, 1.0))
    return UnconditionalLearner(solver=solver, **{"fit_intercept": False, **options})


def independent(**options):
    return IndependentLearner(**{"fit_intercept": False, **options})


def one_task(d, **options):
    """The model of one task with a given representation and prior mean."""
    factor = np.random.default_rng(d).normal(size=(d, d - 1))
    return TaskRegressor(factor @ factor.T, np.linspace(-0.5, 0.5, d), **options)


def earlier(name, **options):
    return EARLIER_METHODS[name](**{"fit_intercept": False, **options})


def mean_target(task):
    return np.array([1.0, task.y.mean() if len(task.y) else 0.0])


#: Every loss, with tasks to try it on.
LOSSES = {
    "absolute": ("absolute", clusters),
    "squared": ("squared", clusters),
    "huber": (Huber(0.5), clusters),
    "pinball 0.9": (Pinball(0.9), clusters),
    "logistic": ("logistic", signs),
    "hinge": ("hinge", signs),
}
DIAGONAL = np.diag([2.0, 1.0, 0.5, 0.0])

# Settings avoid ties between candidates, which rounding would decide: with the absolute loss, every
# large multiple of a representation that interpolates the rows does equally well.
CASES: dict[str, Case] = {
    # The recommended learner.
    "empirical bayes, absolute": bayes(),
    "empirical bayes, absolute, numbers": bayes(numbers),
    "empirical bayes, absolute, words": bayes(words),
    "empirical bayes, squared, numbers": bayes(numbers, loss="squared"),
    "empirical bayes, huber": bayes(loss=Huber(0.5)),
    "empirical bayes, pinball 0.9": bayes(loss=Pinball(0.9)),
    "empirical bayes, pinball 0.9, numbers": bayes(numbers, loss=Pinball(0.9)),
    "empirical bayes, all defaults": by_em(few_folds(5)),
    "empirical bayes, sparse": bayes(ratings),
    "empirical bayes, ragged": bayes(ragged),
    "empirical bayes, no intercept": bayes(ragged, fit_intercept=False),
    "empirical bayes, full": bayes(numbers, covariance="full"),
    "empirical bayes, diagonal": bayes(numbers, covariance="diagonal"),
    "empirical bayes, maximum likelihood": bayes(ragged, covariance="full", reml=False),
    "empirical bayes, varying": bayes(ragged, varying=[1]),
    "empirical bayes, first rows": bayes(words, n_support="first"),
    "empirical bayes, validation": bayes(validation=True),
    "empirical bayes, validation, numbers": bayes(numbers, validation=True),
    "empirical bayes, intervals again": bayes(numbers, intervals=True),
    "empirical bayes, one task": bayes(n_train=1),
    "empirical bayes, another seed": bayes(random_state=7),
    "empirical bayes, poisson": bayes(counts, loss="poisson"),
    "empirical bayes, negative binomial": bayes(counts, loss="negative_binomial"),
    "empirical bayes, classes": by_em(EmpiricalBayesClassifier(), signs, n_train=12),
    # Algorithm 1.
    "projected, mean features": Case(projected("mean", step=0.3)),
    "projected, ridge features": Case(projected("ridge", step=0.3)),
    "projected, angle features": Case(projected("angle", step=0.3)),
    "projected, vector features": Case(projected("vector"), numbers),
    "projected, words": Case(projected(), words),
    "projected, features of a function": Case(projected(mean_target, step=0.3)),
    "projected, rank 32": Case(projected(rank=32)),
    "projected, full rank": Case(projected(rank=None)),
    "projected, full rank, online": Case(projected(rank=None, inner="online")),
    "projected, raw features": Case(projected(scale_features=False)),
    "projected, intercept": Case(projected(fit_intercept=True)),
    "projected, sparse": Case(projected(), ratings),
    "projected, sparse, mean features, online": Case(
        projected("mean", inner="online", step=0.3), ratings
    ),
    "projected, sparse, full rank": Case(projected(rank=None), ratings),
    "projected, ragged": Case(projected(), ragged),
    "projected, ragged, mean features, online": Case(projected("mean", inner="online"), ragged),
    "projected, validation": Case(projected(), validation=True),
    "projected, fixed step": Case(projected(step=0.3), intervals=True),
    "projected, pair of steps": Case(projected(step=(0.2, 0.7)), numbers),
    "projected, not calibrated": Case(projected(tune_scale=False)),
    "projected, start given": Case(projected(initial_representation=0.2)),
    "projected, start given as a matrix, Lipschitz constant given": Case(
        projected(initial_representation=DIAGONAL, lipschitz=0.5)
    ),
    "projected, other fractions and seed": Case(
        projected(validation_fraction=0.3, support=0.3, random_state=5)
    ),
    "projected, default grid": Case(ConditionalLearner(fit_intercept=False)),
    "projected, one task": Case(projected(), n_train=1),
    "paper": Case(ConditionalLearner.paper()),
    # One representation for all tasks.
    "unconditional, projected": Case(unconditional()),
    "unconditional, projected, two pieces": Case(unconditional(), n_pieces=2),
    "unconditional, intercept": Case(unconditional(fit_intercept=True)),
    "unconditional, online": Case(unconditional(inner="online")),
    "unconditional, sparse": Case(unconditional(), ratings),
    "unconditional, hinge": Case(unconditional(loss="hinge"), signs),
    "unconditional, fixed step, intervals": Case(unconditional(step=0.3), intervals=True),
    "unconditional, side information ignored": Case(unconditional(), words),
    # Every task alone.
    "independent, representation given": Case(independent(tau=DIAGONAL)),
    "independent, ragged, intercept": Case(independent(tau=3.0, fit_intercept=True), ragged),
    "independent, sparse": Case(independent(), ratings),
    "independent, intervals": Case(independent(), intervals=True),
    "one task's model, plain": Case(TaskRegressor()),
    "one task's model, intercept": Case(one_task(5, fit_intercept=True)),
    "one task's model, sparse": Case(TaskRegressor(loss="squared"), ratings),
    # Methods to compare with.
    # With the default tolerance of the exact solver, its rounding errors decide digits above 1e-9.
    "rival, trace-constrained": Case(earlier("trace-constrained", tol=1e-13)),
    "rival, unconditional bias": Case(earlier("unconditional bias")),
    "rival, conditional bias, numbers": Case(earlier("conditional bias"), numbers, validation=True),
    "rival, multi-task feature learning": Case(earlier("multi-task feature learning")),
    "baseline, item and user bias": Case(SIMPLE["item and user bias"](), ratings),
    "baseline, mixed model": by_em(SIMPLE["mixed model"](), ragged),
}
for name, (loss, tasks) in LOSSES.items():
    for inner in ("exact", "online"):
        # One pass over the rows with the squared loss overflows where θ is large.
        steps = (1e-4, 1e-3) if (name, inner) == ("squared", "online") else (0.1, 1.0)
        options = {"loss": loss, "inner": inner}
        alone = one_task(4 if tasks is clusters else 3, **options)
        CASES[f"projected, {name}, {inner}"] = Case(projected(steps=steps, **options), tasks)
        CASES[f"independent, {name}, {inner}"] = Case(independent(**options), tasks)
        CASES[f"one task's model, {name}, {inner}"] = Case(alone, tasks)
for name in (
    "projected, absolute, exact",
    "projected, logistic, online",
    "projected, vector features",
    "projected, full rank, online",
    "projected, sparse",
    "projected, ragged, mean features, online",
    "paper",
):
    CASES[f"{name}, two pieces"] = Case(CASES[name].learner, CASES[name].tasks, n_pieces=2)
for name in ("global median", "task mean", "task median", "pooled ridge + task offset"):
    CASES[f"baseline, {name}"] = Case(SIMPLE[name](), ragged)
CASES["baseline, ridge per task"] = Case(SIMPLE["ridge per task"](), ragged)
