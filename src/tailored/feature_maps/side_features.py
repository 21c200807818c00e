"""Features of a task's description, or other features that join those of the posterior: v(s)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tasks import TaskSet
from ._base import Array, FeatureMap


@dataclass(frozen=True)
class SideFeatures:
    """v(s): features beside those of the posterior, centred and of comparable size.

    Columns are divided by their deviation, and by √q, so that all together are as large as one.  Those of the
    task's description enter the prior mean of the model itself; those of its rows, which the model has
    seen, join ψ(s).
    """

    encoder: FeatureMap
    mean: Array
    deviation: Array

    @property
    def from_description(self) -> bool:
        """Whether they come from the task's description and not from its rows."""
        return self.encoder.needs_side_info and not self.encoder.needs_rows

    @classmethod
    def fit(cls, encoder: FeatureMap, tasks: TaskSet) -> SideFeatures:
        features = encoder.fit(tasks).transform(tasks)
        low, high = features.min(axis=0), features.max(axis=0)
        # A rare category must not become a large number: indicators are divided by half their range.
        indicator = ((features == low) | (features == high)).all(axis=0)
        deviation = np.where(indicator, (high - low) / 2.0, features.std(axis=0))
        deviation = np.where(deviation > 0, deviation, 1.0) * np.sqrt(max(features.shape[1], 1))
        return cls(encoder, features.mean(axis=0), deviation)

    def __call__(self, tasks: TaskSet) -> Array:
        features = self.encoder.transform(tasks)
        if features.shape[1] != len(self.mean):
            raise ValueError(
                f"side_info: expected {len(self.mean)} columns as in fit, got {features.shape[1]}"
            )
        return (features - self.mean) / self.deviation
