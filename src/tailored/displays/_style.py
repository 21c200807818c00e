"""One look for all figures of the experiments, told apart in grey as well as in colour."""

from __future__ import annotations

from typing import Any, NamedTuple


class Style(NamedTuple):
    """Colours differ in lightness, and dashes and markers differ as well: any one of the three is enough."""

    color: str
    linestyle: str
    marker: str


STYLES = {
    "independent": Style("0.62", ":", "s"),
    "unconditional": Style("#d3722b", "--", "^"),
    "conditional": Style("#12355b", "-", "o"),
}

#: With these, a figure drawn twice from the same table is the same file.
RC = {
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


def new_axes(width: float = 4.2, height: float = 3.1) -> Any:
    """Axes of a new figure."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax
