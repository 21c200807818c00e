"""`TaskFitDisplay`: the rows of one task, its tailored fit and the prediction interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..tasks.encoding import ROW_VALUES
from ..tasks.rows import dense
from ..tasks.task_set import TaskSet
from .base import (
    LEGEND,
    PALETTE,
    Array,
    ModelDisplay,
    draw_points,
    find_column,
    names_of,
    shortened,
    table_name,
)

#: Number of grid points of a line.  Columns with at most MAX_VALUES distinct values are drawn with markers instead.
N_GRID, MAX_VALUES = 101, 6


@dataclass
class TaskFitDisplay(ModelDisplay):
    """Rows of one task against one column, with the tailored fit, the prediction interval and the prior prediction.

    Other columns are fixed at the task's means, and their fitted contribution is subtracted from numeric targets.  Classes
    (0 and 1) and counts (per unit of exposure) are drawn without this adjustment.

    Attributes
    ----------
    task, column, target : str
    x, y : arrays (n,)
        Rows of the task; ``y`` is adjusted for the other columns.
    grid : array (m,)
        Values of the column.
    prediction, prior : arrays (m,)
        Predictions after adapting to the rows, and without any rows.
    lower, upper : arrays (m,)
        Bounds of the prediction interval; NaN if the learner has no calibration.
    coverage : float
    adjusted : bool
        Whether there are other columns.
    """

    task: str
    column: str
    target: str
    x: Array
    y: Array
    grid: Array
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
        """Adapt ``learner`` to the task with the label ``task`` and draw it against ``column``.

        By default, the first task is drawn against the column with the largest effect on its predictions.
        """
        names = names_of(learner)[: learner.n_features_in_]
        position = 0 if task is None else int(tasks.index_of(task)[0])
        one = tasks[[position]]
        X, y = dense(one.X), one.y
        if not len(y):
            raise ValueError(f"task: {tasks.labels[position]!r} has no rows to draw. Choose another task.")
        side = None if one.side_info is None else one.side_info[0]
        values = {name: getattr(one, name) for name in ROW_VALUES if getattr(one, name) is not None}
        model, prior = learner.adapt(X, y, side_info=side, **values), learner.adapt(side_info=side)
        sizes = np.abs(model.coef_) * X.std(axis=0)
        j = int(np.argmax(sizes)) if column is None else find_column(column, names)
        grid = np.unique(X[:, j])
        if len(grid) > MAX_VALUES:
            margin = 0.04 * (grid[-1] - grid[0])
            grid = np.linspace(grid[0] - margin, grid[-1] + margin, N_GRID)

        def at(values: Array) -> Array:
            """Return rows with these values of the column, and the other columns at their means."""
            rows = np.tile(X.mean(axis=0), (len(values), 1))
            rows[:, j] = values
            return rows

        target, bounds = table_name(learner, "target"), np.full((len(grid), 2), np.nan)
        if learner.prior_.has_intervals:
            bounds = model.predict_interval(at(grid), coverage)
        if learner.prior_.response.is_gaussian:
            y = y - model.predict(X) + model.predict(at(X[:, j]))
        elif one.exposure is not None:
            y = y / one.exposure
        if learner.encoding_ is not None and learner.encoding_.classes:
            target = f"probability of {learner.encoding_.classes[1]}"
        label = f"{table_name(learner, 'task')} {tasks.labels[position]}"
        lines = grid, model.predict(at(grid)), prior.predict(at(grid)), bounds[:, 0], bounds[:, 1]
        return cls(label, names[j], target, X[:, j], y, *lines, coverage, X.shape[1] > 1).plot(ax)

    def _draw(self, ax: Any) -> None:
        interval = f"{100.0 * self.coverage:g} % prediction interval"
        has_interval = bool(np.isfinite(self.lower).all())
        if len(self.grid) <= MAX_VALUES:
            self._draw_values(ax, interval if has_interval else None)
        else:
            if has_interval:
                ax.fill_between(self.grid, self.lower, self.upper, color="0.88", linewidth=0, label=interval)
            ax.plot(self.grid, self.prior, "--", color=PALETTE[1], linewidth=1.3, label="prior, without rows")
            ax.plot(self.grid, self.prediction, color=PALETTE[0], linewidth=1.8, label="tailored fit")
            size = 4.5 if len(self.x) <= 100 else 2.5
            draw_points(ax, (self.x, self.y), "o", "0.25", filled=False, markersize=size, label="rows")
        ax.set_xlabel(shortened(self.column, 40))
        adjusted = ", other columns at their means" if self.adjusted else ""
        ax.set_ylabel(shortened(self.target, 40) + adjusted)
        ax.set_title(f"{shortened(self.task, 40)}: {len(self.x):,} rows")
        ax.legend(loc="best", **LEGEND)

    def _draw_values(self, ax: Any, interval: str | None) -> None:
        """Draw a column with few distinct values, with markers instead of lines."""
        gap = float(np.diff(self.grid).min()) if len(self.grid) > 1 else 1.0
        jitter = gap * (0.16 * (np.random.default_rng(0).random(len(self.x)) - 0.5) - 0.2)
        draw_points(ax, (self.x + jitter, self.y), "o", "0.25", filled=False, markersize=3.5, label="rows")
        if interval is not None:
            ax.vlines(self.grid, self.lower, self.upper, color="0.7", linewidth=5, label=interval)
        draw_points(ax, (self.grid, self.prediction), "s", PALETTE[0], markersize=7, label="tailored fit")
        shifted = self.grid + 0.15 * gap
        draw_points(ax, (shifted, self.prior), "^", PALETTE[1], markersize=6, label="prior, without rows")
        ax.set_xticks(self.grid)
        ax.set_xlim(self.grid[0] - 0.6 * gap, self.grid[-1] + 0.6 * gap)
