"""(Prior, one task) -> its weights and representation, and the same again when further rows come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from . import wide, within
from ._utils.records import Record
from ._utils.validation import check_cone, check_int, check_nonnegative, check_shape
from .adapting import features, left_to_tasks
from .gaussian import Moments
from .prior import Prior
from .representation import LowRank
from .tasks import TaskSet
from .tasks.rows import dense

Array = NDArray[np.float64]

#: Rows, in numbers of columns, from which a triangle of the same second moments is kept instead of them.
MOST_ROWS = 8


@dataclass(frozen=True)
class OneTask(Record):
    """A task that a prior was adapted to, in the units of the prior.

    Attributes
    ----------
    prior : Prior
    given : TaskSet or None
        The task as it was given, where it takes its rows to add others to them; None where second moments will do.
    X, y : arrays (m, d), (m,)
        Rows with the second moments of the task's ``n_rows`` rows, targets less the common part: these rows themselves,
        or a triangle.
    side : array (1, q) or None
        v(s), where ``given`` is None.
    described : array (1, k) or None
        What the common part reads of the task's description, where there is one.
    theta, mean, weights : arrays (d, d), (d,), (d,)
        θ, b(s) (None: zero) and w.
    gap, n_iter
        Of the solution.
    open : FactorSpreads or None
        Under a prior of many columns, what spreads are computed from: no θ is formed, and neither X nor y are kept.
    """

    prior: Prior
    given: TaskSet | None
    X: Array
    y: Array
    n_rows: int
    side: Array | None
    described: Array | None
    theta: Array | None
    mean: Array | None
    weights: Array
    gap: float
    n_iter: int
    open: wide.FactorSpreads | None = None

    def common(self, X: Any) -> Array | None:
        """The common part at further rows of the task; None where there is none."""
        if self.described is None:
            return None
        assert self.prior.common is not None
        return self.prior.common.predict(X, np.repeat(self.described, X.shape[0], axis=0))

    def restore(self) -> None:
        prior, d = self.prior, len(self.prior.units.columns)
        check_int("n_rows", self.n_rows, 0)
        check_int("n_iter", self.n_iter, 0)
        check_nonnegative("gap", self.gap)
        check_shape("weights", self.weights, d)
        if isinstance(prior.conditioning, LowRank):
            if self.given is None or self.open is None or self.theta is not None or self.mean is not None:
                raise ValueError("open: a prior of many columns needs the rows of the task and its spreads")
            q = prior.conditioning.factors.shape[1]
            check_shape("open.covariances", self.open.covariances, 1, q, q)
            check_shape("X", self.X, 0, 0)
        else:
            if self.theta is None or self.open is not None:
                raise ValueError("theta: is missing")
            check_shape("theta", self.theta, d, d)
            check_cone("theta", self.theta)
            check_shape("X", self.X, None, d)
            if self.mean is not None:
                check_shape("mean", self.mean, d)
        check_shape("y", self.y, len(self.X))
        if len(self.y) > self.n_rows:
            raise ValueError(f"n_rows: is {self.n_rows}, but there are {len(self.y)} rows")
        if self.given is None and prior.closed_form is None:
            raise ValueError("given: the prior needs the rows of the task")
        if self.given is not None and (len(self.given), self.given.X.shape) != (
            1,
            (self.n_rows, d - prior.fit_intercept),
        ):
            raise ValueError("given: must be one task with the rows and columns of the model")
        if (prior.common is None) != (self.described is None):
            raise ValueError("described: must be there if the prior has a common part")
        if self.described is not None:
            check_shape("described", self.described, 1, None)
        if self.side is not None:
            model = getattr(prior.feature_map, "model", None)
            features = getattr(model, "side", None)
            check_shape("side", self.side, 1, 0 if features is None else len(features.mean))


def one_task(prior: Prior, task: TaskSet) -> OneTask:
    """Adapt a prior to a set of one task, which may have no rows."""
    left, closed = left_to_tasks(prior, task), prior.closed_form
    described = None if prior.common is None else prior.common.describe(task)
    if wide.is_wide(prior):
        found, none = wide.adapt(prior, left), np.zeros((0, 0))
        return OneTask(
            prior, _own(task), none, none.ravel(), len(left.y), None, described, None, None, found.weights[0], 0.0, 0,
            found.of_rows,
        )  # fmt: skip
    X, y = prior.units.dense(left.X), prior.units.targets(left.y)
    if closed is not None:
        given = _own(task) if closed.needs_rows else None
        return _in_closed_form(prior, given, _own_rows(X, y), len(y), closed.side(left), described)
    theta, mean = _prior_of(prior, left)
    solution = within.solve(
        X,
        y,
        theta,
        prior.loss,
        inner=prior.inner,
        offset=None if mean is None else X @ mean,
        tol=prior.tol,
        max_iter=prior.max_iter,
    )
    weights = solution.coef if mean is None else solution.coef + mean
    rows = X.copy(), y.copy()
    return OneTask(
        prior, _own(task), *rows, len(y), None, described, theta, mean, weights, solution.gap, solution.n_iter
    )


def with_rows(one: OneTask, X: Any, y: Array) -> OneTask:
    """The same task with further rows, in the user's units."""
    prior = one.prior
    if one.given is not None:
        return one_task(prior, _extended(one.given, X, y))
    common = one.common(X)
    left = y if common is None else y - common
    rows = np.concatenate([one.X, prior.units.dense(X)]), np.concatenate([one.y, prior.units.targets(left)])
    n_rows = one.n_rows + len(y)
    return _in_closed_form(prior, None, _triangle(*rows), n_rows, one.side, one.described)


