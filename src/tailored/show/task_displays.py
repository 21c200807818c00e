"""Displays of tasks: coefficients with intervals, shrinkage of own fits, the fit of one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ..tasks.encoding import ROW_VALUES
from ..tasks.rows import dense, dense_rows
from ..tasks.task_set import TaskSet
from .display import (
    MAX_VALUES,
    PALETTE,
    Array,
    AxesLike,
    ColumnLike,
    ModelDisplay,
    coefficient_label,
    effects_of,
    find_column,
    most_varying,
    shortened,
)
from .model import FittedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Maximum number of tasks in a caterpillar plot, so that all names are readable.
MAX_NAMED = 45
#: Legend with a background, so that it stays readable over markers.
LEGEND: dict[str, Any] = {"frameon": True, "framealpha": 0.85, "edgecolor": "none"}


@dataclass
class EffectsDisplay(ModelDisplay):
    """Caterpillar plot.

    The coefficient of one column in every task, in increasing order, with its interval.

    Markers are filled for tasks whose interval excludes the fixed effect.  If the side information
    changes the prior mean of the coefficient, differences from the prior mean of each task are
    drawn instead, and zero replaces the fixed effect.  With more than 45 tasks, 45 of them are
    drawn, evenly spaced in this order.

    Attributes
    ----------
    column : str
    labels : array (T,)
    effects, lower, upper : arrays (T,)
        Coefficients and interval bounds in the order of ``labels``; see the method `effects` of the
        learners.
    fixed_effect : float
        Prior mean of the coefficient, at the mean of the side information; NaN if it is not
        defined.
    coverage : float
    prior : array (T,) or None
        Prior mean of the coefficient of each task, if side information changes it.
    """

    column: str
    labels: NDArray[Any]
    effects: Array
    lower: Array
    upper: Array
    fixed_effect: float
    coverage: float
    prior: Array | None = None

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        column: ColumnLike | None = None,
        *,
        coverage: float = 0.9,
        ax: AxesLike = None,
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of ``column`` (name or
        position).

        By default it is the column whose scaled coefficient varies most between tasks, given their
        side information.
        """
        model = FittedModel.of(learner)
        effects, lower, upper, priors = effects_of(learner, tasks, coverage)
        if column is None:
            column = most_varying(learner, effects - priors)[0]
        j = find_column(column, model.columns)
        prior = priors[:, j]
        differs = np.ptp(prior) > 1e-9 * np.abs(prior).max()
        display = cls(
            model.columns[j],
            tasks.labels,
            effects[:, j],
            lower[:, j],
            upper[:, j],
            float(model.fixed_effects[j]),
            coverage,
            prior if differs else None,
        )
        return display.plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.8, max(0.17 * min(len(self.labels), MAX_NAMED) + 0.9, 2.0)

    def _draw(self, ax: Axes) -> None:
        origin: Any = 0.0
        fixed, line = self.fixed_effect, "fixed effect"
        if self.prior is not None:
            origin, fixed, line = self.prior, 0.0, "prior mean of the task"
        effects, lower, upper = (each - origin for each in (self.effects, self.lower, self.upper))
        drawn = np.unique(np.linspace(0, len(effects) - 1, MAX_NAMED).round().astype(int))
        order = np.argsort(effects, kind="stable")[drawn]
        y = np.arange(float(len(order)))
        label = coefficient_label(self.column) + " minus prior mean" * (self.prior is not None)
        if np.isfinite(lower).all():
            label += f", with {100 * self.coverage:g} % interval"
            ax.hlines(y, lower[order], upper[order], color="0.55", linewidth=1.0, zorder=2)
        excludes = ((lower > fixed) | (upper < fixed))[order]
        for chosen, face, name in (
            (~excludes, "white", "interval contains it"),
            (excludes, PALETTE[0], "interval excludes it"),
        ):
            style: Any = {"color": PALETTE[0], "markerfacecolor": face, "markersize": 4.5}
            named = name if np.isfinite(lower).all() and chosen.any() else "_"
            ax.plot(effects[order][chosen], y[chosen], "o", label=named, zorder=3, **style)
        if np.isfinite(fixed):
            ax.axvline(fixed, color="0.35", linestyle="--", linewidth=1.0, label=line, zorder=1)
            ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, fontsize=7)
        ax.set_yticks(y, [shortened(name) for name in self.labels[order]])
        ax.tick_params(axis="y", length=0)
        ax.set(ylim=(-0.8, len(order) - 0.2), xlabel=label)
        if len(order) < len(effects):
            count = f"{len(order)} of {len(effects):,} tasks"
            ax.set_ylabel(f"{count}, from the lowest to the highest")


