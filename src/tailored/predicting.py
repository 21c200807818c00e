"""(Prior, support rows, query rows) -> predictions with intervals, of many tasks at once."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import adapting
from ._threads import single_threaded_blas
from .intervals import NOISE_ROWS, Calibration
from .prior import Prior
from .tasks import Rows, TaskSet
from .tasks.rows import BATCH_FLOATS, batches, dense, predictions, segment_sums

Array = NDArray[np.float64]


class Predicted(NamedTuple):
    """Numbers of each query row; all but the predictions are NaN where they were not asked for or not calibrated."""

    prediction: Array
    lower: Array
    upper: Array
    std: Array


def predict_rows(
    prior: Prior, support: TaskSet, query: TaskSet, coverage: float | None = None, n_jobs: int | None = None
) -> Predicted:
    """Predictions of the query rows after adapting to the support rows of the same tasks, in the same order.

    Prediction, interval and deviation are those of `TaskRegressor`, task by task, in one pass.
    """
    if coverage is None or prior.calibration is None:
        found = adapting.predict(prior, support, query, n_jobs)
        return Predicted(found, *(np.full(len(found), np.nan) for _ in range(3)))
    reach, counted = _reaches(prior.calibration, support.sizes, coverage, prior.quantile)
    adapt, shared = adapting.by_solving(prior, n_jobs), adapting.common_to(prior, support, query)
    support = adapting.left_to_tasks(prior, support)
    parts, start = [], 0
    with single_threaded_blas():
        for batch in batches(support):
            asked = query[start : start + len(batch)]
            common = (
                None if shared is None else shared[query.offsets[start] : query.offsets[start + len(batch)]]
            )
            parts.append(
                _predict_batch(prior, batch, asked, adapt, reach[start : start + len(batch)], common)
            )
            start += len(batch)
    if not counted:
        warnings.warn(
            f"coverage: too few tasks were held out to calibrate {100.0 * coverage:g} % intervals; these are the "
            "model's own",
            UserWarning,
            stacklevel=3,
        )
    return Predicted(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _predict_batch(
    prior: Prior,
    support: TaskSet,
    query: TaskSet,
    adapt: adapting.AdaptTasks,
    reach: Array,
    common: Array | None,
) -> Predicted:
    """``support`` is what the common part leaves, ``common`` what it says of the query rows."""
    weights, thetas = adapt(support)
    given, asked = (_dense(prior.units.rows(part)) for part in (support, query))
    assert prior.calibration is not None
    width = _spreads(given, thetas, weights, asked, prior.calibration.noise)
    # Ends are not those of clipped predictions: the errors of the calibration are not, either.
    centre = predictions(asked, weights)
    low, high, deviation, added = np.repeat(reach, asked.sizes, axis=0).T
    lower, upper = (
        adapting.put_together(prior.units.raw_predictions(centre + end * width), common, prior.clip)
        for end in (low, high)
    )
    own = predictions(Rows.of(query, prior.fit_intercept), prior.units.raw_weights(weights))
    width *= prior.units.target
    own = adapting.put_together(own + added * width, common, prior.clip)
    return Predicted(own, lower, upper, deviation * width)


def _dense(rows: Rows) -> Rows:
    return rows._replace(X=dense(rows.X)) if rows.is_sparse else rows


def _reaches(
    calibration: Calibration, sizes: NDArray[np.int64], coverage: float, quantile: float | None
) -> tuple[Array, bool]:
    """How many spreads each task's interval goes down and up, its deviation is and its quantile adds, (T, 4).

    And whether tasks were enough to count the first two.
    """
    counts, which = np.unique(sizes, return_inverse=True)
    ends = np.array([calibration.reach(int(n), coverage) for n in counts]).reshape(-1, 2)
    finite = np.isfinite(ends).all(axis=1)
    for i in np.flatnonzero(~finite):
        ends[i] = calibration.own_reach(int(counts[i]), coverage)
    deviations = [calibration.deviation(int(n)) for n in counts]
    added = [0.0 if quantile is None else calibration.quantile(int(n), quantile) for n in counts]
    return np.column_stack([ends, deviations, added])[which], bool(finite.all())


def _spreads(given: Rows, thetas: Array, weights: Array, asked: Rows, noise: float) -> Array:
    """`intervals.spreads` of the asked rows of every task."""
    squares = segment_sums((given.y - predictions(given, weights)) ** 2, given.offsets)
    own = (squares + NOISE_ROWS * noise) / (given.sizes + NOISE_ROWS)
    covariances = _covariances(given, thetas)
    task = np.repeat(np.arange(len(own)), asked.sizes)
    variance = np.empty(len(task))
    at_once = max(1, BATCH_FLOATS // thetas[0].size)
    for start in range(0, len(task), at_once):
        rows = slice(start, start + at_once)
        x = asked.X[rows]
        variance[rows] = np.einsum("ij,ij->i", (x[:, None, :] @ covariances[task[rows]])[:, 0], x)
    return np.sqrt(own[task] * (1.0 + np.maximum(variance, 0.0)))


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
            out[same] = (theta - across.transpose(0, 2, 1) @ np.linalg.solve(inner, across)) / n
        else:
            gram = X.transpose(0, 2, 1) @ X
            out[same] = np.linalg.solve(np.eye(d) + theta @ gram / n, theta) / n
    return out
