"""Feature maps Φ: a vector φ (k,) of features for each task (Secs. 4 and 5 and Eq. 28 of the
paper).

"mean" and "angle" aggregate the task's rows, and "ridge" estimates its weights.  "vector" and
callables read the side information; without it, a callable reads the task.  The named maps do not
depend on the order of the rows and are defined for a task without rows.  To add a map, define its
class and add its name to `FEATURE_MAPS`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from .._utils.validation import check_choice, check_positive, check_psd, native
from ..tasks.features import FeatureMap, SideVector, side_table
from ..tasks.rows import Array, dense, dense_rows
from ..tasks.task_set import TaskSet


def features_of(feature_map: FeatureMap | None, tasks: TaskSet, n_side: int | None = None) -> Array:
    """Return φ (T, k) of tasks; k = 0 without a feature map.

    Raise a ValueError if a feature is not finite, or if there are not ``n_side``, as in fit.
    """
    if feature_map is None:
        return np.zeros((len(tasks), 0))
    phis = feature_map.transform(tasks)
    if n_side is not None and phis.shape[1] != n_side:
        raise ValueError(
            f"side_info: the feature map gives {phis.shape[1]} features, but it gave {n_side} in "
            "fit; give the same side information columns as in fit"
        )
    if not np.isfinite(phis).all():
        bad = native(tasks.labels[~np.isfinite(phis).all(axis=1)])[0]
        raise ValueError(f"feature_map: NaN or infinity in the features of task {bad!r}")
    return phis


class MeanEmbedding(FeatureMap):
    """``φ = 1/n Σ vec(x_i (y_i, 1)ᵀ)`` in R^{2d}: the paper's map for clusters and MovieLens."""

    def transform(self, tasks: TaskSet) -> Array:
        sums = np.hstack([_row_sums(tasks, tasks.y), _row_sums(tasks, np.ones(len(tasks.y)))])
        return sums / np.maximum(tasks.sizes, 1)[:, None]


@dataclass(eq=False, repr=False)
class AngleMap(FeatureMap):
    """The paper's map for Jester: each rated item becomes a unit vector, whose angle depends on the
    rating.

    ``φ = (cos(a) ⊙ c, sin(a) ⊙ c, 1)`` in R^{2d+1}, ``a = Σ x_i · π/4 · (M − y_i)/(M − m)``, ``c =
    Σ x_i``; items without a rating give (0, 0).

    Parameters
    ----------
    low, high : float, optional
        Bounds m and M of the ratings; by default those of the training targets.
    """

    low: float | None = None
    high: float | None = None
    scale: tuple[float, float] | None = field(default=None, init=False)  # (m, M) of `fit`

    def fit(self, tasks: TaskSet) -> AngleMap:
        if not len(tasks.y) and (self.low is None or self.high is None):
            raise ValueError(
                "feature_map: the tasks have no rows from which to learn the rating scale; give "
                "low and high"
            )
        low = float(tasks.y.min()) if self.low is None else self.low
        high = float(tasks.y.max()) if self.high is None else self.high
        if low > high:
            raise ValueError(f"low must be at most high; got {low} and {high}.")
        self.scale = low, high
        return self

    def transform(self, tasks: TaskSet) -> Array:
        low, high = self.scale or (self.low, self.high)
        if low is None or high is None:
            raise self._not_fitted()
        angle = (np.pi / 4) * (high - tasks.y) / (high - low if high > low else 1.0)
        count, angles = _row_sums(tasks, np.ones(len(angle))), _row_sums(tasks, angle)
        return np.hstack([np.cos(angles) * count, np.sin(angles) * count, np.ones((len(tasks), 1))])


@dataclass(eq=False, repr=False)
class RidgeEstimate(FeatureMap):
    """Ridge estimate of the task's weights, ``(X̂ᵀX̂ + λI) w = X̂ᵀy`` with X̂ = [X, 1]; φ in
    R^{d+1}.

    Parameters
    ----------
    alpha : float, default=1.0
        λ; the paper uses 1 for Lenk.
    """

    alpha: float = 1.0

    def transform(self, tasks: TaskSet) -> Array:
        check_positive("alpha", self.alpha)
        out = np.empty((len(tasks), tasks.n_features + 1))
        # One system per task, because batched products round differently and a stream may be split
        # anywhere.
        for t, task in enumerate(tasks):
            out[t] = ridge(dense_rows(task.X, True), task.y, self.alpha)
        return out


