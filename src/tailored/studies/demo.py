"""Six clusters of tasks, six methods: what `make demo` runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..baselines import RidgePerTask, TaskMean
from ..datasets import make_clusters
from ..learners import ConditionalLearner, IndependentLearner, UnconditionalLearner

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
        "independent": IndependentLearner(),
        "unconditional": UnconditionalLearner(n_jobs=n_jobs, progress=progress),
        "conditional, surrogate": ConditionalLearner(step_size="search", n_jobs=n_jobs, progress=progress),
        "conditional": ConditionalLearner(n_jobs=n_jobs, progress=progress),
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


def _subspace_share(learner: ConditionalLearner, tasks: Any, clusters: Any, bases: Array) -> Array:
    m = len(bases)
    taus = learner.conditioning_.evaluate(learner._features(tasks))
    inside = np.einsum("jdr,tde,jer->tj", bases, taus, bases)
    share = inside / np.trace(taus, axis1=1, axis2=2)[:, None]
    return np.array([share[clusters == i].mean(axis=0) for i in range(m)])
