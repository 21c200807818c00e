"""Small models of every kind."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone

from folds import short_fits
from tailored import (
    ConditionalLearner,
    EmpiricalBayesClassifier,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.datasets import make_clusters
from tailored.losses import Pinball
from tailored.paper import ProjectedSGD
from tailored.paper.feature_maps import RidgeEstimate

SIDE = {"age": 31.0, "job": "clerk"}


def clusters(n_tasks=8, n_rows=5):
    return make_clusters(n_tasks, n_clusters=2, n_rows=n_rows, n_features=3, rank=1, random_state=0)


def described(n_tasks=10):
    """Make tasks with strings and tuples as labels, and with side information of numbers, words and
    missing values.
    """
    tasks = clusters(n_tasks)
    names = [f"task {t}" if t % 2 else ("pair", t) for t in range(n_tasks)]
    side = {
        name: {"age": 20.0 + t * t if t % 5 else np.nan, "job": ("cook", "smith", "clerk")[t % 3]}
        for t, name in enumerate(names)
    }
    groups = [names[t] for t in np.repeat(np.arange(n_tasks), tasks.sizes)]
    return TaskSet(tasks.X, tasks.y + np.repeat(np.arange(n_tasks) % 3, tasks.sizes), groups, side)


def of_a_table(n_tasks=8, n_rows=6):
    """Make tasks from a table with a number, words and a date."""
    row = np.arange(n_tasks * n_rows)
    hours = np.round(np.sin(row), 3)
    day = pd.Timestamp("2026-01-05") + pd.to_timedelta(row % 7, unit="D")
    score = np.round(np.sin(row) + row // n_rows % 3 + 0.1 * np.cos(7.0 * row), 3)
    kind = np.array(["a", "b", "c"])[row % 3]
    frame = pd.DataFrame(
        {"task": row // n_rows, "hours": hours, "kind": kind, "day": day, "score": score}
    )
    return TaskSet.from_frame(frame, task="task", target="score")


def of_many_columns(n_columns=1100):
    X = sparse.csr_array(sparse.random(60, n_columns, 0.01, random_state=0, format="csr"))
    return TaskSet(X, np.asarray(X @ np.sin(np.arange(n_columns))), np.repeat(np.arange(10), 6))


def counts():
    tasks = clusters(10)
    return tasks.replace(y=np.floor(np.exp(np.clip(tasks.y, -2.0, 2.0))))


def panel(n_tasks=30, n_rows=12):
    """Make tasks with noise that is correlated in time."""
    rng, n = np.random.default_rng(0), n_tasks * n_rows
    x, noise = rng.normal(size=n), rng.normal(size=(n_tasks, n_rows)).cumsum(axis=1)
    columns = {"x": x, "t": np.tile(np.arange(n_rows, dtype=float), n_tasks)}
    columns |= {"y": x + 3.0 * noise.ravel(), "g": np.repeat(np.arange(n_tasks), n_rows)}
    return TaskSet.from_frame(pd.DataFrame(columns), task="g", target="y", time="t")


def classes(n):
    """Make tasks with the classes "a", "b", .."""
    tasks = clusters(12, 8)
    return (
        tasks.X,
        np.array(list("abc"))[(np.argsort(np.argsort(tasks.y)) * n) // len(tasks.y)],
        tasks,
    )


STEP, PLAIN = ProjectedSGD(0.1), {"fit_intercept": False}
#: Learners, and functions that make the tasks to fit them to.
LEARNERS = {
    "independent": (
        IndependentLearner(tau=np.diag([1.0, 2.0, 0.0]), loss="squared", **PLAIN),
        clusters,
    ),
    "unconditional": (UnconditionalLearner(solver=STEP), clusters),
    "conditional": (ConditionalLearner(solver=STEP, rank=2, **PLAIN), clusters),
    "exact": (
        ConditionalLearner(
            RidgeEstimate(0.5), solver=STEP, rank=None, inner="online", loss=Pinball(0.3)
        ),
        clusters,
    ),
    "angle": (ConditionalLearner("angle", solver=STEP, rank=3, loss=Pinball(0.3)), clusters),
    "paper": (ConditionalLearner.paper(), lambda: clusters(30)),
    "conditional-described": (ConditionalLearner(solver=STEP, rank=2), described),
    "empirical-bayes": (EmpiricalBayesLearner(), clusters),
    "quantile": (EmpiricalBayesLearner(loss=Pinball(0.4), random_state=3), clusters),
    "described": (EmpiricalBayesLearner(), described),
    "table": (EmpiricalBayesLearner(varying=["hours"]), of_a_table),
    "mixture": (EmpiricalBayesLearner(), lambda: clusters(40, 8)),
    "many-columns": (EmpiricalBayesLearner(), of_many_columns),
    "factors": (EmpiricalBayesLearner(), lambda: of_many_columns(60)),
    "counts": (EmpiricalBayesLearner(loss="poisson"), counts),
    "dispersed-counts": (EmpiricalBayesLearner(loss="negative_binomial"), counts),
    "serial": (EmpiricalBayesLearner(), panel),
    "two-classes": (EmpiricalBayesClassifier(), lambda: classes(2)),
    "three-classes": (EmpiricalBayesClassifier(), lambda: classes(3)),
}
#: Models of one task: the learner that is adapted, and the side information of the task.
ADAPTED = {
    "task-adapted": ("empirical-bayes", {}),
    "task-adapted-rows": ("conditional", {}),
    "task-adapted-described": ("described", {"side_info": SIDE}),
    "task-adapted-sparse": ("many-columns", {}),
    "task-adapted-serial": ("serial", {}),
    "task-adapted-class": ("three-classes", {}),
}
NAMES = (*LEARNERS, *ADAPTED)


def query(model, n=4):
    return np.round(np.random.default_rng(7).normal(size=(n, model.n_features_in_)), 3)


def adapted(learner, **options):
    """Adapt a learner to a few rows."""
    X = query(learner, 5)
    y = (X[:, 0] > 0).astype(float)
    if isinstance(learner, EmpiricalBayesClassifier):
        y = learner.classes_[(X[:, 0] > 0).astype(int)]
    return learner.adapt(sparse.csr_array(X) if X.shape[1] > 1000 else X, y, **options)


@cache
def model(name):
    """Fit a model; the same call returns the same model."""
    with warnings.catch_warnings(), short_fits():
        warnings.simplefilter("ignore")
        if name in LEARNERS:
            learner, make = LEARNERS[name]
            tasks = make()
            if isinstance(tasks, tuple):
                X, y, made = tasks
                return clone(learner).fit(X, y, groups=np.repeat(made.labels, made.sizes))
            return clone(learner).fit(tasks)
        source, options = ADAPTED[name]
        return adapted(model(source), **options)


def answers(model):
    """Return what a model predicts and shows, as arrays and text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X, found = query(model), {"repr": repr(model)}
        one = model
        if hasattr(model, "adapt"):
            side = {"side_info": SIDE} if model.n_side_info_in_ else {}
            one = adapted(model, **side)
            found["known"] = model.predict(X, groups=[model.task_labels_[i] for i in (0, 1, 0, 2)])
            found["without rows"] = model.adapt(**side).predict(X)
        for method in ("predict", "predict_proba", "predict_interval", "predict_std"):
            try:
                found[method] = getattr(one, method)(X)
            except (AttributeError, ValueError) as error:
                found[method] = str(error)
        if hasattr(model, "summary"):
            found["summary"] = str(model.summary())
        return found


def assert_equal(one, other):
    """Assert that two results of `answers` are bitwise equal."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, other[name], err_msg=name)
        else:
            assert value == other[name], name
