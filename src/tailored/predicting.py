"""(Prior, support rows, query rows) -> predictions, with intervals or without, of many tasks at once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import adapting, wide
from ._utils.algebra import solve
from ._utils.threads import single_threaded_blas
from ._utils.validation import outside
from .closed_form import Spreads
from .intervals import Calibration, TaskSpreads, own_noise
from .prior import Prior
from .tasks import Rows, TaskSet
from .tasks.rows import batches, dense, predictions, segment_sums
from .wide import FactorSpreads

Array = NDArray[np.float64]


class Predicted(NamedTuple):
    """Numbers of each query row; all but the predictions are NaN where they were not asked for or not calibrated."""

    prediction: Array
    lower: Array
    upper: Array
    std: Array


def in_order(parts: Sequence[Predicted], places: NDArray[np.intp]) -> Predicted:
    """Numbers of parts of the rows, one after another, at the rows' places among them."""
    return Predicted(*(np.concatenate(column)[places] for column in zip(*parts, strict=True)))


class KnownTasks(NamedTuple):
    """What is kept of tasks that were adapted earlier: weights (T, d) in the user's units, and spreads if there are any."""

    weights: Array
    spreads: TaskSpreads | FactorSpreads | None


def predict(prior: Prior, support: TaskSet, query: TaskSet, n_jobs: int | None = None) -> Array:
    """Predictions of the query rows after adapting to the support rows of the same tasks, in the same order."""
    common = adapting.common_to(prior, support, query)
    if prior.quantile is None:
        tailored = _tailored(prior, query, adapting.weights(prior, support, n_jobs))
    else:
        assert prior.calibration is not None
        found = _spreads(prior, adapting.left_to_tasks(prior, support), query, n_jobs)
        reach = _by_size(support.sizes, lambda n: [_quantile(prior, n)])[:, 0]
        width = prior.units.target * _widths(found, support.sizes, query.sizes, prior.calibration.noise)
        tailored = _tailored(prior, query, prior.units.raw_weights(found.weights))
        tailored += np.repeat(reach, query.sizes) * width
    return adapting.put_together(tailored, common, prior.clip)


def predict_rows(
    prior: Prior, support: TaskSet, query: TaskSet, coverage: float | None = None, n_jobs: int | None = None
) -> Predicted:
    """The same, with intervals: prediction, interval and deviation are those of `TaskRegressor`, task by task."""
    if coverage is None or prior.calibration is None:
        found = predict(prior, support, query, n_jobs)
        return Predicted(found, *(np.full(len(found), np.nan) for _ in range(3)))
    calibration, units = prior.calibration, prior.units
    reach, counted = _reaches(prior, calibration, support.sizes, coverage)
    common = adapting.common_to(prior, support, query)
    at = _spreads(prior, adapting.left_to_tasks(prior, support), query, n_jobs)
    width = _widths(at, support.sizes, query.sizes, calibration.noise)
    low, high, deviation, added = np.repeat(reach, query.sizes, axis=0).T
    # Ends are not those of clipped predictions: the errors of the calibration are not, either.
    lower, upper = (
        adapting.put_together(units.raw_predictions(at.centre + end * width), common, prior.clip)
        for end in (low, high)
    )
    width *= units.target
    own = _tailored(prior, query, units.raw_weights(at.weights)) + added * width
    if not counted:
        _warn_of_own_intervals(coverage)
    return Predicted(adapting.put_together(own, common, prior.clip), lower, upper, deviation * width)


def predict_known(
    prior: Prior,
    known: KnownTasks,
    query: TaskSet,
    at: NDArray[np.intp],
    common: Array | None,
    coverage: float | None = None,
) -> Predicted:
    """The same of tasks that were adapted earlier: ``at`` are the places of the query's tasks among the known ones.

    ``common`` is the common part at the rows.
    """
    own, calibration = _tailored(prior, query, known.weights[at]), prior.calibration
    unknown = np.full(len(own), np.nan)
    if calibration is None or known.spreads is None or (coverage is None and prior.quantile is None):
        return Predicted(adapting.put_together(own, common, prior.clip), unknown, unknown, unknown)
    task = np.repeat(at, query.sizes)
    width = prior.units.target * _widths_at(prior, known.spreads, query.X, task, calibration.noise)
    sizes = known.spreads.n_rows[at]
    reach, counted = _reaches(prior, calibration, sizes, 0.5 if coverage is None else coverage)
    low, high, deviation, added = np.repeat(reach, query.sizes, axis=0).T
    if coverage is None:
        low = high = deviation = unknown
    elif not counted:
        _warn_of_own_intervals(coverage)
    lower, upper = (adapting.put_together(own + end * width, common, prior.clip) for end in (low, high))
    prediction = adapting.put_together(own + added * width, common, prior.clip)
    return Predicted(prediction, lower, upper, deviation * width)


def task_spreads(prior: Prior, tasks: TaskSet) -> TaskSpreads | FactorSpreads:
    """What the spreads of many adapted tasks are computed from, for a prior of the squared loss."""
    if wide.is_wide(prior):
        return wide.adapt(prior, adapting.left_to_tasks(prior, tasks)).of_rows
    adapt, squares, covariances = adapting.in_closed_form(prior), [], []
    tasks = adapting.left_to_tasks(prior, tasks)
    for batch in batches(tasks):
        weights, thetas = adapt(batch)
        given = Rows(prior.units.dense(batch.X), prior.units.targets(batch.y), batch.offsets)
        squares.append(_squares(given, weights))
        covariances.append(_covariances(given, thetas))
    return TaskSpreads(tasks.sizes, np.concatenate(squares), np.concatenate(covariances))


