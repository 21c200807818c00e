"""Displays of the prior as a function of side information: of its mean and variances, and of the representation τ(s)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.linalg import eigh

from .._utils.validation import check_choice, is_missing
from ..tasks.rows import dense
from ..tasks.task_set import TaskSet
from .base import (
    NOTE,
    Array,
    AxesLike,
    ColumnLike,
    ModelDisplay,
    find_column,
    line_style,
    names_of,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Maximum number of named rows, and of coloured lines; the other lines are grey.
MAX_NAMED, MAX_LINES = 45, 7
#: Number of grid points along a column of the side information.  Up to MAX_VALUES distinct values are used as the grid.
N_GRID, MAX_VALUES = 61, 5


@dataclass
class _SideInfoDisplay(ModelDisplay):
    """Base class of displays of d values, one per coefficient, along one column of the side information."""

    column: str
    kind: str
    grid: Array
    names: list[str]
    values: Array

    @property
    def has_few_values(self) -> bool:
        """Whether the grid consists of the values of the column."""
        return len(self.grid) <= MAX_VALUES


@dataclass
class PriorPathDisplay(_SideInfoDisplay):
    """Prior mean or standard deviation of the coefficients as a function of one column of the side information.

    Attributes
    ----------
    column : str
    kind : {"mean", "std"}
        The prior mean b(s) of the coefficients, or the square roots of the diagonal of τ(s).
    grid : array (m,)
        Values of the column.
    names : list of str
    values : array (m, d)
        Values for scaled columns, which have typical size one.  The intercept refers to a typical row.
    """

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: ColumnLike, *, kind: str = "mean", ax: AxesLike = None
    ) -> Self:
        """Vary one ``column`` (name or position) of the side information over its range among ``tasks``.

        The other columns are fixed at their medians, or at their most frequent categories.
        """
        check_choice("kind", kind, ("mean", "std"))
        names, prior = names_of(learner), learner.prior_
        name, grid, empty = along_side_info(tasks, column)
        values = prior.mean(empty) if kind == "mean" else np.sqrt(prior.variances_of_weights(empty))
        return cls(name, kind, grid, names, values).plot(ax)

    def _draw(self, ax: Axes) -> None:
        span, d = np.ptp(self.values, axis=0), len(self.names)
        order = np.argsort(-span, kind="stable")
        ax.plot(self.grid, self.values[:, order[MAX_LINES:]], color="0.8", linewidth=0.7, zorder=1)
        every = 1 if self.has_few_values else len(self.grid) // 6
        for i, j in enumerate(order[:MAX_LINES]):
            style = {"markevery": every, "markersize": 5, "linewidth": 1.5, **line_style(i)}
            ax.plot(self.grid, self.values[:, j], label=shortened(self.names[j]), **style)
        if self.has_few_values:
            ax.set_xticks(self.grid)
        ax.set_xlabel(shortened(self.column, 40))
        ax.set_ylabel(f"{'prior mean b(s)' if self.kind == 'mean' else '√diag τ(s)'}, scaled columns")
        if float(span.max()) <= 1e-9 * max(float(np.abs(self.values).max()), 1e-300):
            ax.set_title("does not depend on the side information", **NOTE)
        title = f"the {MAX_LINES} of {d} that vary most" if d > MAX_LINES else None
        ax.legend(title=title, title_fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


@dataclass
class RepresentationDisplay(_SideInfoDisplay):
    """Image of τ(s): one row per coefficient, and one column of the side information on the horizontal axis.

    Attributes
    ----------
    column : str
    kind : {"diagonal", "direction"}
        The diagonal of τ(s), which is large for the inputs that the representation uses.  Or the unit eigenvector of the
        largest eigenvalue of τ(s), which is the combination of inputs that is penalised least.
    grid : array (m,)
        Values of the column.
    names : list of str
    values : array (m, d)
        In the units of `representation`.  Signs of eigenvectors are chosen so that neighbours have positive inner products.
    shares : array (m,)
        The largest eigenvalue as a fraction of the trace; zero where τ(s) is zero.
    """

    shares: Array

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: ColumnLike, *, kind: str = "diagonal", ax: AxesLike = None
    ) -> Self:
        """Vary one ``column`` (name or position) of the side information over its range among ``tasks``.

        The other columns are fixed at their medians, or at their most frequent categories.
        """
        check_choice("kind", kind, ("diagonal", "direction"))
        names, prior = names_of(learner), learner.prior_
        side = getattr(prior, "side", None)
        feature_map = getattr(prior, "feature_map", None) if side is None else side.encoder
        if feature_map is not None and feature_map.needs_rows:
            raise ValueError(
                f"learner: {feature_map!r} computes the representation from the rows of a task. This display needs a "
                "feature map that reads only side information, such as 'vector' or a callable."
            )
        name, grid, empty = along_side_info(tasks, column)
        values, shares = np.empty((len(grid), len(names))), np.zeros(len(grid))
        # One grid point at a time: all (d, d) matrices together may not fit in memory.
        for i in range(len(grid)):
            tau = prior.representation(empty[i : i + 1], raw=True)[0]
            largest, vector = eigh(tau, subset_by_index=[len(tau) - 1, len(tau) - 1])
            shares[i] = largest[0] / trace if (trace := np.trace(tau)) > 0 else 0.0
            values[i] = np.diagonal(tau)
            if kind == "direction":
                sign = vector[:, 0] @ values[i - 1] if i else vector.sum()
                values[i] = vector[:, 0] if sign >= 0 else -vector[:, 0]
        return cls(name, kind, grid, names, values, shares).plot(ax)

    def _draw(self, ax: Axes) -> None:
        few, d = self.has_few_values, len(self.names)
        x = np.arange(len(self.grid)) if few else self.grid
        half = 0.5 * (x[1] - x[0] if len(x) > 1 else 1.0)
        style: dict[str, Any] = {"extent": (x[0] - half, x[-1] + half, d - 0.5, -0.5), "aspect": "auto"}
        limit, label = float(np.abs(self.values).max()), "diagonal of τ(s)"
        if self.kind == "direction":
            label, bounds = "leading eigenvector of τ(s)", 100.0 * np.quantile(self.shares, [0.0, 1.0])
            title = "largest eigenvalue: {:.0f} to {:.0f} % of the trace".format(*bounds)
            ax.set_title(title, **NOTE)
            style |= {"cmap": "RdBu_r", "vmin": -limit}
        image = ax.imshow(self.values.T, **{"cmap": "Blues", "vmin": 0.0, "vmax": limit, **style})
        ax.figure.colorbar(image, ax=ax, label=label)
        if few:
            ax.set_xticks(x, [f"{value:g}" for value in self.grid])
        if d <= MAX_NAMED:
            ax.set_yticks(np.arange(d), [shortened(name) for name in self.names])
        ax.set_xlabel(shortened(self.column, 40))


def along_side_info(tasks: TaskSet, column: ColumnLike) -> tuple[str, Array, TaskSet]:
    """Return a column's name, a grid over its range among the tasks, and a task without rows for each grid point.

    The other columns of the side information are fixed at their medians, or at their most frequent categories.
    """
    if tasks.side_info is None:
        raise ValueError("tasks: these tasks have no side information. Give tasks with side information.")
    names = [str(n) for n in tasks.side_names or [f"s{j}" for j in range(tasks.side_info.shape[1])]]
    j = find_column(column, names)
    known = [[value for value in values if not is_missing(value)] for values in tasks.side_info.T]
    numbers = [_numbers(values) for values in known]
    varied = numbers[j]
    if varied is None:
        raise ValueError(f"column: {names[j]!r} is categorical. Choose a numeric column.")
    grid = np.unique(varied)
    grid = grid if len(grid) <= MAX_VALUES else np.linspace(grid[0], grid[-1], N_GRID)
    table = np.empty((len(grid), len(names)), dtype=tasks.side_info.dtype)
    for i, (values, numeric) in enumerate(zip(known, numbers, strict=True)):
        table[:, i] = Counter(values).most_common(1)[0][0] if numeric is None else np.median(numeric)
    table[:, j] = grid
    n, X = len(grid), dense(tasks.X[:0])
    empty = TaskSet.from_arrays(X, tasks.y[:0], np.zeros(n + 1, dtype=np.int64), np.arange(n), table)
    return names[j], grid, empty


def _numbers(values: list[Any]) -> Array | None:
    """Return the values of a numeric column; None for categories."""
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        return None
