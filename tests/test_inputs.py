"""The table of docs/inputs.md, which input works with which learner, is what happens."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import tailored
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.exceptions import SingleTaskWarning

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "inputs.md").read_text(encoding="utf-8")
LEARNERS = {
    "EmpiricalBayesLearner": lambda **given: EmpiricalBayesLearner(**given),
    "ConditionalLearner": lambda **given: ConditionalLearner(**given),
    "UnconditionalLearner": lambda **given: UnconditionalLearner(**given),
    "IndependentLearner": lambda **given: IndependentLearner(**given),
}

rng = np.random.default_rng(0)
N_TASKS, N_ROWS = 24, 6
GROUPS = np.repeat(np.arange(N_TASKS), N_ROWS)
X = rng.normal(size=(len(GROUPS), 2))
Y = rng.normal(1, 0.3, size=N_TASKS)[GROUPS] * X[:, 0] + rng.normal(size=len(GROUPS)) / 10
AGES = rng.uniform(20, 80, size=(N_TASKS, 1))
FRAME = pd.DataFrame({"task": GROUPS, "a": X[:, 0], "b": X[:, 1], "y": Y})
WORDS = FRAME.assign(c=np.where(X[:, 1] > 0, "up", "down"), when=pd.Timestamp("2026-01-01"))
WORDS["when"] += pd.to_timedelta(np.arange(len(GROUPS)) % 9, unit="D")
SEXES = pd.DataFrame(
    {"task": np.arange(N_TASKS), "age": AGES[:, 0], "sex": np.where(AGES[:, 0] > 50, "f", "m")}
)
TASKS = TaskSet(X, Y, GROUPS)
DESCRIBED = TaskSet(X, Y, GROUPS, side_info=AGES[GROUPS])


def frame_tasks(frame, **given):
    return TaskSet.from_frame(frame, task="task", target="y", **given)


def holes(column):
    some = column.copy()
    some[::3] = np.nan
    return some


def learned(learner, tasks):
    """That weights of every task are finite is what counts as working."""
    learner.fit(tasks)
    assert np.isfinite(learner.adapt_many(tasks).weights_).all()
    return learner


def scanned(learner, tmp_path):
    file = tmp_path / "rows.parquet"
    pl.from_pandas(FRAME).write_parquet(file)
    learner.fit(tailored.scan(file, task="task", target="y"))


def streamed(learner, tmp_path):
    if not hasattr(learner, "partial_fit"):
        raise Unknown
    learner.partial_fit(TASKS[:12]).partial_fit(TASKS[12:])


def one_task(learner, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SingleTaskWarning)
        learner.fit(X, Y)


def kept(learner, tmp_path):
    learner.fit(TASKS).save(tmp_path / "model.tailored")
    tailored.load(tmp_path / "model.tailored")


#: What is tried, by the name that the page gives it; a trial that raises is a "no".
TRIALS = {
    "arrays `X`, `y`, `groups`": lambda new, path: new().fit(X, Y, groups=GROUPS),
    "a list of `(X, y)`": lambda new, path: learned(
        new(),
        TaskSet.from_tasks(list(zip(np.split(X, N_TASKS), np.split(Y, N_TASKS), strict=True))),
    ),
    "frame of pandas": lambda new, path: learned(new(), frame_tasks(FRAME)),
    "frame of polars": lambda new, path: learned(new(), frame_tasks(pl.from_pandas(FRAME))),
    "table of pyarrow": lambda new, path: learned(
        new(), frame_tasks(pa.Table.from_pandas(FRAME, preserve_index=False))
    ),
    "categories, booleans and dates in columns": lambda new, path: learned(
        new(), frame_tasks(WORDS.assign(d=X[:, 0] > 1))
    ),
    "sparse matrix": lambda new, path: learned(new(), TaskSet(sparse.csr_array(X), Y, GROUPS)),
    "tasks of one row among others": lambda new, path: learned(
        new(), TaskSet(X[5:], Y[5:], GROUPS[5:])
    ),
    "side information with numbers": lambda new, path: learned(new(), DESCRIBED),
    "side information with categories": lambda new, path: learned(
        new(), frame_tasks(FRAME, side_info=SEXES)
    ),
    "side information with missing values": lambda new, path: learned(
        new(), TaskSet(X, Y, GROUPS, side_info=holes(AGES)[GROUPS])
    ),
    "no rows of a new task": lambda new, path: new().fit(TASKS).adapt().predict(X),
    "all rows as one task": lambda new, path: one_task(new(), path),
    "`sample_weight`": lambda new, path: new().fit(
        TaskSet(X, Y, GROUPS, sample_weight=np.ones(len(Y)))
    ),
    "`partial_fit`": lambda new, path: streamed(new(), path),
    "`scan` of a file": lambda new, path: scanned(new(), path),
    'targets -1 and +1, `loss="logistic"`': lambda new, path: new(loss="logistic").fit(
        X, np.where(Y > 0, 1.0, -1.0), groups=GROUPS
    ),
    "intervals after `fit`": lambda new, path: (
        new().fit(TASKS).adapt(X[:3], Y[:3]).predict_interval(X[:2])
    ),
    "`effects` with intervals": lambda new, path: all_known(new().fit(TASKS).effects(TASKS)),
    "`save` and `load`": lambda new, path: kept(new(), path),
}


def all_known(effects):
    if not np.isfinite(effects["lower"]).all():
        raise Unknown


def table(text):
    """{input: {learner: yes or no}} of the page."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    names = [name.strip("`") for name in cells[0][1:]]
    return {line[0]: dict(zip(names, line[1:], strict=True)) for line in cells[2:]}


class Unknown(Exception):
    """What was asked for is there, but empty."""


def works(name, learner, path):
    """A "no" is an error that names another learner, or an empty column."""
    try:
        TRIALS[name](LEARNERS[learner], path)
    except Unknown:
        return "no"
    except (ValueError, TypeError) as error:
        named = any(other in str(error) for other in LEARNERS if other != learner)
        return "no" if named else f"an error that names no other learner: {error}"
    return "yes"


def test_the_page_names_all_trials():
    assert list(table(PAGE)) == list(TRIALS)
    assert all(list(cells) == list(LEARNERS) for cells in table(PAGE).values())


def test_a_scan_of_other_learners_is_refused(tmp_path):
    assert works("`scan` of a file", "ConditionalLearner", tmp_path) == "no"


@pytest.mark.pages
@pytest.mark.parametrize("name", TRIALS)
@pytest.mark.filterwarnings("ignore")
def test_input(name, tmp_path):
    found = {learner: works(name, learner, tmp_path) for learner in LEARNERS}
    assert found == table(PAGE)[name]
