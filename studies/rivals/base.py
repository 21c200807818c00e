"""Baselines of the benchmark, which are fitted to many tasks and predict rows of new tasks from a
few observed rows.

The package's own baselines (`tailored.evaluation.baselines`) are scikit-learn's estimators.  These
are older and more elaborate; published tables were made with them.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import ThreadpoolController

from tailored._utils.records import restored_on_failure
from tailored._utils.threads import single_threaded_blas
from tailored._utils.validation import check_rng
from tailored.gaussian.em import fit_mixed_model
from tailored.gaussian.mixture import Want
from tailored.gaussian.rows import statistics_of
from tailored.gaussian.side import Effect, Group, SideStructure, fit_side
from tailored.losses import Loss, get_loss
from tailored.paper.feature_maps import SideVector
from tailored.tasks.rows import (
    Array,
    Rows,
    Scaling,
    batches,
    dense,
    mean_error,
    predictions,
    segment_sums,
    task_means,
)
from tailored.tasks.task_set import TaskSet

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

#: Candidates for the ridge parameter.
RIDGE_ALPHAS = np.logspace(-4, 4, 17)
#: Candidates for κ, the number of pseudo-rows that shrink the offset of a task towards zero.
SHRINKAGES = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
#: Prior variance of the effects of side information in `MixedModel`, relative to that of the random
#: effects; the prior is almost flat.
FLAT = 1e4
#: `PooledBoosting`: learning rate, numbers or fraction of support rows of a training task, and
#: fraction of held-out tasks.
LEARNING_RATE, N_SUPPORT, HELD_OUT = 0.05, (0, 1, 2, 5, 0.5), 0.2


def single_threaded_openmp() -> AbstractContextManager[None]:
    """Return a context in which OpenMP uses one thread.

    OpenMP threads wait for each other in a busy loop, so a small fit can take minutes on a busy
    machine.
    """
    # Not cached: further libraries with OpenMP may be loaded later.
    context: AbstractContextManager[None] = ThreadpoolController().limit(
        limits=1, user_api="openmp"
    )
    return context


@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(BaseEstimator):
    """Base class of baselines, which are fitted to many tasks and predict rows of new tasks."""

    scaling_: Scaling = field(init=False)
    _encoder: SideVector | None = field(init=False, default=None)

    def fit(self, tasks: TaskSet) -> Self:
        """Estimate the parameters that all tasks share.  If this raises an error, the baseline is
        unchanged.
        """
        # Random draws and rounding depend on the order of the tasks, so use an order that depends
        # on the labels alone.
        tasks = _with_indicators(tasks, "tasks").in_label_order()
        if not len(tasks.y):
            raise ValueError("tasks: no task has a row; pass at least one task with rows")
        with restored_on_failure(self), single_threaded_blas(), single_threaded_openmp():
            self.scaling_ = self._scaling(tasks)
            self.scaling_.check(tasks.X, tasks.y, tasks.feature_names)
            self.n_features_in_ = tasks.n_features
            self._fit(tasks)
        return self

    def _scaling(self, tasks: TaskSet) -> Scaling:
        """Return the scaling that the method uses; by default, the user's units are kept."""
        return Scaling.raw(tasks.n_features)

    @abstractmethod
    def _fit(self, tasks: TaskSet) -> None:
        """Set the fitted attributes."""

    @abstractmethod
    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        """Predict the query rows."""

    def predict_rows(self, tasks: TaskSet, query: TaskSet) -> Array:
        """Predict the rows of ``query`` given the rows of ``tasks``, which has the same tasks in
        the same order.
        """
        tasks, query = self._check_new(tasks, "tasks"), self._check_new(query, "query")
        if len(query) != len(tasks):
            raise ValueError(f"query: expected the same {len(tasks)} tasks, got {len(query)}")
        with single_threaded_blas(), single_threaded_openmp():
            return self._predict(tasks, query)

    def task_errors(
        self, tasks: TaskSet, query: TaskSet, *, loss: str | Loss = "absolute"
    ) -> Array:
        """Return the mean error of each task on its rows in ``query``, given its rows in ``tasks``;
        "squared" is (y - p)².
        """
        errors = get_loss(loss).error(self.predict_rows(tasks, query), query.y)
        return task_means(errors, query.offsets, query.frequency_weight)

    def _check_new(self, tasks: TaskSet, name: str) -> TaskSet:
        """Return the tasks with categories one-hot encoded; raise ValueError if the number of
        features differs from `fit`.
        """
        check_is_fitted(self, "n_features_in_")
        tasks = _with_indicators(tasks, name)
        if tasks.n_features != self.n_features_in_:
            raise ValueError(
                f"{name}: X has {tasks.n_features} features, but {type(self).__name__} was fitted "
                "with "
                f"{self.n_features_in_}"
            )
        self.scaling_.check(tasks.X, tasks.y, tasks.feature_names)
        return tasks

    def _fit_side(self, tasks: TaskSet) -> None:
        self._encoder = None if tasks.side_info is None else SideVector().fit(tasks)

    def _side(self, tasks: TaskSet) -> Array:
        """Return the side information as numbers, (n_tasks, q); q is 0 if `fit` had no side
        information.
        """
        return (
            np.zeros((len(tasks), 0)) if self._encoder is None else self._encoder.transform(tasks)
        )

    def _columns(self, tasks: TaskSet) -> Array:
        """Return the features of each row, followed by the side information of its task."""
        return np.hstack([dense(tasks.X), np.repeat(self._side(tasks), tasks.sizes, axis=0)])


