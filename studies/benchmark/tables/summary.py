"""Every method on every data set, and in short the recommended learner beside the best baseline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..methods import METHODS, OURS, is_baseline, label
from ..results import Report, Results, section, table
from ..suites import SUITES

_SHORT = """
The recommended learner beside the best of the methods that existed before this library, data set by data set; p is
that of a paired t-test over the seeds that both have. Splits of the real data sets share people between seeds, so their
p-values are optimistic.
"""


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
        best = _best_baseline(methods)
        for method, by_seed in methods.items():
            values = np.array(list(by_seed.values()))
            lines.append(
                Line(
                    suite,
                    method,
                    float(values.mean()),
                    float(values.std(ddof=1)) if len(values) > 1 else 0.0,
                    len(values),
                    float(np.nanmedian(seconds[suite, method])),
                    best,
                    *_paired(by_seed, methods.get(best, {})),
                )
            )
    return lines


def _best_baseline(methods: dict[str, dict[int, float]]) -> str:
    """The baseline of least error on the seeds that all baselines have; some take fewer."""
    rivals = {m: by_seed for m, by_seed in methods.items() if is_baseline(m)}
    if not rivals:
        return ""
    shared = set.intersection(*(set(by_seed) for by_seed in rivals.values()))
    means = {m: np.mean([by_seed[s] for s in shared or by_seed]) for m, by_seed in rivals.items()}
    return min(means, key=lambda m: means[m])


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


def _on_shared_seeds(results: Results, suite: str, methods: Sequence[str]) -> tuple[list[float], int]:
    """Mean errors of methods on the seeds that all of them have, and how many these are."""
    found: dict[str, dict[int, float]] = {method: {} for method in methods}
    for trial, result in results:
        if trial.suite == suite and trial.n_train is None and trial.method in found:
            found[trial.method][trial.seed] = result.error
    shared = set.intersection(*(set(by_seed) for by_seed in found.values()))
    return [float(np.mean([found[m][seed] for seed in shared])) for m in methods], len(shared)


def short(report: Report) -> str:
    """One line per data set: the best baseline and the default learner."""
    lines = summarise(report.results)
    by_name = {(line.suite, line.method): line for line in lines}
    rows = []
    for suite in dict.fromkeys(line.suite for line in lines):
        ours = by_name.get((suite, OURS))
        if ours is None or not ours.best_baseline:
            continue
        best = by_name[suite, ours.best_baseline]
        means, n_seeds = _on_shared_seeds(report.results, suite, (best.method, OURS))
        rows.append(
            [
                suite,
                SUITES[suite].description,
                f"{n_seeds}",
                f"{means[0]:.4f} ({label(best.method)})",
                f"{means[1]:.4f}",
                f"{ours.difference:+.1f} %",
                "" if np.isnan(ours.p_value) else f"{ours.p_value:.1g}",
                f"{ours.seconds:.0f} s",
            ]
        )
    means_of = ["MAE, best baseline", f"MAE, {label(OURS)}"]
    head = ["data set", "", "seeds", *means_of, "difference", "p", "fit (median)"]
    return section("In short", _SHORT, table(head, rows))


def full(report: Report) -> str:
    """One table per data set, best method first."""
    lines = [line for line in summarise(report.results) if not _is_variant(line.method)]
    return section("Results", "± is the standard deviation over seeds.", by_data_set(lines))


def clipped(report: Report) -> str:
    """The same of predictions clipped to the scale of the ratings, for the best baseline and ours."""
    lines = summarise(report.results, clipped=True)
    kept = [line for line in lines if line.method in (line.best_baseline, OURS)]
    return section("Predictions clipped to the rating scale", "In the same terms.", by_data_set(kept))


def by_data_set(lines: Sequence[Line]) -> str:
    parts = []
    for suite in dict.fromkeys(line.suite for line in lines):
        rows = sorted((line for line in lines if line.suite == suite), key=lambda line: line.mean)
        best = rows[0].best_baseline
        head = ["method", "test MAE", f"against {best}", "p", "seeds", "fit (median)"]
        shown = table(head, [_cells(line) for line in rows])
        parts.append(f"### {suite}\n\n{SUITES[suite].description}\n\n{shown}")
    return "\n".join(parts)


def _cells(line: Line) -> list[str]:
    is_best = line.method == line.best_baseline
    name = label(line.method)
    return [
        f"**{name}**" if line.method == OURS else name,
        f"{line.mean:.4f} ± {line.deviation:.4f}",
        "" if is_best or np.isnan(line.difference) else f"{line.difference:+.2f} %",
        "" if is_best or np.isnan(line.p_value) else f"{line.p_value:.1e}",
        str(line.n_seeds),
        f"{line.seconds:.1f} s",
    ]


def _is_variant(method: str) -> bool:
    """Has a table of its own."""
    return METHODS[method].is_asked and method != "oracle"
