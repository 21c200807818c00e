"""Where statistics of tasks live and are summed: here, on disk, on workers, on a device."""

from .collecting import Collection
from .dask_frames import DaskCollection
from .disk import StatisticsOnDisk
from .in_memory import TasksInMemory
from .recorded import Recorded
from .reservoir import SAMPLE_NUMBERS, SAMPLE_TASKS, Reservoir

__all__ = [
    "SAMPLE_NUMBERS",
    "SAMPLE_TASKS",
    "Collection",
    "DaskCollection",
    "Recorded",
    "Reservoir",
    "StatisticsOnDisk",
    "TasksInMemory",
]
