"""How well the mean of a model is known, and the weights of a task: generalised least squares, given W and σ².

A task's targets have the covariance ``V = XWXᵀ + σ²I`` about ``X (b + Γ v(s))``.  So the information in all tasks about b
and Γ is the sum of ``DᵀXᵀV⁻¹XD``, where D makes a task's prior mean of the two, and the error of a task's own
estimate is what its rows leave open plus what is open about its prior mean:

    Var(ŵ − w) = (XᵀX/σ² + W⁻¹)⁻¹ + R D Cov(b, Γ) Dᵀ Rᵀ ,    R = (I + WXᵀX/σ²)⁻¹ .
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from .._utils.records import MAY_BE_NAN, Record
from .._utils.validation import check_shape
from .mixture import Mixture
from .moments import Want, influence
from .rows import Tasks
from .side import SideForm

Array = NDArray[np.float64]

#: Numbers of b and Γ whose errors are computed together; of more, Γ is taken as known.
MOST_TOGETHER = 400
#: Floats of d × d matrices at a time.
BATCH_FLOATS = 4_000_000
#: Directions in which tasks say less than this part of what they say in the best known one are unknown.
UNKNOWN = 1e-10
#: Precision of what is known, in the units of the prior.
KNOWN = 1e100


@dataclass(frozen=True)
class MeanCovariance(Record):
    """Covariance (p, p) of the error of entries of (b, Γ): the weights ``row`` (p,) and, in ``column`` (p,), 0 for b and
    1 + f for feature f.  NaN where tasks say nothing.
    """

    row: NDArray[np.intp]
    column: NDArray[np.intp]
    covariance: Annotated[Array, MAY_BE_NAN]

    def __post_init__(self) -> None:
        p = len(self.row)
        check_shape("row", self.row, p)
        check_shape("column", self.column, p)
        check_shape("covariance", self.covariance, p, p)
        if (self.row < 0).any() or (self.column < 0).any():
            raise ValueError("row: positions must not be negative")

    def of(self, d: int, column: int) -> Array:
        """The covariance (d, d) of one column of (b, Γ); zero where it was not estimated."""
        found, here = np.zeros((d, d)), np.flatnonzero(self.column == column)
        found[np.ix_(self.row[here], self.row[here])] = self.covariance[np.ix_(here, here)]
        return found

    def at(self, d: int, side: Array | None, n_tasks: int) -> Array:
        """The covariance (T, d, d) of the prior means ``b + Γ v`` of tasks."""
        u = np.ones((n_tasks, 1)) if side is None else np.hstack([np.ones((n_tasks, 1)), side])
        D = np.zeros((n_tasks, d, len(self.row)))
        D[:, self.row, np.arange(len(self.row))] = u[:, self.column]
        known = np.nan_to_num(self.covariance)
        return np.asarray(D @ known @ D.transpose(0, 2, 1))


def as_one(model: Mixture) -> Mixture:
    """The model as one Gaussian with the mean and covariance of its components together."""
    if model.n_components == 1:
        return replace(model, gates=None)
    mean, covariance = model.moments()
    return Mixture(np.ones(1), mean[None], covariance[None], model.noise, model.side)


def mean_covariance(
    model: Mixture,
    statistics: Tasks,
    *,
    learn_mean: bool,
    side: SideForm | None = None,
    n_linear: int = 0,
    repeated: float = 1.0,
    times: float = 1.0,
) -> MeanCovariance | None:
    """Of b and Γ as they were estimated from ``repeated`` as many tasks like these; None where nothing was.

    Of b, from ``times`` as many again (`tailored.gaussian.forms.refine` leaves Γ as it is).  The penalty on Γ is the prior
    that it stands for (`fit_side`), so that the error of a Γ that is shrunk to zero is the size it could have.
    """
    model, d = as_one(model), statistics.n_features
    described = side is not None and model.side is not None and statistics.side is not None
    u = np.ones((len(statistics), 1))
    if described:
        assert side is not None
        assert statistics.side is not None
        v = statistics.side[:, : statistics.side.shape[1] if side.curved else n_linear]
        if d * (1 + v.shape[1]) <= MOST_TOGETHER:
            u = np.hstack([u, v])
    column, row = (index.ravel() for index in np.indices((u.shape[1], d)))
    chosen = np.full(len(row), True) if learn_mean else column > 0
    if side is not None and side.intercept_only:
        chosen &= (column == 0) | (row == d - 1)
    if not chosen.any():
        return None
    information = repeated * _information(model, statistics, u)[np.ix_(chosen, chosen)]
    row, column = row[chosen], column[chosen]
    if u.shape[1] > 1:
        assert side is not None
        pull = side.penalty * (float(np.mean(u[:, 1:] ** 2)) or 1.0)
        information += pull * _prior_precision(model.covariances[0], row, column)
    covariance = _inverse(information)
    # What more tasks say of b alone.
    return MeanCovariance(
        row, column, covariance / times ** (0.5 * ((column == 0)[:, None] + 1.0 * (column == 0)))
    )


def _information(model: Mixture, statistics: Tasks, u: Array) -> Array:
    """Σ_t (u uᵀ) ⊗ XᵀV⁻¹X, (q d, q d)."""
    T, d, q = len(statistics), statistics.n_features, u.shape[1]
    total = np.zeros((q * q, d * d))
    size = max(1, BATCH_FLOATS // max(d * d, q * q))
    for start in range(0, T, size):
        some, w = statistics.take(slice(start, start + size)), u[start : start + size]
        said = _said(model, some)
        total += (w[:, :, None] * w[:, None, :]).reshape(len(some), -1).T @ said.reshape(len(some), -1)
    return total.reshape(q, q, d, d).transpose(0, 2, 1, 3).reshape(q * d, q * d)


def _said(model: Mixture, statistics: Tasks) -> Array:
    """XᵀV⁻¹X = XᵀX (I + WXᵀX/σ²)⁻¹ / σ² of each task, (T, d, d)."""
    covariances = statistics.posterior(model, Want(covariances=True)).covariances
    found = np.matmul(statistics.gram, influence(statistics, model, covariances)) / model.noise
    return np.asarray(0.5 * (found + found.transpose(0, 2, 1)))


def _prior_precision(W: Array, row: NDArray[np.intp], column: NDArray[np.intp]) -> Array:
    """W⁻¹ ⊗ I for the entries of Γ, in units of the penalty; zero for those of b.

    Of the intercept alone: the variance that the other weights leave it, whose inverse is W⁻¹'s own entry.
    """
    inverse = np.linalg.inv(W + 1e-9 * max(np.trace(W) / len(W), 1e-300) * np.eye(len(W)))
    together = (column[:, None] == column) & (column > 0)
    # Where tasks do not differ at all Γ is known to be zero: as good as infinitely precise.
    inverse = np.clip(np.nan_to_num(inverse), -KNOWN, KNOWN)
    return np.where(together, inverse[np.ix_(row, row)], 0.0)


def _inverse(information: Array) -> Array:
    """The inverse; NaN for entries that lie in a direction nothing is said about."""
    size = np.sqrt(np.maximum(np.diag(information), 0.0))
    scale = np.where(size > 0, size, 1.0)
    # one after the other: their product may be beyond the range of numbers
    unit = information / scale[:, None] / scale
    if not np.isfinite(unit).all():
        return np.full_like(information, np.nan)
    values, vectors = np.linalg.eigh(unit)
    known = values > UNKNOWN * max(values[-1], 1e-300)
    out = np.asarray((vectors[:, known] / values[known]) @ vectors[:, known].T / scale[:, None] / scale)
    unknown = (np.abs(vectors[:, ~known]) > 1e-6).any(axis=1)
    out[unknown] = out[:, unknown] = np.nan
    return out


def task_covariances(model: Mixture, statistics: Tasks, mean: MeanCovariance | None) -> Array:
    """Covariance of the error of each task's weights, (T, d, d), as in the module's text.

    Of a mixture, that of the posterior, a mixture again; what is open about its components' means is left out.
    """
    expected = statistics.posterior(model, Want(means=True, covariances=True))
    if model.n_components > 1 or mean is None:
        return expected.mixture_covariance
    R = influence(statistics, model, expected.covariances)
    errors = mean.at(statistics.n_features, statistics.side, len(statistics))
    return np.asarray(expected.covariances + R @ errors @ R.transpose(0, 2, 1))
