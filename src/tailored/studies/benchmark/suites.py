"""Data sets of the benchmark and their splits: training tasks, and support and query rows of test tasks.

Training and validation tasks of the paper's protocol come as one set: every method uses them as it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import datasets
from ...tasks import TaskSet


@dataclass(frozen=True)
class Split:
    """One seed of a data set.

    ``target_range`` is the known scale of the targets, where there is one, for clipping.
    """

    train: TaskSet
    support: TaskSet
    query: TaskSet
    target_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Suite:
    """A data set of the benchmark: what it is, how a seed splits it, and what does not apply to it."""

    description: str
    n_train: int
    load: Callable[[int, str | None], Split]
    excludes: tuple[str, ...] = ()


def _clusters(n_clusters: int, **options: Any) -> Callable[[int, str | None], Split]:
    def load(seed: int, data: str | None) -> Split:
        """500 + 300 training and 100 test tasks, 40 rows to learn from and 40 to score."""
        tasks = datasets.make_clusters(900, n_clusters=n_clusters, n_rows=80, random_state=seed, **options)
        support, query = tasks.support_query(40, shuffle=False)
        return Split(support[:800], support[800:], query[800:])

    return load


def _lenk(seed: int, data: str | None) -> Split:
    """140 random people with all 20 rows; 30 others with 16 rows to adapt on and 4 to score."""
    bunch = datasets.fetch_lenk(add_constant=True, path=data)
    order = np.random.default_rng(seed).permutation(len(bunch.tasks))
    test = bunch.tasks[order[140:170]]
    # The file's own test rows come last for every person.
    support, query = test.support_query(16, shuffle=False)
    return Split(bunch.tasks[order[:140]], support, query, tuple(bunch.target_range))


def _ratings(
    fetch: Callable[..., Any], n_train: int, n_test: int | None, *, side_info: bool = False
) -> Callable[[int, str | None], Split]:
    def load(seed: int, data: str | None) -> Split:
        """Random users; training users with all their ratings, test users with 75 % to adapt on."""
        bunch = fetch(path=data)
        tasks: TaskSet = bunch.tasks
        if not side_info and tasks.side_info is not None:
            tasks = TaskSet.from_arrays(tasks.X, tasks.y, tasks.offsets, tasks.labels)
        order = np.random.default_rng(seed).permutation(len(tasks))
        last = len(tasks) if n_test is None else n_train + n_test
        support, query = tasks[order[n_train:last]].support_query(0.75, random_state=seed)
        return Split(tasks[order[:n_train]], support, query, tuple(bunch.target_range))

    return load


#: Reads one-hot items only.
_RATINGS_ONLY = ("item and user bias",)

#: Would pass over 4,000 tasks with 27 steps each.
_TOO_SLOW = ("unconditional", "conditional, surrogate")

#: Names on the command line.
SUITES: dict[str, Suite] = {
    "clusters-1": Suite("one cluster: conditioning must not hurt", 800, _clusters(1), _RATINGS_ONLY),
    "clusters-2": Suite("the paper's two clusters, d = 20", 800, _clusters(2), _RATINGS_ONLY),
    "clusters-6": Suite("the paper's six clusters, d = 20", 800, _clusters(6), _RATINGS_ONLY),
    "clusters-12": Suite(
        "twelve clusters of rank 3, d = 40", 800, _clusters(12, n_features=40, rank=3), _RATINGS_ONLY
    ),
    "lenk": Suite("computer survey, 140 / 30 random people", 140, _lenk, _RATINGS_ONLY),
    "movielens": Suite(
        "20 most rated movies, 300 / 100 users", 300, _ratings(datasets.fetch_movielens, 300, 100)
    ),
    "movielens-side": Suite(
        "the same with age, sex and occupation as side information",
        300,
        _ratings(datasets.fetch_movielens, 300, 100, side_info=True),
    ),
    "jester": Suite("20 most rated jokes, 350 / 100 users", 350, _ratings(datasets.fetch_jester, 350, 100)),
    "jester-4k": Suite(
        "the same with 4,000 training users, all others to test",
        4000,
        _ratings(datasets.fetch_jester, 4000, None),
        _TOO_SLOW,
    ),
}
