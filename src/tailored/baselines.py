"""Baselines: simple methods to compare a learner with.

A baseline is fitted to many tasks.  It predicts rows of new tasks from a few observed rows of each.  `BASELINES` and, for
classes and counts, `RESPONSE_BASELINES` list the baselines by name.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ._utils.records import restored_on_failure
from ._utils.threads import single_threaded_blas, single_threaded_openmp
from ._utils.validation import check_rng, name_some, native
from .feature_maps import SideVector
from .gaussian.em import fit_mixed_model
from .gaussian.mixture import Want
from .gaussian.responses import RESPONSES, Bernoulli, Response
from .gaussian.rows import statistics_of
from .gaussian.side import Effect, Group, SideStructure, fit_side
from .losses import Loss, error_name, get_loss
from .tasks.rows import (
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
from .tasks.task_set import TaskSet

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

__all__ = [
    "BASELINES",
    "RESPONSE_BASELINES",
    "Baseline",
    "Constant",
    "LinearBaseline",
    "MixedModel",
    "PooledBoosting",
    "PooledRegression",
    "PooledRidge",
    "RegressionPerTask",
    "RidgePerTask",
    "TaskMean",
]

#: Candidates for the ridge parameter.
RIDGE_ALPHAS = np.logspace(-4, 4, 17)
#: Candidates for κ, the number of pseudo-rows that shrink the offset of a task towards zero.
SHRINKAGES = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
#: Prior variance of the effects of side information in `MixedModel`, relative to that of the random effects; the prior
#: is almost flat.
FLAT = 1e4
#: `PooledBoosting`: learning rate, numbers or fraction of support rows of a training task, and fraction of held-out tasks.
LEARNING_RATE, N_SUPPORT, HELD_OUT = 0.05, (0, 1, 2, 5, 0.5), 0.2
#: Probabilities are clipped to at least this value, so that no row has an infinite log loss.
SMALLEST_PROBABILITY = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(BaseEstimator):
    """Base class of baselines, which are fitted to many tasks and predict rows of new tasks."""

    scaling_: Scaling = field(init=False)
    _encoder: SideVector | None = field(init=False, default=None)

    def fit(self, tasks: TaskSet) -> Self:
        """Estimate the parameters that all tasks share.  If this raises an error, the baseline is unchanged."""
        # Random draws and rounding depend on the order of the tasks, so use an order that depends on the labels alone.
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
        """Predict the rows of ``query`` given the rows of ``tasks``, which has the same tasks in the same order."""
        tasks, query = self._check_new(tasks, "tasks"), self._check_new(query, "query")
        if len(query) != len(tasks):
            raise ValueError(f"query: expected the same {len(tasks)} tasks, got {len(query)}")
        with single_threaded_blas(), single_threaded_openmp():
            return self._predict(tasks, query)

    def task_errors(
        self, tasks: TaskSet, query: TaskSet, *, loss: str | Loss = "absolute"
    ) -> Array:
        """Return the mean error of each task on its rows in ``query``, given its rows in ``tasks``; "squared" is (y - p)²."""
        by_name = scores(self.predict_rows(tasks, query), query.y, get_loss(loss))
        return task_means(next(iter(by_name.values())), query.offsets, query.frequency_weight)

    def _check_new(self, tasks: TaskSet, name: str) -> TaskSet:
        """Return the tasks with categories one-hot encoded; raise ValueError if the number of features differs from `fit`."""
        check_is_fitted(self, "n_features_in_")
        tasks = _with_indicators(tasks, name)
        if tasks.n_features != self.n_features_in_:
            raise ValueError(
                f"{name}: X has {tasks.n_features} features, but {type(self).__name__} was fitted with "
                f"{self.n_features_in_}"
            )
        self.scaling_.check(tasks.X, tasks.y, tasks.feature_names)
        return tasks

    def _fit_side(self, tasks: TaskSet) -> None:
        self._encoder = None if tasks.side_info is None else SideVector().fit(tasks)

    def _side(self, tasks: TaskSet) -> Array:
        """Return the side information as numbers, (n_tasks, q); q is 0 if `fit` had no side information."""
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
    """Predict the mean target of the task's own rows; without rows, the mean of all training targets."""

    def _fit(self, tasks: TaskSet) -> None:
        self.mean_ = float(np.average(tasks.y, weights=tasks.row_weights))

    def _adapt(self, tasks: TaskSet) -> Array:
        means = task_means(tasks.y, tasks.offsets, tasks.row_weights)
        means = np.where(tasks.sizes > 0, means, self.mean_)
        return np.column_stack([np.zeros((len(tasks), tasks.n_features)), means])


