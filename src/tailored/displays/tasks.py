"""Displays of tasks: coefficients with intervals, shrinkage of own fits, mixture components, and the fit of one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ..gaussian.mixture import Want
from ..tasks.encoding import ROW_VALUES
from ..tasks.rows import dense, dense_rows
from ..tasks.task_set import TaskSet
from .base import (
    LEGEND,
    NOTE,
    PALETTE,
    Array,
    AxesLike,
    ColumnLike,
    ModelDisplay,
    coefficient_label,
    draw_points,
    effects_of,
    find_column,
    fixed_effects,
    line_style,
    most_varying,
    names_of,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Maximum number of tasks in a caterpillar plot, so that all names are readable.
MAX_NAMED = 45
#: Tasks whose most likely component has a smaller probability than this have hollow markers.
CERTAIN = 0.8
#: Number of grid points of a line.  A column with at most MAX_VALUES distinct values has these as its grid, with markers.
N_GRID, MAX_VALUES = 101, 6
#: Radius of an ellipse in standard deviations; it contains 86 % of a two-dimensional Gaussian.
ELLIPSE_STD = 2.0


@dataclass
class EffectsDisplay(ModelDisplay):
    """Caterpillar plot: the coefficient of one column in every task, in increasing order, with its interval.

    Markers are filled for tasks whose interval excludes the fixed effect.  If the side information changes the prior mean of
    the coefficient, differences from the prior mean of each task are drawn instead, and zero replaces the fixed effect.  With
    more than 45 tasks, 45 of them are drawn, evenly spaced in this order.

    Attributes
    ----------
    column : str
    labels : array (T,)
    effects, lower, upper : arrays (T,)
        Coefficients and interval bounds in the order of ``labels``; see the method `effects` of the learners.
    fixed_effect : float or None
        Prior mean of the coefficient, at the mean of the side information.
    coverage : float
    prior : array (T,) or None
        Prior mean of the coefficient of each task, if side information changes it.
    """

    column: str
    labels: NDArray[Any]
    effects: Array
    lower: Array
    upper: Array
    fixed_effect: float | None
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
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of ``column`` (name or position).

        By default it is the column whose scaled coefficient varies most between tasks, given their side information.
        """
        names, (*values, priors) = names_of(learner), effects_of(learner, tasks, coverage)
        j = (
            most_varying(learner, values[0] - priors)[0]
            if column is None
            else find_column(column, names)
        )
        effects, lower, upper = (each[:, j] for each in values)
        means, prior = fixed_effects(learner), priors[:, j]
        mean = None if means is None else float(means[j])
        differs = len(prior) > 0 and np.ptp(prior) > 1e-9 * np.abs(prior).max()
        own = prior if differs else None
        return cls(names[j], tasks.labels, effects, lower, upper, mean, coverage, own).plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.8, max(0.17 * min(len(self.labels), MAX_NAMED) + 0.9, 2.0)

    def _draw(self, ax: Axes) -> None:
        ranks = np.unique(np.linspace(0, len(self.effects) - 1, MAX_NAMED).round().astype(int))
        origin, fixed, line = np.zeros(len(self.effects)), self.fixed_effect, "fixed effect"
        if self.prior is not None:
            origin, fixed, line = self.prior, 0.0, "prior mean of the task"
        order = np.argsort(self.effects - origin, kind="stable")[ranks]
        effects, lower, upper = (
            (each - origin)[order] for each in (self.effects, self.lower, self.upper)
        )
        y = np.arange(float(len(order)))
        interval = f", with {100 * self.coverage:g} % interval" if np.isfinite(lower).all() else ""
        if interval:
            ax.hlines(y, lower, upper, color="0.55", linewidth=1.0, zorder=2)
        outside = np.zeros(len(order), dtype=bool)
        if fixed is not None:
            ax.axvline(fixed, color="0.35", linestyle="--", linewidth=1.0, label=line, zorder=1)
            outside = (lower > fixed) | (upper < fixed)
        for chosen, name in ((~outside, "interval contains it"), (outside, "interval excludes it")):
            style: dict[str, Any] = {
                "markersize": 4.5,
                "markeredgewidth": 0.8,
                "zorder": 3,
                "filled": chosen is outside,
            }
            if interval and fixed is not None and chosen.any():
                style["label"] = name
            draw_points(ax, (effects[chosen], y[chosen]), "o", PALETTE[0], **style)
        ax.set_yticks(y, [shortened(label) for label in self.labels[order]])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(-0.8, len(order) - 0.2)
        difference = " minus prior mean" * (self.prior is not None)
        ax.set_xlabel(coefficient_label(self.column) + difference + interval)
        if len(order) < len(self.effects):
            ax.set_ylabel(
                f"{len(order)} of {len(self.effects):,} tasks, from the lowest to the highest"
            )
        if fixed is not None:
            ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, fontsize=7)


