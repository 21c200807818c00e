"""A sample that is taken in piece by piece: the one of all rows at once, at a cost that does not grow."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tailored import TaskSet
from tailored.sources import reservoir
from tailored.sources.reservoir import Reservoir
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


def same_bits(one, other):
    assert list(one.labels) == list(other.labels)
    for name in ("X", "y", "offsets"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("limits", [{}, {"size": 60}, {"numbers": 400}])
def test_sample_has_the_rows_of_all_pieces_in_their_order(kind, limits):
    sample, came = Reservoir(**limits), []
    for i, piece in enumerate(pieces_of(kind)):
        before, sample = sample, sample.take(piece)
        came.append(piece)
        if before is not sample and i % 11 == 5:
            sample = pickle.loads(pickle.dumps(sample))
        assert len(sample.batches) <= reservoir.MAX_BATCHES
        assert sum(len(one.y) for one in sample.batches) <= 1.5 * len(sample.batches[0].y)
        if i % 9 == 8:
            everything = TaskSet.merge(came)
            keys = label_keys(everything.labels)
            inside = keys < np.uint64(sample.limit) if limits else np.ones(len(keys), dtype=bool)
            same_bits(sample.sample, everything[inside])
            assert len(sample) == inside.sum()
    assert sample.is_whole == (not limits)


def test_most_pieces_are_taken_in_without_touching_earlier_rows():
    """Rows are copied a bounded number of times, however many pieces they come in."""
    sample, copied = Reservoir(), 0
    for i in range(400):
        before, sample = (
            sample,
            sample.take(TaskSet(np.ones((3, 1)), np.ones(3), [3 * i, 3 * i + 1, 3 * i + 2])),
        )
        kept = {id(one) for one in before.batches}
        copied += sum(len(one.y) for one in sample.batches[:1] if id(one) not in kept)
    assert len(sample.sample.y) == 1200
    assert copied < 8 * 1200


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
    with pytest.raises(ValueError, match="pass the same columns for all sets, or none"):
        sample.take(TaskSet(np.ones((1, 2)), [1.0], [99_999]))
