"""Curves of the reproduction: test error by the number of training tasks, validation error by the
step size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..reproduction.config import METHODS
from .style import STYLES, Style

if TYPE_CHECKING:
    from ..reproduction.table import Curves

Array = NDArray[np.float64]


def plot_curves(
    ax: Any, curves: Mapping[str, Array], title: str, target: str, published: Mapping[str, float]
) -> None:
    """Draw the mean and standard deviation over the seeds of each method's test curve.

    Parameters
    ----------
    curves : dict of str to ndarray of shape (n_seeds, T) or (n_seeds, 1)
        By method; an end without a curve is drawn as a mark.
    title, target : str
        Headline and name of the vertical axis.
    published : dict of str to float
        End of the published curve, by method; drawn as hollow marks at the right edge.
    """
    tops, bottoms = [], list(published.values())
    last = max(curve.shape[1] for curve in curves.values())
    for place, (method, curve) in enumerate(curves.items()):
        mean, style = curve.mean(axis=0), STYLES[method]
        band = curve.std(axis=0, ddof=1) if len(curve) > 1 else np.zeros(len(mean))
        bottoms.append(float(np.min(mean - band)))
        if len(mean) < last:
            end: Any = {
                "fmt": style.marker,
                "color": style.color,
                "markersize": 7,
                "clip_on": False,
            }
            ax.errorbar([last], mean, yerr=band, label=label(method), **end)
            continue
        n_tasks = np.arange(1, len(mean) + 1)
        ax.fill_between(
            n_tasks, mean - band, mean + band, color=style.color, alpha=0.18, linewidth=0
        )
        # Markers identify the line and are not samples; they are shifted, so that none hides
        # another.
        every = place * len(mean) // 24, max(len(mean) // 8, 1)
        marks: Any = {
            "marker": style.marker,
            "markersize": 4,
            "markevery": every,
            "label": label(method),
        }
        ax.plot(n_tasks, mean, **style.line, **marks)
        if method in published:
            ax.plot([len(mean) * 1.035], [published[method]], clip_on=False, **style.hollow)
        tops.append(float(np.max(mean + band)))
    if published:
        # Outside the axes' data, for the legend alone.
        ax.plot([], [], label="published, end of curve", **Style("0.4", "none", "o").hollow)
    high, low = max(tops), min(bottoms)
    if "independent" in curves:
        # First steps may be far worse than learning nothing, and would flatten the rest.
        high = min(high, 1.3 * float(np.max(curves["independent"].mean(axis=0))))
    high = max([high, *published.values()])
    ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    ax.set_title(title)
    ax.set_xlabel("number of training tasks")
    ax.set_ylabel(target)


def label(method: str) -> str:
    """Return the name of a method in legends."""
    return METHODS[method].replace("`", "")


def plot_step_sizes(ax: Any, curves: Mapping[str, Curves], title: str) -> None:
    """Draw the validation error at the end of training by step size, and the steps that each seed
    chose.
    """
    stepped = {method: curve for method, curve in curves.items() if len(curve.step_sizes)}
    top = 0.0
    if "independent" in curves:
        top = float(curves["independent"].validation.mean())
        ax.axhline(top, label="independent", **STYLES["independent"].line)
    for method, curve in stepped.items():
        errors, chosen = curve.validation, curve.chosen
        ax.plot(curve.step_sizes, errors.mean(axis=0), label=label(method), **STYLES[method].line)
        marks = curve.step_sizes[chosen], errors[np.arange(len(errors)), chosen]
        ax.plot(*marks, **STYLES[method].hollow)
        top = max(top, float(errors[:, 0].mean()))
    ax.set_xscale("log")
    low = min(float(curve.validation.min()) for curve in stepped.values())
    # Steps that diverge would hide the ones worth looking at.
    ax.set_ylim(low - 0.06 * (1.5 * top - low), low + 1.1 * (1.5 * top - low))
    ax.set_title(title)
    ax.set_xlabel("step size γ (marks: chosen, one per seed)")
    ax.set_ylabel("validation error")
