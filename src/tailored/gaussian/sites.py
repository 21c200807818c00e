"""Rows of tasks with non-Gaussian targets, and the posterior of their coefficients.

With ``f = <x, w>`` the log-likelihood of a row is ``y f − h(f)`` plus a constant
(`tailored.gaussian.responses`), concave in f. Under a component, w = b + Lu with standard normal u.
For every task:

1. The posterior of u is approximated by the closest Gaussian.
2. Evidence, mean and covariance are computed by quadrature of the exact likelihood and prior, with
   nodes placed by this Gaussian (`tailored.gaussian.quadrature`).  If L has more than
   `MOST_DIRECTIONS` columns, the nodes are a fixed random sample, and their weights are those of
   importance sampling.

Evidence and moments under the components then have the same meaning as for Gaussian targets, so
M-steps and mixing weights are computed in the same way.  The noise variance of the model is 1, or
the dispersion of a negative binomial response. Some algorithms need Gaussian targets.  For these,
each row is replaced by a *site*, a Gaussian row with the precision ``τ = E h″(f)`` and the target
``E f + (y − E h′(f)) / τ``, where E is the mean over the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from .._utils.threads import in_threads
from ..tasks.rows import Array, Scaling, frozen, predictions, segment_sums
from ..tasks.task_set import TaskSet
from .kernels import second_moments
from .mixture import EVIDENCE, Mixture, Want
from .moments import NO_SUMS, Expected, Moments, RowStatistics, Sums, Totals, log_priors, normalise
from .quadrature import (
    Index,
    Nodes,
    Parameters,
    Posteriors,
    Predictors,
    Targets,
    write_posteriors,
    write_scores,
)

if TYPE_CHECKING:
    from .responses import Likelihood

#: Candidate dispersions of a pooled negative binomial fit; the first and last bound the dispersion
#: in all fits.
DISPERSIONS = np.geomspace(1e-3, 30.0, 30)
Mask = NDArray[np.bool_]

#: Maximum number of columns of L for quadrature.
MOST_DIRECTIONS = 3
#: Numbers of nodes along the principal axes of LLᵀ, in increasing order, and size of the sample for
#: more columns; the second entry is for rough fits, which are only compared with each other.
NODES = ((), (21,), (9, 15), (5, 7, 9)), ((), (5,), (3, 5), (3, 3, 5))
SAMPLED = 512, 64
#: Number of nodes for the moments of a row when nodes are placed.
PLACING = 5
#: Minimum precision of a site.
LEAST_PRECISION = 1e-8


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

    response: Likelihood
    offset: Array  # (N,) added to f, for example the logarithm of an exposure
    weights: Array  # (N,) exponents of the likelihood of each row
    is_rough: bool = False  # whether posteriors are computed with few nodes

    @classmethod
    def of(
        cls, tasks: TaskSet, units: Scaling, response: Likelihood, side: Array | None = None
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

    def drawn(self, model: Mixture, rng: np.random.Generator) -> Self:
        """Return the same rows with targets that are drawn from a model with one component."""
        (L,), effects = model.factors, model.effects(self.side)
        weights = model.means[0] + rng.standard_normal((len(self), L.shape[1])) @ L.T
        f = predictions(self.rows, weights if effects is None else weights + effects)
        f, ones = (f + self.offset)[None], np.ones(len(self.y))
        self.response.draw(rng, f, model.noise * ones, ones)
        return replace(self, y=f[0])

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
        starts = frozen(self.starts, np.int64)
        second_moments((frozen(root[:, None] * self.X), frozen(root * y), starts), unit, out)
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
            np.choose(component, [getattr(of, name) for of in found])
            for name in ("predictors", "slopes", "curvatures")
        )
        precisions = np.maximum(self.weights * curvatures, LEAST_PRECISION)
        targets = f + self.weights * slopes / precisions - self.offset
        noise = model.noise
        if self.response.has_dispersion:
            pairs = zip(shares.T, found, strict=True)
            scores = np.sum([r * self._dispersion_scores(of, noise) for r, of in pairs], axis=0)
            step = np.clip(scores.sum() / max(float(scores @ scores), 1e-300), -0.7, 0.7)
            noise = float(np.clip(noise * np.exp(step), *DISPERSIONS[[0, -1]]))
        evidence = float(np.mean(log_evidence)) if len(self) else 0.0
        return precisions, targets, evidence, self.response.noise(noise)

    def _dispersion_scores(self, found: Posteriors, noise: float) -> Array:
        """Return the derivatives of the log evidence of tasks (T,) in the logarithm of the
        dispersion, given the posterior.
        """
        r, constants = 1.0 / noise, self.response.dispersion_constants(self.y, noise)[:, 0]
        h = (self.y * found.predictors - found.values) / (self.y + r)
        return segment_sums(self.weights * (r * (h - constants) + found.slopes), self.starts)

    def _by_component(
        self, model: Mixture, among: Mask | None = None, rows: bool = False
    ) -> tuple[Array, Array, list[Posteriors]]:
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

    def directions(self, b: Array, L: Array, noise: float, used: Mask, of_rows: bool) -> Posteriors:
        """Return the posterior of u in w = b + Lu with L (d, p), for the tasks in the mask
        ``used``.

        The fields of rows are zero unless ``of_rows``.
        """
        T, N, p = len(self), len(self.y), L.shape[1]
        out = Posteriors(
            *(np.zeros(T), np.zeros((T, p)), np.zeros((T, p, p))),
            *(np.zeros(N), np.zeros(N), np.zeros(N), np.zeros(N)),
        )
        given = self._targets(noise), self._predictors(b, L, noise), nodes_for(p, self.is_rough)

        def run(tasks: Index) -> None:
            write_posteriors(tasks, *given, of_rows, out)

        in_threads(run, self._parts(np.flatnonzero(used)), self.n_threads)
        return out._replace(log_evidence=out.log_evidence + self._constants(noise))

    def scores(
        self, b: Array, L: Array, noise: float, rows: Array, entries: tuple[Index, Index]
    ) -> tuple[Array, Array, Array]:
        """Return the log evidence (T,), and its first and minus its second derivatives, (T, q) and
        (T, q, q).

        The parameters are b, the ``entries`` (a, c) of a matrix D in ``f = … + <rows, D u>``, and,
        if the response has one, the logarithm of the dispersion.
        """
        T, p, response = len(self), L.shape[1], self.response
        q = self.n_features + len(entries[0]) + response.has_dispersion
        log_evidence, scores, information = np.zeros(T), np.zeros((T, q)), np.zeros((T, q, q))
        of_dispersion = np.zeros((0, 2))
        if response.has_dispersion:
            of_dispersion = response.dispersion_constants(self.y, noise)
        i, j = (frozen(at, np.int64) for at in entries)
        parameters = Parameters(frozen(self.X), frozen(rows), i, j, frozen(of_dispersion))
        given = self._targets(noise), self._predictors(b, L, noise), nodes_for(p, self.is_rough)

        def run(tasks: Index) -> None:
            write_scores(tasks, *given, parameters, log_evidence, scores, information)

        in_threads(run, self._parts(np.arange(T)), self.n_threads)
        return log_evidence + self._constants(noise), scores, information

    def _parts(self, tasks: NDArray[np.intp]) -> list[tuple[Index]]:
        """Return the positions of tasks, in a part for each thread."""
        return [(part,) for part in np.array_split(tasks, max(self.n_threads, 1))]

    def _targets(self, noise: float) -> Targets:
        sizes, shift, is_logistic = self.response.curve(self.y, noise)
        y, weights, sizes = (frozen(each) for each in (self.y, self.weights, sizes))
        return Targets(y, weights, sizes, shift, is_logistic, frozen(self.starts, np.int64))

    def _predictors(self, b: Array, L: Array, noise: float) -> Predictors:
        left, sizes, turn = np.linalg.svd(L, full_matrices=False)
        # Sampled nodes are not symmetric, so the signs of the axes must not depend on rounding.
        signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(len(sizes))])
        left, turn = left * signs, turn * signs[:, None]
        f = self.X @ b + self.offset
        centre = self.response.centre(self.y, f)
        _, slope, curvature = self.response.derivatives(self.y, centre, noise)
        axes = (left * sizes)[:, ::-1], turn[::-1]
        sites = curvature, slope + curvature * (centre - f)
        return Predictors(*map(frozen, (f, self.X @ axes[0], axes[1], *sites)))

    def _constants(self, noise: float) -> Array:
        """Return the sums over rows of the part of the log likelihood that does not depend on f."""
        constants = self.weights * self.response.constants(self.y, noise)
        return segment_sums(constants, self.starts)


@cache
def nodes_for(p: int, is_rough: bool) -> Nodes:
    """Return the nodes for u with p entries."""
    return Nodes(*map(frozen, (*_grid(p, is_rough), *_normal_nodes(PLACING))))


def _grid(p: int, is_rough: bool) -> tuple[Array, Array]:
    """Return the first two fields of `Nodes`."""
    if p > MOST_DIRECTIONS:
        half = np.random.default_rng(0).standard_normal((max(SAMPLED[is_rough] // 2, 4 * p), p))
        nodes = np.vstack([half, -half])
        nodes = np.linalg.solve(np.linalg.cholesky(nodes.T @ nodes / len(nodes)), nodes.T).T
        return nodes, 0.5 * (nodes**2).sum(axis=1) - np.log(len(nodes))
    if p == 0:
        return np.zeros((1, 0)), np.zeros(1)
    axes = [_normal_nodes(n) for n in NODES[is_rough][p]]
    positions, weights = (np.meshgrid(*parts, indexing="ij") for parts in zip(*axes, strict=True))
    z = np.stack(positions, -1).reshape(-1, p)
    return z, np.sum(np.log(weights), axis=0).ravel() + 0.5 * (z**2).sum(axis=1)


def _normal_nodes(n: int) -> tuple[Array, Array]:
    """Return Gauss-Hermite nodes and weights for a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()
