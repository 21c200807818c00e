"""The benchmark's table, page and figures, from the finished cells alone."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .methods import is_baseline
from .run import CURVE_METHODS, Cell, CellResult
from .suites import SUITES

Array = NDArray[np.float64]
Results = Sequence[tuple[Cell, CellResult]]


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
    for cell, result in results:
        value = result.clipped if clipped else result.error
        if cell.n_train is None and value is not None:
            errors[cell.suite][cell.method][cell.seed] = value
            seconds[cell.suite, cell.method].append(result.seconds)
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


def to_csv(results: Results) -> str:
    """The tidy table: one line per data set, method, seed, number of training tasks and of support rows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    head = ["data_set", "method", "seed", "n_train", "support"]
    writer.writerow([*head, "error", "clipped", "seconds", "coverage", "width"])
    for cell, result in results:
        for rows in ("all", *result.cold):
            first = rows == "all"
            error = result.error if first else result.cold[rows]
            clipped = result.clipped if first else None
            numbers = [error, clipped, result.seconds if first else None, *result.coverage.get(rows, ())]
            name = [cell.suite, cell.method, cell.seed, "all" if cell.n_train is None else cell.n_train, rows]
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


@dataclass(frozen=True)
class CurveDisplay:
    """Error against the number of support rows, or of training tasks, one panel per data set."""

    results: Results
    kind: str  # "rows" or "tasks"

    def curves(self) -> dict[str, dict[str, tuple[Array, Array]]]:
        """data set -> method -> (positions, mean errors)."""
        points: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        # A curve is of the same seeds at all of its points.
        curved = {(cell.suite, cell.seed) for cell, _ in self.results if cell.n_train is not None}
        for cell, result in self.results:
            if self.kind == "tasks" and (cell.suite, cell.seed) in curved:
                n_train = SUITES[cell.suite].n_train if cell.n_train is None else cell.n_train
                points[cell.suite, cell.method][n_train].append(result.error)
            elif self.kind == "rows" and cell.n_train is None:
                for rows, error in result.cold.items():
                    points[cell.suite, cell.method][int(rows)].append(error)
        out: dict[str, dict[str, tuple[Array, Array]]] = defaultdict(dict)
        for (suite, method), values in points.items():
            places = sorted(values)
            out[suite][method] = (np.array(places), np.array([np.mean(values[p]) for p in places]))
        return dict(out)

    def plot(self, methods: Sequence[str] = CURVE_METHODS) -> Any:
        """Draw the named methods; returns the figure."""
        import matplotlib.pyplot as plt

        curves = self.curves()
        columns = min(3, len(curves))
        rows = -(-len(curves) // columns)
        figure, axes = plt.subplots(
            rows, columns, figsize=(3.6 * columns, 2.9 * rows), squeeze=False, layout="constrained"
        )
        styles = ["0.6", "0.35", "tab:blue"]
        for axis, (suite, by_method) in zip(axes.flat, curves.items(), strict=False):
            for style, method, dash in zip(styles, methods, (":", "--", "-"), strict=False):
                if method in by_method:
                    axis.plot(*by_method[method], dash, color=style, marker="o", markersize=4, label=method)
            others = [by_method[m][1] for m in methods[1:] if m in by_method]
            low, high = (f([f(values) for values in others]) if others else 0.0 for f in (np.min, np.max))
            if high > low:
                # Ridge alone may be off by a factor; the methods to compare keep most of the panel.
                axis.set_ylim(low - 0.1 * (high - low), high + 0.6 * (high - low))
            if self.kind == "tasks":
                axis.set_xscale("log")
                ticks = sorted({int(x) for places, _ in by_method.values() for x in places})
                axis.set_xticks(ticks, [str(tick) for tick in ticks])
                axis.minorticks_off()
            axis.set_title(suite, fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
        for axis in list(axes.flat)[len(curves) :]:
            axis.set_visible(False)
        label = "support rows of a new task" if self.kind == "rows" else "training tasks"
        figure.supxlabel(label, fontsize=10)
        figure.supylabel("test MAE", fontsize=10)
        axes.flat[0].legend(fontsize=8, frameon=False)
        return figure
