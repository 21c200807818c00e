"""Displays of a fitted model, which follow scikit-learn's convention.

Coefficients of tasks with intervals, shrinkage of own fits, the fit of one task, and the prior as a
function of side information.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mode
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.progress import one_line
from .._utils.tables import shorten
from .._utils.validation import check_choice, is_missing
from ..tasks.encoding import ROW_VALUES
from ..tasks.rows import Array, dense, dense_rows
from ..tasks.task_set import TaskSet
from .model import INTERCEPT, FittedModel

#: Settings of all figures; the salt makes SVG files reproducible.
RC: dict[str, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "font.size": 8.5,
    "legend.frameon": False,
    "lines.markersize": 4.0,
    "svg.hashsalt": "tailored",
    "svg.fonttype": "none",
}
#: Colours that colour-blind people can distinguish (Okabe and Ito).
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
#: A column with at most `MAX_VALUES` distinct values is drawn at these values, otherwise on a grid.
MAX_VALUES = 6
#: Maximum number of tasks in a caterpillar plot, so that all names are readable.
MAX_NAMED = 45


class ModelDisplay:
    """Base class of displays."""

    ax_: Any
    figure_: Any
    figure_size = 5.2, 3.8  # width and height of a new figure, in inches

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure; return the display with ``ax_`` and ``figure_``."""
        with pyplot().rc_context(RC):
            ax = new_axes(*self.figure_size) if ax is None else ax
            self.ax_, self.figure_ = ax, ax.figure
            self._draw(ax)
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError


