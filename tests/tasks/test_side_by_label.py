"""Side information follows the label of its task."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tailored.tasks.task_set import TaskSet
from task_samples import ragged


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_side_information_follows_the_label(data):
    groups = data.draw(ragged)
    keys = data.draw(st.permutations(range(7)))
    X, y = np.ones((len(groups), 1)), np.zeros(len(groups))
    expected = [[g, 10 * g] for g in dict.fromkeys(groups)]
    forms = [
        {k: [k, 10 * k] for k in keys},
        {k: np.array([k, 10.0 * k]) for k in keys},
        {k: {"a": k, "b": 10 * k} for k in keys},
        {k: pd.Series({"a": k, "b": 10 * k}) for k in keys},
        pd.DataFrame({"a": keys, "b": np.multiply(keys, 10)}, index=keys),
        np.array([[g, 10 * g] for g in groups]),
        [[g, 10 * g] for g in groups],
    ]
    if len(groups) == 7:
        del forms[4]  # a frame with as many rows as X may be one of rows
    for side in forms:
        tasks = TaskSet(X, y, groups, side)
        assert tasks.side_info.dtype == np.float64
        assert_array_equal(tasks.side_info, expected)
        named = isinstance(side, pd.DataFrame) or (
            isinstance(side, dict) and not isinstance(side[0], list | np.ndarray)
        )
        assert tasks.side_names == (["a", "b"] if named else None)
    assert_array_equal(
        TaskSet(X, y, groups, {k: k for k in keys}).side_info[:, 0], [g for g, _ in expected]
    )
    if len(groups) != 7:
        series = pd.Series(keys, index=keys)
        assert_array_equal(TaskSet(X, y, groups, series).side_info[:, 0], [g for g, _ in expected])


def test_dict_rows_may_order_their_keys():
    tasks = TaskSet(np.eye(2), [0, 1], ["a", "b"], {"a": {"p": 1, "q": 2}, "b": {"q": 4, "p": 3}})
    assert_array_equal(tasks.side_info, [[1, 2], [3, 4]])
    with pytest.raises(
        ValueError,
        match=r"task 'b' has the columns \['p'\], and that of task 'a' has \['p', 'q'\]",
    ):
        TaskSet(np.eye(2), [0, 1], ["a", "b"], {"a": {"p": 1, "q": 2}, "b": {"p": 3}})


@pytest.mark.parametrize("groups", [None, ["only"] * 3])
@pytest.mark.parametrize("side", [[1.0, 2.0], (1, 2), np.array([[1, 2]]), [[1, 2]] * 3])
def test_single_task_takes_its_vector(groups, side):
    tasks = TaskSet(np.ones((3, 2)), np.zeros(3), groups, side)
    assert_array_equal(tasks.side_info, [[1, 2]])


def test_single_task_scalar_and_long_vector():
    assert_array_equal(TaskSet(np.ones((3, 2)), np.zeros(3), None, 4).side_info, [[4]])
    assert TaskSet(np.ones((3, 2)), np.zeros(3), None, "red").side_info.tolist() == [["red"]]
    # as long as there are rows: still the vector of the task, whatever the count
    assert_array_equal(
        TaskSet(np.ones((3, 2)), np.zeros(3), None, [1, 2, 3]).side_info, [[1, 2, 3]]
    )


@pytest.mark.parametrize(
    "side",
    [
        {"age": 3, "city": "X"},
        {0: {"age": 3, "city": "X"}},
        pd.Series({"age": 3, "city": "X"}),
        pd.DataFrame({"age": [3], "city": ["X"]}, index=[77]),
        pl.DataFrame({"age": [3], "city": ["X"]}),
        pa.table({"age": [3], "city": ["X"]}),
    ],
)
def test_unnamed_task_takes_a_named_row(side):
    tasks = TaskSet(np.ones((3, 2)), np.zeros(3), side_info=side)
    assert tasks.side_info.tolist() == [[3.0, "X"]]
    assert tasks.side_names == ["age", "city"]


def test_unnamed_task_is_not_found_by_an_accidental_index():
    X, y = np.ones((3, 2)), np.zeros(3)
    assert_array_equal(TaskSet(X, y, side_info=pd.Series([5.0, 6.0])).side_info, [[5, 6]])
    message = r"side_info has 2 rows for one task without a label. Pass one row"
    with pytest.raises(ValueError, match=message):
        TaskSet(X, y, side_info=pd.DataFrame({"age": [1, 2]}))


def test_a_row_per_sample_row_when_every_task_has_one_row():
    tasks = TaskSet(np.eye(3), np.zeros(3), ["c", "a", "b"], np.array([[1], [2], [3]]))
    assert_array_equal(tasks.side_info, [[1], [2], [3]])


def test_frames_are_searched_by_label():
    """Also a frame with as many rows as X, unless its index may number the rows."""
    labels = np.repeat([3, 1, 2], 3)
    others = pd.DataFrame({"s": np.arange(9.0)}, index=[3, 5, 1, 2, 9, 8, 7, 6, 4])
    X, y = np.zeros((9, 1)), np.zeros(9)
    found = TaskSet(X, y, labels, others.rename_axis("school"))
    assert_array_equal(found.side_info, [[0.0], [2.0], [3.0]])
    for side in (others, others.s, others.reset_index(drop=True)):
        message = r"9 rows, as X has.*side_info.to_numpy\(\).*set_index"
        with pytest.raises(ValueError, match=message):
            TaskSet(X, y, labels, side)
    # One row per task.
    found = TaskSet(np.zeros((3, 1)), np.zeros(3), [2, 0, 1], pd.DataFrame({"s": [5.0, 6.0, 7.0]}))
    assert_array_equal(found.side_info, [[7.0], [5.0], [6.0]])


def side_error(error, message, side, groups=("a", "b", "b", "c")):
    with pytest.raises(error, match=message):
        TaskSet(np.ones((4, 2)), np.zeros(4), list(groups), side)


def test_side_errors():
    by_label = r"aligned by task label, not by the order of tasks: pass a mapping \{label: row\}"
    side_error(TypeError, r"shape \(3, 1\) \(3 tasks, 4 rows of X\).*" + by_label, np.ones((3, 1)))
    side_error(TypeError, r"shape \(3,\).*" + by_label, [1, 2, 3])
    side_error(TypeError, r"shape \(4,\).*" + by_label, [1, 2, 2, 3])
    side_error(TypeError, r"side_info has no index.*" + by_label, pl.DataFrame({"s": [1, 2, 3]}))
    side_error(TypeError, r"sparse matrix; pass a dense array", sp.eye_array(4))
    side_error(
        ValueError,
        r"constant within a task, but column 1 of task 'b' has the values 5.0 and 6.0",
        np.array([[0.0, 1], [0, 5], [0, 6], [0, 2]]),
    )
    side_error(
        ValueError,
        r"no row for task 'b', 'c' \(it has labels such as 'a', 'z'\).*Add the rows",
        {"a": 1, "z": 2},
    )
    side_error(
        ValueError,
        r"the index of a pandas DataFrame: call .set_index",
        pd.DataFrame({"s": [1, 2, 3]}),
    )
    side_error(
        ValueError,
        r"several rows for task 'a'",
        pd.DataFrame({"s": [1, 2, 3, 4]}, index=list("abca")),
    )
    side_error(ValueError, r"several rows for task", pd.Series([1, 2, 3, 4], index=list("abca")))
    side_error(
        ValueError,
        r"'b' has the columns \[0\], and that of task 'a' has \[0, 1\]",
        {"a": [1, 2], "b": [1], "c": [1, 2]},
    )
    side_error(
        ValueError, r"\(inf\) for task 'b', column 1", {"a": [1, 2], "b": [1, np.inf], "c": [1, 2]}
    )
    side_error(
        ValueError,
        r"\(inf\) for task 'c', column 'q'",
        {k: {"q": v} for k, v in zip("abc", [1, 2, np.inf], strict=True)},
    )
    side_error(ValueError, r"side_info has no columns", {"a": [], "b": [], "c": []})


def test_many_missing_labels_are_counted():
    with pytest.raises(ValueError, match=r"no row for task 1, 2, 3, 4, 5 and 4 more"):
        TaskSet(np.eye(10), np.zeros(10), range(10), {0: 1.0})
