"""Fixtures of these tests."""

import numpy as np
import pytest

from tailored.tasks.task_set import TaskSet


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def tasks(rng):
    """Five tasks of 3, 1, 4, 2 and 6 rows with shuffled rows, string labels and two side
    columns.
    """
    groups = rng.permutation(np.repeat(["e", "a", "d", "b", "c"], [3, 1, 4, 2, 6]))
    side = {label: [float(i), -float(i)] for i, label in enumerate("abcde")}
    return TaskSet(rng.normal(size=(16, 3)), rng.normal(size=16), groups, side)
