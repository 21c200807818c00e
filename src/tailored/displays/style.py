"""Colours, markers and matplotlib settings of all figures."""

from __future__ import annotations

from typing import Any

#: With these, a figure drawn twice from the same table is the same file.
RC: Any = {
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

#: Colours that colour-blind eyes tell apart (Okabe and Ito), and a marker and dashes for each.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))


def look(i: int) -> dict[str, Any]:
    """Colour, marker and dashes of the i-th of several things, none of which is needed to tell them apart."""
    return {
        "color": PALETTE[i % len(PALETTE)],
        "marker": MARKERS[(i + i // len(PALETTE)) % len(MARKERS)],
        "linestyle": DASHES[(i + 2 * (i // len(PALETTE))) % len(DASHES)],
    }


def pyplot() -> Any:
    """matplotlib.pyplot, or words about what is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "displays: figures are drawn by matplotlib, which is not installed; pip install 'tailored[plot]'"
        ) from error
    return plt
