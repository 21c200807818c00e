"""Rows of tasks with non-Gaussian targets, and the posterior of their coefficients.

With ``f = <x, w>`` the log-likelihood of a row is ``y f − h(f)`` plus a constant (`tailored.gaussian.responses`), concave in f.
Under a component, w = b + Lu with standard normal u.  For every task:

1. Expectation propagation (Minka, 2001) replaces the likelihood of each row by a *site* ``exp(ν a − ½ τ a²)`` with
   ``a = <x, Lu>``, so that the posterior is Gaussian.  Sites are updated one at a time, by matching the moments of the exact
   likelihood of the row, multiplied by the prior and the other sites.
2. If L has at most `MOST_DIRECTIONS` columns, evidence, mean and covariance are computed by Gauss-Hermite quadrature of the
   exact likelihood and prior, with nodes placed by this Gaussian (Naylor and Smith, 1982).  With expectation propagation
   alone, large variances between tasks with few rows are underestimated by about 10 %.  With more columns of L, the
   results of expectation propagation are used.

Evidence and moments under the components then have the same meaning as for Gaussian targets, so M-steps and mixing weights
are computed in the same way.  The noise variance of the model is 1, or the dispersion of a negative binomial response.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.compiling import njit
from .._utils.records import cached_property
from .._utils.threads import in_threads
from ..tasks.rows import Array, Scaling, frozen, predictions, segment_sums
from ..tasks.task_set import TaskSet
from .kernels import ENTRY, PART, keep_separate, second_moments
from .mixture import EVIDENCE, Mixture, Want
from .moments import NO_SUMS, Expected, Moments, RowStatistics, Sums, Totals, log_priors, normalise

#: Integer codes of the responses in compiled code.
BERNOULLI, POISSON, NEGATIVE_BINOMIAL = CODES = 0, 1, 2
#: Candidate dispersions of a pooled negative binomial fit; the first and last bound the dispersion in all fits.
DISPERSIONS = np.geomspace(1e-3, 30.0, 30)
#: Options of kernels that allocate or slice arrays, for which Numba counts references.
_PART, _ENTRY = {**PART, "_nrt": True}, {**ENTRY, "_nrt": True}
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
# Types of the arguments of compiled code
Kind = tuple[int, float]  # code of the response, and 1 / dispersion
Data = tuple[Array, Array, Array, Array]  # rows, f, y and weights
Span = tuple[int, int]  # first position, and the position after the last
Pair = tuple[Array, Array]  # sites (τ, ν), or nodes and their log weights
Grid = tuple[Index, Array, Array, Array]  # see `grid`

#: Maximum number of columns of L for quadrature, and number of nodes along each; the last has the largest variance.
MOST_DIRECTIONS = 3
NODES = ((), (21,), (9, 15), (5, 5, 9))
#: If tasks have on average at least this many rows, posteriors are close to Gaussian, and fewer nodes are enough.
MANY_ROWS, FEWER_NODES = 12, ((), (11,), (5, 7), (3, 3, 5))
#: Expectation propagation before quadrature (`PLACING`) and without it (`FINAL`): number of nodes for the moments of a row,
#: tolerance, and maximum number of sweeps.
PLACING = 7, 0.1, 10
FINAL = 9, 0.05, 100
#: Step of the finite differences in the log dispersion, and maximum change of the log dispersion in one update.
DIFFERENCE, LARGEST_CHANGE = 0.05, 0.7
#: Exponents are clipped, so that products of a few exponentials, and squares of moments of sites, are finite.
LARGEST_EXPONENT, LARGEST_FACTOR = 150.0, 170.0
#: Odds are clipped, so that logarithms are only needed every few rows.
LARGEST_RATIO, ROWS_PER_LOG = 1e30, 8
#: Maximum number of tasks that one thread processes at a time.
BLOCK = 4096
#: With a smaller variance of f, a site is a Taylor expansion.  The precision of a site is at least this times that of its cavity.
LEAST = 1e-12
#: Minimum precision of a site that is used as a row with Gaussian noise.
LEAST_PRECISION = 1e-8


class LogLikelihood(Protocol):
    """The members of `tailored.gaussian.responses.Likelihood` that are used here; they are documented there."""

    code: ClassVar[int]
    has_dispersion: ClassVar[bool]

    def noise(self, noise: float) -> float: ...
    def constants(self, y: Array, noise: float) -> Array: ...
    def derivatives(self, y: Array, f: Array, noise: float) -> tuple[Array, Array]: ...
    def skewness(self, f: Array, noise: float) -> Array: ...
    def pooled_fit(
        self, X: Array, y: Array, offset: Array, weights: Array
    ) -> tuple[Array, float]: ...


class Directions(NamedTuple):
    """Posterior of u under one component."""

    log_evidence: Array  # (T,)
    means: Array  # (T, p)
    covariances: Array  # (T, p, p)
    precisions: Array  # (N,) τ of the sites
    slopes: Array  # (N,) E(∂ log p(y | f) / ∂f); length 0 if not requested


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
    #: Sites under each component of the last model, used as initial values in a fit; None if they are not kept.
    sites: dict[int, tuple[Array, Array]] | None = None

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

    def take(self, index: NDArray[np.intp] | slice) -> Self:
        return replace(super().take(index), sites=None)

    def shifted(self, weights: Array) -> ResponseRows:
        """Return the tasks with ``X w`` added to the offset, for known parts w (T, d) of the coefficients."""
        return replace(self, offset=self.offset + predictions(self.rows, weights))

    @property
    def row_moment(self) -> Array:
        return np.asarray(self.X.T @ self.X / self.n_rows)

    def skewness(self, model: Mixture) -> float:
        f = self.X @ model.means[0] + self.offset
        weights = self.weights * self.response.derivatives(self.y, f, model.noise)[1]
        return float(weights @ self.response.skewness(f, model.noise) / max(weights.sum(), 1e-300))

    def totals(self) -> Totals:
        """Return the totals of the weighted least squares problem whose solution is the pooled fit to all rows."""
        b, noise = self.pooled
        f = self.X @ b + self.offset
        slope, curvature = self.response.derivatives(self.y, f, noise)
        weights = self.weights * curvature
        working = self.weights * slope + weights * (self.X @ b)
        gram, cross, n = (
            self.X.T @ (weights[:, None] * self.X),
            working @ self.X,
            float(len(self.y)),
        )
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
        curvature = self.response.derivatives(self.y, self.X @ b + self.offset, noise)[1]
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
        """Return the sites and the model for them; the effects of side information are part of the sites."""
        return self.site_moments(model)[0], replace(model, noise=1.0, side=None)

    def site_moments(self, model: Mixture) -> tuple[Sites, float]:
        """Return the sites of each task under its most probable component, and the log evidence per task.

        With the sites as rows and noise variance 1, the gradient of the evidence with respect to the parameters of one
        component equals that of expectation propagation.
        """
        precisions, targets, evidence = self.gaussian_rows(model)
        return self.sites_of(precisions, targets), evidence

    def sites_of(self, precisions: Array, targets: Array) -> Sites:
        """Return the second moments of the sites that `gaussian_rows` returned."""
        return Sites(*self._moments(precisions, targets), self.sizes, self.side, self.n_threads)

    def gaussian_rows(self, model: Mixture) -> tuple[Array, Array, float]:
        """Return the precisions (N,) and the targets (N,) of the sites of `site_moments`, and the log evidence per task."""
        source = self if self.sites is not None else replace(self, sites={})
        found = source.posterior(model)
        assert source.sites is not None
        component = np.repeat(found.shares.argmax(axis=1), np.diff(self.starts))
        sites = zip(*(source.sites[k] for k in range(model.n_components)), strict=True)
        tau, linear = (np.choose(component, parts) for parts in sites)
        tau = np.maximum(tau, LEAST_PRECISION)
        return (
            tau,
            linear / tau - self.offset,
            float(np.mean(found.log_evidence)) if len(self) else 0.0,
        )

    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: Mask | None = None
    ) -> Expected:
        T, (K, d) = len(self), model.means.shape
        effects = model.effects(self.side)
        rest = self if effects is None else self.shifted(effects)
        joint = log_priors(model, self.side, T, among)
        deviations, within = np.zeros((T, K, d)), []
        for k in range(K):
            root = model.factors[k]
            found = rest.directions(model.means[k], root, model.noise, joint[:, k] > -np.inf, k=k)
            joint[:, k] += found.log_evidence
            deviations[:, k] = found.means @ root.T
            within.append((root, found.covariances))
        log_evidence, shares = normalise(joint), joint
        covariances = np.zeros((T if want.covariances else 0, d, d))
        if want.covariances:
            for k, (root, C) in enumerate(within):
                covariances += root @ (shares[:, k, None, None] * C) @ root.T
        sums = NO_SUMS
        if want.sums:
            first = np.einsum("tk,tkd->kd", shares, deviations)
            second = np.stack(
                [
                    (v * r[:, None]).T @ v
                    for v, r in zip(deviations.transpose(1, 0, 2), shares.T, strict=True)
                ]
            )
            for k, (root, C) in enumerate(within):
                second[k] += root @ np.tensordot(shares[:, k], C, 1) @ root.T
            # With this residual, an M-step does not change the noise.
            residual = self.response.noise(model.noise) * float(len(self.y))
            sums = Sums(float(log_evidence.sum()), shares.sum(axis=0), first, second, residual)
        means = np.zeros((0, K, d))
        if want.means:
            means = model.means + deviations
            means += 0.0 if effects is None else effects[:, None]
        return Expected(log_evidence, shares, means, covariances, sums)

    def dispersion_scores(self, model: Mixture) -> Array:
        """Return the derivative of the log evidence of each task with respect to the log dispersion, (T,)."""
        upper, lower = (
            self.posterior(replace(model, noise=model.noise * np.exp(h))).log_evidence
            for h in (DIFFERENCE, -DIFFERENCE)
        )
        return np.asarray((upper - lower) / (2.0 * DIFFERENCE))

    def dispersion(self, model: Mixture) -> float:
        """Return the dispersion after a scoring step; 1 for responses without a dispersion."""
        if not self.response.has_dispersion:
            return 1.0
        scores = self.dispersion_scores(model)
        step = np.clip(
            scores.sum() / max(float(scores @ scores), 1e-300), -LARGEST_CHANGE, LARGEST_CHANGE
        )
        return float(np.clip(model.noise * np.exp(step), *DISPERSIONS[[0, -1]]))

    def directions(
        self,
        b: Array,
        L: Array,
        noise: float,
        used: Mask | None = None,
        *,
        k: int = 0,
        slopes: bool = False,
    ) -> Directions:
        """Return the posterior of u in w = b + Lu with L (d, p), for the tasks in the mask ``used``, by default all."""
        if self.response.code not in CODES:
            raise ValueError(
                f"response: the compiled code has no response with the code {self.response.code}"
            )
        T, N, p = len(self), len(self.y), L.shape[1]
        rows = np.ascontiguousarray(self.X @ L)
        f = self.X @ b + self.offset
        used = np.ones(T, np.bool_) if used is None else used
        tau, linear = (self.sites or {}).get(k, (np.zeros(N), np.zeros(N)))
        # Convert the sites of the linear predictor to sites of its random part <x, Lu>.
        linear = linear - tau * f
        found = Directions(
            np.zeros(T), np.zeros((T, p)), np.zeros((T, p, p)), tau, np.zeros(N * slopes)
        )
        is_exact = p <= MOST_DIRECTIONS
        n_nodes, tol, max_sweeps = PLACING if is_exact else FINAL
        numbers = NODES if N < MANY_ROWS * T else FEWER_NODES
        nodes = one_direction(n_nodes), grid(numbers[p] if is_exact else ())
        kind, data = (self.response.code, 1.0 / noise), (rows, f, self.y, self.weights)

        def run(*span: int) -> None:
            _pass(
                span, kind, data, self.starts, used, *nodes, tol, max_sweeps, linear, tuple(found)
            )

        blocks = [(start, min(start + BLOCK, T)) for start in range(0, T, BLOCK)]
        in_threads(run, blocks, self.n_threads)
        if not np.isfinite(tau.sum() + linear.sum()):
            # The evidence of a model that overflows is NaN.
            failed = ~(np.isfinite(tau) & np.isfinite(linear))
            tau[failed] = linear[failed] = 0.0
            found.log_evidence[segment_sums(failed.astype(float), self.starts) > 0] = np.nan
        if self.sites is not None:
            self.sites[k] = tau, linear + tau * f
        if self.response.code != BERNOULLI:
            constants = self.weights * self.response.constants(self.y, noise)
            found.log_evidence[:] += segment_sums(constants, self.starts)
        return found


@cache
def one_direction(n_nodes: int) -> Pair:
    """Return Gauss-Hermite nodes, and log weights for integrands that are not multiplied by the normal density."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return frozen(nodes), frozen(np.log(weights / weights.sum()) + 0.5 * nodes**2)


@cache
def grid(numbers: tuple[int, ...]) -> Grid:
    """Return the numbers of nodes per axis (p,), node positions on each axis (p, m), all nodes (J, p), and log weights (J,)."""
    p, most = len(numbers), max(numbers, default=1)
    axes, nodes, weights = np.zeros((p, most)), np.zeros((1, 0)), np.zeros(1)
    for k, n in enumerate(numbers):
        axes[k, :n], logs = one_direction(n)
        nodes = np.hstack([np.tile(nodes, (n, 1)), np.repeat(axes[k, :n], len(nodes))[:, None]])
        weights = (logs[:, None] + weights).ravel()
    return (
        frozen(np.array(numbers, np.int64), np.int64),
        frozen(axes),
        frozen(nodes),
        frozen(weights),
    )


@njit(**_PART)
def _exponential(f: float) -> float:
    return np.exp(min(max(f, -LARGEST_EXPONENT), LARGEST_EXPONENT))


@njit(**_PART)
def _value(code: int, shape: float, y: float, f: float) -> float:
    """Return h(f) of a row; ``shape`` is 1 / dispersion."""
    if code == POISSON:
        return _exponential(f)
    factor = 1.0
    if code != BERNOULLI:
        factor, f = y + shape, f - np.log(shape)
    return factor * (max(f, 0.0) + np.log1p(np.exp(-abs(f))))


