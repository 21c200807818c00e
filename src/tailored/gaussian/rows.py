"""Rows of tasks, and the posterior of their coefficients from n x n systems, for tasks with few
rows and many columns.

With the prior ``w ~ N(b, W)``, the targets are N(Xb, S) with ``S = XWXᵀ + σ²I``.  With ``a = S⁻¹(y
− Xb)`` the posterior has mean ``b + WXᵀa`` and covariance ``W − WXᵀS⁻¹XW``.  Evidence and mean need
no d x d matrix per task.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from ..tasks.rows import Array, Scaling, predictions, segment_sums
from ..tasks.task_set import TaskSet
from .kernels import invert_all
from .mixture import EVIDENCE, Mixture, Want
from .moments import (
    COMPILED_COLUMNS,
    NO_SUMS,
    Expected,
    Moments,
    RowStatistics,
    Sums,
    Totals,
    log_priors,
    normalise,
)
from .sites import ResponseRows

#: With more columns, n x n systems are used if the mean number of rows per task is below this
#: times the number of columns.
ROWS_PER_COLUMN = 0.5


class _Stack(NamedTuple):
    """m tasks with n rows each: positions of the tasks (m,), their rows (m, n, d), and positions of
    the rows (m, n).
    """

    tasks: NDArray[np.intp]
    X: Array
    at: NDArray[np.intp]


class TaskRows(RowStatistics):
    """Rows of T tasks with Gaussian targets.  ``n_threads`` is unused; see `Moments`."""

    @classmethod
    def of(cls, tasks: TaskSet, units: Scaling, side: Array | None = None) -> TaskRows:
        """Return the scaled rows of tasks."""
        return cls(*units.weighted_rows(tasks), tasks.offsets, side=side)

    @cached_property
    def stacks(self) -> list[_Stack]:
        """Tasks grouped by their number of rows."""
        sizes, out = np.diff(self.starts), []
        for n in np.unique(sizes):
            tasks = np.flatnonzero(sizes == n)
            at = self.starts[tasks, None] + np.arange(n)
            out.append(_Stack(tasks, self.X[at], at))
        return out

    @cached_property
    def gram(self) -> Array:
        """XᵀX of each task, (T, d, d), computed on first use."""
        out = np.empty((len(self), self.n_features, self.n_features))
        for tasks, X, _ in self.stacks:
            out[tasks] = np.matmul(X.transpose(0, 2, 1), X)
        return out

    @cached_property
    def cross(self) -> Array:
        """Xᵀy of each task, (T, d)."""
        out = np.empty((len(self), self.n_features))
        for tasks, X, at in self.stacks:
            out[tasks] = np.matmul(self.y[at][:, None, :], X)[:, 0]
        return out

    @cached_property
    def square(self) -> Array:
        """yᵀy of each task, (T,)."""
        return segment_sums(self.y**2, self.starts)

    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: NDArray[np.bool_] | None = None
    ) -> Expected:
        T, (K, d) = len(self), model.means.shape
        effects = model.effects(self.side)
        joint = log_priors(model, self.side, T, among)
        means = np.empty((T if want.means else 0, K, d))
        covariances = np.zeros((T if want.covariances else 0, d, d))
        solved = {}
        for s, stack in enumerate(self.stacks):
            for k in range(K):
                mean = model.means[k] if effects is None else model.means[k] + effects[stack.tasks]
                found = _solve(self, stack, model, mean, k)
                joint[stack.tasks, k] += found.log_evidence
                if want.means:
                    means[stack.tasks, k] = mean + np.matmul(found.a[:, None, :], found.XW)[:, 0]
                if want.covariances or want.sums:
                    solved[s, k] = found
        log_evidence, shares = normalise(joint), joint
        if want.covariances:
            covariances += np.tensordot(shares, model.covariances, 1)
            for (s, k), found in solved.items():
                at = self.stacks[s].tasks
                inverses = shares[at, k, None, None] * found.inverses
                covariances[at] -= np.matmul(
                    found.XW.transpose(0, 2, 1), np.matmul(inverses, found.XW)
                )
            covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        sums = NO_SUMS
        if want.sums:
            sums = _sums(self.stacks, solved, model, shares, float(log_evidence.sum()))
        return Expected(log_evidence, shares, means, covariances, sums)

    def totals(self) -> Totals:
        square = float(self.y @ self.y)
        return Totals(len(self), float(len(self.y)), square, self.y @ self.X, self.X.T @ self.X)

    def shifted(self, weights: Array) -> TaskRows:
        """Return the tasks with targets ``y − Xw``, for the weights (T, d) of each task."""
        return replace(self, y=self.y - predictions(self.rows, weights))

    def squared_residuals(self, weights: Array) -> Array:
        """Return ‖y − Xw‖² of each task, (T,), for one w (d,) or one per task (T, d)."""
        fitted = self.X @ weights if weights.ndim == 1 else predictions(self.rows, weights)
        return segment_sums((self.y - fitted) ** 2, self.starts)


def statistics_of(tasks: TaskSet, units: Scaling, side: Array | None = None) -> Moments | TaskRows:
    """Return scaled tasks with Gaussian targets as rows if they have many columns and on average
    less than half as many rows.

    Otherwise, return second moments.
    """
    d = len(units.columns)
    # Frequency weights are supported by second moments only.
    is_counted = tasks.frequency_weight is None
    if d > COMPILED_COLUMNS and len(tasks.y) < ROWS_PER_COLUMN * len(tasks) * d and is_counted:
        return TaskRows.of(tasks, units, side)
    return Moments.of(tasks, units, side)


#: Statistics of tasks in memory, for any response.
Tasks = Moments | TaskRows | ResponseRows


class _Solved(NamedTuple):
    """Solved systems of stacked tasks for one component: XW (m, n, d), S⁻¹ (m, n, n), a (m, n) and
    the log evidence (m,).
    """

    XW: Array
    inverses: Array
    a: Array
    log_evidence: Array


def _solve(tasks: TaskRows, stack: _Stack, model: Mixture, mean: Array, k: int) -> _Solved:
    """Solve the systems of stacked tasks for component k with prior means (d,) or (m, d)."""
    X, n = stack.X, stack.X.shape[1]
    W, variances = model.covariances[k], model.covariances[k].diagonal()
    is_diagonal = np.count_nonzero(W) == np.count_nonzero(variances)
    XW = X * variances if is_diagonal else np.matmul(X, W)
    kernel = np.matmul(XW, X.transpose(0, 2, 1))
    inverses, log_determinants = invert_all(kernel + model.noise * np.eye(n), model.noise)
    fitted = np.matmul(X, mean[..., None])[..., 0]
    left = tasks.y[stack.at] - fitted
    a = np.matmul(inverses, left[:, :, None])[:, :, 0]
    quadratic = np.maximum(np.einsum("tn,tn->t", left, a), 0.0)
    return _Solved(XW, inverses, a, -0.5 * (log_determinants + quadratic + n * np.log(2.0 * np.pi)))


def _sums(
    stacks: list[_Stack],
    solved: dict[tuple[int, int], _Solved],
    model: Mixture,
    shares: Array,
    log_evidence: float,
) -> Sums:
    """Return the expected sufficient statistics."""
    counts, (K, d) = shares.sum(axis=0), model.means.shape
    first, second = np.zeros((K, d)), counts[:, None, None] * model.covariances
    residual = 0.0
    for (s, k), (XW, inverses, a, _) in solved.items():
        tasks, X, _ = stacks[s]
        r = shares[tasks, k]
        deviations = np.matmul(a[:, None, :], XW)[:, 0]
        first[k] += r @ deviations
        images = np.matmul(r[:, None, None] * inverses, XW)
        second[k] += (deviations * r[:, None]).T @ deviations - XW.reshape(
            -1, d
        ).T @ images.reshape(-1, d)
        traces = np.trace(inverses, axis1=1, axis2=2)
        left = model.noise**2 * np.einsum("tn,tn->t", a, a)
        residual += float(r @ (left + model.noise * (X.shape[1] - model.noise * traces)))
    second = 0.5 * (second + second.transpose(0, 2, 1))
    return Sums(log_evidence, counts, first, second, residual)
