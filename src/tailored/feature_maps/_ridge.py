"""The ridge estimate of a task, its penalty given or chosen by leave-one-out errors."""

from __future__ import annotations

import numpy as np

from .._utils.algebra import solve
from .._utils.validation import check_choice, check_positive
from ..tasks import TaskSet
from ._base import Array, FeatureMap, by_size

#: Candidates for λ, in units of the mean squared norm of a row.
PENALTIES = tuple(float(value) for value in np.logspace(-4, 4, 17))


class RidgeEstimate(FeatureMap):
    """Tikhonov solution of the task, ``(X̂ᵀX̂ + λI) w = X̂ᵀy`` with X̂ = [X, 1]; φ in R^{d+1}.

    Parameters
    ----------
    alpha : float or "auto", default=1.0
        λ; the paper uses 1 for Lenk.  "auto" (the map's name is then "tuned ridge") is the λ for which the
        rows of the training tasks are best predicted by the other rows of their task, in squared error over
        all rows.

    Attributes
    ----------
    penalty : float or None
        The λ in use; None before "auto" has been fitted.
    """

    penalty: float | None

    def __init__(self, alpha: float | str = 1.0) -> None:
        self.alpha = alpha
        self.penalty = None if isinstance(alpha, str) else alpha

    def fit(self, tasks: TaskSet) -> RidgeEstimate:
        if isinstance(self.alpha, str):
            check_choice("alpha", self.alpha, ["auto"])
            rows = sum(group.y.size for group in by_size(tasks))
            squares = sum(float(np.sum(group.X**2)) for group in by_size(tasks))
            penalties = np.array(PENALTIES) * (squares / rows if rows else 1.0)
            errors = leave_one_out(tasks, penalties)
            # From the largest on, so that equal errors go to the smaller weights.
            self.penalty = float(penalties[::-1][np.argmin(errors[::-1])])
        else:
            self.penalty = check_positive("alpha", self.alpha)
        return self

    def transform(self, tasks: TaskSet) -> Array:
        penalty = self._penalty()
        d = tasks.n_features
        out = np.zeros((len(tasks), d + 1))
        for which, X, targets in by_size(tasks):
            n = X.shape[1]
            Xt = np.ascontiguousarray(X.transpose(0, 2, 1))
            y = targets[:, :, None]
            if n <= d:
                dual = solve(X @ Xt + penalty * np.eye(n), y)
                out[which] = (Xt @ dual)[:, :, 0]
            else:
                out[which] = solve(Xt @ X + penalty * np.eye(d + 1), Xt @ y)[:, :, 0]
        return out

    def transform_one(self, task: TaskSet) -> Array:
        n, d = task.X.shape
        if task.is_sparse or n <= d:
            return self.transform(task)
        gram = np.empty((d + 1, d + 1))
        gram[:d, :d] = task.X.T @ task.X
        gram[d, :d] = gram[:d, d] = task.X.sum(axis=0)
        gram[d, d] = n
        gram.flat[:: d + 2] += self._penalty()
        right = np.append(task.y @ task.X, task.y.sum())
        return solve(gram, right)[None]

    def _penalty(self) -> float:
        if self.penalty is None:
            raise ValueError("feature_map: RidgeEstimate(alpha='auto') is not fitted; call fit(tasks) first")
        return self.penalty


def leave_one_out(tasks: TaskSet, penalties: Array) -> Array:
    """Sum over all rows of the squared error of their prediction by the other rows of their task.

    In closed form, from one eigendecomposition of each task: without row i its residual is
    ``e_i / (1 − h_ii)``, h_ii being its leverage, or ``a_i / G_ii`` with ``G = (X̂X̂ᵀ + λI)⁻¹`` and ``a = Gy``.

    Parameters
    ----------
    penalties : array (m,)
        Values of λ, all positive.

    Returns
    -------
    array (m,)
    """
    total = np.zeros(len(penalties))
    for _, X, y in by_size(tasks):
        n, p = X.shape[1:]
        Xt = X.transpose(0, 2, 1)
        # The smaller of the two matrices: with few rows 1 − h_ii would have lost its digits, G has not.
        values, vectors = np.linalg.eigh(X @ Xt if n < p else Xt @ X)
        values = np.maximum(values, 0.0)
        basis = vectors if n < p else X @ vectors
        coordinates = (basis.transpose(0, 2, 1) @ y[:, :, None])[:, :, 0]
        for j, penalty in enumerate(penalties):
            inverse = 1.0 / (values + penalty)
            fitted = (basis @ (inverse * coordinates)[:, :, None])[:, :, 0]
            diagonal = (basis**2 @ inverse[:, :, None])[:, :, 0]
            residuals = fitted / diagonal if n < p else (y - fitted) / (1.0 - diagonal)
            total[j] += np.sum(residuals**2)
    return total
