"""Figures of the theory studies: measured curves with their errors, beside their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Colours that print in grey and survive colour blindness.
CONDITIONAL, UNCONDITIONAL, SPOILT, REFERENCE = "#1b6ca8", "#c8553d", "#e3a857", "0.45"
SIDES = {"conditional": CONDITIONAL, "unconditional": UNCONDITIONAL}


class Curve(NamedTuple):
    """Values at ``x`` with their standard errors, and a bound on them where there is one; all (n,)."""

    x: Array
    value: Array
    error: Array
    bound: Array | None = None


@dataclass(frozen=True)
class StudyDisplay:
    """Base of the displays: holds curves by what they are of, draws them on two axes."""

    curves: Mapping[Any, Curve]

    def plot(self, axes: Any = None) -> Any:
        """Draw on two axes (made when absent); returns the figure."""
        import matplotlib.pyplot as plt

        if axes is None:
            _, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
        self._draw(*axes)
        for ax in axes:
            ax.spines[["top", "right"]].set_visible(False)
            ax.legend(
                loc="upper right",
                frameon=False,
                fontsize=8,
                ncols=2 if len(ax.get_legend_handles_labels()[0]) > 4 else 1,
            )
        return axes[0].figure

    def _draw(self, left: Any, right: Any) -> None:
        raise NotImplementedError


class AdvantageDisplay(StudyDisplay):
    """Excess risks and their bounds against m; the ratio of unconditional to conditional beside √m.

    Curves by ("bound", "oracle" or "learned"; "conditional" or "unconditional"), against the number of
    clusters.
    """

    def _draw(self, left: Any, right: Any) -> None:
        m = self.curves["bound", "conditional"].x
        for what, line, marker in (("bound", ":", ""), ("oracle", "--", "s"), ("learned", "-", "o")):
            for side, color in SIDES.items():
                curve = self.curves[what, side]
                # A bound is exact, and one training set gives no error: no bars for these.
                bars = 2 * curve.error if np.isfinite(curve.error).all() and curve.error.any() else None
                look: Any = {"color": color, "ls": line, "marker": marker, "ms": 4}
                left.errorbar(m, curve.value, bars, label=f"{side}, {what}", **look)
            ratio = self.curves[what, "unconditional"].value / self.curves[what, "conditional"].value
            right.plot(m, ratio, ls=line, marker=marker or "x", color="k", label=what)
        right.plot(m, np.sqrt(m), color=REFERENCE, lw=5, alpha=0.4, zorder=0, label="√m")
        for ax in (left, right):
            ax.set_xscale("log", base=2)
            ax.set_xticks(m, [str(int(k)) for k in m])
            ax.set_xlabel("clusters m")
        left.set_yscale("log")
        left.set_ylim(bottom=0.15 * self.curves["oracle", "conditional"].value.min())  # room for the legend
        left.set_ylabel("excess risk (bars: ± 2 standard errors)")
        right.set_yscale("log", base=2)
        right.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        right.set_ylabel("unconditional / conditional")


class RatesDisplay(StudyDisplay):
    """Excess surrogate against T with fitted slopes; the parts of the bounds that T decides.

    Curves by method, three of them at most.
    """

    def _draw(self, left: Any, right: Any) -> None:
        for (method, curve), color in zip(
            self.curves.items(), (CONDITIONAL, UNCONDITIONAL, SPOILT), strict=False
        ):
            look: Any = {"color": color, "marker": "o", "ms": 4}
            T = curve.x
            left.errorbar(T, curve.value, 2 * curve.error, label=_sloped(method, T, curve.value), **look)
            if curve.bound is not None:
                right.plot(T, curve.bound, label=_sloped(method, T, curve.bound), **look)
        for ax in (left, right):
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("training tasks T")
        left.set_ylabel("excess surrogate (bars: ± 2 s.e.)")
        right.set_ylabel("part of the bound that T decides")


def _sloped(name: str, x: Array, y: Array) -> str:
    return f"{name}: slope {np.polyfit(np.log(x), np.log(y), 1)[0]:.2f}"


class BoundsDisplay(StudyDisplay):
    """Measured excess risk under its bound, against rows per task and training tasks.

    Curves by ("n" or "T"; "conditional" or "unconditional"), each with its bound.
    """

    def _draw(self, left: Any, right: Any) -> None:
        for ax, against in ((left, "n"), (right, "T")):
            for side, color in SIDES.items():
                x, excess, error, bound = self.curves[against, side]
                ax.plot(x, bound, color=color, ls="--", label=f"{side}, bound")
                look: Any = {"color": color, "marker": "o", "ms": 4}
                ax.errorbar(x, excess, 2 * error, label=f"{side}, measured", **look)
            ax.set_xscale("log")
            ax.set_yscale("log")
        left.set_xlabel("rows per task n, at the oracle")
        right.set_xlabel("training tasks T, learned")
        left.set_ylabel("excess risk (bars: ± 2 standard errors)")