def quantile_shifts(
    prior: Prior, spreads: TaskSpreads | FactorSpreads, X: Any, task: NDArray[np.intp]
) -> Array:
    """What the prior's quantile adds to the predictions of rows of the tasks at the given positions."""
    assert prior.calibration is not None
    reach = _by_size(spreads.n_rows, lambda n: [_quantile(prior, n)])[:, 0]
    return prior.units.target * reach[task] * _widths_at(prior, spreads, X, task, prior.calibration.noise)


def _tailored(prior: Prior, query: TaskSet, weights: Array) -> Array:
    """What weights in the user's units say of the query rows."""
    return predictions(Rows.of(query, prior.fit_intercept), weights)


def _spreads(prior: Prior, support: TaskSet, query: TaskSet, n_jobs: int | None) -> Spreads:
    """Weights, residuals, and centre and variance of the query rows; ``support`` is what the common part leaves."""
    with single_threaded_blas():
        if wide.is_wide(prior):
            found, task = wide.adapt(prior, support), np.repeat(np.arange(len(query)), query.sizes)
            centre = wide.centres(prior, query.X, task, found.weights)
            variance = found.of_rows.variances(prior, query.X, task)
            return Spreads(found.weights, found.of_rows.squares, centre, variance)
        if prior.closed_form is not None:
            return prior.closed_form.spreads(support, query, n_jobs)
        adapt, parts, start = adapting.by_solving(prior, n_jobs), [], 0
        for batch in batches(support):
            asked = query[start : start + len(batch)]
            weights, thetas = adapt(batch)
            given, rows = (_dense(prior.units.rows(part)) for part in (batch, asked))
            squares = _squares(given, weights)
            which = np.repeat(np.arange(len(batch)), asked.sizes)
            tasks = TaskSpreads(given.sizes, squares, _covariances(given, thetas))
            parts.append(Spreads(weights, squares, predictions(rows, weights), tasks.variance(which, rows.X)))
            start += len(batch)
    return Spreads(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _widths(at: Spreads, sizes: NDArray[np.int64], asked: NDArray[np.int64], noise: float) -> Array:
    """`intervals.spreads` of the asked rows of every task."""
    own = np.repeat(own_noise(at.squares, sizes, noise), asked)
    return np.asarray(np.sqrt(own * (1.0 + np.maximum(at.variance, 0.0))))


def _widths_at(
    prior: Prior, spreads: TaskSpreads | FactorSpreads, X: Any, task: NDArray[np.intp], noise: float
) -> Array:
    """`intervals.spreads` of rows of the tasks at these places, in the units of the prior."""
    if isinstance(spreads, FactorSpreads):
        return spreads(prior, X, task, noise)
    return spreads(task, prior.units.dense(X), noise)


def _warn_of_own_intervals(coverage: float) -> None:
    warnings.warn(
        f"coverage: too few tasks were held out to calibrate {100.0 * coverage:g} % intervals; these are the model's own",
        UserWarning,
        stacklevel=outside(),
    )


def _by_size(sizes: NDArray[np.int64], numbers: Any) -> Array:
    """Numbers that depend on the number of rows alone, found once for each, (T, m)."""
    counts, which = np.unique(sizes, return_inverse=True)
    return np.array([numbers(int(n)) for n in counts])[which.ravel()]


def _quantile(prior: Prior, n_rows: int) -> float:
    """So many spreads the prior's quantile lies above the fitted model."""
    assert prior.calibration is not None
    return 0.0 if prior.quantile is None else prior.calibration.quantile(n_rows, prior.quantile)


def _reaches(
    prior: Prior, calibration: Calibration, sizes: NDArray[np.int64], coverage: float
) -> tuple[Array, bool]:
    """How many spreads each task's interval goes down and up, its deviation is and its quantile adds, (T, 4).

    And whether tasks were enough to count the first two.
    """
    missing = []

    def numbers(n: int) -> list[float]:
        ends = calibration.reach(n, coverage)
        if not np.isfinite(ends).all():
            missing.append(n)
            ends = calibration.own_reach(n, coverage)
        return [*ends, calibration.deviation(n), _quantile(prior, n)]

    return _by_size(sizes, numbers), not missing


def _dense(rows: Rows) -> Rows:
    return rows._replace(X=dense(rows.X)) if rows.is_sparse else rows


def _squares(given: Rows, weights: Array) -> Array:
    """‖y − Xw‖² of each task."""
    return segment_sums((given.y - predictions(given, weights)) ** 2, given.offsets)


def _covariances(given: Rows, thetas: Array) -> Array:
    """Covariance of each task's weights in units of the noise, ``(I + θXᵀX/n)⁻¹ θ/n``; θ without rows."""
    out = np.array(thetas)
    d = thetas.shape[1]
    for n in np.unique(given.sizes[given.sizes > 0]):
        same = np.flatnonzero(given.sizes == n)
        X = given.X[given.offsets[same][:, None] + np.arange(n)]
        theta = thetas[same]
        if n < d:
            across = X @ theta
            inner = across @ X.transpose(0, 2, 1) + n * np.eye(n)
            out[same] = (theta - across.transpose(0, 2, 1) @ solve(inner, across)) / n
        else:
            gram = X.transpose(0, 2, 1) @ X
            out[same] = solve(np.eye(d) + theta @ gram / n, theta) / n
    return out
