"""Display of the prior as a function of side information."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import is_missing
from ..tasks.task_set import TaskSet
from .display import (
    MAX_VALUES,
    PALETTE,
    Array,
    AxesLike,
    ColumnLike,
    ModelDisplay,
    coefficient_label,
    find_column,
    shortened,
)
from .model import FittedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Maximum number of categories that are drawn: the most frequent ones.
MAX_CATEGORIES = 20


@dataclass
class PriorPathDisplay(ModelDisplay):
    """Expected value of a coefficient as a function of one column of the side information, with 95
    % confidence limits.

    The limits are 1.96 standard errors below and above the expected value.  They are limits of the
    estimated mean at each value of the column, not of the coefficients of single tasks, which
    differ from this mean; see `EmpiricalBayesLearner.coefficients`.

    Attributes
    ----------
    column : str
        Name of the column of the side information.
    grid : array (m,)
        Values of the column: numbers, or categories.
    coefficient : str
    values : array (m,)
        Expected coefficient of a task without rows, in the user's units.  The intercept is that
        where all features are zero.
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
        column: ColumnLike,
        *,
        coefficient: ColumnLike | None = None,
        ax: AxesLike = None,
    ) -> Self:
        """Vary one ``column`` (name or position) of the side information over its range among
        ``tasks``.

        The other columns are fixed at their medians, or at their most frequent categories.  A
        ``coefficient`` is given by name or position.  By default it is the one that changes most,
        relative to its mean standard error.
        """
        if tasks.side_info is None:
            raise ValueError(
                "tasks: these tasks have no side information. Give tasks with side information."
            )
        model = FittedModel.of(learner)
        j = find_column(column, model.side_columns)
        known = [[v for v in values if not is_missing(v)] for values in tasks.side_info.T]
        grid = _grid(known[j])
        side = np.empty((len(grid), len(known)), dtype=tasks.side_info.dtype)
        for i, values in enumerate(known):
            is_number = not isinstance(values[0], str)
            side[:, i] = np.median(values) if is_number else Counter(values).most_common(1)[0][0]
        side[:, j] = grid
        weights, errors = learner.coefficients(side, return_std=True)
        if coefficient is None:
            changes = np.ptp(weights, axis=0) / np.maximum(errors.mean(axis=0), 1e-300)
            shown = int(np.argmax(changes))
        else:
            shown = find_column(coefficient, model.columns, "coefficient")
        names = model.side_columns[j], model.columns[shown]
        return cls(names[0], grid, names[1], weights[:, shown], errors[:, shown]).plot(ax)

    def _draw(self, ax: Axes) -> None:
        half = 1.96 * self.errors
        title = "± 1.96 standard errors"
        if np.ptp(self.values) <= 1e-9 * max(float(np.abs(self.values).max()), 1e-300):
            title += f"; does not depend on {shortened(self.column)}"
        if self.grid.dtype == object or len(self.grid) <= MAX_VALUES:
            x = np.arange(len(self.grid))
            ax.errorbar(x, self.values, half, fmt="o", color=PALETTE[0], capsize=3)
            labels = [f"{v:g}" if isinstance(v, float) else shortened(v) for v in self.grid]
            style: dict[str, Any] = {}
            if sum(map(len, labels)) > 50:
                style = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
            ax.set_xticks(x, labels, **style)
            ax.set_xlim(-0.5, len(x) - 0.5)
        else:
            ax.plot(self.grid, self.values, color=PALETTE[0])
            limits = self.values - half, self.values + half
            ax.fill_between(self.grid, *limits, color=PALETTE[0], alpha=0.2, linewidth=0)
        ax.set_xlabel(shortened(self.column, 40))
        ax.set_ylabel(f"expected {coefficient_label(self.coefficient)}")
        ax.set_title(title, fontsize=8, color="0.35")


def _grid(values: list[Any]) -> NDArray[Any]:
    """Return an even grid of numbers, or their values if there are few.

    Of categories, the most frequent ones.
    """
    if isinstance(values[0], str):
        frequent = [value for value, _ in Counter(values).most_common(MAX_CATEGORIES)]
        return np.array(sorted(frequent), dtype=object)
    grid = np.unique(np.array(values, dtype=float))
    return grid if len(grid) <= MAX_VALUES else np.linspace(grid[0], grid[-1], 61)
