"""Selection and fit of shared effects, which are the same in every task.

With shared effects ``Zu``, the targets of a task are ``Xw + Zu`` plus noise, where ``w ~ N(b, W)``
and ``u ~ N(0, γI)`` with a variance γ for each effect.  W and the noise are given in the selection,
and b and the kept effects are integrated out.  An effect is kept if its gain in log evidence at its
best γ exceeds the logarithm of the number of candidates of its kind.  For effects of categories,
any positive gain is enough; without it, they are zero.  γ of the kept effects is estimated by
MacKay's update, and W by EM on the residuals.

The residuals ``y − Zû`` vary less than ``y − Zu``, by ``ZCov(u)Zᵀ``.  W and the noise of the
residuals are therefore too small, and so are standard errors of b that treat u as known;
`FittedEffects` contains the corrections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...gaussian.em import fit_roughly
from ...gaussian.mixture import Mixture
from ...gaussian.responses import NegativeBinomial, Poisson
from ...gaussian.rows import Tasks
from ...gaussian.side import LARGEST_EFFECT, STEPS, best_gain, changes_of_relevance
from ...gaussian.sites import ResponseRows
from ...priors.shared import SharedCurve, SharedEffect, SharedEffects, SharedLevels, SharedProduct
from ...priors.side_features import KNOTS, LARGEST_RANGE, Curve
from ...tasks.rows import Array
from ...tasks.task_set import TaskSet
from ..data import Index, TrainingData
from ..loop import Candidate, FittedEffects, State, Table
from ..rule import is_as_good, least_gain
from ..structures import Working

#: Minimum number of training tasks in a fold for curves and products, and of tasks per value for
#: effects of values; minimum number of distinct values of a column.
LEAST_TASKS, LEAST_VALUES = 5, 3
#: Maximum number of entries of Z used to select and fit effects.
MOST_ENTRIES = 10_000_000
#: Maximum number of columns for which curves and products are candidates.
MOST_COLUMNS = 12
#: Effects of categories on classes and counts are fitted in rounds, until their sum changes by less
#: than `SETTLED` in all rows.  `LARGEST_STEP` is the maximum change of a coefficient in one round.
MOST_ROUNDS, SETTLED, LARGEST_STEP = 12, 0.1, 1.0
#: Maximum number of tasks, and of rows per task, from which the multiples of W and the noise are
#: computed.
MOST_GROWN = 200


class SharedTerm(NamedTuple):
    """A candidate: its columns Z (n, m), and a function that returns the effect in the units of the
    targets.

    The arguments of this function are the scale of the targets, and the coefficients (m,), their
    variances (m,) and γ of scaled targets.
    """

    values: Array
    kind: str
    #: None if the term only competes with others and is not fitted here.
    effect: Callable[[float, Array, Array, float], SharedEffect] | None = None


class GaussianRows(NamedTuple):
    """Rows with a common noise variance."""

    X: Array
    y: Array
    roots: Array  # (n,) factors by which the rows were multiplied
    noise: float


def accept_shared_effects(state: State, table: Table) -> State:
    """Accept curves, products and effects of values unless held-out tasks object.

    They are selected and fitted again in each fold.  Effects of categories are part of the model,
    and do not compete.
    """
    data = state.data
    if isinstance(data.response, Poisson):
        # With a Poisson response, the effects would absorb overdispersion.
        data = replace(data, settings=replace(data.settings, loss=NegativeBinomial()))
    fitted, proposed = fit_effects(data, proposes=False, corrects=True), None
    if data.settings.proposes and min(len(fold.split.train) for fold in state.folds) >= LEAST_TASKS:
        proposed = fit_effects(data, corrects=True)
    if proposed is not None and len(proposed.effects.effects) > len(data.settings.levels):

        def score(proposes: bool) -> Candidate:
            def rest(train: TrainingData) -> TrainingData:
                effects = fit_effects(train, proposes=proposes)
                return data if effects is None else data.without(effects.effects)

            return table.compete(Working.of(data), state.views(data, rest))

        fitted = proposed if is_as_good(score(True), score(False)) else fitted
    return state if fitted is None else State.of(state.original, fitted)


def fit_effects(
    data: TrainingData, *, proposes: bool = True, corrects: bool = False
) -> FittedEffects | None:
    """Select and fit the shared effects; return None if none is selected.

    Without ``proposes``, only effects of categories are fitted.  ``corrects`` also computes the
    corrections of W and the noise.
    """
    tasks, sizes = data.tasks, data.settings.levels
    proposes = proposes and data.settings.proposes and tasks.n_features <= MOST_COLUMNS
    if tasks.is_sparse or not (sizes or proposes):
        return None
    width = sum(sizes.values()) + (KNOTS + 1) * tasks.n_features
    n_parts = int(np.ceil(len(tasks.y) * width / MOST_ENTRIES))
    tasks = tasks[::n_parts] if n_parts > 1 else tasks
    terms = [_levels(j, tasks.X[:, j], n) for j, n in sizes.items()]
    encoder = data.side.encoder if proposes and data.side is not None else None
    if proposes:
        side = SharedEffects((), encoder=encoder).encode_rows(tasks)
        numeric = [j for j in _usable(tasks.X) if j not in sizes]
        terms += [term for term in _proposals(tasks, numeric, side) if term is not None]
    if not terms:
        return None
    levels = tuple(SharedLevels(j, np.zeros(n), np.zeros(n), 0.0) for j, n in sizes.items())
    nothing = SharedEffects(levels, encoder=encoder)
    return _fit(data.without(nothing), tasks, terms, nothing, corrects)


def _proposals(tasks: TaskSet, numeric: list[int], side: Array) -> Iterator[SharedTerm | None]:
    """Yield effects of values, curves and products of columns, and effects of side information (n,
    k) on their slopes.
    """
    X = tasks.X
    yield from (_values(tasks, j) for j in numeric)
    yield from (_curve(X, j) for j in numeric)
    yield from (_product(X, pair) for pair in combinations(numeric, 2))
    if len(numeric) * side.shape[1] <= MOST_COLUMNS:
        for k in _usable(side):
            yield from (_curve(X, j, (k, side[:, k])) for j in numeric)
            for j in numeric:
                # An effect of side information on a slope is fitted later, and here only competes
                # with curves.
                values = (X[:, [j]] - X[:, j].mean()) * (side[:, [k]] - side[:, k].mean())
                yield SharedTerm(values / (values.std() or 1.0), "slope by side information")


def _usable(X: Array) -> list[int]:
    """Return the positions of columns that are not constant and whose powers neither overflow nor
    lose all digits.
    """
    with np.errstate(over="ignore"):
        ranges, largest = np.ptp(X, axis=0), np.abs(X).max(axis=0, initial=0.0)
    usable = (ranges > 1e-6 * largest) & (ranges > 1.0 / LARGEST_RANGE) & (ranges < LARGEST_RANGE)
    return np.flatnonzero(usable).tolist()


def _levels(column: int, codes: Array | Index, n: int, values: Array | None = None) -> SharedTerm:
    """Return an effect of each category of a column, or of each of the ``values``; unknown
    categories have the code −1.
    """

    def effect(scale: float, u: Array, variances: Array, gamma: float) -> SharedLevels:
        squared = scale**2
        return SharedLevels(column, scale * u, squared * variances, squared * gamma, values)

    kind = "levels" if values is None else "period"
    return SharedTerm((codes[:, None] == np.arange(n)).astype(float), kind, effect)


def _values(tasks: TaskSet, column: int) -> SharedTerm | None:
    """Return an effect of each value of a column; None if there are few or many values, or if most
    occur in few tasks.
    """
    values, codes = np.unique(tasks.X[:, column], return_inverse=True)
    n = len(values)
    if not LEAST_VALUES <= n <= LARGEST_EFFECT:
        return None
    pairs = np.unique(tasks.task_of_row * n + codes)
    return None if len(pairs) < LEAST_TASKS * n else _levels(column, codes, n, values)


def _curve(X: Array, column: int, by: tuple[int, Array] | None = None) -> SharedTerm | None:
    """Return a curve of a column, times a side feature if ``by`` (position, values (n,)) is given;
    None with too few values.
    """
    curve = Curve.fit(X[:, column], column, LEAST_VALUES)
    if curve is None:
        return None
    features = curve(X)
    mean = features.mean(axis=0)
    basis = curve.smooth_basis(features - mean)
    if by is None:
        basis = basis[:, 1:]  # the linear effect of the column is a fixed effect
    values = (features - mean) @ basis
    position, centre = (-1, 0.0) if by is None else (by[0], float(by[1].mean()))
    if by is not None:
        values = values * (by[1] - centre)[:, None]
    size = np.sqrt(np.mean(np.sum(values**2, axis=1))) or 1.0

    def effect(scale: float, u: Array, *_: object) -> SharedCurve:
        coef = basis @ u / size
        return SharedCurve(curve, scale * coef, scale * float(mean @ coef), position, centre)

    kind = "curve" if by is None else "curve by side information"
    return SharedTerm(values / size, kind, effect) if values.shape[1] else None


def _product(X: Array, columns: tuple[int, int]) -> SharedTerm | None:
    centre = X[:, columns].mean(axis=0)
    values = (X[:, columns] - centre).prod(axis=1)
    level, size = float(values.mean()), float(values.std())
    if not size > 1e-9 * np.abs(values).max(initial=0.0):
        return None

    def effect(scale: float, u: Array, *_: object) -> SharedProduct:
        coef, (first, second) = scale * float(u[0] / size), centre.tolist()
        return SharedProduct(columns, (first, second), coef, level * coef)

    return SharedTerm(((values - level) / size)[:, None], "product", effect)


def _fit(
    data: TrainingData,
    tasks: TaskSet,
    terms: list[SharedTerm],
    effects: SharedEffects,
    corrects: bool,
) -> FittedEffects | None:
    encoder, scale, has_levels = effects.encoder, data.scaling.target, bool(effects.levels)
    Z = np.hstack([term.values for term in terms])
    # The term of each column of Z.
    of = np.repeat(np.arange(len(terms)), [term.values.shape[1] for term in terms])
    is_fitted = np.array([term.effect is not None for term in terms])
    u, part = np.zeros(len(of)), np.zeros(len(Z))
    for n_rounds in range(1, MOST_ROUNDS + 1):
        rest = effects.residual_tasks(tasks, data.response)
        statistics = data.statistics_of(rest)
        model = fit_roughly(statistics, data.settings.varying)
        rows = _gaussian_rows(data, rest, statistics, model, part)
        H, d = _information(rows, tasks.offsets, Z, model.bases[0]), rows.X.shape[1]
        on_mean, projected = _integrate_mean(H, d)
        gamma, found = _select(projected, terms, of)
        is_linear = statistics.is_gaussian or not effects.levels
        # Sites approximate the likelihood near the current effects only, so a longer step could
        # overshoot.
        u = found if is_linear else np.clip(found, u - LARGEST_STEP, u + LARGEST_STEP)
        # Predictions use the variance of u given b, because errors of b and u partly cancel in the
        # sum.
        _, given_mean, used = _posterior(H[d:, d:], of, gamma * is_fitted)
        variances = np.zeros(len(of))
        variances[used] = np.diagonal(given_mean)
        made = tuple(
            term.effect(scale, u[of == i], variances[of == i], float(gamma[i]))
            for i, term in enumerate(terms)
            if term.effect is not None and (gamma[i] or term.kind == "levels")
        )
        reads_side = any(isinstance(one, SharedCurve) and one.by >= 0 for one in made)
        used_encoder = encoder if reads_side else None
        effects = SharedEffects(made, statistics.skewness(model), encoder=used_encoder)
        previous, part = part, effects.predict(tasks.X, effects.encode_rows(tasks))
        # Effects of categories can be larger than the noise, so W and the noise are estimated again
        # without them.
        is_settled = is_linear or np.abs(part - previous).max(initial=0.0) < SETTLED
        if is_settled and n_rounds > has_levels:
            break
    if not made:
        return None
    covariance = _posterior(projected, of, gamma * is_fitted)[1]
    errors = scale**2 * on_mean[:, used] @ covariance @ on_mean[:, used].T
    # Curves and products have too few coefficients to matter here.
    growth = (1.0, 1.0)
    if corrects and effects.levels:
        # A dispersion φ adds φ to the variance 1/τ of a site, and the rows of the sites were
        # multiplied by √τ.
        noise = model.noise * rows.roots ** (2 if data.response.has_dispersion else 0)
        growth = _growth(rows, tasks.offsets, Z[:, used], model.covariances[0], noise, given_mean)
    return FittedEffects(effects, errors, growth)


def _gaussian_rows(
    data: TrainingData, tasks: TaskSet, statistics: Tasks, model: Mixture, fitted: Array
) -> GaussianRows:
    """Return the rows of residual tasks, after adding back ``fitted``, the sum of the subtracted
    effects.
    """
    if isinstance(statistics, ResponseRows):
        precisions, y, *_ = statistics.gaussian_rows(model)
        roots = np.sqrt(precisions)
        return GaussianRows(statistics.X * roots[:, None], (y + fitted) * roots, roots, 1.0)
    X, y = data.scaling.weighted_rows(tasks)
    weights = tasks.row_weights
    roots = np.ones(len(y)) if weights is None else np.sqrt(weights)
    return GaussianRows(X, y + fitted / data.scaling.target * roots, roots, model.noise)


def _information(rows: GaussianRows, offsets: NDArray[np.intp], Z: Array, L: Array) -> Array:
    """Return the sum over tasks of MᵀS⁻¹M for M = [X, Z, y], S = XWXᵀ + σ²I and W = LLᵀ.

    MᵀS⁻¹M is the minimum of (M − XLB)ᵀ(M − XLB)/σ² + BᵀB over B.  This sum of squares is positive
    semidefinite, however small σ² is.
    """
    X, y, roots, noise = rows
    M, XL = np.column_stack([X, Z * roots[:, None], y]), X @ L
    ridge, B = noise * np.eye(L.shape[1]), np.empty((len(offsets) - 1, L.shape[1], M.shape[1]))
    for t, (start, stop) in enumerate(pairwise(offsets)):
        own, xl = M[start:stop], XL[start:stop]
        B[t] = np.linalg.solve(ridge + xl.T @ xl, xl.T @ own)
        own -= xl @ B[t]
    B = B.reshape(-1, M.shape[1])
    return M.T @ M / noise + B.T @ B


def _integrate_mean(H: Array, d: int) -> tuple[Array, Array]:
    """Return the effects of the other columns on b, and their information after integrating b."""
    left = H[:d, :d] + 1e-10 * np.trace(H[:d, :d]) / d * np.eye(d)
    on_mean = np.linalg.solve(left, H[:d, d:])
    return on_mean, H[d:, d:] - H[d:, :d] @ on_mean


def _growth(
    rows: GaussianRows, offsets: NDArray[np.intp], Z: Array, W: Array, own: Array, covariance: Array
) -> tuple[float, float]:
    """Return multiples of W and of the noise variances ``own`` (n,) that add about ZCov(u)Zᵀ to S,
    by Fisher scoring.
    """
    X, _, roots, noise = rows
    left, right = np.zeros((2, 2)), np.zeros(2)
    few = np.flatnonzero(np.diff(offsets) <= MOST_GROWN)
    for t in few[:: 1 + len(few) // MOST_GROWN]:
        at = slice(offsets[t], offsets[t + 1])
        x, z = X[at], Z[at] * roots[at, None]
        present = z.any(axis=0)
        missing = z[:, present] @ covariance[np.ix_(present, present)] @ z[:, present].T
        inverse = np.linalg.inv(x @ W @ x.T + noise * np.eye(len(x)))
        changes = [x @ W @ x.T, np.diag(own[at])]
        weighted = [inverse @ change @ inverse for change in changes]
        left += [[np.sum(each * change) for change in changes] for each in weighted]
        right += [np.sum(each * missing) for each in weighted]
    of_covariance, of_noise = 1.0 + np.clip(np.linalg.lstsq(left, right)[0], 0.0, 1.0)
    return float(of_covariance), float(of_noise)


def _select(H: Array, terms: list[SharedTerm], of: Index) -> tuple[Array, Array]:
    """Select terms; return γ of each term, zero if it is not kept, and the coefficients of all
    columns of Z.
    """
    # The rest of the model does not use categories, so any gain is enough.
    counts = Counter(term.kind for term in terms)
    least = [0.0 if term.kind == "levels" else least_gain(counts[term.kind]) for term in terms]

    def gains(candidates: list[int], others: Array) -> dict[int, tuple[float, float]]:
        """Return the gain in log evidence of each candidate, given the ``others``, and its best
        γ.
        """
        _, covariance, used = _posterior(H, of, others)
        given = H - H[:, used] @ covariance @ H[used]
        found = {}
        for i in candidates:
            at = np.flatnonzero(of == i)
            e, directions = np.linalg.eigh(given[np.ix_(at, at)])
            found[i] = best_gain(e, directions.T @ given[at, -1])
        return found

    gamma, order = np.zeros(len(terms)), list[int]()
    while len(order) < len(terms):
        found = gains([i for i in range(len(terms)) if i not in order], gamma)
        best = max(found, key=lambda i: found[i][0] - least[i])
        if found[best][0] <= least[best]:
            break
        order.append(best)
        gamma[best] = found[best][1]
        gamma = _updated(H, of, gamma)
    for i in order:
        rest = np.where(np.arange(len(terms)) == i, 0.0, gamma)
        gamma = rest if gains([i], rest)[i][0] < least[i] else gamma
    gamma, u = _updated(H, of, gamma), np.zeros(len(of))
    mean, _, used = _posterior(H, of, gamma)
    u[used] = mean
    return gamma, u


def _posterior(H: Array, of: Index, gamma: Array) -> tuple[Array, Array, Index]:
    """Return the posterior mean and covariance of the coefficients of the kept terms, and their
    positions.
    """
    used = np.flatnonzero(gamma[of])
    covariance = np.linalg.inv(H[np.ix_(used, used)] + np.diag(1.0 / gamma[of[used]]))
    return covariance @ H[used, -1], np.asarray(covariance), used


def _updated(H: Array, of: Index, gamma: Array) -> Array:
    """Return γ after MacKay's updates."""
    kept = np.flatnonzero(gamma)
    for _ in range(STEPS):
        mean, covariance, used = _posterior(H, of, gamma)
        roots, at = np.sqrt(gamma[of[used]]), np.searchsorted(kept, of[used])
        gamma = gamma.copy()
        gamma[kept] *= changes_of_relevance(at, mean / roots, covariance.diagonal() / roots**2)
    return gamma
