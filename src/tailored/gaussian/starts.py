"""Initial values of EM for a mixture of K linear mixed models."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..tasks.rows import Array
from .em import EMResult, Shrinkage, em, maximise
from .mixture import Mixture, Want
from .moments import Sums
from .rows import Tasks

#: Component covariances are shrunk to that of the single mixed model, with the weight of this many pseudo-tasks.
COMPONENT_SHRINKAGE = 0.05
#: Maximum number of tasks for k-means, and maximum number of EM steps from a given start.
GROUPED_TASKS, CONTINUED_STEPS = 1000, 20


def fit_mixture(
    tasks: Tasks,
    single: Mixture,
    n_components: int,
    *,
    seed: list[int],
    start: Mixture | None = None,
    learn_mean: bool = True,
    n_starts: int = 3,
    short_iter: int = 8,
    max_iter: int = 40,
) -> Mixture:
    """Fit K components: run a few steps of EM from several starts, and continue from the best.

    ``single`` is the mixed model of the same tasks (K = 1).  Each start clusters the tasks: ``n_starts`` of them by the line
    through their coefficients, one by the direction, and one by the side information if there is any.  If ``start`` is given,
    a fit to other tasks of the same population, it is the only start.
    """
    # Shrinkage prevents a component with few tasks from collapsing onto them.
    shrinkage = Shrinkage(COMPONENT_SHRINKAGE, single.covariances[0])
    options: dict[str, Any] = {"learn_mean": learn_mean, "shrinkage": shrinkage}
    if start is not None:
        return em(tasks, start, max_iter=CONTINUED_STEPS, accelerate=True, **options).mixture
    if not tasks.is_gaussian:
        # A mixture for the Gaussian sites is a good enough start, and much faster to fit.
        sites, unit = tasks.gaussian(single)
        settings: dict[str, Any] = {"learn_mean": learn_mean, "n_starts": n_starts, "short_iter": short_iter}
        found = fit_mixture(sites, unit, n_components, seed=seed, max_iter=max_iter, **settings)
        start = replace(found, noise=single.noise)
        return em(tasks, start, max_iter=max_iter, accelerate=True, **options).mixture
    # All starts share the E-step of the single model and differ in how they cluster the tasks.
    expected = tasks.posterior(single, Want(means=True, sums=True))
    deviations, common = expected.means[:, 0] - single.means[0], expected.sums
    # Unit vectors along the deviations, and the products u uᵀ, which are the same for u and −u.
    norms = np.linalg.norm(deviations, axis=1, keepdims=True)
    directions = deviations / np.where(norms > 0, norms, 1.0)
    i, j = np.triu_indices(directions.shape[1])
    lines = directions[:, i] * directions[:, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    totals, rng = tasks.totals(), np.random.default_rng(seed)
    groupings = [lines] * n_starts + [directions]
    if tasks.side is not None:
        groupings.append(tasks.side)
    means, W = (np.repeat(part, n_components, axis=0) for part in (single.means, single.covariances))
    repeated = Mixture(np.full(n_components, 1.0 / n_components), means, W, single.noise)
    runs: list[EMResult] = []
    for grouping in groupings:
        groups = _group(grouping, n_components, rng)
        shares = np.full((len(tasks), n_components), 0.1 / n_components)
        shares[np.arange(len(tasks)), groups] += 0.9
        start = maximise(totals, repeated, _group_sums(common, deviations, shares), **options)
        runs.append(em(tasks, start, max_iter=short_iter - 1, **options))
    best = max(runs, key=lambda run: run.log_evidence).mixture
    return em(tasks, best, max_iter=max_iter, accelerate=True, **options).mixture


def _group_sums(common: Sums, deviations: Array, shares: Array) -> Sums:
    """Return the expected sufficient statistics of clusters of tasks, using the mean posterior covariance for each task."""
    counts = shares.sum(axis=0)
    within = (common.second[0] - deviations.T @ deviations) / max(len(deviations), 1)
    between = np.stack([(deviations * r[:, None]).T @ deviations for r in shares.T])
    second = between + counts[:, None, None] * within
    return Sums(common.log_evidence, counts, shares.T @ deviations, second, common.residual)


def _group(points: Array, n_groups: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Cluster points by k-means on a sample, and return the cluster of each point."""
    # Only mixtures need this import, which takes as long as a small fit.
    from sklearn.cluster import KMeans

    some = points
    if len(points) > GROUPED_TASKS:
        some = points[np.sort(rng.choice(len(points), GROUPED_TASKS, replace=False))]
    with warnings.catch_warnings():
        # Side information may have fewer distinct values than there are clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = KMeans(n_groups, n_init=3, random_state=int(rng.integers(2**31))).fit(some)
    return np.asarray(clusters.predict(points), dtype=np.intp)
