"""docs/benchmark.md, written from the finished cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .report import Line, Results, markdown, summarise
from .run import COLD_ROWS
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

- **`ConditionalLearner()`** is the default choice when you have some dozens of related tasks or more and each
  new task brings few rows. It chooses by held-out tasks between a mixture of priors, a single shrunken prior
  and simpler forms, and adds a prior mean that depends on the task; it should not lose to a mixed model by
  more than noise.
- **A mixed model** is enough when tasks are homogeneous (one cluster) and targets are Gaussian: the gain of
  anything else is then small, and it fits in seconds.
- **`ConditionalLearner(step_size="search")` and `UnconditionalLearner`** are the paper's algorithms: convex,
  streaming in constant memory, any of the losses, with guarantees. Use them for streams of tasks, for other
  losses, or to study the method.
- **Do not use this library** when every task has many more rows than features (ridge or gradient boosting per
  task will do), when there are only a handful of tasks, or when the relation inside a task is far from linear
  in the features you have.
"""


def page(results: Results) -> str:
    """The whole page."""
    lines = summarise(results)
    parts = [_OPENING, "## Results\n", markdown(lines)]
    clipped = [line for line in summarise(results, clipped=True) if line.method in _shown(lines)]
    if clipped:
        parts += ["## Predictions clipped to the rating scale\n", markdown(clipped)]
    parts += ["## Cold start\n", _cold(results), _ADVICE]
    return "\n".join(parts)


def _shown(lines: Sequence[Line]) -> set[str]:
    return {line.best_baseline for line in lines} | {"mixed model", "conditional"}


def _cold(results: Results) -> str:
    """Error after adapting on 0, 1, 2, 5, 10 rows, for the strongest baseline and the default learner."""
    head = "| data set | method | " + " | ".join(f"{rows} rows" for rows in COLD_ROWS) + " |"
    rows = [head, "|" + "---|" * (2 + len(COLD_ROWS))]
    for suite in SUITES:
        for method in ("task mean", "mixed model", "conditional"):
            cells = [r for c, r in results if (c.suite, c.method, c.n_train) == (suite, method, None)]
            if cells:
                means = [np.mean([cell.cold[str(n)] for cell in cells]) for n in COLD_ROWS]
                rows.append(f"| {suite} | {method} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    return "\n".join(rows) + "\n"
