"""The prior of empirical Bayes: a Gaussian mixture, with shifts of its mean that are learned on query rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from .._utils.records import Record
from .._utils.validation import check_divisor, check_shape
from ..feature_maps.maps import check_features
from ..feature_maps.side_features import SideFeatures
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import influence, times
from ..gaussian.rows import Tasks
from ..gaussian.serial import SerialGaussian, SerialMoments
from ..tasks.rows import Index, Matrix
from ..tasks.task_set import TaskSet
from .base import Array, Posterior, Prior

#: Weights are treated as equal in all tasks if their standard deviation is below this fraction of that of the model.
SMALLEST_SPREAD = 1e-6
#: Log noise variances with a smaller standard deviation are left out of ψ(s), by a large divisor.  They hardly differ given
#: one row, but differ given more rows: a shift that is learned from them for one row would be wrong for other support sizes.
SMALLEST_DEVIATION, LEFT_OUT = 0.1, 1e9
#: Weight of the average noise variance in the estimate of a task's noise variance, as a number of rows.
NOISE_ROWS = 5.0


@dataclass(frozen=True)
class TaskSummary(Record):
    """The summary ψ(s) of a task: its weights, two log noise variances and optional features v(s).

    Weights are given in the principal directions of their covariance.  ψ is centred over the training tasks and scaled such
    that the root mean square of ‖ψ‖ is one.  All directions have the divisor of the first.  Directions in which tasks hardly
    differ therefore stay small, and a penalty on a linear map of ψ suppresses them.
    """

    centre: Array  # (d,) mean of the weights over tasks
    axes: Array  # (d, d) principal directions of the weights; zero if the weights do not differ
    noise: float  # noise variance
    spread: float  # mean squared residual of predictions with the weights ``centre``
    with_side: bool  # whether ψ includes v(s)
    mean: Array  # (m,) mean of the parts of ψ over tasks
    scale: Array  # (m,) divisor of the parts

    def restore(self) -> None:
        for name in ("noise", "spread", "scale"):
            check_divisor(name, getattr(self, name))

    def check_shapes(self, d: int, q: int) -> None:
        """Raise ValueError unless this summarises tasks with d columns and q features of side information."""
        check_shape("centre", self.centre, d)
        check_shape("axes", self.axes, d, d)
        for name in ("mean", "scale"):
            check_shape(name, getattr(self, name), d + 2 + (q if self.with_side else 0))

    @classmethod
    def fit(cls, mixture: Mixture, statistics: Tasks, weights: Array, with_side: bool = False) -> TaskSummary:
        """Estimate the centre and the scales from tasks with posterior means ``weights`` (T, d)."""
        centre, covariance = mixture.moments()
        variances, axes = (part[..., ::-1] for part in np.linalg.eigh(covariance))
        first = np.sqrt(np.mean(((weights - centre) @ axes[:, 0]) ** 2))
        # The weights of tasks without rows differ from the centre by rounding only.
        if not first > SMALLEST_SPREAD * np.sqrt(max(float(variances[0]), 0.0)):
            first, axes = 1.0, np.zeros_like(axes)
        spread = max(float(statistics.squared_residuals(centre).sum() / statistics.n_rows), mixture.noise)
        made = cls(centre, axes, mixture.noise, spread, with_side, np.zeros(0), np.ones(0))
        parts = made.parts(statistics, weights)
        mean, scale, d = parts.mean(axis=0), np.ones(parts.shape[1]), len(centre)
        deviation = parts[:, d : d + 2].std(axis=0)
        scale[:d], scale[d : d + 2] = first, np.where(deviation > SMALLEST_DEVIATION, deviation, LEFT_OUT)
        norm = float(np.sqrt(np.mean(np.sum(((parts - mean) / scale) ** 2, axis=1))))
        return replace(made, mean=mean, scale=scale * (norm if norm > 1e-9 else 1.0))

    def __call__(self, statistics: Tasks, weights: Array) -> Array:
        """Return ψ of each task, (T, m)."""
        return (self.parts(statistics, weights) - self.mean) / self.scale

    def parts(self, statistics: Tasks, weights: Array) -> Array:
        """Return ψ before centring and scaling.

        The noise variances are mean squared residuals of predictions with the task's weights and with ``centre``.
        """
        rows = statistics.sizes + NOISE_ROWS
        own = statistics.squared_residuals(weights) + NOISE_ROWS * self.noise
        common = statistics.squared_residuals(self.centre) + NOISE_ROWS * self.spread
        levels = np.log(np.stack([own, common], axis=1) / rows[:, None])
        side = [statistics.side] if self.with_side and statistics.side is not None else []
        return np.hstack([(weights - self.centre) @ self.axes, levels, *side])


@dataclass(frozen=True)
class MeanShift(Record):
    """The shift ``B (1, ψ(s))`` of the prior mean of tasks with about ``rows`` support rows.

    A shift of the prior mean moves the weights of a task without rows by the same amount, and those of a task with many rows
    hardly at all.  Therefore B is learned for each of a few support sizes, and shifts are interpolated between these sizes.
    """

    rows: float
    B: Array | None = None  # (d, 1 + m); None for no shift
    summary: TaskSummary | None = None  # computes the summary ψ(s), (m,), of a task's rows; None for no shift

    def check_shapes(self, d: int, q: int) -> None:
        """Raise ValueError unless this shifts d weights, given q features of side information."""
        if (self.B is None) != (self.summary is None):
            raise ValueError("B: a shift needs both B and summary")
        if self.B is not None and self.summary is not None:
            self.summary.check_shapes(d, q)
            check_shape("B", self.B, d, 1 + len(self.summary.mean))


def mean_shifts(shifts: Sequence[MeanShift], statistics: Tasks, weights: Array) -> Array | None:
    """Return the shift of the prior mean of each task, (T, d); ``weights`` are those without shifts.  None if all are zero."""
    total = None
    for shift, height in zip(shifts, interpolation(shifts, statistics.sizes), strict=True):
        if shift.B is None or not height.any():
            continue
        assert shift.summary is not None
        psi = shift.summary(statistics, weights)
        added = height[:, None] * (shift.B[:, 0] + psi @ shift.B[:, 1:].T)
        total = added if total is None else total + added
    return total


def interpolation(shifts: Sequence[MeanShift], sizes: Array) -> Array:
    """Return the weights (L, T) of the shifts in a linear interpolation in log(1 + n), for n rows."""
    knots = np.log1p([shift.rows for shift in shifts])
    return np.array([np.interp(np.log1p(sizes), knots, tip) for tip in np.eye(len(knots))])


@dataclass(frozen=True, kw_only=True, repr=False)
class MixturePrior(Prior):
    """A Gaussian mixture prior of the weights; for Gaussian targets, the posterior of a task has a closed form.

    ``τ(s) = Σ_k r_k W_k / σ²`` with the responsibilities r of the components, given the task's rows and side information.
    For classes and counts, σ² is replaced by 1.  The weights w are the posterior mean of the mixture.  For numeric targets, b(s) is
    the mean of the single Gaussian prior with covariance proportional to τ(s) that gives the same w: ``b = w + τ (XᵀXw − Xᵀy)``.
    With one component, this is its mean.  For classes and counts, b(s) is the mean of the components, weighted by r.
    """

    model: Mixture
    side: SideFeatures | None = None  # features v(s) of the side information, or of the rows
    shifts: tuple[MeanShift, ...] = ()  # ordered by increasing number of support rows

    def restore(self) -> None:
        super().restore()
        K, d = self.model.means.shape
        q = 0 if self.side is None else len(self.side.mean)
        check_shape("scaling.columns", self.scaling.columns, d)
        if self.model.side is not None:
            check_shape("model.side", self.model.side, d, q)
        if self.model.gates is not None:
            check_shape("model.gates", self.model.gates, K, 1 + q)
        if any(one.rows >= other.rows for one, other in pairwise(self.shifts)):
            raise ValueError("shifts: numbers of rows must increase")
        for shift in self.shifts:
            shift.check_shapes(d, q)

    @property
    def mixture(self) -> Mixture:
        return self.model

    @property
    def needs_rows(self) -> bool:
        """Whether second moments are not sufficient: for classes, counts, correlated noise, and features of the rows."""
        is_plain = self.response.is_gaussian and not isinstance(self.response, SerialGaussian)
        return not is_plain or (self.side is not None and self.side.encoder.needs_rows)

    @property
    def unit(self) -> float:
        """σ², the unit of covariances; 1 if targets are not Gaussian."""
        return self.model.noise if self.response.is_gaussian else 1.0

    def side_features(self, tasks: TaskSet) -> Array | None:
        """Return v(s) of every task, (T, q); None without side features."""
        # Computed even if the model does not use them: required inputs must not depend on the fit.
        return None if self.side is None else check_features(self.side(tasks), tasks)

    def statistics(self, tasks: TaskSet) -> Tasks:
        """Return the statistics of residual tasks: moments, or rows for classes, counts, and few rows with many columns."""
        return self.response.statistics(tasks, self.scaling, self.side_features(tasks))

    def posterior_of(self, statistics: Tasks, covariances: bool) -> Posterior:
        """Return the posterior of residual tasks from their statistics, without the sums of squared residuals."""
        _, weights, covariance = self._solve_statistics(statistics, covariances)
        T, sizes = len(weights), np.asarray(statistics.sizes, dtype=np.int64)
        found = Posterior(self.scaling.raw_weights(weights), sizes, np.zeros(0), covariance, np.zeros((T, 0)))
        if isinstance(statistics, SerialMoments):
            return replace(found, history=statistics.history(weights))
        return found

    def posterior(self, tasks: TaskSet, covariances: bool = True, n_jobs: int | None = None) -> Posterior:
        found = super().posterior(tasks, covariances, n_jobs)
        if not isinstance(self.response, SerialGaussian):
            return found
        statistics = self.statistics(self.residual_tasks(tasks))
        assert isinstance(statistics, SerialMoments)
        weights = self._solve_statistics(statistics, False)[1]
        squares = statistics.squared_residuals(weights) if covariances else found.squares
        return replace(found, squares=squares, history=statistics.history(weights))

    def linear_predictors(
        self, posterior: Posterior, X: Matrix, task: Index, *, variances: bool
    ) -> tuple[Array, Array, Array | float]:
        centre, own, of_shared = super().linear_predictors(posterior, X, task, variances=variances)
        if not isinstance(self.response, SerialGaussian):
            return centre, own, of_shared
        rows = self.scaling.dense(X if self.shared is None else self.shared.own_columns(X))
        past = posterior.history, posterior.n_rows
        x, noise, variance = self.response.given_support(rows, self.response.times(X), task, *past)
        if variances:
            own = np.einsum("nd,nde,ne->n", x, posterior.covariances[task], x) + variance - 1.0
        centre = centre + self.scaling.target * noise
        return centre, own, of_shared

    def _solve(self, tasks: TaskSet, covariances: bool, n_jobs: int | None) -> tuple[Array, Array]:
        return self._solve_statistics(self.statistics(tasks), covariances)[1:]

    def _solve_statistics(self, statistics: Tasks, covariances: bool) -> tuple[Array, Array, Array]:
        """Return responsibilities (T, K), weights (T, d), and covariances if requested."""
        model, shifted = self.model, bool(self.shifts)
        expected = statistics.posterior(model, Want(means=True, covariances=covariances or shifted))
        weights = expected.mean
        shift = mean_shifts(self.shifts, statistics, weights) if shifted else None
        if shift is not None:
            weights = weights + times(influence(statistics, model, expected.covariances), shift)
        found = expected.mixture_covariance(1.0 / self.unit) if covariances else np.zeros((0, 0, 0))
        return expected.shares, weights, found

    def certificate(self, support: TaskSet) -> tuple[float, int]:
        if not self.response.is_gaussian:
            return np.nan, 1  # the posterior mean is not a minimiser
        statistics = self.statistics(self.residual_tasks(support))
        r, weights, _ = self._solve_statistics(statistics, False)
        tau = self._taus(r)[0]
        w, gram, cross = weights[0], statistics.gram[0], statistics.cross[0]
        b = self._mean_of(statistics, r, weights)[0]
        # With u = Xᵀ(y − Xw), the dual objective is −½ uᵀτu + .., and the duality gap is the following quadratic form.
        missed = gram @ (b + tau @ (cross - gram @ w) - w)
        return 0.5 * max(float(missed @ tau @ missed), 0.0) / max(statistics.sizes[0], 1.0), 1

    def _taus(self, r: Array) -> Array:
        return self.model.mean_covariance(r) / self.unit

    def _represent(self, tasks: TaskSet, change: Array) -> Array:
        shares = self.statistics(tasks).posterior(self.model).shares
        return np.asarray(change @ self._taus(shares) @ change.T)

    def _mean(self, tasks: TaskSet) -> Array:
        statistics = self.statistics(tasks)
        r, weights, _ = self._solve_statistics(statistics, False)
        return self._mean_of(statistics, r, weights)

    def _mean_of(self, statistics: Tasks, r: Array, weights: Array) -> Array:
        model = self.model
        if model.n_components > 1 and statistics.is_gaussian:
            return weights + times(self._taus(r), times(statistics.gram, weights) - statistics.cross)
        # This avoids the rounding errors of the general formula.
        b = r @ model.means
        if model.side is not None:
            assert statistics.side is not None
            b += statistics.side @ model.side.T
        if self.shifts:
            shift = mean_shifts(self.shifts, statistics, statistics.posterior(model, Want(means=True)).mean)
            b = b if shift is None else b + shift
        return b

    def mean_at_centre(self) -> Array:
        return np.array(self.model.moments()[0])
