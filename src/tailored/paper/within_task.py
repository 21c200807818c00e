"""Within-task algorithms: estimate the weights of a task from its rows, given its representation theta.

With predictions ``o_i + <x_i, v>``, where the offset ``o`` is the prediction of a prior mean (0 without one),

    v(theta) = argmin over v in Ran(theta) of  P(v) = 1/n sum_i l(o_i + <x_i, v>, y_i) + 1/2 v' theta^+ v

The dual maximises ``D(a) = 1/n sum_i (a_i o_i - l*_i(a_i)) - a'Ka / (2 n^2)`` with ``K = X theta X'``. At its
solution ``v = -theta X'a/n``, and ``a_i`` is a subgradient of ``l(., y_i)`` at the prediction of row i.

- ``"exact"`` solves the primal and the dual problem, and stops when ``P(v) - D(a) <= tol * P(0)``.
- ``"online"`` is the paper's Eq. (online_inner_algorithm): one pass over the rows in their order, from
  ``w_1 = 0``, with ``s_i`` a subgradient at the prediction of ``w_i`` and
  ``w_{i+1} = (1 - 1/i) w_i - theta x_i s_i / i``; v is the mean of ``w_2 .. w_{n+1}``, and ``a = s``.

Only shapes are checked: values must be finite, theta symmetric positive semidefinite, and targets in the domain of
the loss. For sparse rows, the caller passes only the columns with a non-zero entry in the task.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.validation import check_choice, name_some
from ..losses import Loss
from ..tasks.rows import frozen
from . import kernels

Floats = NDArray[np.float64]

#: Valid values of ``inner``.
WITHIN = ("exact", "online")

#: A gap below this fraction of the loss of predicting zero is always accepted, because it is a rounding error.
ROUNDING = 1e-15

_FAILURE = {
    "exact": "stopped with a duality gap above tol times the objective at zero. Raise tol or max_iter, "
    "or bring theta and the features to a common scale.",
    "online": "overflowed in its objective: theta is too large for one pass with this loss. Scale it down.",
}


class WithinTaskOverflowError(ValueError, OverflowError):
    """The weights or the duality gap of a task exceed the largest float."""


class WithinSolution(NamedTuple):
    """Solutions of T tasks with N rows in total; for one task the axis of length T is absent."""

    coef: Floats  # v, (T, d)
    alpha: Floats  # a, (N,)
    value: Any  # P(v), (T,)
    gap: Any  # the duality gap P(v) - D(a) >= 0, (T,)
    n_iter: Any  # (T,)
    converged: Any  # (T,)


def solve(
    X: Floats,
    y: Floats,
    theta: Floats,
    loss: Loss,
    *,
    inner: str = "exact",
    label: Any = None,
    **more: Any,
) -> WithinSolution:
    """Solve one task with rows X (n, d) and theta (d, d).  Messages contain its ``label``; ``more`` is for `solve_many`."""
    labels = None if label is None else [label]
    starts = np.array((0, len(X)))
    solution = solve_many(X, y, starts, theta, loss, inner=inner, labels=labels, warn=False, **more)
    coef, alpha, value, gap, n_iter, converged = solution
    if not converged[0]:
        message = (
            f"{_name(labels, 0)} {inner} within-task algorithm {_FAILURE[inner]} Gap: {gap[0]:.3g}."
        )
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return WithinSolution(coef[0], alpha, value.item(), gap.item(), n_iter.item(), converged.item())


def solve_many(
    X: Floats,
    y: Floats,
    starts: NDArray[np.int64],
    thetas: Floats,
    loss: Loss,
    *,
    inner: str = "exact",
    offset: Floats | None = None,
    tol: float = 1e-8,
    max_iter: int = 1000,
    n_jobs: int | None = None,
    labels: Sequence[Any] | NDArray[Any] | None = None,
    warn: bool = True,
) -> WithinSolution:
    """Solve T tasks of any sizes.  The solution of a task does not depend on the other tasks or on n_jobs.

    Task t has the rows ``starts[t] : starts[t + 1]`` of X (N, d) and y (N,), possibly none.  ``thetas`` is (T, d, d), or
    (d, d) for all tasks, of any rank.  ``offset`` (N,) has the predictions of the prior mean, and ``labels`` are the names
    of the tasks in warnings.

    The exact algorithm stops when ``gap <= tol * P(0)``, after max_iter iterations, or if only rounding errors are left.  With
    ``warn``, a `ConvergenceWarning` names tasks whose gap exceeds both ``tol * P(0)`` and rounding errors (see `ROUNDING`).
    Weights or gaps beyond the largest float raise `WithinTaskOverflowError`.
    """
    check_choice("inner", inner, WITHIN)
    starts = frozen(starts, np.int64)
    if thetas.ndim == 2:
        thetas = thetas[None]
    elif thetas.strides[0] == 0:  # one theta broadcast over the tasks
        thetas = thetas[:1]
    (n, d), n_tasks = X.shape, len(starts) - 1
    _check_shapes(X, y, starts, thetas, offset)
    # the kernels interpret an offset of length 0 as "no prior mean"
    shift = frozen(np.empty(0) if offset is None else offset)
    rows, thetas = frozen(X), frozen(thetas)
    kernel = kernels.online
    if inner == "exact":
        exact = kernels.exact_piecewise if loss.piecewise_linear else kernels.exact_smooth
        kernel = partial(exact, float(tol), int(max_iter))
    # Ratios of subnormal numbers can overflow, so subnormal targets are set to zero.
    parameters = tuple(loss.dual_box(np.where(np.abs(y) < np.finfo(float).tiny, 0.0, y)))
    value, gap = np.zeros((2, n_tasks))
    n_iter, converged = np.zeros(n_tasks, dtype=np.int64), np.ones(n_tasks, dtype=np.bool_)
    out = np.zeros((n_tasks, d)), np.empty(n), value, gap, n_iter, converged

    def solve_part(first: int, stop: int) -> None:
        own = thetas if len(thetas) == 1 else thetas[first:stop]
        target = out[0][first:stop], out[1], *(array[first:stop] for array in out[2:])
        kernel(parameters, (rows, shift, starts[first : stop + 1], own), target)

    _in_parts(solve_part, n_tasks, n_jobs)
    if not (np.isfinite(out[0]).all() and np.isfinite(gap).all()):
        first = int(np.argmin(np.isfinite(out[0]).all(axis=1) & np.isfinite(gap)))
        of_task = slice(starts[first], starts[first + 1])
        largest = [np.abs(values[of_task]).max(initial=0.0) for values in (X, y)]
        raise WithinTaskOverflowError(
            f"{_name(labels, first)} {inner} within-task algorithm overflowed: X has values up to {largest[0]:.3g}, y up to "
            f"{largest[1]:.3g}. Rescale them, or use a smaller representation."
        )
    for t in np.flatnonzero(~converged):
        converged[t] = gap[t] <= _rounding(loss, y[starts[t] : starts[t + 1]])
    if warn and not converged.all():
        names = np.arange(n_tasks) if labels is None else np.asarray(labels)
        _warn_about(names[~converged], gap[~converged], n_tasks, inner)
    return WithinSolution(*out)


def _check_shapes(
    X: Floats, y: Floats, starts: NDArray[np.int64], thetas: Floats, offset: Floats | None
) -> None:
    """Raise ValueError if the arrays do not match: compiled code would read out of bounds."""
    (n, d), n_tasks = X.shape, len(starts) - 1
    fits = len(y) == n >= starts[-1] and (offset is None or len(offset) == n)
    if not fits or thetas.shape[1:] != (d, d) or len(thetas) not in (1, n_tasks):
        shapes = f"X {X.shape}, y {y.shape}, thetas {thetas.shape}, starts up to {starts[-1]}"
        raise ValueError(f"The shapes of {n_tasks} tasks do not match: {shapes}.")


def _name(labels: Sequence[Any] | NDArray[Any] | None, t: int) -> str:
    """Return the subject of a message about task ``t``."""
    return "The" if labels is None else f"Task {name_some(labels[t : t + 1])}: the"


def _rounding(loss: Loss, targets: Floats) -> float:
    """Return the gap that rounding can cause; P(0) itself is a rounding error if the prior mean predicts the targets exactly."""
    return ROUNDING * float(np.mean(loss.value(np.zeros(len(targets)), targets)))


def _warn_about(failed: NDArray[Any], gaps: Floats, n_tasks: int, inner: str) -> None:
    """Warn that the tasks with the labels ``failed`` were not solved accurately."""
    tasks = f"In {len(failed)} of {n_tasks} tasks ({name_some(failed, 5)}) the {inner} within-task algorithm"
    message = f"{tasks} {_FAILURE[inner]} Largest gap: {gaps.max():.3g}."
    warnings.warn(message, ConvergenceWarning, stacklevel=3)


def _in_parts(solve_part: Callable[[int, int], None], n_tasks: int, n_jobs: int | None) -> None:
    """Call ``solve_part(first, stop)`` for parts of the tasks, in threads."""
    n_threads = 1 if n_jobs is None and n_tasks == 1 else min(effective_n_jobs(n_jobs), n_tasks)
    if n_threads <= 1:
        solve_part(0, n_tasks)
        return
    # several parts per thread balance tasks of different sizes
    edges = np.linspace(0, n_tasks, min(4 * n_threads, n_tasks) + 1).astype(int).tolist()
    parallel = Parallel(n_jobs=n_threads, require="sharedmem")
    parallel(delayed(solve_part)(*part) for part in pairwise(edges))
