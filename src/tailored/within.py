"""Within-task algorithms A(θ, Z): a task's rows and a representation in, its weights out.

    v = argmin over v in Ran(θ) of  1/n Σ ℓ(o_i + <x_i, v>, y_i) + ½ vᵀ θ† v        (Eq. RERM_feature)

o is an optional offset, the prediction of a prior mean b; the task's weights are then b + v.  Dual:
maximise ``-1/n Σ (ℓ*_i(α_i) − α_i o_i) − αᵀKα / (2n²)``, K = X θ Xᵀ, and ``v = −θ Xᵀα / n``: θ† is never
formed, so that singular and zero θ need no special case.

`exact` stops when ``gap <= tol * P(0)``, the gap being primal minus dual value and P(0) the objective at
v = 0.  `online` is the paper's one-pass variant (Eq. online_inner_algorithm): the estimate is the mean of
w_2 .. w_{n+1}, and α holds the subgradients it met, which are dual feasible and so give a gap as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from . import _kernels
from .losses import Logistic, Loss

Array = NDArray[np.float64]

#: Valid values of ``inner``: for each the kernel of the losses with a dual box, and that of the logistic loss.
WITHIN: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "exact": (_kernels.exact_box, _kernels.exact_logit),
    "online": (_kernels.online_box, _kernels.online_logit),
}


class WithinSolution(NamedTuple):
    """The solution of one task.

    ``coef`` (d,) is v; ``alpha`` (n,) the dual variables; ``value`` the objective at v with its
    regulariser; ``gap`` the certificate, at least 0.
    """

    coef: Array
    alpha: Array
    value: float
    gap: float
    n_iter: int
    converged: bool


class WithinSolutions(NamedTuple):
    """Solutions of T tasks with N rows in all: ``coef`` (T, d), ``alpha`` (N,), the others (T,)."""

    coef: Array
    alpha: Array
    value: Array
    gap: Array
    n_iter: NDArray[np.int64]
    converged: NDArray[np.bool_]


def solve(
    X: Array,
    y: Array,
    theta: Array,
    loss: Loss,
    *,
    inner: str = "exact",
    offset: Array | None = None,
    tol: float = 1e-8,
    max_iter: int = 1000,
) -> WithinSolution:
    """Solve one task: ``X`` (n, d), ``y`` (n,), ``theta`` (d, d) positive semidefinite."""
    starts = np.array([0, len(y)])
    many = _solve(X, y, starts, theta, loss, inner, offset, tol, max_iter)
    _warn(many.converged, many.gap, tol)
    return WithinSolution(
        many.coef[0],
        many.alpha,
        float(many.value[0]),
        float(many.gap[0]),
        int(many.n_iter[0]),
        bool(many.converged[0]),
    )


def solve_many(
    X: Array,
    y: Array,
    offsets: NDArray[np.int64],
    thetas: Array,
    loss: Loss,
    *,
    inner: str = "exact",
    offset: Array | None = None,
    tol: float = 1e-8,
    max_iter: int = 1000,
    n_jobs: int | None = None,
) -> WithinSolutions:
    """Solve many tasks of any sizes, none of which depends on its company.

    Parameters
    ----------
    X, y : arrays (N, d), (N,)
        Rows of task t are ``offsets[t] : offsets[t + 1]``; a task may have none.
    offsets : array (T + 1,)
    thetas : array (T, d, d), or (d, d) for all tasks
    loss : Loss
    inner : {"exact", "online"}
    offset : array (N,), optional
        Predictions of the prior mean.
    tol, max_iter
        See the module's text; not read by "online".
    n_jobs : int, optional
        Threads; the result does not depend on it.
    """
    n_tasks = len(offsets) - 1
    n_parts = min(joblib.effective_n_jobs(n_jobs), n_tasks) if n_jobs is not None else 1
    if n_parts <= 1:
        solution = _solve(X, y, offsets, thetas, loss, inner, offset, tol, max_iter)
    else:
        bounds = np.linspace(0, n_tasks, n_parts + 1).astype(int)
        parts = joblib.Parallel(n_jobs=n_parts, prefer="threads")(
            joblib.delayed(_solve_part)(a, b, X, y, offsets, thetas, loss, inner, offset, tol, max_iter)
            for a, b in zip(bounds[:-1], bounds[1:], strict=True)
        )
        solution = WithinSolutions(*[np.concatenate(column) for column in zip(*parts, strict=True)])
    _warn(solution.converged, solution.gap, tol)
    return solution


def _solve_part(
    first: int,
    last: int,
    X: Array,
    y: Array,
    offsets: NDArray[np.int64],
    thetas: Array,
    loss: Loss,
    inner: str,
    offset: Array | None,
    tol: float,
    max_iter: int,
) -> WithinSolutions:
    """Tasks first .. last - 1."""
    starts = offsets[first : last + 1]
    rows = slice(starts[0], starts[-1])
    return _solve(
        X[rows],
        y[rows],
        starts - starts[0],
        thetas if thetas.ndim == 2 else thetas[first:last],
        loss,
        inner,
        None if offset is None else offset[rows],
        tol,
        max_iter,
    )


def _solve(
    X: Array,
    y: Array,
    starts: NDArray[np.int64],
    thetas: Array,
    loss: Loss,
    inner: str,
    offset: Array | None,
    tol: float,
    max_iter: int,
) -> WithinSolutions:
    n_tasks, (n_rows, d) = len(starts) - 1, X.shape
    if offset is None:
        offset = np.zeros(n_rows)
    thetas = thetas.reshape(-1, d, d)
    solution = WithinSolutions(
        np.empty((n_tasks, d)),
        np.empty(n_rows),
        np.empty(n_tasks),
        np.empty(n_tasks),
        np.empty(n_tasks, dtype=np.int64),
        np.empty(n_tasks, dtype=np.bool_),
    )
    problem = (_frozen(X), _frozen(offset), _frozen(starts, np.int64), _frozen(thetas))
    box, logit = WITHIN[inner]
    if isinstance(loss, Logistic):
        logit((_frozen(y),), float(tol), int(max_iter), problem, tuple(solution))
    else:
        linear, lower, upper, quadratic, kink = loss.dual_box(y)  # type: ignore[attr-defined]
        parameters = (_frozen(linear), _frozen(lower), _frozen(upper), float(quadratic), float(kink))
        box(parameters, float(tol), int(max_iter), problem, tuple(solution))
    return solution


def _frozen(array: Any, dtype: Any = np.float64) -> Any:
    """A read-only C-contiguous view: compiled code then sees one type, whoever owns the array."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view


def _warn(converged: NDArray[np.bool_], gap: Array, tol: float) -> None:
    if not converged.all():
        failed = np.flatnonzero(~converged)
        warnings.warn(
            f"{len(failed)} of {len(converged)} tasks did not reach gap <= tol * P(0) with tol={tol:g} (first: "
            f"number {failed[0]}, gap {gap[failed[0]]:.3g}); raise max_iter or tol, or scale the inputs",
            ConvergenceWarning,
            stacklevel=3,
        )
