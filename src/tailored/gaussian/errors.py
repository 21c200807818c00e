"""Standard errors of the fixed effects and of the coefficients of tasks, by generalised least
squares given W and σ².

For classes and counts, W and the dispersion are treated as estimated, too, unless W has high rank
(`_information`).

The targets of a task have mean ``X (b + Γ v(s))`` and covariance ``V = XWXᵀ + σ²I``.  The
information matrix of (b, Γ) is the sum of ``DᵀXᵀV⁻¹XD`` over tasks, where D maps (b, Γ) to the
prior mean of a task.  The error covariance of the coefficients of a task is the posterior
covariance C plus a term for the error of the prior mean:

    Var(ŵ − w) = C + R D Cov(b, Γ) Dᵀ Rᵀ ,    R = (I + WXᵀX/σ²)⁻¹ .
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record
from ..tasks.rows import Array
from .mixture import Mixture, Want
from .moments import influence, used_columns
from .rows import Tasks
from .side import SideFit, Term, basis_of, design, information_of, normal_equations, roots_of
from .sites import MOST_DIRECTIONS, ResponseRows

#: Maximum number of entries of (b, Γ) whose errors are computed jointly; with more, Γ is treated as
#: known.
MOST_TOGETHER = 400
#: Entries have the standard error NaN if they depend on a direction whose information is below this
#: fraction of the largest.
UNKNOWN = 1e-13


@dataclass(frozen=True)
class MeanCovariance(Record):
    """Covariance of the errors of p entries of (b, Γ); NaN for entries about which the tasks carry
    no information.
    """

    row: NDArray[np.intp]  # (p,) index of the coefficient of each entry
    column: NDArray[
        np.intp
    ]  # (p,) 0 for an entry of b, and 1 + f for feature f of the side information
    covariance: Array  # (p, p)

    def of(self, d: int, weights: Mapping[int, float]) -> Array:
        """Return the covariance (d, d) of a weighted sum of columns of (b, Γ); zero for entries
        that are not stored here.
        """
        out, at = np.zeros((d, d)), np.flatnonzero(np.isin(self.column, list(weights)))
        w = np.array([weights[column] for column in self.column[at].tolist()])
        np.add.at(
            out,
            np.ix_(self.row[at], self.row[at]),
            w[:, None] * self.covariance[np.ix_(at, at)] * w,
        )
        return out

    def plus(self, more: Array) -> MeanCovariance:
        """Return a copy with ``more`` (d, d) added to the covariance of b."""
        at, covariance = np.flatnonzero(self.column == 0), self.covariance.copy()
        covariance[np.ix_(at, at)] += more[np.ix_(self.row[at], self.row[at])]
        return replace(self, covariance=covariance)

    def at(self, d: int, side: Array | None, n_tasks: int) -> Array:
        """Return the error covariances (T, d, d) of the prior means ``b + Γ v`` of tasks; unknown
        entries count as zero.
        """
        u = np.ones((n_tasks, 1)) if side is None else np.hstack([np.ones((n_tasks, 1)), side])
        D = np.zeros((n_tasks, d, len(self.row)))
        D[:, self.row, np.arange(len(self.row))] = u[:, self.column]
        return np.asarray(D @ np.nan_to_num(self.covariance) @ D.transpose(0, 2, 1))

    def deviations(self, change: Array, side: Array | None, n_tasks: int) -> Array:
        """Return standard errors (T, c) of ``change`` (c, d) times the prior means of tasks;
        unknown entries count as zero.
        """
        u = np.ones((n_tasks, 1)) if side is None else np.hstack([np.ones((n_tasks, 1)), side])
        out = np.empty((n_tasks, len(change)))
        for j, weights in enumerate(change[:, self.row]):
            at = np.flatnonzero(weights)
            entries = u[:, self.column[at]] * weights[at]
            known = np.nan_to_num(self.covariance[np.ix_(at, at)])
            out[:, j] = np.einsum("tp,tp->t", entries @ known, entries)
        return np.sqrt(np.maximum(out, 0.0))


def as_one(model: Mixture) -> Mixture:
    """Return a model with one Gaussian that has the mean and covariance of the mixture."""
    if model.n_components == 1:
        return replace(model, gates=None)
    mean, covariance = model.moments()
    return Mixture(np.ones(1), mean[None], covariance[None], model.noise, model.side)


def mean_covariance(
    model: Mixture,
    tasks: Tasks,
    *,
    side: SideFit | None = None,
    repeated: float = 1.0,
    times: float = 1.0,
) -> MeanCovariance:
    """Return the covariance of the errors of b and Γ.

    Γ was estimated from ``repeated`` times as many tasks as given, and b from ``times`` times as
    many as Γ, because `Structure.refine` in `selection` does not update Γ.  The standard error
    of Γ is at most its prior standard deviation.
    """
    model, d = as_one(model), tasks.n_features
    terms = [] if side is None or model.side is None else side.terms
    features = np.flatnonzero(basis_of(tasks, terms).any(axis=1))
    if d * (1 + len(features)) > MOST_TOGETHER:
        terms, features = [], features[:0]
    # The parameters are b and z, the parameters of the terms, whose prior is standard normal.
    information = repeated * _information(tasks, model, terms)
    information[d:, d:] += np.eye(len(information) - d)
    # Rounding errors of a constant column would be collinear with the intercept.
    is_used = np.append(used_columns(information[:d, :d]), np.ones(len(information) - d, bool))
    information *= np.outer(is_used, is_used)
    covariance = _inverse(information)
    # The linear map from these parameters to the entries of (b, Γ); entries that depend on none of
    # them are dropped.
    entries = np.zeros((1 + len(features), d, len(information)))
    entries[0, :, :d] = np.diag(is_used[:d])
    at = d
    for term in terms:
        block = np.sqrt(term.effect.relevance) * np.kron(term.R[features], term.L)
        entries[1:, :, at : at + term.size] = block.reshape(len(features), d, term.size)
        at += term.size
    column, row = np.nonzero(entries.any(axis=2))
    chosen = entries[column, row]
    unknown = chosen @ np.isnan(np.diag(covariance)) != 0
    covariance = chosen @ np.nan_to_num(covariance) @ chosen.T
    covariance[unknown] = covariance[:, unknown] = np.nan
    # The additional tasks of `refine` only contribute information about b.
    of_mean = (column == 0).astype(float)
    covariance = covariance / times ** (0.5 * (of_mean[:, None] + of_mean))
    return MeanCovariance(row, np.append(0, 1 + features)[column], covariance)


def _information(tasks: Tasks, model: Mixture, terms: Sequence[Term]) -> Array:
    """Return the information about b and the parameters z of the terms.

    For non-Gaussian targets and a W of low rank, W and the dispersion are treated as unknown, too.
    """
    plain, d, W = normal_equations(tasks, model, terms)[0], tasks.n_features, model.covariances[0]
    if not isinstance(tasks, ResponseRows) or np.linalg.matrix_rank(W) > MOST_DIRECTIONS:
        return plain
    effects = model.effects(tasks.side)
    rows = tasks if effects is None else tasks.shifted(effects)
    (L,) = model.factors
    p = L.shape[1]
    entries = np.tril_indices(p) if (W - np.diag(W.diagonal())).any() else (np.arange(p),) * 2
    each = rows.scores(model.means[0], L, model.noise, rows.X @ L, entries)[2]
    u, p, roots = design(tasks, terms), each.shape[1], roots_of(terms, d)
    joint, rest = information_of(u, u, each), np.arange(d, p)
    at = (p * np.arange(u.shape[1])[:, None] + np.arange(d)).ravel()
    known = joint[np.ix_(rest, rest)]
    if not np.isfinite(joint).all() or np.linalg.eigvalsh(known).min(initial=1.0) <= 0.0:
        return plain
    across = joint[np.ix_(rest, at)] @ roots
    profiled = roots.T @ joint[np.ix_(at, at)] @ roots - across.T @ np.linalg.solve(known, across)
    # Away from the maximum, observed information need not be positive definite; centred constant
    # columns are left out.
    used = np.flatnonzero(used_columns(plain[:d, :d]))
    return (
        profiled
        if np.linalg.eigvalsh(profiled[np.ix_(used, used)]).min(initial=1.0) > 0.0
        else plain
    )


def task_estimates(
    model: Mixture, tasks: Tasks, mean: MeanCovariance | None = None
) -> tuple[Array, Array]:
    """Return the estimated coefficients of each task (T, d) and the covariances of their errors (T,
    d, d).

    If ``mean`` is given, the covariances include the errors of the prior mean, which are larger for
    small components.
    """
    expected = tasks.posterior(model, Want(means=True, covariances=True))
    if mean is None:
        return expected.mean, expected.mixture_covariance()
    R = influence(*tasks.gaussian(model), expected.covariances)
    errors = mean.at(tasks.n_features, tasks.side, len(tasks))
    if model.n_components > 1:
        errors *= (expected.shares**2 / np.maximum(model.proportions, 1e-3)).sum(axis=1)[
            :, None, None
        ]
    return expected.mean, expected.mixture_covariance() + R @ errors @ R.transpose(0, 2, 1)


def _inverse(information: Array) -> Array:
    """Return the inverse, with NaN for entries in directions without information."""
    size = np.sqrt(np.maximum(np.diag(information), 0.0))
    scale = np.where(size > 0, size, 1.0)
    # Divide twice, because the product of two scales may overflow.
    unit = information / scale[:, None] / scale
    if not np.isfinite(unit).all():
        return np.full_like(information, np.nan)
    values, vectors = np.linalg.eigh(unit)
    known = values > UNKNOWN * max(values[-1], 1e-300)
    with np.errstate(over="ignore"):
        out = np.asarray(
            (vectors[:, known] / values[known]) @ vectors[:, known].T / scale[:, None] / scale
        )
    out[~np.isfinite(out)] = np.nan
    unknown = (np.abs(vectors[:, ~known]) > 1e-6).any(axis=1)
    out[unknown] = out[:, unknown] = np.nan
    return out
