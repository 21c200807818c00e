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
from .methods import WITH_INTERCEPT


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
    """A data set of the benchmark: what it is, how a seed splits it, and what does not apply to it.

    ``missing`` says in words which local files are not there, given the data folder, or None; ``n_splits`` is how
    many seeds a report takes; ``is_multilevel``: one of those that lme4 is compared on.
    """

    description: str
    n_train: int
    load: Callable[[int, str | None], Split]
    excludes: tuple[str, ...] = ()
    missing: Callable[[str | None], str | None] = lambda data: None
    n_splits: int = 10
    is_multilevel: bool = False


def seeds_of(suite: str, first: int, n_splits: int | None = None) -> range:
    """Seeds from ``first`` on, as many as asked for, or as a report takes."""
    return range(first, first + (SUITES[suite].n_splits if n_splits is None else n_splits))


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


def _multilevel(
    name: str, n_train: int, n_given: int, *, in_time: bool = False, excludes: tuple[str, ...] = ()
) -> Suite:
    """A quarter of the groups, at least five, is new; of each some rows are given, random or the first ones."""

    def load(seed: int, data: str | None) -> Split:
        read: TaskSet = datasets.load_multilevel(name, path=data).tasks
        # Rows are handed over as plain arrays here; a model that knows names would miss them, row after row.
        tasks = TaskSet.from_arrays(
            read.X, read.y, read.offsets, read.labels, read.side_info, read.side_names
        )
        order = np.random.default_rng(seed).permutation(len(tasks))
        n_new = max(5, len(tasks) // 4)
        new = tasks[order[:n_new]]
        support, query = new.support_query(n_given, random_state=seed, shuffle=not in_time)
        return Split(tasks[order[n_new:]], support, query)

    def missing(data: str | None) -> str | None:
        try:
            datasets.load_multilevel(name, path=data)
        except FileNotFoundError as error:
            return str(error)
        return None

    rows = f"{'first ' if in_time else ''}{n_given} row{'s' * (n_given != 1)} given"
    about = f"{datasets.MULTILEVEL[name].about}; {rows}"
    return Suite(about, n_train, load, (*_WITHOUT_LEVEL, *excludes), missing, n_splits=30, is_multilevel=True)


#: Reads one-hot items only.
_RATINGS_ONLY = ("item and user bias",)

#: Programs that take minutes and more where random slopes are many, and what adds nothing there.
_FEW_COLUMNS = ("lme4", "statsmodels", "MERF", WITH_INTERCEPT)

_NO_RATINGS = (*_RATINGS_ONLY, *_FEW_COLUMNS)

#: Would pass over 4,000 tasks with 27 steps each.
_TOO_SLOW = ("unconditional", "conditional, surrogate")

#: Needs a level of zero, or ratings.
_WITHOUT_LEVEL = ("mixed model", *_RATINGS_ONLY)

#: Names on the command line.
SUITES: dict[str, Suite] = {
    "clusters-1": Suite("one cluster: conditioning must not hurt", 800, _clusters(1), _NO_RATINGS),
    "clusters-2": Suite("the paper's two clusters, d = 20", 800, _clusters(2), _NO_RATINGS),
    "clusters-6": Suite("the paper's six clusters, d = 20", 800, _clusters(6), _NO_RATINGS),
    "clusters-12": Suite(
        "twelve clusters of rank 3, d = 40", 800, _clusters(12, n_features=40, rank=3), _NO_RATINGS
    ),
    "lenk": Suite("computer survey, 140 / 30 random people", 140, _lenk, _NO_RATINGS),
    "movielens": Suite(
        "20 most rated movies, 300 / 100 users",
        300,
        _ratings(datasets.fetch_movielens, 300, 100),
        _FEW_COLUMNS,
    ),
    "movielens-side": Suite(
        "the same with age, sex and occupation as side information",
        300,
        _ratings(datasets.fetch_movielens, 300, 100, side_info=True),
        _FEW_COLUMNS,
    ),
    "jester": Suite(
        "20 most rated jokes, 350 / 100 users",
        350,
        _ratings(datasets.fetch_jester, 350, 100),
        _FEW_COLUMNS,
    ),
    "jester-4k": Suite(
        "the same with 4,000 training users, all others to test",
        4000,
        _ratings(datasets.fetch_jester, 4000, None),
        (*_TOO_SLOW, *_FEW_COLUMNS),
    ),
    "sleepstudy": _multilevel("sleepstudy", 13, 4),
    "oxboys": _multilevel("oxboys", 20, 3),
    "exam": _multilevel("exam", 49, 8),
    "early": _multilevel("early", 78, 1),
    "bdf": _multilevel("bdf", 99, 6),
    "hsb82": _multilevel("hsb82", 120, 8),
    "egsingle": _multilevel("egsingle", 1291, 2, excludes=_TOO_SLOW),
    # The same in the order of time: what comes later is predicted from what came first.
    "sleepstudy-time": _multilevel("sleepstudy", 13, 4, in_time=True),
    "oxboys-time": _multilevel("oxboys", 20, 3, in_time=True),
    "early-time": _multilevel("early", 78, 1, in_time=True),
    "egsingle-time": _multilevel("egsingle", 1291, 2, in_time=True, excludes=_TOO_SLOW),
}
