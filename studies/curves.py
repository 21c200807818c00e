"""Tasks whose weight vectors lie around a curve; the side information is the position on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tailored._utils.validation import RandomState, check_choice
from tailored.datasets import orthogonal_bases, row_counts, streams
from tailored.tasks.task_set import TaskSet

#: Functions of s in [0, 1] that return the point of the curve: its coordinates along u and v,
#: divided by the radius.
CURVES: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "circle": lambda s: (np.cos(2 * np.pi * s), np.sin(2 * np.pi * s)),
    "quadratic": lambda s: (2 * s - 1, (2 * s - 1) ** 2),
}


@dataclass(frozen=True)
class CircleTruth:
    """The hidden parameters of `make_circle`."""

    plane: np.ndarray  # (2, d) orthonormal vectors u and v that span the plane of the curve
    weights: np.ndarray  # (T, d) weight vector of each task
    s: np.ndarray  # (T,) position of each task on the curve, which is its side information
    radius: float
    spread: float
    noise: float
    curve: str

    def mean(self, side_info: ArrayLike) -> np.ndarray:
        """Return the expected weight vectors (T, d) for side information (T,) or (T, 1)."""
        return self.radius * _point(self.curve, side_info, self.plane)


def make_circle(
    n_tasks: int = 400,
    *,
    n_features: int = 10,
    n_rows: int | tuple[int, int] = 20,
    radius: float = 4.0,
    spread: float = 0.3,
    noise: float = 0.5,
    curve: str = "circle",
    random_state: RandomState = None,
    return_truth: bool = False,
) -> Any:
    """Draw regression tasks whose weight vectors lie around a curve, as `make_clusters` does around
    subspaces.

    The side information s is uniform on [0, 1]. For the circle, the weight vector is ``w = radius
    (cos 2πs u + sin 2πs v) + spread N(0, I)`` with orthonormal u and v, and targets are ``y = <x,
    w> + noise * N(0, 1)`` with `x` standard normal. For "quadratic", it is ``radius (c u + c² v)``
    with c = 2s - 1.
    """
    check_choice("curve", curve, CURVES)
    for_plane, for_tasks, for_rows = streams(random_state, 3)
    plane = orthogonal_bases(for_plane, 1, n_features, 2)[0].T
    s = for_tasks.random(n_tasks)
    deviations = for_tasks.standard_normal((n_tasks, n_features))
    weights = radius * _point(curve, s, plane) + spread * deviations
    groups = np.repeat(np.arange(n_tasks), row_counts(for_tasks, n_rows, n_tasks))
    X = for_rows.standard_normal((len(groups), n_features))
    y = np.einsum("nd,nd->n", X, weights[groups]) + noise * for_rows.standard_normal(len(groups))
    side: Any = {t: {"s": place} for t, place in enumerate(s.tolist())}
    truth = CircleTruth(plane, weights, s, radius, spread, noise, curve)
    tasks = TaskSet(X, y, groups, side_info=side)
    return (tasks, truth) if return_truth else tasks


def _point(curve: str, s: ArrayLike, plane: np.ndarray) -> np.ndarray:
    """Return the points (T, d) at positions s on the curve of radius 1 in the plane (2, d)."""
    return np.stack(CURVES[curve](np.asarray(s, dtype=np.float64).reshape(-1)), axis=1) @ plane
