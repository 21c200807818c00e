"""Where statistics of tasks live and are summed: here, on disk, on workers, on a device."""

from .merging import LabelledStatistics, in_units, merge_statistics
from .reservoir import Reservoir

__all__ = ["LabelledStatistics", "Reservoir", "in_units", "merge_statistics"]
