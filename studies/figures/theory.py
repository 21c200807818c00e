"""Figures of the theory studies: measured curves with their errors, and their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored.show.displays import pyplot

Array = NDArray[np.float64]

#: Colours that print in grey and survive colour blindness.
CONDITIONAL, UNCONDITIONAL, SPOILT, REFERENCE = "#1b6ca8", "#c8553d", "#e3a857", "0.45"
SIDES = {"conditional": CONDITIONAL, "unconditional": UNCONDITIONAL}


def draw_study(study: Any) -> Any:
    """Draw the two panels of a `studies.theory.claims.Study`; return the figure."""
    figure, axes = pyplot().subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    _PANELS[study.name](study, *axes)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        n_columns = 2 if len(ax.get_legend_handles_labels()[0]) > 4 else 1
        ax.legend(frameon=False, fontsize=8, ncols=n_columns)
    return figure


def _advantage(study: Any, left: Any, right: Any) -> None:
    """Excess risks and their bounds against m; the ratio of unconditional to conditional, and
    √m.
    """
    m = study.column("clusters", what="bound")
    for what, line, marker in (("bound", ":", ""), ("oracle", "--", "s"), ("learned", "-", "o")):
        for side, color in SIDES.items():
            error = study.column(f"{side}_error", what=what)
            # A bound is exact, and one training set gives no error: no bars for these.
            bars = 2 * error if np.isfinite(error).all() and error.any() else None
            look: Any = {"color": color, "ls": line, "marker": marker, "ms": 4}
            left.errorbar(m, study.column(side, what=what), bars, label=f"{side}, {what}", **look)
        ratio = study.column("ratio", what=what)
        right.plot(m, ratio, ls=line, marker=marker or "x", color="k", label=what)
    right.plot(m, np.sqrt(m), color=REFERENCE, lw=5, alpha=0.4, zorder=0, label="√m")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(m, [str(int(k)) for k in m])
        ax.set_xlabel("clusters m")
    left.set_yscale("log")
    left.set_ylim(
        bottom=0.15 * study.column("conditional", what="oracle").min()
    )  # room for the legend
    left.set_ylabel("excess risk (bars: ± 2 standard errors)")
    right.set_yscale("log", base=2)
    right.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    right.set_ylabel("unconditional / conditional")


def _rates(study: Any, left: Any, right: Any) -> None:
    """Excess surrogate against T with fitted slopes; the parts of the bounds that T decides."""
    methods = dict.fromkeys(row["method"] for row in study.rows)
    for method, color in zip(methods, (CONDITIONAL, UNCONDITIONAL, SPOILT), strict=True):
        T, excess, error, bound = (
            study.column(key, method=method) for key in ("T", "excess", "standard_error", "bound")
        )
        look: Any = {"color": color, "marker": "o", "ms": 4}
        left.errorbar(T, excess, 2 * error, label=_sloped(method, T, excess), **look)
        # A λ that is off has a bound of its own, and it says nothing about the rate: it is not
        # shown.
        if color != SPOILT:
            right.plot(T, bound, label=_sloped(method, T, bound), **look)
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("training tasks T")
    left.set_ylabel("excess surrogate (bars: ± 2 s.e.)")
    right.set_ylabel("part of the bound that T decides")


def _sloped(name: str, x: Array, y: Array) -> str:
    return f"{name}: slope {np.polyfit(np.log(x), np.log(y), 1)[0]:.2f}"


def _bounds(study: Any, left: Any, right: Any) -> None:
    """Measured excess risk under its bound, against rows per task and training tasks."""
    for ax, against in ((left, "n"), (right, "T")):
        for side, color in SIDES.items():
            x, excess, error, bound = (
                study.column(key, against=against, function=side)
                for key in ("value", "excess", "standard_error", "bound")
            )
            ax.plot(x, bound, color=color, ls="--", label=f"{side}, bound")
            look: Any = {"color": color, "marker": "o", "ms": 4}
            ax.errorbar(x, excess, 2 * error, label=f"{side}, measured", **look)
        ax.set_xscale("log")
        ax.set_yscale("log")
    left.set_xlabel("rows per task n, at the oracle")
    right.set_xlabel("training tasks T, learned")
    left.set_ylabel("excess risk (bars: ± 2 standard errors)")


_PANELS = {"advantage": _advantage, "rates": _rates, "bounds": _bounds}
