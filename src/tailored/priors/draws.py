"""The joint distribution of predicted rows of many tasks: draws, and exact moments of their sums.

The rows of a task share its coefficients, and all tasks share the errors of the fixed effects, so predicted rows are
correlated.  In the scaling of the prior, the coefficients of a task under one component are

    w = m + R D δ + L u ,

with the posterior mean m and covariance ``LLᵀ``, standard normal u, and the errors δ of the fixed effects (b, Γ).  D maps δ to
the prior mean of the task, and R is the derivative of the posterior mean with respect to the prior mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._utils.compiling import njit
from ..gaussian.errors import MeanCovariance
from ..gaussian.kernels import ROWS, keep_separate
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import influence
from ..tasks.rows import Array, dense, frozen
from ..tasks.task_set import TaskSet
from .base import Index, adapt_tasks, predict
from .mixture import MixturePrior

#: Number of floats in the draws that are computed at a time.
CHUNK_FLOATS = 1 << 18
#: Components with a smaller proportion have the error of the mean of this proportion.
LEAST_PROPORTION = 1e-3


def roots_of(covariances: Array) -> Array:
    """Return L with ``LLᵀ`` equal to each covariance (.., d, d), which may be singular."""
    values, vectors = np.linalg.eigh(covariances)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def variance_ratios(prior: MixturePrior, n_rows: NDArray[np.int64]) -> Array:
    """Return the mean ratio of actual to implied variances of held-out rows, by the numbers of support rows of tasks."""
    calibration = prior.calibration
    if calibration is None:
        return np.ones(len(n_rows))
    counts, which = np.unique(n_rows, return_inverse=True)
    squares = np.array([calibration.deviation(n) ** 2 for n in counts.tolist()])
    return np.asarray(calibration.noise / prior.model.noise * squares[which])


class Coefficients(NamedTuple):
    """The coefficients of T tasks about their posterior means, under K components with J distinct covariances, 1 or K."""

    shares: Array  # (T, K) responsibilities
    means: Array  # (J, T, d) posterior means minus that of the mixture; zero if J is 1
    roots: Array  # (J, T, d, d) L
    influence: Array  # (J, T, d, d) R
    side: Array  # (T, 1 + q) factors of b and of the columns of Γ in the prior mean

    @classmethod
    def of(cls, prior: MixturePrior, support: TaskSet) -> Coefficients:
        """Return the coefficients of tasks with these support rows."""
        model, statistics = prior.model, prior.statistics(prior.residual_tasks(support))
        shares, means, covariances, R = statistics.posterior(model).shares, [], [], []
        for b, W in zip(model.means, model.covariances, strict=False):
            one = Mixture(np.ones(1), b[None], W[None], model.noise, model.side)
            found = statistics.posterior(one, Want(means=True, covariances=True))
            means.append(found.mean)
            covariances.append(found.covariances)
            R.append(influence(*statistics.gaussian(one), found.covariances))
        centre = np.einsum("tj,jtd->td", shares, means) if len(means) > 1 else means[0]
        side = np.ones((len(support), 1))
        if statistics.side is not None:
            side = np.hstack([side, statistics.side])
        return cls(shares, means - centre, roots_of(np.stack(covariances)), np.stack(R), side)

    def draw(self, rng: np.random.Generator, n: int, model: Mixture, errors: MeanCovariance | None) -> Array:
        """Draw deviations from the posterior means, (n, T, d)."""
        J, T, d = self.means.shape
        u = rng.standard_normal((T, n, d))
        component = self._components(rng, n)
        shift = self._mean_errors(rng, n, model, errors)
        if model.n_components > J:
            shift[:, 0] += model.means[component] - (self.shares @ model.means)[:, None]
        out = np.empty((n, T, d))
        for j in range(J):
            found = u @ self.roots[j].mT
            found += shift[:, j] @ self.influence[j].mT
            where = True if J == 1 else np.equal(component.T, j)[:, :, None]
            np.add(found.transpose(1, 0, 2), self.means[j], out=out, where=where)
        return out

    def _components(self, rng: np.random.Generator, n: int) -> Index:
        """Draw the component of each task, (T, n)."""
        T, K = self.shares.shape
        if K == 1:
            return np.zeros((T, n), dtype=np.intp)
        first = np.arange(T)[:, None]
        steps = np.cumsum(self.shares, axis=1) + first
        return np.clip(np.searchsorted(steps.ravel(), rng.random((T, n)) + first) - K * first, 0, K - 1)

    def _mean_errors(
        self, rng: np.random.Generator, n: int, model: Mixture, errors: MeanCovariance | None
    ) -> Array:
        """Draw D δ, (T, J, n, d).

        The means of the components have independent errors.  Their average, weighted by the proportions, has the covariance
        of the error of b.
        """
        J, T, d = self.means.shape
        if errors is None:
            return np.zeros((T, J, n, d))
        root = np.sqrt(np.maximum(model.proportions, LEAST_PROPORTION)) if J > 1 else np.ones(1)
        L = roots_of(np.nan_to_num(errors.covariance))
        delta = rng.standard_normal((J, n, len(L))) @ L.T
        delta = np.where(errors.column == 0, delta / root[:, None, None], np.tensordot(root, delta, 1))
        B = np.zeros((J, n, d, self.side.shape[1]))
        B[:, :, errors.row, errors.column] = delta
        return np.tensordot(self.side, B, (1, 3))


@dataclass(frozen=True)
class JointRows:
    """The joint distribution of N predicted rows of T tasks, in the user's units."""

    prior: MixturePrior
    coefficients: Coefficients
    errors: MeanCovariance | None  # of (b, Γ); None if they are known
    X: Array  # (N, d) scaled rows
    task: Index  # (N,) positions of their tasks
    centre: Array  # (N,) linear predictors at the posterior means
    mean: Array  # (N,) predictions of `predict`
    noise: Array  # (N,) noise variances of numbers, otherwise dispersions
    #: For each category column with shared effects: the category of each row (N,), and error variances by category.
    levels: list[tuple[Index, Array]]

    @classmethod
    def of(
        cls,
        prior: MixturePrior,
        support: TaskSet,
        query: TaskSet,
        errors: MeanCovariance | None,
        *,
        calibrated: bool,
        n_jobs: int | None = None,
    ) -> JointRows:
        """Return the joint distribution of the query rows of tasks, given their support rows.

        ``calibrated`` variances of coefficients and noise are multiplied by `variance_ratios`.
        """
        posterior = adapt_tasks(prior, support, n_jobs=n_jobs)
        task = np.repeat(np.arange(len(query)), query.sizes)
        mean = predict(prior, posterior, query.X, task, exposure=query.exposure).prediction
        centre = prior.linear_predictors(posterior, query.X, task, variances=False)[0]
        X, levels = query.X, []
        if prior.shared is not None:
            levels = [one.errors_of(dense(X)) for one in prior.shared.levels]
            X = prior.shared.own_columns(X)
        if query.exposure is not None:
            centre = centre + np.log(query.exposure)
        coefficients, scale = Coefficients.of(prior, support), np.ones(len(support))
        if calibrated:
            scale = variance_ratios(prior, posterior.n_rows)
            coefficients = coefficients._replace(roots=coefficients.roots * np.sqrt(scale)[:, None, None])
        noise = prior.scaling.target**2 * prior.model.noise * scale[task]
        return cls(prior, coefficients, errors, prior.scaling.dense(X), task, centre, mean, noise, levels)

    def draw(self, rng: np.random.Generator, out: Array, units: Array | float = 1.0) -> None:
        """Draw the sum of the targets of ``units`` (N,) rows like each row, to ``out`` (n, N)."""
        prior, n = self.prior, len(out)
        deviations = self.coefficients.draw(rng, n, prior.model, self.errors)
        rows = frozen(self.X), frozen(self.task, np.intp), frozen(deviations), frozen(self.centre)
        add_products(*rows, float(prior.scaling.target), out)
        for category, variances in self.levels:
            out += (rng.standard_normal((n, len(variances))) * np.sqrt(variances))[:, category]
        prior.response.draw(rng, out, self.noise, np.asarray(units, dtype=float))
        if prior.response.is_gaussian and prior.clip is not None:
            np.clip(out, prior.clip[0] * units, prior.clip[1] * units, out=out)

    def chunks(self, n_draws: int) -> Iterator[slice]:
        """Yield the positions of draws that are computed at a time."""
        size = max(1, CHUNK_FLOATS // max(len(self.centre), self.coefficients.means[0].size))
        return (slice(start, min(start + size, n_draws)) for start in range(0, n_draws, size))

    @property
    def is_gaussian(self) -> bool:
        """Whether sums of rows have a Gaussian distribution."""
        prior = self.prior
        return prior.response.is_gaussian and prior.clip is None and prior.model.n_components == 1

    def variances(self, group: Index, n_groups: int, units: Array) -> Array:
        """Return the variances of the sums of rows by group, (G,), if rows are Gaussian."""
        found = self.coefficients
        pair, at = np.unique(self.task * n_groups + group, return_inverse=True)
        task, of = pair // n_groups, pair % n_groups
        # Coefficients of the sum of the rows of a group in one task.
        A = sparse.csr_array((units, (at, np.arange(len(at)))), (len(pair), len(at))) @ self.X
        own = np.einsum("pd,pdk->pk", A, found.roots[0][task])
        total = np.bincount(of, (own**2).sum(axis=1), n_groups).astype(float)
        if self.errors is not None:
            by_group = sparse.csr_array((np.ones(len(of)), (of, np.arange(len(of)))), (n_groups, len(of)))
            moved = np.einsum("pd,pdk->pk", A, found.influence[0][task])
            H = np.stack([by_group @ (moved * factor[task, None]) for factor in found.side.T], axis=2)
            h = H[:, self.errors.row, self.errors.column]
            total += np.einsum("gi,ij,gj->g", h, np.nan_to_num(self.errors.covariance), h)
        total = total * self.prior.scaling.target**2 + np.bincount(group, units * self.noise, n_groups)
        for category, variances in self.levels:
            shape = len(variances), n_groups
            sums = sparse.coo_array((units, (category, group)), shape).tocsr()
            total += variances @ sums.power(2)
        return np.asarray(total)

    def totals(
        self, group: Index, n_groups: int, units: Array, n_draws: int, rng: np.random.Generator
    ) -> Array:
        """Draw the sums of rows by group, (n_draws, G)."""
        out = np.empty((n_draws, n_groups))
        by_group = sparse.csr_array(
            (np.ones(len(group)), (group, np.arange(len(group)))), (n_groups, len(group))
        )
        for part in self.chunks(n_draws):
            rows = np.empty((part.stop - part.start, len(group)))
            self.draw(rng, rows, units)
            out[part] = (by_group @ rows.T).T
        return out


@njit(**ROWS)
def add_products(X: Array, task: Index, weights: Array, centre: Array, scale: float, out: Array) -> None:
    """Write ``centre + scale <x, w>`` of each row to ``out`` (n, N), for n draws of the weights (n, T, d)."""
    keep_separate()
    for s in range(len(out)):
        for i in range(len(X)):
            t, total = task[i], 0.0
            for j in range(X.shape[1]):
                total += X[i, j] * weights[s, t, j]
            out[s, i] = centre[i] + scale * total
