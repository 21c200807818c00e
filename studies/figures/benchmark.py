"""Figures of the benchmark, drawn from the lines of its tables, one panel per data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tailored.show.displays import PALETTE, RC, pyplot

from .style import panels

#: Colour and dashes of the methods that are drawn.
STYLES = {
    "ridge per task": ("0.6", ":"),
    "mixed model": (PALETTE[1], "--"),
    "mixed model + splines": (PALETTE[2], "--"),
    "mixed model per category": (PALETTE[3], "--"),
    "oracle": ("black", "-."),
    "tailored": (PALETTE[0], "-"),
}
Lines = Sequence[Sequence[Any]]


def draw_relative(lines: Lines) -> Any:
    """Draw the errors of tailored relative to lme4, with 95 % bands; the lines are its lines of
    ``lme4-rows.csv``.
    """

    def draw(ax: Any, own: Lines) -> None:
        x, (change, margin) = (
            np.arange(len(own)),
            np.array([line[4:] for line in own], dtype=float).T,
        )
        lower, upper = change - margin, change + margin
        ax.axhline(0.0, color=PALETTE[1], linestyle="--", label="lme4")
        ax.fill_between(
            x, lower, upper, color=PALETTE[0], alpha=0.2, linewidth=0, label="95 % band"
        )
        ax.plot(x, change, color=PALETTE[0], marker="o", markersize=4, label="tailored")
        ax.set_xticks(x, [str(line[1]) for line in own])
        ax.set_ylim(min(-5.0, 1.1 * lower.min()), max(5.0, 1.1 * upper.max()))
        ax.yaxis.get_major_locator().set_params(integer=True)

    return _panels(lines, draw, "mean absolute error relative to lme4, %")


def draw_rows(lines: Lines) -> Any:
    """Draw the mean errors of some methods; the lines are those of ``rows.csv``."""

    def draw(ax: Any, own: Lines) -> None:
        top = 0.0
        for method, (color, dashes) in STYLES.items():
            points = np.array([line[2:] for line in own if line[1] == method], dtype=float)
            if len(points):
                ax.plot(*points.T, dashes, color=color, marker="o", markersize=4, label=method)
                # Ridge regression on few rows can be very bad.
                top = max(top, 0.0 if method == "ridge per task" else 1.2 * points[:, 1].max())
        ax.set_ylim(0.0, top or None)
        ax.set_xticks(sorted({int(line[2]) for line in own}))

    return _panels(lines, draw, "mean absolute error")


def _panels(lines: Lines, draw: Callable[[Any, Lines], None], label: str) -> Any:
    """Draw every data set on axes of its own."""

    def draw_set(ax: Any, name: str) -> None:
        draw(ax, [line for line in lines if line[0] == name])
        ax.set_title(name)

    with pyplot().rc_context(RC):
        figure = panels(
            [partial(draw_set, name=name) for name in dict.fromkeys(line[0] for line in lines)]
        )
        figure.supxlabel("support rows of a new task", fontsize=10)
        figure.supylabel(label, fontsize=10)
    return figure
