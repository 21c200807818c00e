"""Rows as numerical code sees them."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from tailored.tasks.rows import Rows, Scaling, mean_error, predictions, segment_sums, task_means
from tailored.tasks.task_set import TaskSet


def ragged_rows(rng, sizes, d=3):
    n = sum(sizes)
    return Rows(
        rng.normal(size=(n, d)), rng.normal(size=n), np.concatenate([[0], np.cumsum(sizes)])
    )


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


def test_rows_of_a_task_set_with_the_constant_column(tasks):
    rows, plain = Rows.of(tasks, fit_intercept=True), Rows.of(tasks)
    assert_array_equal(plain.X, tasks.X)
    assert_array_equal(rows.X, np.hstack([tasks.X, np.ones((len(tasks.y), 1))]))
    thin = TaskSet.from_tasks(
        [(sp.csr_array(np.eye(3)[:2]), [1.0, 2.0]), (sp.csr_array((1, 3)), [3.0])]
    )
    sparse = Rows.of(thin, fit_intercept=True)
    assert_array_equal(sparse.X.toarray(), [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1]])


def test_standard_deviations_beside_a_column_without_information():
    """A constant column has no variance; it leaves those of the other columns as they are, but for
    the intercept.
    """
    covariance = np.array([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 1.0]])
    plain = Scaling(np.array([2.0, 4.0, 1.0]), 3.0, np.array([5.0, 0.0, 0.0]), 1.0, True)
    expected = 3.0 * np.sqrt(
        [2.0 / 4, 3.0 / 16, np.array([-2.5, 0.0, 1.0]) @ covariance @ [-2.5, 0.0, 1.0]]
    )
    np.testing.assert_allclose(plain.raw_deviations(covariance), expected)
    more = np.full((4, 4), np.nan)
    more[np.ix_([0, 2, 3], [0, 2, 3])] = covariance
    for shift, intercept in ((7.0, np.nan), (0.0, expected[2])):
        scaling = Scaling(
            np.array([2.0, 7.0, 4.0, 1.0]), 3.0, np.array([5.0, shift, 0.0, 0.0]), 1.0, True
        )
        found = scaling.raw_deviations(more)
        np.testing.assert_allclose(found, [expected[0], np.nan, expected[1], intercept])
