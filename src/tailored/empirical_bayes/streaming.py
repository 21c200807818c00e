"""A stream of tasks in constant memory: a bounded sample to choose on, and stepwise EM between choices.

The form, the features, the scale, what query rows teach and how far predictions miss are learned from the sample, as
`training` does from all tasks, whenever the number of tasks has doubled; while the sample holds all tasks this is the
same.  In between, each piece moves the model by one step of EM (`Stepwise`) and is forgotten.  Once tasks are let go from
the sample, units and features stay as they are, and a model whose form is chosen again goes on as it is, where it explains
the tasks of the piece at hand that are not in the sample at least as well as the sample's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import native
from ..feature_maps import SideFeatures
from ..gaussian.rows import Tasks, statistics_of
from ..gaussian.side import SideStructure
from ..gaussian.stepwise import Stepwise
from ..gaussian.structures import Structure
from ..priors.base import Prior
from ..priors.mixture import MixturePrior
from ..sources.reservoir import Reservoir
from ..tasks import Scaling, TaskSet
from .prior_mean import LevelBias
from .training import Learned, assemble

#: Tasks are chosen on anew when there are so many times as many.
AGAIN = 2


@dataclass(frozen=True)
class Running:
    """What was learned at the last choice, and the model that goes on from there."""

    model: Stepwise
    side_form: SideStructure | None
    scale: float
    biases: tuple[LevelBias, ...]
    units: Scaling
    side: SideFeatures | None

    @classmethod
    def of(cls, learned: Learned) -> Running:
        prior = learned.prior
        assert isinstance(prior, MixturePrior)
        # Errors of held-out tasks have been counted: only B is of use from here on.
        biases = tuple(replace(level, errors=np.zeros(0)) for level in learned.biases)
        assert isinstance(learned.form, Structure)
        assert learned.model is not None
        model = Stepwise.of(learned.form, learned.model)
        return cls(model, learned.side, learned.scale, biases, prior.scaling, prior.side)

    def goes_on_from(self, before: Running, unseen: TaskSet) -> bool:
        """Whether the model that was running is of the form that was chosen now, and explains unseen tasks better."""
        same = (
            before.model.structure == self.model.structure
            and before.side_form == self.side_form
            and before.units is self.units
        )
        if not same or not len(unseen):
            return same
        piece = self._statistics(unseen)
        mine, theirs = (piece.sums(each.model.average).sums.log_evidence for each in (self, before))
        return theirs >= mine

    def _statistics(self, tasks: TaskSet) -> Tasks:
        return statistics_of(tasks, self.units, None if self.side is None else self.side(tasks))

    def advance(self, tasks: TaskSet, n_before: int) -> Running:
        """The model after a piece, whose targets are what a common part leaves."""
        return replace(self, model=self.model.advance(self._statistics(tasks), n_before))

    def prior(self, chosen: Prior) -> Prior:
        """The prior with the model as it is now, in all else the one that was ``chosen``."""
        found = assemble(self.units, self.side, self.model.average.scaled(self.scale), self.biases)
        assert isinstance(chosen, MixturePrior)
        return replace(chosen, model=found.model, side=found.side, shifts=found.shifts)


@dataclass(frozen=True)
class Stream:
    """Where a stream of tasks stands; going on makes a new one.

    Attributes
    ----------
    seed : int
    sample, validation : Reservoir
        Of the tasks to learn from, and of those to choose on.
    n_tasks, n_chosen : int
        Tasks so far, and those at the last choice.
    running : Running or None
        None before the first choice.
    """

    seed: int
    sample: Reservoir
    validation: Reservoir
    n_tasks: int = 0
    n_chosen: int = 0
    running: Running | None = None

    @classmethod
    def begin(cls, seed: int) -> Stream:
        return cls(seed, Reservoir(seed=seed), Reservoir(seed=seed + 1))

    @property
    def is_due(self) -> bool:
        """Whether it is time to choose."""
        return self.n_tasks >= AGAIN * self.n_chosen

    @property
    def is_settled(self) -> bool:
        """Whether units and features stay as they are."""
        return self.running is not None and not self.sample.is_whole

    def take(self, piece: TaskSet, validation: TaskSet | None = None) -> tuple[Stream, TaskSet]:
        """The stream after a piece, and the piece's tasks with all of their rows that are known.

        A task that came before and is in the sample has its earlier rows as well; one that is not counts as another.
        """
        known = self.sample.contains(piece)
        after = replace(
            self,
            sample=self.sample.take(piece),
            validation=self.validation if validation is None else self.validation.take(validation),
            n_tasks=self.n_tasks + int((~known).sum()) + (0 if validation is None else len(validation)),
        )
        # From the sample before this piece: a task may be let go when its further rows come.
        return after, self.sample.with_earlier_rows(piece) if known.any() else piece


def together(tasks: TaskSet, validation: TaskSet | None) -> tuple[TaskSet, int]:
    """Tasks to learn from and those to choose on as one set, and the number of the latter."""
    if validation is None:
        return tasks, 0
    return TaskSet.concat([tasks, validation], relabel=True), len(validation)


def places(known: TaskSet | None, tasks: TaskSet) -> NDArray[np.intp]:
    """Positions of tasks among those known, by their labels; −1 where they are not."""
    if known is None:
        return np.full(len(tasks), -1, dtype=np.intp)
    at = {label: t for t, label in enumerate(native(known.labels))}
    return np.array([at.get(label, -1) for label in native(tasks.labels)], dtype=np.intp)
