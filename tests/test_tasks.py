"""TaskSet: ragged round trips, alignment by label, splits, and the words of its errors."""

import copy
import pickle
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.exceptions import DataConversionWarning

from tailored._validation import (
    check_choice,
    check_fraction,
    check_int,
    check_nonnegative,
    check_positive,
    check_psd,
    check_real,
)
from tailored.tasks import Rows, Task, TaskSet
from tailored.tasks.episodes import split_rows
from tailored.tasks.rows import joined, mean_error, predictions, segment_sums, task_means

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
FIELDS = ("X", "y", "offsets", "labels", "side_info", "side_names", "feature_names")


def assert_same(a, b, fields=FIELDS):
    for name in fields:
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        if left is not None:
            dense = [v.toarray() if sp.issparse(v) else np.asarray(v) for v in (left, right)]
            assert_array_equal(*dense, err_msg=name)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def tasks(rng):
    """Five tasks of 3, 1, 4, 2 and 6 rows with shuffled rows, string labels and two side columns."""
    groups = rng.permutation(np.repeat(["e", "a", "d", "b", "c"], [3, 1, 4, 2, 6]))
    side = {label: [float(i), -float(i)] for i, label in enumerate("abcde")}
    return TaskSet(rng.normal(size=(16, 3)), rng.normal(size=16), groups, side)


ragged = st.lists(st.integers(0, 4), min_size=1, max_size=40)


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
    assert len(tasks) == tasks.n_tasks == len(order)
    for task, g in zip(tasks, order, strict=True):
        rows = task.X.toarray() if sparse else task.X
        assert_array_equal(rows, X[groups == g])
        assert_array_equal(task.y, y[groups == g])
        assert task.label == names[g]
    assert_same(TaskSet.from_tasks([(t.X, t.y) for t in tasks], labels=tasks.labels), tasks)
    assert_same(TaskSet.from_tasks(list(tasks)), tasks)
    assert_same(TaskSet(tasks.X, tasks.y, np.repeat(tasks.labels, tasks.sizes)), tasks)


def test_relabelling_changes_only_labels(rng):
    groups = rng.integers(0, 6, size=50)
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    a = TaskSet(X, y, groups)
    b = TaskSet(X, y, [f"name {9 - g}" for g in groups])
    assert_same(a, b, ("X", "y", "offsets"))
    assert b.labels.tolist() == [f"name {9 - g}" for g in a.labels]


