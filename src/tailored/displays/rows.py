"""How error falls, and whether intervals hold, as more rows of a new task are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import check_fraction
from ..predicting import predict_rows
from ..summaries.rivals import MIXED_MODEL, RIDGE, TASK_MEAN, rival_predictions
from ..summaries.training import OWN, TrainingSummary
from ..tasks import TaskSet
from ..tasks.episodes import ORDERS
from ..tasks.rows import task_means
from .base import Array, effect_names
from .style import PALETTE, RC, look, pyplot

#: Part of each task's rows that is given at most; the others are asked for, whatever is given.
GIVEN = 0.75
#: Looks of the methods.
LOOKS = {name: i for i, name in enumerate((OWN, MIXED_MODEL, RIDGE, TASK_MEAN))}


@dataclass
class RowsDisplay:
    """Error and coverage of intervals against the number of rows given, beside simpler methods.

    The same tasks, and the same rows of them, are asked for at every number of rows.

    Attributes
    ----------
    rows : array (L,)
    errors : dict of str to array (L, T)
        Mean loss of each task, by method.
    covered : array (L, T) or None
        Share of each task's targets inside its intervals; None where the learner has no calibration.
    coverage : float
        What is asked of the intervals.
    loss : str
    """

    rows: NDArray[np.int64]
    errors: dict[str, Array]
    covered: Array | None
    coverage: float
    loss: str
    ax_: Any = None
    figure_: Any = None

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        rows: Sequence[int] | None = None,
        *,
        coverage: float = 0.9,
        random_state: Any = 0,
        ax: Any = None,
    ) -> Self:
        """Adapt ``learner`` to some rows of ``tasks`` that it was not fitted to, and to more and more of them.

        Parameters
        ----------
        rows : sequence of int, optional
            Numbers of rows; by default 0, 1, 2, 4, .. up to three quarters of the median task.  Tasks with too few rows for
            the largest are left out.
        coverage : float, default=0.9
        random_state : int, default=0
            Draws the rows, unless the learner was told that they come in the order given.
        """
        effect_names(learner)
        check_fraction("coverage", coverage)
        counts = default_rows(tasks) if rows is None else np.unique(np.asarray(rows, dtype=np.int64))
        if not len(counts) or counts[0] < 0:
            raise ValueError(f"rows: expected numbers of rows from 0 on, got {rows!r}")
        enough = np.floor(GIVEN * tasks.sizes) >= max(int(counts[-1]), 1)
        if not enough.any():
            raise ValueError(
                f"rows: no task has {int(np.ceil(counts[-1] / GIVEN))} rows, {counts[-1]} to give and a third as many to "
                "ask for; give smaller numbers"
            )
        tasks = tasks[enough]
        in_order = getattr(learner, "order", ORDERS[0]) == ORDERS[1]
        pool, query = tasks.support_query(GIVEN, random_state=random_state, shuffle=not in_order)
        errors: dict[str, list[Array]] = {}
        covered = []
        for n in counts:
            support = _first(pool, int(n), random_state, in_order)
            found = predict_rows(learner.prior_, support, query, coverage, learner.n_jobs)
            predictions = {OWN: found.prediction, **_rivals(learner, support, query)}
            for name, prediction in predictions.items():
                loss = learner.loss_.value(prediction, query.y)
                errors.setdefault(name, []).append(task_means(loss, query.offsets))
            inside = ((found.lower <= query.y) & (query.y <= found.upper)).astype(float)
            covered.append(task_means(inside, query.offsets))
        known = None if learner.calibration_ is None else np.array(covered)
        kept = {name: np.array(found) for name, found in errors.items()}
        return cls(counts, kept, known, coverage, learner.loss_.name).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on new axes, on a pair of axes (error, coverage), or on one (error alone)."""
        plt = pyplot()
        with plt.rc_context(RC):
            if ax is None:
                n = 1 if self.covered is None else 2
                axes = plt.subplots(1, n, figsize=(4.4 * n, 3.5), layout="constrained", squeeze=False)[1][0]
            else:
                axes = np.ravel(ax)
            self.ax_, self.figure_ = (axes if len(axes) > 1 else axes[0]), axes[0].figure
            self._draw_errors(axes[0])
            if len(axes) > 1 and self.covered is not None:
                self._draw_coverage(axes[1])
        return self

    def _draw_errors(self, ax: Any) -> None:
        own = self.errors[OWN].mean(axis=1)
        for name, found in self.errors.items():
            mean = found.mean(axis=1)
            style = look(LOOKS[name])
            ax.plot(
                self._places, mean, label=name, markersize=5, linewidth=2.0 if name == OWN else 1.3, **style
            )
            if name == OWN:
                se = _standard_error(found)
                ax.fill_between(
                    self._places, mean - se, mean + se, color=style["color"], alpha=0.18, linewidth=0
                )
        # A rival that is off by a factor where it has few rows must not press the others together.
        others = [found.mean(axis=1) for name, found in self.errors.items() if name != OWN]
        top = max([own.max(), *(np.quantile(found, 0.7) for found in others)])
        below = float((own - _standard_error(self.errors[OWN])).min())
        low = min([below, *(float(found.min()) for found in others)])
        ax.set_ylim(low - 0.08 * (top - low), top + 0.25 * (top - low))
        ax.set_ylabel(f"mean {self.loss} loss")
        ax.legend(loc="upper right", frameon=True, framealpha=0.85, edgecolor="none")
        self._axis(ax)

    def _draw_coverage(self, ax: Any) -> None:
        assert self.covered is not None
        mean, se = self.covered.mean(axis=1), _standard_error(self.covered)
        ax.axhline(self.coverage, color="0.35", linestyle="--", linewidth=1.0, label="asked for")
        ax.errorbar(
            self._places,
            mean,
            2.0 * se,
            color=PALETTE[0],
            marker="o",
            markersize=5,
            capsize=2,
            label="found, ± 2 standard errors",
        )
        ax.set_ylim(min(0.5, float((mean - 2.5 * se).min())), 1.01)
        ax.set_ylabel("targets inside their intervals")
        ax.legend(loc="lower right")
        self._axis(ax)

    @property
    def _places(self) -> Array:
        return np.log2(1.0 + self.rows)

    def _axis(self, ax: Any) -> None:
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xticks(self._places, [f"{n:,}" for n in self.rows])
        ax.set_xlabel(f"rows given ({next(iter(self.errors.values())).shape[1]:,} tasks)")


