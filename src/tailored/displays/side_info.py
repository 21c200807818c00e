"""Displays of the prior as a function of side information: an expected coefficient, and the representation τ(s)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .._utils.validation import check_choice, is_missing
from ..priors.base import adapt_tasks
from ..summaries.model import errors_of_means
from ..tasks.rows import dense
from ..tasks.task_set import TaskSet
from .base import (
    NOTE,
    PALETTE,
    Array,
    AxesLike,
    ColumnLike,
    ModelDisplay,
    coefficient_label,
    find_column,
    names_of,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Rows of an image are named if there are at most MAX_NAMED.  Labels of the horizontal axis are rotated if they have more than
#: MAX_LABELS characters in total.
MAX_NAMED, MAX_LABELS = 45, 50
#: Number of grid points along a column of the side information.  With at most MAX_VALUES distinct numbers, these are the grid.
N_GRID, MAX_VALUES = 61, 5
#: Maximum number of categories that are drawn: the most frequent ones.
MAX_CATEGORIES = 20


@dataclass
class PriorPathDisplay(ModelDisplay):
    """Expected value of a coefficient as a function of one column of the side information, with 95 % confidence limits.

    The limits are 1.96 standard errors below and above the expected value.  They are limits of the estimated mean at
    each value of the column, not of the coefficients of single tasks, which differ from this mean; see
    `MetaLearner.coefficients`.

    Attributes
    ----------
    column : str
        Name of the column of the side information.
    grid : array (m,)
        Values of the column: numbers, or categories.
    coefficient : str
    values : array (m,)
        Expected coefficient of a task without rows, in the user's units.  The intercept is that where all features are zero.
    errors : array (m,), or None
        Standard errors of ``values``; None if the prior of the learner has none.
    """

    column: str
    grid: NDArray[Any]
    coefficient: str
    values: Array
    errors: Array | None

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        column: ColumnLike,
        *,
        coefficient: ColumnLike | None = None,
        ax: AxesLike = None,
    ) -> Self:
        """Vary one ``column`` (name or position) of the side information over its range among ``tasks``.

        The other columns are fixed at their medians, or at their most frequent categories.  A ``coefficient`` is given by name
        or position.  By default it is the one that changes most, relative to its mean standard error (or scale, if there is none).
        """
        names = names_of(learner)
        name, grid, empty = along_side_info(tasks, column)
        values = adapt_tasks(learner.prior_, empty, covariances=False).weights
        errors = errors_of_means(learner, empty)
        if coefficient is None:
            scale = 1.0 / learner.prior_.scaling.columns if errors is None else errors.mean(axis=0)
            j = int(np.argmax(np.ptp(values, axis=0) / np.maximum(scale, 1e-300)))
        else:
            j = find_column(coefficient, names, "coefficient")
        return cls(
            name, grid, names[j], values[:, j], None if errors is None else errors[:, j]
        ).plot(ax)

    def _draw(self, ax: Axes) -> None:
        half = None if self.errors is None else NormalDist().inv_cdf(0.975) * self.errors
        title = [] if half is None else ["± 1.96 standard errors"]
        if np.ptp(self.values) <= 1e-9 * max(float(np.abs(self.values).max()), 1e-300):
            title.append(f"does not depend on {shortened(self.column)}")
        if is_discrete(self.grid):
            ax.errorbar(
                np.arange(len(self.grid)), self.values, half, fmt="o", color=PALETTE[0], capsize=3
            )
            ax.set_xlim(-0.5, len(self.grid) - 0.5)
            set_values(ax, self.grid)
        else:
            ax.plot(self.grid, self.values, color=PALETTE[0])
            if half is not None:
                limits = self.values - half, self.values + half
                ax.fill_between(self.grid, *limits, color=PALETTE[0], alpha=0.2, linewidth=0)
        ax.set_xlabel(shortened(self.column, 40))
        ax.set_ylabel(f"expected {coefficient_label(self.coefficient)}")
        ax.set_title("; ".join(title), **NOTE)


@dataclass
class RepresentationDisplay(ModelDisplay):
    """Image of τ(s): one row per coefficient, and one column of the side information on the horizontal axis.

    Attributes
    ----------
    column : str
    kind : {"diagonal", "direction"}
        "diagonal" is the diagonal of τ(s), which is large for the inputs that the representation uses.  "direction" is the unit
        eigenvector of the largest eigenvalue of τ(s), which is the combination of inputs that is penalised least.
    grid : array (m,)
        Values of the column: numbers, or categories.
    names : list of str
    values : array (m, d)
        In the units of `representation`.  Signs of eigenvectors are chosen so that neighbours have positive inner products.
    shares : array (m,)
        The largest eigenvalue as a fraction of the trace; zero where τ(s) is zero.
    """

    column: str
    kind: str
    grid: NDArray[Any]
    names: list[str]
    values: Array
    shares: Array

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        column: ColumnLike,
        *,
        kind: str = "diagonal",
        ax: AxesLike = None,
    ) -> Self:
        """Vary one ``column`` (name or position) of the side information over its range among ``tasks``.

        The other columns are fixed at their medians, or at their most frequent categories.
        """
        check_choice("kind", kind, ("diagonal", "direction"))
        names, prior = names_of(learner), learner.prior_
        feature_map = getattr(prior, "feature_map", None)
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
        few, d = is_discrete(self.grid), len(self.names)
        x = np.arange(len(self.grid)) if few else self.grid
        half = 0.5 * (x[1] - x[0] if len(x) > 1 else 1.0)
        style: dict[str, Any] = {
            "extent": (x[0] - half, x[-1] + half, d - 0.5, -0.5),
            "aspect": "auto",
        }
        limit, label = float(np.abs(self.values).max()), "diagonal of τ(s)"
        if self.kind == "direction":
            label, bounds = (
                "leading eigenvector of τ(s)",
                100.0 * np.quantile(self.shares, [0.0, 1.0]),
            )
            title = "largest eigenvalue: {:.0f} to {:.0f} % of the trace".format(*bounds)
            ax.set_title(title, **NOTE)
            style |= {"cmap": "RdBu_r", "vmin": -limit}
        image = ax.imshow(self.values.T, **{"cmap": "Blues", "vmin": 0.0, "vmax": limit, **style})
        ax.figure.colorbar(image, ax=ax, label=label)
        if few:
            set_values(ax, self.grid)
        if d <= MAX_NAMED:
            ax.set_yticks(np.arange(d), [shortened(name) for name in self.names])
        ax.set_xlabel(shortened(self.column, 40))


def along_side_info(tasks: TaskSet, column: ColumnLike) -> tuple[str, Array, TaskSet]:
    """Return a column's name, a grid of its values among the tasks, and a task without rows for each grid point.

    The grid of a categorical column is its most frequent categories.  Other columns are fixed at their medians, or at their most
    frequent categories.
    """
    if tasks.side_info is None:
        raise ValueError(
            "tasks: these tasks have no side information. Give tasks with side information."
        )
    names = [str(n) for n in tasks.side_names or [f"s{j}" for j in range(tasks.side_info.shape[1])]]
    j = find_column(column, names)
    known = [[value for value in values if not is_missing(value)] for values in tasks.side_info.T]
    numbers = [_numbers(values) for values in known]
    varied = numbers[j]
    if varied is None:
        frequent = [value for value, _ in Counter(known[j]).most_common(MAX_CATEGORIES)]
        grid = np.array(sorted(frequent, key=str), dtype=object)
    else:
        grid = np.unique(varied)
        grid = grid if len(grid) <= MAX_VALUES else np.linspace(grid[0], grid[-1], N_GRID)
    table = np.empty((len(grid), len(names)), dtype=tasks.side_info.dtype)
    for i, (values, numeric) in enumerate(zip(known, numbers, strict=True)):
        table[:, i] = (
            Counter(values).most_common(1)[0][0] if numeric is None else np.median(numeric)
        )
    table[:, j] = grid
    n, X = len(grid), dense(tasks.X[:0])
    empty = TaskSet.from_arrays(
        X, tasks.y[:0], np.zeros(n + 1, dtype=np.int64), np.arange(n), table
    )
    return names[j], grid, empty


def is_discrete(grid: NDArray[Any]) -> bool:
    """Return whether the grid consists of the values of the column."""
    return grid.dtype == object or len(grid) <= MAX_VALUES


def set_values(ax: Axes, grid: NDArray[Any]) -> None:
    """Label the positions 0, 1, .. of the horizontal axis with the values of the column."""
    labels = [f"{value:g}" if isinstance(value, float) else shortened(value) for value in grid]
    ax.set_xticks(np.arange(len(grid)), labels)
    if sum(map(len, labels)) > MAX_LABELS:
        for label in ax.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")


def _numbers(values: list[Any]) -> Array | None:
    """Return the values of a numeric column; None for categories, which may be strings of digits."""
    if any(isinstance(value, str) for value in values):
        return None
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        return None
