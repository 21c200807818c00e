"""Curves of the benchmark, one panel per data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BenchmarkDisplay:
    """Error against the number of support rows.

    Attributes
    ----------
    curves : dict of str to dict of str to ndarray of shape (2, n)
        Numbers of rows and mean errors, by data set and method.
    methods : sequence of str
        Up to four methods to draw.  The first may be off by a factor: it does not decide the limits.
    """

    curves: Mapping[str, Mapping[str, Array]]
    methods: Sequence[str]

    def plot(self) -> Any:
        """Draw every data set on axes of its own; returns the figure."""
        import matplotlib.pyplot as plt

        columns = min(3, len(self.curves))
        rows = -(-len(self.curves) // columns)
        figure, axes = plt.subplots(
            rows, columns, figsize=(3.6 * columns, 2.9 * rows), squeeze=False, layout="constrained"
        )
        for ax, (name, by_method) in zip(axes.flat, self.curves.items(), strict=False):
            self._plot_panel(ax, by_method)
            ax.set_title(name, fontsize=10)
        for ax in list(axes.flat)[len(self.curves) :]:
            ax.set_visible(False)
        figure.supxlabel("support rows of a new task", fontsize=10)
        figure.supylabel("test MAE", fontsize=10)
        known = [ax.get_legend_handles_labels() for ax in axes.flat]
        handles = {label: handle for some in known for handle, label in zip(*some, strict=True)}
        axes.flat[0].legend(handles.values(), handles.keys(), fontsize=8, frameon=False, loc="upper right")
        return figure

    def _plot_panel(self, ax: Any, by_method: Mapping[str, Array]) -> None:
        looks = ((":", "0.6"), ("--", "0.35"), ("-.", "tab:orange"), ("-", "tab:blue"))
        for method, (dash, color) in zip(self.methods, looks, strict=False):
            if method in by_method:
                ax.plot(*by_method[method], dash, color=color, marker="o", markersize=4, label=method)
        compared = [by_method[method][1] for method in self.methods[1:] if method in by_method]
        if compared:
            low, high = float(np.min(np.concatenate(compared))), float(np.max(np.concatenate(compared)))
            if high > low:
                ax.set_ylim(low - 0.1 * (high - low), high + 0.6 * (high - low))
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.spines[["top", "right"]].set_visible(False)
