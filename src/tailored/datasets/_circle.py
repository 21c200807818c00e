"""An environment whose weights follow a curve that the side information indexes: a circle, by default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from .._utils.validation import check_choice, check_int, check_nonnegative
from ..tasks import TaskSet
from ._clusters import orthogonal_bases, row_counts, streams

#: Coordinates in the plane of u and v, in units of the radius, of the point that s in [0, 1] indexes.
CURVES: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "circle": lambda s: (np.cos(2 * np.pi * s), np.sin(2 * np.pi * s)),
    "line": lambda s: (2 * s - 1, np.zeros_like(s)),
    "quadratic": lambda s: (2 * s - 1, (2 * s - 1) ** 2),
}


@dataclass(frozen=True)
class CircleTruth:
    """What `make_circle` drew and hid.

    Attributes
    ----------
    u, v : ndarray of shape (d,)
        Orthonormal vectors of the curve's plane.
    weights : ndarray of shape (T, d)
        Target vector of each task.
    s : ndarray of shape (T,)
        Where on the curve each task is: its side information.
    radius, spread, noise : float
    curve : str
    """

    u: np.ndarray
    v: np.ndarray
    weights: np.ndarray
    s: np.ndarray
    radius: float
    spread: float
    noise: float
    curve: str

    def mean(self, side_info: Any) -> np.ndarray:
        """Expected target vectors (T, d) at side information (T,) or (T, 1)."""
        return self.radius * _point(self.curve, side_info, np.stack([self.u, self.v]))


@overload
def make_circle(
    n_tasks: int = ...,
    *,
    n_features: int = ...,
    n_rows: int | tuple[int, int] = ...,
    radius: float = ...,
    spread: float = ...,
    noise: float = ...,
    curve: str = ...,
    random_state: Any = ...,
    return_truth: Literal[False] = ...,
) -> TaskSet: ...
@overload
def make_circle(
    n_tasks: int = ...,
    *,
    n_features: int = ...,
    n_rows: int | tuple[int, int] = ...,
    radius: float = ...,
    spread: float = ...,
    noise: float = ...,
    curve: str = ...,
    random_state: Any = ...,
    return_truth: Literal[True],
) -> tuple[TaskSet, CircleTruth]: ...
def make_circle(
    n_tasks: int = 400,
    *,
    n_features: int = 10,
    n_rows: int | tuple[int, int] = 20,
    radius: float = 4.0,
    spread: float = 0.3,
    noise: float = 0.5,
    curve: str = "circle",
    random_state: Any = None,
    return_truth: bool = False,
) -> TaskSet | tuple[TaskSet, CircleTruth]:
    """Draw regression tasks whose target vectors lie around a curve, at a place that is told.

    A task has side information s, uniform on [0, 1], and the target vector
    ``w = radius (cos 2πs u + sin 2πs v) + spread N(0, I)`` with orthonormal u and v; its rows are
    ``y = <x, w> + noise * N(0, 1)`` with `x` standard normal. Side information says almost everything about
    w, but nothing that is linear in it: features of s that bend are needed.

    Parameters
    ----------
    n_tasks : int
        Number of tasks, T.
    n_features : int
        Dimension d, at least 2.
    n_rows : int or (int, int)
        Rows per task; a pair draws each task's number uniformly from ``low`` to ``high``, both included.
    radius : float
        Of the circle, in the units of the target vectors.
    spread : float
        Standard deviation of each coordinate of w around the curve.
    noise : float
        Standard deviation of the noise on `y`.
    curve : {"circle", "line", "quadratic"}
        With ``c = 2s - 1``, "line" is ``radius c u`` and "quadratic" ``radius (c u + c² v)``.
    random_state : int, Generator, RandomState or None
        The seed. The plane, tasks and rows have a stream each, so that with one seed the same places come with
        any other option. None draws fresh entropy; NumPy's global state is never used.
    return_truth : bool
        Also return what was hidden.

    Returns
    -------
    tasks : TaskSet
        With labels 0 to T - 1 and one column of side information, "s".
    truth : CircleTruth
        Only when `return_truth` is True.

    Examples
    --------
    >>> from tailored.datasets import make_circle
    >>> tasks, truth = make_circle(30, random_state=0, return_truth=True)
    >>> tasks.X.shape, tasks.side_info.shape, truth.weights.shape
    ((600, 10), (30, 1), (30, 10))
    """
    n_tasks, d = check_int("n_tasks", n_tasks), check_int("n_features", n_features, minimum=2)
    radius, spread, noise = (
        check_nonnegative(name, value)
        for name, value in (("radius", radius), ("spread", spread), ("noise", noise))
    )
    check_choice("curve", curve, CURVES)
    for_plane, for_tasks, for_rows = streams(random_state, 3)

    plane = orthogonal_bases(for_plane, 1, d, 2)[0].T
    s = for_tasks.random(n_tasks)
    weights = radius * _point(curve, s, plane) + spread * for_tasks.standard_normal((n_tasks, d))
    sizes = row_counts(for_tasks, n_rows, n_tasks)

    groups = np.repeat(np.arange(n_tasks), sizes)
    X = for_rows.standard_normal((len(groups), d))
    y = np.einsum("nd,nd->n", X, weights[groups]) + noise * for_rows.standard_normal(len(groups))

    tasks = TaskSet(X, y, groups, side_info={t: {"s": place} for t, place in enumerate(s.tolist())})
    u, v = plane.copy()
    truth = CircleTruth(u, v, weights, s, radius, spread, noise, curve)
    return (tasks, truth) if return_truth else tasks


def _point(curve: str, s: Any, plane: np.ndarray) -> np.ndarray:
    """Points (T, d) of the curve of radius 1 in the plane (2, d)."""
    return np.stack(CURVES[curve](np.asarray(s, dtype=np.float64).reshape(-1)), axis=1) @ plane
