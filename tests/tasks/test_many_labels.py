"""Labels of many tasks are read and matched without a look at each: the same tasks as one by
one.
"""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tailored import IndependentLearner, TaskSet
from tailored.tasks.reading import group_rows

WORDS = ["b", "a", "b", "ä", "", "a", "c", "b"]

COLUMNS = {
    "pandas": lambda words: pd.Series(words),
    "pandas objects": lambda words: pd.Series(words, dtype=object),
    "pandas, another index": lambda words: pd.Series(words, index=range(8, 0, -1)),
    "polars": lambda words: pl.Series(words),
    "pyarrow": lambda words: pa.chunked_array([words]),
    "pyarrow in pieces": lambda words: pa.chunked_array([words[:3], words[3:]]),
}


@pytest.mark.parametrize("library", COLUMNS)
def test_words_are_numbered_by_their_library(library):
    column = COLUMNS[library](WORDS)
    found, expected = (group_rows(groups, len(WORDS)) for groups in (column, WORDS))
    np.testing.assert_array_equal(found.codes, expected.codes)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.labels.dtype == expected.labels.dtype
    np.testing.assert_array_equal(found.first, [0, 1, 3, 4, 6])
    assert found.codes.dtype == np.int64


@pytest.mark.parametrize("library", COLUMNS)
def test_a_missing_word_is_named(library):
    words = [*WORDS[:5], None, *WORDS[6:]]
    with pytest.raises(ValueError, match=r"groups has a missing label .* in row 5"):
        group_rows(COLUMNS[library](words), len(words))
    with pytest.raises(ValueError, match="8 labels, but X has 9 rows"):
        group_rows(COLUMNS[library](WORDS), 9)


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
    "true is one": ([True, False], [1, 5]),
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
    for asked, known in (([1, 2], [3, 4]), (["a"], ["b"]), ([7], ["8"])):
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
    message = re.escape(f"labels: {pair[1]!r} and {pair[0]!r} are different tasks")
    with pytest.raises(ValueError, match=message):
        some_tasks(pair[:1], 1).support_of(some_tasks(pair[1:], 0))
    with pytest.raises(ValueError, match="are different tasks"):
        TaskSet(X, y, [*pair, "a"] * 2)
    learner = IndependentLearner().fit(TaskSet(X, y, [pair[0], pair[0], 12.5] * 2))
    assert learner.predict(X[:1], groups=["new"]).shape == (1,)
    for predict in (
        learner.predict,
        lambda X, groups: learner.predict_tasks(TaskSet(X, [0.0], groups)),
    ):
        with pytest.raises(ValueError, match=message):
            predict(X[:1], groups=[pair[1]])
