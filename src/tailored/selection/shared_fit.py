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

from ..gaussian.em import fit_roughly
from ..gaussian.mixture import Mixture, Want
from ..gaussian.rows import Tasks
from ..gaussian.side import LARGEST_EFFECT, STEPS, best_gain, least_gain
from ..gaussian.sites import ResponseRows
from ..priors.shared import SharedCurve, SharedEffect, SharedEffects, SharedLevels, SharedProduct
from ..priors.side_features import KNOTS, LARGEST_RANGE, Curve
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .data import Index, TrainingData

#: Minimum number of training tasks in a fold for curves and products, and of tasks per value for
#: effects of values; minimum number of distinct values of a column.
LEAST_TASKS, LEAST_VALUES = 5, 3
#: Maximum number of entries of Z used to select and fit effects, and number of tasks per batch.
MOST_ENTRIES, TASKS_AT_ONCE = 20_000_000, 250
#: Maximum number of columns for which curves and products are candidates.
MOST_COLUMNS = 12
#: Effects of categories on classes and counts are fitted in rounds, until their sum changes by less
#: than `SETTLED` in all rows.  `LARGEST_STEP` is the maximum change of a coefficient in one round.
MOST_ROUNDS, SETTLED, LARGEST_STEP = 12, 0.1, 1.0
#: Maximum numbers of tasks, and of rows per task, from which the multiples of W and the noise are
#: computed.
GROWTH_TASKS, GROWTH_ROWS = 200, 200


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


class FittedEffects(NamedTuple):
    """The shared effects, and corrections for the errors of these effects, to be applied to the
    model of the residuals.
    """

    effects: SharedEffects
    mean_errors: (
        Array  # (d, d) to be added to the error covariance of b, in squared units of the targets
    )
    growth: tuple[float, float]  # multiples of W and of the noise


class GaussianRows(NamedTuple):
    """Rows with a common noise variance, and the posterior covariances C (T, d, d) of the tasks'
    coefficients.
    """

    X: Array
    y: Array
    roots: Array  # (n,) factors by which the rows were multiplied
    noise: float
    C: Array


def fit_effects(data: TrainingData, *, corrects: bool = False) -> FittedEffects | None:
    """Select and fit the shared effects; return None if none is selected.

    ``corrects`` also computes the corrections of W and the noise.
    """
    tasks, sizes = data.tasks, data.settings.levels
    proposes = data.settings.proposes and tasks.n_features <= MOST_COLUMNS
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
    encoder, scale = effects.encoder, data.scaling.target
    Z = np.hstack([term.values for term in terms])
    ends = np.cumsum([term.values.shape[1] for term in terms])
    parts = np.split(np.arange(Z.shape[1]), ends[:-1])
    # Effects of categories can be larger than the noise, so W and the noise are estimated again
    # without them.
    least, before = 2 if effects.levels else 1, np.zeros(Z.shape[1])
    part = np.zeros(len(Z))
    for n_rounds in range(1, MOST_ROUNDS + 1):
        rest = effects.residual_tasks(tasks, data.response)
        statistics = data.statistics_of(rest)
        model = fit_roughly(statistics, data.settings.varying)
        rows = _gaussian_rows(data, rest, statistics, model, part)
        H, d = _information(rows, tasks.offsets, Z), rows.X.shape[1]
        left = H[:d, :d] + 1e-10 * np.trace(H[:d, :d]) / d * np.eye(d)
        on_mean = np.linalg.solve(left, H[:d, d:])
        projected = H[d:, d:] - H[d:, :d] @ on_mean  # b is integrated out
        kept, u = _select(projected, terms, parts)
        is_linear = statistics.is_gaussian or not effects.levels
        if not is_linear:
            # Sites approximate the likelihood near the current effects only, so a longer step could
            # overshoot.
            u = before = np.clip(u, before - LARGEST_STEP, before + LARGEST_STEP)
        kept_effects = {i: gamma for i, gamma in kept.items() if terms[i].effect is not None}
        # Predictions use the variance of u given b, because errors of b and u partly cancel in the
        # sum.
        _, given_mean, used = _posterior(H[d:, d:], parts, kept_effects)
        variances = np.zeros(len(u))
        variances[used] = np.diagonal(given_mean)
        made = [
            term.effect(scale, u[at], variances[at], kept.get(i, 0.0))
            for i, (term, at) in enumerate(zip(terms, parts, strict=True))
            if term.effect is not None and (i in kept or term.kind == "levels")
        ]
        reads_side = any(isinstance(one, SharedCurve) and one.by >= 0 for one in made)
        skewness = statistics.skewness(model)
        effects = SharedEffects(tuple(made), skewness, encoder=encoder if reads_side else None)
        previous, part = part, effects.predict(tasks.X, effects.encode_rows(tasks))
        is_settled = is_linear or np.abs(part - previous).max(initial=0.0) < SETTLED
        if n_rounds >= least and is_settled:
            break
    if not made:
        return None
    covariance = _posterior(projected, parts, kept_effects)[1]
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
        roots, sites = np.sqrt(precisions), statistics.sites_of(precisions, y)
        C = sites.posterior(
            replace(model, noise=1.0, side=None), Want(covariances=True)
        ).covariances
        return GaussianRows(statistics.X * roots[:, None], (y + fitted) * roots, roots, 1.0, C)
    X, y = data.scaling.weighted_rows(tasks)
    weights = tasks.row_weights
    roots = np.ones(len(y)) if weights is None else np.sqrt(weights)
    C = statistics.posterior(model, Want(covariances=True)).covariances
    return GaussianRows(X, y + fitted / data.scaling.target * roots, roots, model.noise, C)


