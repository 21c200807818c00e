"""Episodes: tasks seen as they will be used, some rows to adapt on and some to predict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._task_set import TaskSet

#: Every row is a query row once; its task is then adapted on the other three quarters.
ROTATIONS = 4
#: Query rows that a task with few rows is asked for, when few rows are given.
LEAST_QUERY = 5


class Episodes(NamedTuple):
    """Pairs of support and query rows; a task appears once for every time it is asked about."""

    support: TaskSet
    query: TaskSet


def rotate(tasks: TaskSet, seed: list[int], n_repeats: int = 1) -> Episodes:
    """Cut the rows of every task into `ROTATIONS` parts and ask for each given the others.

    A task with fewer rows gives an episode per row; with one row, it is asked for given nothing.
    """
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(n_repeats):
        place = _shuffled(tasks, rng)
        for turn in range(ROTATIONS):
            asked = place % ROTATIONS == turn
            pairs.append(_pick(tasks, ~asked, asked))
    return _gather(tasks, pairs)


def draw(tasks: TaskSet, n_support: int, seed: list[int], n_repeats: int = 2) -> Episodes:
    """Give ``n_support`` rows of every task (all but one, if it has no more) and ask for some others.

    As many rows are asked for as `rotate` would ask, and at least `LEAST_QUERY` where there are so many.
    """
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    given = np.minimum(n_support, np.maximum(tasks.sizes - 1, 0))[task]
    asked = np.maximum(tasks.sizes // ROTATIONS, LEAST_QUERY)[task]
    pairs = []
    for _ in range(n_repeats):
        place = _shuffled(tasks, rng)
        pairs.append(_pick(tasks, place < given, (place >= given) & (place < given + asked)))
    return _gather(tasks, pairs)


def _shuffled(tasks: TaskSet, rng: np.random.Generator) -> NDArray[np.int64]:
    """The place of every row in a random order of its task's rows."""
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    place = np.empty(len(task), dtype=np.int64)
    place[np.lexsort((rng.random(len(task)), task))] = np.arange(len(task)) - tasks.offsets[task]
    return place


def _pick(tasks: TaskSet, given: NDArray[np.bool_], asked: NDArray[np.bool_]) -> Episodes:
    """An episode of every task of which something is asked."""
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    sizes = [np.bincount(task[rows], minlength=len(tasks)) for rows in (given, asked)]
    used = np.flatnonzero(sizes[1])
    return Episodes(tasks.with_rows(given, sizes[0])[used], tasks.with_rows(asked, sizes[1])[used])


def _gather(tasks: TaskSet, pairs: list[Episodes]) -> Episodes:
    filled = [pair for pair in pairs if len(pair.query)]
    if not filled:
        # Nothing but tasks without rows: episodes that ask for nothing.
        return Episodes(tasks, tasks)
    support, query = zip(*filled, strict=True)
    return Episodes(TaskSet.concat(support, relabel=True), TaskSet.concat(query, relabel=True))
