"""Noise that is correlated in time: its covariance is ``σ² (I + ρ K)`` with ``K = exp(−|t − t'| / ℓ)`` at times t, t'.

With R = I + ρK = CCᵀ, the rows ``C⁻¹X`` and targets ``C⁻¹y`` have independent noise, so the posterior is computed from the
second moments of these *whitened* rows.  K is the covariance of an Ornstein-Uhlenbeck process, so C⁻¹ is applied by a Kalman
filter, in time proportional to the number of rows.  Query rows are predicted given the residuals of the support rows: with
``A = ρ K_qs R_ss⁻¹``,

    E(y_q | y_s, w) = X_q w + A (y_s − X_s w) ,    Var(y_q | y_s, w) = σ² diag(1 + ρ − A ρ K_sq) .
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..tasks.rows import Array, Matrix, Scaling, dense, segment_sums
from ..tasks.task_set import TaskSet, rows_of_tasks
from .em import fit_mixed_model
from .mixture import EVIDENCE, Mixture, Want
from .moments import Expected, Moments
from .reml import maximise_restricted
from .responses import Gaussian

#: Bounds of ρ.
SHARES = (1e-3, 1e3)
#: Bounds of ℓ, as multiples of the median gap between successive times, and of the duration of the longest series.
SHORTEST, LONGEST = 0.25, 10.0
#: Maximum number of evaluations of the likelihood in (ρ, ℓ), and of steps that estimate W and σ² in each of them.
EVALUATIONS, STEPS = 60, 10


@dataclass(frozen=True)
class SerialMoments(Moments):
    """Second moments of whitened rows; the evidence is that of the targets before they are whitened."""

    log_determinants: Array = field(kw_only=True)  # (T,) log|R|
    rows: Array = field(
        kw_only=True
    )  # (N, 2 + d) time, target and scaled row, before they are whitened
    starts: NDArray[np.int64] = field(kw_only=True)  # (T + 1,) first row of each task, and N

    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: NDArray[np.bool_] | None = None
    ) -> Expected:
        found = super().posterior(model, want, among)
        log_evidence = found.log_evidence - 0.5 * self.log_determinants
        sums = (
            replace(found.sums, log_evidence=float(log_evidence.sum())) if want.sums else found.sums
        )
        return found._replace(log_evidence=log_evidence, sums=sums)

    def take(self, index: NDArray[np.intp] | slice) -> Self:
        at, starts = rows_of_tasks(self.starts, np.arange(len(self))[index])
        some = super().take(index)
        return replace(
            some, log_determinants=self.log_determinants[index], rows=self.rows[at], starts=starts
        )

    @property
    def row_moment(self) -> Array:
        return self.rows[:, 2:].T @ self.rows[:, 2:] / self.n_rows

    def history(self, weights: Array) -> Array:
        """Return the time, residual and scaled inputs of each row, (N, 2 + d), for the scaled weights (T, d) of the tasks."""
        task = np.repeat(np.arange(len(self)), np.diff(self.starts))
        time, y, X = self.rows[:, :1], self.rows[:, 1], self.rows[:, 2:]
        residuals = y - np.einsum("nd,nd->n", X, weights[task])
        return np.hstack([time, residuals[:, None], X])


@dataclass(frozen=True)
class SerialGaussian(Gaussian):
    """Numbers whose noise is correlated in time; one column of X is the time."""

    column: int = 0  # position of the time among the columns of X
    share: float = 1.0  # ρ
    length: float = 1.0  # ℓ, in the user's units of time

    def statistics(
        self, tasks: TaskSet, scaling: Scaling, side: Array | None = None
    ) -> SerialMoments:
        X, y = scaling.weighted_rows(tasks)
        white, log_determinants = self.whiten(np.column_stack([X, y]), tasks)
        T, D = len(tasks), white.shape[1]
        products = segment_sums(
            (white[:, :, None] * white[:, None, :]).reshape(-1, D * D), tasks.offsets
        )
        both = products.reshape(T, D, D)
        return SerialMoments(
            gram=np.ascontiguousarray(both[:, :-1, :-1]),
            cross=np.ascontiguousarray(both[:, :-1, -1]),
            square=np.ascontiguousarray(both[:, -1, -1]),
            sizes=tasks.n_observed,
            side=side,
            log_determinants=log_determinants,
            rows=np.column_stack([self.times(tasks.X), y, X]),
            starts=tasks.offsets,
        )

    def times(self, X: Matrix) -> Array:
        """Return the times (n,) of rows."""
        return dense(X[:, [self.column]])[:, 0]

    def whiten(self, rows: Array, tasks: TaskSet) -> tuple[Array, Array]:
        """Return C⁻¹ times the rows (n, m) of each task, in the order of time, and log|R| (T,)."""
        task, time = np.repeat(np.arange(len(tasks)), tasks.sizes), self.times(tasks.X)
        order = np.lexsort((time, task))
        rows, time, out = rows[order], time[order], np.empty_like(rows)
        state, variance = np.zeros((len(tasks), rows.shape[1])), np.full(len(tasks), self.share)
        log_determinants = np.zeros(len(tasks))
        for position in range(int(tasks.sizes.max(initial=0))):
            open_ = np.flatnonzero(tasks.sizes > position)
            at = tasks.offsets[open_] + position
            if position:
                decay = np.exp((time[at - 1] - time[at]) / self.length)
                state[open_] *= decay[:, None]
                variance[open_] = self.share + decay**2 * (variance[open_] - self.share)
            total = 1.0 + variance[open_]
            innovation = rows[at] - state[open_]
            out[at] = innovation / np.sqrt(total)[:, None]
            log_determinants[open_] += np.log(total)
            state[open_] += (variance[open_] / total)[:, None] * innovation
            variance[open_] /= total
        return out, log_determinants

    def given_support(
        self,
        X: Array,
        times: Array,
        task: NDArray[np.intp],
        history: Array,
        n_rows: NDArray[np.int64],
    ) -> tuple[Array, Array, Array]:
        """Return ``X_q − A X_s`` of scaled query rows X (n, d), and the mean ``A (y_s − X_s w)`` and variance / σ² of their noise.

        ``task`` (n,) are the tasks of the rows.  ``history`` is the result of `SerialMoments.history` for the support
        rows of all tasks, and ``n_rows`` (T,) are the numbers of support rows.
        """
        X, mean, variance = X.copy(), np.zeros(len(X)), np.zeros(len(X))
        starts, order = np.append(0, np.cumsum(n_rows)), np.argsort(task, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(task[order])) + 1) if len(task) else []:
            past = history[starts[task[at[0]]] : starts[task[at[0]] + 1]]
            A, variance[at] = self.conditional(times[at], past[:, 0])
            mean[at] = A @ past[:, 1]
            X[at] -= A @ past[:, 2:]
        return X, mean, variance

    def conditional(self, query: Array, support: Array) -> tuple[Array, Array]:
        """Return A (n, m) of the module docstring for these times, and the variances (n,) of query rows in units of σ²."""
        if not len(support):
            return np.zeros((len(query), 0)), np.full(len(query), 1.0 + self.share)
        across = self._kernel(query, support)
        A = np.asarray(
            np.linalg.solve(np.eye(len(support)) + self._kernel(support, support), across.T).T
        )
        return A, 1.0 + self.share - np.einsum("ij,ij->i", A, across)

    def _kernel(self, one: Array, other: Array) -> Array:
        return self.share * np.exp(-np.abs(one[:, None] - other) / self.length)


def fit_serial(
    tasks: TaskSet,
    scaling: Scaling,
    column: int,
    pattern: NDArray[np.bool_],
    reml: bool = True,
    basis: Array | None = None,
) -> SerialGaussian:
    """Return the response whose ρ and ℓ, with a W that is zero outside ``pattern``, maximise the (restricted) likelihood."""
    time = np.split(SerialGaussian(column).times(tasks.X), tasks.offsets[1:-1])
    gaps = np.concatenate([np.diff(np.sort(each)) for each in time])
    gap = float(np.median(gaps[gaps > 0.0])) if (gaps > 0.0).any() else 1.0
    longest = max(float(np.ptp(each)) for each in time if len(each))
    low, high = np.log([[SHARES[0], SHORTEST * gap], [SHARES[1], max(LONGEST * longest, gap)]])
    known: list[Mixture] = []

    def objective(parameters: Array) -> float:
        response = SerialGaussian(column, *np.exp(np.clip(parameters, low, high)).tolist())
        statistics = response.statistics(tasks, scaling)
        if not known:
            varying = np.flatnonzero(pattern.diagonal()).tolist()
            known.append(
                fit_mixed_model(
                    statistics, covariance="diagonal", varying=varying, max_iter=STEPS, basis=basis
                )
            )
        fitted, log_likelihood = maximise_restricted(
            statistics, known[-1], pattern, (), reml, STEPS, basis
        )
        known.append(fitted)
        assert log_likelihood is not None
        return -log_likelihood

    first = np.log([1.0, 2.0 * gap])
    corners = np.vstack([first, first + np.eye(2)])
    options = {"maxfev": EVALUATIONS, "xatol": 0.02, "fatol": 0.02, "initial_simplex": corners}
    found = minimize(objective, first, method="Nelder-Mead", options=options)
    return SerialGaussian(column, *np.exp(np.clip(found.x, low, high)).tolist())
