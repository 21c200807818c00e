"""Noise that is correlated in time, with covariance ``σ² (D + ρK)``, ``K = exp(−|t − t'| / ℓ)``.

D is diagonal, with 1 over the weight of each row.  With R = D + ρK = CCᵀ, the *whitened* rows
``C⁻¹X`` and targets ``C⁻¹y`` have independent noise, so the posterior is computed from their second
moments.  K is the covariance of an Ornstein-Uhlenbeck process, so C⁻¹ is applied by a Kalman
filter, in time proportional to the number of rows.  Query rows are predicted given the support
rows: with ``A = ρ K_qs R_ss⁻¹``, in units of σ²,

    E(y_q | y_s, w) = X_q w + A (y_s − X_s w) ,
    Cov(y_q | y_s, w) = D_q + S ,    S = ρ K_qq − A ρ K_sq .
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from .._utils.records import Record
from ..tasks.rows import Array, Matrix, Scaling, dense, segment_sums
from ..tasks.task_set import TaskSet
from .mixture import EVIDENCE, Mixture, Want
from .moments import Expected, Moments
from .reml import maximise_restricted

#: Bounds of ρ, and upper bound of ℓ as a multiple of the duration of the longest series.
SHARES, LONGEST = (1e-3, 1e3), 10.0
#: Maximum number of evaluations of the likelihood in (ρ, ℓ).
EVALUATIONS = 60


@dataclass(frozen=True)
class WhitenedMoments(Moments):
    """Second moments of whitened rows; the evidence is that of the targets before they are
    whitened.
    """

    log_determinants: Array = field(kw_only=True)  # (T,) log|D⁻¹R|
    tasks: TaskSet = field(kw_only=True)
    #: (d, d) mean of xxᵀ over the scaled rows of all tasks, before they are whitened.
    unwhitened: Array = field(kw_only=True)

    @property
    def row_moment(self) -> Array:
        return self.unwhitened

    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: NDArray[np.bool_] | None = None
    ) -> Expected:
        found = super().posterior(model, want, among)
        log_evidence, sums = found.log_evidence - 0.5 * self.log_determinants, found.sums
        if want.sums:
            sums = replace(sums, log_evidence=float(log_evidence.sum()))
        return found._replace(log_evidence=log_evidence, sums=sums)

    def take(self, index: NDArray[np.intp] | slice) -> Self:
        found, logs = super().take(index), self.log_determinants[index]
        return replace(found, log_determinants=logs, tasks=self.tasks[index])


@dataclass(frozen=True)
class SerialNoise(Record):
    """The correlation of the noise; one column of X is the time."""

    column: int = 0  # position of the time among the columns of X
    share: float = 1.0  # ρ
    length: float = 1.0  # ℓ, in the user's units of time

    def statistics(
        self, tasks: TaskSet, scaling: Scaling, side: Array | None = None
    ) -> WhitenedMoments:
        """Return the second moments of the whitened rows."""
        X, y = scaling.dense(tasks.X), scaling.targets(tasks.y)
        white, log_determinants = self.whiten(np.column_stack([X, y]), tasks)
        products = segment_sums(white[:, :, None] * white[:, None, :], tasks.offsets)
        return WhitenedMoments(
            gram=np.ascontiguousarray(products[:, :-1, :-1]),
            cross=np.ascontiguousarray(products[:, :-1, -1]),
            square=np.ascontiguousarray(products[:, -1, -1]),
            sizes=tasks.n_observed,
            side=side,
            log_determinants=log_determinants,
            tasks=tasks,
            unwhitened=X.T @ X / max(len(X), 1),
        )

    def rows(self, tasks: TaskSet) -> Array:
        """Return what predictions given these rows need: X, y and 1 over the weight of each row,
        (N, d + 2).
        """
        return np.column_stack([dense(tasks.X), tasks.y, _white_variances(tasks)])

    def times(self, X: Matrix) -> Array:
        """Return the times (n,) of rows."""
        return dense(X[:, [self.column]])[:, 0]

    def whiten(self, rows: Array, tasks: TaskSet) -> tuple[Array, Array]:
        """Return C⁻¹ times the rows (n, m) of each task, in order of time, and log|D⁻¹R| (T,)."""
        time = self.times(tasks.X)
        order = np.lexsort((time, tasks.task_of_row))
        rows, time, white = rows[order], time[order], _white_variances(tasks)[order]
        out, log_determinants = np.empty_like(rows), np.zeros(len(tasks))
        # The mean of the process given the earlier rows of each task, and its variance.
        state, variance = np.zeros((len(tasks), rows.shape[1])), np.full(len(tasks), self.share)
        for position in range(int(tasks.sizes.max(initial=0))):
            open_ = np.flatnonzero(tasks.sizes > position)
            at = tasks.offsets[open_] + position
            if position:
                decay = np.exp((time[at - 1] - time[at]) / self.length)
                state[open_] *= decay[:, None]
                variance[open_] = self.share + decay**2 * (variance[open_] - self.share)
            total = white[at] + variance[open_]
            innovation = rows[at] - state[open_]
            out[at] = innovation / np.sqrt(total)[:, None]
            log_determinants[open_] += np.log(total / white[at])
            state[open_] += (variance[open_] / total)[:, None] * innovation
            variance[open_] *= white[at] / total
        return out, log_determinants

    def given_support(
        self, query: Array, task: NDArray[np.intp], rows: Array, n_rows: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.intp], slice, Array, Array]]:
        """Yield, for each task with query rows: their positions, its slice of the support rows, A
        and S.

        ``query`` (n,) are the times of query rows and ``task`` (n,) their tasks.  ``rows`` is the
        result of `rows` for the support rows of all tasks, and ``n_rows`` (T,) are their numbers.
        """
        starts, times = np.append(0, np.cumsum(n_rows)), self.times(rows)
        for t in np.unique(task):
            at, past = np.flatnonzero(task == t), slice(starts[t], starts[t + 1])
            R = self._kernel(times[past], times[past]) + np.diag(rows[past, -1])
            across = self._kernel(query[at], times[past])
            A = np.asarray(np.linalg.solve(R, across.T).T)
            yield at, past, A, self._kernel(query[at], query[at]) - A @ across.T

    def _kernel(self, one: Array, other: Array) -> Array:
        return self.share * np.exp(-np.abs(one[:, None] - other) / self.length)


def _white_variances(tasks: TaskSet) -> Array:
    """Return the diagonal of D."""
    return np.ones(len(tasks.y)) if tasks.sample_weight is None else 1.0 / tasks.sample_weight


def fit_serial(
    tasks: TaskSet,
    scaling: Scaling,
    column: int,
    pattern: NDArray[np.bool_],
    reml: bool = True,
    basis: Array | None = None,
) -> SerialNoise:
    """Return the noise whose ρ and ℓ, with a W that is zero outside ``pattern``, maximise the
    (restricted) likelihood.

    The likelihood is profiled: for each ρ and ℓ, W and σ² start from the same model.
    """
    time = np.split(SerialNoise(column).times(tasks.X), tasks.offsets[1:-1])
    gaps = np.concatenate([np.diff(np.sort(each)) for each in time])
    gap = float(np.median(gaps[gaps > 0.0])) if (gaps > 0.0).any() else 1.0
    longest = max(float(np.ptp(each)) for each in time if len(each))
    bounds = np.log([SHARES, (0.25 * gap, max(LONGEST * longest, gap))])
    first, d = np.log([1.0, 2.0 * gap]), len(pattern)
    start = Mixture(np.ones(1), np.zeros((1, d)), 0.3 * (pattern * np.eye(d))[None], 0.3)

    def objective(parameters: Array) -> float:
        statistics = SerialNoise(column, *np.exp(parameters)).statistics(tasks, scaling)
        value = maximise_restricted(statistics, start, pattern, (), reml, basis)[1]
        assert value is not None
        return -value

    corners = np.vstack([first, first + np.eye(2)])
    options = {"maxfev": EVALUATIONS, "xatol": 0.02, "fatol": 0.02, "initial_simplex": corners}
    found = minimize(objective, first, method="Nelder-Mead", bounds=bounds, options=options)
    return SerialNoise(column, *np.exp(found.x).tolist())
