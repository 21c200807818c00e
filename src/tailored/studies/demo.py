"""Six clusters of tasks, six methods: what `make demo` runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..baselines import RidgePerTask, TaskMean
from ..datasets import make_clusters
from ..displays import DemoDisplay
from ..learners import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    MetaLearner,
    UnconditionalLearner,
)
from ..tasks import TaskSet
from .files import save_figure, write_text

Array = NDArray[np.float64]

#: Rows of a test task to adapt on; the other 40 score it.
SUPPORT_ROWS = 40


@dataclass(frozen=True)
class MethodResult:
    """Errors of one method on the test tasks, and the time its meta-training took."""

    name: str
    errors: Array
    seconds: float

    @property
    def mean(self) -> float:
        return float(self.errors.mean())

    @property
    def standard_error(self) -> float:
        return float(self.errors.std(ddof=1) / np.sqrt(len(self.errors)))


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo's table and figure show.

    ``subspace_share`` (m, m): how much of the learned τ(s) of a task from cluster i lies in the
    subspace of cluster j, averaged over the test tasks of cluster i.
    """

    methods: list[MethodResult]
    subspace_share: Array
    n_train: int
    n_test: int
    seed: int


def run_demo(
    *,
    n_clusters: int = 6,
    n_train: int = 500,
    n_test: int = 100,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
    announce: Callable[[str], None] = lambda name: None,
) -> DemoResult:
    """Train the learners and two baselines on synthetic clusters; score new tasks.

    The learners see `SUPPORT_ROWS` rows of each training task; on a test task they adapt on as many
    and are scored (absolute error) on the rest.
    """
    tasks, truth = make_clusters(
        n_train + n_test, n_clusters=n_clusters, n_rows=2 * SUPPORT_ROWS, random_state=seed, return_truth=True
    )
    support, query = tasks.support_query(SUPPORT_ROWS, shuffle=False)
    train, test_support, test_query = support[:n_train], support[n_train:], query[n_train:]
    methods: dict[str, Any] = {
        "task mean": TaskMean(),
        "ridge per task, tuned": RidgePerTask(),
        "independent": IndependentLearner(fit_intercept=False),
        "unconditional": UnconditionalLearner(n_jobs=n_jobs, progress=progress, fit_intercept=False),
        "conditional, surrogate": ConditionalLearner(n_jobs=n_jobs, progress=progress, fit_intercept=False),
        "conditional": EmpiricalBayesLearner(n_jobs=n_jobs, progress=progress),
    }
    results = []
    for name, method in methods.items():
        announce(name)
        start = time.perf_counter()
        method.fit(train)
        seconds = time.perf_counter() - start
        results.append(MethodResult(name, method.task_errors(test_support, test_query), seconds))
    share = _subspace_share(methods["conditional"], test_support, truth.clusters[n_train:], truth.bases)
    return DemoResult(results, share, n_train, n_test, seed)


def _subspace_share(learner: MetaLearner, tasks: TaskSet, clusters: Any, bases: Array) -> Array:
    d = tasks.n_features
    taus = learner.representations(tasks)[:, :d, :d]  # without the intercept
    inside = np.einsum("jdr,tde,jer->tj", bases, taus, bases)
    share = inside / np.trace(taus, axis1=1, axis2=2)[:, None]
    return np.array([share[clusters == i].mean(axis=0) for i in range(len(bases))])


def demo_display(result: DemoResult) -> DemoDisplay:
    """The figure of a demo."""
    methods = result.methods
    return DemoDisplay(
        [method.name for method in methods],
        np.array([method.mean for method in methods]),
        np.array([method.standard_error for method in methods]),
        result.subspace_share,
    )


def write_demo(result: DemoResult, folder: Path) -> tuple[Path, Path]:
    """Write the table (``demo.csv``, and ``demo.md`` in Markdown) and the figure; returns table and figure."""
    table, figure = folder / "demo.csv", folder / "demo.png"
    lines = ["method,mean_absolute_error,standard_error,seconds"]
    page = ["| method | mean absolute error on new tasks | ± s.e. |", "|---|---|---|"]
    for method in result.methods:
        name = method.name.replace(",", "")
        lines.append(f"{name},{method.mean:.6f},{method.standard_error:.6f},{method.seconds:.2f}")
        page.append(f"| {method.name} | {method.mean:.4f} | {method.standard_error:.4f} |")
    write_text(table, "\n".join(lines) + "\n")
    write_text(folder / "demo.md", "\n".join(page) + "\n")
    save_figure(demo_display(result).plot(), figure)
    return table, figure