@njit(**_PART)
def _slopes(code: int, shape: float, y: float, E: float) -> tuple[float, float]:
    """Return h'(f) and h''(f) of a row, given E = exp(f)."""
    if code == POISSON:
        return E, E
    factor, p = (1.0, E / (1.0 + E)) if code == BERNOULLI else (y + shape, E / (shape + E))
    return factor * p, factor * p * (1.0 - p)


@njit(**_PART)
def _tilted(
    kind: Kind, y: float, v: float, mean: float, variance: float, quadrature: Pair
) -> tuple[float, float, float]:
    """Return log ∫ exp(v (y f − h(f))) N(f; mean, variance) df, and the mean and variance of the normalised integrand.

    Nodes are centred at the mode and scaled by the curvature there.  The mode is between the mean and the end of a steepest
    ascent step from it, because the likelihood is log-concave.
    """
    keep_separate()
    (code, shape), (nodes, logs) = kind, quadrature
    f, low, high, curvature = mean, 0.0, 0.0, 0.0
    for step in range(100):
        slope, curvature = _slopes(code, shape, y, _exponential(f))
        slope = v * (y - slope) - (f - mean) / variance
        curvature = v * curvature + 1.0 / variance
        if step == 0:
            end = mean + variance * slope
            low, high = min(mean, end), max(mean, end)
            if code != BERNOULLI:
                # The mode is also between the mean and log y: a tighter bound if the count is far from its prior mean.
                top = np.log(max(y, 1.0))
                low = max(low, min(mean, top) - (v * variance if y == 0.0 else 0.0))
                high = min(high, max(mean, top))
        elif slope > 0.0:
            low = f
        else:
            high = f
        new = f + slope / curvature
        if (new - f) ** 2 * curvature < 0.0025:
            break
        if step == 0 and code != BERNOULLI:
            # The mode is close to log y if the count is informative.
            k = v * (y + 0.5) * (1.0 if code == POISSON else shape / (shape + y))
            new = (mean / variance + k * np.log(y + 0.5)) / (1.0 / variance + k)
        # Bisect every fourth step, because Newton steps for counts have length one if f is far above the mode.
        if not low < new < high or step % 4 == 3:
            new = 0.5 * (low + high)
        f = new
    scale = 1.0 / np.sqrt(curvature)
    top = v * (y * f - _value(code, shape, y, f)) - 0.5 * (f - mean) ** 2 / variance
    total, first, second = 0.0, 0.0, 0.0
    for j in range(len(nodes)):
        x = f + scale * nodes[j]
        h = _value(code, shape, y, x)
        weight = np.exp(v * (y * x - h) - 0.5 * (x - mean) ** 2 / variance - top + logs[j])
        total += weight
        first += weight * nodes[j]
        second += weight * nodes[j] ** 2
    first /= total
    second = second / total - first * first
    return (
        top + np.log(total * scale / np.sqrt(variance)),
        f + scale * first,
        scale * scale * second,
    )


