"""Data sets of the benchmark: what each is, how a seed splits it, and what is run on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailored import datasets

from .. import curves
from ..data import MULTILEVEL, load_jester, load_movielens, load_multilevel
from . import polls, splits
from .methods import (
    ALGORITHM_1,
    IN_ORDER,
    MEANS,
    METHODS,
    ORACLE,
    OURS,
    PER_CATEGORY,
    SPLINES,
    UNTAILORED,
)

#: Support rows of the cold-start curve, unless a data set has its own.
COLD_ROWS = (0, 1, 2, 5, 10)


@dataclass(frozen=True)
class Suite:
    """A data set of the benchmark."""

    description: str
    n_train: int  # training tasks
    load: splits.Load
    excludes: tuple[str, ...] = ()  # methods that do not apply
    also: tuple[str, ...] = ()  # methods that run only on data sets that name them
    #: Says which local files are missing from the data folder; None if there are all.
    missing: Callable[[str | None], str | None] = lambda data: None
    n_splits: int = 10  # number of seeds
    is_multilevel: bool = False  # whether it is compared with lme4
    cold_rows: tuple[int, ...] = COLD_ROWS  # small numbers of support rows
    #: New tasks per training task where the splits share tasks, for the corrected t-test; 0 where
    #: every seed draws new tasks.
    overlap: float = 0.0

    @property
    def in_time(self) -> bool:
        """Whether the first rows of a new task are given."""
        return IN_ORDER in self.also

    @property
    def recommended(self) -> str:
        """The learner that a user would take, who knows how rows come and what is measured."""
        return next((name for name in (IN_ORDER, MEANS) if name in self.also), OURS)


def seeds_of(suite: str, first: int, n_splits: int | None = None) -> range:
    """Seeds from ``first`` on, as many as asked for, or as a report takes."""
    return range(first, first + (SUITES[suite].n_splits if n_splits is None else n_splits))


#: Reads one-hot items only.
_RATINGS_ONLY = ("item and user bias",)

#: Programs that take minutes or more if there are many random slopes.
_FEW_COLUMNS = ("lme4", "MERF", "GPBoost")

_NO_RATINGS = (*_RATINGS_ONLY, *_FEW_COLUMNS)

#: Would pass over thousands of tasks with 27 steps each.
_TOO_SLOW = (UNTAILORED, ALGORITHM_1)

#: Needs a level of zero, or ratings.
_WITHOUT_LEVEL = ("mixed model", *_RATINGS_ONLY)


def _multilevel(name: str, n_train: int, n_given: int, *, in_time: bool = False) -> Suite:
    def missing(data: str | None) -> str | None:
        try:
            load_multilevel(name, data)
        except FileNotFoundError as error:
            return str(error)
        return None

    rows = f"{'first ' if in_time else ''}{n_given} support row{'s' * (n_given != 1)}"
    return Suite(
        f"{MULTILEVEL[name].about}; {rows}",
        n_train,
        splits.multilevel(name, n_given, in_time=in_time),
        (*_WITHOUT_LEVEL, *(_TOO_SLOW if n_train > 1000 else ())),
        (IN_ORDER,) if in_time else (),
        missing,
        n_splits=30,
        is_multilevel=True,
        cold_rows=(*(n for n in COLD_ROWS if n < n_given), n_given),
        overlap=max(5.0, n_train / 3.0) / n_train,  # a quarter of the groups is new, at least five
    )


def _known(
    description: str,
    n_train: int,
    load: splits.Load,
    rows: tuple[int, ...],
    only: str | None = None,
    rivals: tuple[str, ...] = (),
) -> Suite:
    """An environment with an oracle, at these numbers of rows; ``only`` names the one method to
    compare it with.
    """
    others = _NO_RATINGS if only is None else tuple(set(METHODS) - {only})
    also = (ORACLE, *rivals, *((only,) if only else ()))
    return Suite(description, n_train, load, others, also, cold_rows=rows)


def _subspaces(n_train: int, d: int, rank: int, n_rows: int, n_clusters: int = 1) -> Suite:
    """Weights in unknown subspaces, where the error of the weights is measured."""
    what = "a shared subspace" if n_clusters == 1 else f"{n_clusters} orthogonal subspaces"
    about = f"weights in {what} of rank {rank}, d = {d}, {n_train:,} tasks; {n_rows} support rows"
    return _known(
        about, n_train, splits.subspaces(n_train, d, rank, n_rows, n_clusters), (n_rows,), MEANS
    )


#: Names on the command line.
SUITES: dict[str, Suite] = {
    "clusters-1": Suite(
        "one cluster: conditioning must not hurt", 800, splits.clusters(1), _NO_RATINGS
    ),
    "clusters-2": Suite("the paper's two clusters, d = 20", 800, splits.clusters(2), _NO_RATINGS),
    "clusters-6": Suite("the paper's six clusters, d = 20", 800, splits.clusters(6), _NO_RATINGS),
    "hint": _known(
        "six clusters, d = 20, and a hint that is right 75 % of the time; 8 support rows",
        600,
        splits.with_oracle(datasets.make_clusters, 600, 40, 8, n_clusters=6, hint=0.7),
        (0, 1, 3, 8),
        rivals=(SPLINES, PER_CATEGORY),
    ),
    "hint-4": _known(
        "four clusters of rank 3, d = 12, and a hint that is right 62.5 % of the time; 6 support "
        "rows",
        300,
        splits.with_oracle(
            datasets.make_clusters, 300, 25, 6, n_clusters=4, n_features=12, rank=3, hint=0.5
        ),
        (0, 1, 3, 6),
        rivals=(SPLINES, PER_CATEGORY),
    ),
    "circle": _known(
        "weights on a circle, whose position is the side information, d = 10; 3 support rows",
        400,
        splits.with_oracle(curves.make_circle, 400, 20, 3),
        (0, 1, 3),
        rivals=(SPLINES,),
    ),
    "circle-150": _known(
        "weights on a circle, whose position is the side information, d = 6, 150 tasks of 12 rows; "
        "3 support rows",
        150,
        splits.with_oracle(curves.make_circle, 150, 12, 3, n_features=6),
        (0, 1, 3),
        rivals=(SPLINES,),
    ),
    "quadratic": _known(
        "weights on a parabola, whose position is the side information, d = 10; 3 support rows",
        400,
        splits.with_oracle(curves.make_circle, 400, 20, 3, curve="quadratic"),
        (0, 1, 3),
        rivals=(SPLINES,),
    ),
    **{
        f"circle-noise-{n}": _known(
            f"circle with {n} columns of noise in the side information, {n_train} tasks; 3 support "
            "rows",
            n_train,
            splits.with_oracle(curves.make_circle, n_train, 20, 3, n),
            (3,),
            OURS,
        )
        for n, n_train in ((3, 150), (20, 400), (50, 400))
    },
    "hint-noise-50": _known(
        "hint with 50 columns of noise in the side information; 8 support rows",
        600,
        splits.with_oracle(datasets.make_clusters, 600, 40, 8, 50, n_clusters=6, hint=0.7),
        (1, 3, 8),
        OURS,
    ),
    **{f"subspace-{n}": _subspaces(n, 100, 5, 25) for n in (100, 400, 1600, 6400)},
    "subspaces-3": _subspaces(600, 60, 3, 20, 3),
    "lenk": Suite(
        "computer survey, 140 / 30 random people", 140, splits.lenk, _NO_RATINGS, overlap=30 / 140
    ),
    "movielens": Suite(
        "20 most rated movies, 300 / 100 users",
        300,
        splits.ratings(load_movielens, 300, 100),
        _FEW_COLUMNS,
        overlap=100 / 300,
    ),
    "jester": Suite(
        "20 most rated jokes, 350 / 100 users",
        350,
        splits.ratings(load_jester, 350, 100),
        _FEW_COLUMNS,
        overlap=100 / 350,
    ),
    "sleepstudy": _multilevel("sleepstudy", 13, 4),
    "oxboys": _multilevel("oxboys", 20, 3),
    "exam": _multilevel("exam", 49, 8),
    "early": _multilevel("early", 78, 1),
    "bdf": _multilevel("bdf", 99, 6),
    "hsb82": _multilevel("hsb82", 120, 8),
    "egsingle": _multilevel("egsingle", 1291, 2),
    "polls": Suite(
        "polls of 57 states, 43 to learn from; 5 support rows",
        43,
        polls.load,
        tuple(set(METHODS) - {OURS}),
        missing=polls.missing,
        overlap=14 / 43,
    ),
    # The same in the order of time: what comes later is predicted from what came first.
    "sleepstudy-time": _multilevel("sleepstudy", 13, 4, in_time=True),
    "oxboys-time": _multilevel("oxboys", 20, 3, in_time=True),
    "early-time": _multilevel("early", 78, 1, in_time=True),
    "egsingle-time": _multilevel("egsingle", 1291, 2, in_time=True),
}
