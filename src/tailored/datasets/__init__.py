"""Data to play with: pupils of many schools, and clusters of tasks as in the paper."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from .._utils.validation import (
    RandomState,
    check_int,
    check_nonnegative,
    check_real,
    is_integer,
)
from ..tasks.task_set import TaskSet

__all__ = ["load_schools", "make_clusters"]


def load_schools() -> tuple[Any, Any]:
    """Load 1,363 pupils of 120 schools, simulated once for this library, as two pandas data frames.

    Returns
    -------
    pupils : DataFrame
        One row per pupil, 8 to 15 for each school: "school", "hours" of study per week, "track"
        ("advanced" or "basic"), "repeats" (whether the pupil repeats the year), "tested" (a date)
        and "score".
    schools : DataFrame
        One row per school: "school", "kind" ("church", "private" or "state") and "rural".

    Examples
    --------
    >>> from tailored.datasets import load_schools
    >>> pupils, schools = load_schools()
    >>> len(pupils), len(schools)
    (1363, 120)
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("load_schools: pandas is not installed; pip install pandas") from error
    folder = resources.files(__package__)
    with (folder / "pupils.csv").open() as pupils, (folder / "schools.csv").open() as schools:
        return pd.read_csv(pupils, parse_dates=["tested"]), pd.read_csv(schools)


@dataclass(frozen=True)
class ClusterTruth:
    """The hidden parameters of `make_clusters`."""

    weights: np.ndarray  # (T, d) weight vector of each task, of unit norm
    clusters: np.ndarray  # (T,) cluster of each task, 0 to m - 1
    #: (m, d, r) orthonormal basis of each cluster's subspace; the subspaces are orthogonal
    bases: np.ndarray
    noise: float  # standard deviation of the noise on `y`
    hint: float | None  # probability that the side information is set to the task's own cluster
    hints: np.ndarray | None  # (T,) cluster that the side information of each task indicates


def make_clusters(
    n_tasks: int = 900,
    *,
    n_clusters: int = 2,
    n_rows: int | tuple[int, int] = 80,
    n_features: int = 20,
    rank: int | None = None,
    noise: float = 0.1,
    hint: float | None = None,
    random_state: RandomState = None,
    return_truth: bool = False,
) -> Any:
    """Draw regression tasks from a uniform mixture of clusters (the paper's Example "Clusters").

    A task of cluster j has the weight vector ``w = P_j u`` with a random unit vector u, and targets
    ``y = <x, w> + noise * N(0, 1)`` with x uniform on the unit sphere.  The columns of all ``P_j``
    (d, rank) together are orthonormal.

    Parameters
    ----------
    n_tasks : int
        Number of tasks, T.
    n_clusters : int
        Number of clusters, m; 2 and 6 in the paper.
    n_rows : int or (int, int)
        Rows per task, or a range.
    n_features : int
        Number of features, d.
    rank : int, optional
        Dimension of each cluster's subspace; by default ``n_features // 10``.
    noise : float
        Standard deviation of the noise on `y`.
    hint : float in [0, 1], optional
        Add the cluster as side information; with this probability it is the task's own, else a
        random one.
    random_state : int, Generator, RandomState or None
        Seed.
    return_truth : bool
        Also return the hidden parameters.

    Returns
    -------
    tasks : TaskSet
        Tasks with labels 0 to T - 1.
    truth : ClusterTruth
        Only when `return_truth` is True.

    Examples
    --------
    >>> from tailored.datasets import make_clusters
    >>> tasks, truth = make_clusters(30, n_clusters=3, random_state=0, return_truth=True)
    >>> tasks.X.shape, truth.bases.shape
    ((2400, 20), (3, 20, 2))
    """
    n_tasks = check_int("n_tasks", n_tasks)
    n_clusters, d = check_int("n_clusters", n_clusters), check_int("n_features", n_features)
    rank = max(d // 10, 1) if rank is None else check_int("rank", rank)
    noise = check_nonnegative("noise", noise)
    hint = None if hint is None else check_real("hint", hint, 0.0, 1.0)
    if n_clusters * rank > d:
        raise ValueError(
            f"n_clusters={n_clusters} orthogonal subspaces of rank={rank} need {n_clusters * rank} "
            f"dimensions, but n_features={d}: lower n_clusters or rank, or raise n_features."
        )
    for_bases, for_tasks, for_rows, for_side = streams(random_state, 4)

    bases = orthogonal_bases(for_bases, n_clusters, d, rank)
    clusters = for_tasks.integers(n_clusters, size=n_tasks)
    weights = np.einsum("tdr,tr->td", bases[clusters], on_sphere(for_tasks, n_tasks, rank))
    groups = np.repeat(np.arange(n_tasks), row_counts(for_tasks, n_rows, n_tasks))
    X = on_sphere(for_rows, len(groups), d)
    y = np.einsum("nd,nd->n", X, weights[groups]) + noise * for_rows.standard_normal(len(groups))
    hints = side = None
    if hint is not None:
        # Draw both for every task, so that a correct hint stays correct when `hint` grows and the
        # seed is the same.
        is_own, other = for_side.random(n_tasks) < hint, for_side.integers(n_clusters, size=n_tasks)
        hints = np.where(is_own, clusters, other)
        side = dict(enumerate(np.eye(n_clusters)[hints]))
    tasks = TaskSet(X, y, groups, side_info=side)
    truth = ClusterTruth(weights, clusters, bases, noise, hint, hints)
    return (tasks, truth) if return_truth else tasks


def streams(random_state: RandomState | np.ndarray, n: int) -> list[np.random.Generator]:
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(np.iinfo(np.int32).max, size=4)
    return np.random.default_rng(random_state).spawn(n)


def on_sphere(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    points = rng.standard_normal((n, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def orthogonal_bases(rng: np.random.Generator, m: int, d: int, rank: int) -> np.ndarray:
    Q, R = np.linalg.qr(rng.standard_normal((d, m * rank)))
    # Normalise the signs of R's diagonal, so that the orthonormal frames are uniformly distributed.
    Q = Q * np.sign(np.diag(R))
    return np.ascontiguousarray(Q.reshape(d, m, rank).transpose(1, 0, 2))


def row_counts(rng: np.random.Generator, n_rows: int | tuple[int, int], n_tasks: int) -> np.ndarray:
    if is_integer(n_rows):
        return np.full(n_tasks, check_int("n_rows", n_rows))
    if not isinstance(n_rows, tuple | list) or len(n_rows) != 2:
        raise TypeError(f"n_rows must be an integer or a pair (low, high); got {n_rows!r}.")
    low = check_int("n_rows[0]", n_rows[0])
    high = check_int("n_rows[1]", n_rows[1], minimum=low)
    return rng.integers(low, high, size=n_tasks, endpoint=True)
