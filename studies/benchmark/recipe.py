"""Cross-validation over whole tasks: scikit-learn's functions beside the loop that they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from tailored.datasets import make_clusters
from tailored.evaluation import task_scorer
from tailored.learners import EmpiricalBayesLearner
from tailored.tasks import TaskSet

from ..files import write_atomically

Array = NDArray[np.float64]

#: Tasks, folds of whole tasks, and rows of each held-out task that the scorer gives.
N_TASKS, N_FOLDS, N_SUPPORT = 60, 3, 3


def recipe(out: Path, seed: int = 0) -> list[dict[str, float | str]]:
    """Lines of the table; kept in a file and reused."""
    path = out / "recipe.json"
    if not path.exists():
        text = json.dumps(compare(seed), indent=1) + "\n"
        write_atomically(path, text.encode())
    found: list[dict[str, float | str]] = json.loads(path.read_bytes())
    return found


def compare(seed: int, learner: Any = None) -> list[dict[str, float | str]]:
    """Every way to score, alone and behind a scaler: mean score of the function and of the loop."""
    tasks = make_clusters(N_TASKS, n_clusters=2, n_features=4, rank=2, n_rows=12, random_state=seed)
    X, y, groups = np.asarray(tasks.X), tasks.y, np.repeat(tasks.labels, tasks.sizes)
    folds = GroupKFold(N_FOLDS)
    ways = {
        "default scoring, R²": None,
        f'`task_scorer("neg_mean_absolute_error", support={N_SUPPORT})`': task_scorer(
            "neg_mean_absolute_error", support=N_SUPPORT
        ),
    }
    learner = EmpiricalBayesLearner() if learner is None else learner
    lines: list[dict[str, float | str]] = []
    for scaled in (False, True):
        estimator = (
            Pipeline([("scale", StandardScaler()), ("learn", clone(learner))]) if scaled else clone(learner)
        )
        grid = {("learn__" if scaled else "") + "fit_intercept": [learner.fit_intercept]}
        by_hand = _loop(learner, X, y, groups, folds, scaled)
        for (name, scoring), loop in zip(ways.items(), by_hand.T, strict=True):
            with sklearn.config_context(enable_metadata_routing=True):
                found = cross_val_score(estimator, X, y, params={"groups": groups}, cv=folds, scoring=scoring)
                search = GridSearchCV(estimator, grid, cv=folds, scoring=scoring, refit=False)
                search.fit(X, y, groups=groups)
            lines.append(
                {
                    "scoring": f"{name}, {'in a `Pipeline`' if scaled else 'alone'}",
                    "cross_val_score": float(found.mean()),
                    "grid_search": float(search.cv_results_["mean_test_score"][0]),
                    "loop": float(loop.mean()),
                }
            )
    return lines


def _loop(learner: Any, X: Array, y: Array, groups: Array, folds: GroupKFold, scaled: bool) -> Array:
    """The loop, written out: R² and absolute errors of each fold."""
    scores = []
    for train, test in folds.split(X, y, groups):
        a, b = X[train], X[test]
        if scaled:
            scaler = StandardScaler().fit(a)
            a, b = scaler.transform(a), scaler.transform(b)
        model = clone(learner).fit(a, y[train], groups=groups[train])
        held_out = TaskSet(b, y[test], groups[test])
        scores.append([_r_squared(model, held_out), _absolute(model, held_out)])
    return np.array(scores)


def _adapted(model: Any, support: TaskSet, query: TaskSet) -> Array:
    """Predictions, one task after the other."""
    return np.concatenate(
        [model.adapt(given.X, given.y).predict(asked.X) for given, asked in zip(support, query, strict=True)]
    )


def _r_squared(model: Any, tasks: TaskSet) -> float:
    support, query = tasks.support_query(0.5, random_state=model.random_state)
    return float(r2_score(query.y, _adapted(model, support, query)))


def _absolute(model: Any, tasks: TaskSet) -> float:
    support, query = tasks.support_query(N_SUPPORT, random_state=0)
    return -float(mean_absolute_error(query.y, _adapted(model, support, query)))
