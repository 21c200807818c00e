"""Restricted maximum likelihood (REML) of one Gaussian, ``w ~ N(b + Γ v(s), W)`` and ``y ~ N(Xw, σ²I)``.

The fixed effects, b and the parameters z of Γ, are integrated out: b with a flat prior, z with its standard normal prior.  With
``V = XWXᵀ + σ²I``, ``A = XᵀV⁻¹X`` and D, which maps (b, z) to the prior mean of a task, the criterion is

    Σ log|V| + Σ rᵀV⁻¹r + zᵀz + log|Σ DᵀAD + diag(0, I)| ,    r = y − XD(b, z) ,

with (b, z) at its minimum.  It is minimised over the Cholesky factor of W, in units that make its entries about one, and log σ².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from .._utils.validation import warn
from ..tasks.rows import Array
from .em import batches_of, noise_floor
from .mixture import Mixture
from .moments import Moments, times, used_columns
from .side import Term, design, information_of, prior_precision, roots_of, side_effects

#: Maximum number of evaluations of the criterion, and the largest gradient entry, per task, at which the search stops.
EVALUATIONS, GRADIENT = 200, 1e-7
#: Minimum standard deviation of a random effect at the start, relative to the standard error of one task's own estimate.
LEAST_START = 0.03


@dataclass(frozen=True)
class Criterion:
    """−2 log (restricted) likelihood plus a constant, and its gradient in W (of the varying coefficients) and log σ²."""

    tasks: Moments
    varying: NDArray[np.intp]
    terms: Sequence[Term] = ()
    is_restricted: bool = True

    @cached_property
    def n_collinear(self) -> int:
        return count_collinear(self.tasks.totals().gram)

    def __call__(self, W: Array, noise: float) -> tuple[float, Array, float, Array]:
        """Return the value, the gradients ∂W (q, q) and ∂log σ², and the fixed effects (b, z)."""
        v, d = self.varying, self.tasks.n_features
        u, roots = design(self.tasks, self.terms), roots_of(self.terms, d)
        left, right = np.zeros((u.shape[1] * d,) * 2), np.zeros((u.shape[1], d))
        square, log_determinant, parts = 0.0, 0.0, []
        for part in batches_of(self.tasks):
            some = self.tasks.take(part)
            columns = some.gram[:, :, v]
            # The posterior covariance of the varying coefficients, (W⁻¹ + XᵀX/σ²)⁻¹, in a form that allows a singular W.
            system = np.eye(len(v)) + W @ columns[:, v] / noise
            P = np.linalg.solve(system, np.broadcast_to(W, system.shape))
            log_determinant += float(np.linalg.slogdet(system)[1].sum())
            shrunk = columns @ P / noise
            A = (some.gram - shrunk @ columns.transpose(0, 2, 1)) / noise
            cross = some.cross[:, v]
            a = (some.cross - times(shrunk, cross)) / noise
            explained = np.sum(times(np.asarray(P), cross) * cross) / noise
            square += float(some.square.sum() - explained) / noise
            left += information_of(u[part], u[part], A)
            right += u[part].T @ a
            parts.append((u[part], A[:, v], a[:, v]))
        left, right = roots.T @ left @ roots, roots.T @ right.ravel()
        prior = prior_precision(left, d, self.n_collinear > 0)
        covariance = np.linalg.inv(left + np.diag(prior))
        fixed = covariance @ right
        N = self.tasks.n_rows
        quadratic = square - float(right @ fixed)
        value = N * np.log(noise) + log_determinant + quadratic
        effects, spread = (roots @ fixed).reshape(-1, d), roots @ covariance @ roots.T
        spread = spread.reshape(u.shape[1], d, u.shape[1], d)
        gradient, used = np.zeros((len(v), len(v))), 0.0
        for some_u, A, a in parts:
            a = a - times(A, some_u @ effects)
            gradient += A[:, :, v].sum(axis=0) - a.T @ a
            if self.is_restricted:
                D = (
                    np.einsum("ti,idje,tj->tde", some_u, spread, some_u)
                    if self.terms
                    else spread[0, :, 0]
                )
                gradient -= np.tensordot(A @ D, A, axes=((0, 2), (0, 2)))
        if self.is_restricted:
            value += float(np.linalg.slogdet(left + np.diag(prior))[1])
            if self.n_collinear:  # keep the determinant of the other directions only
                value -= self.n_collinear * float(np.log(prior[:d][used_columns(left[:d, :d])][0]))
            used = float(np.sum(covariance * left))
        # V and the information are homogeneous in (W, σ²), so the derivative in the direction (W, σ²) is known.
        residual = quadratic - float(prior @ fixed**2)
        along_noise = N - residual - used - float(np.sum(gradient * W))
        return value, gradient, along_noise, fixed


def count_collinear(gram: Array) -> int:
    """Return the number of nonzero columns minus their rank, given the sum of xxᵀ over all rows."""
    rank = np.linalg.matrix_rank(gram, tol=1e-10 * np.trace(gram), hermitian=True)
    return int(used_columns(gram).sum() - rank)


def maximise_restricted(
    tasks: Moments,
    start: Mixture,
    pattern: NDArray[np.bool_],
    terms: Sequence[Term] = (),
    is_restricted: bool = True,
    limit: int | None = None,
) -> tuple[Mixture, float | None]:
    """Return the REML (or maximum likelihood) fit and its log likelihood; W is zero outside ``pattern`` (d, d).

    The log likelihood is None for maximum likelihood with a shrunk Γ.  A ``limit`` of evaluations stops the search without a warning.
    """
    totals = tasks.totals()
    squares, known = totals.gram.diagonal(), used_columns(totals.gram)
    v = np.flatnonzero(pattern.diagonal() & known)
    d, q = tasks.n_features, len(v)
    criterion = Criterion(tasks, v, terms, is_restricted)
    # Variances start at their present values, but not below a fraction of the error variance of one task's own estimate.
    visible = start.noise * len(tasks) / squares[v]
    present = start.covariances[0].diagonal()[v]
    unit = np.sqrt(np.maximum(present, LEAST_START**2 * visible))
    entries = np.nonzero(np.tril(pattern[np.ix_(v, v)]))
    relative = start.covariances[0][np.ix_(v, v)] / np.outer(unit, unit) * pattern[np.ix_(v, v)]
    root = np.linalg.cholesky(relative + np.eye(q) * np.maximum(1e-4, 1.0 - relative.diagonal()))
    floor = np.log(noise_floor(totals))

    def covariance(parameters: Array) -> tuple[Array, Array]:
        factor = np.zeros((q, q))
        factor[entries] = parameters[:-1]
        factor *= unit[:, None]
        return factor, factor @ factor.T

    def objective(parameters: Array) -> tuple[float, Array]:
        factor, W = covariance(parameters)
        value, gradient, along_noise, _ = criterion(W, float(np.exp(parameters[-1])))
        of_factor = 2.0 * (gradient @ factor) * unit[:, None]
        return value / len(tasks), np.append(of_factor[entries], along_noise) / len(tasks)

    first = np.append(root[entries], np.log(start.noise))
    bounds = [(None, None)] * len(entries[0]) + [(floor, 200.0)]  # exp(200) is finite, also squared
    most = limit or EVALUATIONS
    options = {"maxfun": most, "maxiter": most, "gtol": GRADIENT, "ftol": 1e-13}
    found = minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    if found.status == 1 and limit is None:
        stopped = (
            f"fit: the search for the variances stopped at its limit of {EVALUATIONS} evaluations"
        )
        advice = "Leave out collinear columns, or list fewer columns in `varying`."
        warn(f"{stopped}, so they may be inaccurate. {advice}", ConvergenceWarning)
    W, noise = np.zeros((d, d)), float(np.exp(found.x[-1]))
    W[np.ix_(v, v)] = covariance(found.x)[1]
    value, _, _, fixed = criterion(W[np.ix_(v, v)], noise)
    value += float(np.sum(tasks.log_determinants))
    model = replace(start, means=fixed[None, :d], covariances=W[None], noise=noise)
    if terms:
        model = replace(model, side=side_effects(tasks, terms, fixed[d:]))
    if terms and not is_restricted:
        return model, None
    # Only a flat prior changes the power of 2π: the priors of z and of columns of zeros are normalised.
    n_fixed = int(known.sum()) if is_restricted else 0
    return model, float(-0.5 * (value + (tasks.n_rows - n_fixed) * np.log(2.0 * np.pi)))