@dataclass
class EffectsDisplay(ModelDisplay):
    """Caterpillar plot: the coefficient of one column in every task, in increasing order, with its
    90 % interval.

    A dashed line is at the fixed effect.  If side information changes the prior mean, differences
    from it are drawn.  Of more than 45 tasks, 45 are drawn, evenly spaced.

    Attributes
    ----------
    column : str
        The column.
    labels : array (T,)
        Labels of the tasks.
    effects, lower, upper, prior : arrays (T,)
        Coefficients, interval bounds and prior means of the coefficient.
    fixed_effect : float
        Prior mean of the coefficient, at the mean of the side information.
    """

    column: str
    labels: NDArray[Any]
    effects: Array
    lower: Array
    upper: Array
    prior: Array
    fixed_effect: float

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: str | None = None, *, ax: Any = None
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of ``column``.

        By default it is the column whose scaled coefficient varies most between tasks, given their
        side information.
        """
        model, values = FittedModel(learner), effects_of(learner, tasks)
        column = column or most_varying(model, values[0] - values[3])[0]
        j = model.columns.index(check_choice("column", column, model.columns))
        numbers: Any = *values[..., j], float(model.fixed_effects[j])
        return cls(column, tasks.labels, *numbers).plot(ax)

    def __post_init__(self) -> None:
        self.figure_size = 4.8, max(0.17 * min(len(self.labels), MAX_NAMED) + 0.9, 2.0)

    def _draw(self, ax: Any) -> None:
        label, fixed, line = coefficient_label(self.column), self.fixed_effect, "fixed effect"
        values = np.stack([self.effects, self.lower, self.upper])
        if np.ptp(self.prior) > 1e-9 * np.abs(self.prior).max():
            label += " minus prior mean"
            values, fixed, line = values - self.prior, 0.0, "prior mean of the task"
        order = np.argsort(values[0], kind="stable")
        order = order[np.unique(np.linspace(0, len(order) - 1, MAX_NAMED).round().astype(int))]
        effects, lower, upper = values[:, order]
        y = np.arange(len(order))
        if np.isfinite(lower).all():
            label += ", with 90 % interval"
            ax.hlines(y, lower, upper, color="0.55", linewidth=1.0)
        ax.plot(effects, y, "o", color=PALETTE[0])
        if np.isfinite(fixed):
            ax.axvline(fixed, color="0.35", linestyle="--", linewidth=1.0, label=line)
            ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0))
        ax.set_yticks(y, [shortened(name) for name in self.labels[order]])
        ax.set(ylim=(-0.8, len(order) - 0.2), xlabel=label)
        if len(order) < len(self.labels):
            ax.set_ylabel(
                f"{len(order)} of {len(self.labels):,} tasks, from the lowest to the highest"
            )


@dataclass
class ShrinkageDisplay(ModelDisplay):
    """Shrinkage plot: lines from the least-squares fit of each task's own rows to its tailored fit.

    The axes are the coefficients of two columns.  Tasks whose own rows do not identify all
    coefficients are left out (NaN in ``own``).

    Attributes
    ----------
    columns : list of two str
        The columns.
    labels : array (T,)
        Labels of the tasks.
    own, tailored : arrays (T, 2)
        Coefficients of both fits.
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
        columns: Sequence[str] | None = None,
        *,
        ax: Any = None,
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the coefficients of two columns.

        By default they are the columns whose scaled coefficients vary most between tasks.
        """
        model, tailored = FittedModel(learner), effects_of(learner, tasks)[0]
        first, second = columns or most_varying(model, tailored)[:2]
        names = [check_choice("columns", name, model.columns) for name in (first, second)]
        chosen = list(map(model.columns.index, names))
        own = own_fits(tasks, learner.prior_.fit_intercept)[:, chosen]
        means = model.fixed_effects[chosen]
        return cls(names, tasks.labels, own, tailored[:, chosen], means).plot(ax)

    def _draw(self, ax: Any) -> None:
        kept = ~np.isnan(self.own).any(axis=1)
        own, tailored = self.own[kept], self.tailored[kept]
        x, y = np.stack([own, tailored]).transpose(2, 0, 1)
        ax.plot(x, y, color="0.75", linewidth=0.8)
        ax.plot(*own.T, "o", color="0.45", mfc="white", label="own fit")
        ax.plot(*tailored.T, "s", color=PALETTE[0], label="tailored fit")
        ax.plot(*self.fixed_effects, "kX", mec="white", markersize=11, label="fixed effects")
        if len(own):
            # Single own fits may be far away, and are not needed to see the others.
            low, high = np.quantile(np.concatenate([own, tailored]), [0.01, 0.99], axis=0)
            margin = np.where(high > low, 0.08 * (high - low), 1.0)
            xlim, ylim = np.column_stack([low - margin, high + margin])
            ax.set(xlim=xlim, ylim=ylim)
        xlabel, ylabel = map(coefficient_label, self.columns)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        ax.legend()
        if not kept.all():
            ax.set_title(
                f"left out: {(~kept).sum():,} of {len(self.labels):,} tasks with too few rows for "
                "an own fit"
            )


@dataclass
class TaskFitDisplay(ModelDisplay):
    """Rows of one task against one column, with the tailored fit, the 90 % prediction interval and
    the prior prediction.

    Other columns are fixed at the task's means; numeric targets are adjusted for them.

    Attributes
    ----------
    task, column, target : str
        Names in the figure.
    x, y : arrays (n,)
        Rows of the task; numeric targets ``y`` are adjusted for the other columns.
    grid, prediction, prior : arrays (m,)
        Values of the column, and predictions with and without the rows.
    lower, upper : arrays (m,)
        Bounds of the prediction interval; NaN if the learner has no intervals.
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

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        task: Any = None,
        column: str | None = None,
        *,
        ax: Any = None,
    ) -> Self:
        """Adapt ``learner`` to the task with the label ``task``, and draw its rows and predictions
        against ``column``.

        By default, it is the first task, and the column with the largest effect on its predictions,
        if possible one with more than six values.
        """
        one = tasks[[0 if task is None else int(tasks.index_of(task)[0])]]
        X, y, exposure = dense(one.X), one.y, one.exposure
        if not len(X):
            raise ValueError(f"task: {task!r} has no rows to draw. Choose another task.")
        side = None if one.side_info is None else one.side_info[0]
        values = {name: getattr(one, name) for name in ROW_VALUES}
        model, prior = learner.adapt(X, y, side_info=side, **values), learner.adapt(side_info=side)
        names, roles = FittedModel(learner).columns[: X.shape[1]], learner.columns_in_
        if column is None:
            sizes = np.abs(model.coef_) * X.std(axis=0)
            sizes[[len(np.unique(x)) <= MAX_VALUES for x in X.T]] *= 1e-9
            column = names[int(np.argmax(sizes))]
        j = names.index(check_choice("column", column, names))

        def at(values: Array) -> Array:
            """Return rows with these values of the column, and the other columns at their means."""
            rows = np.tile(X.mean(axis=0), (len(values), 1))
            rows[:, j] = values
            return rows

        grid = grid_of(X[:, j])
        rows, unit = at(grid), 1.0
        if learner.prior_.response.is_gaussian:
            y = y - model.predict(X) + model.predict(at(X[:, j]))
        if exposure is not None:
            # The interval of a rate depends on the exposure: that of a row with exposure 1 may
            # contain no counts but 0.
            y, unit = y / exposure, exposure.mean()
            exposure = np.full(len(grid), unit)
        lower, upper = np.full((2, len(grid)), np.nan)
        if learner.prior_.has_intervals:
            lower, upper = model.predict_interval(rows, exposure=exposure).T / unit
        target = str(roles.get("target") or "target")
        if learner.encoding_ is not None and learner.encoding_.classes:
            target = f"probability of {learner.encoding_.classes[1]}"
        target += ", other columns at their means" * (X.shape[1] > 1)
        label = f"{roles.get('task') or 'task'} {one.labels[0]}"
        arrays = X[:, j], y, grid, model.predict(rows), prior.predict(rows), lower, upper
        return cls(label, column, target, *arrays).plot(ax)

    def _draw(self, ax: Any) -> None:
        if np.isfinite(self.lower).all():
            label = "90 % prediction interval"
            ax.fill_between(self.grid, self.lower, self.upper, color="0.88", label=label)
        ax.plot(self.grid, self.prior, "--", color=PALETTE[1], label="prior, without rows")
        ax.plot(self.grid, self.prediction, color=PALETTE[0], label="tailored fit")
        ax.plot(self.x, self.y, "o", color="0.25", mfc="white", label="rows")
        if len(self.grid) <= MAX_VALUES:
            ax.set_xticks(self.grid)
        title = f"{shortened(self.task, 40)}: {len(self.x):,} rows"
        ax.set(xlabel=shortened(self.column, 40), ylabel=shortened(self.target, 60), title=title)
        ax.legend()


