"""Displays of the prior: its path along the side information, and mixture components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import check_choice, is_missing
from ..gaussian.errors import as_one
from ..gaussian.mixture import Want
from ..gaussian.rows import statistics_of
from ..tasks.rows import batches, dense
from ..tasks.task_set import TaskSet
from .base import (
    Array,
    ModelDisplay,
    axis_limits,
    coefficient_label,
    draw_points,
    find_column,
    line_style,
    most_varying,
    names_of,
    shortened,
)

#: Largest number of lines with a colour.
MAX_LINES = 7
#: Grid points along a column of the side information, and the largest number of distinct values used as they are.
N_GRID, MAX_VALUES = 61, 5
#: A task's component is certain from this probability on; less certain tasks have hollow markers.
CERTAIN = 0.8
#: Radius of an ellipse in standard deviations: it holds 86 % of a Gaussian in two dimensions.
ELLIPSE_STD = 2.0


@dataclass
class PriorPathDisplay(ModelDisplay):
    """The prior of a task without rows along one column of the side information; the other columns are constant.

    Attributes
    ----------
    column : str
    kind : {"mean", "std"}
        The prior mean b(s) of the coefficients, or the square roots of the diagonal of τ(s).
    grid : array (m,)
        Values of the column.
    names : list of str
    values : array (m, d)
        For columns scaled to a typical size of one, with the intercept at a typical row.
    """

    column: str
    kind: str
    grid: Array
    names: list[str]
    values: Array

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: Any, *, kind: str = "mean", ax: Any = None
    ) -> Self:
        """Vary one ``column`` (name or position) of the side information over its range among ``tasks``.

        The other columns are at their medians.
        """
        check_choice("kind", kind, ("mean", "std"))
        names = names_of(learner)
        if tasks.side_info is None:
            raise ValueError("tasks: these tasks have no side information. Give tasks with side information.")
        side_names = [str(n) for n in tasks.side_names or [f"s{j}" for j in range(tasks.side_info.shape[1])]]
        j = find_column(column, side_names)
        grid, table = _vary(tasks.side_info, j, side_names[j])
        n, X = len(grid), dense(tasks.X[:0])
        empty = TaskSet.from_arrays(X, tasks.y[:0], np.zeros(n + 1, dtype=np.int64), np.arange(n), table)
        prior = learner.prior_
        values = prior.mean(empty) if kind == "mean" else np.sqrt(prior.variances_of_weights(empty))
        return cls(side_names[j], kind, grid, names, values).plot(ax)

    def _draw(self, ax: Any) -> None:
        span = np.ptp(self.values, axis=0)
        order = np.argsort(-span, kind="stable")
        few = len(self.grid) <= MAX_VALUES
        ax.plot(self.grid, self.values[:, order[MAX_LINES:]], color="0.8", linewidth=0.7, zorder=1)
        every = 1 if few else max(len(self.grid) // 6, 1)
        for i, j in enumerate(order[:MAX_LINES]):
            style = {"markevery": every, "markersize": 5, "linewidth": 1.5, **line_style(i)}
            ax.plot(self.grid, self.values[:, j], label=shortened(self.names[j]), **style)
        if few:
            ax.set_xticks(self.grid)
        ax.set_xlabel(shortened(self.column, 40))
        ax.set_ylabel(f"{'prior mean b(s)' if self.kind == 'mean' else '√diag τ(s)'}, scaled columns")
        if float(span.max()) <= 1e-9 * max(float(np.abs(self.values).max()), 1e-300):
            ax.set_title("does not depend on the side information", fontsize=8, color="0.35")
        n, d = min(MAX_LINES, len(self.names)), len(self.names)
        title = f"the {n} of {d} that vary most" if n < d else None
        ax.legend(title=title, title_fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


@dataclass
class ComponentsDisplay(ModelDisplay):
    """Coefficients of tasks in a plane, marked by their most likely component, with an ellipse for each component.

    Hollow markers are tasks whose component is uncertain.

    Attributes
    ----------
    points : array (T, 2)
        The tasks' coefficients of two columns, without the shift by side information.
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
    def from_estimator(cls, learner: Any, tasks: TaskSet, columns: Any = None, *, ax: Any = None) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw them over two columns (names or positions).

        By default they are the columns whose coefficients vary most between tasks, for values of typical size.
        """
        names = names_of(learner)
        prior, mixture, scaling = learner.prior_, learner.prior_.mixture, learner.prior_.scaling
        if mixture is None:
            raise ValueError(
                f"learner: the prior of {type(learner).__name__} has no components. This display needs an "
                "EmpiricalBayesLearner without the prior for many columns."
            )
        responsibilities, weights = [], []
        for batch in batches(prior.residual_tasks(tasks)):
            side = None if prior.side is None else prior.side(batch)
            expected = statistics_of(batch, scaling, side).posterior(mixture, Want(means=True))
            shift = mixture.effects(side)
            responsibilities.append(expected.shares)
            weights.append(expected.mean if shift is None else expected.mean - shift)
        coefficients = scaling.raw_weights(np.concatenate(weights))
        if columns is None:
            columns = most_varying(learner, coefficients)[:2]
        chosen = [find_column(column, names, "columns") for column in columns]
        if len(chosen) != 2:
            raise ValueError(f"columns: expected two columns, got {len(chosen)}.")
        shares = np.concatenate(responsibilities)
        if mixture.has_atoms:
            # One ellipse for all of them: hundreds would hide the tasks.
            mixture, shares = as_one(mixture), np.ones((len(shares), 1))
        points, means = (w[:, chosen] for w in (coefficients, scaling.raw_weights(mixture.means)))
        raw = scaling.target**2 * scaling.raw_representation(mixture.covariances)
        components = means, raw[:, chosen][:, :, chosen], mixture.proportions
        return cls(points, shares, *components, [names[j] for j in chosen], tasks.labels).plot(ax)

    @property
    def component(self) -> NDArray[np.intp]:
        """Return the most likely component of each task, (T,)."""
        return self.responsibilities.argmax(axis=1)

    def _draw(self, ax: Any) -> None:
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
                draw_points(ax, self.points[chosen].T, style["marker"], color, filled=filled, **shape)
        radius = ELLIPSE_STD * np.sqrt(np.maximum(np.diagonal(self.covariances, axis1=1, axis2=2), 0.0))
        ends = np.concatenate([self.points, self.means - radius, self.means + radius])
        ax.set_xlim(*axis_limits(ends[:, 0], 1.0))
        ax.set_ylim(*axis_limits(ends[:, 1], 1.0))
        ax.set(xlabel=coefficient_label(self.columns[0]), ylabel=coefficient_label(self.columns[1]))
        ax.axhline(0.0, color="0.85", linewidth=0.6, zorder=0)
        ax.axvline(0.0, color="0.85", linewidth=0.6, zorder=0)
        ax.legend(title="component", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _vary(table: Any, j: int, name: str) -> tuple[Array, Any]:
    """Return values of column j over its range, and side information with these values and typical other columns."""
    try:
        known = np.array([value for value in table[:, j] if not is_missing(value)], dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column: {name!r} is categorical. Choose a numeric column.") from error
    values = np.unique(known)
    grid = values if len(values) <= MAX_VALUES else np.linspace(values[0], values[-1], N_GRID)
    rows = np.empty((len(grid), table.shape[1]), dtype=table.dtype)
    rows[:] = [_typical(column) for column in table.T]
    rows[:, j] = grid
    return grid, rows


def _typical(column: Any) -> Any:
    """Return the median, or the most frequent category."""
    known = [value for value in column if not is_missing(value)]
    try:
        return float(np.median(np.array(known, dtype=float)))
    except (TypeError, ValueError):
        return max(known, key=known.count)
