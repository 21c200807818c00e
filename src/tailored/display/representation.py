"""What was learned: τ for groups of tasks, and the spectra of H and C."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..experiments.store import REPRESENTATION_FILE, ResultsError
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

    def plot(self) -> Any:
        """Draw a heat map per group, one of the unconditional τ, and the spectra; returns the figure."""
        import matplotlib.pyplot as plt

        maps = [*zip(self.group_names, self.taus, strict=True)]
        if self.shared is not None:
            maps.append(("unconditional", self.shared))
        n_columns = min(len(maps), 4)
        n_rows = -(-len(maps) // n_columns)
        figure = plt.figure(figsize=(2.1 * n_columns + 3.4, 2.3 * n_rows + 0.5), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=[2.1 * n_columns, 3.4])  # type: ignore[misc]
        axes = left.subplots(n_rows, n_columns, squeeze=False).ravel()
        for ax in axes[len(maps) :]:
            ax.set_visible(False)
        for ax, (name, tau) in zip(axes, maps, strict=False):
            self._heat_map(ax, name, tau)
        self._plot_spectra(right.subplots())
        figure.suptitle(self.title, fontsize=11)
        return figure

    def _heat_map(self, ax: Any, name: str, tau: Array) -> None:
        # Each map has its own scale: what matters is the shape of τ, and its size is in the spectra.
        shown = np.abs(tau) / max(float(np.nanmax(np.abs(tau))), 1e-300)
        ax.imshow(shown, cmap="Greys", vmin=0.0, vmax=1.0, interpolation="nearest")
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
