"""What was learned: τ for groups of tasks, and the spectra of H and C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .style import STYLES

Array = NDArray[np.float64]

#: What a spectrum may be of, and how its line looks.
SPECTRA = {
    "H": STYLES["conditional"],
    "C, conditional": STYLES["independent"],
    "C, unconditional": STYLES["unconditional"],
}


@dataclass(frozen=True)
class RepresentationDisplay:
    """The mean τ of each group of tasks beside the unconditional one, and the spectra behind them.

    Attributes
    ----------
    title : str
    taus : ndarray of shape (m, d, d)
        Conditional learner, by group, in the frame of ``axis_names``.
    shared : ndarray of shape (d, d) or None
        The unconditional learner's one representation, in the same frame.
    group_names, axis_names : list of str
    spectra : dict of str to ndarray
        Eigenvalues in decreasing order, by a name in `SPECTRA`.
    """

    title: str
    taus: Array
    shared: Array | None
    group_names: list[str]
    axis_names: list[str]
    spectra: dict[str, Array]

    @property
    def beyond_mean(self) -> Array:
        """What each group's τ has more of than the mean of the groups, (m, d, d), where it has
        more.
        """
        return np.maximum(self.taus - self.taus.mean(axis=0), 0.0)

    def plot(self) -> Any:
        """Draw τ and what it has beyond the mean, group by group, and the spectra; returns the
        figure.
        """
        import matplotlib.pyplot as plt

        n_columns = len(self.taus) + (self.shared is not None)
        side = 2.1 if n_columns < 5 else 1.55
        figure: Any = plt.figure(
            figsize=(side * n_columns + 3.4, 2 * side + 0.9), layout="constrained"
        )
        left, right = figure.subfigures(1, 2, width_ratios=[side * n_columns, 3.4])
        axes = left.subplots(2, n_columns, squeeze=False)
        beyond = self.beyond_mean
        for column, name in enumerate(self.group_names):
            # One scale per row: a group that differs little from the others is to look like it.
            self._heat_map(
                axes[0, column], name, np.abs(self.taus[column]), np.abs(self.taus).max()
            )
            self._heat_map(axes[1, column], "", beyond[column], beyond.max())
        if self.shared is not None:
            shared = np.abs(self.shared)
            self._heat_map(axes[0, -1], "unconditional", shared, shared.max())
            axes[1, -1].set_axis_off()
        axes[0, 0].set_ylabel("|τ|", fontsize=9)
        axes[1, 0].set_ylabel("beyond the mean τ", fontsize=9)
        self._plot_spectra(right.subplots())
        figure.suptitle(self.title, fontsize=11)
        return figure

    def _heat_map(self, ax: Any, name: str, values: Array, top: float) -> None:
        ax.imshow(values, cmap="Greys", vmin=0.0, vmax=max(top, 1e-300), interpolation="nearest")
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.8}
        label = f"max {values.max():.2g}"
        ax.text(
            0.97, 0.96, label, transform=ax.transAxes, fontsize=7, ha="right", va="top", bbox=box
        )
        ax.set_title(name, fontsize=9)
        ax.spines[:].set_visible(True)
        ax.set_xticks([])
        ax.set_yticks([])
        if len(set(self.axis_names)) < len(self.axis_names):
            self._mark_clusters(ax)

    def _mark_clusters(self, ax: Any) -> None:
        """Lines between the directions of different clusters, and their numbers."""
        names = np.array(self.axis_names)
        starts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1)]
        ends = [*starts[1:], len(names)]
        for start in starts[1:]:
            ax.axhline(start - 0.5, color="0.7", linewidth=0.5)
            ax.axvline(start - 0.5, color="0.7", linewidth=0.5)
        centres = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
        labels = [names[start] for start in starts]
        ax.set_xticks(centres, labels, fontsize=6)
        ax.set_yticks(centres, labels, fontsize=6)
        ax.tick_params(length=0)

    def _plot_spectra(self, ax: Any) -> None:
        for name, values in self.spectra.items():
            # Below a millionth of the largest, eigenvalues are rounding or all but projected away.
            shown = values[values > 1e-6 * max(float(values.max(initial=0.0)), 1e-300)]
            style = SPECTRA[name]
            ax.plot(
                np.arange(1, len(shown) + 1),
                shown,
                color=style.color,
                linestyle=style.linestyle,
                marker=style.marker,
                markersize=3,
                linewidth=1.2,
                label=name,
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("position")
        ax.set_ylabel("eigenvalue")
        ax.set_title("spectra")
        ax.legend(loc="upper right")
