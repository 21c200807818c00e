"""The data that a prior is learned from: tasks, their scaling, statistics and folds, and errors on held-out tasks."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import IntEnum

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from ..feature_maps.side_features import SideFeatures
from ..gaussian.mixture import Mixture, Want
from ..gaussian.responses import LARGEST_RATE, Response
from ..gaussian.rows import Tasks, statistics_of
from ..gaussian.side import Group
from ..losses import Loss
from ..priors.shared_effects import SharedEffects
from ..tasks.episodes import Episodes, SupportSampling
from ..tasks.rows import Array, Rows, Scaling, clipped, overall_mean, predictions, support_means, task_means
from ..tasks.task_set import TaskSet

Index = NDArray[np.intp]

#: From this number of tasks on, one fold is enough.
MANY_TASKS = 500
#: With many columns, each occurs in few tasks, so up to this number of tasks there are this many folds.
MANY_WIDE_TASKS, WIDE_FOLDS = 2000, 3
#: With many columns and more tasks, only `WIDE_FOLDS` folds are used.
FOLDED_TASKS = 200
#: Largest numbers of training and held-out tasks for selection.
SELECTION_TRAIN, SELECTION_HELD_OUT = 2000, 1000
#: Largest number of operations of a step of EM on second moments of all columns.
LARGEST_WORK = 4e9
#: Up to this number of columns second moments are always used; the work is then due to many tasks.
FEW_COLUMNS = 64
#: With more columns low rank is a candidate; with more than `WIDE` an unrestricted covariance is not.
LOW_RANK, WIDE = 25, 41
#: Up to this number of columns, rows that are mostly non-zero are stored dense.
DENSE_COLUMNS = 500
#: Rows with a smaller fraction of non-zero entries are stored sparse and not centred.
SPARSE = 0.25
#: With fewer tasks, the folds are repeated with other partitions.
ENOUGH_TASKS = 250
#: Number of standard errors above which a paired difference is significant.
SIGNIFICANT = 2.0


class Draw(IntEnum):
    """Purposes of random draws; a draw depends on the user's seed, its purpose and a number."""

    FOLDS = 0
    COMPONENT_STARTS = 1
    STRUCTURE_STARTS = 2
    HELD_OUT_ROWS = 3
    BIAS_ROWS = 4
    ALL_BIAS_ROWS = 5
    INTERVAL_ROWS = 6
    SHARED_REGRESSOR = 7
    SUMMARY_TASKS = 8
    SIDE_TASKS = 9


@dataclass(frozen=True)
class Settings:
    """Settings of the user; see `EmpiricalBayesLearner`."""

    loss: Loss
    fit_intercept: bool
    clip: tuple[float, float] | None
    seed: int
    n_jobs: int | None
    arrival: SupportSampling = field(default_factory=SupportSampling)
    device: str | None = None
    varying: tuple[int, ...] | None = None  # positions of coefficients, including that of the intercept
    curved: bool = True  # whether effects of all tasks may be curved
    levels: Mapping[int, int] = field(default_factory=dict)  # numbers of categories, by column
    n_folds: int = 5
    n_repeats: int = 4  # largest number of partitions into folds


@dataclass(frozen=True, eq=False)
class Fold:
    """Positions of the training tasks and of the held-out tasks."""

    number: int
    train: Index
    held_out: Index


