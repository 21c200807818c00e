"""Rows as numerical code sees them."""

import numpy as np
from numpy.testing import assert_array_equal

from tailored.tasks.rows import Scaling, mean_error, task_means


def test_task_means_and_mean_error(rng):
    offsets = np.array([0, 3, 3, 4])
    losses = np.array([1.0, 2.0, 6.0, 5.0])
    assert_array_equal(task_means(losses, offsets), [3.0, np.nan, 5.0])
    assert mean_error(losses, offsets) == 4.0
    assert mean_error(np.zeros(0), np.array([0, 0])) == np.inf
    assert mean_error(np.array([1.0, np.nan]), np.array([0, 1, 2])) == np.inf
    assert mean_error(np.array([1.0, -np.inf]), np.array([0, 1, 2])) == np.inf


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
