"""One task's fitted linear model: an ordinary scikit-learn regressor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from . import within
from ._threads import single_threaded_blas
from ._validation import check_choice, check_clip, check_fraction, check_psd
from .adapting import one_task, put_together
from .intervals import Calibration, spreads
from .losses import get_loss
from .prior import Prior
from .tasks import TaskSet, Units
from .tasks.rows import dense_rows

Array = NDArray[np.float64]


class _Known(NamedTuple):
    """What intervals need of a task that a meta-learner adapted to: rows, θ and weights in ``units``."""

    X: Array
    y: Array
    theta: Array
    weights: Array
    units: Units
    calibration: Calibration
    quantile: float | None

    def spreads(self, x: Array) -> Array:
        """The spread of rows in these units."""
        return spreads(self.X, self.y, self.theta, self.weights, x, self.calibration.noise)


class TaskRegressor(RegressorMixin, BaseEstimator):
    """Linear model of one task under a given representation.

    Minimises ``1/n Σ ℓ(<x_i, w>, y_i) + ½ (w − b)ᵀ θ† (w − b)`` over w in b + Ran(θ) (the paper's
    Eq. RERM_feature, with a prior mean b).  `adapt` of a meta-learner returns one of these, fitted.

    Parameters
    ----------
    representation : array (d, d), optional
        θ, positive semidefinite; the identity when absent.
    bias : array (d,), optional
        The prior mean b; zero when absent.
    loss : str or Loss, default="absolute"
    inner : {"exact", "online"}, default="exact"
        Certified minimisation in the dual, or the paper's one-pass variant.
    fit_intercept : bool, default=False
        Append a constant column, the last feature of ``representation`` and ``bias``.
    tol : float, default=1e-8
        The exact solve stops when ``dual_gap_ <= tol * P(0)``, P(0) being the objective at w = b.
    max_iter : int, default=1000
    clip : None, "train" or pair (low, high), default=None
        Clip predictions to this range, or to that of the targets in `fit`.

    Attributes
    ----------
    coef_ : array (d,)
    intercept_ : float
        Both are those of the tailored part, where a learner has a common part: predictions are the sum of the two.
    representation_ : array (d, d), or (d + 1, d + 1) with an intercept
    dual_gap_ : float
        Certificate: the objective of this model is at most this far from the minimum.
    n_iter_ : int
    """

    _known: _Known | None = None
    _adapted = False
    _common: Callable[[Any], Array] | None = None  # what all tasks share, at rows of this task

    def __init__(
        self,
        representation: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        *,
        loss: Any = "absolute",
        inner: str = "exact",
        fit_intercept: bool = False,
        tol: float = 1e-8,
        max_iter: int = 1000,
        clip: Any = None,
    ) -> None:
        self.representation = representation
        self.bias = bias
        self.loss = loss
        self.inner = inner
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.clip = clip

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # With θ = I and a Lipschitz loss the model is heavily regularised by construction.
        tags.regressor_tags.poor_score = True
        return tags

    @classmethod
    def adapted(cls, prior: Prior, task: TaskSet, feature_names: Any = None) -> Self:
        """The model of one task under a learned prior, fitted to the task's rows (there may be none)."""
        rows, theta, mean = one_task(prior, task)
        units = prior.units
        solution = within.solve(
            rows.X,
            rows.y,
            theta,
            prior.loss,
            inner=prior.inner,
            offset=None if mean is None else rows.X @ mean,
            tol=prior.tol,
            max_iter=prior.max_iter,
        )
        weights = solution.coef if mean is None else solution.coef + mean
        shown = units.raw_representation(theta)
        model = cls(
            shown,
            None if mean is None else units.raw_weights(mean),
            loss=prior.loss,
            inner=prior.inner,
            fit_intercept=prior.fit_intercept,
            tol=prior.tol,
            max_iter=prior.max_iter,
            clip=prior.clip,
        )
        model.clip_ = prior.clip
        if prior.common is not None:
            model._common = prior.common.of_task(task)
        # of the squared loss, where the units are not the user's own
        solution = solution._replace(gap=solution.gap * units.target**2)
        model._store(units.raw_weights(weights), shown, solution)
        if prior.calibration is not None:
            # Copies: the rows are the user's, who may change them before asking for intervals.
            rows = rows._replace(X=rows.X.copy(), y=rows.y.copy())
            model._known = _Known(rows.X, rows.y, theta, weights, units, prior.calibration, prior.quantile)
        model._adapted = True
        if feature_names is not None:
            model.feature_names_in_ = feature_names
        return model

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the task's rows ``X`` (n, d), ``y`` (n,)."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        loss = get_loss(self.loss)
        loss.check_targets(y)
        check_choice("inner", self.inner, within.WITHIN)
        self.clip_ = check_clip(self.clip, y)
        rows = np.ascontiguousarray(dense_rows(X, self.fit_intercept))
        d = rows.shape[1]
        theta = (
            np.eye(d) if self.representation is None else check_psd(self.representation, "representation", d)
        )
        bias = np.zeros(d) if self.bias is None else np.asarray(self.bias, dtype=float)
        if bias.shape != (d,) or not np.isfinite(bias).all():
            raise ValueError(f"bias: expected {d} finite numbers, got an array of shape {bias.shape}")
        with single_threaded_blas():
            solution = within.solve(
                rows,
                np.ascontiguousarray(y),
                theta,
                loss,
                inner=self.inner,
                offset=rows @ bias,
                tol=self.tol,
                max_iter=self.max_iter,
            )
        self._store(solution.coef + bias, theta, solution)
        # What a meta-learner knew of another fit.
        self._known = self._common = None
        return self

    def _store(self, weights: Array, theta: Array, solution: within.WithinSolution) -> None:
        if self.fit_intercept:
            self.coef_, self.intercept_ = weights[:-1], float(weights[-1])
        else:
            self.coef_, self.intercept_ = weights, 0.0
        self.representation_ = theta
        self.dual_gap_ = float(solution.gap)
        self.n_iter_ = int(solution.n_iter)
        self.n_features_in_ = len(self.coef_)

    def _inputs(self, X: Any) -> Any:
        """Rows checked against those of `fit`; frames by their names."""
        if self._adapted and type(X) is np.ndarray:
            # The rows of a `TaskSet` have no names, and came from a frame all the same: no reason to warn.
            checked = check_array(X, dtype=np.float64, input_name="X")
            if checked.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {checked.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input"
                )
            return checked
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)

    def predict(self, X: Any) -> Array:
        """``X @ coef_ + intercept_``, plus the common part where the learner has one, clipped on request.

        Decision values for classification losses.  A model that `EmpiricalBayesLearner` adapted under a pinball loss
        adds to that, row by row, what makes it the quantile asked for: so many times the row's spread as held-out
        tasks needed.
        """
        check_is_fitted(self, "coef_")
        X = self._inputs(X)
        found = np.asarray(X @ self.coef_ + self.intercept_)
        known = self._known
        if known is not None and known.quantile is not None:
            reach = known.calibration.quantile(len(known.y), known.quantile)
            found += known.units.target * reach * known.spreads(known.units.dense(X))
        return self._put_together(found, X)

    def _put_together(self, tailored: Array, X: Any) -> Array:
        return put_together(tailored, None if self._common is None else self._common(X), self.clip_)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Intervals that contain the target of a new row with probability ``coverage``.

        Conformal over tasks (`tailored.intervals`): the probability is that of a new row of a new task from
        the environment of the calibration tasks, averaged over such tasks; which rows are given and which are
        asked for is what ``order`` says, random ones or the first and later ones.

        Parameters
        ----------
        X : array (n, d)
        coverage : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        array (n, 2)
            Lower and upper ends, inside ``clip``.  Where the calibration tasks are too few for the coverage (about
            1 / (1 - coverage) are needed), the ends are those of the model itself, Gaussian with `predict_std`, or
            what the few tasks needed where that is more, and a warning says so.
        """
        check_is_fitted(self, "coef_")
        check_fraction("coverage", coverage)
        known = self._known
        if known is None:
            raise ValueError(
                "predict_interval: the learner that adapted this model has no calibration; call "
                "calibrate_intervals(tasks) on it with tasks it was not fitted to, and adapt again "
                "(EmpiricalBayesLearner is calibrated by fit, from two tasks on)"
            )
        X = self._inputs(X)
        x = known.units.dense(X)
        # Not clipped: the errors of the calibration are those of unclipped predictions, too.
        width = known.spreads(x)
        low, high = self._reach(known, coverage)
        centre = x @ known.weights
        ends = np.stack([centre + low * width, centre + high * width], axis=1)
        return self._put_together(known.units.raw_predictions(ends), X)

    def predict_std(self, X: Any) -> Array:
        """Standard deviation of a new target at each row about the fitted model, ``X @ coef_ + intercept_``.

        The task's own noise and what its rows leave open, so many times that the errors of held-out tasks have on
        average the square that it says.
        """
        check_is_fitted(self, "coef_")
        known = self._known
        if known is None:
            raise ValueError(
                "predict_std: the learner that adapted this model has no calibration; call "
                "calibrate_intervals(tasks) on it and adapt again"
            )
        X = self._inputs(X)
        deviation = known.calibration.deviation(len(known.y))
        return known.units.target * deviation * known.spreads(known.units.dense(X))

    @staticmethod
    def _reach(known: _Known, coverage: float) -> tuple[float, float]:
        """How many spreads an interval goes below and above; the model's own where tasks are too few to count."""
        ends = known.calibration.reach(len(known.y), coverage)
        if np.isfinite(ends).all():
            return ends
        warnings.warn(
            f"coverage: too few tasks were held out to calibrate {100.0 * coverage:g} % intervals; these are the model's own",
            UserWarning,
            stacklevel=3,
        )
        return known.calibration.own_reach(len(known.y), coverage)
