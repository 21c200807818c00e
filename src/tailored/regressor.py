"""One task's fitted linear model: an ordinary scikit-learn regressor."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from . import wide, within
from ._utils.records import Fitted
from ._utils.threads import single_threaded_blas, single_threaded_products
from ._utils.validation import (
    check_choice,
    check_clip,
    check_finite,
    check_fraction,
    check_psd,
    check_shape,
    check_target,
    numbers_of,
    refuse_masked,
    targets_in_objects,
)
from .adapting import put_together
from .files.format import save
from .intervals import Calibration, spreads
from .losses import get_loss
from .one_task import OneTask, one_task, with_rows
from .prior import Prior
from .tasks import Encoding, Scaling, TaskSet
from .tasks.rows import dense_rows

Array = NDArray[np.float64]


class TaskRegressor(Fitted, RegressorMixin, BaseEstimator):
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
        None under a prior of many columns, whose matrix is not formed (see ``representation`` of the learner).
    dual_gap_ : float
        Certificate: the objective of this model is at most this far from the minimum.
    n_iter_ : int
    """

    coef_: Array
    intercept_: float
    representation_: Array | None
    dual_gap_: float
    n_iter_: int
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    clip_: tuple[float, float] | None
    _one: OneTask | None = None  # what a meta-learner's prior was adapted to, and what came of it
    _adapted: bool = False
    _encoding: Encoding | None = None  # how the frames of the learner that adapted it are read

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
    def adapted(
        cls, prior: Prior, task: TaskSet, feature_names: Any = None, encoding: Encoding | None = None
    ) -> Self:
        """The model of one task under a learned prior, fitted to the task's rows (there may be none).

        ``encoding`` is how frames of rows are read.
        """
        with single_threaded_products(*task.X.shape):
            one = one_task(prior, task)
        model = cls(
            loss=prior.loss,
            inner=prior.inner,
            fit_intercept=prior.fit_intercept,
            tol=prior.tol,
            max_iter=prior.max_iter,
            clip=prior.clip,
        )
        model.clip_ = prior.clip
        model._settle(one)
        model._adapted = True
        if feature_names is not None:
            model.feature_names_in_ = feature_names
        model._encoding = encoding
        return model

    def _settle(self, one: OneTask) -> None:
        """Take over what came of adapting."""
        units = one.prior.units
        self.representation = None if one.theta is None else units.raw_representation(one.theta)
        self.bias = None if one.mean is None else units.raw_weights(one.mean)
        # of the squared loss, where the units are not the user's own
        gap = one.gap * units.target**2
        self._store(units.raw_weights(one.weights), self.representation, gap, one.n_iter)
        self._one = one

    def update(self, X: Any, y: Any) -> Self:
        """Further rows of the task that a meta-learner adapted this model to: the model of all its rows, old and new.

        What `adapt` would return for all rows at once, though the earlier ones need not be at hand.  Of models that
        `EmpiricalBayesLearner` adapted, second moments of the rows are kept, in at most a few times as many numbers as
        the d² of the representation; other losses need the rows, and the model keeps a copy of them.  A call that
        fails leaves the model as it was.

        Parameters
        ----------
        X, y : arrays (n, d), (n,)
            The further rows.
        """
        check_is_fitted(self, "coef_")
        if self._one is None:
            raise ValueError(
                "update: this model was fitted by fit, which keeps nothing of its rows; call fit with all of them, or "
                "adapt a meta-learner, whose models can be updated"
            )
        X = self._inputs(X)
        y = check_target(y, X.shape[0])
        check_finite(y, "y")
        if not len(y):
            return self
        self._units.check(X, y)
        get_loss(self.loss).check_targets(y)
        with single_threaded_blas():
            self._settle(with_rows(self._one, X, y))
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the task's rows ``X`` (n, d), ``y`` (n,); a call that fails leaves the model as it was."""
        before = dict(vars(self))
        try:
            return self._fit(X, y)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Any, y: Any) -> Self:
        refuse_masked("X", X)
        refuse_masked("y", y)
        with numbers_of("X"):
            X, y = validate_data(
                self, X, targets_in_objects(y), accept_sparse="csr", dtype=np.float64, y_numeric=True
            )
        Scaling.raw(X.shape[1]).check(X, y, getattr(self, "feature_names_in_", None))
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
        self._store(solution.coef + bias, theta, solution.gap, solution.n_iter)
        # What a meta-learner knew of another fit.
        self._one = self._encoding = None
        return self

    def _store(self, weights: Array, theta: Array | None, gap: float, n_iter: int) -> None:
        if self.fit_intercept:
            self.coef_, self.intercept_ = weights[:-1], float(weights[-1])
        else:
            self.coef_, self.intercept_ = weights, 0.0
        self.representation_ = theta
        self.dual_gap_ = float(gap)
        self.n_iter_ = int(n_iter)
        self.n_features_in_ = len(self.coef_)

    def _inputs(self, X: Any) -> Any:
        """Rows checked against those of `fit`; frames by their names."""
        if self._encoding is not None:
            X = self._encoding.encode_rows(X)
        refuse_masked("X", X)
        if self._adapted and type(X) is np.ndarray:
            # The rows of a `TaskSet` have no names, and came from a frame all the same: no reason to warn.
            with numbers_of("X"):
                checked = check_array(
                    X, dtype=np.float64, input_name="X", ensure_min_samples=0, ensure_min_features=0
                )
            if checked.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {checked.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input"
                )
        else:
            with numbers_of("X"):
                checked = validate_data(
                    self,
                    X,
                    accept_sparse="csr",
                    dtype=np.float64,
                    reset=False,
                    ensure_min_samples=0,
                    ensure_min_features=0,
                )
        self._units.check(checked, names=getattr(self, "feature_names_in_", None))
        return checked

    @property
    def _units(self) -> Scaling:
        return Scaling.raw(self.n_features_in_) if self._one is None else self._one.prior.units

    def predict(self, X: Any) -> Array:
        """``X @ coef_ + intercept_``, plus the common part where the learner has one, clipped on request.

        Decision values for classification losses.  A model that `EmpiricalBayesLearner` adapted under a pinball loss
        adds to that, row by row, what makes it the quantile asked for: so many times the row's spread as held-out
        tasks needed.
        """
        check_is_fitted(self, "coef_")
        X = self._inputs(X)
        with single_threaded_products(*X.shape):
            found = np.asarray(X @ self.coef_ + self.intercept_)
        one = self._one
        if one is not None and one.prior.quantile is not None:
            units, calibration = one.prior.units, self._calibration("predict")
            reach = calibration.quantile(one.n_rows, one.prior.quantile)
            found += units.target * reach * self._at(one, X)[1]
        return self._put_together(found, X)

    def _put_together(self, tailored: Array, X: Any) -> Array:
        common = None if self._one is None or not X.shape[0] else self._one.common(X)
        return put_together(tailored, common, self.clip_)

    def _calibration(self, method: str) -> Calibration:
        """What intervals are made from."""
        calibration = None if self._one is None else self._one.prior.calibration
        if calibration is None:
            raise ValueError(
                f"{method}: the learner that adapted this model has no calibration; call calibrate_intervals(tasks) on "
                "it with tasks it was not fitted to, and adapt again (EmpiricalBayesLearner is calibrated by fit, from "
                "two tasks on)"
            )
        return calibration

    @staticmethod
    def _at(one: OneTask, X: Any) -> tuple[Array, Array]:
        """The fitted model and the spread at rows, in the units of the prior."""
        assert one.prior.calibration is not None
        noise = one.prior.calibration.noise
        if one.open is not None:
            only = np.zeros(X.shape[0], dtype=np.intp)
            centre = wide.centres(one.prior, X, only, one.weights[None])
            return centre, one.open(one.prior, X, only, noise)
        assert one.theta is not None
        x = one.prior.units.dense(X)
        with single_threaded_products(max(len(x), len(one.y)), x.shape[1]):
            return x @ one.weights, spreads(one.X, one.y, one.theta, one.weights, x, noise, one.n_rows)

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
        calibration = self._calibration("predict_interval")
        one = self._one
        assert one is not None
        X = self._inputs(X)
        units = one.prior.units
        # Not clipped: the errors of the calibration are those of unclipped predictions, too.
        centre, width = self._at(one, X)
        low, high = self._reach(calibration, one.n_rows, coverage)
        ends = np.stack([centre + low * width, centre + high * width], axis=1)
        return self._put_together(units.raw_predictions(ends), X)

    def predict_std(self, X: Any) -> Array:
        """Standard deviation of a new target at each row about the fitted model, ``X @ coef_ + intercept_``.

        The task's own noise and what its rows leave open, so many times that the errors of held-out tasks have on
        average the square that it says.
        """
        check_is_fitted(self, "coef_")
        calibration = self._calibration("predict_std")
        one = self._one
        assert one is not None
        X = self._inputs(X)
        units = one.prior.units
        return units.target * calibration.deviation(one.n_rows) * self._at(one, X)[1]

    @staticmethod
    def _reach(calibration: Calibration, n_rows: int, coverage: float) -> tuple[float, float]:
        """How many spreads an interval goes below and above; the model's own where tasks are too few to count."""
        ends = calibration.reach(n_rows, coverage)
        if np.isfinite(ends).all():
            return ends
        warnings.warn(
            f"coverage: too few tasks were held out to calibrate {100.0 * coverage:g} % intervals; these are the model's own",
            UserWarning,
            stacklevel=3,
        )
        return calibration.own_reach(n_rows, coverage)

    # ------------------------------------------------------------------ saving

    def save(self, path: Any) -> None:
        """Write the model to one file without pickle, atomically; `tailored.load` reads it.

        The file contains all that `predict`, `score`, `predict_interval` and `update` need.  For a model that a learner
        adapted, this is the learner's prior and the rows of this task, or a few rows with the same second moments.  A model
        that `fit` fitted stores no rows.
        """
        check_is_fitted(self, "coef_")
        save(path, self)

    def state(self) -> dict[str, Any]:
        state, names = (
            self.get_params(deep=False),
            ["clip_", "feature_names_in_", "_adapted", "_encoding", "_one"],
        )
        if self._one is None:
            names += ["coef_", "intercept_", "representation_", "dual_gap_", "n_iter_"]
        else:
            # They are computed from the task.
            state.update(representation=None, bias=None)
        return {**state, **{name: getattr(self, name) for name in names if hasattr(self, name)}}

    def restore(self) -> None:
        if self._one is not None:
            if bool(self.fit_intercept) != self._one.prior.fit_intercept:
                raise ValueError("fit_intercept: is not that of the prior")
            self._settle(self._one)
        self.n_features_in_ = n = len(self.coef_)
        d = n + bool(self.fit_intercept)
        check_shape("coef_", self.coef_, max(n, 1))
        if self.representation_ is not None:
            check_shape("representation_", self.representation_, d, d)
        elif not self._adapted:
            raise ValueError("representation_: is missing")
        if hasattr(self, "feature_names_in_"):
            check_shape("feature_names_in_", self.feature_names_in_, n)
        if self.clip_ is not None and self.clip_[0] > self.clip_[1]:
            raise ValueError("clip_: the lower end is above the upper end")
