"""Base class and helpers of the displays: styles, names of coefficients, lookup of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from .._utils.progress import one_line
from .._utils.tables import shorten
from .._utils.validation import name_some
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .model import INTERCEPT, FittedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Axes to draw on, or None for a new figure.
AxesLike: TypeAlias = "Axes | Sequence[Axes] | None"
#: A column, by name or position.
ColumnLike: TypeAlias = str | int
#: Settings of all figures; the salt makes SVG files reproducible.
RC: dict[str, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.hashsalt": "tailored",
    "svg.fonttype": "none",
}
#: Colours that colour-blind people can distinguish (Okabe and Ito).
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
#: A column with at most this many distinct values is drawn at these values, not on a grid.
MAX_VALUES = 6


class ModelDisplay:
    """Base class of displays, which follow scikit-learn's convention."""

    ax_: Any
    figure_: Figure

    @property
    def figure_size(self) -> tuple[float, float]:
        """Return width and height of a new figure, in inches."""
        return 5.2, 3.8

    @property
    def n_axes(self) -> int:
        """Return the number of axes of a new figure."""
        return 1

    def plot(self, ax: AxesLike = None) -> Self:
        """Draw on ``ax``, or on a new figure; return the display with ``ax_`` and ``figure_``."""
        plt = pyplot()
        with plt.rc_context(RC):
            if ax is None:
                options = {"figsize": self.figure_size, "layout": "constrained"}
                ax = plt.subplots(1, self.n_axes, **options)[1]
            axes = np.ravel(np.asarray(ax, dtype=object))
            self.ax_, self.figure_ = axes if len(axes) > 1 else axes[0], axes[0].figure
            self._draw(*axes)
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


def pyplot() -> Any:
    """Return matplotlib.pyplot; raise ImportError with advice if matplotlib is not installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        advice = "Install it with python -m pip install '.[plot]' in a checkout."
        raise ImportError(f"displays: matplotlib is not installed. {advice}") from error
    return plt


def effects_of(learner: Any, tasks: TaskSet, coverage: float = 0.9) -> tuple[Array, ...]:
    """Return the coefficients of tasks, the bounds of their intervals, and their prior means, (T,
    d) each.

    All four are zero for categorical columns without a coefficient.
    """
    model = FittedModel.of(learner)
    out = np.zeros((4, len(tasks), len(model.columns)))
    table = learner.effects(tasks, coverage=coverage)
    for values, name in zip(out, ("effect", "lower", "upper", "prior"), strict=True):
        column = np.asarray(table[name], dtype=float)
        values[:, model.coefficients] = column.reshape(len(tasks), -1)
    return tuple(out)


def most_varying(learner: Any, coefficients: Array) -> list[int]:
    """Return column positions by decreasing standard deviation of the coefficients between tasks,
    times the column's scale.
    """
    spread = coefficients.std(axis=0) * learner.prior_.scaling.columns
    return [int(j) for j in np.argsort(-spread, kind="stable")]


def find_column(column: ColumnLike, names: list[str], argument: str = "column") -> int:
    """Return the position of a column given by name or position."""
    if isinstance(column, int | np.integer):
        if -len(names) <= column < len(names):
            return int(column) % len(names)
    elif str(column) in names:
        return names.index(str(column))
    raise ValueError(
        f"{argument}: there is no column {column!r}. The columns are {name_some(names, 12)}."
    )


def shortened(name: object, longest: int = 22) -> str:
    """Return a name that fits on an axis, without control characters and with "$" escaped
    (matplotlib's math mode).
    """
    return one_line(shorten(str(name), longest)).replace("$", r"\$")


def coefficient_label(name: str) -> str:
    """Return the label of an axis of coefficients."""
    return "intercept" if name == INTERCEPT else f"coefficient of {shortened(name)}"
