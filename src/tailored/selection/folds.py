"""The folds in which models compete: training tasks, to which a model is fitted, and held-out tasks,
which it predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..gaussian.side import Group, SideFit, SideStructure, fit_side
from ..priors.base import Prior
from ..tasks.episodes import Episodes
from ..tasks.rows import Array, overall_mean, support_means, task_means
from .data import Draw, Split, TrainingData

if TYPE_CHECKING:
    from .structures import Structure


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
            self.errors(episodes, self.data.predict(support, prior, episodes.query))
            for support, episodes in zip(self.support, self.episodes, strict=True)
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
