"""Tables of the benchmark, computed from the finished trials and written as CSV files."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..figures.benchmark import draw_relative, draw_rows
from ..files import save_figure, write_text
from .methods import (
    ALGORITHM_1,
    IN_ORDER,
    MEANS,
    METHODS,
    ORACLE,
    OURS,
    PAIRED,
    PER_CATEGORY,
    SPLINES,
)
from .run import Trial, TrialResult
from .suites import SUITES

Results = Sequence[tuple[Trial, TrialResult]]
BySeed = Mapping[int, TrialResult]
Table = tuple[Sequence[str], list[list[Any]]]


def write_tables(results: Results, out: Path) -> list[Path]:
    """Write all tables and figures into a folder; return the files."""
    tables = {
        "trials": trials_table(results),
        "results": results_table(results),
        "lme4": lme4_table(results),
        "lme4-rows": lme4_rows_table(results),
        "oracle": oracle_table(results),
        "intervals": intervals_table(results),
        "rows": rows_table(results),
    }
    files = []
    for name, (head, lines) in tables.items():
        if lines:
            files.append(out / f"{name}.csv")
            write_text(files[-1], to_csv(head, lines))
    # Sets with lme4 have a figure of their own, and a figure never shows one method alone.
    rows = [line for line in tables["rows"][1] if not SUITES[line[0]].is_multilevel]
    others = [line for line in rows if [line[0], "mixed model"] in (each[:2] for each in rows)]
    relative = [line for line in tables["lme4-rows"][1] if line[2] == "tailored"]
    for name, draw, lines in (("", draw_relative, relative), ("-others", draw_rows, others)):
        if lines:
            files.append(out / f"benchmark-rows{name}.png")
            save_figure(draw(lines), files[-1])
    return files


def to_csv(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return the text of a CSV file; missing numbers are empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in line] for line in lines)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# --- statistics over seeds


class Mean(NamedTuple):
    """A mean over seeds and its standard error (NaN for a single seed)."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        array = np.array(list(values), dtype=float)
        n = len(array)
        return cls(
            float(array.mean()), float(array.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        )


class Change(NamedTuple):
    """Geometric mean of the ratios of errors on the same seeds, minus one, in percent.

    ``error`` is its standard error, ``upper`` its one-sided 95 % limit from Student's t over the
    log ratios, and ``t`` the statistic; all are NaN for a single seed.  ``overlap`` is the number
    of new groups per training group where splits share groups (Nadeau and Bengio's corrected t),
    else zero.
    """

    n: int
    value: float
    error: float
    upper: float
    t: float

    @classmethod
    def of(cls, ours: Iterable[float], theirs: Iterable[float], overlap: float = 0.0) -> Change:
        from scipy import stats

        logs = np.log(np.array(list(ours))) - np.log(np.array(list(theirs)))
        ratio, n = float(np.exp(logs.mean())), len(logs)
        if n < 2:
            return cls(n, 100.0 * (ratio - 1.0), *(float("nan"),) * 3)
        error = float(logs.std(ddof=1) * np.sqrt(1.0 / n + overlap))
        upper = ratio * float(np.exp(stats.t.ppf(0.95, n - 1) * error))
        t = float(logs.mean() / error) if error > 0 else float("nan")
        return cls(n, 100.0 * (ratio - 1.0), 100.0 * ratio * error, 100.0 * (upper - 1.0), t)


def of(results: Results, suite: str, method: str) -> dict[int, TrialResult]:
    """Return the results of a method on a data set, by seed."""
    return {
        trial.seed: result
        for trial, result in results
        if (trial.suite, trial.method) == (suite, method)
    }


def pairs(ours: BySeed, theirs: BySeed) -> tuple[list[TrialResult], list[TrialResult]]:
    """Return the results on the seeds that both have."""
    seeds = sorted(set(ours) & set(theirs))
    return [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]


def _suites(results: Results) -> list[str]:
    return list(dict.fromkeys(trial.suite for trial, _ in results))


def _seconds(results: Iterable[TrialResult]) -> float:
    return float(np.nanmedian([result.seconds for result in results]))


# --- every trial, and every method on every data set


def trials_table(results: Results) -> Table:
    """One line per data set, method, seed and number of support rows."""
    head = ["data_set", "method", "seed", "support", "error", "clipped", "seconds", "coverage"]
    head += ["width", "row_error", "row_rmse"]
    lines: list[list[Any]] = []
    for trial, result in results:
        for rows in dict.fromkeys(["all", *result.cold, *result.coverage]):
            some: list[Any] = [result.cold.get(rows), None, None, None, None]
            if rows == "all":
                some = [
                    result.error,
                    result.clipped,
                    result.seconds,
                    result.row_error,
                    result.row_rmse,
                ]
            numbers = [*some[:3], *result.coverage.get(rows, (None, None)), *some[3:]]
            lines.append([trial.suite, trial.method, trial.seed, rows, *numbers])
    return head, lines


@dataclass(frozen=True)
class Line:
    """One method on one data set.

    ``difference`` is the mean paired difference to the best baseline of the data set, in percent of
    the error of that baseline.  ``p_value`` is that of the paired t-test over the seeds, corrected
    for splits that share tasks.
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
    """Return a line for every data set and method."""
    errors: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trial, result in results:
        value = result.clipped if clipped else result.error
        if value is not None:
            errors[trial.suite][trial.method][trial.seed] = value
            seconds[trial.suite, trial.method].append(result.seconds)
    lines = []
    for suite, methods in errors.items():
        best = _best_baseline(methods)
        for method, by_seed in methods.items():
            values, time = (
                np.array(list(by_seed.values())),
                float(np.nanmedian(seconds[suite, method])),
            )
            deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
            numbers = float(values.mean()), deviation, len(values), time
            paired = _paired(by_seed, methods.get(best, {}), SUITES[suite].overlap)
            lines.append(Line(suite, method, *numbers, best, *paired))
    return lines


def _best_baseline(methods: dict[str, dict[int, float]]) -> str:
    """Return the baseline with the lowest error on the seeds that all baselines have; some take
    fewer.
    """
    baselines = {m: by_seed for m, by_seed in methods.items() if METHODS[m].is_baseline}
    if not baselines:
        return ""
    shared = set.intersection(*(set(by_seed) for by_seed in baselines.values()))
    means = {
        m: np.mean([by_seed[s] for s in shared or by_seed]) for m, by_seed in baselines.items()
    }
    return min(means, key=lambda m: means[m])


def _paired(
    ours: dict[int, float], theirs: dict[int, float], overlap: float
) -> tuple[float, float]:
    """Return the mean difference in percent, and the two-sided p-value of Nadeau and Bengio's
    corrected t-test.
    """
    from scipy import stats

    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        return float("nan"), float("nan")
    a, b = np.array([ours[s] for s in seeds]), np.array([theirs[s] for s in seeds])
    difference = 100.0 * float((a - b).mean() / b.mean())
    n = len(seeds)
    if n < 2 or not np.ptp(a - b) > 0:
        return difference, float("nan")
    t = (a - b).mean() / ((a - b).std(ddof=1) * np.sqrt(1.0 / n + overlap))
    return difference, float(2.0 * stats.t.sf(abs(t), n - 1))


def results_table(results: Results) -> Table:
    """Every method on every data set, the lowest error first; also of predictions clipped to the
    target's range.
    """
    head = ["data_set", "predictions", "method", "seeds", "mae", "deviation", "best_baseline"]
    head += ["difference_percent", "corrected_p", "fit_seconds"]
    lines: list[list[Any]] = []
    for kind in ("raw", "clipped"):
        found = summarise(results, clipped=kind == "clipped")
        for line in sorted(found, key=lambda line: (line.suite, line.mean)):
            numbers = [line.n_seeds, line.mean, line.deviation, line.best_baseline, line.difference]
            lines.append([line.suite, kind, line.method, *numbers, line.p_value, line.seconds])
    return head, lines


# --- one table per question


def compare(results: Results, suite: str, method: str, other: str) -> tuple[Change, Change] | None:
    """Return the changes of MAE and RMSE against another method; None if they share no seed."""
    ours, theirs = pairs(of(results, suite, method), of(results, suite, other))
    if not ours or any(one.row_rmse is None for one in (*ours, *theirs)):
        return None
    overlap = SUITES[suite].overlap
    errors = Change.of((one.error for one in ours), (one.error for one in theirs), overlap)
    rmse = Change.of(
        (one.row_rmse or 0.0 for one in ours), (one.row_rmse or 0.0 for one in theirs), overlap
    )
    return errors, rmse


def lme4_table(results: Results) -> Table:
    """Errors on the multilevel sets against lme4, with the coverage of the intervals."""
    head = [
        "data_set",
        "groups",
        "method",
        "splits",
        "mae_percent",
        "mae_upper",
        "mae_t",
        "rmse_percent",
    ]
    head += ["rmse_upper", "rmse_t", "coverage", "coverage_error", "fit_seconds", "lme4_seconds"]
    lines: list[list[Any]] = []
    others = [m for m in METHODS if METHODS[m].is_baseline and m != PAIRED]
    for suite in (s for s in _suites(results) if SUITES[s].is_multilevel):
        for method in (OURS, IN_ORDER, *others):
            found = compare(results, suite, method, PAIRED)
            if found is None:
                continue
            error, rmse = found
            ours, theirs = pairs(of(results, suite, method), of(results, suite, PAIRED))
            inside = [one.coverage["all"][0] for one in ours if "all" in one.coverage]
            covered = Mean.of(inside) if inside else (None, None)
            ratios = [error.value, error.upper, error.t, rmse.value, rmse.upper, rmse.t]
            times = [_seconds(ours), _seconds(theirs)]
            lines.append([suite, SUITES[suite].n_train, method, error.n, *ratios, *covered, *times])
    return head, lines


def lme4_rows_table(results: Results) -> Table:
    """Errors against lme4 by the number of support rows; the margin is that of a 95 % interval."""
    from scipy import stats

    lines: list[list[Any]] = []
    for suite in (s for s in _suites(results) if SUITES[s].is_multilevel and not SUITES[s].in_time):
        for method in (m for m in METHODS if m != PAIRED):
            ours, theirs = pairs(of(results, suite, method), of(results, suite, PAIRED))
            for rows in SUITES[suite].cold_rows if ours else ():
                errors, others = ([one.cold[str(rows)] for one in some] for some in (ours, theirs))
                change = Change.of(errors, others, SUITES[suite].overlap)
                margin = float(stats.t.ppf(0.975, change.n - 1)) * change.error
                lines.append([suite, rows, method, change.n, change.value, margin])
    return ["data_set", "rows", "method", "splits", "mae_percent", "margin"], lines


def oracle_table(results: Results) -> Table:
    """Errors where the environment is known, against the oracle that knows it; of the weights where
    they are known.
    """
    head = [
        "data_set",
        "rows",
        "method",
        "seeds",
        "measure",
        "oracle_error",
        "error",
        "error_error",
    ]
    head += ["above_percent", "above_error", "coverage", "coverage_error", "fit_seconds"]
    lines: list[list[Any]] = []
    for suite in _suites(results):
        known = of(results, suite, ORACLE)
        for rows in sorted(SUITES[suite].cold_rows, reverse=True) if known else ():
            for method in (OURS, MEANS, "mixed model", SPLINES, PER_CATEGORY, ALGORITHM_1):
                ours, theirs = pairs(of(results, suite, method), known)
                if ours:
                    measure = "MAE" if ours[0].weight_error is None else "weights"
                    mine, best = (
                        [one.weight_error or one.cold[str(rows)] for one in some]
                        for some in (ours, theirs)
                    )
                    above = Change.of(mine, best)
                    inside = [
                        one.coverage[str(rows)][0] for one in ours if str(rows) in one.coverage
                    ]
                    numbers = [Mean.of(best).value, *Mean.of(mine), above.value, above.error]
                    covered = Mean.of(inside) if inside else (None, None)
                    lines.append(
                        [suite, rows, method, above.n, measure, *numbers, *covered, _seconds(ours)]
                    )
    return head, lines


def intervals_table(results: Results) -> Table:
    """Coverage and width of the 90 % intervals of the recommended learner, by the number of support
    rows.
    """
    head = ["data_set", "rows", "seeds", "coverage", "coverage_error", "width"]
    lines: list[list[Any]] = []
    for suite in _suites(results):
        found = [
            one for one in of(results, suite, SUITES[suite].recommended).values() if one.coverage
        ]
        for level in dict.fromkeys(level for one in found for level in one.coverage):
            some = [one.coverage[level] for one in found if level in one.coverage]
            # The calibrated numbers of rows differ between seeds.
            if len(some) > len(found) / 2:
                inside, width = Mean.of(one[0] for one in some), Mean.of(one[1] for one in some)
                lines.append([suite, level, len(some), *inside, width.value])
    return head, lines


def rows_table(results: Results) -> Table:
    """Mean errors of every method by the number of support rows."""
    lines: list[list[Any]] = []
    for suite in _suites(results):
        for method in METHODS:
            cold = [one.cold for one in of(results, suite, method).values() if one.cold]
            for rows in cold[0] if cold else ():
                lines.append([suite, method, rows, float(np.mean([one[rows] for one in cold]))])
    return ["data_set", "method", "rows", "mae"], lines
