"""Within-task algorithms: one task's weights from its rows, given its representation theta.

With predictions ``o_i + <x_i, v>``, where the offset ``o`` is the prediction of a prior mean (0 without one),

    v(theta) = argmin over v in Ran(theta) of  P(v) = 1/n sum_i l(o_i + <x_i, v>, y_i) + 1/2 v' theta^+ v

The dual maximises ``D(a) = 1/n sum_i (a_i o_i - l*_i(a_i)) - a'Ka / (2 n^2)`` with ``K = X theta X'``. At its
solution ``v = -theta X'a/n``, and ``a_i`` is a subgradient of ``l(., y_i)`` at the prediction of row i.

- ``"exact"`` solves the pair and stops as soon as ``P(v) - D(a) <= tol * P(0)``.
- ``"online"`` is the paper's Eq. (online_inner_algorithm): one pass over the rows in their order, from
  ``w_1 = 0``, with ``s_i`` a subgradient at the prediction of ``w_i`` and
  ``w_{i+1} = (1 - 1/i) w_i - theta x_i s_i / i``; v is the mean of ``w_2 .. w_{n+1}``, and ``a = s``.

Arguments are taken as clean: finite, of matching shapes, theta symmetric positive semidefinite, targets in
the domain of the loss. Of sparse rows the caller passes the columns that are not zero throughout the task.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.validation import check_choice
from ..losses import Loss
from . import kernels as _kernels

Floats = NDArray[np.float64]
_FLOAT = np.dtype(np.float64)
_INTEGER = np.dtype(np.int64)

#: Valid values of ``inner``, each with its kernel for every family of conjugates (`Loss.dual`).
WITHIN: dict[str, dict[str, Callable[..., None]]] = {
    "exact": {
        "piecewise": _kernels.exact_piecewise,
        "smooth": _kernels.exact_smooth,
        "logit": _kernels.exact_logit,
    },
    "online": {
        "piecewise": _kernels.online_box,
        "smooth": _kernels.online_box,
        "logit": _kernels.online_logit,
    },
}

#: A gap below this fraction of the loss of predicting zero is small enough, whatever P(0) is.
ROUNDING = 1e-15

_COMPLAINT = {
    "exact": "stopped with a duality gap above tol times the objective at zero. Raise tol or max_iter, "
    "or bring theta and the features to a common scale.",
    "online": "overflowed: theta is too large for one pass with this loss. Scale it down.",
}


class WithinSolution(NamedTuple):
    """Solution of one task: v, a, P(v), the certificate P(v) - D(a) >= 0, and how the algorithm ended."""

    coef: Floats  # (d,)
    alpha: Floats  # (n,)
    value: float
    gap: float
    n_iter: int
    converged: bool


class WithinSolutions(NamedTuple):
    """Solutions of T tasks with N rows in all, in the order of the tasks."""

    coef: Floats  # (T, d)
    alpha: Floats  # (N,)
    value: Floats  # (T,)
    gap: Floats  # (T,)
    n_iter: NDArray[np.int64]  # (T,)
    converged: NDArray[np.bool_]  # (T,)


def solve(
    X: Floats,
    y: Floats,
    theta: Floats,
    loss: Loss,
    *,
    inner: str = "exact",
    offset: Floats | None = None,
    tol: float = 1e-8,
    max_iter: int = 1000,
    label: Any = None,
) -> WithinSolution:
    """Solve one task.

    Parameters
    ----------
    X, y : arrays (n, d), (n,)
        The rows; there may be none.
    theta : array (d, d)
        Positive semidefinite, of any rank.
    loss : Loss
    inner : {"exact", "online"}
    offset : array (n,), optional
        Predictions of the prior mean.
    tol, max_iter
        The exact algorithm stops when ``gap <= tol * P(0)``; if it has not after max_iter iterations, or if
        rounding keeps it from going on, it warns `ConvergenceWarning` unless the gap is `ROUNDING` beside the
        targets. Not read by "online".
    label : optional
        What the warning calls the task.
    """
    kernel, parameters = _kernel(inner, loss, y)
    out = _allocate(1, *X.shape)
    starts = np.array((0, len(X)))
    kernel(parameters, *_settings(inner, tol, max_iter), _problem(X, y, starts, theta, offset), out)
    coef, alpha, value, gap, n_iter, converged = out
    whose = "The" if label is None else f"Task {label!r}: the"
    if not (np.isfinite(gap[0]) and np.isfinite(coef).all()):
        raise ValueError(
            f"{whose} {inner} within-task algorithm went beyond what numbers hold: X has values up to "
            f"{np.abs(X).max(initial=0.0):.3g}, y up to {np.abs(y).max(initial=0.0):.3g}. Rescale them, or give a smaller "
            "representation"
        )
    if not converged[0] and gap[0] <= _rounding(loss, y):
        converged[0] = True
    if not converged[0]:
        message = f"{whose} {inner} within-task algorithm {_COMPLAINT[inner]} Gap: {gap[0]:.3g}."
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return WithinSolution(coef[0], alpha, value.item(), gap.item(), n_iter.item(), converged.item())


def solve_many(
    X: Floats,
    y: Floats,
    offsets: NDArray[np.int64],
    thetas: Floats,
    loss: Loss,
    *,
    inner: str = "exact",
    offset: Floats | None = None,
    tol: float = 1e-8,
    max_iter: int = 1000,
    n_jobs: int | None = None,
    labels: Sequence[Any] | NDArray[Any] | None = None,
    certify: bool = True,
) -> WithinSolutions:
    """Solve T tasks of any sizes; the digits of a task depend neither on the other tasks nor on n_jobs.

    Parameters
    ----------
    X, y : arrays (N, d), (N,)
        Task t has the rows ``offsets[t] : offsets[t + 1]``.
    offsets : array (T + 1,)
    thetas : array (T, d, d), or (d, d) for all tasks
    loss, inner, offset, tol, max_iter
        As in `solve`, with an offset for each of the N rows.
    n_jobs : int, optional
        Number of threads.
    labels : sequence of length T, optional
        What a warning calls the tasks; their positions by default.
    certify : bool, default=True
        Without it "online" leaves ``value`` and ``gap`` at zero, which is a third of its time.
    """
    kernel, parameters = _kernel(inner, loss, y)
    n_tasks = len(offsets) - 1
    rows, shift, starts, theta = _problem(X, y, offsets, thetas, offset)
    coef, alpha, *rest = out = _allocate(n_tasks, *X.shape)
    settings = _settings(inner, tol, max_iter, certify)

    def solve_part(first: int, stop: int) -> None:
        part = theta if len(theta) == 1 else theta[first:stop]
        problem = rows, shift, starts[first : stop + 1], part
        target = coef[first:stop], alpha, *(array[first:stop] for array in rest)
        kernel(parameters, *settings, problem, target)

    n_threads = min(effective_n_jobs(n_jobs), n_tasks)
    if n_threads > 1:
        # a few parts per thread even out tasks of different sizes
        edges = np.linspace(0, n_tasks, min(4 * n_threads, n_tasks) + 1).astype(int).tolist()
        Parallel(n_jobs=n_threads, require="sharedmem")(
            delayed(solve_part)(*part) for part in pairwise(edges)
        )
    else:
        solve_part(0, n_tasks)
    solutions = WithinSolutions(*out)
    for t in np.flatnonzero(~solutions.converged):
        solutions.converged[t] = solutions.gap[t] <= _rounding(loss, y[offsets[t] : offsets[t + 1]])
    if not solutions.converged.all():
        _warn(inner, solutions, range(n_tasks) if labels is None else labels)
    return solutions


def _rounding(loss: Loss, y: Floats) -> float:
    """A gap that is nothing beside the targets: where the prior mean predicts them perfectly, P(0) is rounding."""
    return ROUNDING * float(np.mean(loss.value(np.zeros(len(y)), y)))


def _kernel(inner: str, loss: Loss, y: Floats) -> tuple[Callable[..., None], tuple[Any, ...]]:
    kernels = WITHIN[check_choice("inner", inner, WITHIN)]
    return kernels[loss.dual], loss.dual_parameters(y)


def _settings(inner: str, tol: float, max_iter: int, certify: bool = True) -> tuple[Any, ...]:
    """What a kernel is told beside its data: one pass has no accuracy to ask for."""
    return (float(tol), int(max_iter)) if inner == "exact" else (bool(certify),)


def _problem(
    X: Floats, y: Floats, starts: NDArray[np.int64], thetas: Floats, offset: Floats | None
) -> tuple[NDArray[Any], ...]:
    if thetas.ndim == 2:
        thetas = thetas[None]
    elif thetas.strides[0] == 0:  # a theta broadcast over the tasks is still one theta
        thetas = thetas[:1]
    (n, d), n_tasks = X.shape, len(starts) - 1
    # the one check here: compiled code would read beyond the ends of arrays that do not match
    fits = len(y) == n >= starts[-1] and (offset is None or len(offset) == n)
    if not fits or thetas.shape[1:] != (d, d) or len(thetas) not in (1, n_tasks):
        shapes = f"X {X.shape}, y {y.shape}, thetas {thetas.shape}, offsets up to {starts[-1]}"
        raise ValueError(f"The shapes of {n_tasks} tasks do not match: {shapes}.")
    shift = _NO_OFFSET if offset is None else _frozen(offset)
    return _frozen(X), shift, _frozen(starts, _INTEGER), _frozen(thetas)


def _frozen(array: NDArray[Any], dtype: np.dtype[Any] = _FLOAT) -> NDArray[Any]:
    """The array as read-only and C-contiguous: compiled code then sees one type, whoever owns the memory."""
    if array.dtype != dtype or not array.flags.c_contiguous or type(array) is not np.ndarray:
        array = np.array(array, dtype=dtype, order="C", copy=None, subok=False)
    elif not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _allocate(n_tasks: int, n_rows: int, d: int) -> tuple[NDArray[Any], ...]:
    numbers = np.empty((2, n_tasks))
    n_iter, converged = np.empty(n_tasks, dtype=np.int64), np.empty(n_tasks, dtype=np.bool_)
    return np.empty((n_tasks, d)), np.empty(n_rows), numbers[0], numbers[1], n_iter, converged


# the kernels read a length of 0 as "no prior mean"
_NO_OFFSET = _frozen(np.empty(0))


def _warn(inner: str, solutions: WithinSolutions, labels: Sequence[Any] | NDArray[Any]) -> None:
    failed = np.flatnonzero(~solutions.converged)
    named = ", ".join(str(labels[t]) for t in failed[:5]) + (", ..." if len(failed) > 5 else "")
    message = (
        f"In {len(failed)} of {len(solutions.converged)} tasks ({named}) the {inner} within-task algorithm "
        f"{_COMPLAINT[inner]} Largest gap: {solutions.gap[failed].max():.3g}."
    )
    warnings.warn(message, ConvergenceWarning, stacklevel=3)
