"""Base class and helpers of the displays: styles, names of coefficients, lookup of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._utils.progress import one_line
from .._utils.tables import shorten
from .._utils.validation import name_some
from ..summaries.model import INTERCEPT, FittedModel, coefficient_names
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Axes to draw on, or None for a new figure.
AxesLike: TypeAlias = "Axes | Sequence[Axes] | None"
#: A column, by name or position.
ColumnLike: TypeAlias = str | int
#: Maximum length of a name on an axis.
NAME_WIDTH = 22
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
#: Colours that colour-blind people can distinguish (Okabe and Ito), with a marker and a line style for each.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
#: Style of a small title above a figure.
NOTE: dict[str, Any] = {"fontsize": 8, "color": "0.35"}
#: Legend with a background, so that it stays readable over markers.
LEGEND: dict[str, Any] = {"frameon": True, "framealpha": 0.85, "edgecolor": "none"}


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
                figure = plt.figure(figsize=self.figure_size, layout="constrained")
                axes = figure.subplots(1, self.n_axes, squeeze=False)[0]
            else:
                axes = np.ravel(np.asarray(ax, dtype=object))
            self.ax_, self.figure_ = axes if len(axes) > 1 else axes[0], axes[0].figure
            for each in axes:
                each.spines[["top", "right"]].set_visible(False)
            self._draw(*axes)
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


def pyplot() -> Any:
    """Return matplotlib.pyplot; raise ImportError with advice if matplotlib is not installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        advice = "Install it with python -m pip install '.[all]' in a checkout."
        raise ImportError(f"displays: matplotlib is not installed. {advice}") from error
    return plt


def line_style(i: int) -> dict[str, Any]:
    """Return colour, marker and line style of the i-th series; each of them alone identifies it among the first seven."""
    return {
        "color": PALETTE[i % len(PALETTE)],
        "marker": MARKERS[(i + i // len(PALETTE)) % len(MARKERS)],
        "linestyle": DASHES[(i + 2 * (i // len(PALETTE))) % len(DASHES)],
    }


def draw_points(
    ax: Axes,
    xy: Sequence[Array] | Array,
    marker: str,
    color: str,
    *,
    filled: bool = True,
    **style: Any,
) -> None:
    """Draw markers at ``xy``, a pair of arrays, without lines."""
    face = color if filled else "white"
    ax.plot(*xy, linestyle="none", marker=marker, color=color, markerfacecolor=face, **style)


def names_of(learner: Any) -> list[str]:
    """Return the names of a fitted learner's coefficients; an intercept is last."""
    check_is_fitted(learner, "prior_")
    return coefficient_names(learner)


def effects_of(learner: Any, tasks: TaskSet, coverage: float = 0.9) -> tuple[Array, ...]:
    """Return the coefficients of tasks, the bounds of their intervals, and their prior means, (T, d) each.

    All four are zero for categorical columns without a coefficient.
    """
    model = FittedModel.of(learner)
    out = np.zeros((4, len(tasks), len(model.columns)))
    table = learner.effects(tasks, coverage=coverage)
    columns = [
        np.asarray(table[name], dtype=float) for name in ("effect", "lower", "upper", "prior")
    ]
    out[:, :, model.coefficients] = np.reshape(columns, (4, len(tasks), -1))
    return tuple(out)


def fixed_effects(learner: Any) -> Array | None:
    """Return the prior mean at the mean of the side information; None if the prior does not define it."""
    effects = FittedModel.of(learner).fixed_effects
    return None if np.isnan(effects).any() else effects


def most_varying(learner: Any, coefficients: Array) -> list[int]:
    """Return column positions by decreasing standard deviation of the coefficients between tasks, times the column's scale."""
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


def shortened(name: object, longest: int = NAME_WIDTH) -> str:
    """Return a name that fits on an axis, without control characters and with "$" escaped (matplotlib's math mode)."""
    return one_line(shorten(str(name), longest)).replace("$", r"\$")


def coefficient_label(name: str) -> str:
    """Return the label of an axis of coefficients."""
    return "intercept" if name == INTERCEPT else f"coefficient of {shortened(name)}"
