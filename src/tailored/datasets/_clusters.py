"""The paper's synthetic environment: clusters of tasks, each with a subspace of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from .._utils.validation import check_choice, check_int, check_nonnegative, check_real, is_integer
from ..tasks import TaskSet

# What `side_noise` defaults to, and the names `side_info` may take.
SIDE_NOISE = {"dataset": None, "index": 0.1, "center": 0.5}


@dataclass(frozen=True)
class ClusterTruth:
    """What `make_clusters` drew and hid.

    Attributes
    ----------
    weights : ndarray of shape (T, d)
        Target vector of each task, of unit norm.
    clusters : ndarray of shape (T,)
        Cluster of each task, 0 to m - 1.
    bases : ndarray of shape (m, d, r)
        Orthonormal basis of each cluster's subspace; different clusters are orthogonal.
    centers : ndarray of shape (m, q) or None
        Centres of the clusters' side information; None when ``side_info="dataset"``.
    noise : float
        Standard deviation of the noise on `y`.
    hint : float or None
        Probability with which the hint is that of the task's own cluster by design, not by luck.
    hints : ndarray of shape (T,) or None
        Cluster that each task's side information points to; None without a hint.
    """

    weights: np.ndarray
    clusters: np.ndarray
    bases: np.ndarray
    centers: np.ndarray | None
    noise: float = 0.1
    hint: float | None = None
    hints: np.ndarray | None = None


@overload
def make_clusters(
    n_tasks: int = ...,
    *,
    n_clusters: int = ...,
    n_rows: int | tuple[int, int] = ...,
    n_features: int = ...,
    rank: int | None = ...,
    noise: float = ...,
    side_info: str = ...,
    side_noise: float | None = ...,
    side_dim: int = ...,
    hint: float | None = ...,
    random_state: Any = ...,
    return_truth: Literal[False] = ...,
) -> TaskSet: ...
@overload
def make_clusters(
    n_tasks: int = ...,
    *,
    n_clusters: int = ...,
    n_rows: int | tuple[int, int] = ...,
    n_features: int = ...,
    rank: int | None = ...,
    noise: float = ...,
    side_info: str = ...,
    side_noise: float | None = ...,
    side_dim: int = ...,
    hint: float | None = ...,
    random_state: Any = ...,
    return_truth: Literal[True],
) -> tuple[TaskSet, ClusterTruth]: ...
def make_clusters(
    n_tasks: int = 900,
    *,
    n_clusters: int = 2,
    n_rows: int | tuple[int, int] = 80,
    n_features: int = 20,
    rank: int | None = None,
    noise: float = 0.1,
    side_info: str = "dataset",
    side_noise: float | None = None,
    side_dim: int = 2,
    hint: float | None = None,
    random_state: Any = None,
    return_truth: bool = False,
) -> TaskSet | tuple[TaskSet, ClusterTruth]:
    """Draw regression tasks from a uniform mixture of clusters (the paper's Example "Clusters").

    A task of cluster `j`, drawn uniformly, has the target vector ``w = P_j u`` with ``u`` standard normal
    scaled to unit norm; its rows are ``y = <x, w> + noise * N(0, 1)`` with `x` uniform on the unit
    sphere. The columns of all the ``P_j (d, rank)`` together are orthonormal, so what one cluster uses
    says nothing about another: a learner that has to serve all clusters with one representation pays a
    factor of ``sqrt(n_clusters)`` for it.

    Parameters
    ----------
    n_tasks : int
        Number of tasks, T. The paper has 900: 500 to train, 300 to validate, 100 to test.
    n_clusters : int
        Number of clusters, m; 2 and 6 in the paper.
    n_rows : int or (int, int)
        Rows per task; a pair draws each task's number uniformly from ``low`` to ``high``, both included.
    n_features : int
        Dimension d.
    rank : int, optional
        Dimension of each cluster's subspace; ``n_features // 10``, at least 1, by default.
    noise : float
        Standard deviation of the noise on `y`.
    side_info : {"dataset", "index", "center"}
        "dataset": none is given, the task's own rows are its side information. "index": a noisy cluster
        index, one number. "center": a point of the ball around the cluster's centre in `side_dim`
        dimensions, uniform in it; centres are at least 2 apart.
    side_noise : float, optional
        "index": standard deviation of the Gaussian noise, 0.1 by default. "center": radius of the ball,
        1/2 by default.
    side_dim : int
        Dimension q of the "center" side information.
    hint : float in [0, 1], optional
        Side information is the indicator of a cluster, m numbers of which one is 1: with this probability
        the task's own cluster, else a uniformly random one. So it is right with probability
        ``hint + (1 - hint) / n_clusters``. It takes the place of `side_info`, which stays "dataset".
    random_state : int, Generator, RandomState or None
        The seed. Subspaces, tasks, rows and side information have a stream each, so that with one seed
        the same target vectors come with any `n_rows`, `noise`, `side_info` or `hint`. None draws fresh entropy;
        NumPy's global state is never used.
    return_truth : bool
        Also return what was hidden.

    Returns
    -------
    tasks : TaskSet
        With labels 0 to T - 1.
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
    check_choice("side_info", side_info, SIDE_NOISE)
    if hint is not None:
        hint = check_real("hint", hint, 0.0, 1.0)
        if side_info != "dataset":
            raise ValueError(
                f"hint={hint} and side_info={side_info!r} are both the side information of a task: leave one out."
            )
    if n_clusters * rank > d:
        raise ValueError(
            f"n_clusters={n_clusters} orthogonal subspaces of rank={rank} need {n_clusters * rank} "
            f"dimensions, but n_features={d}: lower n_clusters or rank, or raise n_features."
        )
    for_bases, for_tasks, for_rows, for_side = streams(random_state, 4)

    bases = orthogonal_bases(for_bases, n_clusters, d, rank)
    clusters = for_tasks.integers(n_clusters, size=n_tasks)
    weights = np.einsum("tdr,tr->td", bases[clusters], on_sphere(for_tasks, n_tasks, rank))
    sizes = row_counts(for_tasks, n_rows, n_tasks)

    groups = np.repeat(np.arange(n_tasks), sizes)
    X = on_sphere(for_rows, len(groups), d)
    y = np.einsum("nd,nd->n", X, weights[groups]) + noise * for_rows.standard_normal(len(groups))

    rows, centers = _side_information(for_side, clusters, n_clusters, side_info, side_noise, side_dim)
    hints = None
    if hint is not None:
        hints = _hints(for_side, clusters, n_clusters, hint)
        rows = np.eye(n_clusters)[hints]
    tasks = TaskSet(X, y, groups, side_info=None if rows is None else dict(enumerate(rows)))
    truth = ClusterTruth(weights, clusters, bases, centers, noise, hint, hints)
    return (tasks, truth) if return_truth else tasks


def streams(random_state: Any, n: int) -> list[np.random.Generator]:
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(np.iinfo(np.int32).max, size=4)
    return np.random.default_rng(random_state).spawn(n)


def on_sphere(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    points = rng.standard_normal((n, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def orthogonal_bases(rng: np.random.Generator, m: int, d: int, rank: int) -> np.ndarray:
    Q, R = np.linalg.qr(rng.standard_normal((d, m * rank)))
    # LAPACK's choice of signs would favour some frames; with those of R undone they are uniform.
    Q = Q * np.sign(np.diag(R))
    return np.ascontiguousarray(Q.reshape(d, m, rank).transpose(1, 0, 2))


def row_counts(rng: np.random.Generator, n_rows: Any, n_tasks: int) -> np.ndarray:
    if is_integer(n_rows):
        return np.full(n_tasks, check_int("n_rows", n_rows))
    if not isinstance(n_rows, tuple | list) or len(n_rows) != 2:
        raise TypeError(f"n_rows must be an integer or a pair (low, high); got {n_rows!r}.")
    low = check_int("n_rows[0]", n_rows[0])
    high = check_int("n_rows[1]", n_rows[1], minimum=low)
    return rng.integers(low, high, size=n_tasks, endpoint=True)


def _hints(rng: np.random.Generator, clusters: np.ndarray, m: int, probability: float) -> np.ndarray:
    # Both are drawn for every task, so that with one seed a hint that is right stays so as `hint` grows.
    given, other = rng.random(len(clusters)) < probability, rng.integers(m, size=len(clusters))
    return np.where(given, clusters, other)


def _side_information(
    rng: np.random.Generator, clusters: np.ndarray, m: int, kind: str, noise: float | None, q: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    if kind == "dataset":
        if noise is not None:
            raise ValueError(
                "side_noise has no meaning with side_info='dataset'; choose 'index' or 'center'."
            )
        return None, None
    spread = check_nonnegative("side_noise", SIDE_NOISE[kind] if noise is None else noise)
    if kind == "index":
        centers = np.arange(m, dtype=np.float64)[:, None]
        return centers[clusters] + spread * rng.standard_normal((len(clusters), 1)), centers
    q = check_int("side_dim", q)
    # The first m nodes of a grid of step 2: distances of at least 2 in any dimension, without a search.
    per_axis = next(k for k in range(1, m + 1) if k**q >= m)
    centers = np.asarray(
        2.0 * np.stack(np.unravel_index(np.arange(m), (per_axis,) * q), axis=1), dtype=np.float64
    )
    # Volume grows as radius**q, so a uniform point has a radius distributed as U**(1/q).
    radius = spread * rng.random((len(clusters), 1)) ** (1 / q)
    return centers[clusters] + radius * on_sphere(rng, len(clusters), q), centers
