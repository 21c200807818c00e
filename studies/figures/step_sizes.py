"""Validation error against the step size: how the step was chosen, and how much it mattered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .style import STYLES, new_axes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StepSizeDisplay:
    """Validation errors at the end of training for each step size.

    Attributes
    ----------
    title : str
    step_sizes : ndarray of shape (n_steps,)
    validation : dict of str to ndarray of shape (n_seeds, n_steps)
        By method.
    chosen : dict of str to ndarray of shape (n_seeds,)
        Positions of the steps chosen, by method.
    baseline : float or None
        Validation error of the independent learner, the mean over the seeds.
    """

    title: str
    step_sizes: Array
    validation: dict[str, Array]
    chosen: dict[str, NDArray[np.int64]]
    baseline: float | None

    def plot(self, ax: Any = None, *, legend: bool = True) -> Any:
        """Draw on ``ax`` (made when absent): lines for the seeds' mean, marks for every seed's choice."""
        ax = new_axes() if ax is None else ax
        top = 0.0
        if self.baseline is not None:
            ax.axhline(self.baseline, label="independent", **STYLES["independent"].line)
            top = self.baseline
        for method, errors in self.validation.items():
            ax.plot(self.step_sizes, errors.mean(axis=0), label=method, **STYLES[method].line)
            chosen = self.chosen[method]
            marks = self.step_sizes[chosen], errors[np.arange(len(errors)), chosen]
            ax.plot(*marks, **STYLES[method].hollow)
            top = max(top, float(errors[:, 0].mean()))
        ax.set_xscale("log")
        low = min(float(errors.min()) for errors in self.validation.values()) if self.validation else 0.0
        # Steps that diverge would hide the ones worth looking at.
        ax.set_ylim(low - 0.06 * (1.5 * top - low), low + 1.1 * (1.5 * top - low))
        ax.set_title(self.title)
        ax.set_xlabel("step size γ (marks: chosen, one per seed)")
        ax.set_ylabel("validation error")
        if legend:
            ax.legend(loc="upper right")
        return ax.figure