@njit(**_PART)
def _gaussian(
    rows: Array, own: Span, sites: Pair, mean: Array, S: Array, C: Array, work: Array
) -> float:
    """Write the mean and covariance S of the prior times the sites, and an upper triangular C with S = CCᵀ; return log |S|."""
    (tau, linear), p = sites, len(mean)
    for a in range(p):
        work[p, a] = 0.0
        for b in range(a + 1):
            work[a, b] = 1.0 if a == b else 0.0
    for i in range(own[0], own[1]):
        for a in range(p):
            work[p, a] += linear[i] * rows[i, a]
            scaled = tau[i] * rows[i, a]
            for b in range(a + 1):
                work[a, b] += scaled * rows[i, b]
    log_determinant = 0.0
    for a in range(p):
        for b in range(a + 1):
            total = work[a, b]
            for c in range(b):
                total -= work[a, c] * work[b, c]
            work[a, b] = np.sqrt(total) if a == b else total / work[b, b]
        log_determinant -= 2.0 * np.log(work[a, a])
    # C is the inverse of the transposed Cholesky factor of the precision.
    for a in range(p):
        C[a, a] = 1.0 / work[a, a]
        for b in range(a):
            total = 0.0
            for c in range(b, a):
                total += work[a, c] * C[b, c]
            C[b, a], C[a, b] = -total / work[a, a], 0.0
    for a in range(p):
        for b in range(a + 1):
            total = 0.0
            for c in range(a, p):
                total += C[a, c] * C[b, c]
            S[a, b] = S[b, a] = total
    for a in range(p):
        mean[a] = 0.0
        for b in range(p):
            mean[a] += S[a, b] * work[p, b]
    return log_determinant


