"""Learned priors: posteriors of tasks, predictions, and prediction intervals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy import sparse

from .._utils.compiling import njit
from .._utils.records import Record, cached_property
from .._utils.threads import in_threads, single_threaded_blas
from .._utils.validation import warn
from ..gaussian.kernels import ROWS, keep_separate
from ..gaussian.mixture import Mixture
from ..gaussian.responses import Gaussian, Likelihood, Predictors, Response
from ..losses import Loss, Squared
from ..tasks.episodes import LEAST_QUERY, SupportSampling
from ..tasks.rows import (
    Array,
    Index,
    Matrix,
    Scaling,
    column_range,
    dense,
    frozen,
    segment_sums,
    sparse_products,
)
from ..tasks.task_set import TaskSet
from .intervals import Calibration, Errors, calibration_of, noise_variances
from .shared import SharedEffects
from .side_features import SideFeatures


class Predicted(NamedTuple):
    """Predictions (n,) of rows, interval bounds and standard deviations; bounds and deviations may
    be NaN (unknown).
    """

    prediction: Array
    lower: Array
    upper: Array
    std: Array


class QueryRows(NamedTuple):
    """Rows to predict: X (n, ..), and the position in a posterior of each row's task (n,)."""

    X: Matrix
    task: Index
    exposure: Array | None = None  # (n,) multiplies the rates of counts; None for 1
    weight: Array | None = None  # (n,) the noise variance is σ² / weight; None for 1

    @classmethod
    def of(cls, tasks: TaskSet) -> QueryRows:
        """Return the rows of tasks, for a posterior of the same tasks."""
        return cls(tasks.X, tasks.task_of_row, tasks.exposure, tasks.sample_weight)

    def at(self, chosen: NDArray[np.bool_]) -> QueryRows:
        """Return the chosen rows."""
        parts: list[Any] = [None if values is None else values[chosen] for values in self]
        return QueryRows(*parts)


@dataclass(frozen=True)
class Posterior(Record):
    """The posterior of T adapted tasks.  Their support rows are no longer needed.

    ``squares`` and ``covariances`` are in the scaling of the prior.  What was not computed, or does
    not exist for a prior, is None.
    """

    weights: Array  # (T, d) posterior means in the user's units; an intercept is last
    n_rows: NDArray[np.int64]  # (T,) numbers of support rows, counted with their frequencies
    #: (T, d, d) in units of `Prior.variances`; `FactorPrior`: (T, q, q) of the scores; classes and
    #: counts: (T, K, d, d) under each component
    covariances: Array | None
    #: (T,) sums of squared residuals of the support rows, with the covariances of numeric targets
    squares: Array | None
    shared_inputs: Array | None  # (T, k) encoded side information, if there are shared effects
    #: `SerialNoise.rows` of the support rows, if their noise is correlated in time.
    support: Array | None
    #: For classes and counts, responsibilities (T, K), and posterior means under each component (T,
    #: K, d) in the user's units.  Means of other targets only depend on ``weights``.
    shares: Array | None = None
    means: Array | None = None

    def __len__(self) -> int:
        return len(self.weights)