@pytest.mark.parametrize(
    ("groups", "labels"),
    [
        (np.array([3, 1, 3, 1]), [3, 1]),
        (["b", "a", "b", "a"], ["b", "a"]),
        ([1, "1", 1, "1"], [1, "1"]),
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


def test_datetime_labels():
    days = np.array(["2024-05-02", "2024-05-01", "2024-05-02"], dtype="datetime64[ns]")
    tasks = TaskSet(np.eye(3), np.arange(3.0), days, {days[0]: 1.0, days[1]: 2.0})
    assert_array_equal(tasks.labels, days[:2])
    assert_array_equal(tasks.side_info, [[1], [2]])
    assert tasks[1].label == days[1]


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
    for part in (tasks, tasks[:1], tasks[[1]], tasks.support_query()[0], pickle.loads(pickle.dumps(tasks))):
        for name in ("X", "y", "offsets", "labels", "side_info"):
            assert not getattr(part, name).flags.writeable, name
    assert tasks.X.flags.c_contiguous
    assert np.shares_memory(tasks[1].X, tasks.X)
    assert np.shares_memory(tasks[1:].X, tasks.X)


def test_from_tasks_does_not_freeze_or_share(rng):
    X, y, labels, s = rng.normal(size=(4, 2)), rng.normal(size=4), np.array([5]), np.array([1.0])
    tasks = TaskSet.from_tasks([(X, y, s)], labels=labels)
    for array in (X, y, labels, s):
        array[0] = 9
    assert tasks.labels.tolist() == [5]
    assert not np.shares_memory(tasks.X, X)


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
        (np.full((m, 2), t) + np.arange(m)[:, None] / 10, np.full(m, t), [t]) for t, m in enumerate(sizes)
    ]
    tasks = TaskSet.from_tasks(parts, labels=[f"t{t}" for t in range(n)])
    key = data.draw(
        st.one_of(
            st.slices(n),
            st.lists(st.integers(0, n - 1), unique=True).map(np.array),
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


def test_one_task_is_a_record(tasks):
    task = tasks[-1]
    assert isinstance(task, Task)
    X, y, _side, label = task
    assert label == tasks.labels[-1]
    assert X.shape == (tasks.sizes[-1], 3)
    assert_array_equal(tasks[np.int64(4)].y, y)
    assert_array_equal(tasks[[-1, 0]].labels, [label, tasks.labels[0]])


def test_indexing_errors(tasks):
    with pytest.raises(IndexError, match="position 5 is out of range: there are 5 tasks"):
        tasks[5]
    with pytest.raises(IndexError, match="position -6 is out of range"):
        tasks[[0, -6]]
    with pytest.raises(IndexError, match="mask has 2 entries for 5 tasks"):
        tasks[[True, False]]
    with pytest.raises(TypeError, match=r"by position.*index_of"):
        tasks["a"]
    with pytest.raises(TypeError, match="by position"):
        tasks[1, 2]
    with pytest.raises(TypeError, match="must be integers"):
        tasks[[0.5]]
    with pytest.raises(ValueError, match=f"task '{tasks.labels[1]}' is taken twice"):
        tasks[[1, 1]]


def test_index_of(tasks):
    assert_array_equal(tasks.index_of(tasks.labels[[3, 0]]), [3, 0])
    assert_array_equal(tasks.index_of(str(tasks.labels[2])), [2])
    with pytest.raises(ValueError, match=r"labels holds 'zz', unknown here; tasks have labels such as '"):
        tasks.index_of(["a", "zz"])
    with pytest.raises(ValueError, match=r"'0', '1', '2', '3', '4' and 3 more"):
        tasks.index_of([str(i) for i in range(8)])


def test_repr(tasks):
    assert repr(tasks) == (
        "TaskSet(n_tasks=5, n_features=3, rows=16, 1 to 6 per task, side_info=2 columns, dense)"
    )
    assert repr(tasks[:0]) == "TaskSet(n_tasks=0, n_features=3, rows=0, side_info=2 columns, dense)"
    assert "side_info=None, sparse" in repr(TaskSet(sp.eye_array(2), [0, 1]))


# --- splits


@given(
    n=st.integers(1, 30),
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    seed=st.integers(0, 5),
    shuffle=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_split_by_fractions_uses_every_task_once(n, weights, seed, shuffle):
    fractions = np.array(weights) / sum(weights)
    tasks = TaskSet(np.eye(n), np.arange(n), np.arange(n) + 100)
    exact = fractions * n
    if np.floor(exact + 1e-9).min() == 0:  # whether the rest fills that part depends on the others
        exact, fractions = np.array([float(n)]), np.array([1.0])
    parts = tasks.split(fractions, seed, shuffle)
    taken = np.concatenate([part.labels for part in parts])
    assert sorted(taken) == tasks.labels.tolist()
    assert all(abs(len(part) - e) < 1 for part, e in zip(parts, exact, strict=True))
    for part, again in zip(parts, tasks.split(fractions.tolist(), seed, shuffle), strict=True):
        assert_same(part, again)
    if not shuffle:
        assert_array_equal(taken, tasks.labels)
    assert_array_equal(np.concatenate([p.y for p in parts]) + 100, taken)


def test_split_by_counts_and_partial_fractions():
    tasks = TaskSet(np.eye(10), np.arange(10), np.arange(10))
    a, b = tasks.split([5, 3], random_state=0)
    assert (len(a), len(b)) == (5, 3)
    assert not set(a.labels) & set(b.labels)
    assert a.labels.tolist() != sorted(a.labels)
    assert_array_equal(tasks.split([5, 3], shuffle=False)[1].labels, [5, 6, 7])
    assert [len(p) for p in tasks.split([0.5, 0.3], 0)] == [5, 3]
    assert [len(p) for p in tasks.split([1.0], 0)] == [10]
    assert [len(p) for p in tasks.split([0.7, 0.1, 0.2], 0)] == [7, 1, 2]
    same = [tasks.split([4], np.random.default_rng(3))[0].labels for _ in range(2)]
    assert_array_equal(*same)
    assert_array_equal(a.labels, tasks.split([5], np.random.RandomState(0))[0].labels)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([8, 3], r"sizes=\[8, 3\] asks for 11 tasks, but there are 10"),
        ([0.8, 0.3], r"sizes=\[0.8, 0.3\] sums to 1.1"),
        ([0.5, 2], r"sizes=\[0.5, 2\] mixes numbers and fractions"),
        ([5, 0], r"sizes\[1\] must be an integer >= 1; got 0"),
        ([0.5, -0.1], r"sizes\[1\] must be a finite number in \[0, 1\]; got -0.1"),
        ([0.98, 0.02], r"leaves sizes\[1\] without a task: there are only 10"),
        (0.8, r"sizes must be a list .* got 0.8"),
        ([], r"sizes must be a list"),
    ],
)
def test_split_errors(sizes, message):
    with pytest.raises(ValueError, match=message):
        TaskSet(np.eye(10), np.arange(10), np.arange(10)).split(sizes)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    support=st.one_of(st.floats(0.01, 0.99), st.integers(0, 12)),
    seed=st.integers(0, 9),
    shuffle=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_support_query_partitions_each_task(sizes, support, seed, shuffle):
    stamps = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    tasks = TaskSet.from_tasks([(stamp[:, None], stamp, [t]) for t, stamp in enumerate(stamps)])
    first, second = tasks.support_query(support, seed, shuffle)
    for part in (first, second):
        assert_array_equal(part.labels, tasks.labels)
        assert_array_equal(part.side_info, tasks.side_info)
        assert_array_equal(part.X[:, 0], part.y)
    for stamp, a, b in zip(stamps, first, second, strict=True):
        n = len(stamp)
        assert sorted([*a.y, *b.y]) == stamp.tolist()
        assert a.y.tolist() == sorted(a.y)
        assert b.y.tolist() == sorted(b.y)
        assert len(b.y) >= min(n, 1)
        if isinstance(support, int):
            assert len(a.y) == min(support, max(n - 1, 0))
        else:
            assert len(a.y) >= (n >= 2)
            assert abs(len(a.y) - support * n) <= 0.5 + 1e-6 or len(a.y) in (min(1, n), n - 1)
        if not shuffle:
            assert [*a.y, *b.y] == stamp.tolist()


@pytest.mark.parametrize(
    ("support", "n", "expected"), [(0.75, 10, 8), (0.5, 5, 3), (0.29, 50, 15), (0.1, 4, 1), (0.99, 4, 3)]
)
def test_support_fraction_rounds_half_up(support, n, expected):
    first, second = TaskSet(np.ones((n, 1)), np.zeros(n)).support_query(support, 0)
    assert (len(first.y), len(second.y)) == (expected, n - expected)


def test_support_of_a_task_ignores_the_other_tasks():
    def draw(sizes):
        parts = [(np.ones((n, 1)), np.arange(n)) for n in sizes]
        return [task.y.tolist() for task in TaskSet.from_tasks(parts).support_query(0.5, 11)[0]]

    a, b = draw([6, 10, 8, 8]), draw([3, 10, 8, 8, 5])
    assert a[1:] == b[1:4]
    assert a[2] != a[3]  # but two tasks of one size do not share a draw


def test_support_draw_is_uniform_over_rows():
    parts = [(np.ones((4, 1)), np.arange(4.0))] * 6000
    tasks = TaskSet.from_tasks(parts)
    chosen = tasks.support_query(2, random_state=0)[0].y.reshape(-1, 2)
    _, counts = np.unique(chosen, axis=0, return_counts=True)
    # six pairs, 1000 expected each; the chi-square quantile at 1e-4 with 5 degrees of freedom is 25.7
    assert len(counts) == 6
    assert np.sum((counts - 1000) ** 2 / 1000) < 25.7
    other = tasks.support_query(2, random_state=1)[0].y.reshape(-1, 2)
    assert 0.1 < np.mean((chosen == other).all(axis=1)) < 0.24


def test_support_errors(tasks):
    for bad in (1.0, 0.0, 1.5):
        with pytest.raises(ValueError, match=r"support must be a finite number in \(0, 1\)"):
            tasks.support_query(bad)
    with pytest.raises(ValueError, match="support must be an integer >= 0; got -1"):
        tasks.support_query(-1)
    with pytest.raises(TypeError, match="support must be a number"):
        tasks.support_query(True)


def test_concat(tasks):
    assert_same(TaskSet.concat([tasks[:2], tasks[2:]]), tasks)
    numbered = TaskSet.from_tasks([(np.ones((1, 3)), [0], [0, 0])])
    assert TaskSet.concat([numbered, tasks]).labels.tolist() == [0, *tasks.labels]
    text = TaskSet.from_tasks([(np.ones((1, 3)), [0], ["x", 1])])
    assert TaskSet.concat([tasks, text]).side_info.dtype == object
    with pytest.raises(ValueError, match=f"distinct, but '{tasks.labels[1]}' appears more than once"):
        TaskSet.concat([tasks, tasks[1:2]])
    with pytest.raises(ValueError, match=r"sets\[1\] has n_features 2, and sets\[0\] has 3"):
        TaskSet.concat([tasks, TaskSet(np.ones((1, 2)), [0])])
    with pytest.raises(ValueError, match=r"side_info has no columns in sets\[1\] and 2 in sets\[0\]"):
        TaskSet.concat([tasks, TaskSet(np.ones((1, 3)), [0])])
    with pytest.raises(ValueError, match="sets is empty"):
        TaskSet.concat([])


def test_concat_can_number_the_tasks_anew(tasks):
    """A stream can bring the same user twice."""
    twice = TaskSet.concat([tasks, tasks[1:2]], relabel=True)
    assert twice.labels.tolist() == list(range(len(tasks) + 1))
    assert_array_equal(twice.sizes, [*tasks.sizes, tasks.sizes[1]])
    assert_array_equal(twice[len(tasks)].X, tasks[1].X)
    assert_array_equal(twice[len(tasks)].side_info, tasks[1].side_info)
    with pytest.raises(ValueError, match=r"sets\[1\] has n_features 2"):
        TaskSet.concat([tasks, TaskSet(np.ones((1, 2)), [0])], relabel=True)


def test_from_arrays_takes_clean_arrays_as_they_are(tasks):
    arrays = tasks.X.copy(), tasks.y.copy(), tasks.offsets.copy(), tasks.labels.copy(), tasks.side_info.copy()
    made = TaskSet.from_arrays(*arrays, tasks.side_names, tasks.feature_names)
    assert_same(made, tasks)
    assert made.X is arrays[0]
    for array in (made.X, made.y, made.offsets, made.labels, made.side_info):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[-1]


# --- dataframes


def long_columns(rng, n=30):
    user = rng.permutation(np.repeat(["u3", "u1", "u2"], n // 3))
    return {
        "user": user.tolist(),
        "rating": rng.normal(size=n).tolist(),
        "price": rng.normal(size=n).tolist(),
        "new": (rng.random(n) < 0.5).tolist(),
        "stock": rng.integers(0, 9, n).tolist(),
    }


USERS = {"age": [20, 30, 40, 50], "city": ["X", "Y", "Z", "W"], "user": ["u2", "u9", "u3", "u1"]}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("side_kind", FRAMES)
def test_frames_of_all_kinds_agree(rng, kind, side_kind):
    data = long_columns(rng)
    reference = TaskSet(
        np.column_stack([data["price"], data["new"], data["stock"]]),
        data["rating"],
        data["user"],
        {"u1": [50, "W"], "u2": [20, "X"], "u3": [40, "Z"]},
    )
    tasks = TaskSet.from_frame(
        FRAMES[kind](data), task="user", target="rating", side_info=FRAMES[side_kind](USERS)
    )
    assert_same(tasks, reference, FIELDS[:5])
    assert tasks.labels.dtype.kind == "U"
    assert tasks.side_names == ["age", "city"]
    assert tasks.feature_names.tolist() == ["price", "new", "stock"]
    assert tasks.feature_names.dtype == object
    assert tasks.side_info.dtype == object
    assert [type(v) for v in tasks.side_info[0]] == [float, str]


@pytest.mark.parametrize("kind", FRAMES)
def test_frame_features_and_numeric_side_columns(rng, kind):
    data = long_columns(rng)
    ages = {"u1": 50, "u2": 20, "u3": 40}
    data["age"] = [ages[u] for u in data["user"]]
    frame = FRAMES[kind](data)
    tasks = TaskSet.from_frame(frame, task="user", target="rating", side_columns=["age"])
    assert tasks.feature_names.tolist() == ["price", "new", "stock"]
    assert tasks.side_info.dtype == np.float64
    assert tasks.side_info[:, 0].tolist() == [ages[u] for u in tasks.labels]
    few = TaskSet.from_frame(frame, task="user", target="rating", features=["stock", "price"])
    assert few.feature_names.tolist() == ["stock", "price"]
    assert_array_equal(few.X, tasks.X[:, [2, 0]])


@pytest.mark.parametrize("kind", FRAMES)
def test_X_and_y_from_frames_keep_names(rng, kind):
    data = long_columns(rng)
    frame = FRAMES[kind]({k: data[k] for k in ("price", "stock")})
    column = FRAMES[kind]({"y": data["rating"]})["y"]
    label = FRAMES[kind]({"g": data["user"]})["g"]
    tasks = TaskSet(frame, column, label)
    assert tasks.feature_names.tolist() == ["price", "stock"]
    plain = TaskSet(np.column_stack([data["price"], data["stock"]]), data["rating"], data["user"])
    assert_same(tasks, plain, FIELDS[:4])
    for part in (tasks[:1], tasks[[0]], tasks.split([1])[0], tasks.support_query()[0]):
        assert part.feature_names is tasks.feature_names


def test_pandas_frame_without_string_columns_has_no_names():
    assert TaskSet(pd.DataFrame(np.eye(2)), [0, 1]).feature_names is None


def test_pandas_extension_and_object_columns():
    frame = pd.DataFrame({"a": pd.array([1, 2], dtype="Int64"), "b": np.array([1.5, 2], dtype=object)})
    frame["c"] = pd.arrays.SparseArray([0.0, 3.0])
    assert_array_equal(TaskSet(frame, [0, 1]).X, [[1, 1.5, 0], [2, 2, 3]])


@pytest.mark.parametrize("kind", FRAMES)
def test_missing_value_in_a_frame_names_task_and_column(kind):
    frame = FRAMES[kind]({"g": ["a", "b", "b"], "x": [1, 2, None], "y": [0.0, 1.0, 2.0]})
    with pytest.raises(ValueError, match=r"Input X contains NaN: task 'b', row 2, column 'x'"):
        TaskSet.from_frame(frame, task="g", target="y")
    with pytest.raises(ValueError, match=r"Input y contains NaN: task 'b', row 2"):
        TaskSet.from_frame(frame, task="g", target="x")
    with pytest.raises(ValueError, match=r"groups has a missing label \((None|nan)\) in row 2"):
        TaskSet.from_frame(frame, task="x", target="y")


@pytest.mark.parametrize("kind", FRAMES)
def test_frame_errors(rng, kind):
    data = long_columns(rng)
    data["city"] = ["X"] * 29 + ["Y"]
    frame = FRAMES[kind](data)

    def build(**changes):
        TaskSet.from_frame(frame, **{"task": "user", "target": "rating"} | changes)

    with pytest.raises(
        ValueError, match=r"Feature column 'city' is not numeric.*list the columns .*`features`"
    ):
        build()
    with pytest.raises(ValueError, match=r"task must be one of 'user'.*got 'usr'. Did you mean 'user'\?"):
        build(task="usr")
    with pytest.raises(ValueError, match="target must be one of"):
        build(target="score")
    with pytest.raises(ValueError, match=r"features must be one of .* got 'pric'"):
        build(features=["pric"])
    with pytest.raises(TypeError, match=r"features must be a list of column names; got 'price'"):
        build(features="price")
    with pytest.raises(ValueError, match="features names the column 'price' twice"):
        build(features=["price", "price"])
    with pytest.raises(ValueError, match=r"features names the column 'rating', which is .* the target"):
        build(features=["rating"])
    with pytest.raises(ValueError, match="The target column 'city' is not numeric"):
        build(target="city", features=["price"])
    with pytest.raises(ValueError, match=r"column 'city' of task '\w+' is 'X' in row \d+ and 'Y' in row 29"):
        build(side_columns=["city"])
    with pytest.raises(ValueError, match="exclude each other"):
        build(side_columns=["city"], side_info={})
    with pytest.raises(ValueError, match=r"Found array with 0 feature\(s\)"):
        build(features=[])


@pytest.mark.parametrize("kind", FRAMES)
def test_side_frame_errors(rng, kind):
    frame = FRAMES[kind](long_columns(rng))

    def build(side):
        TaskSet.from_frame(frame, task="user", target="rating", side_info=side)

    with pytest.raises(ValueError, match=r"side_info has no row for task 'u1' \(it has labels such as 'u2'"):
        build(FRAMES[kind]({k: v[:3] for k, v in USERS.items()}))
    with pytest.raises(ValueError, match="side_info has several rows for task 'u3'"):
        build(FRAMES[kind](USERS | {"user": ["u2", "u3", "u3", "u1"]}))
    with pytest.raises(ValueError, match=r"missing or infinite value .* for task 'u3', column 'age'"):
        build(FRAMES[kind](USERS | {"age": [1.0, 2.0, None, 3.0]}))
    with pytest.raises(ValueError, match=r"missing or infinite value .* for task 'u3', column 'city'"):
        build(FRAMES[kind](USERS | {"city": ["X", "Y", None, "W"]}))
    with pytest.raises(ValueError, match="side_info has no columns"):
        build(FRAMES[kind]({"user": USERS["user"]}))
    # what an unused label holds, or how often, does not matter
    build(FRAMES[kind](USERS | {"age": [1.0, None, 2.0, 3.0]}))
    with pytest.raises((TypeError, ValueError), match=r"side_info .*Or give it the column 'user'"):
        build(FRAMES[kind]({"age": [1, 2, 3]}))


def test_side_frame_by_pandas_index(rng):
    frame = pl.DataFrame(long_columns(rng))
    by_column = TaskSet.from_frame(frame, task="user", target="rating", side_info=pd.DataFrame(USERS))
    indexed = pd.DataFrame(USERS).set_index("user")
    by_index = TaskSet.from_frame(frame, task="user", target="rating", side_info=indexed)
    assert_same(by_index, by_column)
    again = TaskSet(by_index.X, by_index.y, np.repeat(by_index.labels, by_index.sizes), indexed)
    assert_same(again, by_column, FIELDS[:6])


def test_side_series_and_unnamed_columns():
    frame = pl.DataFrame({"g": [3, 1, 3], "y": [0.0, 1, 2], "x": [1.0, 2, 3]})
    for side in (pd.Series([10, 30], index=[1, 3]), pd.DataFrame([[10], [30]], index=[1, 3])):
        tasks = TaskSet.from_frame(frame, task="g", target="y", side_info=side)
        assert_array_equal(tasks.side_info, [[30], [10]])
        assert tasks.side_names is None
    with pytest.raises(TypeError, match=r"side_info is of type ndarray.*never by position"):
        TaskSet.from_frame(frame, task="g", target="y", side_info=np.array([[10], [30]]))


def test_dates_as_side_information_stay_dates():
    days = np.array([["2024-05-02"], ["2024-05-01"]], dtype="datetime64[ns]")
    tasks = TaskSet(np.eye(2), [0, 1], ["a", "b"], days)
    assert tasks.side_info.dtype == object
    assert tasks.side_info[1, 0] == days[1, 0]
    assert isinstance(tasks.side_info[1, 0], np.datetime64)


def test_empty_frame():
    frame = pd.DataFrame({"g": [], "y": [], "x": []})
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
        TaskSet.from_frame(frame, task="g", target="y", side_columns=["x"], features=["x"])


def test_lazy_and_wrong_frames():
    with pytest.raises(TypeError, match=r"frame must be a dataframe .*LazyFrame.*collect"):
        TaskSet.from_frame(pl.LazyFrame({"a": [1]}), task="a", target="a")
    with pytest.raises(TypeError, match=r"frame must be a dataframe .* got ndarray"):
        TaskSet.from_frame(np.eye(2), task="a", target="a")


@pytest.mark.parametrize("values", [["1", "2", "1"], [1, 2, 1]])
def test_categories_stay_categories(values):
    frame = pd.DataFrame({"g": [0, 1, 2], "y": 0.0, "x": 1.0, "c": pd.Categorical(values)})
    tasks = TaskSet.from_frame(frame, task="g", target="y", side_columns=["c"])
    assert tasks.side_info.tolist() == [["1"], ["2"], ["1"]]


def test_integer_labels_match_across_kinds():
    frame = pl.DataFrame({"g": [3, 1, 3], "y": [0.0, 1, 2], "x": [1.0, 2, 3]})
    for side in ({1: 10, 3: 30}, {np.int32(3): 30, np.int64(1): 10}, pa.table({"g": [1, 3], "s": [10, 30]})):
        tasks = TaskSet.from_frame(frame, task="g", target="y", side_info=side)
        assert_array_equal(tasks.side_info, [[30], [10]])
    with pytest.raises(ValueError, match=r"no row for task 3, 1 .*7 is not '7'"):
        TaskSet.from_frame(frame, task="g", target="y", side_info={"1": 10, "3": 30})


# --- side information of the constructor


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
    for side in forms:
        tasks = TaskSet(X, y, groups, side)
        assert tasks.side_info.dtype == np.float64
        assert_array_equal(tasks.side_info, expected)
        named = isinstance(side, pd.DataFrame) or (
            isinstance(side, dict) and not isinstance(side[0], list | np.ndarray)
        )
        assert tasks.side_names == (["a", "b"] if named else None)
    assert_array_equal(TaskSet(X, y, groups, {k: k for k in keys}).side_info[:, 0], [g for g, _ in expected])
    assert_array_equal(
        TaskSet(X, y, groups, pd.Series(keys, index=keys)).side_info[:, 0], [g for g, _ in expected]
    )


def test_dict_rows_may_order_their_keys():
    tasks = TaskSet(np.eye(2), [0, 1], ["a", "b"], {"a": {"p": 1, "q": 2}, "b": {"q": 4, "p": 3}})
    assert_array_equal(tasks.side_info, [[1, 2], [3, 4]])
    with pytest.raises(
        ValueError, match=r"task 'b' has the keys \['p'\], and of task 'a' the keys \['p', 'q'\]"
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
    assert_array_equal(TaskSet(np.ones((3, 2)), np.zeros(3), None, [1, 2, 3]).side_info, [[1, 2, 3]])


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
    with pytest.raises(
        ValueError, match=r"side_info has 2 rows for one task without a label. Pass its own row"
    ):
        TaskSet(X, y, side_info=pd.DataFrame({"age": [1, 2]}))


def test_a_row_per_sample_row_when_every_task_has_one_row():
    tasks = TaskSet(np.eye(3), np.zeros(3), ["c", "a", "b"], np.array([[1], [2], [3]]))
    assert_array_equal(tasks.side_info, [[1], [2], [3]])


def side_error(error, message, side, groups=("a", "b", "b", "c")):
    with pytest.raises(error, match=message):
        TaskSet(np.ones((4, 2)), np.zeros(4), list(groups), side)


def test_side_errors():
    by_label = r"aligned by task label, never by position: pass a mapping \{label: row\}"
    side_error(TypeError, r"shape \(3, 1\) \(3 tasks, 4 rows of X\).*" + by_label, np.ones((3, 1)))
    side_error(TypeError, r"shape \(3,\).*" + by_label, [1, 2, 3])
    side_error(TypeError, r"shape \(4,\).*" + by_label, [1, 2, 2, 3])
    side_error(TypeError, r"polars DataFrame, without an index.*" + by_label, pl.DataFrame({"s": [1, 2, 3]}))
    side_error(TypeError, r"sparse matrix; pass a dense array", sp.eye_array(4))
    side_error(
        ValueError,
        r"constant within a task, but column 1 of task 'b' is 5.0 in row 1 and 6.0 in row 2",
        np.array([[0.0, 1], [0, 5], [0, 6], [0, 2]]),
    )
    side_error(
        ValueError,
        r"no row for task 'b', 'c' \(it has labels such as 'a', 'z'\).*Add the rows",
        {"a": 1, "z": 2},
    )
    side_error(ValueError, r"searched by its index: call .set_index", pd.DataFrame({"s": [1, 2, 3]}))
    side_error(
        ValueError, r"several rows for task 'a'", pd.DataFrame({"s": [1, 2, 3, 4]}, index=list("abca"))
    )
    side_error(
        ValueError, r"Series with several entries for one label", pd.Series([1, 2, 3, 4], index=list("abca"))
    )
    side_error(ValueError, r"task 'b' has 1 values, and of task 'a' 2", {"a": [1, 2], "b": [1], "c": [1, 2]})
    side_error(
        TypeError, r"side information of task 'b' must be a number, a 1-D", {"a": 1, "b": [[1]], "c": 1}
    )
    side_error(ValueError, r"\(nan\) for task 'b', column 1", {"a": [1, 2], "b": [1, np.nan], "c": [1, 2]})
    side_error(
        ValueError,
        r"\(inf\) for task 'c', column 'q'",
        {k: {"q": v} for k, v in zip("abc", [1, 2, np.inf], strict=True)},
    )
    side_error(ValueError, r"\(None\) for task 'b', column 0", {"a": "x", "b": None, "c": "y"})
    side_error(ValueError, r"Complex data not supported: column 0", {"a": 1j, "b": 2, "c": 3})
    side_error(TypeError, r"column 'q' of side_info holds lists", {k: {"q": [1]} for k in "abc"})
    side_error(ValueError, r"side_info has no columns", {"a": [], "b": [], "c": []})


def test_many_missing_labels_are_counted():
    with pytest.raises(ValueError, match=r"no row for task 1, 2, 3, 4, 5 and 4 more"):
        TaskSet(np.eye(10), np.zeros(10), range(10), {0: 1.0})


# --- tasks given one by one


def test_from_tasks_with_cold_tasks():
    tasks = TaskSet.from_tasks([(np.empty((0, 2)), [], [1, "a"]), (np.ones((3, 2)), [1, 2, 3], [2, "b"])])
    assert_array_equal(tasks.sizes, [0, 3])
    assert tasks.labels.tolist() == [0, 1]
    assert tasks[0].X.shape == (0, 2)
    assert tasks.side_info.tolist() == [[1.0, "a"], [2.0, "b"]]
    cold = TaskSet.from_tasks([(np.empty((0, 2)), [], [1])])
    assert len(cold) == 1
    assert cold.X.shape == (0, 2)
    assert [len(part.y) for part in cold.support_query()] == [0, 0]


def test_from_tasks_with_frames():
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    tasks = TaskSet.from_tasks([(frame, [1]), (frame, [2])])
    assert tasks.feature_names.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="X of task 1 has other column names than X of task 0"):
        TaskSet.from_tasks([(frame, [1]), (frame[["b", "a"]], [2])])


@pytest.mark.parametrize(
    ("entries", "labels", "message"),
    [
        ([], None, r"tasks is empty: Found array with 0 sample\(s\)"),
        (
            [(np.ones((1, 2)), [1]), (np.ones((1, 3)), [1])],
            "ab",
            "X of task 'b' has 3 features, and of task 'a' 2",
        ),
        ([(np.ones((1, 2)), [1]), (np.ones((1, 2)), [1, 2])], None, "Task 1: .*X has 1 rows, y has 2"),
        ([(np.ones((1, 2)), [1]), ([1, 2], [1, 2])], "ab", "Task 'b': .*\n*.*\nReshape your data"),
        ([(np.ones((1, 2)), [np.nan])], ["z"], "Input y contains NaN: task 'z', row 0"),
        (
            [(np.ones((1, 1)), [0]), ([[1], [np.inf]], [0, 0])],
            None,
            "Input X contains infinity.*: task 1, row 1, column 0",
        ),
        (
            [(np.ones((1, 1)), [0], 1), (np.ones((1, 1)), [0])],
            None,
            "missing for task 1: give it to all or none",
        ),
        ([(np.ones((1, 1)), [0])] * 2, ["a", "a"], "labels must be distinct, but 'a' appears more than once"),
        ([(np.ones((1, 1)), [0])] * 2, ["a"], "labels has 1 entries for 2 tasks"),
        ([(np.ones((1, 1)), [0])] * 2, ["a", None], "labels has a missing label"),
        ([(np.empty((2, 0)), [0, 1])], None, r"Task 0: Found array with 0 feature\(s\)"),
    ],
)
def test_from_tasks_errors(entries, labels, message):
    labels = list(labels) if isinstance(labels, str) else labels
    with pytest.raises(ValueError, match=message):
        TaskSet.from_tasks(entries, labels)


def test_from_tasks_wants_tuples():
    with pytest.raises(TypeError, match=r"task 0 must be a tuple \(X, y\)"):
        TaskSet.from_tasks([np.ones((2, 2))])


# --- bad rows and targets


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones(3), np.ones(3), "Reshape your data"),
        (np.ones((3, 2, 2)), np.ones(3), "Found array with dim 3"),
        (np.ones((3, 2)) * 1j, np.ones(3), "Complex data not supported"),
        (sp.csr_array(np.ones((3, 2)) * 1j), np.ones(3), "Complex data not supported"),
        (np.array([["a", "b"]] * 3), np.ones(3), "bytes/strings"),
        (np.array([["1", "2"]] * 3), np.ones(3), "bytes/strings"),
        (
            np.ones((3, 2), dtype="datetime64[s]"),
            np.ones(3),
            "X must hold numbers, but its dtype is datetime64",
        ),
        (np.empty((0, 2)), [], r"Found array with 0 sample\(s\) \(shape=\(0, 2\)\) while a minimum of 1"),
        (
            np.empty((3, 0)),
            np.ones(3),
            r"Found array with 0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1",
        ),
        (pd.DataFrame({"a": [1], "town": ["x"]}), [1], "Column 'town' of X is not numeric"),
        (pd.DataFrame({"a": [1j]}), [1], "Complex data not supported: Column 'a' of X"),
        (np.ones((3, 2)), np.ones(2), "inconsistent numbers of samples: X has 3 rows, y has 2"),
        (np.ones((3, 2)), np.ones((3, 2)), "y should be a 1d array"),
        (np.ones((3, 2)), 1.0, "y should be a 1d array"),
        (np.ones((3, 2)), None, "y should be a 1d array.*None"),
        (np.ones((3, 2)), ["a", "b", "c"], "y must hold numbers; got dtype <U1"),
        (np.ones((3, 2)), np.array([1, "2", 3], dtype=object), "y must hold numbers; got strings"),
        (np.ones((3, 2)), np.array([1, {}, 3], dtype=object), "y must hold numbers, but its dtype is object"),
        (np.ones((3, 2)), np.ones(3) * 1j, "Complex data not supported: y has dtype complex128"),
        (np.ones((3, 2)), pd.Series(["a", "b", "c"]), "y is not numeric"),
    ],
)
def test_bad_arrays(X, y, message):
    with pytest.raises(ValueError, match=message):
        TaskSet(X, y)


def test_a_column_vector_y_warns_like_scikit_learn():
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        tasks = TaskSet(np.eye(2), [[1], [2]])
    assert_array_equal(tasks.y, [1, 2])


def test_a_dict_in_X_is_a_type_error():
    X = np.ones((2, 2), dtype=object)
    X[0, 0] = {"foo": "bar"}
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        TaskSet(X, [1, 2])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (-np.inf, "infinity or a value too large")])
def test_bad_values_are_located(bad, word, sparse):
    X = np.ones((4, 3))
    X[0, 0], X[2, 1] = 0, bad
    make = sp.csc_matrix if sparse else np.asarray
    with pytest.raises(ValueError, match=rf"Input X contains {word}.*: task 'b', row 2, column 1\. "):
        TaskSet(make(X), np.ones(4), ["a", "b", "b", "a"])
    X[3, 2] = bad
    with pytest.raises(ValueError, match=rf"Input X contains {word}.*column 1 \(2 such values in all\)"):
        TaskSet(make(X), np.ones(4), ["a", "b", "b", "a"])
    with pytest.raises(ValueError, match=rf"Input y contains {word}.*: task 7, row 1\. "):
        TaskSet(np.eye(3), [0, bad, 0], [3, 7, 3])