@dataclass
class ShrinkageDisplay(ModelDisplay):
    """Shrinkage plot: arrows from the least-squares fit of each task's own rows to its tailored fit.

    The axes are the coefficients of two columns.  Tasks whose own rows do not identify these coefficients are left out
    (NaN in ``own``).

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
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        columns: Sequence[ColumnLike] | None = None,
        *,
        ax: AxesLike = None,
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of two columns (names or positions).

        By default they are the columns whose scaled coefficients vary most between tasks, among columns that the rows of
        enough tasks identify.
        """
        names, tailored = names_of(learner), effects_of(learner, tasks)[0]
        own = own_fits(tasks, learner.prior_.fit_intercept)
        if columns is None:
            n_known = (~np.isnan(own)).sum(axis=0)
            columns = [
                j for j in most_varying(learner, tailored) if 2 * n_known[j] >= n_known.max()
            ][:2]
        chosen = _find_pair(columns, names)
        names, means = [names[j] for j in chosen], fixed_effects(learner)
        means = None if means is None else means[chosen]
        return cls(
            names, tasks.labels, own[:, chosen], tailored[:, chosen], means, tasks.sizes
        ).plot(ax)

    def _draw(self, ax: Axes) -> None:
        kept = ~np.isnan(self.own).any(axis=1)
        own, tailored, mean = self.own[kept], self.tailored[kept], self.fixed_effects
        alpha = float(np.clip(25.0 / max(len(own), 1), 0.15, 0.8))
        # Widths are relative to the axes, because arrow heads of a fixed size would hide short arrows.
        arrows: dict[str, Any] = {
            "angles": "xy",
            "scale_units": "xy",
            "scale": 1.0,
            "width": 0.0022,
            "headwidth": 5.0,
        }
        ax.quiver(
            *own.T,
            *(tailored - own).T,
            color="0.45",
            alpha=alpha,
            minlength=0.0,
            zorder=2,
            **arrows,
        )
        size = 4.0 if len(own) <= 60 else 2.5
        draw_points(
            ax, own.T, "o", "0.45", filled=False, markersize=size, label="own fit", zorder=3
        )
        draw_points(
            ax, tailored.T, "s", PALETTE[0], markersize=size, label="tailored fit", zorder=4
        )
        if mean is not None:
            style: dict[str, Any] = {"markeredgecolor": "white", "markersize": 11, "zorder": 5}
            draw_points(ax, mean, "X", "black", label="fixed effects", **style)
        _frame_plane(ax, np.concatenate([own, tailored]), self.columns)
        ax.legend(loc="best", **LEGEND)
        if not kept.all():
            left_out = f"left out: {(~kept).sum():,} of {len(self.labels):,} tasks"
            ax.set_title(f"{left_out} with too few rows for an own fit", **NOTE)


