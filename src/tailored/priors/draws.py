"""The joint distribution of predicted rows of many tasks: draws, and exact variances of sums that are Gaussian.

The rows of a task share its coefficients, and all tasks share the errors of the fixed effects, so predicted rows are
correlated.  In the scaling of the prior, the coefficients of a task under one component are

    w = m + R D δ + L u ,

with the posterior mean m and covariance ``LLᵀ``, standard normal u, and the errors δ of the fixed effects (b, Γ).  D maps δ to
the prior mean of the task, and R is the derivative of the posterior mean with respect to the prior mean.  The means of all
components have the same error.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from .base import Index, adapt_tasks, multiples_of, predict
from .intervals import noise_variances
from .mixture import MixturePrior

#: Maximum number of floats in the draws that are computed at a time.
CHUNK_FLOATS = 1 << 18


def roots_of(covariances: Array) -> Array:
    """Return L with ``LLᵀ`` equal to each covariance (.., d, d), which may be singular."""
    values, vectors = np.linalg.eigh(covariances)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def adding(group: Index, n_groups: int, factors: Array) -> sparse.csr_array:
    """Return the matrix (G, n) that multiplies n values by factors and adds them by group."""
    return sparse.csr_array((factors, (group, np.arange(len(group)))), (n_groups, len(group)))


def _variance_ratios(prior: MixturePrior, n_rows: NDArray[np.int64], influence: Array) -> Array:
    """Return the mean ratio of actual to implied variances of held-out rows, for tasks with this many support rows.

    The calibrated noise variance of a task depends on its residuals.  Here it has its expected value: a prior with the influence
    R (d, d) leaves ``n − d + tr R`` of n squared residuals.  The residuals of a single task would be too uncertain for totals.
    """
    noise, calibration = prior.model.noise, prior.calibration
    if calibration is None:
        return np.ones(len(n_rows))
    squares = noise * (n_rows - prior.n_weights + np.trace(influence, axis1=1, axis2=2))
    own = noise_variances(
        np.maximum(squares, 0.0), n_rows, calibration.noise, calibration.noise_rows
    )
    # The deviation does not depend on the coverage.
    return np.asarray(multiples_of(prior, n_rows, 0.01)[0][:, 2] ** 2 * own / noise)


@dataclass(frozen=True)
class JointRows:
    """The joint distribution of N predicted rows of T tasks, under K components."""

    prior: MixturePrior
    errors: MeanCovariance | None  # of (b, Γ); None if they are treated as known
    X: Array  # (N, d) scaled rows
    task: Index  # (N,) positions of their tasks
    centre: Array  # (N,) linear predictors at the posterior means, in the user's units
    mean: Array  # (N,) predictions of `predict`
    noise: Array  # (N,) noise variances in the user's units; for counts, dispersions
    #: For each category column with shared effects: the category of each row (N,), and error variances by category.
    levels: list[tuple[Index, Array]]
    shares: Array  # (T, K) responsibilities
    means: Array  # (K, T, d) posterior means minus that of the mixture
    roots: Array  # (K, T, d, d) L
    influence: Array  # (K, T, d, d) R
    side: Array  # (T, 1 + q) factors of b and of the columns of Γ in the prior mean

    @classmethod
    def of(
        cls,
        prior: MixturePrior,
        support: TaskSet,
        query: TaskSet,
        errors: MeanCovariance | None,
        *,
        calibrated: bool,
    ) -> JointRows:
        """Return the joint distribution of query rows, given the support rows of the same tasks.

        ``calibrated`` multiplies variances by the mean ratio of actual to implied variances of held-out rows.
        """
        model, T, X, levels = prior.model, len(support), query.X, []
        posterior, task = adapt_tasks(prior, support), np.repeat(np.arange(T), query.sizes)
        mean = predict(prior, posterior, X, task, exposure=query.exposure).prediction
        centre = prior.linear_predictors(posterior, X, task, variances=False)[0]
        centre = centre if query.exposure is None else centre + np.log(query.exposure)
        if prior.shared is not None:
            levels = [one.errors_of(dense(X)) for one in prior.shared.levels]
            X = prior.shared.own_columns(X)
        statistics = prior.statistics(prior.residual_tasks(support))
        means, roots, R = [], [], []
        for b, W in zip(model.means, model.covariances, strict=True):
            one = Mixture(np.ones(1), b[None], W[None], model.noise, model.side)
            found = statistics.posterior(one, Want(means=True, covariances=True))
            means.append(found.mean)
            roots.append(roots_of(found.covariances))
            R.append(influence(*statistics.gaussian(one), found.covariances))
        shares = statistics.posterior(model).shares
        centres = np.einsum("tj,jtd->td", shares, means) if len(means) > 1 else means[0]
        scale = _variance_ratios(prior, posterior.n_rows, R[0]) if calibrated else np.ones(T)
        side = np.hstack(
            [np.ones((T, 1)), np.zeros((T, 0)) if statistics.side is None else statistics.side]
        )
        noise = prior.scaling.target**2 * model.noise * scale[task]
        rows = prior.scaling.dense(X), task, centre, mean, noise, levels
        coefficients = (
            shares,
            means - centres,
            np.sqrt(scale)[:, None, None] * np.stack(roots),
            np.stack(R),
        )
        return cls(prior, errors, *rows, *coefficients, side)

    @property
    def is_gaussian(self) -> bool:
        """Whether sums of rows have a Gaussian distribution."""
        prior = self.prior
        return prior.response.is_gaussian and prior.model.n_components == 1

    def variances(self, group: Index, n_groups: int, units: Array) -> Array:
        """Return the variances (G,) of the sums of ``units`` (N,) targets of each row by group, if `is_gaussian`."""
        pair, at = np.unique(self.task * n_groups + group, return_inverse=True)
        task, of = pair // n_groups, pair % n_groups
        # Sums of the feature rows, for each task and group.
        A = adding(at, len(pair), units) @ self.X
        add = adding(of, n_groups, np.ones(len(of)))
        total = add @ (np.einsum("pd,pdk->pk", A, self.roots[0][task]) ** 2).sum(axis=1)
        if self.errors is not None:
            moved = np.einsum("pd,pdk->pk", A, self.influence[0][task])
            h = add @ (moved[:, self.errors.row] * self.side[task][:, self.errors.column])
            total += np.einsum("gi,ij,gj->g", h, np.nan_to_num(self.errors.covariance), h)
        total = total * self.prior.scaling.target**2 + np.bincount(
            group, units * self.noise, n_groups
        )
        for category, variances in self.levels:
            total += (
                sparse.csr_array((units, (group, category)), (n_groups, len(variances))).power(2)
                @ variances
            )
        return np.asarray(total)

    def draw(
        self,
        n_draws: int,
        rng: np.random.Generator,
        units: Array | float = 1.0,
        add: sparse.csr_array | None = None,
    ) -> Array:
        """Draw the sum of ``units`` (N,) targets of each row, (n_draws, N); with ``add`` (G, N), sums ``add @ rows``, (n_draws, G)."""
        T, width = len(self.shares), max(self.shares.shape[1], self.X.shape[1])
        size = max(1, CHUNK_FLOATS // max(len(self.X), T * width))
        out = np.empty((n_draws, len(self.X) if add is None else add.shape[0]))
        for start in range(0, n_draws, size):
            part = out[start : start + size]
            rows = part if add is None else np.empty((len(part), len(self.X)))
            self._draw_rows(rng, rows, np.asarray(units, dtype=float))
            if add is not None:
                part[:] = (add @ rows.T).T
        return out

    def _draw_rows(self, rng: np.random.Generator, out: Array, units: Array) -> None:
        prior = self.prior
        deviations = frozen(self._draw_coefficients(rng, len(out)))
        rows = frozen(self.X), frozen(self.task, np.intp), frozen(self.centre)
        add_products(*rows, deviations, float(prior.scaling.target), out)
        for category, variances in self.levels:
            out += (rng.standard_normal((len(out), len(variances))) * np.sqrt(variances))[
                :, category
            ]
        prior.response.draw(rng, out, self.noise, units)

    def _draw_coefficients(self, rng: np.random.Generator, n: int) -> Array:
        """Draw the deviations of the coefficients from the posterior means, (n, T, d)."""
        K, T, d = self.means.shape
        u, shift, errors = rng.standard_normal((T, n, d)), np.zeros((T, n, d)), self.errors
        if errors is not None:
            B, L = np.zeros((n, d, self.side.shape[1])), roots_of(np.nan_to_num(errors.covariance))
            B[:, errors.row, errors.column] = rng.standard_normal((n, len(L))) @ L.T
            shift = np.tensordot(self.side, B, (1, 2))
        steps = np.cumsum(self.shares, axis=1)[:, None, :-1]
        component = (
            (rng.random((T, n, 1)) > steps).sum(axis=2) if K > 1 else np.zeros((T, n), np.intp)
        )
        out = np.empty((n, T, d))
        for k in range(K):
            found = u @ self.roots[k].mT
            found += shift @ self.influence[k].mT
            found += self.means[k][:, None]
            np.copyto(out, found.transpose(1, 0, 2), where=component.T[:, :, None] == k)
        return out


@njit(**ROWS)
def add_products(
    X: Array, task: Index, centre: Array, weights: Array, scale: float, out: Array
) -> None:
    """Write ``centre + scale <x, w>`` of each row to ``out`` (n, N), for n draws of the weights (n, T, d)."""
    keep_separate()
    for s in range(len(out)):
        for i in range(len(X)):
            t, total = task[i], 0.0
            for j in range(X.shape[1]):
                total += X[i, j] * weights[s, t, j]
            out[s, i] = centre[i] + scale * total
