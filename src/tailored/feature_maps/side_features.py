"""Features of a task's description, or other features that join those of the posterior: v(s)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import BSpline

from .._utils.records import Record
from .._utils.validation import check_divisor, check_shape
from ..tasks.scaling import LIMIT
from ..tasks.task_set import TaskSet
from .base import Array, FeatureMap
from .side_info import SideVector

#: Inner and outer knots of a curve, at quantiles of the training tasks, and its degree.
KNOTS, DEGREE = 7, 3
#: Different values that a number must take to be curved.
LEAST_VALUES = 8


@dataclass(frozen=True)
class Curve(Record):
    """A spline basis of one number: beyond the outer knots it stays what it is there.

    Attributes
    ----------
    column : int
        The number's place among the features.
    knots : array
        With the outer ones repeated, as B-splines have them.
    """

    column: int
    knots: Array

    def __post_init__(self) -> None:
        check_shape("knots", self.knots, None)
        first, last = self.knots[: DEGREE + 1], self.knots[-DEGREE - 1 :]
        if len(self.knots) < 2 * (DEGREE + 1) or (np.diff(self.knots) < 0).any() or first[0] == last[0]:
            raise ValueError(f"knots: expected at least {2 * (DEGREE + 1)} increasing numbers")
        if (first != first[0]).any() or (last != last[0]).any():
            raise ValueError("knots: the first and the last must be repeated")

    @classmethod
    def fit(cls, values: Array, column: int) -> Curve | None:
        """None for a number with too few different values."""
        inner = np.unique(np.quantile(values, np.linspace(0.0, 1.0, KNOTS)))
        if len(np.unique(values)) < LEAST_VALUES or len(inner) < 4:
            return None
        return cls(column, np.concatenate([[inner[0]] * DEGREE, inner, [inner[-1]] * DEGREE]))

    @property
    def n_features(self) -> int:
        return len(self.knots) - DEGREE - 2

    def __call__(self, features: Array) -> Array:
        inside = np.clip(features[:, self.column], self.knots[0], self.knots[-1])
        # They add up to one, so one of them says nothing new.
        return BSpline.design_matrix(inside, self.knots, DEGREE).toarray()[:, 1:]


@dataclass(frozen=True)
class SideFeatures(Record):
    """v(s): features beside those of the posterior, centred and of comparable size.

    Columns are divided by their deviation, and by the root of their number, so that all together are as large as
    one.  Those of the task's description enter the proportions and the prior mean of the model itself, as they are
    (the first ``n_linear``) and curved; those of its rows, which the model has seen, join ψ(s).
    """

    encoder: FeatureMap
    mean: Array
    deviation: Array
    n_linear: int
    curves: tuple[Curve, ...] = ()

    def __post_init__(self) -> None:
        n = self.n_linear
        if any(not 0 <= curve.column < n for curve in self.curves):
            raise ValueError(f"curves: columns must be positions below {n}")
        n += sum(curve.n_features for curve in self.curves)
        check_shape("mean", self.mean, n)
        check_shape("deviation", self.deviation, n)
        check_divisor("deviation", self.deviation)

    @property
    def from_description(self) -> bool:
        """Whether they come from the task's description and not from its rows."""
        return _is_description(self.encoder)

    @property
    def is_plain(self) -> bool:
        """Whether the linear features are the columns of the description as they are."""
        encoder = self.encoder
        return isinstance(encoder, SideVector) and encoder.categories is None and not encoder.indicated

    @property
    def origins(self) -> list[int]:
        """The column of the description that each feature comes from; features of other maps are their own."""
        encoder = self.encoder
        linear = encoder.origins if isinstance(encoder, SideVector) else list(range(self.n_linear))
        return linear + [linear[curve.column] for curve in self.curves for _ in range(curve.n_features)]

    @classmethod
    def fit(cls, encoder: FeatureMap, tasks: TaskSet) -> SideFeatures:
        linear = encoder.fit(tasks).transform(tasks)
        low, high = linear.min(axis=0), linear.max(axis=0)
        # A rare category must not become a large number: indicators are divided by half their range.
        indicator = ((linear == low) | (linear == high)).all(axis=0)
        curves: list[Curve] = []
        if _is_description(encoder):
            # Knots lie where numbers were, not where they were filled in.
            known = (
                encoder.known(tasks) if isinstance(encoder, SideVector) else np.ones_like(linear, dtype=bool)
            )
            found = (Curve.fit(linear[known[:, j], j], j) for j in np.flatnonzero(~indicator).tolist())
            curves = [curve for curve in found if curve is not None]
        curved = np.hstack([np.zeros((len(linear), 0)), *(curve(linear) for curve in curves)])
        deviation = np.where(indicator, (high - low) / 2.0, linear.std(axis=0))
        # a constant is measured by itself
        deviation = np.where(deviation > 0, deviation, np.abs(high))
        sizes = []
        for size in (deviation, curved.std(axis=0)):
            sizes.append(np.where(size > 0, size, 1.0) * np.sqrt(max(len(size), 1)))
        mean = np.concatenate([linear.mean(axis=0), curved.mean(axis=0)])
        return cls(encoder, mean, np.concatenate(sizes), linear.shape[1], tuple(curves))

    def __call__(self, tasks: TaskSet) -> Array:
        linear = self.encoder.transform(tasks)
        if linear.shape[1] != self.n_linear:
            raise ValueError(f"side_info: expected {self.n_linear} columns as in fit, got {linear.shape[1]}")
        features = np.hstack([linear, *(curve(linear) for curve in self.curves)])
        found = (features - self.mean) / self.deviation
        if np.vdot(found, found) <= LIMIT**2:
            return found
        task, j = (int(i) for i in np.unravel_index(np.argmax(np.abs(found)), found.shape))
        if np.abs(found[task, j]) <= LIMIT:
            return found
        raise ValueError(
            f"side_info: feature {j} of task {tasks.labels[task]!r} is {found[task, j]:.1g} times as large as those of "
            "fit; give descriptions in the units of fit"
        )


def _is_description(encoder: FeatureMap) -> bool:
    return encoder.needs_side_info and not encoder.needs_rows