def _information(rows: GaussianRows, all_offsets: NDArray[np.intp], Z: Array) -> Array:
    """Return the sum over tasks of MᵀS⁻¹M for M = [X, Z, y] and S = XWXᵀ + σ²I."""
    X, y, roots, noise, C = rows
    d = X.shape[1]
    H = np.zeros((d + Z.shape[1] + 1,) * 2)
    for first in range(
        0, len(C), TASKS_AT_ONCE
    ):  # in batches, because all of M would be as large as Z
        offsets = all_offsets[first : first + TASKS_AT_ONCE + 1]
        at = slice(offsets[0], offsets[-1])
        M = np.column_stack([X[at], Z[at] * roots[at, None], y[at]])
        H += M.T @ M
        for t, (start, stop) in enumerate(pairwise(offsets - offsets[0]), first):
            K = M[start:stop, :d].T @ M[start:stop]
            H -= K.T @ (C[t] @ K) / noise
    return H / noise


def _growth(
    rows: GaussianRows, offsets: NDArray[np.intp], Z: Array, W: Array, own: Array, covariance: Array
) -> tuple[float, float]:
    """Return multiples of W and of the noise variances ``own`` (n,) that add about ZCov(u)Zᵀ to S,
    by Fisher scoring.
    """
    X, _, roots, noise, C = rows
    left, right = np.zeros((2, 2)), np.zeros(2)
    few = np.flatnonzero(np.diff(offsets) <= GROWTH_ROWS)
    for t in few[:: 1 + len(few) // GROWTH_TASKS]:
        at = slice(offsets[t], offsets[t + 1])
        x, z = X[at], Z[at] * roots[at, None]
        present = z.any(axis=0)
        missing = z[:, present] @ covariance[np.ix_(present, present)] @ z[:, present].T
        inverse = (np.eye(len(x)) - x @ C[t] @ x.T / noise) / noise
        changes = [x @ W @ x.T, np.diag(own[at])]
        weighted = [inverse @ change @ inverse for change in changes]
        left += [[np.sum(each * change) for change in changes] for each in weighted]
        right += [np.sum(each * missing) for each in weighted]
    of_covariance, of_noise = 1.0 + np.clip(np.linalg.lstsq(left, right)[0], 0.0, 1.0)
    return float(of_covariance), float(of_noise)


def _select(
    H: Array, terms: list[SharedTerm], parts: list[Index]
) -> tuple[dict[int, float], Array]:
    """Select terms; return γ of the kept terms, and the coefficients of all columns of Z."""
    # The rest of the model does not use categories, so any gain is enough.
    counts = Counter(term.kind for term in terms)
    least = [0.0 if term.kind == "levels" else least_gain(counts[term.kind]) for term in terms]
    kept: dict[int, float] = {}

    def gain(i: int, others: dict[int, float]) -> tuple[float, float]:
        """Return the gain in log evidence of term i, given the ``others``, and its best γ."""
        mean, covariance, used = _posterior(H, parts, others)
        cross, own = H[np.ix_(parts[i], used)], H[np.ix_(parts[i], parts[i])]
        e, directions = np.linalg.eigh(own - cross @ covariance @ cross.T)
        return best_gain(e, directions.T @ (H[parts[i], -1] - cross @ mean))

    candidates = set(range(len(terms)))
    while candidates:
        found = {i: gain(i, kept) for i in candidates}
        best = max(found, key=lambda i: found[i][0] - least[i])
        if found[best][0] <= least[best]:
            break
        candidates.remove(best)
        kept = _updated(H, parts, {**kept, best: found[best][1]})
    for i in list(kept):
        rest = {j: gamma for j, gamma in kept.items() if j != i}
        if gain(i, rest)[0] < least[i]:
            kept = rest
    kept = _updated(H, parts, kept)
    mean, _, used = _posterior(H, parts, kept)
    u = np.zeros(len(H) - 1)
    u[used] = mean
    return kept, u


def _posterior(H: Array, parts: list[Index], kept: dict[int, float]) -> tuple[Array, Array, Index]:
    """Return the posterior mean and covariance of the coefficients of the kept terms, and their
    positions.
    """
    used = np.concatenate([np.zeros(0, np.intp), *(parts[i] for i in kept)])
    precisions = np.repeat([1.0 / gamma for gamma in kept.values()], [len(parts[i]) for i in kept])
    covariance = np.linalg.inv(H[np.ix_(used, used)] + np.diag(precisions))
    return covariance @ H[used, -1], covariance, used


def _updated(H: Array, parts: list[Index], kept: dict[int, float]) -> dict[int, float]:
    """Return γ of the kept terms after MacKay's updates."""
    for _ in range(STEPS if kept else 0):
        mean, covariance, _ = _posterior(H, parts, kept)
        ends = np.cumsum([len(parts[i]) for i in kept])[:-1]
        pairs = zip(np.split(mean, ends), np.split(covariance.diagonal(), ends), strict=True)
        updated = {}
        for (i, gamma), (u, variances) in zip(kept.items(), pairs, strict=True):
            known = len(u) - variances.sum() / gamma
            change = u @ u / gamma / max(known, 1e-9)
            updated[i] = gamma * float(np.clip(change, 1e-2, 1e2))
        kept = updated
    return kept
