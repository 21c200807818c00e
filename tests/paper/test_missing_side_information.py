"""Missing side information: numbers are imputed and have an indicator, missing words are a
category.
"""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from folds import few_folds
from tailored import ConditionalLearner, TaskSet
from tailored.paper import ProjectedSGD
from tailored.paper.feature_maps import SideVector

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

T, N = 24, 5
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def draw(seed=0):
    """The level of a task follows its age, and those whose age is not known have one of their
    own.
    """
    rng = np.random.default_rng(seed)
    age = rng.normal(50.0, 10.0, size=T)
    missing = np.arange(T) % 4 == 0
    level = np.where(missing, 8.0, 0.3 * (age - 50.0))
    X = rng.normal(size=(T * N, 2))
    of = np.repeat(np.arange(T), N)
    y = X @ [1.0, -1.0] + level[of] + 0.1 * rng.normal(size=len(of))
    rows = pd.DataFrame({"user": of, "a": X[:, 0], "b": X[:, 1], "y": y})
    ages = [None if lost else float(value) for value, lost in zip(age, missing, strict=True)]
    cities = [None if t % 5 == 1 else "XYZ"[t % 3] for t in range(T)]
    return rows, {"user": list(range(T)), "age": ages, "city": cities}


ROWS, PEOPLE = draw()


def tasks_of(*columns, kind="pandas"):
    side = FRAMES[kind]({name: PEOPLE[name] for name in ("user", *columns)})
    return TaskSet.from_frame(ROWS, task="user", target="y", side_info=side)


@pytest.mark.parametrize("kind", FRAMES)
def test_missing_values_are_read(kind):
    tasks = tasks_of("age", "city", kind=kind)
    assert tasks.side_info.dtype == object
    assert np.isnan(tasks.side_info[0, 0])
    assert tasks.side_info[1, 0] == PEOPLE["age"][1]
    assert tasks.side_info[1, 1] is None
    assert tasks.side_info[:, 1].tolist() == PEOPLE["city"]
    numbers = tasks_of("age", kind=kind)
    assert numbers.side_info.dtype == np.float64
    np.testing.assert_array_equal(
        np.isnan(numbers.side_info[:, 0]), [a is None for a in PEOPLE["age"]]
    )


def test_every_kind_of_missing_value():
    rows = np.eye(4)[:, :2], np.zeros(4), [0, 0, 1, 1]
    for value in (None, np.nan, pd.NA, pd.NaT):
        assert np.isnan(TaskSet(*rows, {0: [1.0], 1: [value]}).side_info[1, 0])
        assert TaskSet(*rows, {0: ["a"], 1: [value]}).side_info[:, 0].tolist() == ["a", None]
        named = TaskSet(*rows, {0: {"s": 2, "w": "a"}, 1: {"s": value, "w": value}})
        assert np.isnan(named.side_info[1, 0])
        assert named.side_info[1, 1] is None
    assert np.isnan(TaskSet(*rows, np.array([[1.0], [1.0], [np.nan], [np.nan]])).side_info[1, 0])
    words = np.array([["a"], ["a"], [None], [np.nan]], dtype=object)
    assert TaskSet(*rows, words).side_info[:, 0].tolist() == ["a", None]
    # A missing value next to one value is not a contradiction: the task has that value.
    gaps = np.array([[1.0], [np.nan], [np.nan], [2.0]])
    assert TaskSet(*rows, gaps).side_info[:, 0].tolist() == [1.0, 2.0]
    gaps = np.array([["a"], [None], [None], ["b"]], dtype=object)
    assert TaskSet(*rows, gaps).side_info[:, 0].tolist() == ["a", "b"]
    with pytest.raises(ValueError, match=r"column 0 of task 0 has the values 1\.0 and 2\.0"):
        TaskSet(*rows, np.array([[1.0], [2.0], [np.nan], [2.0]]))
    with pytest.raises(ValueError, match=r"very large value \(inf\) for task 1, column 0"):
        TaskSet(*rows, {0: [1.0], 1: [np.inf]})


def test_numbers_are_filled_in_and_marked():
    side = np.array([[1.0, 5.0], [np.nan, 6.0], [4.0, 7.0]])
    tasks = TaskSet.from_tasks([(np.eye(2), np.zeros(2), row) for row in side])
    encoder = SideVector().fit(tasks)
    np.testing.assert_array_equal(encoder.transform(tasks), [[1, 5, 0], [2.5, 6, 1], [4, 7, 0]])
    np.testing.assert_array_equal(
        encoder.known(tasks), [[True] * 3, [False, True, True], [True] * 3]
    )
    # known in training, missing later: the mean, and nothing to mark it with
    later = TaskSet.from_tasks([(np.eye(2), np.zeros(2), np.array([3.0, np.nan]))])
    np.testing.assert_array_equal(encoder.transform(later), [[3, 6, 0]])
    with pytest.raises(ValueError, match="expected 2 columns as in fit, got 1"):
        encoder.transform(TaskSet.from_tasks([(np.eye(2), np.zeros(2), 3.0)]))


def test_a_missing_value_is_informative():
    """Tasks whose age is not known have a level of their own, and the learner finds it."""
    # a draw of held-out tasks that finds the level of those without an age, as nine in ten do
    learner = few_folds(random_state=1).fit(tasks_of("age"))
    assert learner.side_structure_ is not None
    x = np.zeros((1, 2))
    assert learner.adapt(side_info=[np.nan]).predict(x)[0] == pytest.approx(8.0, abs=1.5)
    assert learner.adapt(side_info=[50.0]).predict(x)[0] == pytest.approx(0.0, abs=1.5)
    models = learner.adapt(side_info={"age": None}), learner.adapt(side_info=[np.nan])
    np.testing.assert_array_equal(*(model.predict(x) for model in models))


LEARNERS = {
    "empirical Bayes": few_folds(),
    "Algorithm 1": ConditionalLearner("vector", solver=ProjectedSGD(0.1), loss="squared"),
}


def test_a_column_without_any_value():
    tasks = TaskSet.from_tasks([(t.X, t.y, {"age": 1.0, "size": None}) for t in tasks_of("age")])
    for learner in LEARNERS.values():
        message = "side_info: column 'size' has no value in any task; drop the column"
        with pytest.raises(ValueError, match=message):
            learner.fit(tasks)
