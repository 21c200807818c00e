"""One task: its rows, its tailored fit and the interval about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..tasks import TaskSet
from ..tasks.rows import dense
from .base import (
    Array,
    ModelDisplay,
    effect_names,
    place_of,
    place_of_task,
    shortened,
    target_name,
    task_name,
)
from .style import PALETTE

#: Places at which a line is drawn; different values up to which they are taken one by one.
PLACES, FEW_VALUES = 101, 6


@dataclass
class TaskFitDisplay(ModelDisplay):
    """Rows of one task over one column, the tailored fit, the interval for new rows, and the prior's prediction.

    Other columns are held at the task's means; what they add to a row is taken off its target, as fitted.

    Attributes
    ----------
    task, column, target : str
    x, y : arrays (n,)
        The task's rows, less what the other columns add.
    places : array (m,)
        Values of the column.
    prediction, prior : arrays (m,)
        After adapting to the rows, and to none.
    lower, upper : arrays (m,)
        Ends of the interval; NaN where the learner has no calibration.
    coverage : float
    adjusted : bool
        Whether there are other columns.
    """

    task: str
    column: str
    target: str
    x: Array
    y: Array
    places: Array
    prediction: Array
    prior: Array
    lower: Array
    upper: Array
    coverage: float
    adjusted: bool

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        task: Any = None,
        column: Any = None,
        *,
        coverage: float = 0.9,
        ax: Any = None,
    ) -> Self:
        """Adapt ``learner`` to one of the ``tasks`` (by its label; the first by default) and draw it over ``column``.

        By default over the column that moves the task's predictions most.
        """
        names = effect_names(learner)[: learner.n_features_in_]
        place = place_of_task(tasks, task)
        one = tasks[[place]]
        X, y = dense(one.X), one.y
        if not len(y):
            raise ValueError(f"task: {tasks.labels[place]!r} has no rows to draw; choose another task")
        side = None if one.side_info is None else one.side_info[0]
        model, before = learner.adapt(X, y, side_info=side), learner.adapt(side_info=side)
        if column is None:
            j = int(np.argmax(np.abs(model.coef_) * X.std(axis=0)))
        else:
            j = place_of(column, names)
        values = np.unique(X[:, j])
        room = 0.04 * (values[-1] - values[0])
        few = len(values) <= FEW_VALUES
        places = values if few else np.linspace(values[0] - room, values[-1] + room, PLACES)
        at = np.tile(X.mean(axis=0), (len(places), 1))
        at[:, j] = places
        level = np.tile(X.mean(axis=0), (len(X), 1))
        level[:, j] = X[:, j]
        ends = np.full((len(places), 2), np.nan)
        if learner.calibration_ is not None:
            ends = model.predict_interval(at, coverage)
        return cls(
            f"{task_name(learner)} {tasks.labels[place]}",
            names[j],
            target_name(learner),
            X[:, j],
            y - model.predict(X) + model.predict(level),
            places,
            model.predict(at),
            before.predict(at),
            ends[:, 0],
            ends[:, 1],
            coverage,
            X.shape[1] > 1,
        ).plot(ax)

    def _draw(self, ax: Any) -> None:
        interval = f"{100.0 * self.coverage:g} % interval of a new row"
        known = bool(np.isfinite(self.lower).all())
        if len(self.places) <= FEW_VALUES:
            self._draw_values(ax, interval if known else None)
        else:
            if known:
                ax.fill_between(
                    self.places, self.lower, self.upper, color="0.88", linewidth=0, label=interval
                )
            ax.plot(
                self.places,
                self.prior,
                color=PALETTE[1],
                linestyle="--",
                linewidth=1.3,
                label="before any row",
            )
            ax.plot(self.places, self.prediction, color=PALETTE[0], linewidth=1.8, label="tailored fit")
            size = 4.5 if len(self.x) <= 100 else 2.5
            ax.plot(
                self.x,
                self.y,
                "o",
                color="0.25",
                markerfacecolor="white",
                markersize=size,
                linestyle="none",
                label="rows",
            )
        ax.set_xlabel(shortened(self.column, 40))
        ax.set_ylabel(
            shortened(self.target, 40) + (", other columns at their means" if self.adjusted else "")
        )
        ax.set_title(f"{shortened(self.task, 40)}: {len(self.x):,} rows")
        ax.legend(loc="best", frameon=True, framealpha=0.8, edgecolor="none")

    def _draw_values(self, ax: Any, interval: str | None) -> None:
        """A column of few values: marks beside each other instead of lines."""
        gap = float(np.diff(self.places).min()) if len(self.places) > 1 else 1.0
        rng = np.random.default_rng(0)
        spread = 0.16 * gap * (rng.random(len(self.x)) - 0.5)
        ax.plot(
            self.x - 0.2 * gap + spread,
            self.y,
            "o",
            color="0.25",
            markerfacecolor="white",
            markersize=3.5,
            linestyle="none",
            label="rows",
        )
        if interval is not None:
            ax.vlines(self.places, self.lower, self.upper, color="0.7", linewidth=5, label=interval)
        ax.plot(
            self.places,
            self.prediction,
            "s",
            color=PALETTE[0],
            markersize=7,
            linestyle="none",
            label="tailored fit",
        )
        ax.plot(
            self.places + 0.15 * gap,
            self.prior,
            "^",
            color=PALETTE[1],
            markersize=6,
            linestyle="none",
            label="before any row",
        )
        ax.set_xticks(self.places)
        ax.set_xlim(self.places[0] - 0.6 * gap, self.places[-1] + 0.6 * gap)