@njit(**_PART)
def _propagate(
    kind: Kind,
    data: Data,
    own: Span,
    nodes: Pair,
    sites: Pair,
    mean: Array,
    S: Array,
    g: Array,
    tol: float,
) -> tuple[float, float]:
    """Update the sites, mean and S of a task, unless ``tol`` is 0; return the largest change and the sum of log constants."""
    (code, shape), (rows, f, y, v), (tau, linear), p = kind, data, sites, len(mean)
    largest, constants = 0.0, 0.0
    for i in range(own[0], own[1]):
        s, m = 0.0, 0.0
        for a in range(p):
            g[a] = 0.0
            for b in range(p):
                g[a] += S[a, b] * rows[i, b]
            s += g[a] * rows[i, a]
            m += mean[a] * rows[i, a]
        if s < LEAST:
            constants += v[i] * (y[i] * f[i] - _value(code, shape, y[i], f[i]))
            slope, curvature = _slopes(code, shape, y[i], _exponential(f[i]))
            tau[i], linear[i] = v[i] * curvature, v[i] * (y[i] - slope)
            continue
        rest = max(1.0 - tau[i] * s, 1e-6)
        variance, cavity = s / rest, (m - s * linear[i]) / rest
        log_z, new_mean, new_variance = _tilted(kind, y[i], v[i], f[i] + cavity, variance, nodes)
        new_mean -= f[i]
        constants += log_z - 0.5 * (m * m / s - cavity * cavity / variance + np.log(rest))
        if tol == 0.0:
            continue
        more = max(1.0 / new_variance - 1.0 / variance, LEAST / variance) - tau[i]
        shift = new_mean / new_variance - cavity / variance - linear[i]
        tau[i] += more
        linear[i] += shift
        change, grown = shift - more * m, 1.0 + more * s
        largest = max(largest, abs(more) * s, abs(change) * np.sqrt(s))
        for a in range(p):
            mean[a] += change / grown * g[a]
            scaled = more / grown * g[a]
            for b in range(p):
                S[a, b] -= scaled * g[b]
    return largest, constants


