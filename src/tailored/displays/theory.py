"""Figures of the studies, drawn from their tables alone; matplotlib is imported when drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..studies.theory import RATE_METHODS, Study

#: Colours that print in grey and survive colour blindness.
CONDITIONAL, UNCONDITIONAL, SPOILT, REFERENCE = "#1b6ca8", "#c8553d", "#e3a857", "0.45"


@dataclass(frozen=True)
class StudyDisplay:
    """Base of the displays: holds the study, draws it on two axes."""

    study: Study

    @classmethod
    def from_study(cls, study: Study) -> Self:
        return cls(study)

    def plot(self, axes: Any = None) -> Any:
        """Draw on two axes (made when absent); returns the figure."""
        import matplotlib.pyplot as plt

        if axes is None:
            _, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
        self._draw(*axes)
        for ax in axes:
            ax.spines[["top", "right"]].set_visible(False)
            ax.legend(frameon=False, fontsize=8, ncols=2 if len(ax.get_legend_handles_labels()[0]) > 4 else 1)
        return axes[0].figure

    def _draw(self, left: Any, right: Any) -> None:
        raise NotImplementedError


class AdvantageDisplay(StudyDisplay):
    """Excess risks and their bounds against m; the ratio of unconditional to conditional beside √m."""

    def _draw(self, left: Any, right: Any) -> None:
        study = self.study
        m = study.column("clusters", what="bound")
        styles = {"bound": (":", ""), "oracle": ("--", "s"), "learned": ("-", "o")}
        for what, (line, marker) in styles.items():
            for side, colour in (("conditional", CONDITIONAL), ("unconditional", UNCONDITIONAL)):
                values, error = study.column(side, what=what), study.column(f"{side}_error", what=what)
                look: Any = {
                    "color": colour,
                    "ls": line,
                    "marker": marker,
                    "ms": 4,
                    "label": f"{side}, {what}",
                }
                # A bound is exact, and one training set gives no error: no bars for these.
                bars = 2 * error if np.isfinite(error).all() and error.any() else None
                left.errorbar(m, values, bars, **look)
            right.plot(
                m, study.column("ratio", what=what), ls=line, marker=marker or "x", color="k", label=what
            )
        right.plot(m, np.sqrt(m), color=REFERENCE, lw=5, alpha=0.4, zorder=0, label="√m")
        for ax in (left, right):
            ax.set_xscale("log", base=2)
            ax.set_xticks(m, [str(int(k)) for k in m])
            ax.set_xlabel("clusters m")
        left.set_yscale("log")
        left.set_ylim(bottom=0.15 * study.column("conditional", what="oracle").min())  # room for the legend
        left.set_ylabel("excess risk (bars: ± 2 standard errors)")
        right.set_yscale("log", base=2)
        right.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        right.set_ylabel("unconditional / conditional")


class RatesDisplay(StudyDisplay):
    """Excess surrogate against T with fitted slopes; the parts of the bounds that T decides."""

    def _draw(self, left: Any, right: Any) -> None:
        study = self.study
        for method, colour in zip(RATE_METHODS, (CONDITIONAL, UNCONDITIONAL, SPOILT), strict=True):
            T = study.column("T", method=method)
            excess, error = (
                study.column("excess", method=method),
                study.column("standard_error", method=method),
            )
            slope = study.column("slope", method=method)[0]
            left.errorbar(
                T, excess, 2 * error, color=colour, marker="o", ms=4, label=f"{method}: slope {slope:.2f}"
            )
            if method not in ("ours", "trace-constrained"):
                continue
            bound = study.column("bound", method=method)
            fitted = np.polyfit(np.log(T), np.log(bound), 1)[0]
            right.plot(T, bound, color=colour, marker="o", ms=4, label=f"{method}: slope {fitted:.2f}")
        for ax in (left, right):
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("training tasks T")
        left.set_ylabel("excess surrogate (bars: ± 2 s.e.)")
        right.set_ylabel("part of the bound that T decides")


class BoundsDisplay(StudyDisplay):
    """Measured excess risk under its bound, against rows per task and training tasks."""

    def _draw(self, left: Any, right: Any) -> None:
        for ax, against in ((left, "n"), (right, "T")):
            for function, colour in (("conditional", CONDITIONAL), ("unconditional", UNCONDITIONAL)):
                where = {"against": against, "function": function}
                x, bound = (self.study.column(key, **where) for key in ("value", "bound"))
                excess, error = (self.study.column(key, **where) for key in ("excess", "standard_error"))
                ax.plot(x, bound, color=colour, ls="--", label=f"{function}, bound")
                ax.errorbar(
                    x, excess, 2 * error, color=colour, marker="o", ms=4, label=f"{function}, measured"
                )
            ax.set_xscale("log")
            ax.set_yscale("log")
        left.set_xlabel("rows per task n, at the oracle")
        right.set_xlabel("training tasks T, learned")
        left.set_ylabel("excess risk (bars: ± 2 standard errors)")


#: The display of each study.
DISPLAYS: dict[str, type[StudyDisplay]] = {
    "advantage": AdvantageDisplay,
    "rates": RatesDisplay,
    "bounds": BoundsDisplay,
}