@dataclass
class ShrinkageDisplay(ModelDisplay):
    """Shrinkage plot.

    Arrows from the least-squares fit of each task's own rows to its tailored fit.

    The axes are the coefficients of two columns.  Tasks whose own rows do not identify all
    coefficients are left out (NaN in ``own``).

    Attributes
    ----------
    columns : list of two str
    labels : array (T,)
    own, tailored : arrays (T, 2)
    fixed_effects : array (2,)
        Prior mean of the coefficients, at the mean of the side information.
    """

    columns: list[str]
    labels: NDArray[Any]
    own: Array
    tailored: Array
    fixed_effects: Array

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        columns: Sequence[ColumnLike] | None = None,
        *,
        ax: AxesLike = None,
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of two columns (names or
        positions).

        By default they are the columns whose scaled coefficients vary most between tasks.
        """
        model = FittedModel.of(learner)
        tailored = effects_of(learner, tasks)[0]
        if columns is None:
            columns = most_varying(learner, tailored)[:2]
        pair = [columns] if isinstance(columns, str) else columns
        chosen = [find_column(column, model.columns, "columns") for column in pair]
        if len(chosen) != 2:
            raise ValueError(f"columns: expected two columns, got {len(chosen)}.")
        own = own_fits(tasks, learner.prior_.fit_intercept)[:, chosen]
        names = [model.columns[j] for j in chosen]
        means = model.fixed_effects[chosen]
        return cls(names, tasks.labels, own, tailored[:, chosen], means).plot(ax)

    def _draw(self, ax: Axes) -> None:
        kept = ~np.isnan(self.own).any(axis=1)
        own, tailored = self.own[kept], self.tailored[kept]
        # Widths are relative to the axes, because arrow heads of a fixed size would hide short
        # arrows.
        arrows: dict[str, Any] = {
            "angles": "xy",
            "scale_units": "xy",
            "scale": 1.0,
            "width": 0.0022,
            "headwidth": 5.0,
            "minlength": 0.0,
            "color": "0.45",
            "alpha": float(np.clip(25.0 / max(len(own), 1), 0.15, 0.8)),
        }
        ax.quiver(*own.T, *(tailored - own).T, **arrows)
        size = 4.0 if len(own) <= 60 else 2.5
        ax.plot(*own.T, "o", color="0.45", mfc="white", markersize=size, label="own fit")
        ax.plot(*tailored.T, "s", color=PALETTE[0], markersize=size, label="tailored fit")
        if np.isfinite(self.fixed_effects).all():
            style: dict[str, Any] = {"color": "black", "markeredgecolor": "white", "markersize": 11}
            ax.plot(*self.fixed_effects, "X", label="fixed effects", **style)
        if len(own):
            # Single own fits may be far away, and are not needed to see the others.
            low, high = np.quantile(np.concatenate([own, tailored]), [0.01, 0.99], axis=0)
            margin = np.where(high > low, 0.08 * (high - low), 1.0)
            xlim, ylim = np.column_stack([low - margin, high + margin])
            ax.set(xlim=xlim, ylim=ylim)
        ax.set(xlabel=coefficient_label(self.columns[0]), ylabel=coefficient_label(self.columns[1]))
        ax.legend(loc="best", **LEGEND)
        if not kept.all():
            left_out = f"left out: {(~kept).sum():,} of {len(self.labels):,} tasks"
            ax.set_title(f"{left_out} with too few rows for an own fit", fontsize=8, color="0.35")


@dataclass
class TaskFitDisplay(ModelDisplay):
    """Rows of one task against one column, with the tailored fit, the prediction interval and the
    prior prediction.

    Other columns are fixed at the task's means, and their fitted contribution is subtracted from
    numeric targets.  Classes (0 and 1) and counts (per unit of exposure) are drawn without this
    adjustment.

    Attributes
    ----------
    task, column, target : str
    x, y : arrays (n,)
        Rows of the task; numeric targets ``y`` are adjusted for the other columns.
    grid : array (m,)
        Values of the column.
    prediction, prior : arrays (m,)
        Predictions after adapting to the rows, and without any rows.
    lower, upper : arrays (m,)
        Bounds of the prediction interval; NaN if the learner has no intervals.
    coverage : float
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

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        task: Any = None,
        column: ColumnLike | None = None,
        *,
        coverage: float = 0.9,
        ax: AxesLike = None,
    ) -> Self:
        """Adapt ``learner`` to the task with the label ``task``.

        Draw its rows and predictions against ``column``.

        By default, the first task is drawn against the column with the largest effect on its
        predictions.
        """
        names = FittedModel.of(learner).columns[: learner.n_features_in_]
        position = 0 if task is None else int(tasks.index_of(task)[0])
        one = tasks[[position]]
        X, y = dense(one.X), one.y
        if not len(y):
            raise ValueError(
                f"task: {tasks.labels[position]!r} has no rows to draw. Choose another task."
            )
        side = None if one.side_info is None else one.side_info[0]
        values = {name: getattr(one, name) for name in ROW_VALUES if getattr(one, name) is not None}
        model, prior = learner.adapt(X, y, side_info=side, **values), learner.adapt(side_info=side)
        if column is None:
            column = int(np.argmax(np.abs(model.coef_) * X.std(axis=0)))
        j = find_column(column, names)
        grid = np.unique(X[:, j])
        if len(grid) > MAX_VALUES:
            margin = 0.04 * (grid[-1] - grid[0])
            grid = np.linspace(grid[0] - margin, grid[-1] + margin, 101)

        def at(values: Array) -> Array:
            """Return rows with these values of the column, and the other columns at their means."""
            rows = np.tile(X.mean(axis=0), (len(values), 1))
            rows[:, j] = values
            return rows

        lower, upper = np.full((2, len(grid)), np.nan)
        if learner.prior_.has_intervals:
            # The interval of a rate depends on the exposure: that of a row with exposure 1 may
            # contain no counts but 0.
            exposure = 1.0 if one.exposure is None else one.exposure.mean()
            exposures = None if one.exposure is None else np.full(len(grid), exposure)
            lower, upper = model.predict_interval(at(grid), coverage, exposures).T / exposure
        if learner.prior_.response.is_gaussian:
            y = y - model.predict(X) + model.predict(at(X[:, j]))
        elif one.exposure is not None:
            y = y / one.exposure
        target = str(learner.columns_in_.get("target") or "target")
        if learner.encoding_ is not None and learner.encoding_.classes:
            target = f"probability of {learner.encoding_.classes[1]}"
        if X.shape[1] > 1:
            target += ", other columns at their means"
        lines = grid, model.predict(at(grid)), prior.predict(at(grid)), lower, upper
        label = f"{learner.columns_in_.get('task') or 'task'} {tasks.labels[position]}"
        return cls(label, names[j], target, X[:, j], y, *lines, coverage).plot(ax)

    def _draw(self, ax: Axes) -> None:
        if np.isfinite(self.lower).all():
            interval = f"{100.0 * self.coverage:g} % prediction interval"
            ax.fill_between(self.grid, self.lower, self.upper, color="0.88", label=interval)
        ax.plot(self.grid, self.prior, "--", color=PALETTE[1], label="prior, without rows")
        ax.plot(self.grid, self.prediction, color=PALETTE[0], label="tailored fit")
        size = 4.5 if len(self.x) <= 100 else 2.5
        ax.plot(self.x, self.y, "o", color="0.25", mfc="white", markersize=size, label="rows")
        if len(self.grid) <= MAX_VALUES:
            ax.set_xticks(self.grid)
        ax.set(xlabel=shortened(self.column, 40), ylabel=shortened(self.target, 60))
        ax.set_title(f"{shortened(self.task, 40)}: {len(self.x):,} rows")
        ax.legend(loc="best", **LEGEND)


def own_fits(tasks: TaskSet, fit_intercept: bool) -> Array:
    """Return the least-squares fit of each task's own rows, (T, d).

    NaN if they do not identify all coefficients.
    """
    fits = np.full((len(tasks), tasks.n_features + fit_intercept), np.nan)
    for t, task in enumerate(tasks):
        rows = dense_rows(task.X, fit_intercept)
        if len(rows) < rows.shape[1]:
            continue
        # Without scaling, columns with small values would look unidentified.
        size = np.maximum(np.sqrt(np.mean(rows**2, axis=0)), 1e-300)
        coefficients, _, rank, _ = np.linalg.lstsq(rows / size, task.y, rcond=1e-9)
        if rank == rows.shape[1]:
            fits[t] = coefficients / size
    return fits