@njit(**_PART)
def _exponentials(
    sign: float, x: Array, f: float, mean: Array, numbers: Index, axes: Array, C: Array, E: Array
) -> None:
    """Write exp(± f) of a row at all nodes; f is a sum over the axes, so one exponential per node of each axis is enough."""
    keep_separate()
    for a in range(len(mean)):
        f += x[a] * mean[a]
    E[0], n = np.exp(min(max(sign * f, -LARGEST_FACTOR), LARGEST_FACTOR)), 1
    for k in range(len(numbers)):
        slope, m = 0.0, numbers[k]
        for a in range(k + 1):
            slope += sign * x[a] * C[a, k]
        for j in range(m - 1, -1, -1):
            factor = np.exp(min(max(slope * axes[k, j], -LARGEST_FACTOR), LARGEST_FACTOR))
            for o in range(n):
                E[j * n + o] = E[o] * factor
        n *= m


@njit(**_PART)
def _integrate(
    kind: Kind,
    data: Data,
    own: Span,
    grid: Grid,
    mean: Array,
    S: Array,
    C: Array,
    work: Array,
    slopes: Array,
) -> float:
    """Return the log evidence by quadrature at the nodes mean + Cz; write mean and covariance S of u, and the slopes."""
    keep_separate()
    (code, shape), (rows, f, y, v), (numbers, axes, nodes, logs) = kind, data, grid
    (first, last), p, J = own, len(mean), len(logs)
    # For each node: the sum of h over rows, the product of factors whose logarithm is not yet in h, and exp(f) of one row.
    h, product, E = work[0], work[1], work[2]
    for j in range(J):
        h[j], product[j] = 0.0, 1.0
    constant, linear = 0.0, np.zeros(p)
    for i in range(first, last):
        # The likelihood of a binary target is 1 / (1 + exp(∓ f)), which cannot overflow.
        sign = 1.0 if code != BERNOULLI or y[i] == 0.0 else -1.0
        if code != BERNOULLI:
            constant += v[i] * y[i] * f[i]
            for a in range(p):
                linear[a] += v[i] * y[i] * rows[i, a]
        _exponentials(sign, rows[i], f[i], mean, numbers, axes, C, E)
        if code == BERNOULLI and v[i] == 1.0:
            for j in range(J):
                product[j] *= 1.0 + min(E[j], LARGEST_RATIO)
            if (i - first) % ROWS_PER_LOG == ROWS_PER_LOG - 1 or i == last - 1:
                for j in range(J):
                    h[j] += np.log(product[j])
                    product[j] = 1.0
        elif code == POISSON:
            for j in range(J):
                h[j] += v[i] * E[j]
        else:
            for j in range(J):
                h[j] += v[i] * (
                    np.log1p(E[j]) if code == BERNOULLI else (y[i] + shape) * np.log1p(E[j] / shape)
                )
    largest = -np.inf
    for j in range(J):
        value = logs[j] - h[j] - np.log(product[j])
        for a in range(p):
            u = mean[a]
            for b in range(a, p):
                u += C[a, b] * nodes[j, b]
            value += linear[a] * u - 0.5 * u * u
        h[j] = value
        largest = max(largest, value)
    total = 0.0
    for j in range(J):
        h[j] = np.exp(h[j] - largest)
        total += h[j]
    log_evidence = constant + largest + np.log(total)
    moments, z = np.zeros((p, p)), np.zeros(p)
    for j in range(J):
        h[j] /= total
        for a in range(p):
            z[a] += h[j] * nodes[j, a]
            for b in range(a + 1):
                moments[a, b] += h[j] * nodes[j, a] * nodes[j, b]
    if len(slopes):
        for i in range(first, last):
            sign = 1.0 if code != BERNOULLI or y[i] == 0.0 else -1.0
            _exponentials(sign, rows[i], f[i], mean, numbers, axes, C, E)
            expected = 0.0
            for j in range(J):
                expected += h[j] * _slopes(code, shape, y[i], E[j])[0]
            slopes[i] = v[i] * (-sign * expected if code == BERNOULLI else y[i] - expected)
    for a in range(p):
        log_evidence += np.log(C[a, a])
        for b in range(a, p):
            mean[a] += C[a, b] * z[b]
        for b in range(a + 1):
            moments[a, b] -= z[a] * z[b]
            moments[b, a] = moments[a, b]
    for a in range(p):
        for b in range(p):
            total = 0.0
            for c in range(a, p):
                for e in range(b, p):
                    total += C[a, c] * moments[c, e] * C[b, e]
            S[a, b] = total
    return log_evidence


