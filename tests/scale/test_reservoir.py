"""Tasks whose rows arrive in batches: keys of labels, merging, and samples of whole tasks."""

import numpy as np
import pytest

from tailored import TaskSet
from tailored._utils.validation import label_array
from tailored.scale.base import Reservoir
from tailored.tasks.reading import label_keys

NAMES = {
    "numbers": lambda t: t,
    "words": lambda t: np.char.add("task ", t.astype(str)),
    "pairs": lambda t: [(int(k), "a") for k in t],
}


def pieces_of(kind, n_pieces=70, described=False):
    """Tasks of which many come back."""
    rng = np.random.default_rng(0)
    for i in range(n_pieces):
        labels = rng.choice(10 * (i + 2), size=rng.integers(1, 20), replace=False)
        task = np.repeat(labels, rng.integers(1, 5, size=len(labels)))
        names = NAMES[kind](task)
        side = (
            {name: [np.sin(t)] for name, t in zip(list(names), task, strict=True)}
            if described
            else None
        )
        yield TaskSet(rng.normal(size=(len(task), 2)), rng.normal(size=len(task)), names, side)


def test_a_piece_that_does_not_fit_is_refused_when_it_comes():
    sample = Reservoir()
    for piece in pieces_of("numbers", 13, described=True):
        sample = sample.take(piece)
    assert len(sample.batches) > 1
    known = sample.sample.labels[:1]
    with pytest.raises(ValueError, match=r"has the values .* and 9\.0"):
        _ = sample.take(TaskSet(np.ones((1, 2)), [1.0], known, {int(known[0]): [9.0]})).sample
    with pytest.raises(ValueError, match="n_features"):
        sample.take(TaskSet(np.ones((1, 3)), [1.0], [99_999], {99_999: [9.0]}))
    with pytest.raises(ValueError, match="n_side_info 0"):
        sample.take(TaskSet(np.ones((1, 2)), [1.0], [99_999]))


def long_rows(seed=0, n_tasks=40, d=3, words=False, side=True):
    """Rows in random order: X, y, labels, description of each row."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, size=n_tasks)
    names = (
        np.array([f"task-{t}" for t in range(n_tasks)]) if words else 7 * np.arange(n_tasks) - 50
    )
    description = rng.normal(size=(n_tasks, 2))
    task = rng.permutation(np.repeat(np.arange(n_tasks), sizes))
    X = 5.0 + rng.normal(size=(len(task), d))
    y = 100.0 + rng.normal(size=len(task))
    return X, y, names[task], description[task] if side else None


def in_pieces(rows, n_pieces=5):
    X, y, labels, side = rows
    return [
        TaskSet(X[i], y[i], labels[i], None if side is None else side[i])
        for i in np.array_split(np.arange(len(y)), n_pieces)
    ]


def same_tasks(one, other):
    """The same tasks with the same rows, in any order of the tasks."""
    assert set(one.labels.tolist()) == set(other.labels.tolist())
    other = other[other.index_of(one.labels)]
    for name in ("X", "y", "offsets"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    if one.side_info is not None:
        np.testing.assert_array_equal(one.side_info, other.side_info)


def test_a_missing_value_of_a_description_agrees_with_any_other():
    X, y = np.ones((2, 1)), np.arange(2.0)
    sides = [{"a": {"age": age, "town": None}} for age in (np.nan, 3.0, 4.0)]
    unknown, known, other = (TaskSet(X, y, ["a", "a"], side) for side in sides)
    assert TaskSet.merge([unknown, known]).side_info[0, 0] == 3.0
    with pytest.raises(ValueError, match=r"column 'age' of task 'a' has the values 3\.0 and 4\.0"):
        TaskSet.merge([unknown, known, other])


def test_keys_depend_on_the_label_alone():
    labels = np.array([3, 7, 10**12, -1])
    np.testing.assert_array_equal(label_keys(labels[1:]), label_keys(labels)[1:])
    np.testing.assert_array_equal(label_keys(labels.astype(float)), label_keys(labels))
    np.testing.assert_array_equal(
        label_keys(np.array([7, "a"], dtype=object))[:1], label_keys(labels[1:2])
    )
    np.testing.assert_array_equal(
        label_keys(np.array([7, "a"], dtype=object))[1:], label_keys(np.array(["a"]))
    )
    equal = [(1, "a"), (1.0, "a"), (True, "a"), (np.int64(1), "a")]
    assert len(set(label_keys(label_array([*equal, (1.5, "a")])).tolist())) == 2
    assert len(set(label_keys(np.arange(100_000)).tolist())) == 100_000
    assert not np.array_equal(label_keys(labels, 1), label_keys(labels, 2))
    # The same in every process.
    assert label_keys(np.array(["a", "b"])).tolist() == [8344406010599380034, 14692653091382047694]
    # evenly spread, whichever bits are looked at
    for shift in (0, 30, 58):
        counts = np.bincount(
            (label_keys(np.arange(64_000)) >> np.uint64(shift)).astype(int) % 64, minlength=64
        )
        assert counts.min() > 800
        assert counts.max() < 1200


@pytest.mark.parametrize("numbers", [10**6, 200])
def test_reservoir_is_the_same_sample_of_whole_tasks_in_any_order(numbers):
    rows = long_rows(1, n_tasks=200)
    whole = TaskSet(*rows)
    samples = []
    for seed in range(3):
        order = (
            np.random.default_rng(seed).permutation(len(rows[1]))
            if seed
            else np.arange(len(rows[1]))
        )
        reservoir = Reservoir(size=30, numbers=numbers, seed=5)
        for piece in in_pieces([part[order] for part in rows], 9):
            reservoir = reservoir.take(piece)
        samples.append(reservoir)
    sample = samples[0]
    assert not sample.is_whole
    assert 1 < len(sample.sample) <= 30
    assert len(sample.sample.y) * 4 <= numbers
    same_tasks(sample.sample, whole[whole.index_of(sample.sample.labels)])
    for other in samples[1:]:
        assert other.merged.limit == sample.merged.limit
        assert set(other.sample.labels.tolist()) == set(sample.sample.labels.tolist())
        np.testing.assert_array_equal(np.sort(other.sample.y), np.sort(sample.sample.y))
    # the smallest keys of all: nobody is preferred
    keys = np.sort(label_keys(whole.labels, 5))
    np.testing.assert_array_equal(
        np.sort(label_keys(sample.sample.labels, 5)), keys[: len(sample.sample)]
    )