@dataclass(frozen=True, kw_only=True, repr=False)
class Prior(Record, ABC):
    """A learned prior ``s -> (τ(s), b(s))`` of the weights of a task with side information s.

    A prior is immutable: further learning returns a new one.
    """

    scaling: Scaling  # scaling of columns and targets; τ, b and calibration refer to scaled data
    response: Response = field(default_factory=Gaussian)  # the distribution of the targets
    #: Scores of held-out tasks from which intervals are computed.
    calibration: Calibration | None = None
    #: Added to predictions of numeric targets, in the user's units: for example, to get medians.
    offset: float = 0.0
    #: Quantile to predict, by adding a calibrated multiple of the standard deviation to the mean;
    #: None to predict the mean.
    quantile: float | None = None
    feature_range: Array | None = None  # (2, n_features) rounded training range; None if unknown
    has_exposure: bool = False  # whether the training tasks had exposures
    shared: SharedEffects | None = None  # the prior is for the tasks without these effects

    #: Maximum number of floats in the (d, d) matrices of a block.
    block_floats: ClassVar[int] = 1 << 17

    @cached_property
    def _far_limits(self) -> tuple[Array, Array] | None:
        """Lower and upper limits of features: the training range, extended on both sides by its
        width; None if it is unknown.
        """
        if self.feature_range is None:
            return None
        low, high = self.feature_range
        # A column that was constant in training, such as an item without ratings, has no slope to
        # extrapolate.
        margin = np.where(high > low, high - low, np.inf)
        if self.shared is not None:  # codes of categories
            margin[self.shared.coded_columns] = np.inf
        return low - margin, high + margin

    def warn_far_rows(
        self, X: Matrix, names: Sequence[str] | NDArray[np.object_] | None = None
    ) -> None:
        """Warn if a feature is outside the training range by more than the width of that range."""
        if self._far_limits is None or not X.shape[0]:
            return
        low, high = self._far_limits
        if (
            isinstance(X, np.ndarray)
            and not np.count_nonzero(low > X)
            and not np.count_nonzero(high < X)
        ):
            # Return early in the usual case, which takes about two microseconds for one row.
            return
        smallest, largest = column_range(X)
        is_low, is_high = smallest < low, largest > high
        far = np.flatnonzero(is_low | is_high)
        if not len(far):
            return
        j = int(far[0])
        name = j if names is None else repr(str(names[j]))
        value = smallest[j] if is_low[j] else largest[j]
        assert self.feature_range is not None
        first, last = self.feature_range[:, j]
        others = f" In total, {len(far)} columns are far outside." if len(far) > 1 else ""
        warn(
            f"X: column {name} has the value {value:.6g}, more than one training range outside of "
            f"the training range (about {first:.6g} to {last:.6g}).{others} The prediction "
            "extrapolates linearly: check the unit of the column, or clip it."
        )

    @property
    def n_weights(self) -> int:
        """Number d of weights of a task, including the intercept if there is one."""
        return len(self.scaling.columns)

    @property
    def fit_intercept(self) -> bool:
        """Whether the last weight is an intercept."""
        return self.scaling.fit_intercept

    @property
    def covariance_shape(self) -> tuple[int, int]:
        """Shape of the covariance of one task in `Posterior`."""
        return self.n_weights, self.n_weights

    @property
    def has_intervals(self) -> bool:
        """Whether prediction intervals can be computed; those of numeric targets need a
        calibration.
        """
        return self.response.has_intervals and (
            not self.response.is_gaussian or self.calibration is not None
        )

    @property
    def loss(self) -> Loss:
        """The loss of a task, which determines the allowed targets."""
        return self.response if isinstance(self.response, Likelihood) else Squared()

    @property
    def mixture(self) -> Mixture | None:
        """The Gaussian mixture model of the tasks; None for other priors."""
        return None

    @property
    def side(self) -> SideFeatures | None:
        """Features v(s) of the side information; None if the prior does not use them."""
        return None

    @property
    def reads_side_info(self) -> bool:
        """Whether the prior reads side information, which may have no effect."""
        return self.side is not None

    def statistics(self, tasks: TaskSet) -> Any:
        """Return what `_solve` needs to know about residual tasks."""
        return tasks

    @abstractmethod
    def _solve(self, statistics: Any, covariances: bool) -> tuple[Array, ...]:
        """Return the weights (T, d) of residual tasks in the scaling of the prior, covariances if
        requested, and for classes and counts the last two fields of `Posterior`.
        """

    @abstractmethod
    def _represent(self, tasks: TaskSet, change: Array) -> Array:
        """Return ``A τ(s) Aᵀ`` of residual tasks, (T, c, c), for A = ``change`` (c, d)."""

    @abstractmethod
    def _mean(self, tasks: TaskSet) -> Array:
        """Return b(s) of residual tasks, (T, d), in the scaling of the prior."""

    def certificate(self, support: TaskSet) -> tuple[float, int]:
        """Return a bound on the suboptimality of one task's objective, NaN if unknown, and the
        number of iterations.
        """
        # Posterior means of Gaussian targets have a closed form; those of classes and counts do not
        # minimise an objective.
        return 0.0 if self.response.is_gaussian else np.nan, 1

    def posterior(
        self, tasks: TaskSet, covariances: bool = True, statistics: Any = None
    ) -> Posterior:
        """Return the posterior of one block of tasks (see `adapt_tasks`); ``statistics`` are those
        of the residual tasks, if they were computed before.
        """
        residual = self.residual_tasks(tasks)
        statistics = self.statistics(residual) if statistics is None else statistics
        weights, covariance, *of_components = self._solve(statistics, covariances)
        weights = self.scaling.raw_weights(weights)
        noise = self.response.correlation
        return Posterior(
            weights,
            n_observed(tasks),
            covariance if covariances else None,
            self.squared_residuals(residual, weights) if covariances else None,
            None if self.shared is None else self.shared.encode(tasks),
            None if noise is None else noise.rows(residual),
            *of_components,
        )

    def squared_residuals(self, residual: TaskSet, weights: Array) -> Array | None:
        """Return the sums of squared residuals of residual tasks with Gaussian targets, (T,), in
        the scaling of the prior.
        """
        if not isinstance(self.response, Gaussian):
            return None
        fitted = products(residual.X, weights, residual.task_of_row, self.fit_intercept)
        errors = self.response.whiten(residual.y - fitted, residual)
        return segment_sums((errors / self.scaling.target) ** 2, residual.offsets)

    def representation(self, tasks: TaskSet, columns: Index | list[int] | None = None) -> Array:
        """Return the representation θ of each task for the weights ``columns``, by default all, (T,
        c, c), in the user's units.
        """
        every = np.arange(self.n_weights)
        at = every if columns is None else every[columns]
        taus = self._represent(self.residual_tasks(tasks), self.scaling.back(at))
        return np.asarray(self.size_factors(n_observed(tasks))[:, None, None] * taus)

    def mean(self, tasks: TaskSet) -> Array:
        """Return b(s) of each task, (T, d), in the scaling of the prior."""
        return self._mean(self.residual_tasks(tasks))

    def mean_at_centre(self) -> Array | None:
        """Return the prior mean (d,) at the mean of the side information; None if this is not
        defined.
        """
        return None

    def size_factors(self, sizes: NDArray[np.int64]) -> Array:
        """Return θ / τ(s) for tasks of the given sizes, where θ is the representation in the
        within-task objective.

        The within-task objective is a mean over rows, so ``w ~ N(b, σ² τ)`` corresponds to θ = n τ.
        """
        return np.maximum(sizes, 1).astype(float)

    def residual_tasks(self, tasks: TaskSet) -> TaskSet:
        """Remove the shared effects from tasks."""
        return tasks if self.shared is None else self.shared.residual_tasks(tasks, self.response)

    def variances(self, posterior: Posterior, X: Matrix, task: Index) -> Array:
        """Return the variance of ``<x, w>`` of each row; ``task`` (n,) are task positions.

        It is in units of the noise variance for numeric targets, and in units of 1 for classes and
        counts.
        """
        out, scratch = np.empty(X.shape[0]), np.ones(self.n_weights)
        rows = frozen(dense(X)), frozen(task, np.intp)
        row_variances(*rows, *self.scaling.change[:2], frozen(posterior.covariances), scratch, out)
        return out

    def linear_predictors(
        self, posterior: Posterior, query: QueryRows, *, variances: bool
    ) -> tuple[Array, Array, Array | float, Array | float]:
        """Return the linear predictors of rows (n,), and the variances of <x, w>, the noise, and
        the shared effects.

        Numeric targets have the variances of <x, w> and the noise in units of σ².  Those of <x, w>
        are zero unless ``variances`` is set.
        """
        X, task, _, weight = query
        of_shared: Array | float = 0.0
        if self.shared is not None:
            of_shared, X = self.shared.error_variances(X), self.shared.own_columns(X)
        centre = products(X, posterior.weights, task, self.fit_intercept)
        if self.shared is not None:
            assert posterior.shared_inputs is not None
            centre += self.shared.predict(query.X, posterior.shared_inputs[task])
        own = np.zeros(len(centre))
        if variances:
            own = np.maximum(self.variances(posterior, X, task), 0.0)
        return centre, own, 1.0 if weight is None else 1.0 / weight, of_shared

    def query_errors(self, support: TaskSet, query: TaskSet, n_jobs: int | None = None) -> Errors:
        """Return the errors of query rows after adapting to the support rows, for calibration."""

        def work(start: int, stop: int) -> Sequence[NDArray[Any]]:
            posterior = self.posterior(support[start:stop])
            some = query[start:stop]
            rows = QueryRows.of(some)
            centre, variances, noise, _ = self.linear_predictors(posterior, rows, variances=True)
            errors = (some.y - centre) / (self.scaling.target * np.sqrt(noise))
            assert posterior.squares is not None
            return errors, variances / noise, posterior.squares, posterior.n_rows

        errors, variances, squares, n_rows = _joined(each_block(self, len(query), work, n_jobs))
        return Errors(errors, variances, query.task_of_row, squares, n_rows)