@njit(**_ENTRY)
def _pass(
    span: Span,
    kind: Kind,
    data: Data,
    starts: Index,
    used: Mask,
    nodes: Pair,
    grid: Grid,
    tol: float,
    max_sweeps: int,
    linear: Array,
    found: tuple[Array, Array, Array, Array, Array],
) -> None:
    """Write the posterior of the tasks ``span[0]`` to ``span[1] - 1``; see `ResponseRows.directions`."""
    rows, (log_evidence, means, covariances, tau, slopes) = data[0], found
    p, sites = rows.shape[1], (tau, linear)
    is_exact = p == len(grid[0])
    C, work, wide = np.zeros((p, p)), np.zeros((p + 2, p)), np.zeros((3, len(grid[3])))
    for t in range(span[0], span[1]):
        if not used[t]:
            continue
        own, mean, S = (starts[t], starts[t + 1]), means[t], covariances[t]
        _gaussian(rows, own, sites, mean, S, C, work)
        for _ in range(max_sweeps):
            if _propagate(kind, data, own, nodes, sites, mean, S, work[p], tol)[0] < tol:
                break
        log_determinant = _gaussian(rows, own, sites, mean, S, C, work)
        if is_exact:
            log_evidence[t] = _integrate(kind, data, own, grid, mean, S, C, wide, slopes)
            continue
        total = 0.5 * log_determinant
        for i in range(own[0], own[1]):
            m = 0.0
            for a in range(p):
                m += rows[i, a] * mean[a]
            total += 0.5 * linear[i] * m
            if len(slopes):
                slopes[i] = linear[i] - tau[i] * m
        log_evidence[t] = (
            total + _propagate(kind, data, own, nodes, sites, mean, S, work[p], 0.0)[1]
        )
