"""The joint distribution of predicted rows of many tasks: draws, and exact variances of sums that
are Gaussian.

The rows of a task share its coefficients, and all tasks share the errors of the fixed effects, so
predicted rows are correlated.  In the scaling of the prior, the coefficients of a task under one
component are

    w = m + R D δ + L u ,

with the posterior mean m and covariance ``LLᵀ``, standard normal u, and the errors δ of the fixed
effects (b, Γ).  D maps δ to the prior mean of the task, and R is the derivative of the posterior
mean with respect to the prior mean.  Each component has errors of its own, because its mean was
estimated from its share of the tasks, given the covariance within the component.

Predictions treat the fixed effects as known.  With their errors, the mean of a class or count would
be another one, because it is not linear in w.  The linear predictors of draws are therefore shifted
such that the means of draws are the predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ..gaussian.errors import MeanCovariance
from ..gaussian.moments import influence
from ..gaussian.responses import Likelihood, Predictors
from ..tasks.rows import Array, dense
from ..tasks.task_set import TaskSet
from .base import (
    Index,
    Posterior,
    QueryRows,
    adapt_tasks,
    multiples_of,
    needs_covariances,
    predict,
)
from .intervals import noise_variances
from .mixture import MixturePrior


def roots_of(covariances: Array) -> Array:
    """Return L with ``LLᵀ`` equal to each covariance (.., d, d), which may be singular."""
    values, vectors = np.linalg.eigh(covariances)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def adding(group: Index, n_groups: int, factors: Array) -> sparse.csr_array:
    """Return the matrix (G, n) that multiplies n values by factors and adds them by group."""
    return sparse.csr_array((factors, (group, np.arange(len(group)))), (n_groups, len(group)))


def _variance_ratios(prior: MixturePrior, residual: TaskSet, posterior: Posterior) -> Array:
    """Return the ratio of actual to implied variances of held-out rows, for each residual task."""
    calibration, n_rows = prior.calibration, posterior.n_rows
    squares = prior.squared_residuals(residual, posterior.weights)
    if calibration is None or squares is None:
        return np.ones(len(n_rows))
    own = noise_variances(squares, n_rows, calibration.noise, calibration.noise_rows)
    # The deviation does not depend on the coverage.
    return np.asarray(multiples_of(prior, n_rows, 0.01)[0][:, 2] ** 2 * own / prior.model.noise)


@dataclass(frozen=True)
class JointRows:
    """The joint distribution of N predicted rows of T tasks, under K components."""

    prior: MixturePrior
    errors: Sequence[
        MeanCovariance | None
    ]  # of (b, Γ) by component; None if they are treated as known
    X: Array  # (N, d) scaled rows, see `MixturePrior.given_support`
    task: Index  # (N,) positions of their tasks
    centre: Array  # (N,) linear predictors at the posterior means, in the user's units
    mean: Array  # (N,) predictions of `predict`, which are the means of the rows
    noise: Array  # (N,) variances of independent noise in the user's units; for counts, dispersions
    serial: list[
        tuple[Index, Array]
    ]  # rows of a task and a root of the covariance of their serial noise
    #: For each category column with shared effects: the category of each row (N,), and error
    #: variances by category.
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
        errors: Sequence[MeanCovariance | None],
        *,
        calibrated: bool,
    ) -> JointRows:
        """Return the joint distribution of query rows, given the support rows of the same tasks.

        ``calibrated`` multiplies the variances of each task by the ratio of actual to implied
        variances of held-out rows, as the intervals of `predict` do.
        """
        model, T, levels = prior.model, len(support), []
        rows, uncertain = QueryRows.of(query), needs_covariances(prior, None)
        posterior = adapt_tasks(prior, support, covariances=uncertain)
        centre = prior.linear_predictors(posterior, rows, variances=False)[0]
        centre = centre if query.exposure is None else centre + np.log(query.exposure)
        if prior.shared is not None:
            levels = [one.errors_of(dense(query.X)) for one in prior.shared.levels]
        X, _, covariances = prior.given_support(posterior, rows)
        residual = prior.residual_tasks(support)
        statistics = prior.statistics(residual)
        shares, *parts = prior.components(statistics)
        means, C = (part.swapaxes(0, 1) for part in parts)
        R = [
            influence(*statistics.gaussian(part), of_part)
            for part, of_part in zip(model.parts, C, strict=True)
        ]
        scale = _variance_ratios(prior, residual, posterior) if calibrated else np.ones(T)
        side = np.hstack(
            [np.ones((T, 1)), np.zeros((T, 0)) if statistics.side is None else statistics.side]
        )
        noise = prior.scaling.target**2 * model.noise * scale[rows.task]
        out = cls(
            prior=prior,
            errors=errors,
            X=X,
            task=rows.task,
            centre=centre,
            mean=predict(prior, posterior, rows).prediction,
            noise=noise if rows.weight is None else noise / rows.weight,
            serial=[(at, roots_of(noise[at][:, None] * S)) for at, S in covariances],
            levels=levels,
            shares=shares,
            means=means - np.einsum("tk,ktd->td", shares, means),
            roots=np.sqrt(scale)[:, None, None] * roots_of(C),
            influence=np.stack(R),
            side=side,
        )
        return out._shifted(prior.response) if isinstance(prior.response, Likelihood) else out

    @property
    def is_gaussian(self) -> bool:
        """Whether sums of rows have a Gaussian distribution."""
        prior = self.prior
        return prior.response.is_gaussian and prior.model.n_components == 1

    def _shifted(self, response: Likelihood) -> JointRows:
        """Return rows of classes or counts with linear predictors such that the means of draws are
        those of the rows.
        """
        n, (K, *_) = len(self.X), self.means.shape
        each = [self._variances(np.arange(n), n, np.ones(n), k) for k in range(K)]
        means = np.einsum("nd,knd->nk", self.X, self.means[:, self.task])
        variances, shares, centre = np.stack(each, axis=1), self.shares[self.task], self.centre
        while True:
            mean = Predictors(shares, centre[:, None] + means, variances).average(response.mean)
            step = response.link(self.mean) - response.link(mean)
            if not np.abs(step).max() > 1e-6:
                return replace(self, centre=centre)
            centre = centre + step

    def variances(self, group: Index, n_groups: int, units: Array) -> Array:
        """Return the variances (G,) of the sums of ``units`` (N,) targets of each row by group, if
        `is_gaussian`.
        """
        total = self._variances(group, n_groups, units, 0)
        total += np.bincount(group, units * self.noise, n_groups)
        for at, root in self.serial:
            total += ((adding(group[at], n_groups, units[at]) @ root) ** 2).sum(axis=1)
        return total

    def _variances(self, group: Index, n_groups: int, units: Array, k: int) -> Array:
        """Return the variances (G,) of sums of linear predictors under component k."""
        errors = self.errors[k]
        pair, at = np.unique(self.task * n_groups + group, return_inverse=True)
        task, of = pair // n_groups, pair % n_groups
        # Sums of the feature rows, for each task and group.
        A = adding(at, len(pair), units) @ self.X
        add = adding(of, n_groups, np.ones(len(of)))
        total = add @ (np.einsum("pd,pde->pe", A, self.roots[k][task]) ** 2).sum(axis=1)
        if errors is not None:
            moved = np.einsum("pd,pde->pe", A, self.influence[k][task])
            h = add @ (moved[:, errors.row] * self.side[task][:, errors.column])
            total += np.einsum("gi,ij,gj->g", h, np.nan_to_num(errors.covariance), h)
        total = total * self.prior.scaling.target**2
        for category, variances in self.levels:
            sums = sparse.csr_array((units, (group, category)), (n_groups, len(variances)))
            total += sums.power(2) @ variances
        return np.asarray(total)

    def draw(
        self,
        n_draws: int,
        rng: np.random.Generator,
        units: Array | float = 1.0,
        add: sparse.csr_array | None = None,
    ) -> Array:
        """Draw the sum of ``units`` (N,) targets of each row, (n_draws, N); with ``add`` (G, N),
        sums ``add @ rows``, (n_draws, G).
        """
        T, width = len(self.shares), max(self.shares.shape[1], self.X.shape[1])
        # At most 2²⁰ floats of draws are computed at a time.
        size = max(1, (1 << 20) // (width * max(len(self.X), T)))
        out = np.empty((n_draws, len(self.X) if add is None else add.shape[0]))
        units = np.asarray(units, dtype=float)
        for start in range(0, n_draws, size):
            part = out[start : start + size]
            rows = part if add is None else np.empty((len(part), len(self.X)))
            deviations = self._draw_coefficients(rng, len(part))
            np.einsum("snd,nd->sn", deviations[:, self.task], self.X, out=rows)
            rows *= self.prior.scaling.target
            rows += self.centre
            for category, variances in self.levels:
                effects = rng.standard_normal((len(rows), len(variances))) * np.sqrt(variances)
                rows += effects[:, category]
            for at, root in self.serial:
                rows[:, at] += rng.standard_normal((len(rows), len(root))) @ root.T
            self.prior.response.draw(rng, rows, self.noise, units)
            if add is not None:
                part[:] = (add @ rows.T).T
        return out

    def _draw_coefficients(self, rng: np.random.Generator, n: int) -> Array:
        """Draw the deviations of the coefficients from the posterior means, (n, T, d)."""
        K, T, d = self.means.shape
        u, component = rng.standard_normal((T, n, d)), np.zeros((T, n), np.intp)
        if K > 1:
            steps = np.cumsum(self.shares, axis=1)[:, None, :-1]
            component = (rng.random((T, n, 1)) > steps).sum(axis=2)
        out = np.empty((n, T, d))
        for k, errors in enumerate(self.errors):
            found = u @ self.roots[k].mT + self.means[k][:, None]
            if errors is not None:
                L = roots_of(np.nan_to_num(errors.covariance))
                B = np.zeros((n, d, self.side.shape[1]))
                B[:, errors.row, errors.column] = rng.standard_normal((n, len(L))) @ L.T
                found += np.tensordot(self.side, B, (1, 2)) @ self.influence[k].mT
            np.copyto(out, found.transpose(1, 0, 2), where=component.T[:, :, None] == k)
        return out
