"""A mixture of K linear mixed models: where EM starts, and which start is continued."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .em import EMResult, Shrinkage, em, maximise
from .mixture import Mixture
from .moments import Sums, Want
from .rows import Tasks

Array = NDArray[np.float64]

#: Tasks that the single mixed model's covariance is worth in that of each component.
COMPONENT_SHRINKAGE = 0.05
#: Tasks that centres of groups are found on at most.
GROUPED_TASKS = 1000


def fit_mixture(
    statistics: Tasks,
    single: Mixture,
    n_components: int,
    *,
    seed: list[int],
    learn_mean: bool = True,
    n_starts: int = 3,
    short_iter: int = 8,
    max_iter: int = 40,
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
    options: dict[str, Any] = {"learn_mean": learn_mean, "shrinkage": shrinkage}
    # All starts have the same E-step, that of the single model; they differ in who belongs together.
    expected = statistics.posterior(single, Want(means=True, sums=True))
    deviations, common = expected.means[:, 0] - single.means[0], expected.sums
    directions = _directions(deviations)
    totals, rng = statistics.totals(), np.random.default_rng(seed)
    groupings = [_lines(directions)] * n_starts + [directions]
    if statistics.side is not None:
        groupings.append(statistics.side)
    runs: list[EMResult] = []
    for grouping in groupings:
        groups = _group(grouping, n_components, rng)
        responsibilities = np.full((len(statistics), n_components), 0.1 / n_components)
        responsibilities[np.arange(len(statistics)), groups] += 0.9
        grouped = _grouped(common, deviations, responsibilities)
        start = maximise(totals, _repeated(single, n_components), grouped, **options)
        runs.append(em(statistics, start, max_iter=short_iter - 1, **options))
    best = max(runs, key=lambda run: run.log_evidence).mixture
    return em(statistics, best, max_iter=max_iter, accelerate=True, **options).mixture


def _grouped(common: Sums, deviations: Array, responsibilities: Array) -> Sums:
    """Sums of the groups; what is not known of a task's weights is taken as the mean over all tasks."""
    counts = responsibilities.sum(axis=0)
    unknown = (common.second[0] - deviations.T @ deviations) / max(len(deviations), 1)
    seen = [(deviations * r[:, None]).T @ deviations for r in responsibilities.T]
    second = np.stack(seen) + counts[:, None, None] * unknown
    return Sums(common.log_evidence, counts, responsibilities.T @ deviations, second, common.residual)


def continue_mixture(
    statistics: Tasks,
    start: Mixture,
    single: Mixture,
    *,
    learn_mean: bool = True,
    max_iter: int = 20,
) -> Mixture:
    """The same from the mixture of other tasks of the same kind: it has found its groups already."""
    shrinkage = Shrinkage(COMPONENT_SHRINKAGE, single.covariances[0])
    options: dict[str, Any] = {"learn_mean": learn_mean, "shrinkage": shrinkage}
    return em(statistics, start, max_iter=max_iter, accelerate=True, **options).mixture


def _repeated(single: Mixture, n_components: int) -> Mixture:
    return Mixture(
        np.full(n_components, 1.0 / n_components),
        np.repeat(single.means, n_components, axis=0),
        np.repeat(single.covariances, n_components, axis=0),
        single.noise,
    )


def _directions(deviations: Array) -> Array:
    """Unit vectors (T, d) along the deviations of the tasks' weights from their common mean."""
    norms = np.linalg.norm(deviations, axis=1, keepdims=True)
    return np.asarray(deviations / np.where(norms > 0, norms, 1.0))


def _lines(directions: Array) -> Array:
    """Outer products u uᵀ as vectors: w and −w belong to the same subspace, so they must be one point."""
    i, j = np.triu_indices(directions.shape[1])
    return directions[:, i] * directions[:, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def _group(points: Array, n_groups: int, rng: np.random.Generator, n_tries: int = 3) -> NDArray[np.intp]:
    """k-means with k-means++ centres, found on some of the points; the tightest of some tries."""
    some = points
    if len(points) > GROUPED_TASKS:
        some = points[np.sort(rng.choice(len(points), GROUPED_TASKS, replace=False))]
    centres = min((_kmeans(some, n_groups, rng) for _ in range(n_tries)), key=lambda found: found[1])[0]
    squares = np.einsum("ij,ij->i", points, points)
    return np.asarray(_squared_distances(points, squares, centres).argmin(axis=1))


def _kmeans(points: Array, n_groups: int, rng: np.random.Generator, n_iter: int = 30) -> tuple[Array, float]:
    """Centres, and the sum of the squared distances to them."""
    squares = np.einsum("ij,ij->i", points, points)
    centres = points[rng.integers(len(points), size=1)]
    nearest = _squared_distances(points, squares, centres)[:, 0]
    while len(centres) < n_groups:
        total = nearest.sum()
        chosen = rng.choice(len(points), p=nearest / total if total > 0 else None)
        centres = np.vstack([centres, points[chosen]])
        nearest = np.minimum(nearest, _squared_distances(points, squares, centres[-1:])[:, 0])
    previous = None
    for _ in range(n_iter):
        distances = _squared_distances(points, squares, centres)
        labels = distances.argmin(axis=1)
        if previous is not None and np.array_equal(labels, previous):
            break
        previous = labels
        members = (labels == np.arange(n_groups)[:, None]).astype(float)
        counts = members.sum(axis=1)
        centres = members @ points / np.maximum(counts, 1.0)[:, None]
        for k in np.flatnonzero(counts == 0):
            centres[k] = points[rng.integers(len(points))]
    return centres, float(distances.min(axis=1).sum())


def _squared_distances(points: Array, squares: Array, centres: Array) -> Array:
    return np.maximum(squares[:, None] + (centres * centres).sum(axis=1) - 2.0 * points @ centres.T, 0.0)
