"""The description's features themselves: φ(s) = v(s)."""

from __future__ import annotations

from ..tasks import TaskSet
from .base import Array, FeatureMap
from .side_features import SideFeatures


class SideMap(FeatureMap):
    """v(s) as `SideFeatures` computes it, for a prior mean that is linear in it.

    Parameters
    ----------
    side : SideFeatures
    """

    def __init__(self, side: SideFeatures) -> None:
        self.side = side

    @property
    def needs_rows(self) -> bool:
        return self.side.encoder.needs_rows

    @property
    def needs_side_info(self) -> bool:
        return self.side.encoder.needs_side_info

    def transform(self, tasks: TaskSet) -> Array:
        return self.side(tasks)
