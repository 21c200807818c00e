"""`TaskRegressor`: the within-task algorithm of the paper (Eqs. 2 to 4) as a scikit-learn
regressor, for a given θ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.frames import RowsLike, ValuesLike
from .._utils.records import Stored, restored_on_failure
from .._utils.threads import single_threaded_blas
from .._utils.validation import (
    check_finite,
    check_psd,
    check_shape,
    numbers_of,
    refuse_masked,
    targets_in_objects,
)
from ..losses import Loss, get_loss
from ..tasks.rows import Array, Rows, Scaling, dense_rows
from .within_task import WithinTask


@dataclass(eq=False, repr=False)
class TaskRegressor(Stored, RegressorMixin, BaseEstimator):
    """Linear model of one task under a given representation.

    Minimises ``1/n Σ ℓ(<x_i, w>, y_i) + ½ (w − b)ᵀ θ† (w − b)`` over w in b + Ran(θ): Eq. 3 of the
    paper, with a prior mean b.

    Parameters
    ----------
    theta : array (d, d), optional
        θ, positive semidefinite; the identity by default.
    bias : array (d,), optional
        The prior mean b; zero by default.
    loss : str or Loss, default="absolute"
        ℓ.
    inner : {"exact", "online"}, default="exact"
        Exact minimisation with a duality-gap certificate, or the paper's one-pass variant.
    fit_intercept : bool, default=False
        Append a constant column, which is the last feature in ``theta`` and ``bias``.
    tol : float, default=1e-8
        The exact solver stops when ``dual_gap_`` is at most ``tol`` times the objective at w = b.
    max_iter : int, default=1000
        Maximum number of iterations.

    Attributes
    ----------
    coef_, intercept_ : array (d,) and float
        The solution.
    dual_gap_ : float
        Upper bound on the distance of the objective from its minimum.
    n_iter_ : int
        Number of iterations.
    """

    theta: Any = None
    bias: Any = None
    loss: str | Loss = "absolute"
    inner: str = "exact"
    fit_intercept: bool = False
    tol: float = 1e-8
    max_iter: int = 1000

    coef_: Array = field(init=False)
    intercept_: float = field(init=False)
    dual_gap_: float = field(init=False)
    n_iter_: int = field(init=False)
    n_features_in_: int = field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # With the default θ = I, the model is strongly regularised.
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: RowsLike, y: ValuesLike) -> Self:
        """Fit the model to the rows ``X`` (n, d), ``y`` (n,)."""
        with restored_on_failure(self), single_threaded_blas():
            options: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}
            refuse_masked("X", X)
            refuse_masked("y", y)
            with numbers_of("X, y"):
                X, y = validate_data(self, X, targets_in_objects(y), y_numeric=True, **options)
            y = np.asarray(y, dtype=np.float64)
            Scaling.raw(X.shape[1]).check(X, y, getattr(self, "feature_names_in_", None))
            algorithm = WithinTask(get_loss(self.loss), self.inner, self.tol, self.max_iter)
            algorithm.loss.check_targets(y)
            rows = dense_rows(X, self.fit_intercept)
            d = rows.shape[1]
            theta = np.eye(d) if self.theta is None else check_psd(self.theta, "theta", d)
            bias = np.zeros(d) if self.bias is None else np.array(self.bias, dtype=float)
            check_shape("bias", bias, d)
            check_finite(bias, "bias")
            task = Rows(rows, y, np.array([0, len(y)]))
            found = algorithm.solve(task, theta[None], offset=rows @ bias)
            weights = np.append(found.coef[0] + bias, np.zeros(1 - bool(self.fit_intercept)))
            self.coef_, self.intercept_ = weights[:-1], float(weights[-1])
            self.dual_gap_, self.n_iter_ = float(found.gap[0]), int(found.n_iter[0])
        return self

    def predict(self, X: RowsLike) -> Array:
        """Predict the rows ``X`` (n, d); decision values for the losses "logistic" and "hinge"."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)
