"""Baselines: scikit-learn's estimators that one would try first, in a table of names.

`BASELINES` has those for numbers, classes and counts.  `tailored.evaluate` compares a learner with
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.preprocessing import StandardScaler

from ..learners.empirical_bayes import EmpiricalBayesLearner
from ..paper.feature_maps import ridge
from ..tasks.features import SideVector
from ..tasks.rows import Array, dense, segment_sums
from ..tasks.task_set import TaskSet


class Baseline(BaseEstimator):
    """Predict rows of new tasks by a scikit-learn estimator.

    The estimator is fitted to the standardised rows of all tasks or, with ``per_task``, to the
    support rows of each task alone.  In both cases it gets one further row: the mean of all rows,
    with the mean target.  For classes, this row has every class as its target, with the frequency
    of the class as its weight.  So there is a prediction without rows.

    Parameters
    ----------
    estimator : scikit-learn regressor or classifier
        Classes are 0, 1, ..., and predictions are their probabilities, (n, K).  With exposures,
        targets are rates.
    per_task : bool, default=False
        Fit to the support rows of each task alone.  Otherwise side information is added as further
        columns.
    offset : bool, default=False
        Add the best linear prediction of a random intercept from the residuals of the support rows.
        Its variances are those between and within tasks of residuals in a cross-validation over
        tasks.
    alphas : sequence of float
        Penalties to choose from, by the squared errors on half of the rows of 100 training tasks.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        per_task: bool = False,
        offset: bool = False,
        alphas: Sequence[float] = (),
    ) -> None:
        self.estimator = estimator
        self.per_task = per_task
        self.offset = offset
        self.alphas = alphas

    def fit(self, tasks: TaskSet) -> Self:
        """Fit to training tasks."""
        # Sums and folds depend on the order of the tasks, so use an order that depends on the
        # labels alone.
        tasks = tasks[tasks.sizes > 0].in_label_order()
        reads_side = tasks.side_info is not None and not self.per_task
        self.encoder_ = SideVector().fit(tasks) if reads_side else None
        self.mean_, self.scale_ = np.zeros(1), np.ones(1)
        X, y, weights = self._rows(tasks)
        scaler = StandardScaler().fit(X)
        self.mean_, self.scale_, X = scaler.mean_, scaler.scale_, scaler.transform(X)
        self.targets_, self.weights_ = np.array([np.average(y, weights=weights)]), np.ones(1)
        if is_classifier(self.estimator):
            names = () if tasks.encoding is None else tasks.encoding.classes
            self.targets_ = np.arange(float(len(names) or y.max() + 1))
            # Half an observation more of each class, so that no frequency is 0.
            counts = weights @ (y[:, None] == self.targets_) + 0.5
            self.weights_ = counts / counts.sum()
        self.estimator_ = clone(self.estimator)
        if len(self.alphas):
            support, query = tasks[:100].support_query(0.5, random_state=0)

            def error(alpha: float) -> float:
                self.estimator_.set_params(alpha=alpha)
                return float(np.mean((self.predict_rows(support, query) - query.y) ** 2))

            self.estimator_.set_params(alpha=min(self.alphas, key=error))
        self.within_, self.between_ = 1.0, 0.0
        if self.offset and len(tasks) > 1 and tasks.sizes.max() > 1:
            self._estimate_variances(tasks, X, y, weights)
        if not self.per_task:
            self._fit_rows(X, y, weights)
        return self

    def _estimate_variances(self, tasks: TaskSet, X: Array, y: Array, weights: Array) -> None:
        """Estimate the variances of residuals between and within tasks, by the moments of one-way
        analysis of variance.
        """
        options: Any = {"groups": tasks.task_of_row, "cv": GroupKFold(min(3, len(tasks)))}
        options["params"] = {"sample_weight": weights}
        residuals = y - cross_val_predict(self.estimator, X, y, **options)
        sizes = segment_sums(weights, tasks.offsets)
        means = segment_sums(weights * residuals, tasks.offsets) / sizes
        deviations = residuals - means[tasks.task_of_row]
        self.within_ = float(weights @ deviations**2 / (weights.sum() - len(tasks)))
        self.between_ = max(float(means.var() - self.within_ * np.mean(1.0 / sizes)), 0.0)

    def predict_rows(self, support: TaskSet, query: TaskSet) -> Array:
        """Predict the rows of ``query`` given the rows of ``support``, which has the same tasks in
        the same order.
        """
        (X, y, weights), new = self._rows(support), self._rows(query)[0]
        if self.per_task:
            parts = []
            for t in range(len(support)):
                own = slice(*support.offsets[t : t + 2])
                self._fit_rows(X[own], y[own], weights[own])
                parts.append(self._means(new[slice(*query.offsets[t : t + 2])]))
            predicted = np.concatenate(parts)
        else:
            predicted = self._means(new)
        if self.offset and len(X):
            sums = segment_sums(weights * (y - self._means(X)), support.offsets)
            sizes = segment_sums(weights, support.offsets)
            offsets = self.between_ * sums / (self.between_ * sizes + self.within_ + 1e-300)
            predicted = predicted + np.repeat(offsets, query.sizes)
        return predicted if query.exposure is None else predicted * query.exposure

    def _rows(self, tasks: TaskSet) -> tuple[Array, Array, Array]:
        """Return the standardised features and side information of each row, the target (a rate if
        there are exposures), and the weight.
        """
        tasks = tasks.with_indicators()
        X = dense(tasks.X) if tasks.n_features else np.zeros((len(tasks.y), 1))
        if self.encoder_ is not None:
            side = self.encoder_.transform(tasks)
            X = np.hstack([X, np.repeat(side, tasks.sizes, axis=0)])
        exposure = 1.0 if tasks.exposure is None else tasks.exposure
        weights = np.ones(len(tasks.y)) if tasks.row_weights is None else tasks.row_weights
        return (X - self.mean_) / self.scale_, tasks.y / exposure, weights * exposure

    def _fit_rows(self, X: Array, y: Array, weights: Array) -> None:
        """Fit the estimator to rows and to the mean of all training rows."""
        X = np.vstack([X, np.zeros((len(self.targets_), X.shape[1]))])
        y, weights = np.append(y, self.targets_), np.append(weights, self.weights_)
        self.estimator_.fit(X, y, sample_weight=weights)

    def _means(self, X: Array) -> Array:
        """Return predicted means, or probabilities of the classes."""
        is_class = is_classifier(self.estimator_)
        return np.asarray(
            self.estimator_.predict_proba(X) if is_class else self.estimator_.predict(X)
        )