@dataclass(frozen=True)
class TrainingData:
    """All tasks in memory."""

    tasks: TaskSet
    side: SideFeatures | None
    n_validation: int  # the last ones are held out; 0 for cross-validation
    settings: Settings
    known_scaling: Scaling | None = None  # that of an earlier model that is continued

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def has_many_columns(self) -> bool:
        return has_many_columns(self.tasks, self.tasks.n_features + self.settings.fit_intercept)

    @property
    def is_wide(self) -> bool:
        """Return whether an unrestricted covariance would have too many parameters."""
        return self.tasks.n_features + self.settings.fit_intercept > WIDE

    @property
    def may_have_low_rank(self) -> bool:
        """Return whether low rank is a candidate."""
        n_columns = self.tasks.n_features + self.settings.fit_intercept
        return n_columns > LOW_RANK and self.response is None

    @cached_property
    def scaling(self) -> Scaling:
        if self.known_scaling is not None:
            return self.known_scaling
        if self.has_many_columns and _is_mostly_zero(self.tasks):
            return Scaling.of_entries(self.tasks, self.settings.fit_intercept)
        scaling = Scaling.of(self.tasks, self.settings.fit_intercept, centre=True)
        if self.response is not None:
            scaling = scaling.of_response(self.response.name)
        # In a time series, intercept and slopes are less correlated at the first row than at the mean.
        return scaling.at_first_rows(self.tasks) if self.settings.arrival.in_order else scaling

    @property
    def response(self) -> Response | None:
        """The distribution of the targets, which the loss names; None for Gaussian ones."""
        return self.settings.loss if isinstance(self.settings.loss, Response) else None

    @cached_property
    def largest_rate(self) -> float | None:
        """The largest count per unit of exposure; None for other targets."""
        if self.response is None or not self.response.has_intervals or not len(self.tasks.y):
            return None
        exposure = 1.0 if self.tasks.exposure is None else self.tasks.exposure
        return float(np.max(self.tasks.y / exposure))

    @cached_property
    def statistics(self) -> Tasks:
        return self.statistics_of(self.tasks)

    def statistics_of(self, tasks: TaskSet) -> Tasks:
        """Return statistics of tasks in the scaling of the training tasks, with their side features."""
        side = None if self.side is None else self.side(tasks)
        statistics = statistics_of(tasks, self.scaling, side)
        return replace(statistics, n_threads=joblib.effective_n_jobs(self.settings.n_jobs))

    @property
    def has_side(self) -> bool:
        """Return whether the model may use the side features; features of rows would fit their noise."""
        return self.side is not None and self.side.from_side_info

    @cached_property
    def groups(self) -> list[Group]:
        """Groups of side features that are relevant together."""
        if not self.has_side:
            return []
        assert self.side is not None
        return self.side.groups(self.side(self.tasks))

    def without(self, effects: SharedEffects) -> TrainingData:
        """Return the data without effects that all tasks share."""
        tasks = effects.residual_tasks(self.tasks, is_response=self.response is not None)
        side = self.side
        if side is not None and side.encoder.needs_rows:
            side = SideFeatures.fit(deepcopy(side.encoder), tasks)
        # Only the sum of all parts is clipped.
        return replace(self, tasks=tasks, side=side, settings=replace(self.settings, clip=None))

    def seed(self, purpose: Draw, number: int = 0) -> list[int]:
        return [self.settings.seed, purpose, number]

    @cached_property
    def folds(self) -> list[Fold]:
        """Several folds for few tasks and one for many; a single task is evaluated on its own rows."""
        T = len(self)
        if self.n_validation:
            first = T - self.n_validation
            return [Fold(0, np.arange(first), np.arange(first, T))]
        if T == 1:
            return [Fold(0, np.arange(1), np.arange(1))]
        return self._partition(0)

    @cached_property
    def repeated_folds(self) -> list[list[Fold]]:
        """Folds of other partitions of few tasks, where a single partition would decide by chance."""
        T = len(self)
        # Fits of other responses take too long to be repeated.
        if T == 1 or self.n_validation or self.is_wide or self.response is not None:
            return []
        return [self._partition(i) for i in range(1, min(self.settings.n_repeats, -(-ENOUGH_TASKS // T)))]

    def _partition(self, repeat: int) -> list[Fold]:
        T = len(self)
        n_folds = min(self.settings.n_folds, T)
        order = np.random.default_rng(self.seed(Draw.FOLDS, repeat)).permutation(T)
        fold = np.arange(T) % n_folds
        if T < MANY_TASKS or (self.has_many_columns and T < MANY_WIDE_TASKS):
            few_used = T >= MANY_TASKS or (self.is_wide and T >= FOLDED_TASKS)
            n_used = min(n_folds, WIDE_FOLDS) if few_used else n_folds
            first = repeat * n_folds
            return [
                Fold(first + i, np.sort(order[fold != i]), np.sort(order[fold == i])) for i in range(n_used)
            ]
        train, held_out = order[fold != 0][:SELECTION_TRAIN], order[fold == 0][:SELECTION_HELD_OUT]
        return [Fold(0, np.sort(train), np.sort(held_out))]

    def predict(self, query: TaskSet, weights: Array) -> Array:
        """Return predictions of the query rows by the scaled weights (T, d)."""
        rows = Rows(self.scaling.dense(query.X), query.y, query.offsets)
        return self.scaling.raw_predictions(predictions(rows, weights))

    def predict_mean(self, support: Tasks, model: Mixture, query: TaskSet) -> Array:
        """Return the means of the query rows, over the posterior of the coefficients given the support rows."""
        expected = support.posterior(model, Want(means=True, covariances=self.response is not None))
        f = self.predict(query, expected.mean)
        if self.response is None:
            return f
        exposure = query.exposure
        if exposure is not None and not self.response.has_intervals:
            f, exposure = f + np.log(exposure), None  # an offset of the linear predictor
        X, C = self.scaling.dense(query.X), expected.mixture_covariance()
        task = np.repeat(np.arange(len(query)), query.sizes)
        mean = self.response.mean(f, np.einsum("ij,ijk,ik->i", X, C[task], X))
        mean = mean if self.largest_rate is None else np.minimum(mean, LARGEST_RATE * self.largest_rate)
        rate = clipped(mean, self.settings.clip)
        return rate if exposure is None else exposure * rate

    def errors(self, episodes: Episodes, prediction: Array, n_tasks: int) -> Array:
        """Return the mean loss of the query rows of each task over its episodes; NaN for a task without query rows."""
        query = episodes.query
        if self.response is None:
            prediction = clipped(prediction, self.settings.clip)
        losses = self.settings.loss.error(prediction, query.y)
        rows = np.bincount(np.repeat(episodes.task, query.sizes), minlength=n_tasks)
        means = task_means(losses, query.offsets, query.frequency_weight)
        used = query.sizes > 0
        counts = np.bincount(episodes.task[used], minlength=n_tasks)
        totals = np.bincount(episodes.task[used], weights=means[used], minlength=n_tasks)
        with np.errstate(invalid="ignore"):
            errors = np.where(rows > 0, totals / np.maximum(counts, 1), np.nan)
        return np.where(np.isnan(errors) & (rows > 0), np.inf, errors)

    def task_mean_errors(self, episodes: Episodes, n_tasks: int) -> Array:
        """Return the errors of predicting the mean of the support rows of each task."""
        sets, is_response = (episodes.support, episodes.query), self.response is not None
        prediction = support_means(*sets, overall_mean(self.tasks), smooth=is_response)
        return self.errors(episodes, prediction, n_tasks)


def has_many_columns(tasks: TaskSet, d: int) -> bool:
    """Return whether several hundred steps of T d³ operations would take hours."""
    if d <= FEW_COLUMNS or len(tasks) * d**3 <= LARGEST_WORK:
        return False
    return d > DENSE_COLUMNS or _is_mostly_zero(tasks)


def known_mean(errors: Array) -> float:
    """Return the mean of the errors that are not NaN; 0 if there are none."""
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if len(known) else 0.0


def significant(gains: Array, n_errors: float = SIGNIFICANT) -> bool:
    """Return whether the mean of paired gains exceeds zero by ``n_errors`` standard errors.

    A task with an infinite error under one method only decides by itself.
    """
    gains = gains[~np.isnan(gains)]
    if len(gains) < 2:
        return False
    if np.isinf(gains).any():
        return not (gains == -np.inf).any()
    return bool(gains.mean() > n_errors * gains.std(ddof=1) / np.sqrt(len(gains)))


def _is_mostly_zero(tasks: TaskSet) -> bool:
    """Return whether rows are stored sparse; sparse input always is."""
    return tasks.is_sparse or bool(np.count_nonzero(tasks.X) <= SPARSE * tasks.X.size)
