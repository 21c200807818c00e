"""`EffectsDisplay`: coefficients of the tasks with intervals.  `ShrinkageDisplay`: how far each task is shrunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..tasks.rows import dense_rows
from ..tasks.task_set import TaskSet
from .base import (
    LEGEND,
    PALETTE,
    Array,
    ModelDisplay,
    axis_limits,
    coefficient_label,
    draw_points,
    effects_of,
    find_column,
    fixed_effects,
    most_varying,
    names_of,
    shortened,
    table_name,
)

#: Largest numbers of tasks with a name, and with a marker of their own.
MAX_NAMED, MAX_MARKED = 45, 250


@dataclass
class EffectsDisplay(ModelDisplay):
    """Caterpillar plot: the coefficient of one column in every task, in increasing order, with its interval.

    Markers are filled for tasks whose interval excludes the fixed effect.

    Attributes
    ----------
    column : str
    labels : array (T,)
    effects, lower, upper : arrays (T,)
        In the order of the tasks; see `effects` of the learners.
    fixed_effect : float or None
        Prior mean of the coefficient, at the mean of the side information.
    coverage : float
    task : str
        Name of the column of task labels.
    """

    column: str
    labels: NDArray[Any]
    effects: Array
    lower: Array
    upper: Array
    fixed_effect: float | None
    coverage: float
    task: str = "task"

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: Any = None, *, coverage: float = 0.9, ax: Any = None
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of ``column`` (name or position).

        By default it is the column whose coefficient varies most between tasks, for values of typical size.
        """
        names, values = names_of(learner), effects_of(learner, tasks, coverage)
        j = most_varying(learner, values[0])[0] if column is None else find_column(column, names)
        means, task = fixed_effects(learner), table_name(learner, "task")
        mean = None if means is None else float(means[j])
        effects, lower, upper = (each[:, j] for each in values)
        return cls(names[j], tasks.labels, effects, lower, upper, mean, coverage, task).plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.8, float(np.clip(0.17 * len(self.labels) + 0.9, 2.4, 8.0)) if self._named else 4.6

    @property
    def _named(self) -> bool:
        return len(self.labels) <= MAX_NAMED

    def _draw(self, ax: Any) -> None:
        order = np.argsort(self.effects, kind="stable")
        effects, lower, upper = self.effects[order], self.lower[order], self.upper[order]
        y, fixed = np.arange(len(order)), self.fixed_effect
        has_interval = bool(np.isfinite(lower).all())
        interval = f"{100 * self.coverage:g} % interval"
        if fixed is not None:
            ax.axvline(fixed, color="0.35", linestyle="--", linewidth=1.0, label="fixed effect", zorder=1)
        if len(order) > MAX_MARKED:
            if has_interval:
                ax.fill_betweenx(y, lower, upper, color="0.82", linewidth=0, label=interval)
            ax.plot(effects, y, color=PALETTE[0], linewidth=1.8, label="coefficient")
        else:
            if has_interval:
                ax.hlines(y, lower, upper, color="0.55", linewidth=1.0 if self._named else 0.6, zorder=2)
            outside = np.zeros(len(order), dtype=bool)
            if has_interval and fixed is not None:
                outside = (lower > fixed) | (upper < fixed)
            for chosen, name in ((~outside, "interval contains it"), (outside, "interval excludes it")):
                style: Any = {"markersize": 4.5 if self._named else 2.5, "markeredgewidth": 0.8, "zorder": 3}
                if has_interval and fixed is not None and chosen.any():
                    style["label"] = name
                xy, filled = (effects[chosen], y[chosen]), chosen is outside
                draw_points(ax, xy, "o", PALETTE[0], filled=filled, **style)
        if self._named:
            ax.set_yticks(y, [shortened(label) for label in self.labels[order]])
            ax.tick_params(axis="y", length=0)
        else:
            ax.set_yticks([])
            tasks = "tasks" if self.task == "task" else f"tasks ({shortened(self.task)})"
            ax.set_ylabel(f"{len(order):,} {tasks}, sorted")
        ax.set_ylim(-0.8, len(order) - 0.2)
        ax.set_xlabel(coefficient_label(self.column) + (f", with {interval}" if has_interval else ""))
        if fixed is not None or len(order) > MAX_MARKED:
            ax.legend(loc="lower right", fontsize=7)


