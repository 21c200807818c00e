"""Scaled features v(s) of a task for empirical Bayes: side information with splines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import BSpline

from .._utils.records import Record
from .._utils.validation import native
from ..gaussian.side import Group
from ..tasks.features import SideVector
from ..tasks.rows import LIMIT, Array
from ..tasks.task_set import TaskSet

#: Maximum number of distinct knots of a spline, which are quantiles of its training values, and
#: degree of the spline.
KNOTS, DEGREE = 7, 3
#: A column gets a spline only if its range is between 1 / LARGEST_RANGE and LARGEST_RANGE.
#: Otherwise powers of its values, or of inverse distances between knots, could overflow.
LARGEST_RANGE = 1e50
#: Minimum number of distinct values for a column to get a spline: with fewer values than knots,
#: knots lie between values.
LEAST_VALUES = 8


@dataclass(frozen=True)
class Curve(Record):
    """A B-spline basis of one feature, constant beyond the outer knots."""

    column: int  # position of the feature
    knots: Array  # increasing, with the outer knots repeated

    @classmethod
    def fit(cls, values: Array, column: int, least_values: int = LEAST_VALUES) -> Curve | None:
        """Return a spline with knots at quantiles of the values; None with too few distinct values
        or an extreme range.
        """
        with np.errstate(over="ignore"):
            if not 1.0 / LARGEST_RANGE < np.ptp(values) < LARGEST_RANGE:
                return None
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        # Long tails are clipped, because they would stretch the spline: values more than twice as
        # far from the median as these quantiles.
        inside = np.clip(values, 2.0 * low - middle, 2.0 * high - middle)
        inner = np.unique(np.quantile(inside, np.linspace(0.0, 1.0, KNOTS)))
        if len(np.unique(values)) < least_values or len(inner) < min(4, least_values):
            return None
        if np.diff(inner).min() < 1.0 / LARGEST_RANGE:
            return None
        return cls(column, np.concatenate([[inner[0]] * DEGREE, inner, [inner[-1]] * DEGREE]))

    @property
    def n_features(self) -> int:
        return len(self.knots) - DEGREE - 2

    def __call__(self, features: Array) -> Array:
        if not len(features):
            return np.zeros((0, self.n_features))
        inside = np.clip(features[:, self.column], self.knots[0], self.knots[-1])
        # The basis functions add up to one, so the first is redundant.
        return BSpline.design_matrix(inside, self.knots, DEGREE).toarray()[:, 1:]

    def smooth_basis(self, features: Array, size: Array | float = 1.0) -> Array:
        """Return the coefficients (k, m) of m functions, from smooth to rough (Demmler and Reinsch,
        1975).

        The two smoothest functions have unit variance, and rougher ones a smaller variance.  The
        first is nearly linear.  ``features`` (n, k) are values of the spline basis, centred and
        divided by ``size``.
        """
        values, vectors = np.linalg.eigh(features.T @ features / len(features))
        present = values > 1e-8 * values[-1]
        root = vectors[:, present] / np.sqrt(values[present])
        # Roughness is the sum of squared second differences of the coefficients (Eilers and Marx,
        # 1996).
        differences = np.diff(np.eye(self.n_features + 1), n=2, axis=0)[:, 1:]
        roughness = differences.T @ differences / np.outer(size, size)
        # With few distinct values, many coefficients give the same values; take the smoothest.
        unseen = vectors[:, ~present]
        free = np.linalg.pinv(unseen.T @ roughness @ unseen, hermitian=True)
        root -= unseen @ (free @ (unseen.T @ roughness @ root))
        rough, rotation = np.linalg.eigh(root.T @ roughness @ root)
        second = rough[min(1, len(rough) - 1)]
        return np.asarray(root @ rotation * np.sqrt(second / np.maximum(rough, second)))


@dataclass(frozen=True)
class SideFeatures(Record):
    """Features v(s) of a task, centred and scaled.

    Columns are divided by their standard deviation, indicators by half their range.  Linear
    features are then divided by the square root of the number of linear features, and spline
    features by that of spline features: the norm of each part is about one.  The ``n_linear``
    linear features are first, then their splines.
    """

    encoder: SideVector
    mean: Array  # (q,)
    deviation: Array  # (q,)
    curves: tuple[Curve, ...] = ()

    @property
    def n_linear(self) -> int:
        return len(self.encoder.origins)

    @property
    def origins(self) -> list[int]:
        """The side information column of each feature."""
        linear = self.encoder.origins
        return linear + [
            linear[curve.column] for curve in self.curves for _ in range(curve.n_features)
        ]

    def groups(self, features: Array) -> list[Group]:
        """Return the groups of features that are kept or dropped together, given v(s) (T, q) of the
        training tasks.

        Each column of the side information has one group with its linear features, for example all
        indicators of a categorical column, and one group for each spline.
        """
        origins = np.array(self.origins)
        linear = [np.flatnonzero(origins[: self.n_linear] == c) for c in np.unique(origins)]
        out = [Group(int(origins[at[0]]), False, at, np.eye(len(at))) for at in linear]
        first = self.n_linear
        for curve in self.curves:
            at = np.arange(first, first + curve.n_features)
            basis = curve.smooth_basis(features[:, at], self.deviation[at])
            out.append(Group(int(origins[at[0]]), True, at, basis))
            first += curve.n_features
        return out

    @classmethod
    def fit(cls, tasks: TaskSet) -> SideFeatures:
        """Fit the encoder, the splines and the scales on training tasks."""
        encoder = SideVector().fit(tasks)
        linear = encoder.transform(tasks)
        low, high = linear.min(axis=0), linear.max(axis=0)
        # Indicators are divided by half their range, because the standard deviation of a rare
        # category is small.
        indicator = ((linear == low) | (linear == high)).all(axis=0)
        known = encoder.known(tasks)  # imputed values must not affect the knots
        found = (Curve.fit(linear[known[:, j], j], j) for j in np.flatnonzero(~indicator).tolist())
        curves = tuple(curve for curve in found if curve is not None)
        curved = np.hstack([np.zeros((len(linear), 0)), *(curve(linear) for curve in curves)])
        deviation = np.where(indicator, (high - low) / 2.0, linear.std(axis=0))
        # A constant column has standard deviation zero, and inverses of the smallest floats
        # overflow.
        deviation = np.where(deviation > 1e-300, deviation, np.abs(high))
        sizes = []
        for size in (deviation, curved.std(axis=0)):
            sizes.append(np.where(size > 1e-300, size, 1.0) * np.sqrt(max(len(size), 1)))
        mean = np.concatenate([linear.mean(axis=0), curved.mean(axis=0)])
        return cls(encoder, mean, np.concatenate(sizes), curves)

    def __call__(self, tasks: TaskSet) -> Array:
        """Return v(s) of each task, (T, q)."""
        linear = self.encoder.transform(tasks)
        features = np.hstack([linear, *(curve(linear) for curve in self.curves)])
        found = (features - self.mean) / self.deviation
        if np.abs(found).max(initial=0.0) <= LIMIT:
            return found
        task, j = (int(i) for i in np.unravel_index(np.argmax(np.abs(found)), found.shape))
        name = f"feature {j}"
        if tasks.side_names:
            name = f"column {tasks.side_names[self.origins[j]]!r}"
        raise ValueError(
            f"side_info: {name} of task {native(tasks.labels)[task]!r} is {found[task, j]:.1g} "
            "times as large as in fit; use the same units as in fit"
        )