def test_huge_finite_values_pass():
    assert_array_equal(TaskSet(np.full((3, 2), 1e308), np.full(3, -1e308)).y, [-1e308] * 3)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([0, 1], ValueError, "groups has 2 labels, but X has 3 rows"),
        (np.zeros((3, 1)), ValueError, r"groups must be 1-D.*got shape \(3, 1\)"),
        ("abc", ValueError, r"groups must be 1-D.*got shape \(\)"),
        ([0.0, np.nan, 1.0], ValueError, r"groups has a missing label \(nan\) in row 1"),
        (["a", "b", None], ValueError, r"groups has a missing label \(None\) in row 2"),
        (["a", np.nan, "b"], ValueError, r"groups has a missing label \(nan\) in row 1"),
        (pd.Series([1, None, 2], dtype="Int64"), ValueError, r"groups has a missing label .* in row 1"),
        (pl.Series([1, 2, None]), ValueError, r"groups has a missing label .* in row 2"),
        (np.array(["2024", "NaT", "2024"], dtype="datetime64[D]"), ValueError, "missing label .* in row 1"),
        ([[1], [2], [3]], TypeError, "groups must hold hashable labels"),
    ],
)
def test_bad_groups(groups, error, message):
    with pytest.raises(error, match=message):
        TaskSet(np.ones((3, 2)), np.ones(3), groups)


