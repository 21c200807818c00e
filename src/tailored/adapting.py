"""(Prior, tasks) -> weights and representations: for one task and for many, dense and sparse.

Where the prior has a common part, tasks are fitted to what it leaves (`left_to_tasks`), and predictions are put
together from both (`put_together`).  `one_task`, `weights` and `predict` take tasks as they are; `features`, `solve` and
the ways to adapt of the type `AdaptTasks` take what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import within
from ._threads import single_threaded_blas
from ._validation import native
from .intervals import TaskSpreads, posterior_covariance
from .mixed_models import TaskStatistics
from .mixed_models import adapt as posterior_means
from .prior import Prior
from .tasks import Rows, TaskSet
from .tasks.rows import batches, clipped, dense, predictions

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


class OneTask(NamedTuple):
    """A task's dense rows, its representation and its prior mean (None: zero), in the units of the prior."""

    rows: Rows
    theta: Array
    mean: Array | None


def features(prior: Prior, tasks: TaskSet, *, one: bool = False) -> Array:
    """φ of every task, (T, k); ``one`` takes the short way of a single task."""
    if prior.feature_map is None:
        return np.zeros((len(tasks), 0))
    phis = (prior.feature_map.transform_one if one else prior.feature_map.transform)(tasks)
    return check_features(phis, tasks, prior.conditioning.n_side)


def check_features(phis: Array, tasks: TaskSet, n_side: int | None = None) -> Array:
    """The features, if they are finite and as many as in fit."""
    if n_side is not None and phis.shape[1] != n_side:
        raise ValueError(
            f"side_info: the feature map gives {phis.shape[1]} features, in fit it gave {n_side}; "
            "give the same side information columns as in fit"
        )
    if not np.isfinite(phis).all():
        bad = tasks.labels[np.flatnonzero(~np.isfinite(phis).all(axis=1))[0]]
        raise ValueError(f"feature_map: NaN or infinity in the features of task {bad!r}")
    return phis


def one_task(prior: Prior, task: TaskSet) -> OneTask:
    """What a single task is solved with."""
    task = left_to_tasks(prior, task)
    phi = features(prior, task, one=True)[0]
    rows = prior.units.rows(task)
    if rows.is_sparse:
        rows = rows._replace(X=dense(rows.X))
    theta = prior.conditioning(phi)
    if prior.size_exponent:
        theta = theta * float(max(len(rows.y), 1) ** prior.size_exponent)
    return OneTask(rows, theta, prior.bias(phi) if prior.bias.moves else None)


def weights(prior: Prior, tasks: TaskSet, n_jobs: int | None = None) -> Array:
    """Weights (T, d) of many tasks in the user's units, with the intercept last where there is one."""
    tasks = left_to_tasks(prior, tasks)
    width = getattr(prior.conditioning, "rank", None)
    with single_threaded_blas():
        found = [
            solve(prior, prior.units.rows(batch), features(prior, batch), n_jobs, batch.labels)
            for batch in batches(tasks, width)
        ]
    return prior.units.raw_weights(np.concatenate(found))


def predict(prior: Prior, support: TaskSet, query: TaskSet, n_jobs: int | None = None) -> Array:
    """Predictions of the query rows after adapting to the support rows of the same tasks."""
    tailored = predictions(Rows.of(query, prior.fit_intercept), weights(prior, support, n_jobs))
    if prior.quantile is not None:
        task = np.repeat(np.arange(len(query)), query.sizes)
        tailored += quantile_shifts(prior, task_spreads(prior, support), query.X, task)
    return put_together(tailored, common_to(prior, support, query), prior.clip)


def task_spreads(prior: Prior, tasks: TaskSet) -> TaskSpreads:
    """What the spreads of many adapted tasks are computed from, for a prior of the squared loss."""
    tasks, squares, covariances = left_to_tasks(prior, tasks), [], []
    adapt_tasks, units = in_closed_form(prior), prior.units
    for batch in batches(tasks):
        for task, found, theta in zip(batch, *adapt_tasks(batch), strict=True):
            X, y = units.dense(task.X), units.targets(task.y)
            squares.append(float(np.sum((y - X @ found) ** 2)))
            covariances.append(posterior_covariance(X, theta))
    return TaskSpreads(tasks.sizes, np.array(squares), np.array(covariances))


def quantile_shifts(prior: Prior, spreads: TaskSpreads, X: Any, task: NDArray[np.intp]) -> Array:
    """What the prior's quantile adds to the predictions of rows of the tasks at the given positions."""
    calibration, quantile = prior.calibration, prior.quantile
    assert calibration is not None
    assert quantile is not None
    out = np.empty(len(task))
    order = np.argsort(task, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(task[order])) + 1):
        if len(rows):
            t = int(task[rows[0]])
            width = spreads(t, prior.units.dense(X[rows]), calibration.noise)
            out[rows] = prior.units.target * calibration.quantile(int(spreads.n_rows[t]), quantile) * width
    return out


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
    """Adapt by the within-task algorithm."""

    def adapt_tasks(tasks: TaskSet) -> tuple[Array, Array]:
        rows, phis = prior.units.rows(tasks), features(prior, tasks)
        factors = prior.size_factors(tasks.sizes)[:, None, None]
        return solve(prior, rows, phis, n_jobs, tasks.labels), prior.conditioning.evaluate(phis) * factors

    return adapt_tasks


def in_closed_form(prior: Prior) -> AdaptTasks:
    """Adapt by posterior means, which is the same where the loss is squared and θ = n τ(s).

    No compiled loop is involved, so that a first fit does not wait for the compiler.
    """

    def adapt_tasks(tasks: TaskSet) -> tuple[Array, Array]:
        phis = features(prior, tasks)
        taus = prior.conditioning.evaluate(phis)
        statistics = TaskStatistics.of(tasks, prior.units)
        found = posterior_means(taus, prior.bias.evaluate(phis), statistics)
        return found, taus * prior.size_factors(tasks.sizes)[:, None, None]

    return adapt_tasks