def _with_indicators(tasks: TaskSet, name: str) -> TaskSet:
    if not isinstance(tasks, TaskSet):
        raise TypeError(f"{name}: expected a TaskSet, got {type(tasks).__name__}")
    return tasks.with_indicators()


class LinearBaseline(Baseline):
    """Base class of baselines whose predictions are linear in the features of a row."""

    def adapt_many(self, tasks: TaskSet) -> Array:
        """Return the coefficients of every task, (n_tasks, d + 1), the intercept last."""
        tasks = self._check_new(tasks, "tasks")
        with single_threaded_blas():
            return self._adapt(tasks)

    @abstractmethod
    def _adapt(self, tasks: TaskSet) -> Array:
        """Return the coefficients of every task."""

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        return predictions(Rows.of(query, True), self._adapt(support))

    def _error(self, weights: Array, query: TaskSet) -> float:
        """Return the mean absolute error of query rows, given the coefficients of their tasks."""
        predicted = predictions(Rows.of(query, True), weights)
        return mean_error(np.abs(predicted - query.y), query.offsets)


class TaskMean(LinearBaseline):
    """Predict the mean target of the task's own rows; without rows, the mean of all training
    targets.
    """

    def _fit(self, tasks: TaskSet) -> None:
        self.mean_ = float(np.average(tasks.y, weights=tasks.row_weights))

    def _adapt(self, tasks: TaskSet) -> Array:
        means = task_means(tasks.y, tasks.offsets, tasks.row_weights)
        means = np.where(tasks.sizes > 0, means, self.mean_)
        return np.column_stack([np.zeros((len(tasks), tasks.n_features)), means])


class RidgePerTask(TaskMean):
    """Ridge regression on the support rows of each task alone, with the same penalty for all tasks.

    The coefficients minimise ``‖Xw + c − y‖² + λ‖w‖²``.  λ is selected by the mean absolute error
    on held-out rows.  For a task without rows, the mean of all training targets is predicted.
    """

    def _fit(self, tasks: TaskSet) -> None:
        super()._fit(tasks)
        support, query = tasks.support_query(0.5, random_state=0)
        errors = [self._error(weights, query) for weights in self._path(support, RIDGE_ALPHAS)]
        self.alpha_ = float(RIDGE_ALPHAS[np.argmin(errors)])

    def _path(self, tasks: TaskSet, alphas: Array) -> Array:
        """Return the coefficients of every task for every penalty, (n_alphas, n_tasks, d + 1)."""
        weights = np.tile(super()._adapt(tasks), (len(alphas), 1, 1))
        for t in np.flatnonzero(tasks.sizes):
            one = tasks[t : t + 1]
            weights[:, t] = _ridge_path(one, dense(one.X), alphas)
        return weights

    def _adapt(self, tasks: TaskSet) -> Array:
        return np.asarray(self._path(tasks, np.array([self.alpha_]))[0])