class RidgePerTask(TaskMean):
    """Ridge regression on the support rows of each task alone, with the same penalty for all tasks.

    The coefficients minimise ``‖Xw + c − y‖² + λ‖w‖²``.  λ is selected by the mean absolute error on held-out rows.  For a
    task without rows, the mean of all training targets is predicted.
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

    ``y = <x, w> + μ + o_t``, where x has the side information as further columns.  w and μ are estimated from all rows.
    The offset o_t of a task with n rows is the sum of its residuals divided by n + κ.  λ and κ are selected as in
    `RidgePerTask`.
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

    Squares are weighted by the weights of the rows, if there are any.  Without rows of positive weight, return zeros.
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

    ``w ~ N(b + Gs, W)``, ``y = Xw + noise of variance σ²``.  The effects G of the side information s are effects on the
    intercept alone, or on all coefficients (interactions), whichever has the lower AIC.  The coefficients of a task are
    estimated by their posterior mean.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Add a random intercept.  Without it, side information is not used.

    The fitted ``mean_`` is b, ``covariance_`` is W and ``noise_`` is σ².  The intercept is the last coefficient.
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
        """Return the side information, standardised with the mean and standard deviation of the training tasks."""
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

    Its columns are the features, the side information, and the mean target and the number of the task's support rows.
    For training, support rows of each task are drawn several times, in different numbers, and each time the model is
    trained on the other rows.  The number of trees, at most ``max_iter``, is selected on held-out tasks.
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


class PooledRegression(Baseline):
    """Logistic or Poisson regression on the rows of all tasks; its columns are the features and the side information.

    Columns are standardised, and slopes have the penalty ½‖w‖².  A pseudo-row at the mean of the columns keeps
    probabilities away from 0 and 1.  Its target is the class frequencies, or the mean, of the training rows.

    Parameters
    ----------
    loss : {"bernoulli", "poisson", "negative_binomial"}, default="bernoulli"
        With "bernoulli", targets are class indices 0, 1, ..., and predictions are the probability of each class, (n, K).
        Otherwise targets are counts, and predictions are their means.
    """

    def __init__(self, loss: str = "bernoulli") -> None:
        self.loss = loss

    def _fit(self, tasks: TaskSet) -> None:
        from sklearn.preprocessing import StandardScaler

        loss = find_loss(self.loss)
        names = () if tasks.encoding is None else tasks.encoding.classes
        classes = np.arange(len(names)) if names else np.unique(tasks.y)
        self.classes_ = classes if isinstance(loss, Bernoulli) else None
        if self.classes_ is not None and (
            len(classes) < 2 or list(classes) != list(range(len(classes)))
        ):
            found = name_some(native(classes))
            raise ValueError(
                f"tasks: targets must be 0, 1, ... for at least two classes; got {found}"
            )
        y, weights, _ = self._targets(tasks)
        # Add half an observation of each class, or half an event, so that no frequency or mean is 0.
        if self.classes_ is None:
            loss.check_targets(tasks.y)
            self.mean_ = np.array([(weights @ y + 0.5) / weights.sum()])
        else:
            counts = weights @ (y[:, None] == self.classes_) + 0.5
            self.mean_ = counts / counts.sum()
        self._fit_side(tasks)
        self.scaler_ = StandardScaler().fit(self._columns(tasks))
        # A constant column has the scale 1, which leaves rounding errors of 1e44 if the constant is 1e60.
        self.scaler_.scale_ = np.maximum(self.scaler_.scale_, 1e-13 * np.abs(self.scaler_.mean_))
        self.model_ = self._regression(tasks)

    def _targets(self, tasks: TaskSet) -> tuple[Array, Array, Array]:
        """Return targets (classes or rates), weights multiplied by exposures, and exposures."""
        ones = np.ones(len(tasks.y))
        weights = ones if tasks.row_weights is None else tasks.row_weights
        exposures = ones if tasks.exposure is None or self.classes_ is not None else tasks.exposure
        return tasks.y / exposures, weights * exposures, exposures

    def _regression(self, tasks: TaskSet) -> Any:
        """Fit the regression to the rows of these tasks and the pseudo-row."""
        from sklearn.linear_model import LogisticRegression, PoissonRegressor

        y, weights, _ = self._targets(tasks)
        pseudo, shares = (
            (self.mean_, np.ones(1)) if self.classes_ is None else (self.classes_, self.mean_)
        )
        X = self.scaler_.transform(self._columns(tasks))
        X, y = np.vstack([X, np.zeros((len(pseudo), X.shape[1]))]), np.append(y, pseudo)
        weights = np.append(weights, shares)
        if self.classes_ is not None:
            return LogisticRegression(max_iter=1000).fit(X, y, weights)
        poisson = PoissonRegressor(
            alpha=1.0 / weights.sum(), solver="newton-cholesky", max_iter=1000
        )
        return poisson.fit(X, y, weights)

    def _means(self, model: Any, tasks: TaskSet) -> Array:
        """Return the predicted probabilities or means of the rows; if ``model`` is None, predict the training mean."""
        if model is None:
            found = np.tile(self.mean_, (len(tasks.y), 1))
        else:
            X = self.scaler_.transform(self._columns(tasks))
            found = model.predict(X)[:, None] if self.classes_ is None else model.predict_proba(X)
        return found if self.classes_ is not None else found[:, 0] * self._targets(tasks)[2]

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        return self._means(self.model_, query)


class Constant(PooledRegression):
    """Predict the training frequencies of the classes, or for counts the training rate times the exposure of each row."""

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        return self._means(None, query)


class RegressionPerTask(PooledRegression):
    """Logistic or Poisson regression on the support rows of each task, with a pseudo-row at the training mean.

    The pseudo-row shrinks predictions for a task with few rows, or with one class, towards the training frequencies or
    mean.
    """

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        parts = (
            self._means(self._regression(support[[t]]) if n else None, query[[t]])
            for t, n in enumerate(support.sizes)
        )
        return np.concatenate([self._means(None, query[:0]), *parts])


def find_loss(loss: str | Loss) -> Loss:
    """Return the loss with this name, which may be one for classes or counts; a loss is returned unchanged."""
    return RESPONSES[loss]() if isinstance(loss, str) and loss in RESPONSES else get_loss(loss)


def class_probabilities(table: NDArray[np.void]) -> Array:
    """Return the probability of each class, (n, K), from the structured array of a classifier's ``predict_tasks``."""
    columns = [table[name] for name in (table.dtype.names or ())[1:]]
    return np.column_stack(columns if len(columns) > 1 else [1.0 - columns[0], columns[0]])


