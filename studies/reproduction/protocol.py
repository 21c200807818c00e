"""From a configuration and a seed to arrays: who is trained on, who is tested, on which rows.

One seed decides everything random (data, split of tasks, split and order of rows); the methods and
step sizes of a seed all see the same arrays, so that their differences are paired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored.datasets import make_clusters
from tailored.paper.feature_maps import AngleMap, FeatureMap, get_feature_map
from tailored.tasks.rows import Rows
from tailored.tasks.task_set import TaskSet

from ..data import Ratings, load_jester, load_lenk, load_movielens
from .config import ConfigError, ExperimentConfig

Array = NDArray[np.float64]

LOADERS: dict[str, Callable[..., Ratings]] = {
    "lenk": load_lenk,
    "movielens": load_movielens,
    "jester": load_jester,
}


@dataclass(frozen=True)
class Part:
    """Tasks to adapt to: ``support`` rows, ``query`` rows that score, and features ``phis`` (T,
    k).
    """

    support: Rows
    query: Rows
    phis: Array

    def __len__(self) -> int:
        return len(self.phis)


@dataclass(frozen=True)
class Prepared:
    """All arrays of one seed.

    Attributes
    ----------
    train, validation, test : Part
        The query rows of training tasks are never looked at.
    scale : float
        Root mean square norm of the features of the training tasks (1 if they are zero).
    groups : ndarray of shape (n_test,)
        A label of each test task for the figures: its cluster, or the tertile of its mean target.
    group_names : tuple of str
    frame : ndarray of shape (d, d)
        Orthonormal columns in which τ is shown: the clusters' own directions first; the identity
        elsewhere.
    axis_names : tuple of str
        What the columns of ``frame`` are called.
    bases : ndarray of shape (m, d, r) or None
        Orthonormal bases of the planes of synthetic clusters.
    """

    train: Part
    validation: Part
    test: Part
    scale: float
    groups: NDArray[np.int64]
    group_names: tuple[str, ...]
    frame: Array
    axis_names: tuple[str, ...]
    bases: Array | None

    @property
    def n_features(self) -> int:
        return int(self.train.support.X.shape[1])


@lru_cache(maxsize=8)
def load_real(source: str, options: tuple[tuple[str, Any], ...], data: str | None) -> Ratings:
    """The data set of a real experiment; kept per process, because its file is the same for every
    seed.
    """
    try:
        return LOADERS[source](data, **dict(options))
    except OSError:  # the message already says which file is missing
        raise
    except Exception as error:
        # Readers of zip, Excel and MATLAB files raise many types of exceptions for damaged files.
        raise ConfigError(f"the data of {source!r} cannot be used: {error}") from error


def data_digest(config: ExperimentConfig, data: str | None = None) -> str:
    """SHA-256 of the rows of a real data set ("seeded" for synthetic ones).

    Two files can satisfy one configuration (the whole of Jester and a sample of it); their results
    must not be mixed.
    """
    if config.data.source not in LOADERS:
        return "seeded"
    tasks = load_real(config.data.source, config.data.options, data).tasks
    digest = hashlib.sha256()
    for array in (tasks.X, tasks.y, tasks.offsets):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@lru_cache(maxsize=2)
def prepare(config: ExperimentConfig, seed: int, data: str | None = None) -> Prepared:
    """Draw and split the tasks of one seed and compute their features.

    Parameters
    ----------
    config : ExperimentConfig
    seed : int
    data : str, optional
        A folder with the real data, instead of a download.
    """
    for_tasks, for_split, for_order = np.random.default_rng(seed).spawn(3)
    sizes = [config.tasks.train, config.tasks.validation, config.tasks.test]
    target_range: tuple[float, float] | None = None
    truth = None
    if config.data.source == "clusters":
        tasks, truth = make_clusters(
            config.tasks.total, random_state=seed, return_truth=True, **dict(config.data.options)
        )
        names = [f"feature {j + 1}" for j in range(tasks.n_features)]
    else:
        loaded = load_real(config.data.source, config.data.options, data)
        tasks, target_range, names = loaded.tasks, loaded.target_range, loaded.feature_names
    if config.tasks.total > len(tasks):
        raise ConfigError(
            f"{config.name}: tasks.train + tasks.validation + tasks.test is {config.tasks.total}, "
            f"but the data has {len(tasks)} tasks"
        )
    if config.rows.constant:
        # Before the features: they are features of what the inner algorithm sees.
        tasks, names = _with_constant(tasks), [*names, "constant"]
    parts = tasks.split(sizes, random_state=for_tasks, shuffle=config.tasks.order == "random")

    support, query = [], []
    for k, part in enumerate(parts):
        chosen, rest = part.support_query(
            config.rows.support, random_state=for_split, shuffle=config.rows.split == "random"
        )
        if k == 0 and config.rows.train == "all":
            chosen = part
        support.append(
            _shuffle_rows(chosen, for_order) if config.rows.order == "shuffled" else chosen
        )
        query.append(rest)

    mapping = _feature_map(config, target_range).fit(support[0])
    phis = [mapping.transform(part) for part in support]
    scale = float(np.sqrt(np.mean(np.sum(phis[0] ** 2, axis=1)))) or 1.0
    train, validation, test = (
        Part(Rows(s.X, s.y, s.offsets), Rows(q.X, q.y, q.offsets), phi)
        for s, q, phi in zip(support, query, phis, strict=True)
    )
    if truth is not None:
        groups = truth.clusters[-config.tasks.test :]
        group_names = tuple(f"cluster {j + 1}" for j in range(len(truth.bases)))
        frame, axis_names = _cluster_frame(truth.bases)
    else:
        groups, group_names = _tertiles(support[2])
        frame, axis_names = np.eye(len(names)), tuple(names)
    bases = None if truth is None else truth.bases
    return Prepared(train, validation, test, scale, groups, group_names, frame, axis_names, bases)


def _with_constant(tasks: TaskSet) -> TaskSet:
    X = np.hstack([tasks.X, np.ones((len(tasks.y), 1))])
    return TaskSet(X, tasks.y, np.repeat(tasks.labels, tasks.sizes))


def _shuffle_rows(tasks: TaskSet, rng: np.random.Generator) -> TaskSet:
    """The same tasks with their rows in random order."""
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    order = np.lexsort((rng.random(len(task)), task))
    return TaskSet(tasks.X[order], tasks.y[order], tasks.labels[task])


def _feature_map(config: ExperimentConfig, target_range: tuple[float, float] | None) -> FeatureMap:
    if config.features.map == "angle" and target_range is not None:
        # The scale that ratings can have, not the one that the training tasks happen to use.
        return AngleMap(*target_range)
    return get_feature_map(config.features.map, has_side_info=False)


def _cluster_frame(bases: Array) -> tuple[Array, tuple[str, ...]]:
    """Directions of cluster 1, of cluster 2, ..., then of nobody."""
    m, d, r = bases.shape
    inside = bases.transpose(1, 0, 2).reshape(d, m * r)
    frame, _ = np.linalg.qr(np.hstack([inside, np.eye(d)]))
    frame[:, : m * r] = inside
    names = [str(j + 1) for j in range(m) for _ in range(r)] + ["–"] * (d - m * r)
    return frame, tuple(names)


def _tertiles(tasks: TaskSet) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    means = np.add.reduceat(tasks.y, tasks.offsets[:-1]) / tasks.sizes
    rank = np.argsort(np.argsort(means, kind="stable"), kind="stable")
    groups = (3 * rank // len(means)).astype(np.int64)
    return groups, ("lowest third", "middle third", "highest third")
