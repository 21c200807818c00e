"""Test error against the number of training tasks: the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..studies.reproduction.table import Results
from ._style import STYLES, new_axes

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
    n_seeds : int
    published : dict of str to float
        End of the published curve, by method; drawn as hollow marks at the right edge.
    """

    title: str
    target: str
    mean: dict[str, Array]
    deviation: dict[str, Array]
    n_seeds: int
    published: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_results(
        cls,
        results: Results,
        experiment: str,
        *,
        title: str | None = None,
        target: str = "mean absolute error",
        published: Mapping[str, float] | None = None,
    ) -> CurvesDisplay:
        mean, deviation = {}, {}
        n_seeds = 0
        for method in results.methods(experiment):
            test = results.curves(experiment, method).test
            n_seeds = len(test)
            mean[method] = test.mean(axis=0)
            deviation[method] = test.std(axis=0, ddof=1) if n_seeds > 1 else np.zeros(test.shape[1])
        return cls(title or experiment, target, mean, deviation, n_seeds, dict(published or {}))

    def plot(self, ax: Any = None, *, legend: bool = True) -> Any:
        """Draw on ``ax`` (made when absent); returns the figure."""
        ax = new_axes() if ax is None else ax
        for method, mean in self.mean.items():
            style = STYLES[method]
            n_tasks = np.arange(1, len(mean) + 1)
            band = self.deviation[method]
            ax.fill_between(n_tasks, mean - band, mean + band, color=style.color, alpha=0.18, linewidth=0)
            ax.plot(
                n_tasks,
                mean,
                color=style.color,
                linestyle=style.linestyle,
                linewidth=1.6,
                marker=style.marker,
                markersize=4,
                # Markers name the line, they are no samples; shifted, so that none hides another.
                markevery=(list(STYLES).index(method) * len(mean) // 24, max(len(mean) // 8, 1)),
                label=method,
            )
            if method in self.published:
                ax.plot(
                    [len(mean) * 1.035],
                    [self.published[method]],
                    marker=style.marker,
                    markersize=5,
                    markerfacecolor="white",
                    markeredgecolor=style.color,
                    linestyle="none",
                    clip_on=False,
                )
        if self.published:
            # Outside the axes' data, for the legend alone.
            ax.plot(
                [],
                [],
                marker="o",
                markerfacecolor="white",
                markeredgecolor="0.4",
                linestyle="none",
                markersize=5,
                label="published, end of curve",
            )
        low, high = self._limits()
        ax.set_ylim(low, high)
        ax.set_title(self.title)
        ax.set_xlabel("number of training tasks")
        ax.set_ylabel(self.target)
        if legend:
            ax.legend()
        return ax.figure

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
