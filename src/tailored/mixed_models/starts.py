"""A mixture of K linear mixed models: where EM starts, and which start is continued."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .em import EMResult, Shrinkage, em
from .mixture import Mixture
from .statistics import TaskStatistics

Array = NDArray[np.float64]

#: Tasks that the single mixed model's covariance is worth in that of each component.
COMPONENT_SHRINKAGE = 0.05


def fit_mixture(
    statistics: TaskStatistics,
    single: Mixture,
    n_components: int,
    *,
    seed: list[int],
    learn_mean: bool = True,
    n_starts: int = 3,
    short_iter: int = 8,
    max_iter: int = 100,
) -> Mixture:
    """Fit K components from several starts, the best of which is run to the end.

    Parameters
    ----------
    single : Mixture
        The mixed model of the same tasks (K = 1): where every component starts.
    seed : list of int
        Draws the centres of the starts.
    n_starts : int
        Starts that group tasks by the line their weights span; one more groups by direction, and one by the
        description where there is one.
    short_iter, max_iter : int
        EM steps before the best start is chosen, and after.
    """
    # A little of the common covariance keeps a component with few tasks from collapsing onto them.
    shrinkage = Shrinkage(COMPONENT_SHRINKAGE, single.covariances[0])
    start = Mixture(
        np.full(n_components, 1.0 / n_components),
        np.repeat(single.means, n_components, axis=0),
        np.repeat(single.covariances, n_components, axis=0),
        single.noise,
    )
    directions = _directions(statistics, single)
    rng = np.random.default_rng(seed)
    runs: list[EMResult] = []
    groupings = [_lines(directions)] * n_starts + [directions]
    if statistics.side is not None:
        groupings.append(statistics.side)
    for grouping in groupings:
        groups = _group(grouping, n_components, rng)
        responsibilities = np.full((len(statistics), n_components), 0.1 / n_components)
        responsibilities[np.arange(len(statistics)), groups] += 0.9
        runs.append(
            em(
                statistics,
                start,
                max_iter=short_iter,
                learn_mean=learn_mean,
                shrinkage=shrinkage,
                responsibilities=responsibilities,
            )
        )
    best = max(runs, key=lambda run: run.log_evidence).mixture
    return em(statistics, best, max_iter=max_iter, learn_mean=learn_mean, shrinkage=shrinkage).mixture


def _directions(statistics: TaskStatistics, single: Mixture) -> Array:
    """Unit vectors (T, d) along the deviations of the tasks' weights from their common mean."""
    deviations = single.expect(statistics).components[0].mean - single.means[0]
    norms = np.linalg.norm(deviations, axis=1, keepdims=True)
    return deviations / np.where(norms > 0, norms, 1.0)


def _lines(directions: Array) -> Array:
    """Outer products u uᵀ as vectors: w and −w belong to the same subspace, so they must be one point."""
    i, j = np.triu_indices(directions.shape[1])
    return directions[:, i] * directions[:, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def _group(points: Array, n_groups: int, rng: np.random.Generator, n_tries: int = 3) -> NDArray[np.intp]:
    """k-means with k-means++ centres; the tightest of some tries."""
    tries = [_kmeans(points, n_groups, rng) for _ in range(n_tries)]
    return min(tries, key=lambda result: result[1])[0]


def _kmeans(
    points: Array, n_groups: int, rng: np.random.Generator, n_iter: int = 30
) -> tuple[NDArray[np.intp], float]:
    centres = points[rng.integers(len(points), size=1)]
    nearest = _squared_distances(points, centres)[:, 0]
    while len(centres) < n_groups:
        total = nearest.sum()
        chosen = rng.choice(len(points), p=nearest / total if total > 0 else None)
        centres = np.vstack([centres, points[chosen]])
        nearest = np.minimum(nearest, _squared_distances(points, centres[-1:])[:, 0])
    for _ in range(n_iter):
        distances = _squared_distances(points, centres)
        labels = distances.argmin(axis=1)
        for k in range(n_groups):
            mine = points[labels == k]
            centres[k] = mine.mean(axis=0) if len(mine) else points[rng.integers(len(points))]
    return labels, float(distances.min(axis=1).sum())


def _squared_distances(points: Array, centres: Array) -> Array:
    squares = (points * points).sum(axis=1)[:, None] + (centres * centres).sum(axis=1)
    return np.maximum(squares - 2.0 * points @ centres.T, 0.0)