def default_rows(tasks: TaskSet) -> NDArray[np.int64]:
    """0, 1, 2, 4, .. up to what the median task can give."""
    most = int(GIVEN * float(np.median(tasks.sizes))) if len(tasks) else 0
    doubling = [2**i for i in range(30) if 2**i <= most / 1.4]
    return np.unique([0, *doubling, most])


def _first(pool: TaskSet, n: int, random_state: Any, in_order: bool) -> TaskSet:
    """The first n of the rows that may be given, in an order that is the same for every n."""
    if n >= pool.sizes.max():
        return pool
    some = pool.support_query(n, random_state=random_state, shuffle=not in_order)[0]
    # A task that is to give all its rows gives them all.
    whole = pool.sizes <= n
    if not whole.any():
        return some
    parts = [pool[[t]] if whole[t] else some[[t]] for t in range(len(pool))]
    return TaskSet.concat(parts)


def _rivals(learner: Any, support: TaskSet, query: TaskSet) -> dict[str, Array]:
    training = getattr(learner, "training_summary_", None)
    if training is None:
        # Nothing is known of the training tasks: without rows, the mean is that of the tasks at hand.
        training = TrainingSummary(0, 0, float(query.y.mean()), learner.loss_.name)
    return rival_predictions(learner.prior_, training, support, query)


def _standard_error(values: Array) -> Array:
    T = values.shape[1]
    return np.zeros(len(values)) if T < 2 else values.std(axis=1, ddof=1) / np.sqrt(T)