@dataclass
class ShrinkageDisplay(ModelDisplay):
    """Shrinkage: from the least-squares fit to each task's own rows to its tailored fit.

    Coefficients of two columns are drawn as arrows in a plane.  Tasks whose own rows do not identify the coefficients are
    left out (NaN in ``own``).

    Attributes
    ----------
    columns : list of two str
    labels : array (T,)
    own, tailored : arrays (T, 2)
    fixed_effects : array (2,) or None
        Prior mean of the coefficients, at the mean of the side information.
    n_rows : array (T,)
    """

    columns: list[str]
    labels: NDArray[Any]
    own: Array
    tailored: Array
    fixed_effects: Array | None
    n_rows: NDArray[np.int64]

    @classmethod
    def from_estimator(cls, learner: Any, tasks: TaskSet, columns: Any = None, *, ax: Any = None) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw a pair of columns (names or positions).

        By default it is the pair whose coefficients vary most between tasks, for values of typical size.
        """
        names, tailored = names_of(learner), effects_of(learner, tasks)[0]
        own = own_fits(tasks, learner.prior_.fit_intercept)
        if columns is None:
            n_known = (~np.isnan(own)).sum(axis=0)
            columns = [j for j in most_varying(learner, tailored) if 2 * n_known[j] >= n_known.max()][:2]
        chosen = [find_column(column, names, "columns") for column in columns]
        if len(chosen) != 2:
            raise ValueError(f"columns: expected two columns, got {len(chosen)}.")
        names, means = [names[j] for j in chosen], fixed_effects(learner)
        means = None if means is None else means[chosen]
        return cls(names, tasks.labels, own[:, chosen], tailored[:, chosen], means, tasks.sizes).plot(ax)

    def _draw(self, ax: Any) -> None:
        kept = ~np.isnan(self.own).any(axis=1)
        own, tailored, mean = self.own[kept], self.tailored[kept], self.fixed_effects
        alpha = float(np.clip(25.0 / max(len(own), 1), 0.15, 0.8))
        # Widths relative to the axes: arrow heads of a fixed size would hide short arrows.
        arrows = {"angles": "xy", "scale_units": "xy", "scale": 1.0, "width": 0.0022, "headwidth": 5.0}
        ax.quiver(*own.T, *(tailored - own).T, color="0.45", alpha=alpha, minlength=0.0, zorder=2, **arrows)
        size = 4.0 if len(own) <= 60 else 2.5
        draw_points(ax, own.T, "o", "0.45", filled=False, markersize=size, label="own fit", zorder=3)
        draw_points(ax, tailored.T, "s", PALETTE[0], markersize=size, label="tailored fit", zorder=4)
        if mean is not None:
            style: Any = {"markeredgecolor": "white", "markersize": 11, "zorder": 5}
            draw_points(ax, mean, "X", "black", label="fixed effects", **style)
        ends = np.concatenate([own, tailored])
        ax.set_xlim(*axis_limits(ends[:, 0]))
        ax.set_ylim(*axis_limits(ends[:, 1]))
        ax.set(xlabel=coefficient_label(self.columns[0]), ylabel=coefficient_label(self.columns[1]))
        ax.legend(loc="best", **LEGEND)
        if not kept.all():
            left_out = f"left out: {(~kept).sum():,} of {len(self.labels):,} tasks"
            ax.set_title(f"{left_out} with too few rows for an own fit", fontsize=8, color="0.35")


def own_fits(tasks: TaskSet, fit_intercept: bool) -> Array:
    """Fit least squares to each task's own rows, (T, d); NaN for coefficients that the rows do not identify.

    A column that is constant within a task leaves only its own coefficient and the intercept unidentified.
    """
    fits = np.full((len(tasks), tasks.n_features + fit_intercept), np.nan)
    for t, task in enumerate(tasks):
        rows = dense_rows(task.X, fit_intercept)
        if not len(rows):
            continue
        # Without scaling, columns of very different units would look unidentified.
        size = np.sqrt(np.mean(rows**2, axis=0))
        size = np.where(size > 0, size, 1.0)
        left, values, right = np.linalg.svd(rows / size, full_matrices=False)
        kept = values > 1e-9 * values[0]
        coefficients = right[kept].T @ ((left[:, kept].T @ task.y) / values[kept])
        identified = (right[kept] ** 2).sum(axis=0) > 1.0 - 1e-8
        fits[t, identified] = (coefficients / size)[identified]
    return fits
