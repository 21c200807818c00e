"""docs/benchmark.md, written from the finished trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..files import save_figure, write_text
from .methods import WITH_INTERCEPT, is_baseline
from .report import Line, Results, curves_display, markdown, ratio_table, ratios, summarise, to_csv
from .run import COLD_ROWS, COVERAGE, CURVE_SEEDS, TrialResult
from .suites import SUITES

_OPENING = """# Benchmark

Written by `tailored benchmark --report`; every number comes from the table of that run. Every method gets
the same training tasks (the paper's training and validation tasks together) to use as it likes, and is
scored on the same rows of the same new tasks: mean over tasks of the mean absolute error. All methods run
with their defaults; no argument depends on the data set. Seeds are not those on which the method was
developed. Splits of the real data sets share people between seeds, so their p-values (paired t-tests over
seeds) are optimistic.
"""

_ADVICE = """## When to use which

- **`EmpiricalBayesLearner()`** is the default choice when you have some dozens of related tasks or more and each
  new task brings few rows. It chooses by held-out tasks between a mixture of priors, a single shrunken prior
  and simpler forms, and adds a prior mean that depends on the task; it should not lose to a mixed model by
  more than noise.
- **A mixed model** is enough when tasks are homogeneous (one cluster) and targets are Gaussian: the gain of
  anything else is then small, and it fits in seconds.
- **`ConditionalLearner()` and `UnconditionalLearner`** are the paper's algorithms: convex,
  streaming in constant memory, any of the losses, with guarantees. Use them for streams of tasks, for other
  losses, or to study the method.
- **Side information** is used where it lowers the error on held-out tasks. MovieLens' age, sex and occupation
  do not: the learner leaves them out by itself, and `movielens-side` equals `movielens`.
- **Where the gain comes from** (seen in development runs, not in this table): on the clusters, from a representation that differs between tasks; on ratings, from a
  prior mean that depends on the task and is fitted to the absolute error; on Lenk, from a better regularised
  covariance alone, which a careful mixed model could have as well.
- **Do not use this library** when every task has many more rows than features (ridge or gradient boosting per
  task will do), when there are only a handful of tasks, or when the relation inside a task is far from linear
  in the features you have.
"""


_MULTILEVEL = """## Multilevel data against lme4

A quarter of the groups, at least five, is new; some rows of each are given, drawn at random or (`-time`) the first
ones, and the others are predicted. lme4 chooses by AIC between a random intercept, uncorrelated and full slopes, all
with the columns and the description as fixed effects; new groups by the best linear predictor from its estimates.
Numbers are geometric means over the same splits of (error / lme4's error), less one: MAE is the mean over groups of
the mean absolute error, RMSE that over all predicted rows; the upper limits are one-sided (95 %, Student's t over
the log ratios of the splits). Splits of one data set share groups, so that the limits are optimistic. Times are
medians; lme4's includes the start of R.
"""

_INTERVALS = f"""## Prediction intervals

Share of query rows inside the {100 * COVERAGE:.0f} % intervals of `TaskRegressor.predict_interval`, and their mean width,
after adapting on 0, on 5 and on all support rows: means over seeds and tasks (± standard deviation over seeds).
"""


def write_results(results: Results, out: Path, report: Path | None = None) -> list[Path]:
    """Write the table into ``out``, the figures there or beside the page, and the page; returns the files."""
    folder = out if report is None else report.parent / "figures"
    figures = {}
    for kind in ("rows", "tasks"):
        display = curves_display(results, kind)
        if display.curves:
            figures[kind] = folder / f"benchmark-{kind}.png"
            save_figure(display.plot(), figures[kind])
    texts = {out / "benchmark.csv": to_csv(results)}
    if report is not None:
        texts[report] = page(results, {kind: f"figures/{path.name}" for kind, path in figures.items()})
    for path, text in texts.items():
        write_text(path, text)
    return [*texts, *figures.values()]


def page(results: Results, figures: Mapping[str, str] | None = None) -> str:
    """The whole page; ``figures`` are the paths, from the page, of the figures by kind ("rows", "tasks")."""
    figures = figures or {}
    lines = summarise(results)
    parts = [_OPENING, "## In short\n", _short(lines), _ADVICE, "## Results\n", markdown(lines)]
    clipped = [line for line in summarise(results, clipped=True) if line.method in _shown(lines)]
    if clipped:
        parts += ["## Predictions clipped to the rating scale\n", markdown(clipped)]
    parts += _multilevel(results)
    parts += ["## Cold start\n", _cold(results)]
    if "rows" in figures:
        parts.append(f"![Error against support rows]({figures['rows']})\n")
    if "tasks" in figures:
        parts += [
            f"## Few training tasks\n\nMeans over {CURVE_SEEDS} seeds.\n",
            f"![Error against training tasks]({figures['tasks']})\n",
        ]
    intervals = _intervals(results)
    if intervals:
        parts += [_INTERVALS, intervals]
    skipped = getattr(results, "skipped", {})
    if skipped:
        parts += ["## Left out\n", *(f"- {name}: {reason}" for name, reason in skipped.items()), ""]
    return "\n".join(parts)


def _multilevel(results: Results) -> list[str]:
    """The default learner against lme4, then the others."""
    lines = ratios(results)
    if not lines:
        return []
    ours = [line for line in lines if line.method == "conditional"]
    others = [line for line in lines if line.method != "conditional" and is_baseline(line.method)]
    parts = [_MULTILEVEL]
    if ours:
        parts.append(ratio_table(ours))
    if others:
        parts += ["Other methods, in the same terms:\n", ratio_table(others)]
    return parts


def _short(lines: Sequence[Line]) -> str:
    """One line per data set: the best baseline and the default learner."""
    rows = [
        "| data set | | best baseline | `EmpiricalBayesLearner()` | difference | p | fit (median) |",
        "|---|---|---|---|---|---|---|",
    ]
    by_name = {(line.suite, line.method): line for line in lines}
    for suite in dict.fromkeys(line.suite for line in lines):
        ours = by_name.get((suite, "conditional"))
        if ours is None or not ours.best_baseline:
            continue
        best = by_name[suite, ours.best_baseline]
        rows.append(
            f"| {suite} | {SUITES[suite].description} | {best.mean:.4f} ({best.method}) | {ours.mean:.4f} "
            f"| {ours.difference:+.1f} % | {ours.p_value:.1g} | {ours.seconds:.0f} s |"
        )
    return "\n".join(rows) + "\n"


def _shown(lines: Sequence[Line]) -> set[str]:
    return {line.best_baseline for line in lines} | {"mixed model", "conditional"}


def _cold(results: Results) -> str:
    """Error after adapting on 0, 1, 2, 5, 10 rows, for the strongest baselines and the default learner."""
    head = "| data set | method | " + " | ".join(f"{n} row" + "s" * (n != 1) for n in COLD_ROWS) + " |"
    rows = [head, "|" + "---|" * (2 + len(COLD_ROWS))]
    for suite in SUITES:
        for method in (
            "task mean",
            "item and user bias",
            "mixed model",
            WITH_INTERCEPT,
            "lme4",
            "conditional",
        ):
            found = _full(results, suite, method)
            if found:
                means = [np.mean([one.cold[str(n)] for one in found]) for n in COLD_ROWS]
                rows.append(f"| {suite} | {method} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    return "\n".join(rows) + "\n"


def _intervals(results: Results) -> str:
    rows = []
    for suite in SUITES:
        found = [one for one in _full(results, suite, "conditional") if one.coverage]
        if found:
            shown = []
            for support in found[0].coverage:
                coverage, width = np.array([one.coverage[support] for one in found]).T
                deviation = coverage.std(ddof=1) if len(coverage) > 1 else 0.0
                shown += [f"{100 * coverage.mean():.1f} ± {100 * deviation:.1f} %", f"{width.mean():.3g}"]
            rows.append(f"| {suite} | " + " | ".join(shown) + " |")
    if not rows:
        return ""
    head = "| data set | 0 rows | width | 5 rows | width | all rows | width |"
    return "\n".join([head, "|" + "---|" * 7, *rows]) + "\n"


def _full(results: Results, suite: str, method: str) -> list[TrialResult]:
    """Results of a method on all training tasks of a data set."""
    return [r for c, r in results if (c.suite, c.method, c.n_train) == (suite, method, None)]
