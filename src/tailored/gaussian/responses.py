"""Responses: the distribution of a target given its linear predictor ``f = <x, w>``.

A response determines how targets are scaled, which statistics of tasks are computed, and how
targets are drawn.  `Gaussian` is the response of all losses of `tailored.losses`.  `RESPONSES` maps
the names of the other responses, for classes and counts, to their classes.  These are also losses,
which evaluate predicted means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Never

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, expit, gammaln, logit, ndtr, pdtr, polygamma, psi, xlogy

from .._utils.records import Stored
from ..losses import Loss
from ..tasks.rows import RESPONSE_LIMIT, Array, Scaling
from ..tasks.task_set import TaskSet
from .quadrature import LARGEST
from .rows import Tasks, statistics_of
from .serial import SerialNoise
from .sites import DISPERSIONS, ResponseRows

#: Maximum number of Newton steps of a pooled fit to all rows, its ridge relative to the mean
#: information, and its tolerance.
POOLED_STEPS, POOLED_RIDGE, POOLED_CHANGE = 30, 1e-6, 1e-6
#: Largest count accepted as a target.
MOST_EVENTS = 1e9
#: Approximate maximum number of counts (or of bins of adjacent counts) at which a predictive
#: distribution is evaluated, and maximum log rate.
MOST_COUNTS, LARGEST_LOG_COUNT = 2000, 35.0
#: Nodes and weights for integrals over a linear predictor, and nodes for integrals over the
#: likelihood of a count, in standard deviations.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS /= _WEIGHTS.sum()
_LIKELIHOOD_NODES = np.linspace(-12.0, 12.0, 49)
#: The logistic function is approximated by a mixture of normal distribution functions, Σ p Φ(s f),
#: with an error below 3e-9 (Monahan and Stefanski, 1992).
_P = np.array([
    0.00324634327264, 0.05151747703397, 0.19507791267386, 0.31556982363282,
    0.27414957615816, 0.13107688069042, 0.02791241872792, 0.00144956780535,
])  # fmt: skip
_P /= _P.sum()
_S = np.array([
    1.36534080629635, 1.05952397101692, 0.83079131376564, 0.65073216663939,
    0.50813542536649, 0.39631334516634, 0.30890425226800, 0.23821261640931,
])  # fmt: skip


@dataclass(frozen=True)
class Response(Stored, ABC):
    """Base class of the responses.  ``noise`` is σ² of Gaussian targets, or the dispersion of
    negative binomial targets.
    """

    name: ClassVar[str]
    is_gaussian: ClassVar[bool] = False
    has_dispersion: ClassVar[bool] = False
    has_exposure: ClassVar[bool] = False
    has_intervals: ClassVar[bool] = True

    @property
    def correlation(self) -> SerialNoise | None:
        """The correlation of the noise in time; None for independent noise."""
        return None

    @abstractmethod
    def scaling(self, scaling: Scaling) -> Scaling:
        """Return the scaling for this response; only Gaussian targets are scaled."""

    @abstractmethod
    def statistics(self, tasks: TaskSet, scaling: Scaling, side: Array | None = None) -> Tasks:
        """Return the statistics of scaled tasks; ``side`` (T, q) are features of the side
        information.
        """

    @abstractmethod
    def without_part(
        self, tasks: TaskSet, part: Array, variances: Array, skewness: float
    ) -> TaskSet:
        """Return the tasks without a known part (n,) of their linear predictors.

        ``variances`` (n,) are those of its errors, and ``skewness`` is that of `TaskStatistics`.
        """

    @abstractmethod
    def noise(self, noise: float) -> float:
        """Return the noise parameter of a model; it is 1 if the response has none."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, f: Array, noise: Array, units: Array) -> None:
        """Replace draws f (m, n) of linear predictors by draws of the sum of ``units`` (n,) targets
        with this predictor.
        """


