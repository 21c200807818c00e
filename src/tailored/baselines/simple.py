"""What a practitioner would try first, behind the same ``fit`` / ``adapt`` interface.

A comparison without these says nothing: every table this package prints has them in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.algebra import solve
from .._utils.threads import single_threaded_blas
from ..adapting import in_closed_form
from ..gaussian import fit_mixed_model, statistics_of
from ..losses import Squared
from ..prior import Prior
from ..representation import Bias, Constant
from ..tasks import TaskSet, Units
from ..tasks.rows import batches, dense
from ..tasks.units import ANY_UNITS, check_ratios
from .base import Baseline

Array = NDArray[np.float64]


#: Candidates for the ridge parameter.
RIDGE_ALPHAS = tuple(float(alpha) for alpha in np.logspace(-4, 4, 17))
#: Candidates for the rows that a zero effect of a user or an item is worth.
SHRINKAGES = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)


class GlobalMedian(Baseline):
    """Predict the median of all training targets, whatever the task."""

    def _fit(self, tasks: TaskSet) -> None:
        self.median_ = float(np.median(tasks.y))

    def _weights(self, X: Array, y: Array) -> Array:
        return np.append(np.zeros(X.shape[1]), self.median_)


class TaskMean(Baseline):
    """Predict the mean target of the task's own rows (of all training rows for a task without rows)."""

    def _fit(self, tasks: TaskSet) -> None:
        self.mean_ = float(tasks.y.mean())

    def _weights(self, X: Array, y: Array) -> Array:
        return np.append(np.zeros(X.shape[1]), y.mean() if len(y) else self.mean_)


class TaskMedian(Baseline):
    """Predict the median target of the task's own rows (of all training rows for a task without rows)."""

    def _fit(self, tasks: TaskSet) -> None:
        self.median_ = float(np.median(tasks.y))

    def _weights(self, X: Array, y: Array) -> Array:
        return np.append(np.zeros(X.shape[1]), np.median(y) if len(y) else self.median_)


class RidgePerTask(Baseline):
    """Ridge regression on each task, ``‖Xw − y‖² + λ‖w‖²``, λ shared by all tasks.

    λ, and whether the task is centred first (an unpenalised intercept), are chosen by the mean absolute
    error on held-out rows of the training tasks.

    Parameters
    ----------
    alphas : sequence of float
        Candidates for λ.
    support : float, default=0.5
        Part of the rows of each training task to fit on while choosing.
    clip
        See `Baseline`.
    random_state : int, RandomState or None, default=0
    """

    alpha_: float
    centred_: bool

    def __init__(
        self, alphas: Any = RIDGE_ALPHAS, support: float = 0.5, clip: Any = None, random_state: Any = 0
    ) -> None:
        self.alphas = alphas
        self.support = support
        self.clip = clip
        self.random_state = random_state

    def _fit(self, tasks: TaskSet) -> None:
        support, query = tasks.support_query(self.support, random_state=self.random_state)
        self._search(support, query, {"centred_": (False, True), "alpha_": map(float, self.alphas)})

    def _weights(self, X: Array, y: Array) -> Array:
        n, d = X.shape
        if n == 0:
            return np.zeros(d + 1)
        shift_X = X.mean(axis=0) if self.centred_ else np.zeros(d)
        shift_y = float(y.mean()) if self.centred_ else 0.0
        w = _ridge(X - shift_X, y - shift_y, self.alpha_)
        return np.append(w, shift_y - shift_X @ w)


class PooledRidge(Baseline):
    """One ridge regression for all tasks, and an offset for each: ``y = <x, w> + μ + o_t``.

    w and μ come from all rows; the offset is the mean of what they leave of the task's rows, as if there were
    κ more rows without any.  λ of the ridge and κ are chosen as in `RidgePerTask`.

    Parameters
    ----------
    alphas, shrinkages : sequences of float
        Candidates for λ and κ.
    support, clip, random_state
        As for `RidgePerTask`.
    """

    shrinkage_: float

    def __init__(
        self,
        alphas: Any = RIDGE_ALPHAS,
        shrinkages: Any = SHRINKAGES,
        support: float = 0.5,
        clip: Any = None,
        random_state: Any = 0,
    ) -> None:
        self.alphas = alphas
        self.shrinkages = shrinkages
        self.support = support
        self.clip = clip
        self.random_state = random_state

    def _fit(self, tasks: TaskSet) -> None:
        support, query = tasks.support_query(self.support, random_state=self.random_state)
        best: tuple[float, float, float] = (np.inf, 1.0, 0.0)
        for alpha in self.alphas:
            self._pool(support, float(alpha))
            error = self._search(support, query, {"shrinkage_": map(float, self.shrinkages)})
            best = min(best, (error, float(alpha), self.shrinkage_))
        _, self.alpha_, self.shrinkage_ = best
        self._pool(tasks, self.alpha_)

    def _pool(self, tasks: TaskSet, alpha: float) -> None:
        X, y = dense(tasks.X), tasks.y
        if not len(y):
            self.coef_, self.intercept_ = np.zeros(X.shape[1]), 0.0
            return
        shift_X, shift_y = X.mean(axis=0), float(y.mean())
        self.coef_ = _ridge(X - shift_X, y - shift_y, alpha)
        self.intercept_ = shift_y - float(shift_X @ self.coef_)

    def _weights(self, X: Array, y: Array) -> Array:
        left = y - X @ self.coef_ - self.intercept_
        offset = left.sum() / (len(y) + self.shrinkage_) if len(y) else 0.0
        return np.append(self.coef_, self.intercept_ + offset)


