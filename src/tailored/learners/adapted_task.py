"""What adapting returns: `AdaptedTask`, a scikit-learn regressor for one task, and the coefficients
of many tasks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from .._utils.files import PathLike
from .._utils.frames import RowsLike, ValuesLike, check_target, is_frame
from .._utils.records import Stored
from .._utils.threads import single_threaded_blas, single_threaded_products
from .._utils.validation import check_finite, check_fraction
from ..files import save
from ..priors.base import Posterior, Predicted, Prior, QueryRows, needs_covariances, predict
from ..tasks.encoding import Encoding, missing_exposure
from ..tasks.rows import Array, dense
from ..tasks.task_set import TaskSet
from .reading import read_rows


def check_calibration(prior: Prior, method: str) -> None:
    """Raise ValueError if the prior has no intervals: for binary targets, and for numbers without a
    calibration.
    """
    if not prior.response.has_intervals:
        raise ValueError(f"{method}: binary targets have probabilities, not intervals; use predict")
    if not prior.has_intervals:
        raise ValueError(
            f"{method}: the learner has no calibration; use EmpiricalBayesLearner, or "
            "calibrate_intervals(tasks) with tasks it was not fitted to, and adapt again"
        )


class AdaptedTask(Stored, RegressorMixin, BaseEstimator):
    """Linear model of one task under a learned prior; `adapt` of a meta-learner returns it, fitted.

    Attributes
    ----------
    coef_ : array (d,)
        Coefficients.  Predictions may also contain curves, products of columns and effects of
        categories, which all tasks share.
    intercept_ : float
        The intercept.
    representation_, bias_ : arrays (d, d), (d,), or (d + 1, d + 1), (d + 1,) with an intercept
        The representation θ of the task and the prior mean of its weights.
    dual_gap_ : float
        Upper bound on the distance of the model's objective from its minimum; NaN for classes and
        counts.
    n_iter_ : int
        Number of iterations of the within-task solver.
    """

    coef_: Array
    intercept_: float
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _prior: Prior
    _posterior: Posterior
    _support: TaskSet
    _encoding: Encoding | None  # how to read tables of rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @classmethod
    def of(
        cls,
        prior: Prior,
        task: TaskSet,
        feature_names: NDArray[Any] | None = None,
        encoding: Encoding | None = None,
    ) -> Self:
        """Return the model of one task under a learned prior; the task may have no rows.

        ``encoding`` determines how tables of rows are read.
        """
        model = cls()
        with single_threaded_products(*task.X.shape):
            if (
                not isinstance(task.X, np.ndarray)
                or task.X.base is not None
                or task.encoding is not None
            ):
                # A view would keep the rows of all tasks in memory.
                task = task.replace(X=task.X.copy(), y=task.y.copy(), encoding=None)
            model._adapt(prior, task)
        if feature_names is not None:
            model.feature_names_in_ = feature_names
        model._encoding = encoding
        return model

    def _adapt(self, prior: Prior, support: TaskSet) -> None:
        posterior = prior.posterior(support, covariances=needs_covariances(prior, None))
        self._prior, self._support, self._posterior = prior, support, posterior
        weights = posterior.weights[0]
        self.n_features_in_ = len(weights) - prior.fit_intercept
        self.coef_ = weights[: self.n_features_in_]
        self.intercept_ = float(weights[-1]) if prior.fit_intercept else 0.0

    def update(self, X: RowsLike, y: ValuesLike, *, exposure: ValuesLike = None) -> Self:
        """Add further rows of the task to an adapted model.

        The result is that of `adapt` with all rows at once.  A call that fails does not change the
        model.

        Parameters
        ----------
        X, y : arrays (n, d), (n,)
            The further rows.
        exposure : array (n,), optional
            Exposures of these rows, if the targets are counts; required as in `adapt`.
        """
        if self._encoding is not None and is_frame(X):
            _, weights = self._encoding.read_columns(
                X, None, sample_weight=None, frequency_weight=None
            )
            if any(values is not None for values in weights.values()):
                raise ValueError(
                    "X: update takes no weights; adapt to all rows at once, or drop their column"
                )
        X, _, exposure, _ = self._inputs(X, exposure)
        if exposure is None and X.shape[0] and self._prior.has_exposure:
            raise missing_exposure(self._encoding)
        y = check_target(y, X.shape[0])
        check_finite(y, "y")
        if not len(y):
            return self
        self._prior.scaling.check(X, y)
        self._prior.loss.check_targets(y)
        rows = sparse.csr_array(X, copy=True) if self._support.is_sparse else dense(X).copy()
        values = {"sample_weight": None, "frequency_weight": None, "exposure": exposure}
        more = self._support.replace(X=rows, y=y.copy(), offsets=np.array([0, len(y)]), **values)
        with single_threaded_blas():
            self._adapt(self._prior, TaskSet.merge([self._support, more]))
        return self

    def fit(self, X: RowsLike, y: ValuesLike) -> Self:
        """Raise TypeError; tools of scikit-learn require that this method exists."""
        raise TypeError("fit: this model was adapted by a learner. Use update to add rows.")

    @property
    def representation_(self) -> Array:
        """θ, in the user's units."""
        return np.asarray(self._prior.representation(self._support)[0])

    @property
    def bias_(self) -> Array:
        """The prior mean b, in the user's units."""
        return self._prior.scaling.raw_weights(np.array(self._prior.mean(self._support)[0]))

    @property
    def dual_gap_(self) -> float:
        """Upper bound on the distance of the model's objective from its minimum."""
        return self._certificate()[0]

    @property
    def n_iter_(self) -> int:
        """Number of iterations of the within-task solver."""
        return self._certificate()[1]

    def _certificate(self) -> tuple[float, int]:
        with single_threaded_blas():
            return self._prior.certificate(self._support)

    def _inputs(self, X: RowsLike, *row_values: ValuesLike) -> QueryRows:
        """Return validated rows, with their exposures and weights; columns of tables are found by
        name.
        """
        # Rows of a `TaskSet` have no names, so no warning is needed if the learner was fitted to a
        # table.
        options = self._prior, self._encoding, X, *row_values
        rows, exposure, weight = read_rows(self, *options, may_lack_names=True)
        return QueryRows(rows, np.zeros(rows.shape[0], dtype=np.intp), exposure, weight)

    def predict(
        self, X: RowsLike, exposure: ValuesLike = None, sample_weight: ValuesLike = None
    ) -> Array:
        """Predict the rows ``X`` (n, d).

        For numeric targets, predictions are ``X @ coef_ + intercept_``, plus effects that all tasks
        share and the expected noise, if it is correlated in time.  Quantiles depend on
        ``sample_weight``. Models of counts predict the mean, ``exposure`` (n,) times the rate.  The
        losses "logistic" and "hinge" give decision values; models of a `TaskClassifier` give
        probabilities.
        """
        return self._predicted(self._inputs(X, exposure, sample_weight), None).prediction

    def predict_interval(
        self,
        X: RowsLike,
        coverage: float = 0.9,
        exposure: ValuesLike = None,
        sample_weight: ValuesLike = None,
    ) -> Array:
        """Predict intervals that contain the target of a new row with probability ``coverage``.

        The intervals are conformal over tasks: coverage is the average over new rows of new tasks
        with support rows as in ``n_support``. Intervals of counts are the shortest ones with this
        probability in the model.

        Parameters
        ----------
        X : array (n, d)
            The rows.
        coverage : float, default=0.9
            Between 0 and 1.
        exposure : array (n,), optional
            See `predict`.
        sample_weight : array (n,), optional
            The noise variance of a row of weight w is σ² / w.  By default the column used in `fit`,
            else 1.

        Returns
        -------
        array (n, 2)
            Lower and upper bounds.  With fewer than about 1 / (1 - coverage) calibration tasks,
            they are wider, and there is a warning.
        """
        check_fraction("coverage", coverage)
        rows = self._inputs(X, exposure, sample_weight)
        check_calibration(self._prior, "predict_interval")
        found = self._predicted(rows, coverage)
        return np.stack([found.lower, found.upper], axis=1)

    def predict_std(
        self, X: RowsLike, exposure: ValuesLike = None, sample_weight: ValuesLike = None
    ) -> Array:
        """Predict the standard deviation of a new target at each row, about its predicted mean.

        It combines the noise of the row and the uncertainty of the task's coefficients, given the
        fixed effects, and is calibrated on held-out tasks, except for counts.
        """
        rows = self._inputs(X, exposure, sample_weight)
        check_calibration(self._prior, "predict_std")
        # The standard deviation does not depend on the coverage. The bounds of a small coverage are
        # always finite.
        return self._predicted(rows, 0.01).std

    def _predicted(self, rows: QueryRows, coverage: float | None) -> Predicted:
        self._prior.warn_far_rows(rows.X, getattr(self, "feature_names_in_", None))
        if needs_covariances(self._prior, coverage) and self._posterior.covariances is None:
            with warnings.catch_warnings():
                # The warning was already given when the same problem was solved before.
                warnings.simplefilter("ignore", ConvergenceWarning)
                self._posterior = self._prior.posterior(self._support, covariances=True)
        with single_threaded_products(*rows.X.shape):
            return predict(self._prior, self._posterior, rows, coverage)

    def save(self, path: PathLike) -> None:
        """Write the model to one file without pickle, atomically; `tailored.load` reads it back.

        The file contains the learner's prior and the task's rows.
        """
        save(path, self)


@dataclass(frozen=True)
class AdaptedTasks:
    """Coefficients of many tasks; returned by `adapt_many`. `numpy.asarray` returns ``weights_``.

    Attributes
    ----------
    labels : array (T,)
        Labels of the tasks.
    weights_ : array (T, d), or (T, d + 1) with an intercept, which is last
        All coefficients.
    coef_ : array (T, d)
        Coefficients without the intercept.
    intercept_ : array (T,)
        Intercepts.
    """

    labels: NDArray[Any]
    weights_: Any = field(repr=False)
    has_intercept: bool

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.weights_, dtype=dtype)

    @property
    def coef_(self) -> Any:
        return self.weights_[:, :-1] if self.has_intercept else self.weights_

    @property
    def intercept_(self) -> Any:
        return self.weights_[:, -1] if self.has_intercept else 0.0 * self.weights_[:, 0]
