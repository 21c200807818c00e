"""Episodes: tasks split into support rows to adapt to and query rows to predict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import RandomState, is_integer
from .task_set import Share, TaskSet, check_share, row_counts, row_ranks

#: Number of parts of a task's rows; each part is the query once, with the other parts as support.
ROTATIONS = 4
#: Minimum number of query rows of a task, if it has enough rows.
LEAST_QUERY = 5
#: Argument ``n_support`` of learners, see `SupportSampling.of`.
SupportLike = float | str | Sequence[Any] | NDArray[Any] | None
#: A number of rows for each task.
Sizes = NDArray[np.int64]


class Episodes(NamedTuple):
    """Pairs of support and query rows; ``task`` (E,) is the position of each episode's task."""

    support: TaskSet
    query: TaskSet
    task: NDArray[np.intp]


@dataclass(frozen=True)
class SupportSampling:
    """Which rows of a new task are observed before others are predicted, and how many.

    ``support`` is the range of the number of support rows (int), or of their fraction of the task's
    rows (float). By default, all rows except one of `ROTATIONS` random parts are support rows; with
    ``in_order``, the first 1/4 to 3/4 of the rows are.
    """

    support: tuple[Share, Share] | None = None
    in_order: bool = False  # whether the support rows are the first rows

    @classmethod
    def of(cls, n_support: Any = None) -> SupportSampling:
        """Check the argument ``n_support`` of a learner, and return its sampling."""
        in_order, ends = split_first(n_support)
        if not ends and (in_order or n_support is None):
            return cls(None, in_order)
        pair = ends * 2 if len(ends) == 1 else ends
        try:
            low, high = (check_share("n_support", end) for end in pair)
            if is_integer(low) != is_integer(high) or low > high:
                raise ValueError
        except (TypeError, ValueError):
            raise ValueError(
                "n_support: expected a number of rows, a fraction between 0 and 1, a pair (low, "
                "high) of numbers or of fractions, 'first', or ('first', ...) with one of these; "
                f"got {n_support!r}"
            ) from None
        return cls((low, high), in_order)

    def split(self, tasks: TaskSet, random_state: RandomState) -> tuple[TaskSet, TaskSet]:
        """Split the rows of each task into a typical number of support rows, and query rows."""
        return tasks.support_query(self.typical, random_state, shuffle=not self.in_order)

    @property
    def typical(self) -> Share:
        """The middle of the range; one half by default."""
        low, high = self.support or (0.0, 1.0)
        return (low + high) // 2 if is_integer(low) else 0.5 * (low + high)

    def rows(self, sizes: NDArray[np.int64]) -> tuple[float, float]:
        """Return the smallest and the largest number of support rows in a task of median size; the
        default range starts at 0.
        """
        size = float(np.median(sizes)) if len(sizes) else 0.0
        if self.support is None:
            return 0.0, size * (1.0 - 1.0 / ROTATIONS)
        low, high = (float(end) if is_integer(end) else size * end for end in self.support)
        return low, high

    def episodes(self, tasks: TaskSet, seed: list[int], n_repeats: int = 1) -> Episodes:
        """Return episodes of every task with rows; random support rows are drawn ``n_repeats``
        times, first rows once.
        """
        tasks = tasks.single_rows()
        if self.support is None and not self.in_order:
            return rotate(tasks, seed, n_repeats)
        ends = self.support or (1.0 / ROTATIONS, 1.0 - 1.0 / ROTATIONS)
        low, high = (row_counts(end, tasks.sizes) for end in ends)
        steps = np.linspace(0.0, 1.0, ROTATIONS)[:, None]
        n_support = np.rint(low + steps * (np.maximum(high, low) - low)).astype(np.int64)
        rng = None if self.in_order else np.random.default_rng(seed)
        if self.in_order:  # repeats would have the same rows
            n_support, n_repeats = np.unique(n_support, axis=0), 1
        return _join([_draw(tasks, each, rng) for _ in range(n_repeats) for each in n_support])

    def draw(self, tasks: TaskSet, n_support: int, seed: list[int], n_repeats: int) -> Episodes:
        """Draw `n_support` support rows of every task (at most all but one); all other rows are
        query rows.

        Rows with frequencies must first be repeated by `single_rows`.
        """
        counts = row_counts(n_support, tasks.sizes)
        rng = None if self.in_order else np.random.default_rng(seed)
        return _join([_draw(tasks, counts, rng, tasks.sizes) for _ in range(n_repeats)])


