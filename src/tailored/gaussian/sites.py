"""Rows of tasks with non-Gaussian targets, and the posterior of their coefficients.

With ``f = <x, w>`` the log-likelihood of a row is ``y f − h(f)`` plus a constant
(`tailored.gaussian.responses`), concave in f. Under a component, w = b + Lu with standard normal u.
For every task:

1. The posterior of u is approximated by the Gaussian with the smallest Kullback-Leibler divergence
   from it (Opper and Archambeau, 2009).
2. Evidence, mean and covariance are computed by Gauss-Hermite quadrature of the exact likelihood
   and prior, with nodes placed by this Gaussian (Naylor and Smith, 1982).  If L has more than
   `MOST_DIRECTIONS` columns, the nodes are a fixed random sample, and their weights are those of
   importance sampling.

Evidence and moments under the components then have the same meaning as for Gaussian targets, so
M-steps and mixing weights are computed in the same way.  The noise variance of the model is 1, or
the dispersion of a negative binomial response. Some algorithms need Gaussian targets.  For these,
each row is replaced by a *site*, a Gaussian row with the precision ``τ = E h″(f)`` and the target
``E f + (y − E h′(f)) / τ``, where E is the mean over the posterior.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .._utils.records import cached_property
from .._utils.threads import in_threads
from ..tasks.rows import Array, Scaling, frozen, predictions
from ..tasks.task_set import TaskSet, rows_of_tasks
from .kernels import second_moments
from .mixture import EVIDENCE, Mixture, Want
from .moments import NO_SUMS, Expected, Moments, RowStatistics, Sums, Totals, log_priors, normalise

#: Candidate dispersions of a pooled negative binomial fit; the first and last bound the dispersion
#: in all fits.
DISPERSIONS = np.geomspace(1e-3, 30.0, 30)
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Maximum number of columns of L for quadrature.
MOST_DIRECTIONS = 3
#: Numbers of nodes along the principal axes of LLᵀ, in increasing order, and size of the sample for
#: more columns; the second entry is for rough fits, which are only compared with each other.
NODES = ((), (21,), (9, 15), (5, 7, 9)), ((), (5,), (3, 5), (3, 3, 5))
SAMPLED = 512, 64
#: Placing of the nodes: number of nodes for the moments of a row, tolerance in standard deviations,
#: maximum number of steps.
PLACING = 5, 0.1, 30
#: Maximum number of pairs of rows and nodes in a block of tasks; their arrays fit into the cache of
#: a processor.
BLOCK = 1 << 16
#: Minimum precision of a site.
LEAST_PRECISION = 1e-8


class LogLikelihood(Protocol):
    """The members of `tailored.gaussian.responses.Likelihood` that are used here; they are
    documented there.
    """

    has_dispersion: ClassVar[bool]

    def noise(self, noise: float) -> float: ...
    def constants(self, y: Array, noise: float) -> Array: ...
    def derivatives(self, y: Array, f: Array, noise: float) -> tuple[Array, Array, Array]: ...
    def dispersion_derivatives(
        self, y: Array, f: Array, noise: float
    ) -> tuple[Array, Array, Array]: ...
    def centre(self, y: Array, f: Array) -> Array: ...
    def skewness(self, f: Array, noise: float) -> Array: ...
    def pooled_fit(
        self, X: Array, y: Array, offset: Array, weights: Array
    ) -> tuple[Array, float]: ...


class Directions(NamedTuple):
    """Posterior of u under one component."""

    log_evidence: Array  # (T,)
    means: Array  # (T, p)
    covariances: Array  # (T, p, p)
    dispersion_scores: Array  # (T,) derivatives of the log evidence in the log dispersion, or zero
    predictors: Array  # (N,) E f
    slopes: Array  # (N,) E(y − h′(f)), times the weight of the row
    curvatures: Array  # (N,) E h″(f), times the weight of the row


class Sites(Moments):
    """Second moments of sites, which act as rows with known noise variance."""

    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: Mask | None = None
    ) -> Expected:
        found = super().posterior(model, want, among)
        return found._replace(sums=replace(found.sums, residual=model.noise * self.n_rows))


@dataclass(frozen=True)
class ResponseRows(RowStatistics):
    """Rows of T tasks with non-Gaussian targets."""

    is_gaussian: ClassVar[bool] = False
    per_row: ClassVar[tuple[str, ...]] = ("X", "y", "offset", "weights")

    response: LogLikelihood
    offset: Array  # (N,) added to f, for example the logarithm of an exposure
    weights: Array  # (N,) exponents of the likelihood of each row
    is_rough: bool = False  # whether posteriors are computed with few nodes

    @classmethod
    def of(
        cls, tasks: TaskSet, units: Scaling, response: LogLikelihood, side: Array | None = None
    ) -> Self:
        """Return the scaled rows of tasks; targets are not scaled."""
        n, weights = len(tasks.y), tasks.row_weights
        offset = np.zeros(n) if tasks.exposure is None else np.log(tasks.exposure)
        weights = np.ones(n) if weights is None else weights
        return cls(
            units.dense(tasks.X), tasks.y, tasks.offsets, response, offset, weights, side=side
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name}: not available for classes and counts, whose likelihood needs all rows"
        )

    def roughly(self) -> Self:
        return replace(self, is_rough=True)

    def shifted(self, weights: Array) -> ResponseRows:
        """Return the tasks with ``X w`` added to the offset, for known parts w (T, d) of the
        coefficients.
        """
        return replace(self, offset=self.offset + predictions(self.rows, weights))

    @property
    def row_moment(self) -> Array:
        return np.asarray(self.X.T @ self.X / self.n_rows)

    def skewness(self, model: Mixture) -> float:
        f = self.X @ model.means[0] + self.offset
        weights = self.weights * self.response.derivatives(self.y, f, model.noise)[2]
        return float(weights @ self.response.skewness(f, model.noise) / max(weights.sum(), 1e-300))

    def totals(self) -> Totals:
        """Return the totals of the weighted least squares problem whose solution is the pooled fit
        to all rows.
        """
        b, noise = self.pooled
        f = self.X @ b
        _, slope, curvature = self.response.derivatives(self.y, f + self.offset, noise)
        weights = self.weights * curvature
        cross = (self.weights * slope + weights * f) @ self.X
        gram, n = self.X.T @ (weights[:, None] * self.X), float(len(self.y))
        # yᵀy is set such that the mean squared residual is the noise of the model.
        return Totals(len(self), n, n * noise + float(cross @ b), cross, gram)

    @cached_property
    def pooled(self) -> tuple[Array, float]:
        """The coefficients (d,) and the dispersion of a pooled fit to all rows."""
        return self.response.pooled_fit(self.X, self.y, self.offset, self.weights)

    @cached_property
    def gram(self) -> Array:
        """XᵀX of each task, weighted as in `totals`, (T, d, d)."""
        b, noise = self.pooled
        curvature = self.response.derivatives(self.y, self.X @ b + self.offset, noise)[2]
        return self._moments(self.weights * curvature, self.y)[0]

    def _moments(self, weights: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return XᵀX (T, d, d), Xᵀy (T, d) and yᵀy (T,) of each task with weighted rows."""
        T, d, root = len(self), self.n_features, np.sqrt(weights)
        out = np.empty((T, d, d)), np.empty((T, d)), np.empty(T)
        unit = frozen(np.zeros(d)), frozen(np.ones(d)), 0.0, 1.0
        rows = frozen(root[:, None] * self.X), frozen(root * y)
        second_moments(*rows, frozen(self.starts, np.int64), *unit, *out)
        return out

    def gaussian(self, model: Mixture) -> tuple[Any, Mixture]:
        """Return the sites and the model for them; the effects of side information are part of the
        sites.
        """
        return self.site_moments(model)[0], replace(model, noise=1.0, side=None)

    def site_moments(self, model: Mixture) -> tuple[Sites, float, float]:
        """Return the sites of each task under its most probable component, the log evidence per
        task, and a new dispersion.

        With the sites as rows and noise variance 1, the posterior means, and the gradient of the
        evidence with respect to the mean of one component, are those of the exact likelihood.
        """
        precisions, targets, evidence, noise = self.gaussian_rows(model)
        return self.sites_of(precisions, targets), evidence, noise

    def sites_of(self, precisions: Array, targets: Array) -> Sites:
        """Return the second moments of the sites that `gaussian_rows` returned."""
        return Sites(*self._moments(precisions, targets), self.sizes, self.side, self.n_threads)

    def gaussian_rows(self, model: Mixture) -> tuple[Array, Array, float, float]:
        """Return the precisions (N,) and targets (N,) of the sites, and the other results of
        `site_moments`.

        The dispersion is that after a scoring step; it is 1 for responses without a dispersion.
        """
        log_evidence, shares, found = self._by_component(model, rows=True)
        component = np.repeat(shares.argmax(axis=1), np.diff(self.starts))
        f, slopes, curvatures = (
            np.choose(component, parts) for parts in zip(*(each[4:] for each in found), strict=True)
        )
        precisions = np.maximum(curvatures, LEAST_PRECISION)
        targets = f + slopes / precisions - self.offset
        scores = np.sum(
            [r * of.dispersion_scores for r, of in zip(shares.T, found, strict=True)], 0
        )
        step = np.clip(scores.sum() / max(float(scores @ scores), 1e-300), -0.7, 0.7)
        noise = np.clip(model.noise * np.exp(step), *DISPERSIONS[[0, -1]])
        evidence = float(np.mean(log_evidence)) if len(self) else 0.0
        return precisions, targets, evidence, self.response.noise(float(noise))

    def _by_component(
        self, model: Mixture, among: Mask | None = None, rows: bool = False
    ) -> tuple[Array, Array, list[Directions]]:
        """Return the log evidence (T,), the responsibilities (T, K), and the posterior under each
        component.
        """
        T, effects = len(self), model.effects(self.side)
        rest = self if effects is None else self.shifted(effects)
        joint, found = log_priors(model, self.side, T, among), []
        for k, root in enumerate(model.factors):
            used = joint[:, k] > -np.inf
            found.append(rest.directions(model.means[k], root, model.noise, used, rows))
            joint[:, k] += found[k].log_evidence
        return normalise(joint), joint, found

    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: Mask | None = None
    ) -> Expected:
        T, (K, d) = len(self), model.means.shape
        log_evidence, shares, found = self._by_component(model, among)
        each = list(zip(shares.T, model.factors, found, strict=True))
        deviations = np.stack([of.means @ root.T for _, root, of in each], axis=1)
        covariances = np.zeros((T if want.covariances else 0, d, d))
        if want.covariances:
            for r, root, of in each:
                covariances += root @ (r[:, None, None] * of.covariances) @ root.T
        sums = NO_SUMS
        if want.sums:
            first = np.einsum("tk,tkd->kd", shares, deviations)
            second = np.einsum("tk,tki,tkj->kij", shares, deviations, deviations, optimize=True)
            for k, (r, root, of) in enumerate(each):
                second[k] += root @ np.tensordot(r, of.covariances, 1) @ root.T
            # With this residual, an M-step does not change the noise.
            residual = self.response.noise(model.noise) * float(len(self.y))
            sums = Sums(float(log_evidence.sum()), shares.sum(axis=0), first, second, residual)
        means = np.zeros((0, K, d))
        if want.means:
            effects = model.effects(self.side)
            means = model.means + deviations
            means += 0.0 if effects is None else effects[:, None]
        return Expected(log_evidence, shares, means, covariances, sums)

    def directions(self, b: Array, L: Array, noise: float, used: Mask, of_rows: bool) -> Directions:
        """Return the posterior of u in w = b + Lu with L (d, p), for the tasks in the mask
        ``used``.

        The fields of rows, and the scores of the dispersion, are zero unless ``of_rows``.
        """
        T, N, p = len(self), len(self.y), L.shape[1]
        out = Directions(
            *(np.zeros(T), np.zeros((T, p)), np.zeros((T, p, p)), np.zeros(T)),
            *(np.zeros(N), np.zeros(N), np.zeros(N)),
        )

        def run(tasks: Index, rows: Index) -> None:
            placed = Placed(self.take(tasks), b, L, noise)
            for total, part in zip(out[:3], placed.moments(), strict=True):
                total[tasks] = part
            if of_rows:
                out.dispersion_scores[tasks], *parts = placed.of_rows()
                for total, part in zip(out[4:], parts, strict=True):
                    total[rows] = part

        in_threads(run, self.blocks(p, used), self.n_threads)
        return out

    def scores(
        self, b: Array, L: Array, noise: float, rows: Array, entries: tuple[Index, Index]
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Yield for blocks of tasks the log evidence, and its derivatives as in `Placed.scores`."""
        for tasks, at in self.blocks(L.shape[1]):
            placed = Placed(self.take(tasks), b, L, noise)
            yield placed.log_evidence, *placed.scores(rows[at], entries)

    def blocks(self, p: int, used: Mask | None = None) -> list[tuple[Index, Index]]:
        """Return the positions of the ``used`` tasks, in blocks, and of their rows; p is the number
        of columns of L.
        """
        chosen = np.arange(len(self)) if used is None else np.flatnonzero(used)
        size = int(BLOCK / len(grid(p, self.is_rough)[1]) / (self.n_rows / max(len(self), 1))) + 1
        tasks = [chosen[start : start + size] for start in range(0, len(chosen), size)]
        return [(some, rows_of_tasks(self.starts, some)[0]) for some in tasks]

    def sums_of_tasks(self, weights: Array) -> Any:
        """Return a sparse matrix (T, N) whose product with an array (N, ..) sums the weighted rows
        of each task.
        """
        return csr_array((weights, np.arange(len(weights)), self.starts), (len(self), len(weights)))


class Placed:
    """The likelihood of the rows of tasks at nodes u = m + Cz, where N(m, CCᵀ) is close to the
    posterior of a task.
    """

    def __init__(self, tasks: ResponseRows, b: Array, L: Array, noise: float) -> None:
        self.tasks, self.noise = tasks, noise
        left, sizes, turn = np.linalg.svd(L, full_matrices=False)
        # Sampled nodes are not symmetric, so the signs of the axes must not depend on rounding.
        signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(len(sizes))])
        left, turn = left * signs, turn * signs[:, None]
        rows, f = tasks.X @ (left * sizes)[:, ::-1], tasks.X @ b + tasks.offset
        self.task = np.repeat(np.arange(len(tasks)), np.diff(tasks.starts))
        self.mean, self.root = self._place(rows, f)
        log_determinants = np.log(self.root.diagonal(axis1=1, axis2=2)).sum(axis=1)
        self.z, log_weights = grid(L.shape[1], tasks.is_rough)
        f = f + np.einsum("np,np->n", rows, self.mean[self.task])
        along = np.einsum("np,npq->nq", rows, self.root[self.task])
        self.f = f[:, None] + along @ self.z.T  # (N, J)
        self.value, self.slope, self.curvature = self._derivatives(self.f)
        sums = tasks.sums_of_tasks(tasks.weights)
        joint = sums @ self.value + log_weights
        self.mean, self.root = self.mean @ turn[::-1], turn[::-1].T @ self.root
        self.u = self.mean[:, None, :] + self.z @ self.root.transpose(0, 2, 1)  # (T, J, p)
        joint -= 0.5 * (self.u**2).sum(axis=2)
        largest = joint.max(axis=1, keepdims=True)
        weights = np.exp(joint - largest)
        total = weights.sum(axis=1, keepdims=True)
        self.weights = weights / total  # (T, J)
        constants = sums @ tasks.response.constants(tasks.y, noise)
        self.log_evidence = (largest + np.log(total))[:, 0] + log_determinants + constants

    def _derivatives(self, f: Array) -> tuple[Array, Array, Array]:
        return self.tasks.response.derivatives(self.tasks.y[:, None], f, self.noise)

    def _place(self, rows: Array, f: Array) -> tuple[Array, Array]:
        """Return the mean (T, p), and C (T, p, p), of the Gaussian N(m, CCᵀ) that is closest to the
        posterior of u.

        Its precision is I + Σ τ aaᵀ, where a are the ``rows`` and τ is the mean of h″ under the
        Gaussian.  Newton steps for its mean are halved in tasks where they lower the bound of the
        log evidence.  The result for a task does not depend on the other tasks.
        """
        tasks, (T, p), task = self.tasks, (len(self.tasks), rows.shape[1]), self.task
        n_nodes, tol, max_steps = PLACING
        nodes, log_weights = one_direction(n_nodes)
        weights = np.exp(log_weights - 0.5 * nodes**2)
        sums, best = tasks.sums_of_tasks(tasks.weights), np.full(T, -np.inf)
        squares = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), p * p)
        # With larger precisions, the identity would be lost in rounding errors.
        most = 1e12 / (1.0 + (rows**2).sum(axis=1))
        centre = tasks.response.centre(tasks.y, f)
        _, slope, curvature = tasks.response.derivatives(tasks.y, centre, self.noise)
        kept = new = np.stack([curvature, slope + curvature * (centre - f)])
        moving = np.ones(T, dtype=bool)  # tasks whose steps go on
        means, roots = np.zeros((T, p)), np.zeros((T, p, p))
        for _ in range(max_steps):
            tau = np.minimum(new[0], most)
            precision = np.eye(p) + (sums @ (tau[:, None] * squares)).reshape(T, p, p)
            root = np.linalg.inv(np.linalg.cholesky(precision)).transpose(0, 2, 1)
            covariance = root @ root.transpose(0, 2, 1)
            mean = (covariance @ (sums @ (new[1][:, None] * rows))[:, :, None])[:, :, 0]
            means[moving], roots[moving] = mean[moving], root[moving]
            shift = np.einsum("np,np->n", rows, mean[task])
            variance = (np.einsum("np,npq->nq", rows, covariance[task]) * rows).sum(axis=1)
            at = (f + shift)[:, None] + np.sqrt(variance)[:, None] * nodes
            value, slope, curvature = (part @ weights for part in self._derivatives(at))
            divergence = (root**2).sum(axis=(1, 2)) + (mean**2).sum(axis=1)
            log_determinants = np.log(root.diagonal(axis1=1, axis2=2)).sum(axis=1)
            bound = sums @ value - 0.5 * divergence + log_determinants
            gradient = sums @ (slope[:, None] * rows) - mean
            decrement = (np.einsum("tp,tpq->tq", gradient, covariance) * gradient).sum(axis=1)
            is_better = bound >= best - tol**2
            moving &= ~(is_better & (decrement <= tol**2))
            if not moving.any():
                break
            best, accepted = np.where(is_better, bound, best), is_better[task]
            step = np.stack([curvature, slope + curvature * shift])
            kept, new = np.where(accepted, new, kept), np.where(accepted, step, 0.5 * (kept + new))
        return means, roots

    def moments(self) -> tuple[Array, ...]:
        """Return the first three fields of `Directions`."""
        means = np.einsum("tj,tjp->tp", self.weights, self.u)
        centred = self.u - means[:, None, :]
        covariances = (centred * self.weights[:, :, None]).transpose(0, 2, 1) @ centred
        return self.log_evidence, means, covariances

    def _dispersion_derivatives(self) -> tuple[Array, Array, Array]:
        y = self.tasks.y[:, None]
        return self.tasks.response.dispersion_derivatives(y, self.f, self.noise)

    def of_rows(self) -> tuple[Array, ...]:
        """Return the other fields of `Directions`."""
        weights, v = self.weights[self.task], self.tasks.weights
        f, slope, curvature = (
            np.einsum("nj,nj->n", weights, part) for part in (self.f, self.slope, self.curvature)
        )
        scores = np.zeros(len(self.weights))
        if self.tasks.response.has_dispersion:
            each = self.tasks.sums_of_tasks(v) @ self._dispersion_derivatives()[0]
            scores = (self.weights * each).sum(axis=1)
        return scores, f, v * slope, v * curvature

    def scores(self, rows: Array, entries: tuple[Index, Index]) -> tuple[Array, Array]:
        """Return the first and minus the second derivatives of the log evidence, (T, q) and (T, q,
        q), by Louis' identity.

        The parameters are b, the ``entries`` (a, c) of a matrix D in ``f = … + <rows, D u>``, and,
        if the response has one, the logarithm of the dispersion.
        """
        tasks, v, (i, j) = self.tasks, self.tasks.weights, entries
        ones = np.ones((*self.u.shape[:2], 1))
        # Parameter θ has ∂f/∂θ = columns[:, θ] · powers[.., index[θ]].
        columns, powers = np.hstack([tasks.X, rows[:, i]]), np.concatenate([ones, self.u], axis=2)
        index = np.append(np.zeros(tasks.n_features, np.intp), 1 + np.asarray(j))
        each = [
            (tasks.sums_of_tasks(v * column) @ self.slope) * powers[:, :, c]
            for column, c in zip(columns.T, index, strict=True)
        ]
        to_u = np.zeros((len(tasks), powers.shape[2], powers.shape[2]))
        to_u[:, 0, 0], to_u[:, 1:, 0], to_u[:, 1:, 1:] = 1.0, self.mean, self.root
        to_u, z = to_u[self.task], np.hstack([np.ones((len(self.z), 1)), self.z])
        weights = v[:, None] * self.weights[self.task]
        of_z = (weights * self.curvature) @ (z[:, :, None] * z[:, None, :]).reshape(len(z), -1)
        moments = to_u @ of_z.reshape(to_u.shape) @ to_u.transpose(0, 2, 1)
        products = columns[:, :, None] * columns[:, None, :] * moments[:, index][:, :, index]
        q, sums = len(index), tasks.sums_of_tasks(np.ones(len(v)))
        expected = (sums @ products.reshape(len(v), -1)).reshape(-1, q, q)
        if tasks.response.has_dispersion:
            first, second, mixed = self._dispersion_derivatives()
            each.append(tasks.sums_of_tasks(v) @ first)
            expected = np.pad(expected, ((0, 0), (0, 1), (0, 1)))
            expected[:, q, q] = sums @ (weights * second).sum(axis=1)
            of_mixed = np.einsum("nab,nb->na", to_u, (weights * mixed) @ z)
            expected[:, q, :q] = expected[:, :q, q] = sums @ (columns * of_mixed[:, index])
        scores = np.stack(each, axis=2)  # (T, J, q), given u
        mean = np.einsum("tj,tjq->tq", self.weights, scores)
        scores -= mean[:, None, :]
        return mean, expected - (scores * self.weights[:, :, None]).transpose(0, 2, 1) @ scores


@cache
def one_direction(n_nodes: int) -> tuple[Array, Array]:
    """Return Gauss-Hermite nodes, and log weights for integrands that are not multiplied by the
    normal density.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return frozen(nodes), frozen(np.log(weights / weights.sum()) + 0.5 * nodes**2)


@cache
def grid(p: int, is_rough: bool) -> tuple[Array, Array]:
    """Return nodes (J, p), and log weights (J,) for integrands that are not multiplied by the
    normal density.
    """
    if p > MOST_DIRECTIONS:
        half = np.random.default_rng(0).standard_normal((max(SAMPLED[is_rough] // 2, 4 * p), p))
        nodes = np.vstack([half, -half])
        nodes = np.linalg.solve(np.linalg.cholesky(nodes.T @ nodes / len(nodes)), nodes.T).T
        log_weights = 0.5 * (nodes**2).sum(axis=1) - np.log(len(nodes))
        return frozen(nodes), frozen(log_weights)
    if p == 0:
        return frozen(np.zeros((1, 0))), frozen(np.zeros(1))
    axes = [one_direction(n) for n in NODES[is_rough][p]]
    positions, logs = (np.meshgrid(*parts, indexing="ij") for parts in zip(*axes, strict=True))
    return frozen(np.stack(positions, -1).reshape(-1, p)), frozen(np.sum(logs, axis=0).ravel())
