"""Tasks whose rows are here and whose statistics would be too large: a collection like those of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mixed_models import Source, Summed, TaskStatistics, Totals
from ..mixed_models.moments import Model
from ..tasks import TaskSet, Units
from .parts import Parts
from .reservoir import Reservoir

Array = NDArray[np.float64]

#: Floats of XᵀX that are there at a time (64 MB).
BLOCK_FLOATS = 8_000_000


@dataclass(frozen=True)
class Rows:
    """Tasks that are summed from their rows whenever they are asked: a source for EM that keeps no statistics."""

    tasks: TaskSet
    units: Units
    side: Array | None

    @property
    def n_features(self) -> int:
        return len(self.units.columns)

    @property
    def _statistics(self) -> TaskStatistics:
        return TaskStatistics.of(self.tasks, self.units, self.side)

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
        """Blocks of tasks, in their order."""
        size = max(1, BLOCK_FLOATS // len(units.columns) ** 2)
        blocks = [self.tasks[start : start + size] for start in range(0, len(self.tasks), size)]
        side = [None if describe is None else describe(block) for block in blocks]
        if leave is not None:
            blocks = [leave(block) for block in blocks]
        return Parts([Rows(block, units, known) for block, known in zip(blocks, side, strict=True)])

    def forget_rows(self) -> None:
        """The rows are the user's."""