def split_first(n_support: Any) -> tuple[bool, list[Any]]:
    """Return whether ``n_support`` names the first rows, and its numbers of rows.

    ``"first"`` has no numbers; ``("first", 1, 5)`` is True and [1, 5].
    """
    if n_support is None:
        return False, []
    is_single = isinstance(n_support, str) or not np.iterable(n_support)
    numbers = [n_support] if is_single else list(n_support)
    in_order = numbers[:1] == ["first"]
    return in_order, numbers[in_order:]


def rotate(tasks: TaskSet, seed: list[int], n_repeats: int = 1) -> Episodes:
    """Divide the rows of every task into `ROTATIONS` random parts, ``n_repeats`` times; each part
    is the query of one episode.

    A task with fewer rows than parts gives an episode per row. A task with one row gives an episode
    without support.
    """
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(n_repeats):
        rank = row_ranks(tasks, rng.random(len(tasks.y)))
        for turn in range(ROTATIONS):
            query = rank % ROTATIONS == turn
            episodes.append(_episodes(tasks, ~query, query))
    return _join(episodes)


def split_rows(
    tasks: TaskSet, positions: Iterable[int], support: float, key: Sequence[int]
) -> tuple[TaskSet, TaskSet]:
    """Split each task into support and query rows; the draw depends on `key`, the task's size and
    its position in the stream.

    The draw does not depend on the call that passes the task, so a stream can be split into calls
    anywhere.
    """
    mask, sizes = np.zeros(len(tasks.y), dtype=bool), np.zeros_like(tasks.sizes)
    for t, position in enumerate(positions):
        n = int(tasks.sizes[t])
        sizes[t] = min(max(int(support * n + 0.5), 1), n - 1) if n > 1 else 0
        chosen = np.random.default_rng([*key, position]).permutation(n)[: sizes[t]]
        mask[tasks.offsets[t] + chosen] = True
    return tasks.with_rows(mask, sizes), tasks.with_rows(~mask, tasks.sizes - sizes)


def _draw(
    tasks: TaskSet, n_support: Sizes, rng: np.random.Generator | None, n_query: Sizes | None = None
) -> Episodes:
    """Return episodes with random support rows, or with the first rows if there is no ``rng``.

    By default, all rows after the first ones are query rows, but only a part of the random ones.
    """
    rank = row_ranks(tasks, None if rng is None else rng.random(len(tasks.y)))
    task = tasks.task_of_row
    if n_query is None:
        n_query = tasks.sizes if rng is None else np.maximum(tasks.sizes // ROTATIONS, LEAST_QUERY)
    end = (n_support + n_query)[task]
    return _episodes(tasks, rank < n_support[task], (rank >= n_support[task]) & (rank < end))


def _episodes(tasks: TaskSet, support: NDArray[np.bool_], query: NDArray[np.bool_]) -> Episodes:
    """Return an episode of every task that has query rows."""
    task = tasks.task_of_row
    sizes = [np.bincount(task[rows], minlength=len(tasks)) for rows in (support, query)]
    used = np.flatnonzero(sizes[1])
    return Episodes(
        tasks.with_rows(support, sizes[0])[used], tasks.with_rows(query, sizes[1])[used], used
    )


def _join(episodes: list[Episodes]) -> Episodes:
    supports, queries, task = zip(*episodes, strict=True)
    support, query = (TaskSet.concat(sets, relabel=True) for sets in (supports, queries))
    return Episodes(support, query, np.concatenate(task))
