"""The prior of empirical Bayes: a Gaussian mixture; weights of many tasks on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import log_priors, normalise, times
from ..gaussian.rows import Tasks
from ..scale.cuda import CudaMoments
from ..scale.tensors import TensorTasks
from ..tasks.task_set import TaskSet
from .base import Array, Index, Posterior, Prior, QueryRows, products
from .side_features import SideFeatures

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True, repr=False)
class MixturePrior(Prior):
    """A Gaussian mixture prior of the weights; for Gaussian targets, the posterior of a task has a
    closed form.

    ``τ(s) = Σ_k r_k W_k / σ²`` with the responsibilities r of the components, given the task's rows
    and side information. For classes and counts, σ² is replaced by 1.  The weights w are the
    posterior mean of the mixture.  For numeric targets, b(s) is the mean of the single Gaussian
    prior with covariance proportional to τ(s) that gives the same w: ``b = w + τ (XᵀXw − Xᵀy)``.
    With one component, this is its mean.  For classes and counts, b(s) is the mean of the
    components, weighted by r.
    """

    model: Mixture
    side: SideFeatures | None = None  # features v(s) of the side information
    #: (d,) added to the mean of tasks without rows; None for nothing.
    without_rows: Array | None = None

    @property
    def mixture(self) -> Mixture:
        return self.model

    @property
    def unit(self) -> float:
        """σ², the unit of covariances; 1 if targets are not Gaussian."""
        return self.model.noise if self.response.is_gaussian else 1.0

    def side_features(self, tasks: TaskSet) -> Array | None:
        """Return v(s) of every task, (T, q); None without side features."""
        # Computed even if the model does not use them: required inputs must not depend on the fit.
        return None if self.side is None else self.side(tasks)

    def statistics(self, tasks: TaskSet) -> Tasks:
        """Return the statistics of residual tasks: moments, or rows for classes, counts, and few
        rows with many columns.
        """
        return self.response.statistics(tasks, self.scaling, self.side_features(tasks))

    def components(self, statistics: Tasks, covariances: bool = True) -> tuple[Array, Array, Array]:
        """Return the responsibilities (T, K), posterior means (T, K, d) and covariances (T, K, d,
        d) under each component.
        """
        want, model = Want(means=True, covariances=covariances), self.model
        found = [statistics.posterior(part, want) for part in model.parts]
        shares = log_priors(model, statistics.side, len(statistics), None)
        shares += np.stack([each.log_evidence for each in found], axis=1)
        normalise(shares)
        means = np.concatenate([each.means for each in found], axis=1)
        return shares, means, np.stack([each.covariances for each in found], axis=1)

    def linear_predictors(
        self, posterior: Posterior, query: QueryRows, *, variances: bool
    ) -> tuple[Array, Array, Array | float, Array | float]:
        found = super().linear_predictors(posterior, query, variances=variances)
        if self.response.correlation is None:
            return found
        centre, own, noise, of_shared = found
        x, expected, covariances = self.given_support(posterior, query)
        noise = noise + np.zeros(len(x))
        for at, S in covariances:
            noise[at] += S.diagonal()
        if variances:
            assert posterior.covariances is not None
            own = np.einsum("nd,nde,ne->n", x, posterior.covariances[query.task], x)
        return centre + expected, own, noise, of_shared

    def given_support(
        self, posterior: Posterior, query: QueryRows
    ) -> tuple[Array, Array, list[tuple[Index, Array]]]:
        """Return scaled query rows, and what the support rows of their tasks say about their noise.

        If noise is correlated in time, these are ``X_q − A X_s``, the expected noise ``A (y_s − X_s
        w)`` in the user's units, and the rows and S of each task (see `tailored.gaussian.serial`).
        Otherwise, rows are unchanged, the expected noise is zero, and the list is empty.
        """
        X = query.X if self.shared is None else self.shared.own_columns(query.X)
        x, expected = self.scaling.dense(X), np.zeros(X.shape[0])
        covariances: list[tuple[Index, Array]] = []
        if (noise := self.response.correlation) is None:
            return x, expected, covariances
        support, n_rows = posterior.support, posterior.n_rows
        assert support is not None
        past_X, past_y = support[:, :-2], support[:, -2]
        past_task = np.repeat(np.arange(len(posterior)), n_rows)
        errors = past_y - products(past_X, posterior.weights, past_task, self.fit_intercept)
        past_x, rows = self.scaling.dense(past_X), (support, n_rows)
        for at, past, A, S in noise.given_support(noise.times(X), query.task, *rows):
            x[at] -= A @ past_x[past]
            expected[at] = A @ errors[past]
            covariances.append((at, S))
        return x, expected, covariances

    def _solve(self, statistics: Tasks, covariances: bool) -> tuple[Array, ...]:
        if self.response.is_gaussian:
            return self._solve_statistics(statistics, covariances)[1:]
        shares, means, C = self.components(statistics, covariances)
        return np.einsum("tk,tkd->td", shares, means), C, shares, self.scaling.raw_weights(means)

    def _solve_statistics(self, statistics: Tasks, covariances: bool) -> tuple[Array, Array, Array]:
        """Return responsibilities (T, K), weights (T, d), and covariances if requested."""
        expected = statistics.posterior(self.model, Want(means=True, covariances=covariances))
        weights = expected.mean + self._moved(statistics)
        found = expected.mixture_covariance(1.0 / self.unit) if covariances else np.zeros((0, 0, 0))
        return expected.shares, weights, found

    def _represent(self, tasks: TaskSet, change: Array) -> Array:
        shares = self.statistics(tasks).posterior(self.model).shares
        return np.asarray(change @ (self.model.mean_covariance(shares) / self.unit) @ change.T)

    def _mean(self, tasks: TaskSet) -> Array:
        statistics, model = self.statistics(tasks), self.model
        r, weights, _ = self._solve_statistics(statistics, False)
        if model.n_components > 1 and statistics.is_gaussian:
            residuals = times(statistics.gram, weights) - statistics.cross
            return weights + times(model.mean_covariance(r) / self.unit, residuals)
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


def weights_on_device(prior: Prior, tasks: TensorTasks) -> Tensor:
    """Return the weights (T, d) of tasks with a `MixturePrior`, in the user's units; an intercept
    is last.
    """
    if not isinstance(prior, MixturePrior):
        raise ValueError(
            f"device: {type(prior).__name__} is only supported on the CPU; use device=None"
        )
    has_moments = prior.response.is_gaussian and prior.response.correlation is None
    if not has_moments or prior.shared is not None:
        raise ValueError(
            "device: classes, counts, correlated noise and effects that all tasks share are "
            "computed on the CPU; set device=None and pass arrays"
        )
    import torch

    parts, scaling, size = [], prior.scaling, 1 << 20  # tasks that are adapted together
    for start in range(0, len(tasks), size):
        block = tasks.slice(start, start + size)
        side = None if block.side_tasks is None else prior.side_features(block.side_tasks)
        statistics = CudaMoments.of(block, scaling, side)
        shares, means = statistics.posterior(prior.model)
        weights = torch.einsum("tk,tkd->td", shares, means)
        if prior.without_rows is not None:
            is_empty = (statistics.sizes == 0)[:, None]
            weights += is_empty * weights.new_tensor(prior.without_rows)
        if not scaling.is_raw:  # as in `Scaling.raw_weights`
            weights *= weights.new_tensor(scaling.weights)
            if scaling.fit_intercept:
                shift = weights.new_tensor(scaling.shift[:-1])
                weights[:, -1] += scaling.target_shift - weights[:, :-1] @ shift
        parts.append(weights)
    return parts[0] if len(parts) == 1 else torch.cat(parts)
