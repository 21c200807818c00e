"""The prior of empirical Bayes: a Gaussian mixture."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..feature_maps.side_features import SideFeatures
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import times
from ..gaussian.rows import Tasks
from ..gaussian.serial import SerialGaussian, SerialMoments
from ..tasks.rows import Index, Matrix
from ..tasks.task_set import TaskSet
from .base import Array, Posterior, Prior


@dataclass(frozen=True, kw_only=True, repr=False)
class MixturePrior(Prior):
    """A Gaussian mixture prior of the weights; for Gaussian targets, the posterior of a task has a closed form.

    ``τ(s) = Σ_k r_k W_k / σ²`` with the responsibilities r of the components, given the task's rows and side information.
    For classes and counts, σ² is replaced by 1.  The weights w are the posterior mean of the mixture.  For numeric targets, b(s) is
    the mean of the single Gaussian prior with covariance proportional to τ(s) that gives the same w: ``b = w + τ (XᵀXw − Xᵀy)``.
    With one component, this is its mean.  For classes and counts, b(s) is the mean of the components, weighted by r.
    """

    model: Mixture
    side: SideFeatures | None = None  # features v(s) of the side information
    without_rows: Array | None = (
        None  # (d,) added to the mean of tasks without rows; None for nothing
    )

    @property
    def mixture(self) -> Mixture:
        return self.model

    @property
    def needs_rows(self) -> bool:
        """Whether second moments are not sufficient: for classes, counts, and correlated noise."""
        return not self.response.is_gaussian or isinstance(self.response, SerialGaussian)

    @property
    def unit(self) -> float:
        """σ², the unit of covariances; 1 if targets are not Gaussian."""
        return self.model.noise if self.response.is_gaussian else 1.0

    def side_features(self, tasks: TaskSet) -> Array | None:
        """Return v(s) of every task, (T, q); None without side features."""
        # Computed even if the model does not use them: required inputs must not depend on the fit.
        return None if self.side is None else self.side(tasks)

    def statistics(self, tasks: TaskSet) -> Tasks:
        """Return the statistics of residual tasks: moments, or rows for classes, counts, and few rows with many columns."""
        return self.response.statistics(tasks, self.scaling, self.side_features(tasks))

    def posterior_of(self, statistics: Tasks, covariances: bool) -> Posterior:
        """Return the posterior of residual tasks from their statistics, without the sums of squared residuals."""
        _, weights, covariance = self._solve_statistics(statistics, covariances)
        T, sizes = len(weights), np.asarray(statistics.sizes, dtype=np.int64)
        found = Posterior(
            self.scaling.raw_weights(weights), sizes, np.zeros(0), covariance, np.zeros((T, 0))
        )
        if isinstance(statistics, SerialMoments):
            return replace(found, history=statistics.history(weights))
        return found

    def posterior(
        self, tasks: TaskSet, covariances: bool = True, n_jobs: int | None = None
    ) -> Posterior:
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
        expected = statistics.posterior(self.model, Want(means=True, covariances=covariances))
        weights = expected.mean + self._moved(statistics)
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
            return weights + times(
                self._taus(r), times(statistics.gram, weights) - statistics.cross
            )
        # This avoids the rounding errors of the general formula.
        b = r @ model.means
        if model.side is not None:
            assert statistics.side is not None
            b += statistics.side @ model.side.T
        return b + self._moved(statistics)

    def _moved(self, statistics: Tasks) -> Array | float:
        """Return what is added to the mean of each task, (T, d)."""
        if self.without_rows is None:
            return 0.0
        return np.where(statistics.sizes[:, None] == 0, self.without_rows, 0.0)

    def mean_at_centre(self) -> Array:
        return np.array(self.model.moments()[0])