@dataclass
class PriorPathDisplay(ModelDisplay):
    """Expected value of a coefficient as a function of one column of the side information, with 95
    % confidence limits of this mean (1.96 standard errors).

    Attributes
    ----------
    column, coefficient : str
        Names of the column of the side information and of the coefficient.
    grid : array (m,)
        Values of the column: numbers, or categories.
    values : array (m,)
        Expected coefficient of a task without rows, in the user's units.
    errors : array (m,)
        Standard errors of ``values``.
    """

    column: str
    grid: NDArray[Any]
    coefficient: str
    values: Array
    errors: Array

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        column: str,
        *,
        coefficient: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Vary one ``column`` of the side information over its range among ``tasks``.

        The other columns are fixed at their medians, or at their most frequent categories.  By
        default the ``coefficient`` is the one that changes most, relative to its mean standard
        error.
        """
        if tasks.side_info is None:
            raise ValueError(
                "tasks: these tasks have no side information. Give tasks with side information."
            )
        model = FittedModel(learner)
        j = model.side_columns.index(check_choice("column", column, model.side_columns))
        known = [[v for v in values if not is_missing(v)] for values in tasks.side_info.T]
        grid = grid_of(known[j])
        side = np.empty((len(grid), len(known)), dtype=tasks.side_info.dtype)
        for i, values in enumerate(known):
            side[:, i] = mode(values) if isinstance(values[0], str) else np.median(values)
        side[:, j] = grid
        weights, errors = learner.coefficients(side, return_std=True)
        change = np.ptp(weights, axis=0) / np.maximum(errors.mean(axis=0), 1e-300)
        name = coefficient or model.columns[int(np.argmax(change))]
        shown = model.columns.index(check_choice("coefficient", name, model.columns))
        return cls(column, grid, name, weights[:, shown], errors[:, shown]).plot(ax)

    def _draw(self, ax: Any) -> None:
        half = 1.96 * self.errors
        if self.grid.dtype == object or len(self.grid) <= MAX_VALUES:
            x = np.arange(len(self.grid))
            ax.errorbar(x, self.values, half, fmt="o", color=PALETTE[0], capsize=3)
            labels = [f"{v:g}" if isinstance(v, float) else shortened(v) for v in self.grid]
            ax.set_xticks(x, labels, rotation=40 * (sum(map(len, labels)) > 50))
            ax.set_xlim(-0.5, len(x) - 0.5)
        else:
            ax.plot(self.grid, self.values, color=PALETTE[0])
            low, high = self.values - half, self.values + half
            ax.fill_between(self.grid, low, high, color=PALETTE[0], alpha=0.2)
        label = f"expected {coefficient_label(self.coefficient)}"
        title = "± 1.96 standard errors"
        ax.set(xlabel=shortened(self.column, 40), ylabel=label, title=title)


def pyplot() -> Any:
    """Return matplotlib.pyplot; raise ImportError with advice if matplotlib is not installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "displays: matplotlib is not installed. Install it with python -m pip install "
            "'.[plot]' in a checkout."
        ) from error
    return plt


