"""The data that a prior is learned from, and the folds in which models compete.

A model is fitted to the training tasks of a fold, and predicts its held-out tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from .._utils.threads import single_threaded_blas
from ..gaussian.factors import FactorRows
from ..gaussian.mixture import Mixture
from ..gaussian.responses import Gaussian, Response, response_of
from ..gaussian.serial import SerialNoise
from ..gaussian.side import Group, SideFit, SideStructure, fit_side
from ..losses import Loss
from ..priors.base import Prior, QueryRows, needs_covariances, predict
from ..priors.mixture import MixturePrior
from ..priors.shared import SharedEffects
from ..priors.side_features import SideFeatures
from ..tasks.episodes import Episodes, SupportSampling
from ..tasks.rows import Array, Scaling, column_range, overall_mean, support_means, task_means
from ..tasks.task_set import TaskSet

if TYPE_CHECKING:
    from .structures import Structure

Index = NDArray[np.intp]
R = TypeVar("R")

#: With at least this number of tasks, a single split into training and held-out tasks replaces
#: cross-validation.
MANY_TASKS = 500
#: With many columns, a column may be non-zero in few tasks, so below this number of tasks, this
#: many folds replace the split.
MANY_WIDE_TASKS, WIDE_FOLDS = 2000, 3
#: Maximum numbers of training tasks and of held-out tasks with a single split.
MOST_TRAINED, MOST_HELD_OUT = 2000, 1000
#: Maximum number of operations of an EM step with second moments of all columns.
LARGEST_WORK = 4e9
#: With more than this number of coefficients, an unrestricted covariance is a candidate only if the
#: maximum number of factors is selected; with at most this number, second moments are always used.
WIDE = 41
#: Up to this number of columns, the low-rank plus diagonal prior is used only for rows that are
#: mostly zero.
DENSE_COLUMNS = 500
#: Dense rows with at most this fraction of non-zero entries count as mostly zero.  With many
#: columns, such rows are not centred.
SPARSE = 0.25


class Draw(IntEnum):
    """Purposes of random draws; a draw depends on the user's seed, its purpose and a number."""

    FOLDS = 0
    COMPONENT_STARTS = 1
    STRUCTURE_STARTS = 2
    HELD_OUT_ROWS = 3
    NORMAL_SAMPLES = 4
    INTERVAL_ROWS = 6


@dataclass(frozen=True)
class Settings:
    """Settings of a fit; most are arguments of `EmpiricalBayesLearner`."""

    loss: Loss
    fit_intercept: bool
    seed: int
    n_jobs: int | None
    arrival: SupportSampling = field(default_factory=SupportSampling)
    device: str | None = None
    varying: tuple[int, ...] | None = (
        None  # positions of the varying coefficients; the intercept is last
    )
    proposes: bool = (
        True  # whether curves, products and effects of values may be proposed as shared effects
    )
    levels: Mapping[int, int] = field(
        default_factory=dict
    )  # number of categories of each coded column
    n_folds: int = 5
    covariance: str | None = None  # "full" or "diagonal", if set by the user
    reml: bool = True
    time: int | None = None  # position of the column with the times of the rows
    serial: SerialNoise | None = None  # noise that is correlated in time, if it was accepted


class Split(NamedTuple):
    """Positions of the training tasks and of the held-out tasks of a fold."""

    number: int
    train: Index
    held_out: Index


