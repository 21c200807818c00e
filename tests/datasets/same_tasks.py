"""When two sets of tasks are the same."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tailored.tasks.task_set import TaskSet


def equal(a: TaskSet, b: TaskSet) -> bool:
    dense = [t.X.toarray() if sp.issparse(t.X) else t.X for t in (a, b)]
    return (
        np.array_equal(*dense)
        and np.array_equal(a.y, b.y)
        and np.array_equal(a.labels, b.labels)
        and np.array_equal(a.offsets, b.offsets)
        and np.array_equal(a.side_info, b.side_info)
    )
