"""Restricted maximum likelihood (REML) of one Gaussian, ``w ~ N(b + Γ v(s), W)`` and ``y ~ N(Xw,
σ²I)``.

The fixed effects, b and the parameters z of Γ, are integrated out: b with a flat prior, z with its
standard normal prior.  With ``V = XWXᵀ + σ²I``, ``A = XᵀV⁻¹X`` and D, which maps (b, z) to the
prior mean of a task, the criterion is

    Σ log|V| + Σ rᵀV⁻¹r + zᵀz + log|Σ DᵀAD + diag(0, I)| ,    r = y − XD(b, z) ,

with (b, z) at its minimum.  It is minimised over a factor of W and log σ² by Newton steps with the
expected information.  The fixed effects are measured along directions in which the rows are
uncorrelated, so shifts and scales of columns do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from .._utils.validation import warn
from ..tasks.rows import Array
from .em import COLLINEAR, independent_directions, noise_floor
from .mixture import Mixture
from .moments import Moments, times, used_columns
from .side import Term, design, information_of, roots_of, side_effects

#: Maximum number of Newton steps, and of steps of L-BFGS.
NEWTON_STEPS, MOST_STEPS = 30, 500
#: Newton's method has converged if a step would raise the log likelihood by less than this.  If it
#: has not, as where W is singular, L-BFGS continues.
CONVERGED = 1e-9
#: Minimum noise variance, as a part of that of EM, whose rounding errors are larger.
NOISE_PART = 0.02
#: Maximum number of random effects of a task for Newton steps; with more, the search is L-BFGS.
NEWTON_EFFECTS = 20
#: Minimum standard deviation of a random effect at the start, relative to the standard error of one
#: task's own estimate.
LEAST_START = 0.03


class Value(NamedTuple):
    """The criterion at (W, σ²), its derivatives in W (q, q) and log σ², (b, z), and ``S = ZᵀV⁻¹Z``
    of each task.
    """

    value: float
    of_W: Array
    of_log_noise: float
    fixed: Array
    S: Array


@dataclass(frozen=True)
class Criterion:
    """−2 log (restricted) likelihood plus a constant, for random coefficients ``loadings @ u`` with
    u ~ N(0, W).
    """

    tasks: Moments
    loadings: Array  # (d, q)
    terms: Sequence[Term] = ()
    is_restricted: bool = True

    @cached_property
    def directions(self) -> tuple[Array, Array]:
        return independent_directions(self.tasks.totals().gram)

    @cached_property
    def parts(self) -> tuple[Array, ...]:
        """u (T, m), the map from (b, z) to the coefficients of u, R, QᵀX and Qᵀy for Z = QR, and
        the products of the rest of X and y.
        """
        basis, back = self.directions
        tasks, terms = self.tasks, [term._replace(L=back @ term.L) for term in self.terms]
        gram, cross = basis.T @ tasks.gram @ basis, tasks.cross @ basis
        # The span of the loadings, because the loadings themselves are nearly collinear if columns
        # are far from zero
        span, coordinates = np.linalg.qr(self.loadings)
        Z = back @ span
        values, vectors = np.linalg.eigh(Z.T @ gram @ Z)
        kept = values > COLLINEAR * values[:, -1:]
        roots = np.sqrt(np.where(kept, values, 1.0))[:, :, None]
        vectors = np.where(kept[:, :, None], vectors.transpose(0, 2, 1), 0.0)
        X, y = vectors @ Z.T @ gram / roots, times(vectors, cross @ Z) / roots[:, :, 0]
        rest = gram - X.transpose(0, 2, 1) @ X, cross - np.einsum("tqp,tq->tp", X, y)
        return (
            design(tasks, terms),
            roots_of(terms, len(back)),
            roots * vectors @ coordinates,
            X,
            y,
            *rest,
        )

    @cached_property
    def squares(self) -> Array:
        """The sums of the squares of the columns of Z over all rows, (q,)."""
        return (self.loadings.T @ self.tasks.totals().gram @ self.loadings).diagonal()

    @cached_property
    def square(self) -> float:
        """The sum of the squares of the targets outside the span of Z."""
        return max(float(self.tasks.square.sum() - np.sum(self.parts[4] ** 2)), 0.0)

    @property
    def single_tasks(self) -> tuple[Array, float]:
        """Return the mean squares of the random coefficients that are estimated from single tasks,
        and of the residuals.
        """
        _, _, R, _, y, *_ = self.parts
        values = np.einsum("tqr,tr->tq", np.linalg.pinv(R), y)
        left = max(self.tasks.n_rows - y.size, 1.0)
        return np.var(values, axis=0), max(self.square / left, noise_floor(self.tasks.totals()))

    def __call__(self, W: Array, noise: float) -> Value:
        u, roots, R, X, y, gram, cross = self.parts
        N, p = self.tasks.n_rows, cross.shape[1]
        # V is RWRᵀ + σ²I in the span of Z, and σ²I outside.
        V = R @ W @ R.transpose(0, 2, 1) + noise * np.eye(len(W))
        both = np.linalg.solve(V, np.concatenate([X, y[:, :, None], R], axis=2))
        VX, Vy, VR = both[:, :, :p], both[:, :, p], both[:, :, p + 1 :]
        A = gram / noise + X.transpose(0, 2, 1) @ VX
        a = cross / noise + np.einsum("tqp,tq->tp", X, Vy)
        left = roots.T @ information_of(u, u, A) @ roots
        right = roots.T @ (u.T @ a).ravel()
        prior = np.repeat([0.0, 1.0], [p, len(left) - p])
        covariance = np.linalg.inv(left + np.diag(prior))
        fixed = covariance @ right
        means = u @ (roots @ fixed).reshape(-1, p)
        # Residuals, because rᵀV⁻¹r has a smaller rounding error than a difference of two sums
        Vr, r = Vy - times(VX, means), y - times(X, means)
        outside = self.square - float(np.sum((2.0 * cross - times(gram, means)) * means))
        residual = float(np.sum(r * Vr)) + max(outside, 0.0) / noise
        log_determinant = (N - y.size) * np.log(noise) + float(np.linalg.slogdet(V)[1].sum())
        value = log_determinant + residual + float(prior @ fixed**2)
        # ZᵀV⁻¹(Z, X, r)
        S, VX, rest = (
            R.transpose(0, 2, 1) @ VR,
            VR.transpose(0, 2, 1) @ X,
            np.einsum("tqr,tq->tr", R, Vr),
        )
        gradient, used = S.sum(axis=0) - rest.T @ rest, 0.0
        if self.is_restricted:
            value += float(np.linalg.slogdet(left + np.diag(prior))[1])
            used = float(np.sum(covariance * left))
            spread = (roots @ covariance @ roots.T).reshape(u.shape[1], p, u.shape[1], p)
            D = np.einsum("ti,idje,tj->tde", u, spread, u) if self.terms else spread[0, :, 0]
            gradient -= np.tensordot(VX @ D, VX, axes=((0, 2), (0, 2)))
        # V and the information are homogeneous in (W, σ²), so the derivative in the direction (W,
        # σ²) is known.
        of_log_noise = N - residual - used - float(np.sum(gradient * W))
        return Value(value, gradient, of_log_noise, fixed, S)

    def log_likelihood(self, value: float) -> float:
        """Return the log likelihood of the rows for a value of the criterion."""
        Q, n_fixed = self.directions[0], 0
        value += float(np.sum(self.tasks.log_determinants))
        if self.is_restricted:
            # Only a flat prior changes the power of 2π: the priors of z and of columns of zeros are
            # normalised.
            n_fixed = Q.shape[1]
            value -= float(np.linalg.slogdet(Q.T @ Q)[1])
        return -0.5 * (value + (self.tasks.n_rows - n_fixed) * np.log(2.0 * np.pi))


def count_collinear(gram: Array) -> int:
    """Return the number of nonzero columns minus their rank, given the sum of xxᵀ over all rows."""
    return int(used_columns(gram).sum()) - independent_directions(gram)[0].shape[1]


def maximise_restricted(
    tasks: Moments,
    start: Mixture,
    pattern: NDArray[np.bool_],
    terms: Sequence[Term] = (),
    is_restricted: bool = True,
    basis: Array | None = None,
) -> tuple[Mixture, float | None]:
    """Return the REML (or maximum likelihood) fit and its log likelihood.

    The random effects u in ``w = basis @ u`` have a covariance that is zero outside ``pattern`` (d,
    d). The log likelihood is None for maximum likelihood with a shrunk Γ.
    """
    basis = np.eye(tasks.n_features) if basis is None else basis
    v = np.flatnonzero(pattern.diagonal() & used_columns(tasks.totals().gram))
    criterion = Criterion(tasks, basis[:, v], terms, is_restricted)
    inverse = np.asarray(np.linalg.inv(basis)[v], dtype=np.float64)
    objective = Objective.of(criterion, pattern[np.ix_(v, v)], start, inverse)
    W, noise = objective.parameters(_search(objective, objective.starts(basis)))
    value, _, _, fixed, _ = criterion(W, noise)
    Q = criterion.directions[0]
    b, z = np.split(fixed, [Q.shape[1]])
    covariances = (criterion.loadings @ W @ criterion.loadings.T)[None]
    model = replace(start, means=(Q @ b)[None], covariances=covariances, noise=noise)
    if terms:
        model = replace(model, side=side_effects(tasks, terms, z))
    if terms and not is_restricted:
        return model, None
    return model, criterion.log_likelihood(value)


@dataclass(frozen=True)
class Objective:
    """The criterion as a function of x: the free entries of the lower triangular F in ``W = (unit
    F)(unit F)ᵀ``, and log(σ² − floor).
    """

    criterion: Criterion
    unit: Array  # (q,) typical standard deviations
    entries: tuple[NDArray[np.intp], NDArray[np.intp]]  # rows and columns of the free entries
    floor: float  # smallest noise variance
    before: Array  # (q, q) W at the start
    noise: float  # σ² at the start

    @classmethod
    def of(
        cls, criterion: Criterion, allowed: NDArray[np.bool_], start: Mixture, inverse: Array
    ) -> Self:
        """Return the objective for a W that is zero where it is not ``allowed`` (q, q)."""
        before = inverse @ start.covariances[0] @ inverse.T
        # Variances start at their present values, but not below a fraction of the error variance of
        # one task's own estimate.
        visible = start.noise * len(criterion.tasks) / criterion.squares
        unit = np.sqrt(np.maximum(before.diagonal(), LEAST_START**2 * visible))
        floor = NOISE_PART * noise_floor(criterion.tasks.totals())
        i, j = np.nonzero(np.tril(allowed))
        return cls(criterion, unit, (i, j), floor, before * allowed, start.noise)

    def parameters(self, x: Array) -> tuple[Array, float]:
        """Return W (q, q) and σ²."""
        factor = self._factor(x)
        noise = self.floor + float(np.exp(np.clip(x[-1], -200.0, 200.0)))
        return factor @ factor.T, noise

    def _factor(self, x: Array) -> Array:
        factor = np.zeros((len(self.unit), len(self.unit)))
        factor[self.entries] = x[:-1]
        return factor * self.unit[:, None]

    def _point(self, factor: Array, noise: float) -> Array:
        return np.append(factor[self.entries], np.log(noise))

    @property
    def has_information(self) -> bool:
        """Whether second derivatives are computed."""
        return len(self.unit) <= NEWTON_EFFECTS

    def starts(self, basis: Array) -> list[Array]:
        """Return the points where searches start; the first is the model before."""
        relative = self.before / np.outer(self.unit, self.unit)
        missing = np.maximum(1e-4, 1.0 - relative.diagonal())
        root = np.linalg.cholesky(relative + np.diag(missing))
        found = [self._point(root, max(self.noise - self.floor, 0.1 * self.noise))]
        if not self.has_information:
            return found
        variances, noise = self.criterion.single_tasks
        found.append(self._point(np.diag(np.sqrt(variances) / self.unit), noise))
        if basis[-1, :-1].any():
            # If columns are far from zero, there are several maxima: also start with the whole
            # variance in one effect.
            squares, n_rows = self.criterion.squares, self.criterion.tasks.n_rows
            loadings = self.criterion.loadings
            gram = loadings.T @ self.criterion.tasks.totals().gram @ loadings
            half = 0.5 * (self.noise + float(np.sum(self.before * gram)) / n_rows)
            even = np.sqrt(half * n_rows / squares) / self.unit
            ones = np.eye(len(self.unit), dtype=bool)
            found += [self._point(np.diag(even * np.where(own, 1.0, 1e-3)), half) for own in ones]
        return found

    def __call__(self, x: Array) -> tuple[float, Array, Array]:
        """Return the value, the gradient, and the information, if it is computed."""
        factor, (W, noise), (i, j), unit = (
            self._factor(x),
            self.parameters(x),
            self.entries,
            self.unit,
        )
        found = self.criterion(W, noise)
        gradient = 2.0 * (found.of_W @ factor)[i, j] * unit[i]
        share = 1.0 - self.floor / noise
        information = np.empty((0, 0))
        if self.has_information:
            moves = np.zeros((len(i), *W.shape))  # derivatives of W
            moves[np.arange(len(i)), i] = (factor[:, j] * unit[i]).T
            moves = moves + moves.transpose(0, 2, 1)
            information = _information(moves, W, found.S, self.criterion.tasks.n_rows)
            # The second derivatives of W matter where a variance is zero.
            curved = 2.0 * found.of_W[np.ix_(i, i)] * np.outer(unit[i], unit[i])
            information[:-1, :-1] += curved * (j[:, None] == j)
            information[-1] *= share
            information[:, -1] *= share
        return found.value, np.append(gradient, share * found.of_log_noise), information


def _search(objective: Objective, starts: Sequence[Array]) -> Array:
    """Return the best end of Newton's method from each start, continued by L-BFGS if it has not
    converged.
    """
    found = End(starts[0], np.inf, np.inf)
    if objective.has_information:
        ends = (_newton(objective, x, NEWTON_STEPS) for x in starts)
        found = min(ends, key=lambda end: end.value)
    if found.gain <= CONVERGED:
        return found.x
    n_tasks = len(objective.criterion.tasks)
    search = minimize(
        lambda x: objective(x)[:2],
        found.x,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MOST_STEPS, "gtol": 1e-7 * n_tasks, "ftol": 1e-13},
    )
    if not search.fun < found.value:
        return found.x
    if search.status == 1:
        warn(
            f"fit: the search for the variances stopped after {MOST_STEPS} steps, so they may be "
            "inaccurate. Leave out collinear columns, or list fewer columns in `varying`.",
            ConvergenceWarning,
        )
    best = np.asarray(search.x)
    return _newton(objective, best, NEWTON_STEPS).x if objective.has_information else best


def _information(moves: Array, W: Array, S: Array, n_rows: float) -> Array:
    """Return the expected second derivatives in W along ``moves`` (k, q, q), and in log σ², (k + 1,
    k + 1).

    They are tr(V⁻¹V'V⁻¹V″), for the derivatives V' and V″ of V; that in log σ² is V − ZWZᵀ.
    """
    k, q, _ = moves.shape
    flat, SW = S.reshape(len(S), q * q), S @ W
    # Σ S_ab S_cd over tasks, with the order of the indices in tr(S M S M')
    products = (flat.T @ flat).reshape(q, q, q, q).transpose(1, 2, 3, 0).reshape(q * q, q * q)
    moves = moves.reshape(k, q * q)
    out = np.empty((k + 1, k + 1))
    out[:k, :k] = moves @ products @ moves.T
    out[k, :k] = out[:k, k] = moves @ (S - SW @ S).sum(axis=0).ravel()
    out[k, k] = n_rows - 2.0 * np.einsum("taa->", SW) + np.einsum("tab,tba->", SW, SW)
    return out


class End(NamedTuple):
    """The end of a search, with the value and the log likelihood that the next step would gain."""

    x: Array
    value: float
    gain: float


def _newton(
    objective: Callable[[Array], tuple[float, Array, Array]], start: Array, most: int
) -> End:
    """Minimise twice a negative log likelihood.

    The curvature along each eigenvector is taken to be positive, so that each direction leads
    downwards.
    """
    x, (value, gradient, information) = start, objective(start)
    gain, longest = np.inf, 2.0
    if not np.isfinite(information).all():
        return End(x, np.inf, gain)
    for _ in range(most):
        values, vectors = np.linalg.eigh(information)
        curvature = np.maximum(np.abs(values), 1e-10 * np.abs(values).max())
        along = vectors.T @ gradient
        gain = 0.5 * float(np.sum(along**2 / curvature))
        if gain < CONVERGED:
            break
        step = -vectors @ (along / curvature)
        step *= min(1.0, longest / float(np.abs(step).max()))
        for _ in range(12):
            new = objective(x + step)
            # Without noise the likelihood may be unbounded, or have infinite derivatives.
            if -np.inf < new[0] < value and np.isfinite(new[2]).all():
                break
            step /= 4.0
        else:
            break
        # Along a flat direction, the parameters may have to change by orders of magnitude.
        longest = max(2.0, 2.0 * float(np.abs(step).max()))
        x, (value, gradient, information) = x + step, new
    return End(x, value, gain)
