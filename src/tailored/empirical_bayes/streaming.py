"""A stream of tasks in constant memory: a bounded sample for selection, and stepwise EM between selections.

Whenever the number of tasks has doubled, the model is learned from the sample by `learn`.  As long as the sample contains all
tasks, the result is the same as without a stream.  In between, each batch updates the model by one step of EM (`Stepwise`)
and is discarded.  Once the sample is smaller than the stream, scaling and features stay fixed.  If the same structure is then
selected again, the earlier model is kept, provided that it explains the tasks of the batch outside the sample at least as
well as the new fit to the sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..feature_maps.side_features import SideFeatures
from ..gaussian.responses import Response
from ..gaussian.rows import Tasks
from ..gaussian.side import SideStructure
from ..gaussian.structures import Stepwise, Structure
from ..priors.base import Prior
from ..priors.mixture import MixturePrior
from ..sources.reservoir import Reservoir
from ..tasks.rows import Scaling
from ..tasks.task_set import TaskSet
from .learn import Learned, as_mean_shifts
from .query_bias import FittedShift

#: Factor by which the number of tasks grows between two selections.
GROWTH = 2


@dataclass(frozen=True)
class RunningModel:
    """The result of the last selection, with the model that stepwise EM continues."""

    model: Stepwise
    side_structure: SideStructure | None
    shifts: tuple[FittedShift, ...]
    scaling: Scaling
    side: SideFeatures | None
    response: Response

    @classmethod
    def of(cls, learned: Learned) -> RunningModel:
        prior = learned.prior
        assert isinstance(prior, MixturePrior)
        assert isinstance(learned.structure, Structure)
        assert learned.model is not None
        # Errors of held-out tasks are not needed any more.
        shifts = tuple(replace(shift, errors=np.zeros(0)) for shift in learned.shifts)
        model = Stepwise(learned.structure, learned.model, learned.model)
        return cls(model, learned.side, shifts, prior.scaling, prior.side, prior.response)

    def is_superseded_by(self, earlier: RunningModel, unseen: TaskSet) -> bool:
        """Return whether an earlier model has the same structure and explains unseen tasks at least as well."""
        same = (
            earlier.model.structure == self.model.structure
            and earlier.side_structure == self.side_structure
            and earlier.scaling is self.scaling
            and earlier.response == self.response
        )
        if not same or not len(unseen):
            return same
        statistics = self._statistics(unseen)
        own, other = (statistics.posterior(each.model.average).log_evidence.sum() for each in (self, earlier))
        return bool(other >= own)

    def _statistics(self, tasks: TaskSet) -> Tasks:
        side = None if self.side is None else self.side(tasks)
        return self.response.statistics(tasks, self.scaling, side)

    def advance(self, tasks: TaskSet, n_before: int) -> RunningModel:
        """Return the model after a batch of tasks; with a shared regressor, their targets must be its residuals."""
        return replace(self, model=self.model.advance(self._statistics(tasks), n_before))

    def prior(self, selected: Prior) -> Prior:
        """Return the ``selected`` prior with the current model."""
        assert isinstance(selected, MixturePrior)
        shifts = as_mean_shifts(self.shifts) if any(shift.B is not None for shift in self.shifts) else ()
        return replace(selected, model=self.model.average, side=self.side, shifts=tuple(shifts))


@dataclass(frozen=True)
class Stream:
    """The state of a stream of tasks."""

    seed: int
    sample: Reservoir  # sample of the training tasks
    validation: Reservoir  # sample of the validation tasks
    n_tasks: int = 0
    n_selected: int = 0  # number of tasks at the last selection
    running: RunningModel | None = None  # None before the first selection

    @classmethod
    def begin(cls, seed: int) -> Stream:
        return cls(seed, Reservoir(seed=seed), Reservoir(seed=seed + 1))

    @property
    def is_due(self) -> bool:
        """Whether a selection is due."""
        return self.n_tasks >= GROWTH * self.n_selected

    @property
    def is_settled(self) -> bool:
        """Whether scaling and features stay fixed."""
        return self.running is not None and not self.sample.is_whole

    def take(self, batch: TaskSet, validation: TaskSet | None = None) -> tuple[Stream, TaskSet]:
        """Return the stream after a batch, and the tasks of the batch with their earlier rows, if these are stored.

        Rows of a task in the sample are added to its earlier rows.  An earlier task outside the sample counts as new.
        """
        known = self.sample.contains(batch)
        after = replace(
            self,
            sample=self.sample.take(batch),
            validation=self.validation if validation is None else self.validation.take(validation),
            n_tasks=self.n_tasks + int((~known).sum()) + (0 if validation is None else len(validation)),
        )
        # Use the earlier sample, because a task may leave the sample when further rows arrive.
        return after, self.sample.with_earlier_rows(batch) if known.any() else batch
