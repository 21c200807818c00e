"""One task's fitted linear model: an ordinary scikit-learn regressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from . import within
from ._threads import single_threaded_blas
from ._validation import check_choice, check_clip, check_fraction, check_psd
from .adapting import one_task
from .intervals import Calibration, spreads
from .losses import get_loss
from .prior import Prior
from .tasks import TaskSet
from .tasks.rows import clipped, dense, dense_rows, with_constant

Array = NDArray[np.float64]


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
    representation_ : array (d, d), or (d + 1, d + 1) with an intercept
    dual_gap_ : float
        Certificate: the objective of this model is at most this far from the minimum.
    n_iter_ : int
    """

    # Of a task that a meta-learner adapted to: its calibration, and the rows it was adapted on.
    _calibration: Calibration | None = None
    _support: tuple[Array, Array]

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
        model = cls(
            theta,
            mean,
            loss=prior.loss,
            inner=prior.inner,
            fit_intercept=prior.fit_intercept,
            tol=prior.tol,
            max_iter=prior.max_iter,
            clip=prior.clip,
        )
        model.clip_ = prior.clip
        model._solve(rows.X, rows.y, theta, mean, prior.loss)
        if prior.calibration is not None:
            # Copies: the rows are the user's, who may change them before asking for intervals.
            model._calibration, model._support = prior.calibration, (rows.X.copy(), rows.y.copy())
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
            self._solve(rows, np.ascontiguousarray(y), theta, bias, loss)
        return self

    def _solve(self, rows: Array, y: Array, theta: Array, bias: Array | None, loss: Any) -> None:
        """Solve on clean arrays (with the constant column in place) and store the attributes."""
        solution = within.solve(
            rows,
            y,
            theta,
            loss,
            inner=self.inner,
            offset=None if bias is None else rows @ bias,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self._store(
            solution.coef if bias is None else solution.coef + bias, theta, solution.gap, solution.n_iter
        )

    def _store(self, weights: Array, theta: Array, gap: float, n_iter: int) -> None:
        if self.fit_intercept:
            self.coef_, self.intercept_ = weights[:-1], float(weights[-1])
        else:
            self.coef_, self.intercept_ = weights, 0.0
        self.representation_ = theta
        self.dual_gap_ = float(gap)
        self.n_iter_ = int(n_iter)
        self.n_features_in_ = len(self.coef_)

    def predict(self, X: Any) -> Array:
        """``X @ coef_ + intercept_``, clipped on request (decision values for classification losses)."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return clipped(np.asarray(X @ self.coef_ + self.intercept_), self.clip_)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Intervals that contain the target of a new row with probability ``coverage``.

        Conformal over tasks (`tailored.intervals`): the probability is that of a new row of a new task from
        the environment of the calibration tasks, averaged over such tasks.

        Parameters
        ----------
        X : array (n, d)
        coverage : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        array (n, 2)
            Lower and upper ends, inside ``clip``; infinite where the calibration tasks are too few for the
            coverage (about 2 / (1 - coverage) are needed).
        """
        prediction = self.predict(X)
        check_fraction("coverage", coverage)
        if self._calibration is None:
            raise ValueError(
                "predict_interval: the learner that adapted this model has no calibration; call "
                "calibrate_intervals(tasks) on it with tasks it was not fitted to, and adapt again "
                "(EmpiricalBayesLearner is calibrated by fit, from two tasks on)"
            )
        x = np.ascontiguousarray(
            dense(validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False))
        )
        weights = self.coef_
        if self.fit_intercept:
            x, weights = with_constant(x), np.append(weights, self.intercept_)
        rows, y = self._support
        # From the unclipped prediction: the errors of the calibration are those of unclipped ones, too.
        centre = x @ weights if self.clip_ is not None else prediction
        width = spreads(rows, y, self.representation_, weights, x, self._calibration.noise)
        low, high = self._calibration.reach(len(y), coverage)
        return clipped(np.stack([centre + low * width, centre + high * width], axis=1), self.clip_)
