"""TaskSet: splits into sets, support and query rows, and concatenation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tailored.tasks.episodes import split_rows
from tailored.tasks.task_set import TaskSet
from task_samples import assert_same


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
        ([8, 3], r"sizes=\[8, 3\] needs 11 tasks, but there are 10"),
        ([0.8, 0.3], r"sizes=\[0.8, 0.3\] sums to 1.1"),
        ([0.5, 2], r"sizes\[1\] must be a finite number in \[0, 1\]; got 2"),
        ([5, 0], r"sizes\[1\] must be an integer >= 1; got 0"),
        ([0.5, -0.1], r"sizes\[1\] must be a finite number in \[0, 1\]; got -0.1"),
        ([0.98, 0.02], r"gives no task to sizes\[1\]; number of tasks: 10"),
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
    ("support", "n", "expected"),
    [(0.75, 10, 8), (0.5, 5, 3), (0.29, 50, 15), (0.1, 4, 1), (0.99, 4, 3)],
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
    # six pairs, 1000 expected each; the chi-square quantile at 1e-4 with 5 degrees of freedom is
    # 25.7
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
    message = f"distinct, but these are repeated: '{tasks.labels[1]}'"
    with pytest.raises(ValueError, match=message):
        TaskSet.concat([tasks, tasks[1:2]])
    with pytest.raises(ValueError, match=r"sets\[1\] has n_features 2, and sets\[0\] has 3"):
        TaskSet.concat([tasks, TaskSet(np.ones((1, 2)), [0])])
    with pytest.raises(ValueError, match=r"sets\[1\] has n_side_info 0, and sets\[0\] has 2"):
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
    arrays = (
        tasks.X.copy(),
        tasks.y.copy(),
        tasks.offsets.copy(),
        tasks.labels.copy(),
        tasks.side_info.copy(),
    )
    made = TaskSet.from_arrays(
        *arrays, side_names=tasks.side_names, feature_names=tasks.feature_names
    )
    assert_same(made, tasks)
    assert made.X is arrays[0]
    for array in (made.X, made.y, made.offsets, made.labels, made.side_info):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[-1]


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
