"""`RowsDisplay`: error and interval coverage against the number of support rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import check_fraction
from ..losses import error_name
from ..priors.base import predict_blocks
from ..summaries.baselines import baseline_predictions
from ..summaries.training import OWN, TrainingSummary
from ..tasks.episodes import ORDERS
from ..tasks.rows import standard_errors, task_means
from ..tasks.task_set import TaskSet
from .base import LEGEND, PALETTE, Array, ModelDisplay, line_style, names_of, shortened

#: Largest fraction of a task's rows that are support rows; the other rows are always the query rows.
MAX_SUPPORT = 0.75


@dataclass
class RowsDisplay(ModelDisplay):
    """Error and coverage of a learner on new tasks by number of support rows, compared with baselines.

    The tasks and their query rows are the same for every number of support rows.

    Attributes
    ----------
    n_support : array (L,)
        Numbers of support rows.
    errors : dict of str to array (L, T)
        Mean error of each task by method; the learner is the first.
    covered : array (L, T) or None
        Fraction of each task's targets inside the prediction intervals; None if the learner has no calibration.
        From an `Evaluation` it is (L, 1), the mean over tasks.
    coverage : float
        Nominal coverage.
    loss : str
    """

    n_support: NDArray[np.int64]
    errors: dict[str, Array]
    covered: Array | None
    coverage: float
    loss: str

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        n_support: Sequence[int] | None = None,
        *,
        coverage: float = 0.9,
        random_state: Any = 0,
        ax: Any = None,
    ) -> Self:
        """Adapt ``learner`` to increasing numbers of rows of ``tasks`` that it was not fitted to.

        Parameters
        ----------
        n_support : sequence of int, optional
            Numbers of support rows; by default 0, 1, 2, 4, .. up to 75 % of the median task.  Tasks with too few rows
            for the largest number are left out.
        coverage : float, default=0.9
            Nominal coverage of the prediction intervals.
        random_state : int, default=0
            Samples the support rows, unless the learner's ``order`` takes the first rows.
        """
        names_of(learner)
        check_fraction("coverage", coverage)
        counts = np.unique(
            default_counts(tasks) if n_support is None else np.asarray(n_support, dtype=np.int64)
        )
        if not len(counts) or counts[0] < 0:
            raise ValueError(f"n_support: expected numbers of rows >= 0, got {n_support!r}.")
        is_large = np.floor(MAX_SUPPORT * tasks.sizes) >= max(int(counts[-1]), 1)
        if not is_large.any():
            needed = int(np.ceil(counts[-1] / MAX_SUPPORT))
            raise ValueError(
                f"n_support: {counts[-1]} support rows need a task with {needed} rows, and there is none. "
                "Give smaller numbers."
            )
        tasks, take_first = tasks[is_large], getattr(learner, "order", ORDERS[0]) == ORDERS[1]
        pool, query = tasks.support_query(MAX_SUPPORT, random_state=random_state, shuffle=not take_first)
        errors: dict[str, list[Array]] = {}
        covered = []
        for n in counts:
            support = _subsample(pool, int(n), random_state, take_first)
            own = predict_blocks(learner.prior_, support, query, coverage, learner.n_jobs)
            for name, prediction in {OWN: own.prediction, **_baselines(learner, support, query)}.items():
                loss = learner.loss_.error(prediction, query.y)
                errors.setdefault(name, []).append(task_means(loss, query.offsets))
            inside = ((own.lower <= query.y) & (query.y <= own.upper)).astype(float)
            covered.append(task_means(inside, query.offsets))
        stacked = {name: np.array(values) for name, values in errors.items()}
        known = None if np.isnan(own.lower).any() else np.array(covered)
        return cls(counts, stacked, known, coverage, learner.loss_.name).plot(ax)

    @classmethod
    def from_evaluation(cls, evaluation: Any, *, ax: Any = None) -> Self:
        """Draw the result of `tailored.evaluation.evaluate`; coverage is that of its first method."""
        errors = dict(zip(evaluation.methods, evaluation.errors, strict=True))
        covered = evaluation.covered[0][:, None] if np.isfinite(evaluation.covered[0]).all() else None
        counts = np.array(evaluation.supports)
        return cls(counts, errors, covered, evaluation.coverage, evaluation.loss).plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.4 * self._count_axes(), 3.5

    def _count_axes(self) -> int:
        return 1 if self.covered is None else 2

    def _draw(self, ax: Any, coverage_ax: Any = None) -> None:
        if coverage_ax is not None and self.covered is not None:
            self._draw_coverage(coverage_ax, self.covered)
        means = {name: values.mean(axis=1) for name, values in self.errors.items()}
        own, *others = means.values()
        error = standard_errors(next(iter(self.errors.values())))
        for i, (name, mean) in enumerate(means.items()):
            width = 1.3 if i else 2.0
            ax.plot(self._x, mean, label=shortened(name), markersize=5, linewidth=width, **line_style(i))
        ax.fill_between(self._x, own - error, own + error, color=PALETTE[0], alpha=0.18, linewidth=0)
        # Baselines with very large errors for few rows must not compress the other lines.
        top = max([own.max(), *(np.quantile(mean, 0.7) for mean in others)])
        if others:
            top = min(top, 2.5 * float(np.median(np.concatenate([own, *others]))))
        bottom = min([float((own - error).min()), *(float(mean.min()) for mean in others)])
        ax.set_ylim(bottom - 0.08 * (top - bottom), top + 0.25 * (top - bottom))
        ax.set_ylabel(f"mean {error_name(self.loss)}")
        ax.legend(loc="upper right", **LEGEND)
        self._label_counts(ax)

    def _draw_coverage(self, ax: Any, covered: Array) -> None:
        mean, error = covered.mean(axis=1), standard_errors(covered)
        ax.axhline(self.coverage, color="0.35", linestyle="--", linewidth=1.0, label="nominal")
        label = "empirical, ± 2 standard errors" if error.any() else "empirical"
        ax.errorbar(
            self._x, mean, 2.0 * error, color=PALETTE[0], marker="o", markersize=5, capsize=2, label=label
        )
        ax.set_ylim(min(0.5, float((mean - 2.5 * error).min())), 1.01)
        ax.set_ylabel("coverage of the prediction intervals")
        ax.legend(loc="lower right")
        self._label_counts(ax)

    @property
    def _x(self) -> Array:
        return np.log2(1.0 + self.n_support)

    def _label_counts(self, ax: Any) -> None:
        ax.set_xticks(self._x, [f"{n:,}" for n in self.n_support])
        ax.set_xlabel(f"support rows ({next(iter(self.errors.values())).shape[1]:,} tasks)")


def default_counts(tasks: TaskSet) -> NDArray[np.int64]:
    """Return 0, 1, 2, 4, .. up to the support rows of the median task."""
    most = int(MAX_SUPPORT * float(np.median(tasks.sizes))) if len(tasks) else 0
    return np.array([0, *(2**i for i in range(30) if 2**i <= most / 1.4), most])


def _subsample(pool: TaskSet, n: int, random_state: Any, take_first: bool) -> TaskSet:
    """Return the first n support rows of each task, in an order that is the same for every n."""
    if n >= pool.sizes.max():
        return pool
    some = pool.support_query(n, random_state=random_state, shuffle=not take_first)[0]
    # `support_query` keeps a query row, which the pool does not need.
    is_small = pool.sizes <= n
    if not is_small.any():
        return some
    return TaskSet.concat([pool[[t]] if is_small[t] else some[[t]] for t in range(len(pool))])


def _baselines(learner: Any, support: TaskSet, query: TaskSet) -> dict[str, Array]:
    training = getattr(learner, "training_summary_", None)
    if training is None:
        # The mean of the training targets is unknown; without rows, the task mean is that of these tasks.
        training = TrainingSummary(0, 0, float(query.y.mean()), learner.loss_.name)
    return baseline_predictions(learner.prior_, training, support, query)
