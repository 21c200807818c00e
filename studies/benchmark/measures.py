"""What is measured of a fitted method on the new tasks of a split."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tailored.tasks.rows import mean_error
from tailored.tasks.task_set import TaskSet

from .methods import Array, predictions
from .splits import Split

#: Support rows that intervals are judged with besides those that they are calibrated at, where so
#: many are given, and the coverage that is asked for.
INTERVAL_ROWS, COVERAGE = (0, 5), 0.9
#: Intervals are judged at a number of rows that at least so many new tasks have.
FEWEST_TASKS = 5


def error(predicted: Array, query: TaskSet) -> float:
    """Mean over tasks of the mean absolute error."""
    return mean_error(np.abs(predicted - query.y), query.offsets)


def cold_errors(method: Any, split: Split, rows: tuple[int, ...], seed: int) -> dict[str, float]:
    """Errors with few rows."""
    return {
        str(n): error(predictions(method, split.given(n, seed), split.query), split.query)
        for n in rows
    }


def weight_error(method: Any, split: Split) -> float | None:
    """Mean over the new tasks of ‖ŵ − w‖; None where the true weights are not known."""
    if split.weights is None:
        return None
    found = method.adapt_many(split.support)
    return float(np.linalg.norm(getattr(found, "coef_", found) - split.weights, axis=1).mean())


def calibrated_rows(method: Any) -> list[int]:
    """The numbers of rows that the method's intervals are calibrated at; none where it gives no
    intervals.
    """
    calibration = getattr(method, "calibration_", None)
    return [] if calibration is None else sorted({round(float(n)) for n in calibration.rows})


def coverage(
    method: Any, split: Split, rows: tuple[int, ...], seed: int
) -> dict[str, tuple[float, float]]:
    """Share of query rows inside their intervals and mean width: means over tasks, by the number of
    support rows.
    """
    calibrated = calibrated_rows(method)
    extra = [n for n in (*INTERVAL_ROWS, *rows) if n <= split.support.sizes.min()]
    levels = {str(n): split.with_exactly(n, seed) for n in sorted({*extra, *calibrated[:-1]})}
    # The largest number depends on how long the training tasks happen to be.
    levels["most"] = split.with_exactly(calibrated[-1], seed)
    levels["all"] = (split.support, split.query)
    out = {}
    for name, (support, query) in levels.items():
        if len(query) >= FEWEST_TASKS:
            low, high = _intervals(method, support, query, COVERAGE)
            inside = ((low <= query.y) & (query.y <= high)).astype(float)
            out[name] = (mean_error(inside, query.offsets), mean_error(high - low, query.offsets))
    return out


def _intervals(method: Any, support: TaskSet, query: TaskSet, share: float) -> tuple[Array, Array]:
    """Lower and upper ends of the intervals of the query rows."""
    with warnings.catch_warnings():
        # Few training tasks: the model's own interval, and the table shows what it is worth.
        warnings.filterwarnings("ignore", message="coverage: too few tasks", category=UserWarning)
        found = method.predict_tasks(query, support, coverage=share)
    return np.asarray(found["lower"]), np.asarray(found["upper"])
