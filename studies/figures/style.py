"""Line styles and panels of the figures of the reproduction.

The methods can be told apart in grey as well as in colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from tailored.displays.base import pyplot


class Style(NamedTuple):
    """Colours differ in lightness, and dashes and markers differ as well: any one of the three is enough."""

    color: str
    linestyle: str
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.color, "linestyle": self.linestyle, "linewidth": 1.6}

    @property
    def hollow(self) -> dict[str, Any]:
        """A mark that is no part of a line."""
        face = {"markerfacecolor": "white", "markeredgecolor": self.color, "markersize": 5}
        return {"marker": self.marker, "linestyle": "none", **face}


STYLES = {
    "independent": Style("0.62", ":", "s"),
    "unconditional": Style("#d3722b", "--", "^"),
    "conditional": Style("#12355b", "-", "o"),
}


def new_axes(width: float = 4.2, height: float = 3.1) -> Any:
    """Axes of a new figure."""
    _, ax = pyplot().subplots(figsize=(width, height), layout="constrained")
    return ax


class Panel(Protocol):
    """A display of one pair of axes."""

    def plot(self, ax: Any = None, *, legend: bool = True) -> Any: ...


def panels(displays: Sequence[Panel]) -> Any:
    """One figure with a panel per display and one legend for all."""
    plt = pyplot()
    n_columns = min(len(displays), 3 if len(displays) != 4 else 2)
    n_rows = -(-len(displays) // n_columns)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(3.7 * n_columns, 3.0 * n_rows), layout="constrained", squeeze=False
    )
    flat = axes.ravel()
    for ax, display in zip(flat, displays, strict=False):
        display.plot(ax, legend=False)
    handles, labels = flat[0].get_legend_handles_labels()
    spare = flat[len(displays) :]
    for ax in spare:
        ax.set_axis_off()
    if len(spare):
        spare[0].legend(handles, labels, loc="center", fontsize=10)
    else:
        flat[0].legend(handles, labels, loc="upper right")
    return figure