@dataclass(frozen=True)
class Gaussian(Response):
    """Numbers: the target is the linear predictor plus Gaussian noise."""

    name = "gaussian"
    is_gaussian = True
    serial: SerialNoise | None = None  # None for independent noise

    @property
    def correlation(self) -> SerialNoise | None:
        return self.serial

    def scaling(self, scaling: Scaling) -> Scaling:
        return scaling

    def statistics(self, tasks: TaskSet, scaling: Scaling, side: Array | None = None) -> Tasks:
        if self.serial is not None:
            return self.serial.statistics(tasks, scaling, side)
        return statistics_of(tasks, scaling, side)

    def whiten(self, errors: Array, tasks: TaskSet) -> Array:
        """Return errors (n,) of rows with independent noise of variance σ²."""
        if self.serial is not None:
            return self.serial.whiten(errors[:, None], tasks)[0][:, 0]
        return errors if tasks.row_weights is None else errors * np.sqrt(tasks.row_weights)

    def without_part(
        self, tasks: TaskSet, part: Array, variances: Array, skewness: float
    ) -> TaskSet:
        return tasks.replace(y=tasks.y - part, encoding=None)

    def noise(self, noise: float) -> float:
        return noise

    def draw(self, rng: np.random.Generator, f: Array, noise: Array, units: Array) -> None:
        errors = rng.standard_normal(f.shape)
        errors *= np.sqrt(units * noise)
        f *= units
        f += errors


def response_of(loss: Loss) -> Response:
    """Return the response of a loss: the loss itself for classes and counts, else `Gaussian`."""
    return loss if isinstance(loss, Response) else Gaussian()


class Predictors(NamedTuple):
    """The distributions of linear predictors: mixtures of K normal distributions for each of n
    rows.
    """

    shares: Array  # (n, K)
    means: Array  # (n, K)
    variances: Array  # (n, K)

    def average(self, function: Callable[[Array, Array], Array]) -> Array:
        """Return the mean (n,) of a function of the moments of a normal distribution."""
        return np.asarray((self.shares * function(self.means, self.variances)).sum(axis=1))


