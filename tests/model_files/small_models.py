"""Small models of every kind: for tests of model files, for the fuzzer, and for the golden files.

    python tests/model_files/small_models.py tests/model_files/golden/0.1.0

writes the golden files of a release and their predictions.  Later versions must read them.
"""

import json
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
    UnconditionalLearner,
)
from tailored.datasets import make_clusters
from tailored.feature_maps import RidgeEstimate
from tailored.losses import Pinball
from tailored.solvers import ProjectedSGD

#: The models whose files are in the repository.
GOLDEN = ("independent", "conditional", "described", "table", "task-adapted")
SIDE = {"age": 31.0, "job": "clerk"}


def clusters(n_tasks=8, n_rows=5):
    return make_clusters(n_tasks, n_clusters=2, n_rows=n_rows, n_features=3, rank=1, random_state=0)


def described(n_tasks=10):
    """Make tasks with strings and tuples as labels, and with side information of numbers, words and missing values."""
    tasks = clusters(n_tasks)
    names = [f"task {t}" if t % 2 else ("pair", t) for t in range(n_tasks)]
    side = {
        name: {
            "age": 20.0 + t + 0.1 * t * t if t % 5 else float("nan"),
            "job": ("cook", "smith", "clerk")[t % 3],
        }
        for t, name in enumerate(names)
    }
    groups = [names[t] for t in np.repeat(np.arange(n_tasks), tasks.sizes)]
    return TaskSet(tasks.X, tasks.y + np.repeat(np.arange(n_tasks) % 3, tasks.sizes), groups, side)


def of_a_table(n_tasks=8, n_rows=6):
    """Make tasks from a table with a number, words and a date."""
    row = np.arange(n_tasks * n_rows)
    frame = pd.DataFrame(
        {
            "task": row // n_rows,
            "hours": np.round(np.sin(row), 3),
            "kind": np.array(["a", "b", "c"])[row % 3],
            "day": pd.Timestamp("2026-01-05") + pd.to_timedelta(row % 7, unit="D"),
            "score": np.round(np.sin(row) + row // n_rows % 3 + 0.1 * np.cos(7.0 * row), 3),
        }
    )
    return TaskSet.from_frame(frame, task="task", target="score")


def of_many_columns(n_columns=1100):
    X = sparse.csr_array(sparse.random(60, n_columns, 0.01, random_state=0, format="csr"))
    y = np.asarray(X @ np.sin(np.arange(n_columns)))
    return TaskSet(X, y, np.repeat(np.arange(10), 6))


def query(d, n=3):
    return np.round(np.random.default_rng(7).normal(size=(n, d)), 3)


STEP, PLAIN = ProjectedSGD(0.1), {"fit_intercept": False}
#: Learners, and functions that make the tasks to fit them to.
LEARNERS = {
    "independent": (
        IndependentLearner(tau=np.diag([1.0, 2.0, 0.0]), loss="squared", **PLAIN),
        clusters,
    ),
    "unconditional": (UnconditionalLearner(solver=STEP, bias="shared"), clusters),
    "conditional": (ConditionalLearner(solver=STEP, rank=2, bias="conditional", **PLAIN), clusters),
    "exact": (
        ConditionalLearner(RidgeEstimate(0.5), solver=STEP, rank=None, inner="online", loss=Pinball(0.3)),
        clusters,
    ),
    "angle": (ConditionalLearner("angle", solver=STEP, rank=3, loss=Pinball(0.3)), clusters),
    "paper": (
        ConditionalLearner.paper(solver=ProjectedSGD(step_sizes=[0.1, 1e300], step_ratios=[1])),
        clusters,
    ),
    "conditional-described": (ConditionalLearner(solver=STEP, rank=2), described),
    "empirical-bayes": (EmpiricalBayesLearner(), clusters),
    "quantile": (EmpiricalBayesLearner(loss=Pinball(0.4), random_state=3), clusters),
    "described": (EmpiricalBayesLearner(), described),
    "table": (EmpiricalBayesLearner(varying=["hours"]), of_a_table),
    "mixture": (EmpiricalBayesLearner(), lambda: clusters(40, 8)),
    "many-columns": (EmpiricalBayesLearner(), of_many_columns),
}
#: Models of one task: the learner that is adapted, and the side information of the task.
ADAPTED = {
    "task-adapted": ("empirical-bayes", {}),
    "task-adapted-rows": ("conditional", {}),
    "task-adapted-described": ("described", {"side_info": SIDE}),
}
NAMES = (*LEARNERS, *ADAPTED, "task-fitted")


@cache
def model(name):
    """Fit a model; the same call returns the same model."""
    rows = query(3, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in LEARNERS:
            learner, tasks = LEARNERS[name]
            return clone(learner).fit(tasks())
        if name in ADAPTED:
            source, side = ADAPTED[name]
            return model(source).adapt(rows, rows[:, 0] - 0.5, **side)
        return TaskRegressor(np.diag([1.0, 2.0, 0.5]), loss="squared").fit(rows, rows[:, 0])


def save_all(folder, names=NAMES):
    for name in names:
        model(name).save(folder / f"{name}.tailored")


def answers(model):
    """Return predictions of a model as plain numbers."""
    d = model.n_features_in_
    X, found = query(d), {}
    one = model
    if not isinstance(model, TaskRegressor):
        given = query(d, 4)
        side = {"side_info": SIDE} if model.n_side_info_in_ else {}
        one = model.adapt(given, np.where(given[:, 0] > 0, 1.0, -1.0), **side)
        found["served"] = model.predict(X, groups=list(model.task_labels_[[0, 1, 0]])).tolist()
    found["prediction"] = one.predict(X).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found["interval"] = one.predict_interval(X, 0.5).tolist()
        except ValueError:  # the learner has no calibration
            found["interval"] = None
    return found


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    save_all(folder, GOLDEN)
    expected = {name: answers(model(name)) for name in GOLDEN}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