@dataclass
class ComponentsDisplay(ModelDisplay):
    """Coefficients of tasks in a plane, marked by their most likely component, with an ellipse for each component.

    Hollow markers show tasks whose component is uncertain.

    Attributes
    ----------
    points : array (T, 2)
        Coefficients of two columns for each task, minus the effect of the side information.
    responsibilities : array (T, K)
        Probabilities of the components given the rows and the side information.
    means, covariances : arrays (K, 2), (K, 2, 2)
        Parameters of the components in the same plane.
    proportions : array (K,)
    columns : list of two str
    labels : array (T,)
    """

    points: Array
    responsibilities: Array
    means: Array
    covariances: Array
    proportions: Array
    columns: list[str]
    labels: NDArray[Any]

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        columns: Sequence[ColumnLike] | None = None,
        *,
        ax: AxesLike = None,
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of two columns (names or positions).

        By default they are the columns whose scaled coefficients vary most between tasks.
        """
        names = names_of(learner)
        prior, mixture, scaling = learner.prior_, learner.prior_.mixture, learner.prior_.scaling
        if mixture is None:
            raise ValueError(
                f"learner: the prior of {type(learner).__name__} has no components. This display needs an "
                "EmpiricalBayesLearner without the low-rank plus diagonal prior for many columns."
            )
        statistics = prior.statistics(prior.residual_tasks(tasks))
        posterior, shift = (
            statistics.posterior(mixture, Want(means=True)),
            mixture.effects(statistics.side),
        )
        coefficients = scaling.raw_weights(
            posterior.mean if shift is None else posterior.mean - shift
        )
        shares = posterior.shares
        if columns is None:
            columns = most_varying(learner, coefficients)[:2]
        chosen = _find_pair(columns, names)
        points, means = (w[:, chosen] for w in (coefficients, scaling.raw_weights(mixture.means)))
        raw = scaling.target**2 * scaling.raw_representation(mixture.covariances)
        components = means, raw[:, chosen][:, :, chosen], mixture.proportions
        return cls(points, shares, *components, [names[j] for j in chosen], tasks.labels).plot(ax)

    @property
    def component(self) -> NDArray[np.intp]:
        """Return the most likely component of each task, (T,)."""
        return self.responsibilities.argmax(axis=1)

    def _draw(self, ax: Axes) -> None:
        from matplotlib.patches import Ellipse

        certain = self.responsibilities.max(axis=1) >= CERTAIN
        size = 4.5 if len(self.points) <= 120 else 3.0
        for k, proportion in enumerate(self.proportions):
            style = line_style(k)
            color, dashes = style["color"], style["linestyle"]
            values, vectors = np.linalg.eigh(self.covariances[k])
            width, height = 2.0 * ELLIPSE_STD * np.sqrt(np.maximum(values, 0.0))
            angle = float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
            edge = {"edgecolor": color, "linestyle": dashes, "linewidth": 1.6, "facecolor": "none"}
            ax.add_patch(Ellipse(self.means[k], width, height, angle=angle, zorder=4, **edge))
            ax.plot([], [], markersize=5, label=f"{k + 1}: {100.0 * proportion:.0f} %", **style)
            for filled in (True, False):
                chosen = (self.component == k) & (certain == filled)
                shape = {"markersize": size, "markeredgewidth": 0.7, "alpha": 0.75, "zorder": 3}
                draw_points(
                    ax, self.points[chosen].T, style["marker"], color, filled=filled, **shape
                )
        radius = ELLIPSE_STD * np.sqrt(
            np.maximum(np.diagonal(self.covariances, axis1=1, axis2=2), 0.0)
        )
        ends = np.concatenate([self.points, self.means - radius, self.means + radius])
        _frame_plane(ax, ends, self.columns, 1.0)
        ax.axhline(0.0, color="0.85", linewidth=0.6, zorder=0)
        ax.axvline(0.0, color="0.85", linewidth=0.6, zorder=0)
        ax.legend(title="component", loc="center left", bbox_to_anchor=(1.0, 0.5))


@dataclass
class TaskFitDisplay(ModelDisplay):
    """Rows of one task against one column, with the tailored fit, the prediction interval and the prior prediction.

    Other columns are fixed at the task's means, and their fitted contribution is subtracted from numeric targets.  Classes
    (0 and 1) and counts (per unit of exposure) are drawn without this adjustment.

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
        column: ColumnLike | None = None,
        *,
        coverage: float = 0.9,
        ax: AxesLike = None,
    ) -> Self:
        """Adapt ``learner`` to the task with the label ``task``; draw its rows and predictions against ``column``.

        By default, the first task is drawn against the column with the largest effect on its predictions.
        """
        names = names_of(learner)[: learner.n_features_in_]
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

        target, task_name = (
            str(learner.columns_in_.get(role) or role) for role in ("target", "task")
        )
        bounds = np.full((len(grid), 2), np.nan)
        if learner.prior_.has_intervals:
            # The interval of a rate depends on the exposure: that of a row with exposure 1 may contain no counts but 0.
            exposure = None if one.exposure is None else np.full(len(grid), one.exposure.mean())
            bounds = model.predict_interval(at(grid), coverage, exposure)
            if exposure is not None:
                bounds = bounds / exposure[0]
        if learner.prior_.response.is_gaussian:
            y = y - model.predict(X) + model.predict(at(X[:, j]))
        elif one.exposure is not None:
            y = y / one.exposure
        if learner.encoding_ is not None and learner.encoding_.classes:
            target = f"probability of {learner.encoding_.classes[1]}"
        label = f"{task_name} {tasks.labels[position]}"
        lines = grid, model.predict(at(grid)), prior.predict(at(grid)), bounds[:, 0], bounds[:, 1]
        return cls(label, names[j], target, X[:, j], y, *lines, coverage, X.shape[1] > 1).plot(ax)

    def _draw(self, ax: Axes) -> None:
        few = len(self.grid) <= MAX_VALUES
        if np.isfinite(self.lower).all():
            interval = f"{100.0 * self.coverage:g} % prediction interval"
            ax.fill_between(
                self.grid, self.lower, self.upper, color="0.88", linewidth=0, label=interval
            )
        lines: dict[str, Any] = {
            "prior, without rows": (self.prior, "^", "--"),
            "tailored fit": (self.prediction, "s", "-"),
        }
        for color, (label, (values, marker, dashes)) in zip(
            PALETTE[1::-1], lines.items(), strict=True
        ):
            style = {"color": color, "linestyle": dashes, "marker": marker if few else ""}
            ax.plot(self.grid, values, linewidth=1.6, label=label, **style)
        size = 4.5 if len(self.x) <= 100 else 2.5
        draw_points(ax, (self.x, self.y), "o", "0.25", filled=False, markersize=size, label="rows")
        if few:
            ax.set_xticks(self.grid)
        ax.set_xlabel(shortened(self.column, 40))
        adjusted = ", other columns at their means" if self.adjusted else ""
        ax.set_ylabel(shortened(self.target, 40) + adjusted)
        ax.set_title(f"{shortened(self.task, 40)}: {len(self.x):,} rows")
        ax.legend(loc="best", **LEGEND)