@dataclass(frozen=True)
class Likelihood(Loss, Response):
    """Base class of the responses of classes and counts, whose log-likelihood is ``y f − h(f)``
    plus a constant.

    The defaults are those of Poisson counts with the log link.  Functions of linear predictors f
    are elementwise.
    """

    has_exposure: ClassVar[bool] = True

    def scaling(self, scaling: Scaling) -> Scaling:
        return replace(scaling, target=1.0, target_shift=0.0, limit=RESPONSE_LIMIT)

    def statistics(self, tasks: TaskSet, scaling: Scaling, side: Array | None = None) -> Tasks:
        return ResponseRows.of(tasks, scaling, self, side)

    def without_part(
        self, tasks: TaskSet, part: Array, variances: Array, skewness: float
    ) -> TaskSet:
        # With an error of variance v, E h′(f) is about h′ at f + ½ v h‴/h″.
        factor = np.exp(np.clip(part + 0.5 * skewness * variances, -LARGEST, LARGEST))
        exposure = factor if tasks.exposure is None else tasks.exposure * factor
        return tasks.replace(exposure=exposure, encoding=None)

    def check_targets(self, y: ArrayLike, name: str = "y") -> None:
        y = np.asarray(y)
        bad = y[~((y >= 0) & (y <= MOST_EVENTS) & (y == np.round(y)))]
        if len(bad):
            raise ValueError(
                f"{name}: the {self.name} loss needs counts 0, 1, 2, .. up to {MOST_EVENTS:,.0f}, "
                f"but {name} contains {bad[0]:g}. For rates, pass the counts as targets and the "
                "exposures as exposure=. Use loss='squared' for other targets."
            )

    def subgradient(self, p: ArrayLike, y: ArrayLike) -> Never:
        raise NotImplementedError(f"loss: only empirical Bayes learners support {self.name!r}")

    dual_box = subgradient  # type: ignore[assignment]

    def noise(self, noise: float) -> float:
        return noise if self.has_dispersion else 1.0

    def draw(self, rng: np.random.Generator, f: Array, noise: Array, units: Array) -> None:
        f[...] = rng.poisson(units * np.exp(np.minimum(f, LARGEST_LOG_COUNT)))

    def constants(self, y: Array, noise: float) -> Array:
        """Return log p(y | f) − (y f − h(f))."""
        return -gammaln(y + 1.0)

    def curve(self, y: Array, noise: float) -> tuple[Array, float, bool]:
        """Return the sizes, the shift and ``is_logistic``, see `quadrature.Targets`."""
        return np.ones(len(y)), 0.0, False

    def derivatives(self, y: Array, f: Array, noise: float) -> tuple[Array, Array, Array]:
        """Return y f − h(f), y − h′(f) and h″(f)."""
        sizes, shift, is_logistic = self.curve(y, noise)
        if not is_logistic:
            mean = self.mean(f)
            return y * f - mean, y - mean, mean
        value, p, curvature = _logistic(f + shift)
        return y * f - sizes * value, y - sizes * p, sizes * curvature

    def dispersion_constants(self, y: Array, noise: float) -> Array:
        """Return `quadrature.Parameters.of_dispersion`."""
        raise NotImplementedError

    def centre(self, y: Array, f: Array) -> Array:
        """Return linear predictors near the maximum of the likelihood of each row, where Newton's
        method can start.
        """
        return np.log(y + 0.5)

    def skewness(self, f: Array, noise: float) -> Array:
        """Return h‴(f) / h″(f)."""
        return np.ones(len(f))

    def log_likelihood(self, y: Array, f: Array, noise: float) -> Array:
        """Return log p(y | f)."""
        return self.derivatives(y, f, noise)[0] + self.constants(y, noise)

    def mean(self, f: Array, variance: Array | float = 0.0) -> Array:
        """Return E(y) for a normal linear predictor with mean f and the given variance."""
        return np.exp(np.minimum(f + 0.5 * np.asarray(variance), LARGEST))

    def link(self, mean: Array) -> Array:
        """Return the linear predictors without variance that have these means."""
        return np.log(np.maximum(mean, np.finfo(float).tiny))

    def value(self, p: ArrayLike, y: ArrayLike) -> Array:
        """Return half the Poisson deviance of predicted means."""
        p = np.maximum(p, np.finfo(float).tiny)
        return np.asarray(xlogy(y, y) - xlogy(y, p) - y + p)

    def interval(
        self, predictors: Predictors, noise: float, coverage: float
    ) -> tuple[Array, Array]:
        """Return the bounds of the shortest intervals of counts with predictive probability
        ``coverage`` or more.
        """
        shares, f, variances = predictors
        # Counts above `last` have a probability of about 1e-4.
        tops = np.where(shares > 1e-4, f + 3.7 * np.sqrt(variances), -np.inf)
        top = np.exp(np.minimum(tops.max(axis=1), LARGEST_LOG_COUNT))
        last = top + 8.0 * np.sqrt(top * (1.0 + self.has_dispersion * noise * top)) + 10.0
        ends = np.empty((2, len(f)))
        for i, end in enumerate(last):
            step = int(np.ceil(end / MOST_COUNTS))
            counts = np.arange(step - 1.0, end + step, step)
            of_parts = [
                self._at_most(counts, *part, noise) for part in zip(f[i], variances[i], strict=True)
            ]
            below = np.append(0.0, shares[i] @ of_parts)
            # Find the shortest interval for each first count.  Take the shortest of these; among
            # ties, take the most probable.
            upper = np.minimum(np.searchsorted(below, below + coverage - 1e-12), len(counts))
            short = np.flatnonzero(below[upper] - below >= min(coverage, below[-1]) - 1e-9)
            lengths = upper[short] - short
            short = short[lengths == lengths.min()]
            first = short[np.argmax(below[upper[short]] - below[short])]
            ends[:, i] = first * step, counts[upper[first] - 1]
        return ends[0], ends[1]

    def _at_most(self, counts: Array, f: float, variance: float, noise: float) -> Array:
        """Return P(y ≤ count) for a normal linear predictor with mean f and the given variance."""
        out, centre, std = np.empty(len(counts)), np.log(counts + 1.0), np.sqrt(variance)
        widths = 1.0 / np.sqrt(self.derivatives(counts + 1.0, centre, noise)[2])
        wide = std > widths
        rates = np.exp(np.minimum(f + std * _NODES, LARGEST_LOG_COUNT))[:, None]
        out[~wide] = _WEIGHTS @ self._distribution(counts[~wide], rates, noise)
        # P(y ≤ c) is also the probability that a variable x with the density p(c + 1 | x) exceeds
        # the linear predictor.  The narrower of the two is integrated numerically.
        x = centre[wide] + _LIKELIHOOD_NODES[:, None] * widths[wide]
        value = self.derivatives(counts[wide] + 1.0, x, noise)[0]
        density = np.exp(value - value.max(axis=0))
        out[wide] = (density * ndtr((x - f) / std)).sum(axis=0) / density.sum(axis=0)
        return out

    def _distribution(self, counts: Array, rates: Array, noise: float) -> Array:
        """Return P(y ≤ count)."""
        return np.asarray(pdtr(counts, rates))

    def variance(self, predictors: Predictors, noise: float) -> Array:
        """Return Var(y)."""
        total = predictors.average(self.mean)[:, None]

        def squared_error(f: Array, variance: Array) -> Array:
            mean, factor = self.mean(f, variance), np.exp(np.minimum(variance, LARGEST))
            factor = factor * (1.0 + self.has_dispersion * noise) - 1.0
            return mean + factor * mean**2 + (mean - total) ** 2

        return predictors.average(squared_error)

    def pooled_fit(self, X: Array, y: Array, offset: Array, weights: Array) -> tuple[Array, float]:
        """Return the coefficients (d,) and the dispersion of a pooled fit to all rows, by Newton's
        method.
        """
        return self._newton(X, y, offset, weights, 1.0), 1.0

    def _start(self, X: Array, y: Array, offset: Array, weights: Array) -> Array:
        """Return a start for Newton's method, which overshoots from zero: least squares for the log
        of smoothed counts.
        """
        d = X.shape[1]
        if not len(y):  # a fold of empty tasks
            return np.zeros(d)
        middle = 0.5 * (y + weights @ y / weights.sum()) + 0.1
        W = weights * middle
        information = X.T @ (W[:, None] * X)
        ridge = POOLED_RIDGE * (np.trace(information) / d + W.sum() / d)
        return np.linalg.solve(information + ridge * np.eye(d), (W * (np.log(middle) - offset)) @ X)

    def _newton(self, X: Array, y: Array, offset: Array, weights: Array, noise: float) -> Array:
        b, value = self._start(X, y, offset, weights), -np.inf
        step = np.zeros_like(b)
        for _ in range(POOLED_STEPS):
            f = X @ (b + step) + offset
            new = float(weights @ self.log_likelihood(y, f, noise))
            if not new >= value:
                step *= 0.5
                continue
            b, value = b + step, new
            _, slope, curvature = self.derivatives(y, f, noise)
            information = X.T @ ((weights * curvature)[:, None] * X)
            ridge = POOLED_RIDGE * (np.trace(information) / len(b) + weights.sum() / len(b) + 1.0)
            gradient = (weights * slope) @ X
            step = np.linalg.solve(information + ridge * np.eye(len(b)), gradient)
            if gradient @ step < POOLED_CHANGE * max(weights.sum(), 1.0) * 1e-3:
                break
        return b


