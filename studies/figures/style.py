"""Line styles and panels of the figures of the reproduction.

The methods can be told apart in grey as well as in colour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tailored.show.displays import pyplot


class Style(NamedTuple):
    """Colours differ in lightness, and dashes and markers differ as well: any one of the three is
    enough.
    """

    color: str
    linestyle: str | tuple[int, tuple[int, ...]]
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
    "conditional-scaled": Style("#4f93c4", "-.", "D"),
    "mixed-model": Style("0.35", "none", "v"),
    "empirical-bayes": Style("#8b1a4a", "none", "*"),
    "bayes": Style("black", (0, (1, 3)), "none"),
}


def panels(drawings: Sequence[Callable[[Any], None]]) -> Any:
    """Return one figure with a panel for each function that draws on axes, and one legend for
    all.
    """
    n_columns = min(len(drawings), 3 if len(drawings) != 4 else 2)
    n_rows = -(-len(drawings) // n_columns)
    figure, axes = pyplot().subplots(
        n_rows,
        n_columns,
        figsize=(3.7 * n_columns, 3.0 * n_rows),
        layout="constrained",
        squeeze=False,
    )
    flat = axes.ravel()
    for ax, draw in zip(flat, drawings, strict=False):
        draw(ax)
    known = [ax.get_legend_handles_labels() for ax in flat]
    handles = {label: handle for some in known for handle, label in zip(*some, strict=True)}
    spare = flat[len(drawings) :]
    for ax in spare:
        ax.set_axis_off()
    if len(spare):
        spare[0].legend(handles.values(), handles.keys(), loc="center", fontsize=10)
    else:
        flat[0].legend(handles.values(), handles.keys(), loc="upper right")
    return figure
