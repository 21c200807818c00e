"""Tasks with fewer rows than columns: n × n systems say the same as d × d ones."""

from dataclasses import replace

import numpy as np
import pytest

from tailored.gaussian import Mixture, TaskStatistics
from tailored.gaussian.statistics import COMPILED_COLUMNS
from tailored.tasks import TaskSet, Units


@pytest.fixture
def wide():
    rng = np.random.default_rng(0)
    d, K = COMPILED_COLUMNS + 3, 2
    sizes = [0, 1, 7, 7, 12, 30, 12]
    tasks = TaskSet.from_tasks([(rng.normal(size=(n, d)), rng.normal(size=n)) for n in sizes])
    roots = rng.normal(size=(K, d, d)) / d
    roots[1, :, 5:] = 0.0
    covariances = roots @ roots.transpose(0, 2, 1)
    side = rng.normal(size=(len(sizes), 2))
    mixture = Mixture(
        np.array([0.3, 0.7]), rng.normal(size=(K, d)) / d, covariances, 0.7, side=rng.normal(size=(d, 2)) / d
    )
    return TaskStatistics.of(tasks, Units.raw(d), side), mixture


def test_both_ways_say_the_same(wide):
    rows, mixture = wide
    assert rows.rows is not None
    rows = rows.take(np.array([6, 0, 1, 2, 3, 4, 5]))
    squares = replace(rows, rows=None)
    for found, expected in zip(mixture.expect(rows), mixture.expect(squares), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    found, expected = rows.moments(mixture), squares.moments(mixture)
    np.testing.assert_allclose(found.responsibilities, expected.responsibilities, atol=1e-8)
    for name in ("log_evidence", "counts", "first", "second", "residual"):
        values = getattr(found.moments, name), getattr(expected.moments, name)
        # Responsibilities below 1e-6 are left out of the sums by d × d systems.
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-5, err_msg=name)
    single = Mixture(np.ones(1), mixture.means[:1], mixture.covariances[:1], 0.5)
    assert single.total_quadratic(rows) == pytest.approx(single.total_quadratic(squares), rel=1e-8)
