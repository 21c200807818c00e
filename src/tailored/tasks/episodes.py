"""Episodes: tasks seen as they will be used, some rows to adapt on and some to predict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._task_set import TaskSet
from .rows import segment_sums

#: Every row is a query row once; its task is then adapted on the other three quarters.
ROTATIONS = 4
#: Query rows that a task with few rows is asked for, when few rows are given.
LEAST_QUERY = 5


class Episodes(NamedTuple):
    """Pairs of support and query rows; a task appears once for every time it is asked about.

    ``task`` are the positions of the episodes' tasks.
    """

    support: TaskSet
    query: TaskSet
    task: NDArray[np.intp]


def rotate(tasks: TaskSet, seed: list[int], n_repeats: int = 1) -> Episodes:
    """Cut the rows of every task into `ROTATIONS` parts and ask for each given the others.

    A task with fewer rows gives an episode per row; with one row, it is asked for given nothing.
    """
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(n_repeats):
        place = _shuffled(tasks, rng)
        for turn in range(ROTATIONS):
            query = place % ROTATIONS == turn
            pairs.append(_pick(tasks, ~query, query))
    return _gather(tasks, pairs)


def draw(tasks: TaskSet, n_support: int, seed: list[int], n_repeats: int = 2) -> Episodes:
    """Give ``n_support`` rows of every task (all but one, if it has no more) and ask for some others.

    As many rows are asked for as `rotate` would ask, and at least `LEAST_QUERY` where there are so many.
    """
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    n_given = np.minimum(n_support, np.maximum(tasks.sizes - 1, 0))[task]
    n_query = np.maximum(tasks.sizes // ROTATIONS, LEAST_QUERY)[task]
    pairs = []
    for _ in range(n_repeats):
        place = _shuffled(tasks, rng)
        pairs.append(_pick(tasks, place < n_given, (place >= n_given) & (place < n_given + n_query)))
    return _gather(tasks, pairs)


def split_rows(
    tasks: TaskSet, positions: Iterable[int], support: float, key: Sequence[int]
) -> tuple[TaskSet, TaskSet]:
    """Support and query rows of each task, drawn from ``key`` and its position in the stream alone.

    The draw of a task does not depend on which call brought it, so that a stream can be cut anywhere.
    """
    mask = np.zeros(len(tasks.y), dtype=bool)
    for start, n, position in zip(tasks.offsets[:-1], tasks.sizes, positions, strict=True):
        n_support = min(max(int(support * n + 0.5), 1), n - 1) if n > 1 else 0
        chosen = np.random.default_rng([*key, position]).permutation(n)[:n_support]
        mask[start + chosen] = True
    sizes = segment_sums(mask.astype(float), tasks.offsets).astype(np.int64)
    return tasks.with_rows(mask, sizes), tasks.with_rows(~mask, tasks.sizes - sizes)


def _shuffled(tasks: TaskSet, rng: np.random.Generator) -> NDArray[np.int64]:
    """The place of every row in a random order of its task's rows."""
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    place = np.empty(len(task), dtype=np.int64)
    place[np.lexsort((rng.random(len(task)), task))] = np.arange(len(task)) - tasks.offsets[task]
    return place


def _pick(tasks: TaskSet, support: NDArray[np.bool_], query: NDArray[np.bool_]) -> Episodes:
    """An episode of every task that has query rows."""
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    sizes = [np.bincount(task[rows], minlength=len(tasks)) for rows in (support, query)]
    used = np.flatnonzero(sizes[1])
    return Episodes(tasks.with_rows(support, sizes[0])[used], tasks.with_rows(query, sizes[1])[used], used)


def _gather(tasks: TaskSet, pairs: list[Episodes]) -> Episodes:
    filled = [pair for pair in pairs if len(pair.query)]
    if not filled:
        # Nothing but tasks without rows: episodes that ask for nothing.
        return Episodes(tasks, tasks, np.arange(len(tasks)))
    support, query, task = zip(*filled, strict=True)
    return Episodes(
        TaskSet.concat(support, relabel=True), TaskSet.concat(query, relabel=True), np.concatenate(task)
    )
