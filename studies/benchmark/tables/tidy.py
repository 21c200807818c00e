"""The tidy table of all numbers, and the curves that are drawn from them."""

from __future__ import annotations

import csv
import io
from collections import defaultdict

import numpy as np

from ...figures.benchmark import BenchmarkDisplay, Curve
from ..results import Results
from ..run import CURVE_METHODS, TrialResult
from ..suites import SUITES


def to_csv(results: Results) -> str:
    """One line per data set, method, seed, number of training tasks and of support rows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    head = ["data_set", "method", "seed", "n_train", "support"]
    scores = ["error", "clipped", "seconds", "coverage", "width", "row_error", "row_rmse"]
    writer.writerow([*head, *scores, "below_quantile", "pinball"])
    for trial, result in results:
        n_train = "all" if trial.n_train is None else trial.n_train
        levels = dict.fromkeys(["all", *result.cold, *result.coverage, *result.quantile])
        for rows in levels:
            numbers = ["" if value is None else f"{value:.6f}" for value in _numbers(result, rows)]
            writer.writerow([trial.suite, trial.method, trial.seed, n_train, rows, *numbers])
    return text.getvalue()


def _numbers(result: TrialResult, rows: str) -> list[float | None]:
    whole = rows == "all"
    return [
        result.error if whole else result.cold.get(rows),
        result.clipped if whole else None,
        result.seconds if whole else None,
        *result.coverage.get(rows, (None, None)),
        result.row_error if whole else None,
        result.row_rmse if whole else None,
        *result.quantile.get(rows, (None, None)),
    ]


def curves_display(results: Results, kind: str) -> BenchmarkDisplay:
    """Mean errors against the number of support rows ("rows") or of training tasks ("tasks")."""
    points: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    # A curve is of the same seeds at all of its points.
    curved = {(trial.suite, trial.seed) for trial, _ in results if trial.n_train is not None}
    for trial, result in results:
        curve = points[trial.suite][trial.method]
        if kind == "tasks" and (trial.suite, trial.seed) in curved:
            n_train = SUITES[trial.suite].n_train if trial.n_train is None else trial.n_train
            curve[n_train].append(result.error)
        elif kind == "rows" and trial.n_train is None:
            for rows, error in result.cold.items():
                curve[int(rows)].append(error)
    curves = {
        suite: {method: _means(curve) for method, curve in by_method.items() if curve}
        for suite, by_method in points.items()
    }
    drawn = {suite: by.keys() & set(CURVE_METHODS) for suite, by in curves.items()}
    # A curve alone compares nothing, unless there are no others.
    least = min(2, max(map(len, drawn.values()), default=1))
    shown = {suite: by for suite, by in curves.items() if len(drawn[suite]) >= max(least, 1)}
    return BenchmarkDisplay(kind, shown, CURVE_METHODS)


def _means(points: dict[int, list[float]]) -> Curve:
    places = sorted(points)
    return np.array(places), np.array([np.mean(points[place]) for place in places])