# --- the shared checks


def test_scalar_checks():
    assert check_positive("step", np.float32(0.5)) == 0.5
    assert check_nonnegative("step", 0) == 0.0
    assert check_int("rank", np.int64(3)) == 3
    assert check_real("shift", -2) == -2.0
    for bad in (0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="step must be a finite number > 0; got"):
            check_positive("step", bad)
    with pytest.raises(ValueError, match="step must be a finite number >= 0; got -1"):
        check_nonnegative("step", -1)
    with pytest.raises(TypeError, match="step must be a number; got 'big' of type str"):
        check_positive("step", "big")
    with pytest.raises(TypeError, match="step must be a number; got True"):
        check_positive("step", True)
    with pytest.raises(ValueError, match=r"q must be a finite number in \(0, 1\); got 1"):
        check_fraction("q", 1)
    with pytest.raises(ValueError, match="rank must be an integer >= 1; got 0"):
        check_int("rank", 0)
    with pytest.raises(TypeError, match=r"rank must be an integer; got 2.0 of type float"):
        check_int("rank", 2.0)


def test_check_choice():
    registry = {"absolute": 1, "huber": 2}
    assert check_choice("loss", "huber", registry) == "huber"
    with pytest.raises(
        ValueError, match=r"loss must be one of 'absolute', 'huber'; got 'Hubber'\. Did you mean 'huber'\?"
    ):
        check_choice("loss", "Hubber", registry)
    with pytest.raises(ValueError, match=r"got \['huber'\]\.$"):
        check_choice("loss", ["huber"], registry)