def new_axes(width: float, height: float) -> Any:
    """Return the axes of a new figure, in the style of all figures."""
    with pyplot().rc_context(RC):
        return pyplot().subplots(figsize=(width, height), layout="constrained")[1]


def effects_of(learner: Any, tasks: TaskSet) -> Array:
    """Return the coefficients of tasks, bounds of 90 % intervals, and prior means, (4, T, d).

    All are zero for categorical columns without a coefficient.
    """
    model = FittedModel(learner)
    values, table = np.zeros((4, len(tasks), len(model.columns))), learner.effects(tasks)
    columns = np.stack([table[name] for name in ("effect", "lower", "upper", "prior")])
    values[..., model.coefficients] = columns.reshape(4, len(tasks), -1)
    return values


def own_fits(tasks: TaskSet, fit_intercept: bool) -> Array:
    """Return the least-squares fit of each task's own rows, (T, d).

    NaN if they do not identify all coefficients.
    """
    fits = np.full((len(tasks), tasks.n_features + fit_intercept), np.nan)
    for t, task in enumerate(tasks):
        rows = dense_rows(task.X, fit_intercept)
        # Without scaling, columns with small values would look unidentified.
        size = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
        found, _, rank, _ = np.linalg.lstsq(rows / size, task.y, rcond=1e-9)
        if rank == rows.shape[1]:
            fits[t] = found / size
    return fits


def grid_of(values: Any) -> NDArray[Any]:
    """Return the distinct categories or, if they are few, numbers; else an even grid over the range
    of the numbers.
    """
    if isinstance(values[0], str):
        return np.array(sorted({*values}), dtype=object)
    grid = np.unique(np.asarray(values, dtype=float))
    return grid if len(grid) <= MAX_VALUES else np.linspace(grid[0], grid[-1], 101)


def most_varying(model: FittedModel, coefficients: Array) -> list[str]:
    """Return columns by decreasing standard deviation of the coefficients between tasks, times the
    column's scale.
    """
    spread = coefficients.std(axis=0) * model.scaling.columns
    return model.named(np.argsort(-spread, kind="stable"))


def shortened(name: object, longest: int = 22) -> str:
    """Return a name that fits on an axis, without control characters and with "$" escaped
    (matplotlib's math mode).
    """
    return one_line(shorten(str(name), longest)).replace("$", r"\$")


def coefficient_label(name: str) -> str:
    """Return the label of an axis of coefficients."""
    return "intercept" if name == INTERCEPT else f"coefficient of {shortened(name)}"
