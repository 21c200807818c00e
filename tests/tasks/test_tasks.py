"""TaskSet: ragged round trips, sparse rows, taking tasks, and labels of many kinds."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tailored import IndependentLearner, TaskSet
from task_samples import assert_same, ragged

# --- the flat layout


@given(groups=ragged, names=st.permutations(["p", "q", "r", "s", "t"]), sparse=st.booleans())
@settings(max_examples=60, deadline=None)
def test_flat_to_tasks_and_back(groups, names, sparse):
    groups = np.array(groups)
    X = np.column_stack([np.arange(len(groups)), groups]).astype(float)
    X[X == 2] = 0.0
    y = np.arange(len(groups)) + 0.5
    tasks = TaskSet(sp.coo_array(X) if sparse else X, y, np.array(names)[groups])

    order = list(dict.fromkeys(groups.tolist()))
    assert tasks.labels.tolist() == [names[g] for g in order]
    assert_array_equal(tasks.sizes, [np.sum(groups == g) for g in order])
    assert len(tasks) == len(order)
    for task, g in zip(tasks, order, strict=True):
        rows = task.X.toarray() if sparse else task.X
        assert_array_equal(rows, X[groups == g])
        assert_array_equal(task.y, y[groups == g])
        assert task.label == names[g]
    assert_same(TaskSet.from_tasks([(t.X, t.y) for t in tasks], labels=tasks.labels), tasks)
    assert_same(TaskSet.from_tasks(list(tasks)), tasks)
    assert_same(TaskSet(tasks.X, tasks.y, np.repeat(tasks.labels, tasks.sizes)), tasks)


@pytest.mark.parametrize(
    ("groups", "labels"),
    [
        (np.array([3, 1, 3, 1]), [3, 1]),
        (["b", "a", "b", "a"], ["b", "a"]),
        ([1, "a", 1, "a"], [1, "a"]),
        ([(0, "x"), (1, "y"), (0, "x"), (1, "y")], [(0, "x"), (1, "y")]),
        (np.array([True, False, True, False]), [True, False]),
        (pd.Series(["b", "a", "b", "a"], dtype="category"), ["b", "a"]),
        (pd.Series([3, 1, 3, 1], dtype="Int64"), [3, 1]),
        (pd.Index([3, 1, 3, 1]), [3, 1]),
        (pl.Series(["b", "a", "b", "a"]), ["b", "a"]),
        (pa.chunked_array([[3, 1], [3, 1]]), [3, 1]),
        ([2.5, 1.0, 2.5, 1.0], [2.5, 1.0]),
        (["a", "a\0", "a", "a\0"], ["a", "a\0"]),
    ],
)
def test_labels_of_many_kinds(groups, labels):
    tasks = TaskSet(np.eye(4), np.arange(4.0), groups)
    assert tasks.labels.tolist() == labels
    assert [task.label for task in tasks] == labels
    assert [type(task.label) for task in tasks] == [type(label) for label in labels]
    assert_array_equal(tasks.y, [0, 2, 1, 3])
    assert_array_equal(tasks.index_of(labels[::-1]), [1, 0])
    assert_array_equal(tasks.index_of(groups), [0, 1, 0, 1])


def test_no_groups_is_one_task():
    tasks = TaskSet([[1, 2], [3, 4]], [5, 6])
    assert len(tasks) == 1
    assert tasks.labels.tolist() == [0]
    assert tasks.X.dtype == tasks.y.dtype == np.float64
    assert tasks.offsets.dtype == np.int64
    assert tasks.feature_names is tasks.side_info is tasks.side_names is None


def test_arrays_are_owned_and_read_only(rng):
    X, y = rng.normal(size=(4, 2)), rng.normal(size=4)
    groups, side = np.array([0, 0, 1, 1]), np.array([[1.0], [1.0], [2.0], [2.0]])
    tasks = TaskSet(X, y, groups, side)
    for array in (X, y, groups, side):
        assert array.flags.writeable
        array[0] = 9
    assert tasks.X[0, 0] != 9
    assert tasks.y[0] != 9
    assert tasks.side_info[0, 0] == 1
    for part in (
        tasks,
        tasks[:1],
        tasks[[1]],
        tasks.support_query()[0],
        pickle.loads(pickle.dumps(tasks)),
    ):
        for name in ("X", "y", "offsets", "labels", "side_info"):
            assert not getattr(part, name).flags.writeable, name
    assert tasks.X.flags.c_contiguous
    assert np.shares_memory(tasks[1].X, tasks.X)
    assert np.shares_memory(tasks[1:].X, tasks.X)


def test_fortran_order_and_other_dtypes(rng):
    X = rng.integers(0, 9, size=(6, 2))
    for given_X in (np.asfortranarray(X), X.astype(np.float32), X.tolist(), X.astype(object)):
        tasks = TaskSet(given_X, np.arange(6), [0, 1] * 3)
        assert tasks.X.flags.c_contiguous
        assert_array_equal(tasks.X, X[[0, 2, 4, 1, 3, 5]])


def test_pickle_and_copy(tasks):
    for other in (pickle.loads(pickle.dumps(tasks)), copy.deepcopy(tasks)):
        assert_same(other, tasks)


# --- sparse rows


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.lil_array])
def test_sparse_equals_dense(rng, make):
    dense = rng.normal(size=(20, 7)) * (rng.random((20, 7)) < 0.3)
    y, groups = rng.normal(size=20), rng.integers(0, 4, 20)
    a, b = TaskSet(dense, y, groups), TaskSet(make(dense), y, groups)
    assert b.is_sparse
    assert not a.is_sparse
    pairs = [
        (a, b),
        (a[1:3], b[1:3]),
        (a[[2, 0]], b[[2, 0]]),
        *zip(a.support_query(0.5, 3), b.support_query(0.5, 3), strict=True),
        *zip(a.split([0.5, 0.5], 3), b.split([0.5, 0.5], 3), strict=True),
        (TaskSet.concat([a[:1], a[2:]]), TaskSet.concat([b[:1], b[2:]])),
        (a, pickle.loads(pickle.dumps(b))),
    ]
    for left, right in pairs:
        assert isinstance(right.X, sp.csr_array)
        assert right.X.has_canonical_format
        assert right.X.indices.dtype == np.int32
        assert not right.X.data.flags.writeable
        assert_same(left, right)
    # the algebra works on read-only parts
    w, v = rng.normal(size=7), rng.normal(size=20)
    np.testing.assert_allclose(b.X @ w, a.X @ w)
    np.testing.assert_allclose(b.X.T @ v, a.X.T @ v)
    np.testing.assert_allclose((b[2].X.T @ b[2].X).toarray(), a[2].X.T @ a[2].X, atol=1e-14)


def test_sparse_duplicates_are_summed_and_the_input_kept():
    X = sp.csr_matrix((np.ones(4), [1, 0, 0, 1], [0, 3, 4]), shape=(2, 2))
    tasks = TaskSet(X, [0.0, 1.0])
    assert_array_equal(tasks.X.toarray(), [[2, 1], [0, 1]])
    assert_array_equal(tasks.X.indices, [0, 1, 1])
    assert X.nnz == 4
    assert X.data.flags.writeable


def test_from_tasks_mixes_sparse_and_dense():
    tasks = TaskSet.from_tasks([(sp.csr_array(np.eye(2)), [1, 2]), (np.ones((1, 2)), [3])])
    assert tasks.is_sparse
    assert_array_equal(tasks.X.toarray(), [[1, 0], [0, 1], [1, 1]])


# --- taking tasks


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_indexing_like_a_list(data):
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    n = len(sizes)
    parts = [
        (np.full((m, 2), t) + np.arange(m)[:, None] / 10, np.full(m, t), [t])
        for t, m in enumerate(sizes)
    ]
    tasks = TaskSet.from_tasks(parts, labels=[f"t{t}" for t in range(n)])
    key = data.draw(
        st.one_of(
            st.slices(n),
            st.lists(st.integers(0, n - 1), unique=True),
            st.lists(st.booleans(), min_size=n, max_size=n),
        )
    )
    if isinstance(key, slice):
        chosen = list(range(n))[key]
    else:
        chosen = np.arange(n)[np.asarray(key, dtype=int if len(key) == 0 else None)].tolist()
    part = tasks[key]
    assert part.labels.tolist() == [f"t{t}" for t in chosen]
    assert_array_equal(part.sizes, [sizes[t] for t in chosen])
    assert part.offsets[0] == 0
    for task, t in zip(part, chosen, strict=True):
        assert_array_equal(task.X, parts[t][0])
        assert_array_equal(task.y, parts[t][1])
        assert_array_equal(task.side_info, [t])


def test_indexing_errors(tasks):
    with pytest.raises(IndexError, match="index out of range"):
        tasks[5]
    with pytest.raises(IndexError, match="index -6 is out of bounds"):
        tasks[[0, -6]]
    with pytest.raises(IndexError, match="boolean index did not match"):
        tasks[[True, False]]
    for key in ("a", (1, 2), [0.5]):
        with pytest.raises(IndexError, match=r"by position.*index_of"):
            tasks[key]
    with pytest.raises(ValueError, match=f"task '{tasks.labels[1]}' is taken more than once"):
        tasks[[1, 1]]


def test_index_of(tasks):
    assert_array_equal(tasks.index_of(tasks.labels[[3, 0]]), [3, 0])
    assert_array_equal(tasks.index_of(str(tasks.labels[2])), [2])
    message = r"labels: there is no task 'zz' in this set. It has labels such as '"
    with pytest.raises(ValueError, match=message):
        tasks.index_of(["a", "zz"])
    with pytest.raises(ValueError, match=r"'0', '1', '2', '3', '4' and 3 more"):
        tasks.index_of([str(i) for i in range(8)])


def test_repr(tasks):
    assert repr(tasks) == (
        "TaskSet(n_tasks=5, n_features=3, rows=16, 1 to 6 per task, side_info=2 columns, dense)"
    )
    assert repr(tasks[:0]) == "TaskSet(n_tasks=0, n_features=3, rows=0, side_info=2 columns, dense)"
    assert "side_info=None, sparse" in repr(TaskSet(sp.eye_array(2), [0, 1]))


# --- tasks given one by one


def test_from_tasks_with_cold_tasks():
    tasks = TaskSet.from_tasks(
        [(np.empty((0, 2)), [], [1, "a"]), (np.ones((3, 2)), [1, 2, 3], [2, "b"])]
    )
    assert_array_equal(tasks.sizes, [0, 3])
    assert tasks.labels.tolist() == [0, 1]
    assert tasks[0].X.shape == (0, 2)
    assert tasks.side_info.tolist() == [[1.0, "a"], [2.0, "b"]]
    cold = TaskSet.from_tasks([(np.empty((0, 2)), [], [1])])
    assert len(cold) == 1
    assert cold.X.shape == (0, 2)
    assert [len(part.y) for part in cold.support_query()] == [0, 0]


def test_from_tasks_refuses_frames():
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    with pytest.raises(TypeError, match=r"task 0: X is a dataframe\. .*use TaskSet.from_frame"):
        TaskSet.from_tasks([(frame, [1]), (frame, [2])])


@pytest.mark.parametrize(
    ("entries", "labels", "message"),
    [
        ([], None, "tasks is empty: pass at least one task"),
        (
            [(np.ones((1, 2)), [1]), (np.ones((1, 3)), [1])],
            "ab",
            "dimensions .* must match exactly",
        ),
        (
            [(np.ones((1, 2)), [1]), (np.ones((1, 2)), [1, 2])],
            None,
            "Task 1: .*X has 1 rows, y has 2",
        ),
        ([(np.ones((1, 2)), [1]), ([1, 2], [1, 2])], "ab", "Task 'b': .*\n*.*\nReshape your data"),
        ([(np.ones((1, 2)), [np.nan])], ["z"], "Task 'z': Input y contains NaN: row 0"),
        (
            [(np.ones((1, 1)), [0]), ([[1], [np.inf]], [0, 0])],
            None,
            "Task 1: Input X contains infinity.*: row 1, column 0",
        ),
        (
            [(np.ones((1, 1)), [0], 1), (np.ones((1, 1)), [0])],
            None,
            "missing for task 1: pass it for all or none",
        ),
        (
            [(np.ones((1, 1)), [0])] * 2,
            ["a", "a"],
            "labels must be distinct, but these are repeated: 'a'",
        ),
        ([(np.ones((1, 1)), [0])] * 2, ["a"], "labels: expected 2 labels, got 1"),
        ([(np.ones((1, 1)), [0])] * 2, ["a", None], "labels has a missing label"),
    ],
)
def test_from_tasks_errors(entries, labels, message):
    labels = list(labels) if isinstance(labels, str) else labels
    with pytest.raises(ValueError, match=message):
        TaskSet.from_tasks(entries, labels)


def test_from_tasks_wants_tuples():
    with pytest.raises(TypeError, match=r"task 0 must be a tuple \(X, y\)"):
        TaskSet.from_tasks([np.ones((2, 2))])


def some_tasks(labels, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, size=len(labels))
    return TaskSet.from_tasks(
        [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in sizes], labels
    )


LABELS = {
    "the same": ([3, 1, 2], [3, 1, 2]),
    "numbers": ([5, 3, 9, 1], [1, 2, 3, 9, 7]),
    "other sizes of numbers": (np.array([5, 3], dtype=np.int32), np.array([3, 4, 5])),
    "negative and without a sign": (np.array([5, 3], dtype=np.uint64), np.array([-1, 3])),
    "words": (["b", "longer", "z"], ["a", "b", "longe", "longer"]),
    "numbers and words": ([1, "a", 2], ["a", 2, 3]),
    "whole and broken numbers": ([1.0, 2.5], [1, 2]),
    "pairs": ([("a", 1), ("b", 2)], [("b", 2), ("c", 3)]),
    "dates": (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), np.array(["2021-01-01"], "M8[D]")),
}


@pytest.mark.parametrize("name", LABELS)
def test_tasks_are_matched_as_labels_are_equal(name):
    asked, known = LABELS[name]
    query, support = some_tasks(asked, 0), some_tasks(known, 1)
    found = support.support_of(query)
    np.testing.assert_array_equal(found.labels, query.labels)
    for t, label in enumerate(asked):
        same = [i for i, other in enumerate(known) if label == other]
        expected = support[same[0]].y if same else np.empty(0)
        np.testing.assert_array_equal(found[t].y, expected)


def test_nothing_in_common_is_said():
    for asked, known in (([1, 2], [3, 4]), (["a"], ["b"]), (["8"], [7])):
        with pytest.raises(ValueError, match="support: none of its tasks is in query"):
            some_tasks(known, 1).support_of(some_tasks(asked, 0))


def test_side_information_of_the_query_is_used():
    sides = {"a": {"age": 1.0}, "b": {"age": 2.0}, "c": {"age": 3.0}}
    query = TaskSet(np.zeros((3, 1)), np.zeros(3), ["c", "b", "a"], sides)
    support = TaskSet(np.zeros((2, 1)), np.ones(2), ["a", "b"])
    np.testing.assert_array_equal(support.support_of(query).side_info, query.side_info)


@pytest.mark.parametrize("pair", [(7, "7"), ("7", 7), (7.0, "7"), (True, "True")])
def test_numbers_and_the_strings_that_spell_them_do_not_mix(pair):
    """They would be two tasks, or a known task would be predicted as a new one."""
    X, y = np.zeros((6, 1)), np.arange(6.0)
    known, other = pair
    message = re.escape(f"such as {other!r}, and the known labels are")
    with pytest.raises(ValueError, match=message):
        some_tasks([known], 1).support_of(some_tasks([other], 0))
    learner = IndependentLearner().fit(TaskSet(X, y, [known] * 6))
    assert learner.predict(X[:1], groups=["new"]).shape == (1,)
    for predict in (
        learner.predict,
        lambda X, groups: learner.predict_tasks(TaskSet(X, [0.0], groups)),
    ):
        with pytest.raises(ValueError, match=message):
            predict(X[:1], groups=[other])
