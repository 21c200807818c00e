"""Bad rows, bad targets, bad labels, and the checks that every module shares."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.exceptions import DataConversionWarning

from tailored._utils.validation import name_some
from tailored.tasks.task_set import TaskSet

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
        (
            np.empty((0, 2)),
            [],
            r"Found array with 0 sample\(s\) \(shape=\(0, 2\)\) while a minimum of 1",
        ),
        (pd.DataFrame({"a": [1j]}), [1], "Feature column 'a' is not numeric"),
        (np.ones((3, 2)), np.ones(2), "inconsistent numbers of samples: X has 3 rows, y has 2"),
        (np.ones((3, 2)), np.ones((3, 2)), "y should be a 1d array"),
        (np.ones((3, 2)), 1.0, "y should be a 1d array"),
        (np.ones((3, 2)), None, "y should be a 1d array.*None"),
        (np.ones((3, 2)), ["a", "b", "c"], "y must hold numbers; got dtype <U1"),
        (np.ones((3, 2)), np.array([1, "a", 3], dtype=object), "y: could not convert string"),
        (np.ones((3, 2)), np.ones(3) * 1j, "y: Complex data not supported"),
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
@pytest.mark.parametrize(
    ("bad", "word"), [(np.nan, "NaN"), (-np.inf, "infinity or a value too large")]
)
def test_bad_values_are_located(bad, word, sparse):
    X = np.ones((4, 3))
    X[0, 0], X[2, 1] = 0, bad
    make = sp.csc_matrix if sparse else np.asarray
    message = rf"Input X contains {word}.*: task 'b', row 2, column 1\. "
    with pytest.raises(ValueError, match=message):
        TaskSet(make(X), np.ones(4), ["a", "b", "b", "a"])
    X[3, 2] = bad
    message = rf"Input X contains {word}.*column 1 \(2 such rows in all\)"
    with pytest.raises(ValueError, match=message):
        TaskSet(make(X), np.ones(4), ["a", "b", "b", "a"])
    with pytest.raises(ValueError, match=rf"Input y contains {word}.*: task 7, row 1\. "):
        TaskSet(np.eye(3), [0, bad, 0], [3, 7, 3])


def test_huge_finite_values_pass():
    assert_array_equal(TaskSet(np.full((3, 2), 1e308), np.full(3, -1e308)).y, [-1e308] * 3)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([0, 1], ValueError, "groups: expected 3 labels, got 2"),
        (np.zeros((3, 1)), ValueError, r"groups must be 1-D.*got shape \(3, 1\)"),
        ("abc", ValueError, r"groups must be 1-D.*got shape \(\)"),
        ([0.0, np.nan, 1.0], ValueError, r"groups has a missing label in row 1"),
        (["a", "b", None], ValueError, r"groups has a missing label in row 2"),
        (["a", np.nan, "b"], ValueError, r"groups has a missing label in row 1"),
        (
            pd.Series([1, None, 2], dtype="Int64"),
            ValueError,
            r"groups has a missing label in row 1",
        ),
        (pl.Series([1, 2, None]), ValueError, r"groups has a missing label in row 2"),
        (
            np.array(["2024", "NaT", "2024"], dtype="datetime64[D]"),
            ValueError,
            "missing label in row 1",
        ),
        ([[1], [2], [3]], TypeError, "groups must hold hashable labels"),
    ],
)
def test_bad_groups(groups, error, message):
    with pytest.raises(error, match=message):
        TaskSet(np.ones((3, 2)), np.ones(3), groups)


# --- the shared checks


def test_labels_are_named_as_in_python():
    labels = [np.float64(4.0), np.int64(3), np.str_("a"), None]
    assert name_some(labels) == "4.0, 3, 'a', None"