class Bernoulli(Likelihood):
    """Targets 0 and 1, with the logit link."""

    name = "bernoulli"
    has_exposure = False
    has_intervals = False

    def check_targets(self, y: ArrayLike, name: str = "y") -> None:
        y = np.asarray(y)
        bad = y[(y != 0) & (y != 1)]
        if len(bad):
            raise ValueError(
                f"{name}: binary targets must be 0 or 1, but {name} contains {bad[0]:g}"
            )

    def constants(self, y: Array, noise: float) -> Array:
        return np.zeros(len(y))

    def curve(self, y: Array, noise: float) -> tuple[Array, float, bool]:
        return np.ones(len(y)), 0.0, True

    def centre(self, y: Array, f: Array) -> Array:
        return f

    def skewness(self, f: Array, noise: float) -> Array:
        return 1.0 - 2.0 * expit(f)

    def draw(self, rng: np.random.Generator, f: Array, noise: Array, units: Array) -> None:
        trials = np.maximum(np.ceil(units), 1.0)
        f[...] = rng.binomial(trials.astype(np.int64), expit(f)) * (units / trials)

    def _start(self, X: Array, y: Array, offset: Array, weights: Array) -> Array:
        return np.zeros(X.shape[1])

    def mean(self, f: Array, variance: Array | float = 0.0) -> Array:
        if not np.any(variance):
            return np.asarray(expit(f))
        out = np.zeros(np.shape(f))
        for p, s in zip(_P, _S, strict=True):
            out += p * ndtr(s * f / np.sqrt(1.0 + s * s * variance))
        return out

    def link(self, mean: Array) -> Array:
        return np.asarray(logit(np.clip(mean, 1e-300, 1.0 - 1e-16)))

    def value(self, p: ArrayLike, y: ArrayLike) -> Array:
        """Return the log loss of predicted probabilities, which are clipped because rounding may
        give 0 or 1.
        """
        y, p = np.asarray(y), np.clip(p, 1e-15, 1.0 - 1e-15)
        return np.asarray(-xlogy(y, p) - xlogy(1.0 - y, 1.0 - p))