class ItemUserBias(Baseline):
    """Ratings of items by users, ``y = μ + item + user``; rows of X are one-hot items, tasks are users.

    An item's effect is the mean of y − μ over its ratings, a user's that of what is then left, each as if
    there were some more ratings without any effect; how many is chosen as in `RidgePerTask`.

    Parameters
    ----------
    shrinkages : sequence of float
        Candidates for the two numbers of extra ratings.
    support, clip, random_state
        As for `RidgePerTask`.
    """

    user_shrinkage_: float

    def __init__(
        self, shrinkages: Any = SHRINKAGES, support: float = 0.5, clip: Any = None, random_state: Any = 0
    ) -> None:
        self.shrinkages = shrinkages
        self.support = support
        self.clip = clip
        self.random_state = random_state

    def _fit(self, tasks: TaskSet) -> None:
        X = dense(tasks.X)
        if not ((X == 0) | (X == 1)).all() or not (X.sum(axis=1) == 1).all():
            raise ValueError("X: ItemUserBias reads one-hot rows, a single 1 for the item that is rated")
        support, query = tasks.support_query(self.support, random_state=self.random_state)
        best: tuple[float, float, float] = (np.inf, 0.0, 0.0)
        for shrinkage in map(float, self.shrinkages):
            self._rate_items(support, shrinkage)
            error = self._search(support, query, {"user_shrinkage_": map(float, self.shrinkages)})
            best = min(best, (error, shrinkage, self.user_shrinkage_))
        _, self.item_shrinkage_, self.user_shrinkage_ = best
        self._rate_items(tasks, self.item_shrinkage_)

    def _rate_items(self, tasks: TaskSet, shrinkage: float) -> None:
        X = dense(tasks.X)
        self.mean_ = float(tasks.y.mean()) if len(tasks.y) else 0.0
        self.items_ = X.T @ (tasks.y - self.mean_) / np.maximum(X.sum(axis=0) + shrinkage, 1e-12)

    def _weights(self, X: Array, y: Array) -> Array:
        left = y - self.mean_ - X @ self.items_
        user = left.sum() / (len(y) + self.user_shrinkage_) if len(y) else 0.0
        return np.append(self.items_, self.mean_ + user)


class MixedModel(Baseline):
    """The linear mixed model with random slopes of full covariance, by EM.

    ``w ~ N(b, W)``, ``y = Xw + noise of variance σ²``; a task's weights are their posterior mean.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Add a random intercept.
    max_iter, tol
        EM steps at most, and the gain of log evidence per row that ends them.
    clip
        See `Baseline`.

    Attributes
    ----------
    mean_, covariance_ : arrays (d,), (d, d)
        b and W; with an intercept it is the last of d + 1 weights.
    noise_ : float
        σ².
    prior_ : Prior
        The same as a prior of tasks.
    """

    def __init__(
        self, fit_intercept: bool = True, max_iter: int = 300, tol: float = 1e-7, clip: Any = None
    ) -> None:
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.clip = clip

    _sizes = ANY_UNITS

    def _check_new(self, tasks: TaskSet, name: str = "tasks") -> None:
        super()._check_new(tasks, name)
        if hasattr(self, "prior_"):
            self.prior_.units.check(tasks.X, tasks.y, tasks.feature_names)

    def _fit(self, tasks: TaskSet) -> None:
        units = Units.of(tasks, self.fit_intercept, centre=True)
        check_ratios(units, tasks.feature_names)
        model = fit_mixed_model(statistics_of(tasks, units), max_iter=self.max_iter, tol=self.tol)
        self.mean_ = units.raw_weights(model.means[0])
        self.covariance_ = units.raw_representation(model.covariances[0]) * units.target**2
        self.noise_ = model.noise * units.target**2
        self.prior_ = Prior(
            Constant(model.covariances[0] / model.noise),
            Bias("shared", model.means[0].copy(), np.zeros((len(units.columns), 0))),
            units,
            loss=Squared(),
            size_exponent=1,
            clip=self.clip_,
        )

    def adapt_many(self, tasks: TaskSet) -> Array:
        self._check_new(tasks)
        adapt_tasks = in_closed_form(self.prior_)
        with single_threaded_blas():
            found = np.concatenate([adapt_tasks(batch)[0] for batch in batches(tasks)])
        weights = self.prior_.units.raw_weights(found)
        return weights if self.fit_intercept else np.hstack([weights, np.zeros((len(weights), 1))])

    def _weights(self, X: Array, y: Array) -> Array:
        return self.adapt_many(TaskSet.from_tasks([(X, y)]))[0]


def _ridge(X: Array, y: Array, alpha: float) -> Array:
    """argmin ``‖Xw − y‖² + λ‖w‖²``, through the smaller of the two Gram matrices."""
    n, d = X.shape
    if n < d:
        return np.asarray(X.T @ solve(X @ X.T + alpha * np.eye(n), y))
    return np.asarray(solve(X.T @ X + alpha * np.eye(d), X.T @ y))


#: Names of the baselines for the command line and the tables.
BASELINES: dict[str, type[Baseline]] = {
    "global median": GlobalMedian,
    "task mean": TaskMean,
    "task median": TaskMedian,
    "ridge per task": RidgePerTask,
    "pooled ridge + task offset": PooledRidge,
    "item and user bias": ItemUserBias,
    "mixed model": MixedModel,
}