@dataclass(frozen=True)
class TrainingData:
    """The training and validation tasks in memory, and the settings of the user."""

    tasks: TaskSet
    side: SideFeatures | None
    n_validation: int  # number of tasks at the end that are held out; 0 if held-out tasks are drawn
    settings: Settings

    def __len__(self) -> int:
        return len(self.tasks)

    @cached_property
    def has_many_columns(self) -> bool:
        """Whether a low-rank plus diagonal prior is learned."""
        return has_many_columns(self.tasks, self.tasks.n_features + self.settings.fit_intercept)

    @property
    def is_wide(self) -> bool:
        """Whether there are more than `WIDE` coefficients, usually too many for an unrestricted
        covariance.
        """
        return self.tasks.n_features + self.settings.fit_intercept > WIDE

    @cached_property
    def scaling(self) -> Scaling:
        if self.has_many_columns and _is_mostly_zero(self.tasks):
            return Scaling.of_entries(self.tasks, self.settings.fit_intercept)
        scaling = self.response.scaling(
            Scaling.of(self.tasks, self.settings.fit_intercept, centre=True)
        )
        varying = self.settings.varying
        has_slopes_only = varying is not None and self.tasks.n_features not in varying
        is_diagonal = self.settings.covariance == "diagonal"
        if has_slopes_only or (is_diagonal and not self.response.is_gaussian):
            # Whether random effects are uncorrelated depends on where the columns are zero, which
            # is therefore the user's zero.
            is_constant = np.equal(*column_range(self.tasks.X))
            return replace(
                scaling,
                shift=scaling.shift
                * np.append(is_constant, scaling.fit_intercept)[: len(scaling.shift)],
            )
        if is_diagonal:
            return scaling
        # In a time series, intercept and slopes are usually less correlated if columns are zero at
        # the first row.
        return scaling.at_first_rows(self.tasks) if self.settings.arrival.in_order else scaling

    @property
    def centre(self) -> tuple[float, ...]:
        """Means of the columns in units of their scales, if the user's covariance is diagonal for
        columns that are not centred.
        """
        scaling, is_diagonal = self.scaling, self.settings.covariance == "diagonal"
        return (
            tuple((scaling.shift / scaling.columns).tolist())
            if is_diagonal and scaling.shift.any()
            else ()
        )

    @property
    def response(self) -> Response:
        """The distribution of the targets, with noise correlated in time if this was accepted."""
        if self.settings.serial is not None:
            return Gaussian(self.settings.serial)
        return response_of(self.settings.loss)

    @cached_property
    def statistics(self) -> Any:
        return self.statistics_of(self.tasks)

    def statistics_of(self, tasks: TaskSet) -> Any:
        """Return statistics of tasks in the scaling of the training tasks, with their side
        features: `Tasks`, or `FactorRows` with many columns.
        """
        side = None if self.side is None else self.side(tasks)
        if self.has_many_columns:
            return FactorRows.of(tasks, self.scaling, side)
        statistics = self.response.statistics(tasks, self.scaling, side)
        return replace(statistics, n_threads=joblib.effective_n_jobs(self.settings.n_jobs))

    @cached_property
    def groups(self) -> list[Group]:
        """Groups of side features; the features of a group are selected together."""
        return [] if self.side is None else self.side.groups(self.side(self.tasks))

    def without(self, effects: SharedEffects) -> TrainingData:
        """Return the data after removing shared effects."""
        return replace(self, tasks=effects.residual_tasks(self.tasks, self.response))

    def seed(self, purpose: Draw, number: int = 0) -> list[int]:
        return [self.settings.seed, purpose, number]

    def in_parallel(self, work: Callable[..., R], *arguments: Iterable[Any]) -> list[R]:
        """Map ``work`` over the arguments in ``n_jobs`` threads."""

        def call(*each: Any) -> R:
            with single_threaded_blas():  # a limit for OpenMP applies to one thread only
                return work(*each)

        pool = joblib.Parallel(n_jobs=self.settings.n_jobs, require="sharedmem")
        return list(pool(joblib.delayed(call)(*each) for each in zip(*arguments, strict=True)))

    @cached_property
    def splits(self) -> list[Split]:
        """One split if there are validation tasks or many tasks, otherwise several; a single task
        is both trained on and held out.
        """
        T = len(self)
        if self.n_validation or T == 1:
            every = np.arange(T)
            first = T - self.n_validation
            return [Split(0, every[:first], every[first % T :])]
        order = np.random.default_rng(self.seed(Draw.FOLDS)).permutation(T)
        n_folds = n_used = min(self.settings.n_folds, T)
        fold, train, held_out = np.arange(T) % n_folds, T, T
        if T >= MANY_TASKS and self.has_many_columns and T < MANY_WIDE_TASKS:
            n_used = min(n_folds, WIDE_FOLDS)
        elif T >= MANY_TASKS:
            n_used, train, held_out = 1, MOST_TRAINED, MOST_HELD_OUT
        pairs = ((order[fold != i][:train], order[fold == i][:held_out]) for i in range(n_used))
        return [Split(i, *map(np.sort, pair)) for i, pair in enumerate(pairs)]

    def prior(self, model: Mixture) -> MixturePrior:
        """Return the prior with a fitted model."""
        return MixturePrior(
            scaling=self.scaling, response=self.response, model=model, side=self.side
        )

    def predict(
        self, support: TaskSet, prior: Prior, query: TaskSet, statistics: Any = None
    ) -> Array:
        """Return the posterior predictive means of the query rows, given the support rows, whose
        ``statistics`` may be known.
        """
        posterior = prior.posterior(support, needs_covariances(prior, None), statistics)
        return predict(prior, posterior, QueryRows.of(query)).prediction


def has_many_columns(tasks: TaskSet, d: int) -> bool:
    """Return whether EM with second moments (T d³ operations) is too slow, and rows are mostly zero
    or very wide.
    """
    if d <= WIDE or len(tasks) * d**3 <= LARGEST_WORK:
        return False
    return d > DENSE_COLUMNS or _is_mostly_zero(tasks)