class Poisson(Likelihood):
    """Counts with the log link."""

    name = "poisson"

    def without_part(
        self, tasks: TaskSet, part: Array, variances: Array, skewness: float
    ) -> TaskSet:
        # For Poisson counts, h‴/h″ is exactly 1; the argument may have been estimated under a model
        # with a dispersion.
        return super().without_part(tasks, part, variances, 1.0)


class NegativeBinomial(Likelihood):
    """Counts with the log link and the variance μ + noise μ²."""

    name = "negative_binomial"
    has_dispersion = True

    def constants(self, y: Array, noise: float) -> Array:
        r = 1.0 / noise
        return np.asarray(gammaln(y + r) - gammaln(r) - gammaln(y + 1.0) - y * np.log(r))

    def curve(self, y: Array, noise: float) -> tuple[Array, float, bool]:
        return y + 1.0 / noise, float(np.log(noise)), True

    def dispersion_constants(self, y: Array, noise: float) -> Array:
        r = 1.0 / noise
        constants = psi(y + r) - psi(r)
        derivatives = r * (polygamma(1, y + r) - polygamma(1, r))
        return np.column_stack([constants, constants + derivatives])

    def skewness(self, f: Array, noise: float) -> Array:
        return 1.0 - 2.0 * expit(f + np.log(noise))

    def draw(self, rng: np.random.Generator, f: Array, noise: Array, units: Array) -> None:
        # Given a gamma variable, a negative binomial count is Poisson; the sum of the gamma
        # variables of several rows is gamma, too.
        super().draw(rng, f, noise, noise * rng.gamma(units / noise, size=f.shape))

    def _distribution(self, counts: Array, rates: Array, noise: float) -> Array:
        r = 1.0 / noise
        return np.asarray(betainc(r, counts + 1.0, r / (r + rates)))

    def pooled_fit(self, X: Array, y: Array, offset: Array, weights: Array) -> tuple[Array, float]:
        # The fitted mean hardly depends on the dispersion.
        f = X @ self._newton(X, y, offset, weights, 1.0) + offset
        likelihoods = [weights @ self.log_likelihood(y, f, noise) for noise in DISPERSIONS]
        noise = float(DISPERSIONS[int(np.argmax(likelihoods))])
        return self._newton(X, y, offset, weights, noise), noise


def _logistic(f: Array) -> tuple[Array, Array, Array]:
    """Return log(1 + exp(f)) and its first and second derivatives."""
    small = np.exp(-np.abs(f))
    total = 1.0 + small
    # Faster than log1p; the absolute error is as small.
    value = np.maximum(f, 0.0) + np.log(total)
    return value, np.where(f > 0.0, 1.0, small) / total, small / total**2


RESPONSES: dict[str, type[Likelihood]] = {
    kind.name: kind for kind in (Bernoulli, Poisson, NegativeBinomial)
}