def test_check_psd(rng):
    A = rng.normal(size=(4, 2))
    theta = A @ A.T
    for given_theta in (theta, np.zeros((4, 4)), theta + 1e-12 * rng.normal(size=(4, 4)), 1e300 * theta):
        clean = check_psd(given_theta, "theta", 4)
        assert_array_equal(clean, clean.T)
        np.testing.assert_allclose(clean, given_theta, atol=1e-11)
        assert clean is not given_theta
    with pytest.raises(ValueError, match=r"theta must be symmetric.*entry of size 1"):
        check_psd(theta + np.eye(4, k=1), "theta")
    with pytest.raises(
        ValueError, match=r"C must be positive semidefinite.*smallest eigenvalue is -0.5.*add 0.5"
    ):
        check_psd(theta - 0.5 * np.eye(4), "C")
    with pytest.raises(ValueError, match="smallest eigenvalue is -1 "):
        check_psd(-np.eye(2))
    with pytest.raises(ValueError, match=r"theta must be a \(3, 3\) matrix; got shape \(4, 4\)"):
        check_psd(theta, "theta", 3)
    with pytest.raises(ValueError, match=r"must be a \(4, 4\) matrix; got shape \(4, 2\)"):
        check_psd(A)
    with pytest.raises(ValueError, match="theta contains NaN or infinity"):
        check_psd(np.full((2, 2), np.nan))


