"""All tasks on a device, as a collection like those of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..._utils.records import cached_property
from ...gaussian import Source
from ...tasks import TaskSet, Units
from ...tasks.pieces import label_keys
from ..reservoir import Reservoir
from .statistics import CudaStatistics
from .tensors import TensorTasks


@dataclass(frozen=True)
class TasksOnDevice:
    """Tensors of rows; the sample only depends on the labels.

    ``here`` are the same tasks in memory, where they came from there: what a frame knows of its columns is theirs.
    """

    tasks: TensorTasks
    seed: int
    here: TaskSet | None = None

    @cached_property
    def reservoir(self) -> Reservoir:
        """The sample as it may go on growing."""
        empty = Reservoir(seed=self.seed)
        if self.here is not None:
            return empty.take(self.here)
        # One more than it holds, so that it knows where to stop.
        keys = label_keys(self.tasks.names, self.seed)
        first = np.sort(np.argsort(keys, kind="stable")[: empty.size + 1])
        return empty.take(self.tasks.take(first))

    @property
    def target_range(self) -> tuple[float, float]:
        return float(self.tasks.y.min()), float(self.tasks.y.max())

    def source(
        self,
        units: Units,
        describe: Callable[[TaskSet], NDArray[np.float64]] | None = None,
        leave: Callable[[TaskSet], TaskSet] | None = None,
        *,
        name: str = "",
        n_threads: int = 1,
    ) -> Source:
        """Statistics in the memory of the device."""
        assert leave is None, "a common part is refused before"
        described = self.tasks.described
        side = None if describe is None or described is None else describe(described)
        return CudaStatistics.of(self.tasks, units, side)

    def forget_rows(self) -> None:
        """The rows are the user's."""
