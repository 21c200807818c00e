"""The benchmark's tables and curves, from the finished trials alone."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...displays.benchmark import BenchmarkDisplay, Curve
from .methods import Array, is_baseline
from .run import CURVE_METHODS, Trial, TrialResult
from .suites import SUITES

Results = Sequence[tuple[Trial, TrialResult]]


@dataclass(frozen=True)
class Line:
    """One method on one data set.

    ``difference`` is the mean paired difference to the best baseline of the data set in percent of that
    baseline's error, ``p_value`` that of a paired t-test over the seeds (splits of real data overlap, so
    read it as a rough guide).
    """

    suite: str
    method: str
    mean: float
    deviation: float
    n_seeds: int
    seconds: float
    best_baseline: str
    difference: float
    p_value: float


def summarise(results: Results, *, clipped: bool = False) -> list[Line]:
    """Lines for every (data set, method) that was run on all training tasks."""
    errors: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trial, result in results:
        value = result.clipped if clipped else result.error
        if trial.n_train is None and value is not None:
            errors[trial.suite][trial.method][trial.seed] = value
            seconds[trial.suite, trial.method].append(result.seconds)
    lines = []
    for suite, methods in errors.items():
        rivals = {m: float(np.mean(list(e.values()))) for m, e in methods.items() if is_baseline(m)}
        best = min(rivals, key=lambda m: rivals[m]) if rivals else ""
        for method, by_seed in methods.items():
            values = np.array(list(by_seed.values()))
            difference, p_value = _paired(by_seed, methods.get(best, {}))
            lines.append(
                Line(
                    suite,
                    method,
                    float(values.mean()),
                    float(values.std(ddof=1)) if len(values) > 1 else 0.0,
                    len(values),
                    float(np.median(seconds[suite, method])),
                    best,
                    difference,
                    p_value,
                )
            )
    return lines


def _paired(ours: dict[int, float], theirs: dict[int, float]) -> tuple[float, float]:
    from scipy import stats

    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        return float("nan"), float("nan")
    a, b = np.array([ours[s] for s in seeds]), np.array([theirs[s] for s in seeds])
    difference = 100.0 * float((a - b).mean() / b.mean())
    if len(seeds) < 2 or not np.ptp(a - b) > 0:
        return difference, float("nan")
    return difference, float(stats.ttest_rel(a, b).pvalue)


@dataclass(frozen=True)
class Ratio:
    """Errors of one method over those of another on the same splits of one data set.

    ``error`` is the geometric mean over splits of the ratios of `TrialResult.error` (mean over tasks of the MAE),
    ``rmse`` that of `TrialResult.row_rmse`; the upper limits are one-sided, 95 %, from Student's t over the splits'
    log ratios.  Splits of one data set share groups, so that the limits are optimistic.
    """

    suite: str
    method: str
    n_splits: int
    error: float
    error_upper: float
    rmse: float
    rmse_upper: float
    seconds: float
    seconds_other: float


def ratios(results: Results, other: str = "lme4") -> list[Ratio]:
    """Every method over ``other`` on the multilevel data sets, where both were run."""
    found: dict[tuple[str, str], dict[int, tuple[float, float, float]]] = defaultdict(dict)
    for trial, result in results:
        if trial.n_train is None and SUITES[trial.suite].is_multilevel and result.row_rmse is not None:
            scores = result.error, result.row_rmse, result.seconds
            found[trial.suite, trial.method][trial.seed] = scores
    lines = []
    for (suite, method), ours in found.items():
        theirs = found.get((suite, other), {})
        seeds = sorted(set(ours) & set(theirs))
        if method != other and seeds:
            a, b = (np.array([scores[seed] for seed in seeds]).T for scores in (ours, theirs))
            means = (*_mean_ratio(a[0], b[0]), *_mean_ratio(a[1], b[1]))
            lines.append(
                Ratio(suite, method, len(seeds), *means, float(np.median(a[2])), float(np.median(b[2])))
            )
    return lines


def _mean_ratio(ours: Array, theirs: Array) -> tuple[float, float]:
    """Geometric mean of the ratios, and its upper limit (not a number for a single split)."""
    from scipy import stats

    logs = np.log(ours) - np.log(theirs)
    mean, n = float(logs.mean()), len(logs)
    if n < 2:
        return float(np.exp(mean)), float("nan")
    margin = float(stats.t.ppf(0.95, n - 1) * logs.std(ddof=1) / np.sqrt(n))
    return float(np.exp(mean)), float(np.exp(mean + margin))


def ratio_table(lines: Sequence[Ratio]) -> str:
    """A row for each method and data set: change of both errors in percent, with its upper limit."""
    rows = [
        "| data set | method | splits | MAE | upper 95 % | RMSE | upper 95 % | fit | lme4's fit |",
        "|" + "---|" * 9,
    ]
    for line in lines:
        values = (line.error, line.error_upper, line.rmse, line.rmse_upper)
        shown = " | ".join("" if np.isnan(value) else f"{100 * (value - 1):+.2f} %" for value in values)
        times = f"{line.seconds:.1f} s | {line.seconds_other:.1f} s"
        rows.append(f"| {line.suite} | {line.method} | {line.n_splits} | {shown} | {times} |")
    return "\n".join(rows) + "\n"


def to_csv(results: Results) -> str:
    """The tidy table: one line per data set, method, seed, number of training tasks and of support rows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    head = ["data_set", "method", "seed", "n_train", "support"]
    scores = ["error", "clipped", "seconds", "coverage", "width", "row_error", "row_rmse"]
    writer.writerow([*head, *scores])
    for trial, result in results:
        for rows in ("all", *result.cold):
            first = rows == "all"
            error = result.error if first else result.cold[rows]
            clipped = result.clipped if first else None
            numbers = [error, clipped, result.seconds if first else None]
            numbers += result.coverage.get(rows, (None, None))
            numbers += [result.row_error, result.row_rmse] if first else [None, None]
            n_train = "all" if trial.n_train is None else trial.n_train
            name = [trial.suite, trial.method, trial.seed, n_train, rows]
            writer.writerow([*name, *("" if value is None else f"{value:.6f}" for value in numbers)])
    return text.getvalue()


def markdown(lines: Sequence[Line]) -> str:
    """One table per data set, best method first."""
    parts = []
    for suite in dict.fromkeys(line.suite for line in lines):
        rows = sorted((line for line in lines if line.suite == suite), key=lambda line: line.mean)
        best = rows[0].best_baseline
        parts.append(f"### {suite}\n")
        parts.append(f"| method | test MAE | against {best} | p | fit (median) |\n|---|---|---|---|---|")
        for line in rows:
            against = "" if line.method == best else f"{line.difference:+.2f} %"
            p = "" if np.isnan(line.p_value) or line.method == best else f"{line.p_value:.1e}"
            name = f"**{line.method}**" if line.method == "conditional" else line.method
            error = f"{line.mean:.4f} ± {line.deviation:.4f}"
            parts.append(f"| {name} | {error} | {against} | {p} | {line.seconds:.1f} s |")
        parts.append(f"\n{rows[0].n_seeds} seeds.\n")
    return "\n".join(parts)


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
    return BenchmarkDisplay(kind, {suite: drawn for suite, drawn in curves.items() if drawn}, CURVE_METHODS)


def _means(points: dict[int, list[float]]) -> Curve:
    places = sorted(points)
    return np.array(places), np.array([np.mean(points[place]) for place in places])
