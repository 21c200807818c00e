"""Within-task algorithms A(θ, Z), Eqs. 2 to 4 of the paper.

For the rows Z = (x_i, y_i), i = 1 .. n, of a task and a positive semidefinite θ (d, d), Eqs. 2 and
3 are

    A(θ, Z) = argmin over w in Ran(θ) of  R_{Z,θ}(w) = 1/n Σ ℓ(<x_i, w>, y_i) + ½ <w, θ†w> .

There is no regularisation parameter λ, because θ contains it (Remark 1).  The dual maximises
``D(α) = −1/n Σ ℓ*(α_i, y_i) − αᵀKα / (2n²)`` with ``K = XθXᵀ``.  At its solution ``w = −θXᵀα / n``,
and α_i is a subgradient of ℓ(·, y_i) at the prediction of row i.

- ``inner="exact"`` is Eq. 2.  It solves both problems, and stops when ``R_{Z,θ}(w) − D(α) <= tol ·
  R_{Z,θ}(0)``.
- ``inner="online"`` is Eq. 4: one pass over the rows in their order, from ``w_1 = 0``, with s_i a
  subgradient at the prediction of w_i, and ``w_{i+1} = (1 − 1/i) w_i − θ x_i s_i / i``.  It returns
  the mean of w_2 .. w_{n+1}, and α = s.

With a prior mean b, the predictions are ``o_i + <x_i, w>`` with ``o_i = <x_i, b>``, and b + w are
the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.frames import RowsLike, ValuesLike, check_target
from .._utils.records import Record, Stored, restored_on_failure
from .._utils.threads import single_threaded_blas
from .._utils.validation import (
    check_choice,
    check_finite,
    check_int,
    check_positive,
    check_psd,
    check_shape,
    name_some,
    numbers_of,
    refuse_masked,
    warn,
)
from ..losses import Absolute, Loss, get_loss
from ..tasks.rows import Array, Rows, Scaling, dense_rows, frozen
from .kernels import WithinSolution, exact, online


class WithinTaskOverflowError(ValueError, OverflowError):
    """The weights or the duality gap of a task exceed the largest float."""


@dataclass(frozen=True)
class WithinTask(Record):
    """A within-task algorithm, with its loss."""

    loss: Loss = field(default_factory=Absolute)
    inner: str = "exact"
    tol: float = 1e-8
    max_iter: int = 1000

    def __post_init__(self) -> None:
        check_choice("inner", self.inner, ["exact", "online"])
        check_positive("tol", self.tol)
        check_int("max_iter", self.max_iter)

    def solve(
        self,
        rows: Rows,
        thetas: Array,
        offset: Array | None = None,
        labels: Sequence[Any] | NDArray[Any] | None = None,
    ) -> WithinSolution:
        """Solve T tasks of any sizes, possibly without rows; the solution of a task does not depend
        on the other tasks.

        ``thetas`` is (T, d, d), or (1, d, d) for all tasks, of any rank.  ``offset`` (N,) has the
        predictions o of the prior mean, and ``labels`` are the names of the tasks in messages.

        The exact algorithm also stops after max_iter iterations, or if only rounding errors are
        left.  A `ConvergenceWarning` names the tasks whose gap exceeds both the tolerance and
        rounding errors.  Weights or gaps beyond the largest float raise `WithinTaskOverflowError`.
        """
        X, y, starts = rows
        (n, d), n_tasks = X.shape, len(starts) - 1
        if thetas.strides[0] == 0:  # one θ broadcast over the tasks
            thetas = thetas[:1]
        offset = np.zeros(n) if offset is None else offset
        # Compiled code would read beyond the ends of arrays.
        fits = thetas.shape[1:] == (d, d) and len(thetas) in (1, n_tasks)
        if not (fits and len(y) == len(offset) == n >= starts[-1]):
            shapes = f"X {X.shape}, y {y.shape}, thetas {thetas.shape}, starts up to {starts[-1]}"
            raise ValueError(f"The shapes of {n_tasks} tasks do not match: {shapes}.")
        # Ratios of subnormal numbers can overflow, so subnormal targets are set to zero.
        box = self.loss.dual_box(np.where(np.abs(y) < np.finfo(float).tiny, 0.0, y))
        tasks = frozen(X), frozen(starts, np.int64), frozen(thetas), frozen(offset), box
        found = WithinSolution(
            coef=np.zeros((n_tasks, d)),
            alpha=np.empty(n),
            value=np.zeros(n_tasks),
            gap=np.zeros(n_tasks),
            n_iter=np.zeros(n_tasks, dtype=np.int64),
            converged=np.ones(n_tasks, dtype=np.bool_),
        )
        if self.inner == "online":
            online(*tasks, found)
        else:
            exact(*tasks, float(self.tol), int(self.max_iter), found)
        self._check(rows, found, np.arange(n_tasks) if labels is None else np.asarray(labels))
        return found

    def _check(self, rows: Rows, found: WithinSolution, labels: NDArray[Any]) -> None:
        """Raise an error for tasks with infinite numbers, and warn about tasks without a small
        gap.
        """
        finite = np.isfinite(found.coef).all(axis=1) & np.isfinite(found.gap)
        if not finite.all():
            first = int(np.argmin(finite))
            task = rows.tasks(first, first + 1)
            largest = [f"{np.abs(values).max(initial=0.0):.3g}" for values in task[:2]]
            raise WithinTaskOverflowError(
                f"Task {name_some(labels[first : first + 1])}: the {self.inner} within-task "
                "algorithm overflowed: X has values "
                f"up to {largest[0]}, y up to {largest[1]}. Rescale them, or use a smaller "
                "representation."
            )
        for t in map(int, np.flatnonzero(~found.converged)):
            y = rows.tasks(t, t + 1).y
            # Rounding errors, relative to the loss of predicting zero, are accepted.
            rounding = 1e-15 * np.mean(self.loss.value(np.zeros(len(y)), y))
            found.converged[t] = found.gap[t] <= rounding
        if found.converged.all():
            return
        failed = labels[~found.converged]
        reason = {
            "exact": "stopped with a duality gap above tol times the objective at zero. "
            "Raise tol or max_iter, or "
            "bring theta and the features to a common scale.",
            "online": "overflowed in its objective: theta is too large for one pass with this "
            "loss. Scale it down.",
        }
        tasks = f"In {len(failed)} of {len(labels)} tasks ({name_some(failed, 5)}) the"
        warn(
            f"{'The' if len(labels) == 1 else tasks} {self.inner} within-task algorithm "
            f"{reason[self.inner]} Largest gap: {found.gap[~found.converged].max():.3g}.",
            ConvergenceWarning,
        )


@dataclass(eq=False, repr=False)
class TaskRegressor(Stored, RegressorMixin, BaseEstimator):  # type: ignore[misc]
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
            refuse_masked("X", X)
            with numbers_of("X"):
                X = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
            y = check_target(y, X.shape[0])
            check_finite(y, "y")
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
