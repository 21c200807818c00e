"""Episodes: which rows of a task are given and which are asked."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tailored.tasks.episodes import split_rows
from tailored.tasks.task_set import TaskSet


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
