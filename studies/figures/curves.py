"""Test error against the number of training tasks: the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .style import STYLES, Style, new_axes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CurvesDisplay:
    """Mean and standard deviation over the seeds of each method's test curve.

    Attributes
    ----------
    title, target : str
        Headline and name of the vertical axis.
    mean, deviation : dict of str to ndarray of shape (T,)
        By method; deviations with n - 1 in the denominator, zero for a single seed.
    published : dict of str to float
        End of the published curve, by method; drawn as hollow marks at the right edge.
    """

    title: str
    target: str
    mean: dict[str, Array]
    deviation: dict[str, Array]
    published: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_curves(
        cls,
        curves: Mapping[str, Array],
        *,
        title: str = "",
        target: str = "mean absolute error",
        published: Mapping[str, float] | None = None,
    ) -> Self:
        """From the curves of all seeds, (n_seeds, T) by method."""
        mean = {method: curve.mean(axis=0) for method, curve in curves.items()}
        deviation = {
            method: curve.std(axis=0, ddof=1) if len(curve) > 1 else np.zeros(curve.shape[1])
            for method, curve in curves.items()
        }
        return cls(title, target, mean, deviation, dict(published or {}))

    def plot(self, ax: Any = None, *, legend: bool = True) -> Any:
        """Draw on ``ax`` (made when absent); returns the figure."""
        ax = new_axes() if ax is None else ax
        for method in self.mean:
            self._plot_method(ax, method)
        if self.published:
            # Outside the axes' data, for the legend alone.
            ax.plot([], [], label="published, end of curve", **Style("0.4", "none", "o").hollow)
        ax.set_ylim(*self._limits())
        ax.set_title(self.title)
        ax.set_xlabel("number of training tasks")
        ax.set_ylabel(self.target)
        if legend:
            ax.legend(loc="upper right")
        return ax.figure

    def _plot_method(self, ax: Any, method: str) -> None:
        style, mean, band = STYLES[method], self.mean[method], self.deviation[method]
        n_tasks = np.arange(1, len(mean) + 1)
        ax.fill_between(n_tasks, mean - band, mean + band, color=style.color, alpha=0.18, linewidth=0)
        ax.plot(
            n_tasks,
            mean,
            **style.line,
            marker=style.marker,
            markersize=4,
            # Markers name the line, they are no samples; shifted, so that none hides another.
            markevery=(list(STYLES).index(method) * len(mean) // 24, max(len(mean) // 8, 1)),
            label=method,
        )
        if method in self.published:
            end = [len(mean) * 1.035], [self.published[method]]
            ax.plot(*end, clip_on=False, **style.hollow)

    def _limits(self) -> tuple[float, float]:
        """Room for every curve, except for first steps that are far worse than learning nothing."""
        tops = [float(np.max(mean + self.deviation[method])) for method, mean in self.mean.items()]
        bottoms = [float(np.min(mean - self.deviation[method])) for method, mean in self.mean.items()]
        high, low = max(tops), min([*bottoms, *self.published.values()])
        if "independent" in self.mean:
            high = min(high, 1.3 * float(np.max(self.mean["independent"])))
        high = max([high, *self.published.values()])
        room = 0.05 * (high - low)
        return low - room, high + room
