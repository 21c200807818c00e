"""Episodes: tasks seen as they will be used, some rows to adapt on and some to predict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import check_choice, is_integer
from ._splitting import Share, check_share, row_counts
from ._task_set import TaskSet
from .rows import segment_sums

#: Every row is a query row once; its task is then adapted on the other three quarters.
ROTATIONS = 4
#: Query rows that a task with few rows is asked for, when few rows are given.
LEAST_QUERY = 5


#: Orders in which the rows of a new task may come.
ORDERS = ("random", "given")


class Episodes(NamedTuple):
    """Pairs of support and query rows; a task appears once for every time it is asked about.

    ``task`` are the positions of the episodes' tasks.
    """

    support: TaskSet
    query: TaskSet
    task: NDArray[np.intp]


@dataclass(frozen=True)
class Arrival:
    """How the rows of a new task come: so many are given before others are asked for, in one order or another.

    Attributes
    ----------
    support : (low, high) or None
        The least and the most that is given: numbers of rows (int) or fractions of a task's rows (float).  None
        leaves it open: then all but one part in `ROTATIONS` is given in random order, and anything from a quarter
        to three quarters where rows come in the order given.
    in_order : bool
        Whether the first rows are given and later ones asked for; random rows otherwise.
    """

    support: tuple[Share, Share] | None = None
    in_order: bool = False

    @classmethod
    def of(cls, support: Any = None, order: str = "random") -> Arrival:
        """The arguments ``support`` and ``order`` of a learner, checked."""
        in_order = check_choice("order", order, ORDERS) == "given"
        if support is None or (isinstance(support, str) and support == "auto"):
            return cls(None, in_order)
        if isinstance(support, str) or np.ndim(support) > 1:
            raise ValueError(
                f"support: expected a number or fraction of rows, or a pair of these; got {support!r}"
            )
        ends = list(support) if np.ndim(support) else [support, support]
        if len(ends) != 2:
            raise ValueError(f"support: a range is a pair (low, high), got {support!r}")
        low, high = (check_share("support", end) for end in ends)
        if type(low) is type(high) and low > high:
            raise ValueError(f"support: the range {support!r} ends before it begins; give (low, high)")
        return cls((low, high), in_order)

    @property
    def typical(self) -> Share:
        """One number or fraction of rows in the middle of the range; one half where nothing is said."""
        if self.support is None:
            return 0.5
        low, high = self.support
        if is_integer(low) and is_integer(high):
            return (int(low) + int(high)) // 2
        return 0.5 if is_integer(low) or is_integer(high) else 0.5 * (low + high)

    def rows(self, sizes: NDArray[np.int64]) -> tuple[float, float]:
        """The least and the most rows that are given, in a task of median size."""
        size = float(np.median(sizes)) if len(sizes) else 0.0
        if self.support is None:
            return 0.0, size * (1.0 - 1.0 / ROTATIONS)
        low, high = (float(end) if is_integer(end) else size * end for end in self.support)
        return low, max(low, high)

    def episodes(self, tasks: TaskSet, seed: list[int], n_repeats: int = 1) -> Episodes:
        """Every task as it will come, about as many rows asked for as there are, once for each repeat."""
        if self.support is None and not self.in_order:
            return rotate(tasks, seed, n_repeats)
        ends = self.support or (1.0 / ROTATIONS, 1.0 - 1.0 / ROTATIONS)
        low, high = (row_counts(end, tasks.sizes) for end in ends)
        steps = np.linspace(0.0, 1.0, ROTATIONS)[:, None]
        given = np.rint(low + steps * (np.maximum(high, low) - low)).astype(np.int64)
        if self.in_order:
            # The same rows again would say nothing new.
            return _gather(tasks, [_cut(tasks, each) for each in np.unique(given, axis=0)])
        rng = np.random.default_rng(seed)
        return _gather(tasks, [_drawn(tasks, each, rng) for _ in range(n_repeats) for each in given])

    def draw(self, tasks: TaskSet, n_support: int, seed: list[int], n_repeats: int = 2) -> Episodes:
        """Every task with ``n_support`` rows given; see `draw`.  All later rows are asked for where order matters."""
        if not self.in_order:
            return draw(tasks, n_support, seed, n_repeats)
        return self.ask_all(tasks, n_support, seed)

    def ask_all(self, tasks: TaskSet, n_support: int, seed: list[int], n_repeats: int = 1) -> Episodes:
        """Every task with ``n_support`` rows given (all but one, if it has no more), asked for all others."""
        given = row_counts(n_support, tasks.sizes)
        if self.in_order:
            return _gather(tasks, [_cut(tasks, given)])
        rng = np.random.default_rng(seed)
        task = np.repeat(np.arange(len(tasks)), tasks.sizes)
        places = (_shuffled(tasks, rng) for _ in range(n_repeats))
        return _gather(tasks, [_pick(tasks, p < given[task], p >= given[task]) for p in places])


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
    given = row_counts(n_support, tasks.sizes)
    return _gather(tasks, [_drawn(tasks, given, rng) for _ in range(n_repeats)])


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


def _drawn(tasks: TaskSet, given: NDArray[np.int64], rng: np.random.Generator) -> Episodes:
    """``given[t]`` random rows of each task, and as many others as `draw` says."""
    place, task = _shuffled(tasks, rng), np.repeat(np.arange(len(tasks)), tasks.sizes)
    asked = np.maximum(tasks.sizes // ROTATIONS, LEAST_QUERY)
    return _pick(tasks, place < given[task], (place >= given[task]) & (place < (given + asked)[task]))


def _cut(tasks: TaskSet, given: NDArray[np.int64]) -> Episodes:
    """The first ``given[t]`` rows of each task, and all later ones."""
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    first = np.arange(len(task)) - tasks.offsets[task] < given[task]
    return _pick(tasks, first, ~first)


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
