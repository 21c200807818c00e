"""Shifts of the prior mean that minimise the query risk: the loss of query rows, given support rows.

Let w be the posterior mean of a task under the mixture, R its `tailored.gaussian.moments.influence`, and ψ(s) the `TaskSummary`
of its rows.  A shift ``B (1, ψ(s))`` of the prior mean moves w by ``R B (1, ψ(s))``, at fixed responsibilities.  A query row x
is then predicted by ``<x, w> + <Rᵀx, B (1, ψ(s))>``.  This is linear in B, so learning B is a convex problem.  Shifts can improve
on the Gaussian model because they minimise the user's loss, for example the absolute loss, whose minimiser is the median.

The effect of a shift depends on the number of support rows, so one B is learned for each of a few support sizes
(`tailored.priors.mixture.mean_shifts` interpolates).  The penalty on each B is selected on held-out tasks.  All shifts are then
accepted or rejected together by the rule of `rule`, on the same tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from .._utils.records import cached_property
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import influence
from ..gaussian.serial import SerialGaussian, SerialMoments
from ..losses import BoxLoss, DualBox, Loss, Squared
from ..priors.base import products
from ..priors.mixture import MeanShift, TaskSummary
from ..tasks.episodes import Episodes, SupportSampling
from ..tasks.rows import BATCH_FLOATS, Array, clipped
from ..tasks.task_set import TaskSet
from .data import MANY_TASKS, Draw, Fold, TrainingData
from .rule import known_mean, significant

Tick = Callable[[int], None]

#: Candidate penalties, strongest first; each fit starts from the previous one.
PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
#: Width of the smoothed kink of the loss, as a multiple of r²/R: r is the mean absolute residual without shifts, and R the mean
#: loss.  This ratio is in units of the targets for the absolute loss, and has no unit for the squared loss.
SMOOTHING = 0.1
#: Relative penalty on the first column of B, a shift that is the same for all tasks.
CONSTANT_PENALTY = 1e-3
#: Maximum number of Newton steps, and absolute tolerances for the gradient and for the objective, which is of order one.
NEWTON_STEPS, FLAT, ROUNDING = 100, 1e-11, 1e-14
#: Maximum number of entries of B for Newton's method: in the search over penalties, and for the exact final B.
FEW_ENTRIES, LARGEST_NEWTON = 200, 1500
#: The search stops after this many penalties in a row without improvement.
PATIENCE = 2
#: Maximum number of tasks for learning B.
BIAS_TASKS = 5000


def smoothed(box: DualBox, prediction: Array, width: float) -> tuple[Array, Array]:
    """Return values and slopes of a loss with ``½ width α²`` added to its conjugate, which smooths its kinks.

    The absolute loss becomes the Huber loss, which is (p − y)² / (2 width) for |p − y| ≤ width.
    """
    beyond = prediction - box.linear
    shrunk = np.sign(beyond) * np.maximum(np.abs(beyond) - box.kink, 0.0)
    curvature = box.quadratic + width
    slope = np.clip(shrunk / curvature, box.lower, box.upper)
    return slope * beyond - 0.5 * curvature * slope**2 - box.kink * np.abs(slope), slope


@dataclass(frozen=True)
class QueryBias:
    """The smoothed query risk of B relative to that without shifts, plus a ridge penalty on each column of B (see `_penalties`)."""

    directions: Array  # (N, d), Rᵀx of each query row
    features: Array  # (N, k), (1, ψ) of the task of each query row
    prediction: Array  # (N,) predictions without shifts
    target: Array
    weight: Array  # (N,) weights of the rows, which sum to one
    loss: Loss
    unit: float = 1.0  # scale of the targets

    @cached_property
    def _box(self) -> DualBox:
        assert isinstance(self.loss, BoxLoss)
        return self.loss.dual_box(self.target)

    @cached_property
    def residual(self) -> float:
        """Mean absolute residual without shifts, bounded away from zero."""
        return max(float(self.weight @ np.abs(self.target - self.prediction)), 1e-9 * self.unit)

    @cached_property
    def risk(self) -> float:
        """Mean loss without shifts, bounded away from zero."""
        of_unit = float(self.loss.value(np.array([self.unit]), np.zeros(1))[0]) or self.unit
        return max(float(self.weight @ self.loss.value(self.prediction, self.target)), 1e-9 * of_unit)

    @property
    def _width(self) -> float:
        return SMOOTHING * self.residual**2 / self.risk

    def predict(self, B: Array) -> Array:
        """Predict the query rows with prior means shifted by B (1, ψ)."""
        return self.prediction + np.einsum("nk,nk->n", self.directions @ B, self.features)

    def value_and_gradient(self, flat: Array, penalty: float) -> tuple[float, Array]:
        """Return the objective and its gradient at B (d, k); B and the gradient are flattened."""
        B = flat.reshape(self.directions.shape[1], self.features.shape[1])
        values, slopes = smoothed(self._box, self.predict(B), self._width)
        slopes *= self.weight / self.risk
        penalties = self._penalties(penalty)
        value = self.weight @ values / self.risk + 0.5 * np.sum(penalties * B * B)
        gradient = (self.directions * slopes[:, None]).T @ self.features + penalties * B
        return float(value), gradient.ravel()

    def _penalties(self, penalty: float) -> Array:
        """Return the penalty on each column of B, (k,), for B in units of the mean absolute residual."""
        penalties = np.full(self.features.shape[1], penalty * (self.unit / self.residual) ** 2)
        penalties[0] *= CONSTANT_PENALTY
        return penalties

    def second_derivatives(self, flat: Array, penalty: float) -> Array:
        """Return the Hessian (dk, dk) of the objective at B (d, k)."""
        B = flat.reshape(self.directions.shape[1], self.features.shape[1])
        box, width = self._box, self._width
        slopes = smoothed(box, self.predict(B), width)[1]
        # The smoothed loss is linear where its slope is at a bound, and constant within a kink, where its slope is zero.
        bent = (slopes > box.lower) & (slopes < box.upper) & ((slopes != 0.0) | (box.kink == 0.0))
        moved = self.directions[bent][:, :, None] * self.features[bent][:, None, :]
        moved = moved.reshape(len(moved), B.size)
        curvature = np.broadcast_to(1.0 / (box.quadratic + width), bent.shape)[bent]
        bends = (moved * (self.weight[bent] * curvature / self.risk)[:, None]).T @ moved
        return np.asarray(bends + np.diag(np.tile(self._penalties(penalty), len(B))))

    def fit(self, penalty: float, start: Array | None = None, *, exact: bool = False) -> Array:
        """Return the optimal B (d, k), by Newton's method from ``start`` or, for many entries, by L-BFGS.

        L-BFGS stops when the objective hardly decreases.  With small penalties, this point depends on the scale of the data,
        so ``exact`` solutions use Newton's method for up to `LARGEST_NEWTON` entries.
        """
        shape = self.directions.shape[1], self.features.shape[1]
        B = np.zeros(shape[0] * shape[1]) if start is None else start.ravel()
        if B.size > (LARGEST_NEWTON if exact else FEW_ENTRIES):
            options = {"maxiter": 1000 if exact else 60, "maxcor": 20}
            B = minimize(self.value_and_gradient, B, (penalty,), "L-BFGS-B", True, options=options).x
            return np.asarray(B).reshape(shape)
        value, gradient = self.value_and_gradient(B, penalty)
        for _ in range(NEWTON_STEPS):
            if np.abs(gradient).max() <= FLAT:
                break
            step, before = np.linalg.solve(self.second_derivatives(B, penalty), gradient), value + ROUNDING
            while True:
                value, gradient = self.value_and_gradient(B - step, penalty)
                if value <= before or not np.abs(step).max() > FLAT:
                    break
                step = 0.5 * step
            B = B - step
        return B.reshape(shape)


@dataclass(frozen=True)
class FittedShifts:
    """Shifts, ordered by increasing support size; those without B are zero."""

    shifts: Sequence[MeanShift]  # learned from all tasks, or from a sample of `BIAS_TASKS`
    #: Learned from the training tasks of each fold, with the same penalties.
    folds: Sequence[Sequence[MeanShift]]
    results: list[dict[str, Any]]  # errors of all candidates
    penalty: float | None = None  # for the largest support size; None without a shift
    #: Errors of the held-out tasks at the largest support size; None if no shift was tried.
    errors: Array | None = None


class _Search(NamedTuple):
    """The result of the search over penalties for one support size."""

    rows: int
    penalty: float | None  # None if no penalty lowers the held-out error
    folds: list[MeanShift]
    errors: Array  # errors of the held-out tasks
    without: Array  # errors without shifts
    results: list[dict[str, Any]]


@dataclass
class _Path:
    """The state of a fold in the search over penalties."""

    train: QueryBias
    held_out: QueryBias
    episodes: Episodes
    n_tasks: int
    summary: TaskSummary
    B: Array | None = None


def fit_shifts(data: TrainingData, model: Mixture, fits: list[Mixture], tick: Tick) -> FittedShifts:
    """Learn a shift for each support size; ``model`` is fitted to all tasks, ``fits`` to the training tasks of each fold.

    No shift is learned for classes and counts.  B has more than d² entries, so none is learned with more than `WIDE` coefficients,
    or with at least as many coefficients as tasks.  With the squared loss, none is learned if the user sets the covariance.
    """
    is_given = data.settings.covariance is not None and isinstance(data.settings.loss, Squared)
    is_small = not data.is_wide and len(data) > data.statistics.n_features
    if is_given or not data.response.is_gaussian or not is_small:
        return FittedShifts((), [()] * len(fits), [])
    sizes = shift_sizes(data.tasks, data.settings.arrival)
    searches = [_select_penalty(data, fits, rows, tick) for rows in sizes]
    # The shifts of all support sizes are accepted or rejected together, by the mean of their relative gains.
    gains = [(each.without - each.errors) / (known_mean(each.without) or 1.0) for each in searches]
    if not significant(np.mean(gains, axis=0)):
        nothing = ([MeanShift(rows)] * len(fits) for rows in sizes)
        pairs = zip(searches, nothing, strict=True)
        searches = [each._replace(penalty=None, folds=none, errors=each.without) for each, none in pairs]
    shifts = [_fit_shift(data, model, each.rows, each.penalty) for each in searches]
    folds = list(zip(*(each.folds for each in searches), strict=True))
    results = [result for each in searches for result in each.results]
    return FittedShifts(shifts, folds, results, searches[-1].penalty, searches[-1].errors)


def shift_sizes(tasks: TaskSet, arrival: SupportSampling) -> list[int]:
    """Return the support sizes for which a B is learned; the last B is also used for larger sizes."""
    low, high = arrival.rows(tasks.sizes)
    if arrival.support is not None:
        return sorted({0, round(low), round(high)})
    return sorted({0, round(high / 4), round(high * 3 / 4)})


def _fit_shift(data: TrainingData, model: Mixture, rows: int, penalty: float | None) -> MeanShift:
    """Fit B to all tasks, or to a sample of `BIAS_TASKS`, with the penalty selected in the folds; None gives a zero shift."""
    if penalty is None:
        return MeanShift(rows)
    order = np.random.default_rng(data.seed(Draw.ALL_BIAS_ROWS)).permutation(len(data))
    tasks = data.tasks[np.sort(order[:BIAS_TASKS])]
    n_repeats = 2 if len(data) < MANY_TASKS else 1
    episodes = _episodes(data, tasks, rows, data.seed(Draw.ALL_BIAS_ROWS, 1), n_repeats)
    problem, summary = query_bias(data, episodes, model, None)
    return MeanShift(rows, problem.fit(penalty, exact=True), summary)


def _episodes(data: TrainingData, tasks: TaskSet, rows: int, seed: list[int], n_repeats: int = 1) -> Episodes:
    arrival = data.settings.arrival
    if rows == shift_sizes(data.tasks, arrival)[-1]:
        return arrival.episodes(tasks, seed, n_repeats)
    return arrival.draw(tasks.single_rows(), rows, seed, 2 * n_repeats)


def _select_penalty(data: TrainingData, fits: list[Mixture], rows: int, tick: Tick) -> _Search:
    """Decrease the penalty in all folds until the held-out error has not fallen `PATIENCE` times in a row; select the best."""
    calls = ((data, fold, fit, rows) for fold, fit in zip(data.folds, fits, strict=True))
    paths = list(data.in_parallel(_start, calls))
    results: list[dict[str, Any]] = []
    tried: list[tuple[Array, list[Array | None]]] = []
    for penalty in (None, *PENALTIES):
        errors = np.concatenate(list(data.in_parallel(_advance, ((data, path, penalty) for path in paths))))
        tried.append((errors, [path.B for path in paths]))
        entry = {"kind": "conditional bias", "rows": rows, "penalty": penalty}
        results.append({**entry, "error": known_mean(errors)})
        best = min(range(len(tried)), key=lambda i: results[i]["error"])
        tick(penalty is not None)
        if len(tried) > best + PATIENCE:
            break
    errors, Bs = tried[best]
    pairs = zip(paths, Bs, strict=True)
    folds = [MeanShift(rows) if B is None else MeanShift(rows, B, path.summary) for path, B in pairs]
    return _Search(rows, results[best]["penalty"], folds, errors, tried[0][0], results)


def _start(data: TrainingData, fold: Fold, fit: Mixture, rows: int) -> _Path:
    seeds = data.seed(Draw.BIAS_ROWS, fold.number), data.seed(Draw.HELD_OUT_ROWS, fold.number)
    train = _episodes(data, data.tasks[fold.train], rows, seeds[0])
    held_out = _episodes(data, data.tasks[fold.held_out], rows, seeds[1])
    problem, summary = query_bias(data, train, fit, None)
    tested = query_bias(data, held_out, fit, summary)[0]
    return _Path(problem, tested, held_out, len(fold.held_out), summary)


def _advance(data: TrainingData, path: _Path, penalty: float | None) -> Array:
    """Fit the B of a fold with the given penalty, and return the errors of its held-out tasks."""
    prediction = path.held_out.prediction
    if penalty is not None:
        path.B = path.train.fit(penalty, path.B)
        prediction = path.held_out.predict(path.B)
    return data.errors(path.episodes, clipped(prediction, data.settings.clip), path.n_tasks)


def query_bias(
    data: TrainingData, episodes: Episodes, model: Mixture, summary: TaskSummary | None
) -> tuple[QueryBias, TaskSummary]:
    """Return the problem of learning B on these episodes, and the summary ψ, which is fitted to them unless given."""
    d, query_rows = data.statistics.n_features, episodes.query
    directions, prediction = np.empty((len(query_rows.y), d)), np.empty(len(query_rows.y))
    features: list[Array] = []
    size = max(1, BATCH_FLOATS // d**2)
    for start in range(0, len(query_rows), size):
        support, query = (part[start : start + size] for part in episodes[:2])
        statistics = data.statistics_of(support)
        expected = statistics.posterior(model, Want(means=True, covariances=True))
        weights, R = expected.mean, influence(statistics, model, expected.covariances)
        if summary is None:
            # The tasks of the first batch are enough to estimate means and scales.
            with_side = data.side is not None and not data.side.from_side_info
            summary = TaskSummary.fit(model, statistics, weights, with_side)
        psi = summary(statistics, weights)
        features.append(np.repeat(np.hstack([np.ones((len(psi), 1)), psi]), query.sizes, axis=0))
        X = data.scaling.dense(query.X)
        rows = slice(query_rows.offsets[start], query_rows.offsets[start] + len(X))
        task = np.repeat(np.arange(len(query)), query.sizes)
        raw = data.scaling.raw_weights(weights)
        prediction[rows] = products(query.X, raw, task, data.settings.fit_intercept)
        if isinstance(data.response, SerialGaussian) and isinstance(statistics, SerialMoments):
            past, times = statistics.history(weights), data.response.times(query.X)
            X, noise, _ = data.response.given_support(X, times, task, past, support.sizes)
            prediction[rows] += data.scaling.target * noise
        moved = directions[rows]
        for t, (first, end) in enumerate(pairwise(query.offsets)):
            np.matmul(X[first:end], R[t], out=moved[first:end])
        moved *= data.scaling.target
        if data.settings.varying is not None:
            # Coefficients that are the same in all tasks are not shifted.
            moved[:, ~np.isin(np.arange(d), data.settings.varying)] = 0.0
    assert summary is not None
    weight = 1.0 / (np.repeat(query_rows.sizes, query_rows.sizes) * len(query_rows))
    targets = query_rows.y, weight, data.settings.loss, data.scaling.target
    return QueryBias(directions, np.concatenate(features), prediction, *targets), summary