def test_no_dataframe_library_is_imported_by_us():
    # scikit-learn itself may bring pandas in; what counts is what comes on top of it
    code = (
        "import sys, sklearn.base, sklearn.utils.validation; before = set(sys.modules); "
        "import tailored.tasks; new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "bad = new & {'pandas', 'polars', 'pyarrow', 'matplotlib', 'rich', 'torch'}; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- rows as numerical code sees them -----------------------------------------------------------------------


def ragged_rows(rng, sizes, d=3):
    n = sum(sizes)
    return Rows(rng.normal(size=(n, d)), rng.normal(size=n), np.concatenate([[0], np.cumsum(sizes)]))


SIZES = [[3, 1, 4], [0, 2, 0, 0, 5, 0], [0, 0], [1], []]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("width", [None, 2])
def test_segment_sums_are_sums_of_each_task(sizes, width, rng):
    """Tasks without rows, at the ends and next to each other, give zero."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = rng.normal(size=(offsets[-1],) if width is None else (offsets[-1], width))
    expected = [values[a:b].sum(axis=0) for a, b in pairwise(offsets)]
    found = segment_sums(values, offsets)
    assert found.shape == (len(sizes), *values.shape[1:])
    np.testing.assert_allclose(found, np.reshape(expected, found.shape), atol=1e-14)


def test_task_means_and_mean_error(rng):
    offsets = np.array([0, 3, 3, 4])
    losses = np.array([1.0, 2.0, 6.0, 5.0])
    assert_array_equal(task_means(losses, offsets), [3.0, np.nan, 5.0])
    assert mean_error(losses, offsets) == 4.0
    assert mean_error(np.zeros(0), np.array([0, 0])) == np.inf
    assert mean_error(np.array([1.0, np.nan]), np.array([0, 1, 2])) == np.inf
    assert mean_error(np.array([1.0, -np.inf]), np.array([0, 1, 2])) == np.inf


@pytest.mark.parametrize("sizes", SIZES[:2])
def test_predictions_are_those_of_each_task_s_own_weights(sizes, rng):
    rows = ragged_rows(rng, sizes)
    weights = rng.normal(size=(len(sizes), 3))
    expected = np.concatenate([rows.tasks(t, t + 1).X @ w for t, w in enumerate(weights)])
    np.testing.assert_allclose(predictions(rows, weights), expected, atol=1e-14)
    thin = rows._replace(X=sp.csr_array(rows.X))
    assert (thin.is_sparse, rows.is_sparse) == (True, False)
    np.testing.assert_allclose(predictions(thin, weights), expected, atol=1e-14)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_are_taken_and_joined_by_task(sparse, rng):
    rows = ragged_rows(rng, [3, 0, 1, 4])
    if sparse:
        rows = rows._replace(X=sp.csr_array(rows.X))

    def dense(part):
        return part.X.toarray() if sparse else part.X

    taken = rows.take(np.array([3, 1, 0]))
    assert taken.sizes.tolist() == [4, 0, 3]
    assert_array_equal(dense(taken), dense(rows)[[4, 5, 6, 7, 0, 1, 2]])
    assert_array_equal(taken.y, rows.y[[4, 5, 6, 7, 0, 1, 2]])
    both = joined([rows.tasks(3, 4), rows.tasks(0, 2)])
    assert both.sizes.tolist() == [4, 3, 0]
    assert_array_equal(dense(both), dense(taken))


def test_rows_of_a_task_set_with_the_constant_column(tasks):
    rows, plain = Rows.of(tasks, fit_intercept=True), Rows.of(tasks)
    assert_array_equal(plain.X, tasks.X)
    assert_array_equal(rows.X, np.hstack([tasks.X, np.ones((len(tasks.y), 1))]))
    thin = TaskSet.from_tasks([(sp.csr_array(np.eye(3)[:2]), [1.0, 2.0]), (sp.csr_array((1, 3)), [3.0])])
    sparse = Rows.of(thin, fit_intercept=True)
    assert_array_equal(sparse.X.toarray(), [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1]])
    assert [columns.tolist() for columns in sparse.columns()] == [[0, 1, 3], [3]]
    assert_array_equal(sparse.tasks(0, 1).compressed(np.array([1, 3])).X, [[0, 1], [1, 1]])


# --- episodes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("support", [0.3, 0.5, 0.9])
def test_split_rows_does_not_depend_on_the_call_that_brought_the_task(support, rng):
    sizes = rng.integers(0, 9, size=12)
    entries = [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in sizes]
    many = TaskSet.from_tasks(entries)
    given, asked = split_rows(many, range(5, 17), support, (3, 1))
    for t in range(12):
        one = split_rows(many[t : t + 1], [5 + t], support, (3, 1))
        assert_array_equal(one[0].y, given[t].y)
        assert_array_equal(one[1].y, asked[t].y)
        assert_array_equal(np.sort(np.append(given[t].y, asked[t].y)), np.sort(many[t].y))
        # one row at least to ask for, and one to adapt on where there are two
        n = int(sizes[t])
        assert len(given[t].y) == (min(max(int(support * n + 0.5), 1), n - 1) if n > 1 else 0)
    other, _ = split_rows(many, range(5, 17), support, (4, 1))
    assert not np.array_equal(other.y, given.y)
