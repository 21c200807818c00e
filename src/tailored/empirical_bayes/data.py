"""All that is learned from: the tasks, their units, statistics and folds, and errors on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from ..feature_maps import SideFeatures
from ..gaussian.rows import Tasks, statistics_of
from ..losses import Loss
from ..tasks import Rows, Scaling, TaskSet
from ..tasks.episodes import Episodes, SupportSampling
from ..tasks.rows import clipped, predictions, task_means

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: From this number of tasks on, one held-out part says enough and the others are not rotated through.
MANY_TASKS = 500
#: Where columns are many each is seen by few of the tasks and one part says less: so many take turns, up to more tasks.
MANY_WIDE_TASKS, WIDE_TURNS = 2000, 3
#: Tasks used to choose a form: to train on and to hold out, at most.
SELECTION_TRAIN, SELECTION_HELD_OUT = 2000, 1000

#: Operations of a step of EM on second moments of all columns, at most.
LARGEST_WORK = 4e9
#: Up to so many columns it is many tasks that take long, and the work grows with them as it should.
FEW_COLUMNS = 64
#: Rows with fewer entries than this fraction are stored by them, and not centred.
SPARSE = 0.25

# What a seed is drawn for; each draw is a function of the user's seed, its purpose and a number.
(
    FOLDS,
    COMPONENT_STARTS,
    FORM_STARTS,
    HELD_OUT_ROWS,
    BIAS_ROWS,
    ALL_BIAS_ROWS,
    INTERVAL_ROWS,
    COMMON_PARTS,
    ACCOUNT_TASKS,
) = range(9)


@dataclass(frozen=True)
class Settings:
    """What the user decides; `EmpiricalBayesLearner` says what the names mean.

    ``varying`` are positions of weights, that of the intercept among them.
    """

    loss: Loss
    fit_intercept: bool
    calibrate: bool
    clip: tuple[float, float] | None
    validation_fraction: float
    seed: int
    n_jobs: int | None
    arrival: SupportSampling = field(default_factory=SupportSampling)
    device: str | None = None
    varying: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Fold:
    """Positions of the tasks to train on and of those to predict."""

    number: int
    train: Index
    held_out: Index


@dataclass(frozen=True)
class TrainingData:
    """All tasks at hand.

    Parameters
    ----------
    tasks : TaskSet
    side : SideFeatures or None
        Features of the tasks' descriptions.
    n_validation : int
        The last so many tasks are the held-out ones; 0 leaves the choice to the folds.
    settings : Settings
    known_units : Scaling, optional
        Of what was learned before and goes on; by default those of the tasks.
    """

    tasks: TaskSet
    side: SideFeatures | None
    n_validation: int
    settings: Settings
    known_units: Scaling | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def has_many_columns(self) -> bool:
        """Whether steps of T d³ operations, of which there are several hundred, would take hours."""
        d = self.tasks.n_features + self.settings.fit_intercept
        return d > FEW_COLUMNS and len(self) * d**3 > LARGEST_WORK

    @cached_property
    def units(self) -> Scaling:
        if self.known_units is not None:
            return self.known_units
        if self.has_many_columns and _is_mostly_zero(self.tasks):
            return Scaling.of_entries(self.tasks, self.settings.fit_intercept)
        units = Scaling.of(self.tasks, self.settings.fit_intercept, centre=True)
        # What comes in time begins somewhere: level and slopes are rather independent there than half way.
        return units.at_first_rows(self.tasks) if self.settings.arrival.in_order else units

    @cached_property
    def statistics(self) -> Tasks:
        return self.statistics_of(self.tasks)

    def statistics_of(self, tasks: TaskSet) -> Tasks:
        """Statistics in the units of the training tasks, and features of the descriptions."""
        side = None if self.side is None else self.side(tasks)
        found = statistics_of(tasks, self.units, side)
        return replace(found, n_threads=joblib.effective_n_jobs(self.settings.n_jobs))

    @property
    def has_description(self) -> bool:
        """Whether there are features that the model itself may use; those of rows would teach it their noise."""
        return self.side is not None and self.side.from_description

    def seed(self, purpose: int, number: int = 0) -> list[int]:
        return [self.settings.seed, purpose, number]

    @cached_property
    def folds(self) -> list[Fold]:
        """Several for few tasks, one for many; a single task can only be asked about itself."""
        T = len(self)
        if self.n_validation:
            first = T - self.n_validation
            return [Fold(0, np.arange(first), np.arange(first, T))]
        if T == 1:
            return [Fold(0, np.arange(1), np.arange(1))]
        n_folds = min(max(2, round(1.0 / self.settings.validation_fraction)), T)
        order = np.random.default_rng(self.seed(FOLDS)).permutation(T)
        place = np.arange(T) % n_folds
        if T < MANY_TASKS or (self.has_many_columns and T < MANY_WIDE_TASKS):
            n_turns = n_folds if T < MANY_TASKS else min(n_folds, WIDE_TURNS)
            return [Fold(i, np.sort(order[place != i]), np.sort(order[place == i])) for i in range(n_turns)]
        train, held_out = order[place != 0][:SELECTION_TRAIN], order[place == 0][:SELECTION_HELD_OUT]
        return [Fold(0, np.sort(train), np.sort(held_out))]

    def predict(self, query: TaskSet, weights: Array) -> Array:
        """Predictions of the query rows by weights (T, d) in the units of the training tasks."""
        rows = Rows(self.units.dense(query.X), query.y, query.offsets)
        return self.units.raw_predictions(predictions(rows, weights))

    def errors(self, episodes: Episodes, prediction: Array, n_tasks: int) -> Array:
        """Mean loss of each task's query rows over its episodes; NaN for a task that is not asked about."""
        query = episodes.query
        losses = self.settings.loss.value(clipped(prediction, self.settings.clip), query.y)
        rows = np.bincount(np.repeat(episodes.task, query.sizes), minlength=n_tasks)
        each = task_means(losses, query.offsets)
        asked = query.sizes > 0
        counts = np.bincount(episodes.task[asked], minlength=n_tasks)
        totals = np.bincount(episodes.task[asked], weights=each[asked], minlength=n_tasks)
        with np.errstate(invalid="ignore"):
            means = np.where(rows > 0, totals / np.maximum(counts, 1), np.nan)
        return np.where(np.isnan(means) & (rows > 0), np.inf, means)


def _is_mostly_zero(tasks: TaskSet) -> bool:
    """Whether rows are better kept by their entries; a sparse matrix of many is no other thing than a dense one."""
    if tasks.is_sparse:
        return True
    return np.count_nonzero(tasks.X) <= SPARSE * tasks.X.size