def n_observed(tasks: TaskSet) -> NDArray[np.int64]:
    """Return the number of rows of each task, (T,), counted with their frequencies."""
    if tasks.frequency_weight is None:
        return tasks.sizes
    return np.rint(tasks.n_observed).astype(np.int64)


def each_block(
    prior: Prior, n_tasks: int, work: Callable[[int, int], Any], n_jobs: int | None
) -> list[Any]:
    """Return the results of ``work(start, stop)`` for blocks of tasks; the blocks do not depend on
    the number of threads.
    """
    size = max(1, prior.block_floats // prior.n_weights**2)
    blocks = list(pairwise([*range(0, max(n_tasks, 1), size), n_tasks]))
    with single_threaded_blas():
        return in_threads(work, blocks, effective_n_jobs(n_jobs))


def _joined(blocks: Sequence[Sequence[Any]]) -> list[Any]:
    """Concatenate the arrays of blocks of tasks, except those that are None."""
    columns = zip(*blocks, strict=True)
    return [None if parts[0] is None else np.concatenate(parts) for parts in columns]


def adapt_tasks(
    prior: Prior,
    tasks: TaskSet,
    *,
    covariances: bool = True,
    n_jobs: int | None = None,
) -> Posterior:
    """Adapt to any number of tasks; the result for a task depends neither on the other tasks nor on
    ``n_jobs``.
    """

    def work(start: int, stop: int) -> Posterior:
        return prior.posterior(tasks[start:stop], covariances)

    blocks = each_block(prior, len(tasks), work, n_jobs)
    if len(blocks) == 1:
        return blocks[0]
    return Posterior(*_joined([[*each.__getstate__().values()] for each in blocks]))


def predict_blocks(
    prior: Prior,
    support: TaskSet,
    query: TaskSet,
    coverage: float | None = None,
    n_jobs: int | None = None,
) -> Predicted:
    """Predict the query rows after adapting to the support rows; both have the same tasks in the
    same order.
    """
    covariances = needs_covariances(prior, coverage)
    multiples: Array | None = None
    is_calibrated = True
    if covariances and prior.response.is_gaussian:
        multiples, is_calibrated = multiples_of(prior, n_observed(support), coverage)

    def work(start: int, stop: int) -> Predicted:
        posterior = prior.posterior(support[start:stop], covariances)
        rows = QueryRows.of(query[start:stop])
        of_block = None if multiples is None else multiples[start:stop]
        return predict(prior, posterior, rows, coverage, of_block)

    found = Predicted(*_joined(each_block(prior, len(query), work, n_jobs)))
    if not is_calibrated:
        _warn_uncalibrated(coverage)
    return found


def needs_covariances(prior: Prior, coverage: float | None) -> bool:
    """Return whether predictions need posterior covariances, as those of non-Gaussian targets
    always do.
    """
    if not prior.response.is_gaussian:
        return True
    return prior.calibration is not None and (prior.quantile is not None or coverage is not None)


def predict(
    prior: Prior,
    posterior: Posterior,
    query: QueryRows,
    coverage: float | None = None,
    multiples: Array | None = None,
) -> Predicted:
    """Predict rows given the posterior of their tasks.

    Intervals are NaN without ``coverage``, without covariances, for classes, and for Gaussian
    targets without a calibration. ``multiples`` is the result of `multiples_of`, if it was computed
    before.
    """
    if isinstance(prior.response, Likelihood):
        assert prior.mixture is not None
        predictors, response = predictors_of(prior, posterior, query), prior.response
        prediction, unknown = predictors.average(response.mean), np.full(len(query.task), np.nan)
        if coverage is None or not response.has_intervals:
            return Predicted(prediction, unknown, unknown, unknown)
        bounds = response.interval(predictors, prior.mixture.noise, coverage)
        variance = response.variance(predictors, prior.mixture.noise)
        return Predicted(prediction, *bounds, np.sqrt(variance))
    uncertain = posterior.covariances is not None and needs_covariances(prior, coverage)
    centre, variances, noise, of_shared = prior.linear_predictors(
        posterior, query, variances=uncertain
    )
    calibration, unknown = prior.calibration, np.nan * centre
    if calibration is None or not uncertain:
        return Predicted(centre + prior.offset, unknown, unknown, unknown)
    assert posterior.squares is not None
    own = noise_variances(
        posterior.squares, posterior.n_rows, calibration.noise, calibration.noise_rows
    )
    task = query.task
    std = np.sqrt(prior.scaling.target**2 * own[task] * (noise + variances) + of_shared)
    if multiples is None:
        multiples, is_calibrated = multiples_of(prior, posterior.n_rows, coverage)
        if not is_calibrated:
            _warn_uncalibrated(coverage)
    lower, upper, deviation, quantile = multiples[task].T
    prediction = centre + prior.offset + quantile * std
    if coverage is None:
        return Predicted(prediction, unknown, unknown, unknown)
    return Predicted(prediction, centre + lower * std, centre + upper * std, deviation * std)


def predictors_of(prior: Prior, posterior: Posterior, query: QueryRows) -> Predictors:
    """Return the posterior distribution of the linear predictors of rows of classes or counts."""
    shares, means, covariances = posterior.shares, posterior.means, posterior.covariances
    assert shares is not None
    assert means is not None
    assert covariances is not None
    each = []
    for k in range(shares.shape[1]):
        part = replace(posterior, weights=means[:, k], covariances=covariances[:, k])
        centre, own, _, of_shared = prior.linear_predictors(part, query, variances=True)
        each.append((centre, own + of_shared))
    centres, variances = (np.stack(values, axis=1) for values in zip(*each, strict=True))
    if query.exposure is not None:
        centres += np.log(query.exposure)[:, None]
    return Predictors(shares[query.task], centres, variances)


def multiples_of(
    prior: Prior, sizes: NDArray[np.int64], coverage: float | None
) -> tuple[Array, bool]:
    """Return lower bound, upper bound, std and quantile of each task, (T, 4), in implied standard
    deviations, and whether enough tasks were held out to calibrate the bounds.
    """
    calibration, quantile = prior.calibration, prior.quantile
    assert calibration is not None
    counts, which = sizes, np.zeros(1, np.intp)  # without sorting, for one task
    if len(sizes) > 1:
        counts, which = np.unique(sizes, return_inverse=True)
    rows = [calibration.multiples(n, coverage, quantile) for n in counts.tolist()]
    table = np.array([row for row, _ in rows]).reshape(-1, 4)
    return table[which.ravel()], all(is_calibrated for _, is_calibrated in rows)


def _warn_uncalibrated(coverage: float | None) -> None:
    warn(
        f"coverage: too few tasks were held out to calibrate {100.0 * (coverage or 0.0):g} % "
        "intervals. Bounds are those of the model, or beyond the largest held-out errors where "
        "this is wider. Fit more tasks, or use a smaller coverage."
    )


def products(X: Matrix, weights: Array, task: Index, fit_intercept: bool) -> Array:
    """Return ``<x, w>`` of dense or sparse rows, plus the intercept, for the weights (T, d) of
    their tasks.
    """
    n = X.shape[1]
    if len(weights) == 1:
        found = np.asarray(X @ weights[0, :n])
        return found + weights[0, n] if fit_intercept else found
    if sparse.issparse(X):
        found = sparse_products(X, weights, task)
    else:
        found = np.einsum("ij,ij->i", X, weights.take(task, axis=0)[:, :n])
    return found + weights[task, n] if fit_intercept else found


@njit(**ROWS)
def row_variances(
    X: Array, task: Index, shift: Array, scale: Array, covariances: Array, x: Array, out: Array
) -> None:
    """Write ``xᵀ C x`` of the rows ``(X − shift) scale`` to ``out``.  ``x`` (d,) is scratch; with
    an intercept it ends in 1.
    """
    keep_separate()
    n, given = X.shape
    for i in range(n):
        for j in range(given):
            x[j] = (X[i, j] - shift[j]) * scale[j]
        t, total = task[i], 0.0
        for a in range(len(x)):
            value = 0.0
            for b in range(a):
                value += covariances[t, a, b] * x[b]
            total += (2.0 * value + covariances[t, a, a] * x[a]) * x[a]
        out[i] = total


def calibrate(
    held_out: Iterable[tuple[TaskSet, Prior]],
    seed: list[int],
    sampling: SupportSampling,
    n_jobs: int | None = None,
    noise: float | None = None,
) -> Calibration | None:
    """Collect scores for pairs of tasks and a prior that was not fitted to them; return None if no
    task has rows.

    Each task is adapted to several numbers of support rows, drawn by ``sampling``, and its other
    rows are predicted.  All priors have the same scaling.  ``noise`` is the noise variance of the
    final prior, if the priors are `MixturePrior` with noise variances of their own.  Priors of
    cross-validation folds were fitted to fewer tasks than the final prior, so their errors are
    larger, and the intervals are slightly too wide.
    """
    pairs = [(tasks.single_rows(), prior) for tasks, prior in held_out if len(tasks)]
    sizes = np.concatenate([tasks.sizes for tasks, _ in pairs])
    # Random support rows are drawn up to four times, with at most 400 draws in total.
    n_repeats = 1 if sampling.in_order else max(1, min(4, 400 // len(sizes)))

    def errors(n_support: int) -> Errors:
        parts = []
        for i, (tasks, prior) in enumerate(pairs):
            episodes = sampling.draw(tasks, n_support, [*seed, i], n_repeats)
            found = prior.query_errors(episodes.support, episodes.query, n_jobs)
            if noise is not None:
                # With few rows per task, noise variances of folds can differ by orders of
                # magnitude; their sums with W hardly differ.
                assert prior.mixture is not None
                total = prior.mixture.noise / noise * (1.0 + found.variances)
                found = found._replace(variances=total - 1.0)
            parts.append(found)
        return Errors.concat(parts)

    levels = [(n, errors(n)) for n in support_sizes(sizes, sampling)]
    return calibration_of(levels, n_repeats) if len(levels[-1][1].errors) else None


def support_sizes(sizes: NDArray[np.int64], sampling: SupportSampling) -> list[int]:
    """Return the numbers of support rows to calibrate at: 0, 1, 2, 4, .., and those of
    ``sampling``.
    """
    low, high = sampling.rows(sizes)
    size = float(np.median(sizes))
    last = round(max(high, size - LEAST_QUERY))
    doubling = [2**i for i in range(max(last, 1).bit_length()) if 2**i <= last / np.sqrt(2.0)]
    # At least one row must remain to be predicted.
    most = max(int(sizes.max()) - 1, 0)
    return sorted({min(number, most) for number in (0, *doubling, round(low), round(high), last)})
