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
)

#: Largest number of tasks in a caterpillar plot: there is space for as many names.
MAX_NAMED = 45


@dataclass
class EffectsDisplay(ModelDisplay):
    """Caterpillar plot: the coefficient of one column in every task, in increasing order, with its interval.

    Markers are filled for tasks whose interval excludes the fixed effect.  45 tasks from the lowest to the highest are
    drawn if there are more.

    Attributes
    ----------
    column : str
    labels : array (T,)
    effects, lower, upper : arrays (T,)
        In the order of the tasks; see `effects` of the learners.
    fixed_effect : float or None
        Prior mean of the coefficient, at the mean of the side information.
    coverage : float
    """

    column: str
    labels: NDArray[Any]
    effects: Array
    lower: Array
    upper: Array
    fixed_effect: float | None
    coverage: float

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: Any = None, *, coverage: float = 0.9, ax: Any = None
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of ``column`` (name or position).

        By default it is the column whose coefficient varies most between tasks, for values of typical size.
        """
        names, values = names_of(learner), effects_of(learner, tasks, coverage)
        j = most_varying(learner, values[0])[0] if column is None else find_column(column, names)
        means = fixed_effects(learner)
        mean = None if means is None else float(means[j])
        effects, lower, upper = (each[:, j] for each in values)
        return cls(names[j], tasks.labels, effects, lower, upper, mean, coverage).plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.8, max(0.17 * min(len(self.labels), MAX_NAMED) + 0.9, 2.0)

    def _draw(self, ax: Any) -> None:
        ranks = np.unique(np.linspace(0, len(self.effects) - 1, MAX_NAMED).round().astype(int))
        order = np.argsort(self.effects, kind="stable")[ranks]
        effects, lower, upper = self.effects[order], self.lower[order], self.upper[order]
        y, fixed = np.arange(len(order)), self.fixed_effect
        interval = f", with {100 * self.coverage:g} % interval" if np.isfinite(lower).all() else ""
        if interval:
            ax.hlines(y, lower, upper, color="0.55", linewidth=1.0, zorder=2)
        outside = np.zeros(len(order), dtype=bool)
        if fixed is not None:
            ax.axvline(fixed, color="0.35", linestyle="--", linewidth=1.0, label="fixed effect", zorder=1)
            outside = (lower > fixed) | (upper < fixed)
        for chosen, name in ((~outside, "interval contains it"), (outside, "interval excludes it")):
            style: Any = {"markersize": 4.5, "markeredgewidth": 0.8, "zorder": 3, "filled": chosen is outside}
            if interval and fixed is not None and chosen.any():
                style["label"] = name
            draw_points(ax, (effects[chosen], y[chosen]), "o", PALETTE[0], **style)
        ax.set_yticks(y, [shortened(label) for label in self.labels[order]])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(-0.8, len(order) - 0.2)
        ax.set_xlabel(coefficient_label(self.column) + interval)
        if len(order) < len(self.effects):
            ax.set_ylabel(f"{len(order)} of {len(self.effects):,} tasks, from the lowest to the highest")
        if fixed is not None:
            ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, fontsize=7)


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
        inverse = np.linalg.pinv(rows / size, rcond=1e-9)
        identified = np.diagonal(inverse @ (rows / size)) > 1.0 - 1e-8
        fits[t, identified] = (inverse @ task.y / size)[identified]
    return fits