def _find_pair(columns: Sequence[ColumnLike], names: list[str]) -> list[int]:
    """Return the positions of two columns that are given by their names or positions."""
    pair = [columns] if isinstance(columns, str) else columns
    chosen = [find_column(column, names, "columns") for column in pair]
    if len(chosen) != 2:
        raise ValueError(f"columns: expected two columns, got {len(chosen)}.")
    return chosen


def _frame_plane(ax: Axes, points: Array, columns: list[str], fraction: float = 0.98) -> None:
    """Set the labels of a plot of two coefficients, and limits that contain a ``fraction`` of the points on each axis."""
    ax.set(xlabel=coefficient_label(columns[0]), ylabel=coefficient_label(columns[1]))
    points = points[np.isfinite(points).all(axis=1)]
    if len(points):
        low, high = np.quantile(points, [0.5 - 0.5 * fraction, 0.5 + 0.5 * fraction], axis=0)
        margin = np.where(high > low, 0.08 * (high - low), 1.0)
        x, y = np.column_stack([low - margin, high + margin])
        ax.set(xlim=x, ylim=y)


def own_fits(tasks: TaskSet, fit_intercept: bool) -> Array:
    """Return the least-squares fit of each task's own rows, (T, d); NaN for coefficients that the rows do not identify.

    If there is an intercept and a column is constant within a task, the coefficient of this column and the intercept
    are not identified; other coefficients may be.
    """
    fits = np.full((len(tasks), tasks.n_features + fit_intercept), np.nan)
    for t, task in enumerate(tasks):
        rows = dense_rows(task.X, fit_intercept)
        if not len(rows):
            continue
        # Without scaling, columns with small values would look unidentified.
        size = np.sqrt(np.mean(rows**2, axis=0))
        size = np.where(size > 0, size, 1.0)
        inverse = np.linalg.pinv(rows / size, rcond=1e-9)
        identified = np.diagonal(inverse @ (rows / size)) > 1.0 - 1e-8
        fits[t, identified] = (inverse @ task.y / size)[identified]
    return fits