def representation(prior: Prior, task: TaskSet) -> Array:
    """θ = n^p τ(s) of a set of one task, in the units of the prior."""
    return _prior_of(prior, left_to_tasks(prior, task))[0]


def _prior_of(prior: Prior, left: TaskSet) -> tuple[Array, Array | None]:
    """θ and b(s) of a set of one task."""
    phi = features(prior, left, one=True)[0]
    theta = prior.conditioning(phi)
    if prior.size_exponent:
        theta = theta * float(max(len(left.y), 1) ** prior.size_exponent)
    return theta, prior.bias(phi) if prior.bias.moves else None


def _in_closed_form(
    prior: Prior,
    given: TaskSet | None,
    rows: tuple[Array, Array],
    n_rows: int,
    side: Array | None,
    described: Array | None,
) -> OneTask:
    X, y = rows
    gram, cross = X.T @ X, y @ X
    statistics = Moments(gram[None], cross[None], np.array([y @ y]), np.array([float(n_rows)]), side)
    closed = prior.closed_form
    assert closed is not None
    solved = closed.solve(statistics, means=True)
    w, b, tau = solved.weights[0], solved.means[0], closed.taus(solved.shares)[0]
    # With u = Xᵀ(y − Xw) the dual is −½ uᵀτu + .., and its distance from the objective is this square.
    missed = gram @ (b + tau @ (cross - gram @ w) - w)
    gap = 0.5 * float(missed @ tau @ missed) / max(n_rows, 1)
    if not math.isfinite(gap * prior.units.target**2):
        j = int(np.argmax(np.abs(X).max(axis=0, initial=0.0)))
        raise ValueError(
            f"X: column {j} has values so much larger than those of fit that the task cannot be solved to any digit; "
            "drop those rows, or give them in the units of fit"
        )
    theta = tau * float(max(n_rows, 1))
    mean = b if prior.bias.moves else None
    return OneTask(prior, given, X, y, n_rows, side, described, theta, mean, w, max(gap, 0.0), 1)


def _own_rows(X: Array, y: Array) -> tuple[Array, Array]:
    """Rows that nobody else has: the user may change his before asking for intervals."""
    return (X.copy(), y.copy()) if len(y) <= MOST_ROWS * (X.shape[1] + 1) else _triangle(X, y)


def _triangle(X: Array, y: Array) -> tuple[Array, Array]:
    """At most d + 1 rows with the same XᵀX, Xᵀy and yᵀy, where there are many more."""
    if len(y) <= 2 * (X.shape[1] + 1):
        return X, y
    R = np.asarray(np.linalg.qr(np.column_stack([X, y]), mode="r"))
    return np.ascontiguousarray(R[:, :-1]), np.ascontiguousarray(R[:, -1])


def _own(task: TaskSet) -> TaskSet:
    """The task with arrays of its own."""
    return task.replace(X=task.X.copy(), y=task.y.copy(), encoding=None)


def _extended(task: TaskSet, X: Any, y: Array) -> TaskSet:
    if task.is_sparse:
        stacked = sparse.vstack([task.X, sparse.csr_array(X)], format="csr")
    else:
        stacked = np.concatenate([task.X, dense(X)])
    targets = np.concatenate([task.y, y])
    return task.replace(X=stacked, y=targets, offsets=np.array([0, len(targets)]), encoding=None)