def solve(matrix: Array, right: Array) -> Array:
    """Solve one linear system or a stack of them.

    Return minimum-norm solutions if a matrix is singular.

    In this package, matrices are ``λI + K``, and K has no negative eigenvalues.  They are singular
    only if λ is lost to rounding.
    """
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(matrix) @ right)


def ridge(X: Array, y: Array, alpha: float) -> Array:
    """Return the minimiser of ``‖Xw − y‖² + alpha ‖w‖²``.

    Solve the smaller of the primal and dual systems.
    """
    n, d = X.shape
    if n < d:
        return X.T @ solve(X @ X.T + alpha * np.eye(n), y)
    return solve(X.T @ X + alpha * np.eye(d), X.T @ y)


def _row_sums(tasks: TaskSet, weights: Array) -> Array:
    """Return the sum of each task's rows with these weights (N,), (T, d)."""
    shape = len(tasks), len(weights)
    matrix = sparse.csr_array((weights, np.arange(len(weights)), tasks.offsets), shape=shape)
    return dense(matrix @ tasks.X)


@dataclass(eq=False, repr=False)
class CallableMap(FeatureMap):
    """``φ = function(s)``, a 1-D array, where s is the side information of a task.

    s is a 1-D array in the order of the columns, of objects if there are categories.  Unless
    ``needs_side_info`` is set, s is the task itself, with ``X``, ``y`` and ``label``, as in the
    paper's experiments.  For a function of both, derive a class from `FeatureMap`.

    With a ``d``, the function returns τ(s) (d, d), and φ has its entries, row by row; see
    `representation.Given`.
    """

    function: Callable[[Any], Any]
    needs_side_info: bool = False  # type: ignore[misc]
    d: int | None = None
    needs_rows = False

    def transform(self, tasks: TaskSet) -> Array:
        if self.needs_side_info:
            side_table(tasks)  # raises an error if there is none
        rows = []
        for task, label in zip(tasks, native(tasks.labels), strict=True):
            value = self.function(task.side_info if self.needs_side_info else task)
            rows.append(self._checked(value, f"task {label!r}"))
        if len(lengths := {len(row) for row in rows}) > 1:
            raise ValueError(
                "feature_map: the function must return vectors of one length; got "
                f"{sorted(lengths)}"
            )
        return np.array(rows)

    def _checked(self, value: Any, task: str) -> Array:
        if self.d is not None:
            return np.ravel(check_psd(value, f"tau of {task}", self.d))
        try:
            phi = np.atleast_1d(np.asarray(value, dtype=float))
        except (TypeError, ValueError):
            phi = np.empty((0, 0))
        if phi.ndim != 1:
            found = f"for {task} it returned {value!r}"
            raise ValueError(f"feature_map: the function must return a vector of numbers; {found}")
        return phi


#: Valid names of a learner's ``feature_map``, besides "auto".
FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    "mean": MeanEmbedding,
    "ridge": RidgeEstimate,
    "angle": AngleMap,
    "vector": SideVector,
}


def get_feature_map(spec: object, *, has_side_info: bool) -> FeatureMap:
    """Return the feature map for a learner's ``feature_map`` argument, not yet fitted.

    ``"auto"`` is "vector" if the tasks have side information and "ridge" otherwise.
    """
    others = "a FeatureMap or a callable"
    if isinstance(spec, str):
        auto = "vector" if has_side_info else "ridge"
        maps = FEATURE_MAPS | {"auto": FEATURE_MAPS[auto]}
        return maps[check_choice("feature_map", spec, maps, also=others)]()
    if isinstance(spec, FeatureMap):
        return copy(spec)
    if callable(spec):
        return CallableMap(spec, has_side_info)
    raise TypeError(
        f"feature_map: expected one of {sorted(FEATURE_MAPS)}, 'auto', or {others}; got "
        f"{type(spec).__name__}"
    )
