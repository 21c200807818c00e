"""How good a learner is on tasks of one's own that it has not seen: error and coverage against the rows that are given.

Whole tasks are held out in folds.  Of every held-out task the same rows are asked for whatever is given, so that errors
at different numbers of rows, and of different methods, are errors of the same predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ._utils.progress import LOG, progress_bar
from ._utils.validation import check_choice, check_fraction, check_int
from .baselines import Baseline, MixedModel, RidgePerTask, TaskMean
from .learners import EmpiricalBayesLearner
from .losses import get_loss
from .tasks import TaskSet
from .tasks.episodes import ORDERS
from .tasks.pieces import label_keys
from .tasks.rows import task_means

Array = NDArray[np.float64]

#: Numbers of rows that are given, where tasks have more.
SUPPORTS = (0, 1, 2, 5, 10, 20, 50)
#: Share of tasks that must have more rows than are ever given.
ENOUGH = 0.5


def usual_methods() -> dict[str, Any]:
    """The recommended learner beside what a practitioner would try first."""
    return {
        "tailored": EmpiricalBayesLearner(),
        "task mean": TaskMean(),
        "ridge per task": RidgePerTask(),
        "mixed model": MixedModel(),
    }


@dataclass(frozen=True)
class Evaluation:
    """Errors of methods on new tasks.

    Attributes
    ----------
    methods : tuple of str
    supports : tuple of int
        Rows of each new task that were given.
    errors : array (n_methods, n_supports, n_tasks)
        Mean error of each task that was asked about.
    covered : array (n_methods, n_supports)
        Share of targets inside the method's intervals, averaged over tasks; NaN where it has none.
    widths : array (n_methods, n_supports)
        Mean width of these intervals.
    labels : array (n_tasks,)
    n_query : int
        Rows that were predicted, at each number of given rows.
    loss : str
    coverage : float
        That the intervals were asked for.
    """

    methods: tuple[str, ...]
    supports: tuple[int, ...]
    errors: Array
    covered: Array
    widths: Array
    labels: NDArray[Any]
    n_query: int
    loss: str
    coverage: float

    @property
    def mean(self) -> Array:
        """(n_methods, n_supports) errors, averaged over tasks."""
        return self.errors.mean(axis=2)

    @property
    def standard_error(self) -> Array:
        """Of the means, over tasks."""
        n = self.errors.shape[2]
        return self.errors.std(axis=2, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(self.errors.shape[:2])

    def records(self) -> list[dict[str, Any]]:
        """A line for every method and number of rows."""
        mean, error = self.mean, self.standard_error
        return [
            {
                "method": method,
                "rows": rows,
                "error": float(mean[i, j]),
                "standard_error": float(error[i, j]),
                "covered": _known(self.covered[i, j]),
                "width": _known(self.widths[i, j]),
            }
            for i, method in enumerate(self.methods)
            for j, rows in enumerate(self.supports)
        ]


def evaluate(
    tasks: TaskSet,
    methods: Mapping[str, Any] | None = None,
    *,
    supports: Sequence[int] | None = None,
    n_folds: int = 5,
    order: str = "random",
    loss: Any = "absolute",
    coverage: float = 0.9,
    random_state: int = 0,
    progress: bool = False,
) -> Evaluation:
    """Fit methods to most tasks and predict the others, given few rows of them or none, until all were new once.

    Parameters
    ----------
    tasks : TaskSet
    methods : mapping of str to estimators, optional
        Learners or baselines; clones are fitted.  By default `EmpiricalBayesLearner`, the task mean, ridge for each
        task, and a mixed model.
    supports : sequence of int, optional
        Numbers of given rows.  Tasks with no more rows than the largest are learned from, and not asked about.  By
        default 0, 1, 2, 5, 10, 20, 50, as far as half of the tasks have more.
    n_folds : int, default=5
    order : {"random", "given"}, default="random"
        Whether random rows are given, or the first ones and later ones are asked for.
    loss : str or Loss, default="absolute"
        What is averaged over the rows of a task.
    coverage : float, default=0.9
        Of the intervals of methods that have them.
    random_state : int, default=0
        Draws folds and rows, by the labels of tasks: their order does not matter.
    """
    n_folds = check_int("n_folds", n_folds, minimum=2)
    check_choice("order", order, ORDERS)
    check_fraction("coverage", coverage)
    measure = get_loss(loss)
    methods = usual_methods() if methods is None else dict(methods)
    # Folds and rows are drawn by position, and the order of tasks must not matter.
    by_label = np.argsort(label_keys(tasks.labels, random_state), kind="stable")
    tasks = tasks[by_label]
    given = _supports(tasks, supports)
    asked = np.flatnonzero(tasks.sizes > given[-1])
    if len(asked) < 2 or len(tasks) <= n_folds:
        raise ValueError(
            f"tasks: of {len(tasks)} tasks {len(asked)} have more than {given[-1]} rows; at least two such, and more tasks "
            f"than the {n_folds} folds, are needed. Give fewer supports or n_folds, or bring more tasks."
        )
    fold = np.random.default_rng([random_state, len(tasks)]).permutation(len(tasks)) % n_folds
    shape = (len(methods), len(given))
    errors = np.full((*shape, len(tasks)), np.nan)
    covered, widths = np.full((*shape, len(tasks)), np.nan), np.full((*shape, len(tasks)), np.nan)
    n_query = 0
    with progress_bar("evaluate", n_folds * len(methods), enabled=progress) as advance:
        for k in range(n_folds):
            held = asked[fold[asked] == k]
            if not len(held):
                continue
            train = tasks[np.flatnonzero(fold != k)]
            pool, query = tasks[held].support_query(
                given[-1], random_state=random_state, shuffle=order == "random"
            )
            n_query += len(query.y)
            for i, (name, method) in enumerate(methods.items()):
                LOG.info("evaluate: part %d of %d, %s", k + 1, n_folds, name)
                fitted = clone(method).fit(train)
                for j, rows in enumerate(given):
                    support = _first(pool, rows, order, random_state)
                    prediction, lower, upper = _predict(fitted, support, query, coverage)
                    errors[i, j, held] = task_means(measure.value(prediction, query.y), query.offsets)
                    inside = ((query.y >= lower) & (query.y <= upper)).astype(float)
                    inside[np.isnan(lower)] = np.nan
                    covered[i, j, held] = task_means(inside, query.offsets)
                    widths[i, j, held] = task_means(upper - lower, query.offsets)
                if advance is not None:
                    advance(1)
    asked = asked[np.argsort(by_label[asked])]
    return Evaluation(
        tuple(methods),
        given,
        errors[:, :, asked],
        covered[:, :, asked].mean(axis=2),
        widths[:, :, asked].mean(axis=2),
        tasks.labels[asked],
        n_query,
        loss if isinstance(loss, str) else type(measure).__name__,
        float(coverage),
    )


def _supports(tasks: TaskSet, supports: Sequence[int] | None) -> tuple[int, ...]:
    if supports is not None:
        if isinstance(supports, str) or np.ndim(supports) != 1 or not len(supports):
            raise ValueError(f"supports: expected numbers of rows, as [0, 5, 10]; got {supports!r}")
        return tuple(sorted({check_int("supports", rows, minimum=0) for rows in supports}))
    return tuple(rows for rows in SUPPORTS if rows == 0 or np.mean(tasks.sizes > rows) >= ENOUGH)


def _first(pool: TaskSet, rows: int, order: str, seed: int) -> TaskSet:
    """So many of the rows that may be given; all of them are the most."""
    if rows >= pool.sizes.max(initial=0):
        return pool
    return pool.support_query(rows, random_state=seed, shuffle=order == "random")[0]


def _predict(fitted: Any, support: TaskSet, query: TaskSet, coverage: float) -> tuple[Array, Array, Array]:
    if isinstance(fitted, Baseline):
        found, unknown = fitted.predict_rows(support, query), np.full(len(query.y), np.nan)
        return found, unknown, unknown
    table = fitted.predict_tasks(query, support, coverage=coverage)
    return table["prediction"], table["lower"], table["upper"]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