class PooledRidge(LinearBaseline):
    """One ridge regression for all tasks, with side information and an offset for each task.

    ``y = <x, w> + μ + o_t``, where x has the side information as further columns.  w and μ are
    estimated from all rows. The offset o_t of a task with n rows is the sum of its residuals
    divided by n + κ.  λ and κ are selected as in `RidgePerTask`.
    """

    def _fit(self, tasks: TaskSet) -> None:
        self._fit_side(tasks)
        support, query = tasks.support_query(0.5, random_state=0)
        path = _ridge_path(support, self._columns(support), RIDGE_ALPHAS)
        pairs = list(product(range(len(path)), SHRINKAGES))
        errors = [
            self._error(self._with_offsets(support, path[i], kappa), query) for i, kappa in pairs
        ]
        i, self.shrinkage_ = pairs[int(np.argmin(errors))]
        self.alpha_ = float(RIDGE_ALPHAS[i])
        self.weights_ = _ridge_path(tasks, self._columns(tasks), RIDGE_ALPHAS[[i]])[0]

    def _with_offsets(self, tasks: TaskSet, weights: Array, shrinkage: float) -> Array:
        d = tasks.n_features
        intercepts = self._side(tasks) @ weights[d:-1] + weights[-1]
        residuals = tasks.y - tasks.X @ weights[:d] - np.repeat(intercepts, tasks.sizes)
        own = np.ones(len(tasks.y)) if tasks.row_weights is None else tasks.row_weights
        n_rows = segment_sums(own, tasks.offsets) + shrinkage
        intercepts += segment_sums(own * residuals, tasks.offsets) / np.maximum(n_rows, 1e-300)
        return np.column_stack([np.tile(weights[:d], (len(tasks), 1)), intercepts])

    def _adapt(self, tasks: TaskSet) -> Array:
        return self._with_offsets(tasks, self.weights_, self.shrinkage_)


def _ridge_path(tasks: TaskSet, X: Array, alphas: Array) -> Array:
    """Return the minimisers (w, c) of ``‖Xw + c − y‖² + λ‖w‖²`` for all λ, (n_alphas, d + 1).

    Squares are weighted by the weights of the rows, if there are any.  Without rows of positive
    weight, return zeros.
    """
    y = tasks.y
    own = np.ones(len(y)) if tasks.row_weights is None else tasks.row_weights
    if not own.any():
        return np.zeros((len(alphas), X.shape[1] + 1))
    shift, level = np.average(X, axis=0, weights=own), np.average(y, weights=own)
    roots = np.sqrt(own)
    U, sizes, V = np.linalg.svd(roots[:, None] * (X - shift), full_matrices=False)
    weights = ((U.T @ (roots * (y - level))) * sizes / (sizes**2 + alphas[:, None])) @ V
    return np.column_stack([weights, level - weights @ shift])


@dataclass(kw_only=True, eq=False, repr=False)
class MixedModel(LinearBaseline):
    """A linear mixed model with correlated random slopes and fixed effects of the side information.

    ``w ~ N(b + Gs, W)``, ``y = Xw + noise of variance σ²``.  The effects G of the side information
    s are effects on the intercept alone, or on all coefficients (interactions), whichever has the
    lower AIC.  The coefficients of a task are estimated by their posterior mean.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Add a random intercept.  Without it, side information is not used.

    The fitted ``mean_`` is b, ``covariance_`` is W and ``noise_`` is σ².  The intercept is the last
    coefficient.
    """

    fit_intercept: bool = True

    def _scaling(self, tasks: TaskSet) -> Scaling:
        return Scaling.of(tasks, self.fit_intercept, centre=True)

    def _fit(self, tasks: TaskSet) -> None:
        self._encoder = None
        if self.fit_intercept:
            self._fit_side(tasks)
        side, units = super()._side(tasks), self.scaling_
        self.side_mean_, deviations = side.mean(axis=0), side.std(axis=0)
        self.side_scale_ = np.where(deviations > 0.0, deviations, 1.0)
        statistics, q = statistics_of(tasks, units, self._side(tasks)), side.shape[1]
        self.model_, best = fit_mixed_model(statistics), -np.inf
        for intercept_only in (True, False) if q else ():
            effect = Effect(0, intercept_only=intercept_only, relevance=FLAT)
            group = Group(0, False, np.arange(q), np.eye(q))
            fit = fit_side(statistics, SideStructure((effect,)), [group], max_iter=300, tol=1e-6)
            model = replace(fit.rest, side=fit.Gamma)
            n_effects = q * (1 if intercept_only else statistics.n_features)
            score = float(statistics.posterior(model).log_evidence.sum()) - n_effects
            if score > best:
                self.model_, best = model, score
        self.mean_ = units.raw_weights(self.model_.means[0])
        self.covariance_ = units.raw_representation(self.model_.covariances[0]) * units.target**2
        self.noise_ = self.model_.noise * units.target**2

    def _side(self, tasks: TaskSet) -> Array:
        """Return the side information, standardised with the mean and standard deviation of the
        training tasks.
        """
        return np.asarray((super()._side(tasks) - self.side_mean_) / self.side_scale_)

    def _adapt(self, tasks: TaskSet) -> Array:
        means = [
            statistics_of(batch, self.scaling_, self._side(batch))
            .posterior(self.model_, Want(means=True))
            .mean
            for batch in batches(tasks)
        ]
        weights = self.scaling_.raw_weights(np.concatenate(means))
        return weights if self.fit_intercept else np.hstack([weights, np.zeros((len(weights), 1))])