def _is_mostly_zero(tasks: TaskSet) -> bool:
    """Return whether rows are stored as a sparse matrix, or have few non-zero entries."""
    return tasks.is_sparse or bool(np.count_nonzero(tasks.X) <= SPARSE * tasks.X.size)


@dataclass(frozen=True)
class Training:
    """The tasks that a model is fitted to."""

    tasks: Any  # statistics of the scaled tasks, without the effects of side information
    seed: list[int]  # for random starts
    groups: Sequence[Group] = ()  # groups of side features
    has_intercept: bool = False  # whether the last column is constant
    side_fit: SideFit | None = None  # the effects of side information
    #: Fits of structures, which depend only on the structure, so each is computed once.
    fits: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: TrainingData, tasks: Any, number: int = 0) -> Training:
        """Return training tasks; ``number`` is that of the fold."""
        seed = data.seed(Draw.STRUCTURE_STARTS, number)
        return cls(tasks, seed, data.groups, data.settings.fit_intercept)

    def with_side(self, side: SideStructure) -> Training:
        """Fit the effects of side information, and remove them."""
        fit = fit_side(self.tasks, side, self.groups)
        rest = self.tasks.shifted(self.tasks.side @ fit.Gamma.T)
        return replace(self, tasks=rest, side_fit=fit, fits={})

    def fit(self, structure: Structure, near: Mapping[Structure, Any] | None = None) -> Any:
        """Return the fit of a structure, after fits of those that it needs.

        With ``near``, fits to nearly the same tasks, the initial values are from there.
        """
        if structure not in self.fits:
            after = [self.fit(each, near) for each in structure.after]
            if near is not None:
                start = near.get(structure)
            else:
                start = None if structure.start is None else self.fit(structure.start)
            self.fits[structure] = structure.fit(self, *after, start=start)
        return self.fits[structure]

    @property
    def side(self) -> Array | None:
        """Γ (d, q)."""
        return None if self.side_fit is None else self.side_fit.Gamma


@dataclass(frozen=True)
class Fold:
    """The training tasks and the held-out tasks of a fold.

    Held-out tasks are predicted given some of their rows, and without rows.
    """

    data: TrainingData
    split: Split
    training: Training
    held_out: Any  # statistics of the held-out tasks
    episodes: tuple[Episodes, Episodes]
    support: tuple[Any, Any]  # statistics of the support rows of the episodes

    @classmethod
    def of(cls, data: TrainingData, split: Split) -> Fold:
        train, held_out = (data.statistics.take(each).roughly() for each in split[1:])
        tasks, seed = data.tasks[split.held_out], data.seed(Draw.HELD_OUT_ROWS, split.number)
        without = Episodes(tasks.without_rows(), tasks, np.arange(len(tasks)))
        episodes = data.settings.arrival.episodes(tasks, seed), without
        given, empty = (data.statistics_of(each.support) for each in episodes)
        training = Training.of(data, train, split.number)
        return cls(data, split, training, held_out, episodes, (given, empty))

    def score(self, log_evidence: Array, prior: Prior) -> tuple[Array, Array, Array]:
        """Return the arrays of a `Score` on the held-out tasks, given their log evidence."""
        given, without = (
            self.errors(each, self.data.predict(each.support, prior, each.query, statistics))
            for each, statistics in zip(self.episodes, self.support, strict=True)
        )
        # Densities are those of targets in the user's units, to compare models after subtracting
        # different parts.
        unit = np.log(self.data.scaling.target) * self.data.tasks.sizes[self.split.held_out]
        return log_evidence - unit, given, without

    def task_mean_errors(self) -> Array:
        """Return the errors of the held-out tasks when the mean of their support rows is predicted,
        or the overall mean without support rows.
        """
        given, data = self.episodes[0], self.data
        smooth, overall = not data.response.is_gaussian, overall_mean(data.tasks)
        prediction = support_means(given.support, given.query, overall, smooth=smooth)
        return self.errors(given, prediction)

    def errors(self, episodes: Episodes, prediction: Array) -> Array:
        """Return the mean error of the query rows of each task over its episodes; NaN for a task
        without query rows.
        """
        query, n_tasks = episodes.query, len(self.held_out)
        losses = self.data.settings.loss.error(prediction, query.y)
        means = task_means(losses, query.offsets, query.frequency_weight)
        used = query.sizes > 0
        counts = np.bincount(episodes.task[used], minlength=n_tasks)
        totals = np.bincount(episodes.task[used], weights=means[used], minlength=n_tasks)
        # A prediction that overflows has an infinite error.
        totals = np.where(np.isnan(totals), np.inf, totals)
        return np.divide(totals, counts, out=np.full(n_tasks, np.nan), where=counts > 0)


def folds_of(data: TrainingData) -> list[Fold]:
    """Return the folds of the data."""
    return data.in_parallel(lambda split: Fold.of(data, split), data.splits)
