"""(Prior, tasks) -> weights and representations, dense and sparse.

Where the prior has a common part, tasks are fitted to what it leaves (`left_to_tasks`), and predictions are put
together from both (`put_together`).  `weights` takes tasks as they are; `features`, `solve` and the ways to adapt of the
type `AdaptTasks` take what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import wide, within
from ._utils.threads import single_threaded_blas
from ._utils.validation import native
from .feature_maps import check_features
from .gaussian import Moments, statistics_of
from .gaussian import adapt as posterior_means
from .prior import Prior
from .tasks import Rows, TaskSet
from .tasks.rows import batches, clipped, predictions

Array = NDArray[np.float64]

Labels = Sequence[Any] | NDArray[Any]
#: Gives tasks their weights (T, d) and representations (T, d, d), in the units of a prior.
AdaptTasks = Callable[[TaskSet], tuple[Array, Array]]


def left_to_tasks(prior: Prior, tasks: TaskSet) -> TaskSet:
    """The tasks with the targets that the common part leaves; as they are, where there is none."""
    return tasks if prior.common is None else prior.common.leave(tasks)


def common_to(prior: Prior, support: TaskSet, query: TaskSet) -> Array | None:
    """The common part at the query rows; descriptions are those of the support, the query may come without."""
    if prior.common is None:
        return None
    described = np.repeat(prior.common.describe(support), query.sizes, axis=0)
    return prior.common.predict(query.X, described)


def put_together(tailored: Array, common: Array | None, clip: tuple[float, float] | None) -> Array:
    """Predictions (n,) or ends of intervals (n, 2): what the tasks' weights say, plus the common part (n,), clipped."""
    if common is not None:
        tailored = tailored + (common if tailored.ndim == 1 else common[:, None])
    return clipped(tailored, clip)


def features(prior: Prior, tasks: TaskSet, *, one: bool = False) -> Array:
    """φ of every task, (T, k); ``one`` takes the short way of a single task."""
    if prior.feature_map is None:
        return np.zeros((len(tasks), 0))
    phis = (prior.feature_map.transform_one if one else prior.feature_map.transform)(tasks)
    return check_features(phis, tasks, prior.conditioning.n_side)


def weights(prior: Prior, tasks: TaskSet, n_jobs: int | None = None) -> Array:
    """Weights (T, d) of many tasks in the user's units, with the intercept last where there is one."""
    tasks = left_to_tasks(prior, tasks)
    if wide.is_wide(prior):
        return prior.units.raw_weights(wide.adapt(prior, tasks).weights)
    if prior.closed_form is not None:
        with single_threaded_blas():
            return prior.units.raw_weights(prior.closed_form.weights(tasks, n_jobs))
    width = getattr(prior.conditioning, "rank", None)
    with single_threaded_blas():
        found = [
            solve(prior, prior.units.rows(batch), features(prior, batch), n_jobs, batch.labels)
            for batch in batches(tasks, width)
        ]
    return prior.units.raw_weights(np.concatenate(found))


def solve(
    prior: Prior, rows: Rows, phis: Array, n_jobs: int | None = None, labels: Labels | None = None
) -> Array:
    """Weights (T, d) of tasks with the given features, by the within-task algorithm, in the units of the prior."""
    means = prior.bias.evaluate(phis) if prior.bias.moves else None
    options: dict[str, Any] = {"inner": prior.inner, "tol": prior.tol, "max_iter": prior.max_iter}
    factors = prior.size_factors(rows.sizes)
    if not rows.is_sparse:
        thetas = prior.conditioning.evaluate(phis)
        solution = within.solve_many(
            *rows,
            thetas * factors[:, None, None] if prior.size_exponent else thetas,
            prior.loss,
            offset=None if means is None else predictions(rows, means),
            n_jobs=n_jobs,
            labels=labels,
            **options,
        )
        return solution.coef if means is None else solution.coef + means
    out = np.zeros((len(phis), prior.conditioning.n_features))
    names = native(labels) if isinstance(labels, np.ndarray) else labels
    for t, columns in enumerate(rows.columns()):
        one = rows.tasks(t, t + 1)
        if len(one.y):
            one = one.compressed(columns)
            offset = None if means is None else one.X @ means[t, columns]
            theta = factors[t] * prior.conditioning(phis[t], columns)
            label = None if names is None else names[t]
            solved = within.solve(one.X, one.y, theta, prior.loss, offset=offset, label=label, **options)
            direction = _dual_direction(solved, one.X, prior.inner)
            out[t] = factors[t] * prior.conditioning.multiply(phis[t], columns, direction)
            # of large columns g keeps rounding alone
            out[t, columns] = solved.coef
        if means is not None:
            out[t] += means[t]
    return out


def _dual_direction(solution: within.WithinSolution, X: Array, inner: str) -> Array:
    """g with ``w = θ g``: the block of w that was solved determines the rest of it through g."""
    n = len(solution.alpha)
    if inner == "exact":
        return -X.T @ solution.alpha / n
    # The online estimate is a mean of iterates: recover its averaged dual from the iterates' α.
    tail = np.cumsum((1.0 / np.arange(1, n + 1))[::-1])[::-1]
    return -X.T @ (solution.alpha * tail) / n


def by_solving(prior: Prior, n_jobs: int | None = None) -> AdaptTasks:
    """Adapt by the within-task algorithm, or in closed form where that is the same."""
    if prior.closed_form is not None:
        return in_closed_form(prior)

    def adapt_tasks(tasks: TaskSet) -> tuple[Array, Array]:
        rows, phis = prior.units.rows(tasks), features(prior, tasks)
        factors = prior.size_factors(tasks.sizes)[:, None, None]
        return solve(prior, rows, phis, n_jobs, tasks.labels), prior.conditioning.evaluate(phis) * factors

    return adapt_tasks


def in_closed_form(prior: Prior) -> AdaptTasks:
    """Adapt by posterior means, which is the same where the loss is squared and θ = n τ(s).

    The loops of the within-task algorithm are not involved, so that a first fit does not wait for their compiler.
    """

    def adapt_tasks(tasks: TaskSet) -> tuple[Array, Array]:
        closed = prior.closed_form
        if closed is not None:
            solved = closed.solve(Moments.of(tasks, prior.units, closed.side(tasks)))
            found, taus = solved.weights, closed.taus(solved.shares)
        else:
            phis = features(prior, tasks)
            taus = prior.conditioning.evaluate(phis)
            statistics = statistics_of(tasks, prior.units)
            found = posterior_means(taus, prior.bias.evaluate(phis), statistics)
        return found, taus * prior.size_factors(tasks.sizes)[:, None, None]

    return adapt_tasks
