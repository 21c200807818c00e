"""Tasks whose rows are here and whose statistics would be too large: a collection like those of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from ..gaussian import Source, Summed, TaskStatistics, Totals
from ..gaussian.moments import Model
from ..tasks import TaskSet, Units
from ..tasks.pieces import label_keys
from .parts import Parts
from .reservoir import Reservoir

Array = NDArray[np.float64]

#: Floats of XᵀX that are there at a time (64 MB).
BLOCK_FLOATS = 8_000_000


@dataclass(frozen=True)
class Rows:
    """Some of the tasks, summed from their rows whenever they are asked: a source for EM that keeps no statistics."""

    tasks: TaskSet
    some: NDArray[np.intp]
    units: Units
    side: Array | None

    @property
    def n_features(self) -> int:
        return len(self.units.columns)

    @property
    def _statistics(self) -> TaskStatistics:
        return TaskStatistics.of(self.tasks[self.some], self.units, self.side)

    def totals(self) -> Totals:
        return self._statistics.totals()

    def moments(self, model: Model, responsibilities: Any = None) -> Summed:
        return self._statistics.moments(model, responsibilities)


@dataclass(frozen=True)
class TasksInMemory:
    """All tasks of a `TaskSet`; the sample only depends on their labels."""

    tasks: TaskSet
    seed: int

    @cached_property
    def reservoir(self) -> Reservoir:
        """The sample as it may go on growing."""
        return Reservoir(seed=self.seed).take(self.tasks)

    @property
    def target_range(self) -> tuple[float, float]:
        return float(self.tasks.y.min()), float(self.tasks.y.max())

    def source(
        self,
        units: Units,
        describe: Callable[[TaskSet], Array] | None = None,
        leave: Callable[[TaskSet], TaskSet] | None = None,
        *,
        name: str = "",
        n_threads: int = 1,
    ) -> Source:
        """Blocks of tasks, in the order of their labels."""
        size = max(1, BLOCK_FLOATS // len(units.columns) ** 2)
        order = np.argsort(label_keys(self.tasks.labels, self.seed), kind="stable")
        blocks = [order[start : start + size] for start in range(0, len(order), size)]
        tasks = self.tasks if leave is None else self._left(leave, size)
        side = [None if describe is None else describe(self.tasks[block]) for block in blocks]
        # Rows are brought together when they are summed: all of them in another order would take their memory twice.
        return Parts([Rows(tasks, block, units, known) for block, known in zip(blocks, side, strict=True)])

    def _left(self, leave: Callable[[TaskSet], TaskSet], size: int) -> TaskSet:
        """The tasks with what is left of their targets."""
        whole = self.tasks
        y = [leave(whole[start : start + size]).y for start in range(0, len(whole), size)]
        return TaskSet.from_arrays(whole.X, np.concatenate(y), whole.offsets, whole.labels)

    def forget_rows(self) -> None:
        """The rows are the user's."""
