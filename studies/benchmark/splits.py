"""One seed of a data set: training tasks, and support and query rows of new tasks; and how each
kind is drawn.

Training and validation tasks of the paper's protocol come as one set: every method uses them as it
likes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored import datasets
from tailored.tasks.task_set import TaskSet

from ..data import Ratings, load_lenk, load_multilevel
from ..theory.bayes import BayesOracle, ClusterOracle, CurveOracle, SubspaceOracle


@dataclass(frozen=True)
class Split:
    """One seed of a data set."""

    train: TaskSet
    support: TaskSet
    query: TaskSet
    #: The known scale of the targets, for clipping.
    target_range: tuple[float, float] | None = None
    #: The new tasks with all rows, if intervals are also judged with more rows than those of
    #: ``support``.
    new: TaskSet | None = None
    #: Arguments of the learner that say how rows of new tasks arrive, if they do not arrive at
    #: random.
    arrival: Mapping[str, Any] = field(default_factory=dict)
    oracle: BayesOracle | None = None
    #: The true weights (T, d) of the new tasks, where the error of weights is measured.
    weights: NDArray[np.float64] | None = None

    @property
    def in_order(self) -> bool:
        """Whether the first rows are given, and not random ones."""
        return bool(self.arrival)

    def given(self, n_rows: int | None, seed: int) -> TaskSet:
        """The support with at most ``n_rows`` rows of each task; more rows contain fewer rows."""
        if n_rows is None:
            return self.support
        tasks = self.support
        task = np.repeat(np.arange(len(tasks)), tasks.sizes)
        place = np.arange(len(task)) - tasks.offsets[task]
        if not self.in_order:
            order = np.lexsort((np.random.default_rng([seed, 1]).random(len(task)), task))
            place[order] = np.arange(len(task)) - tasks.offsets[task]
        return tasks.with_rows(place < n_rows, np.minimum(tasks.sizes, n_rows))

    def with_exactly(self, n_rows: int, seed: int) -> tuple[TaskSet, TaskSet]:
        """Support of ``n_rows`` rows and query, of those new tasks that have the rows; there may be
        none.
        """
        if self.new is None or n_rows <= self.support.sizes.min():
            enough = np.flatnonzero(self.support.sizes >= n_rows)
            return self.given(n_rows, seed)[enough], self.query[enough]
        whole = self.new[np.flatnonzero(self.new.sizes > n_rows)]
        return whole.support_query(n_rows, random_state=seed, shuffle=not self.in_order)


#: How a seed is drawn, given the folder of the data.
Load = Callable[[int, str | None], Split]


def clusters(n_clusters: int, **options: Any) -> Load:
    """500 + 300 training and 100 test tasks, 40 rows to learn from and 40 to score."""

    def load(seed: int, data: str | None) -> Split:
        tasks = datasets.make_clusters(
            900, n_clusters=n_clusters, n_rows=80, random_state=seed, **options
        )
        support, query = tasks.support_query(40, shuffle=False)
        return Split(support[:800], support[800:], query[800:])

    return load


#: New tasks of an environment with an oracle: enough that seeds, not they, are what a standard
#: error is made of.
N_NEW = 400


def with_oracle(
    make: Callable[..., Any],
    n_train: int,
    n_rows: int,
    n_given: int,
    n_noise: int = 0,
    **options: Any,
) -> Load:
    """Tasks of `make_clusters` with a hint or of `make_circle`, with ``n_rows`` rows, of which new
    tasks give ``n_given``.

    ``n_noise`` standard normal columns are appended to the side information.
    """

    def load(seed: int, data: str | None) -> Split:
        tasks, truth = make(
            n_train + N_NEW, n_rows=n_rows, random_state=seed, return_truth=True, **options
        )
        oracle: BayesOracle
        if isinstance(truth, datasets.ClusterTruth):
            oracle = ClusterOracle(truth.bases, truth.noise, truth.hint)
        else:
            oracle = CurveOracle(truth.mean, truth.spread, truth.noise)
        if n_noise:
            noise = np.random.default_rng([seed, 2]).standard_normal((len(tasks), n_noise))
            tasks = tasks.replace(
                side_info=np.hstack([np.asarray(tasks.side_info), noise]),
                side_names=None,
                encoding=None,
            )
        new = tasks[n_train:]
        support, query = new.support_query(n_given, shuffle=False)
        return Split(tasks[:n_train], support, query, new=new, oracle=oracle)

    return load


def subspaces(n_train: int, d: int, rank: int, n_rows: int, n_clusters: int = 1) -> Load:
    """Tasks with w = P u, u ~ N(0, I / rank) and one of orthogonal bases P; inputs and noise are
    standard normal.

    One cluster is the shared subspace of Tripuraneni, Jin and Jordan.  New tasks have ten query
    rows more.
    """

    def load(seed: int, data: str | None) -> Split:
        rng = np.random.default_rng(seed)
        frame = np.linalg.qr(rng.standard_normal((d, n_clusters * rank)))[0]
        bases = frame.T.reshape(n_clusters, rank, d).transpose(0, 2, 1)
        n_tasks, n_all = n_train + N_NEW, n_rows + 10
        own = bases[rng.integers(n_clusters, size=n_tasks)]
        weights = np.einsum("tdr,tr->td", own, rng.standard_normal((n_tasks, rank)) / np.sqrt(rank))
        X = rng.standard_normal((n_tasks, n_all, d))
        y = np.einsum("tnd,td->tn", X, weights) + rng.standard_normal((n_tasks, n_all))
        tasks = TaskSet(X.reshape(-1, d), y.ravel(), np.repeat(np.arange(n_tasks), n_all))
        support, query = tasks.support_query(n_rows, shuffle=False)
        oracle = SubspaceOracle(bases, 1.0)
        return Split(
            support[:n_train],
            support[n_train:],
            query[n_train:],
            oracle=oracle,
            weights=weights[n_train:],
        )

    return load


def lenk(seed: int, data: str | None) -> Split:
    """140 random people with all 20 rows; 30 others with 16 rows to adapt on and 4 to score."""
    survey = load_lenk(data)
    tasks = survey.tasks.replace(X=np.column_stack([survey.tasks.X, np.ones(len(survey.tasks.y))]))
    order = np.random.default_rng(seed).permutation(len(tasks))
    test = tasks[order[140:170]]
    # The file's own test rows come last for every person.
    support, query = test.support_query(16, shuffle=False)
    return Split(tasks[order[:140]], support, query, survey.target_range)


def ratings(read: Callable[..., Ratings], n_train: int, n_test: int) -> Load:
    """Random users; training users with all their ratings, test users with 75 % to adapt on."""

    def load(seed: int, data: str | None) -> Split:
        tasks, _, target_range = read(data)
        if tasks.side_info is not None:
            tasks = tasks.replace(
                side_info=None, side_names=None, feature_names=None, encoding=None
            )
        order = np.random.default_rng(seed).permutation(len(tasks))
        new = tasks[order[n_train : n_train + n_test]]
        support, query = new.support_query(0.75, random_state=seed)
        return Split(tasks[order[:n_train]], support, query, target_range, new)

    return load


def multilevel(name: str, n_given: int, *, in_time: bool) -> Load:
    """A quarter of the groups, at least five, is new; of each some rows are given, random or the
    first ones.
    """

    def load(seed: int, data: str | None) -> Split:
        read = load_multilevel(name, data)
        # Rows are handed over as plain arrays here; a model that knows names would miss them, row
        # after row.
        tasks = read.replace(feature_names=None, encoding=None)
        order = np.random.default_rng(seed).permutation(len(tasks))
        n_new = max(5, len(tasks) // 4)
        new = tasks[order[:n_new]]
        support, query = new.support_query(n_given, random_state=seed, shuffle=not in_time)
        arrival = {"n_support": ("first", n_given)} if in_time else {}
        return Split(tasks[order[n_new:]], support, query, new=new, arrival=arrival)

    return load
