"""Effects of side information on the prior mean, ``b(s) = b + Γ v(s)``, and the selection of these
effects.

The features v(s) form groups: each column of the side information has linear features and may have
spline features.  The effect of a group has the prior ``Γ = √γ L Z Rᵀ`` with standard normal Z.  LLᵀ
is the covariance of the coefficients without side information (or only the variance of the
intercept), so units do not matter.  R makes splines smooth.

An effect is kept if, at its best relevance γ, it raises the log evidence by more than the logarithm
of the number of alternatives.  b and the other kept effects are integrated out.  This score test
needs the eigenvalues of a matrix with a row for each entry of Z.  γ of the kept effects is
estimated by MacKay's update (Bayesian interpolation, 1992).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ..tasks.rows import Array
from .em import fit_roughly, maximise, precisions
from .mixture import Mixture
from .moments import used_columns
from .rows import Tasks
from .scoring import LARGEST_SCALE
from .sites import ResponseRows

#: Candidate relevances γ at which the gain of an effect is evaluated.
RELEVANCES = np.geomspace(1e-4, 4.0, 24)
#: Maximum number of rounds of score tests or of fits to sites, and number of EM steps or updates of
#: γ after each round.
ROUNDS, STEPS = 4, 10
#: Maximum number of parameters of one effect.
LARGEST_EFFECT = 400
#: Prior precision of b, relative to the information about b; the prior only matters in directions
#: without information.
FLAT = 1e-9


class Group(NamedTuple):
    """Features that are kept or dropped together."""

    column: int  # index of the column of side information
    curved: bool  # whether these are the nonlinear features
    features: NDArray[np.intp]  # (k,) positions in v(s)
    root: Array  # (k, m) R, up to a factor


@dataclass(frozen=True)
class Effect:
    """The effect of the linear or curved features of a column on the intercept or on all
    coefficients, with relevance γ.
    """

    column: int
    curved: bool = False
    intercept_only: bool = False
    relevance: float = field(default=1.0, compare=False)


@dataclass(frozen=True)
class SideStructure:
    """The kept effects.

    ``varying`` are the coefficients that differ between tasks (None: all).  The effects on the
    other coefficients are zero.
    """

    effects: tuple[Effect, ...]
    varying: tuple[int, ...] | None = None

    def describe(self) -> dict[str, Any]:
        """Return the columns with an effect, the columns with a nonlinear effect, and the affected
        coefficients.
        """
        only = all(effect.intercept_only for effect in self.effects)
        return {
            "columns": sorted({effect.column for effect in self.effects}),
            "curved": sorted({effect.column for effect in self.effects if effect.curved}),
            "effect on": "intercept" if only else "all weights",
        }


class Term(NamedTuple):
    """An effect and its prior: L (d, p) and R (q, m); Z has p m entries."""

    effect: Effect
    L: Array
    R: Array

    @property
    def size(self) -> int:
        return self.L.shape[1] * self.R.shape[1]

    def with_relevance(self, gamma: float) -> Self:
        return self._replace(effect=replace(self.effect, relevance=float(gamma)))


@dataclass(frozen=True)
class SideFit:
    """Γ (d, q), the mixed model of the targets minus the effects XΓ v(s), and the terms of Γ."""

    Gamma: Array
    rest: Mixture
    terms: list[Term]


def fit_side(
    tasks: Tasks,
    structure: SideStructure,
    groups: Sequence[Group],
    *,
    max_iter: int = 30,
    tol: float = 1e-3,
) -> SideFit:
    """Fit the mixed model ``w ~ N(b + Γ v(s), W)`` with the relevances of ``structure``.

    Given W and σ², (b, Γ) is estimated by generalised least squares with the prior of Γ.  W and σ²
    are estimated by EM.
    """
    model = fit_roughly(tasks, structure.varying)
    terms = terms_of(tasks, groups, structure.effects, model.covariances[0])
    if not isinstance(tasks, ResponseRows):
        return fit_terms(tasks, model, terms, max_iter=max_iter, tol=tol)
    for _ in range(ROUNDS):
        fit = fit_terms(*tasks.gaussian(model), terms, max_iter=max_iter, tol=tol)
        # Without a limit, the mean can diverge if a few rows have almost all the weight.
        means = np.clip(fit.rest.means, -LARGEST_SCALE, LARGEST_SCALE)
        model = replace(fit.rest, means=means, noise=model.noise, side=fit.Gamma)
    return fit


def normal_equations(tasks: Tasks, model: Mixture, terms: Sequence[Term]) -> tuple[Array, Array]:
    """Return the left- and right-hand sides of the normal equations of (b, z), without the prior of
    z.

    z has the entries of Z of all terms.
    """
    u, d = design(tasks, terms), tasks.n_features
    left, right = np.zeros((u.shape[1] * d, u.shape[1] * d)), np.zeros((u.shape[1], d))
    for part, A, a in precisions(tasks, model):
        left += information_of(u[part], u[part], A)
        right += u[part].T @ a
    roots = roots_of(terms, d)
    return roots.T @ left @ roots, roots.T @ right.ravel()


def unit_root(side: Array, group: Group) -> Array:
    """Return R (q, m), scaled such that the mean squared norm of v(s) R is one."""
    root = np.zeros((side.shape[1], group.root.shape[1]))
    root[group.features] = group.root
    return np.asarray(root / (np.sqrt(np.mean(np.sum((side @ root) ** 2, axis=1))) or 1.0))


def terms_of(
    tasks: Tasks, groups: Sequence[Group], effects: Sequence[Effect], W: Array
) -> list[Term]:
    """Return a term for each effect; W is the covariance of the coefficients without side
    information.
    """
    assert tasks.side is not None
    values, vectors = np.linalg.eigh(W)
    varies, kept = np.diag(W) > 1e-14 * values[-1], values[::-1] > 1e-9 * values[-1]
    every = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, kept] * varies[:, None]
    intercept = np.eye(len(W))[:, -1:] * np.sqrt(W[-1, -1])
    roots = {(group.column, group.curved): unit_root(tasks.side, group) for group in groups}
    out = []
    for effect in effects:
        L, R = intercept if effect.intercept_only else every, roots[effect.column, effect.curved]
        # With many columns or features, keep only the leading directions of L.
        out.append(Term(effect, L[:, : max(LARGEST_EFFECT // R.shape[1], 1)], R))
    return out


def fit_terms(
    tasks: Tasks,
    model: Mixture,
    terms: list[Term],
    *,
    max_iter: int,
    tol: float = 0.0,
    learn: bool = False,
) -> SideFit:
    """Alternate between updates of (b, Γ) and of (W, σ²); with ``learn``, also update the
    relevances.
    """
    assert tasks.side is not None
    totals, d, sizes = tasks.totals(), tasks.n_features, [term.size for term in terms]
    of, Gamma = np.repeat(np.arange(len(terms)), sizes), np.zeros((d, tasks.side.shape[1]))
    for step in range(max_iter + 1):
        mean, covariance = solve(tasks, model, terms)
        previous, Gamma = Gamma, side_effects(tasks, terms, mean[d:])
        model = replace(model, means=mean[None, :d])
        if step == max_iter or (
            tol and np.abs(Gamma - previous).max() <= tol * np.abs(Gamma).max()
        ):
            break
        expected = tasks.shifted(tasks.side @ Gamma.T).sums(model)
        model = maximise(totals, model, expected.sums, learn_mean=False)
        if learn:
            factors = changes_of_relevance(of, mean[d:], covariance.diagonal()[d:])
            pairs = zip(terms, factors, strict=True)
            terms = [term.with_relevance(term.effect.relevance * f) for term, f in pairs]
    return SideFit(Gamma, model, terms)


def changes_of_relevance(of: NDArray[np.intp], z: Array, variances: Array) -> Array:
    """Return the factors by which MacKay's update changes the relevances of effects, from the
    posterior of their standardised parameters; ``of`` is the effect of each parameter.
    """
    sizes, squares, unknown = (np.bincount(of, each) for each in (None, z * z, variances))
    return np.clip(squares / np.maximum(sizes - unknown, 1e-9), 1e-3, 1e3)


def side_effects(tasks: Tasks, terms: Sequence[Term], z: Array) -> Array:
    """Return Γ (d, q) for the parameters z of all terms."""
    d = tasks.n_features
    coefficients = (roots_of(terms, d)[d:, d:] @ z).reshape(-1, d)
    return np.asarray((basis_of(tasks, terms) @ coefficients).T)


def solve(tasks: Tasks, model: Mixture, terms: Sequence[Term]) -> tuple[Array, Array]:
    """Return the posterior mean and covariance of (b, z); b has a nearly flat prior, and z has the
    prior N(0, I).
    """
    left, right = normal_equations(tasks, model, terms)
    d, prior = tasks.n_features, np.ones(len(left))
    is_used = used_columns(left[:d, :d])
    prior[:d][is_used] = FLAT * np.trace(left[:d, :d]) / max(is_used.sum(), 1)
    covariance = np.asarray(np.linalg.inv(left + np.diag(prior)), dtype=np.float64)
    return covariance @ right, covariance


def evidence_of_columns(tasks: Tasks, model: Mixture, terms: Sequence[Term]) -> dict[int, float]:
    """Return the log Bayes factor of the effects of each column against no effect, and of all
    columns at key −1.

    b and the effects of the other columns are integrated out; W, σ² and the relevances are given.
    The factor is the ratio of the prior to the posterior density of the column's parameters at zero
    (Savage and Dickey).
    """
    mean, covariance = solve(tasks, model, terms)
    of_parameter = np.repeat([term.effect.column for term in terms], [term.size for term in terms])
    out = {}
    for column in (-1, *np.unique(of_parameter).tolist()):
        at = tasks.n_features + np.flatnonzero((of_parameter == column) | (column < 0))
        z, C = mean[at], covariance[np.ix_(at, at)]
        out[column] = 0.5 * float(z @ np.linalg.solve(C, z) + np.linalg.slogdet(C)[1])
    return out


def gains_of(
    tasks: Tasks, model: Mixture, kept: Sequence[Term], candidates: Sequence[Term]
) -> list[tuple[float, Term]]:
    """Return the gain in log evidence of each candidate at its best γ, with b and ``kept``
    integrated out, and the term.
    """
    d, u, (mean, covariance) = tasks.n_features, design(tasks, kept), solve(tasks, model, kept)
    parts = list(precisions(tasks, model))
    A, a = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    roots, out = roots_of(kept, d), []
    for term in candidates:
        v = design(tasks, [term])[:, 1:]
        root = np.kron(np.eye(v.shape[1]), term.L)
        cross = root.T @ information_of(v, u, A) @ roots
        information = root.T @ information_of(v, v, A) @ root - cross @ covariance @ cross.T
        e, directions = np.linalg.eigh(information)
        gain, gamma = best_gain(e, directions.T @ (root.T @ (v.T @ a).ravel() - cross @ mean))
        out.append((gain, term.with_relevance(gamma)))
    return out


def best_gain(e: Array, q: Array) -> tuple[float, float]:
    """Return the largest gain in log evidence from parameters with prior variance γ in
    `RELEVANCES`, and this γ.

    e are the eigenvalues of the information about the parameters, and q is the score at zero along
    the eigenvectors.  The gain is ½ Σ [γq²/(1 + γe) − log(1 + γe)].
    """
    grown = 1.0 + RELEVANCES[:, None] * np.maximum(e, 0.0)
    gains = 0.5 * (RELEVANCES[:, None] * q * q / grown - np.log(grown)).sum(axis=1)
    best = int(gains.argmax())
    return float(gains[best]), float(RELEVANCES[best])


def basis_of(tasks: Tasks, terms: Sequence[Term]) -> Array:
    """Return the R of all terms, (q, Σ m)."""
    q = 0 if tasks.side is None else tasks.side.shape[1]
    return np.hstack([np.zeros((q, 0)), *(term.R for term in terms)])


def design(tasks: Tasks, terms: Sequence[Term]) -> Array:
    """Return u (T, 1 + Σ m): a column of ones, and v(s) R of each term."""
    side = np.zeros((len(tasks), 0)) if tasks.side is None else tasks.side
    return np.hstack([np.ones((len(tasks), 1)), side @ basis_of(tasks, terms)])


def information_of(u: Array, v: Array, A: Array) -> Array:
    """Return Σ uvᵀ ⊗ A over tasks."""
    (T, i), j, d = u.shape, v.shape[1], A.shape[1]
    total, size = np.zeros((i * j, d * d)), max(1, (1 << 18) // (i * j))  # 2 MB at a time
    for start in range(0, T, size):
        part = slice(start, start + size)
        products = u[part, :, None] * v[part, None, :]
        total += products.reshape(len(products), -1).T @ A[part].reshape(-1, d * d)
    return total.reshape(i, j, d, d).transpose(0, 2, 1, 3).reshape(i * d, j * d)


def roots_of(terms: Sequence[Term], d: int) -> Array:
    """Return the matrix that maps (b, z) to the coefficients of u."""
    blocks = (np.sqrt(t.effect.relevance) * np.kron(np.eye(t.R.shape[1]), t.L) for t in terms)
    return np.asarray(block_diag(np.eye(d), *blocks))