def scores(prediction: Array, y: Array, loss: Loss) -> dict[str, Array]:
    """Return the scores of each row by name, the loss first; for classes, predictions are probabilities (n, K)."""
    if prediction.ndim == 1:
        by_name = {error_name(loss.name): loss.error(prediction, y)}
        return by_name | (
            {"absolute error": np.abs(prediction - y)} if isinstance(loss, Response) else {}
        )
    K = prediction.shape[1]
    observed = y[:, None] == np.arange(K)
    own = np.clip(
        (prediction * observed).sum(axis=1), SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY
    )
    brier = ((prediction - observed) ** 2).sum(axis=1) / (2.0 if K == 2 else 1.0)
    return {
        "log loss": -np.log(own),
        "Brier score": brier,
        "accuracy": 1.0 * (prediction.argmax(axis=1) == y),
    }


#: The baselines by their names in tables.
BASELINES: dict[str, type[Baseline]] = {
    "task mean": TaskMean,
    "ridge per task": RidgePerTask,
    "pooled ridge": PooledRidge,
    "pooled boosting": PooledBoosting,
    "mixed model": MixedModel,
}
#: The baselines for classes and counts, by their names in tables.
RESPONSE_BASELINES: dict[str, type[PooledRegression]] = {
    "constant": Constant,
    "pooled regression": PooledRegression,
    "regression per task": RegressionPerTask,
}