class FastRidge(RegressorMixin, BaseEstimator):
    """Ridge regression without scikit-learn's checks, which take longer than a fit to a few
    rows.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def fit(self, X: Array, y: Array, sample_weight: Array) -> Self:
        roots = np.sqrt(sample_weight)
        self.centre_, self.mean_ = (np.average(each, 0, sample_weight) for each in (X, y))
        Z, r = roots[:, None] * (X - self.centre_), roots * (y - self.mean_)
        self.coef_ = ridge(Z, r, self.alpha)
        return self

    def predict(self, X: Array) -> Array:
        return np.asarray((X - self.centre_) @ self.coef_ + self.mean_)


#: The baselines by the kind of the target and by their names in tables.
BASELINES: dict[str, dict[str, Any]] = {
    "numbers": {
        "task mean": Baseline(DummyRegressor(), per_task=True),
        "ridge per task": Baseline(
            FastRidge(), per_task=True, alphas=(0.1, 1.0, 10.0, 100.0, 1000.0)
        ),
        "pooled ridge": Baseline(FastRidge(), offset=True),
        "pooled boosting": Baseline(HistGradientBoostingRegressor(random_state=0), offset=True),
        "mixed model": EmpiricalBayesLearner(covariance="full"),
    },
    "classes": {
        "constant": Baseline(DummyClassifier(strategy="prior")),
        "pooled regression": Baseline(LogisticRegression(max_iter=1000)),
        "regression per task": Baseline(LogisticRegression(max_iter=1000), per_task=True),
    },
    "counts": {
        "constant": Baseline(DummyRegressor()),
        "pooled regression": Baseline(PoissonRegressor(alpha=1e-4, max_iter=1000)),
        "regression per task": Baseline(PoissonRegressor(alpha=0.1), per_task=True),
    },
}

#: What each baseline does, by its name in tables.
DESCRIPTIONS = {
    "task mean": "mean of the support rows and of one row with the overall mean.",
    "ridge per task": "ridge regression on the support rows of each task alone.",
    "pooled ridge": "one ridge regression for all tasks, with side information and task offsets.",
    "pooled boosting": (
        "gradient boosting on the rows of all tasks, with side information and task offsets."
    ),
    "mixed model": "linear mixed model with correlated random slopes, and side information.",
    "constant": "class frequencies, or the rate, of the training tasks.",
    "pooled regression": "one logistic or Poisson regression for all tasks, with side information.",
    "regression per task": "logistic or Poisson regression on the support rows of each task alone.",
}
