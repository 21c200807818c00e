"""Streams of tasks for the tests of Algorithm 1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import reference as ref
from tailored import losses
from tailored.paper.algorithm_1 import run
from tailored.tasks.rows import Rows

_PARAMETERS = {"pinball": 0.3, "huber": 0.6}
_LIBRARY = {
    name: kind(*([_PARAMETERS[name]] if name in _PARAMETERS else []))
    for name, kind in losses.LOSSES.items()
}
#: The library's loss, the reference's, and L (stated for the squared loss, which has none of its
#: own).
CASES = {
    name: (loss, ref.like(loss), 1.3 if name == "squared" else loss.lipschitz)
    for name, loss in _LIBRARY.items()
}
#: Fewer, for tests of whole runs.
LOSSES = {name: CASES[name] for name in ("absolute", "pinball", "huber", "squared", "hinge")}


#: A run that diverges may warn first; these tests check that its failure is recorded.
diverges = pytest.mark.filterwarnings(
    f"ignore::{ConvergenceWarning.__module__}.{ConvergenceWarning.__name__}"
)


def random_stream(rng, T, d, k, labels=False):
    """Tasks (X, y) of 2 to 9 rows, their features, and the same as one batch."""
    tasks = []
    for _ in range(T):
        n = int(rng.integers(2, 10))
        X = rng.normal(size=(n, d)) / np.sqrt(d)
        y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=n)
        tasks.append((X, np.where(y > 0, 1.0, -1.0) if labels else y))
    phis = rng.normal(size=(T, k)) / np.sqrt(k)
    return tasks, phis, batch_of(tasks, phis)


def rows_of(tasks):
    offsets = np.concatenate([[0], np.cumsum([len(y) for _, y in tasks])]).astype(np.int64)
    return Rows(
        np.concatenate([X for X, _ in tasks]), np.concatenate([y for _, y in tasks]), offsets
    )


class Batch(NamedTuple):
    """Arguments of `run`: tasks, their features, and factors of their steps of H."""

    rows: Rows
    phis: np.ndarray
    factors: np.ndarray


def batch_of(tasks, phis, factors=None):
    return Batch(rows_of(tasks), phis, np.ones(len(phis)) if factors is None else factors)


def part(batch, begin, end):
    """Tasks begin .. end - 1 of a batch."""
    return Batch(batch.rows.tasks(begin, end), *(values[begin:end] for values in batch[1:]))


def advance(trajectory, batch, surrogate):
    run([trajectory], *batch, surrogate)
    return trajectory


def close(actual, expected, tol=1e-8):
    assert np.shape(actual) == np.shape(expected)
    assert np.abs(actual - expected).max(initial=0.0) <= tol * max(
        1.0, np.abs(expected).max(initial=0.0)
    )


def same(first, second):
    """Bit for bit: two trajectories with the same steps, iterates and averages."""
    assert (first.mean.count, first.failure) == (second.mean.count, second.failure)
    for one, two in zip(arrays_of(first), arrays_of(second), strict=True):
        np.testing.assert_array_equal(one, two)


def arrays_of(trajectory):
    """What a run has learned; one that failed has no average."""
    average = None if trajectory.failure else trajectory.average()
    arrays = [trajectory.C, trajectory.H.E, np.tril(trajectory.H.P)]
    return arrays if average is None else [*arrays, average.C, average.root]