@dataclass(kw_only=True, eq=False, repr=False)
class PooledBoosting(Baseline):
    """Gradient boosting on the rows of all tasks, with side information.

    Its columns are the features, the side information, and the mean target and the number of the
    task's support rows. For training, support rows of each task are drawn several times, in
    different numbers, and each time the model is trained on the other rows.  The number of trees,
    at most ``max_iter``, is selected on held-out tasks.
    """

    max_iter: int = 300
    random_state: int = 0

    def _fit(self, tasks: TaskSet) -> None:
        self._fit_side(tasks)
        rng = check_rng(self.random_state)
        n_held_out = int(np.ceil(HELD_OUT * len(tasks))) if len(tasks) > 1 else 0
        order = rng.permutation(len(tasks))
        self.n_iter_ = int(self.max_iter)
        held_out, others = tasks[order[:n_held_out]], tasks[order[n_held_out:]]
        if len(held_out.y) and len(others.y):
            model = self._boost(others, rng)
            columns, targets, _ = self._training_rows(held_out, rng)
            errors = [np.mean((stage - targets) ** 2) for stage in model.staged_predict(columns)]
            self.n_iter_ = int(np.argmin(errors)) + 1
        self.model_ = self._boost(tasks, rng)

    def _boost(
        self, tasks: TaskSet, rng: np.random.RandomState | np.random.Generator
    ) -> HistGradientBoostingRegressor:
        from sklearn.ensemble import HistGradientBoostingRegressor

        columns, targets, weights = self._training_rows(tasks, rng)
        # A column with only missing values cannot be binned.
        columns[:, np.isnan(columns).all(axis=0)] = 0.0
        # No early stopping: it holds out rows, but here the same row occurs several times.
        options: dict[str, Any] = {
            "max_iter": self.n_iter_,
            "early_stopping": False,
            "random_state": 0,
        }
        model = HistGradientBoostingRegressor(learning_rate=LEARNING_RATE, **options)
        return model.fit(columns, targets, weights)

    def _training_rows(
        self, tasks: TaskSet, rng: np.random.RandomState | np.random.Generator
    ) -> tuple[Array, Array, Array | None]:
        """Return columns, targets and weights of the query rows for each number of support rows."""
        pairs = [tasks.support_query(n, random_state=rng) for n in N_SUPPORT]
        columns = [self._columns_given(support, query) for support, query in pairs]
        weights = [query.row_weights for _, query in pairs if query.row_weights is not None]
        targets = np.concatenate([query.y for _, query in pairs])
        return np.concatenate(columns), targets, np.concatenate(weights) if weights else None

    def _columns_given(self, support: TaskSet, query: TaskSet) -> Array:
        means = task_means(support.y, support.offsets, support.row_weights)
        known = np.column_stack([means, support.n_observed])
        return np.hstack([self._columns(query), np.repeat(known, query.sizes, axis=0)])

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        if not len(query.y):
            return query.y
        return np.asarray(self.model_.predict(self._columns_given(support, query)))
