"""What was learned: τ for groups of tasks, and the spectra of H and C."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..studies.reproduction.store import REPRESENTATION_FILE, ResultsError
from ._style import STYLES

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RepresentationDisplay:
    """The mean τ of each group of test tasks, from the first seed with its chosen step size.

    Attributes
    ----------
    title : str
    taus : ndarray of shape (m, d, d)
        Conditional learner, by group, in the frame of ``axis_names``.
    shared : ndarray of shape (d, d) or None
        The unconditional learner's one representation, in the same frame.
    group_names, axis_names : list of str
    spectra : dict of str to ndarray
        Eigenvalues in decreasing order, by what they are of.
    """

    title: str
    taus: Array
    shared: Array | None
    group_names: list[str]
    axis_names: list[str]
    spectra: dict[str, Array]

    @classmethod
    def from_folder(
        cls, folder: Path | str, experiment: str, *, title: str | None = None
    ) -> RepresentationDisplay:
        """Read what a run stored in ``folder`` for ``experiment``."""
        path = Path(folder) / experiment / REPRESENTATION_FILE
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except FileNotFoundError as error:
            raise ResultsError(
                f"there is no {path}: `tailored reproduce` writes it with the table"
            ) from error
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise ResultsError(f"{path} is damaged ({error})") from error
        if "conditional/taus" not in arrays:
            raise ResultsError(f"{path} holds no conditional learner to show")
        shared = arrays.get("unconditional/taus")
        spectra = {
            "H": arrays["conditional/spectrum_H"],
            "C, conditional": arrays["conditional/spectrum_C"],
        }
        if "unconditional/spectrum_C" in arrays:
            spectra["C, unconditional"] = arrays["unconditional/spectrum_C"]
        return cls(
            title or experiment,
            arrays["conditional/taus"],
            None if shared is None else shared[0],
            [str(name) for name in arrays["conditional/group_names"]],
            [str(name) for name in arrays["conditional/axis_names"]],
            spectra,
        )

    @property
    def beyond_mean(self) -> Array:
        """What each group's τ has more of than the mean of the groups, (m, d, d), where it has more."""
        return np.maximum(self.taus - self.taus.mean(axis=0), 0.0)

    def plot(self) -> Any:
        """Draw τ and what it has beyond the mean, group by group, and the spectra; returns the figure."""
        import matplotlib.pyplot as plt

        n_columns = len(self.taus) + (self.shared is not None)
        side = 2.1 if n_columns < 5 else 1.55
        figure = plt.figure(figsize=(side * n_columns + 3.4, 2 * side + 0.9), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=[side * n_columns, 3.4])  # type: ignore[misc]
        axes = left.subplots(2, n_columns, squeeze=False)
        beyond = self.beyond_mean
        for column, name in enumerate(self.group_names):
            # One scale per row: a group that differs little from the others is to look like it.
            self._heat_map(axes[0, column], name, np.abs(self.taus[column]), np.abs(self.taus).max())
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
        ax.text(0.97, 0.96, label, transform=ax.transAxes, fontsize=7, ha="right", va="top", bbox=box)
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
        styles = {
            "H": STYLES["conditional"],
            "C, conditional": STYLES["independent"],
            "C, unconditional": STYLES["unconditional"],
        }
        for name, values in self.spectra.items():
            # Below a millionth of the largest, eigenvalues are rounding or all but projected away.
            shown = values[values > 1e-6 * max(float(values.max(initial=0.0)), 1e-300)]
            style = styles[name]
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
        ax.legend()
