"""Display of an `Evaluation`: errors and coverage by number of support rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..tasks.rows import standard_errors
from .display import PALETTE, AxesLike, ModelDisplay, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class RowsDisplay(ModelDisplay):
    """Error and coverage of a learner on new tasks by number of support rows, compared with
    baselines.

    Attributes
    ----------
    evaluation : Evaluation
        Result of `tailored.evaluation.evaluate`, whose first method is the learner.
    """

    evaluation: Any

    @classmethod
    def from_evaluation(cls, evaluation: Any, *, ax: AxesLike = None) -> Self:
        """Draw the result of `tailored.evaluation.evaluate`.

        The coverage is drawn for its first method.
        """
        return cls(evaluation).plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.4 * self.n_axes, 3.5

    @property
    def n_axes(self) -> int:
        return 1 + self.evaluation.has_intervals

    def _draw(self, ax: Axes, coverage_ax: Axes | None = None) -> None:
        evaluation = self.evaluation
        x = np.log2(1.0 + np.array(evaluation.supports))
        (own, *others), error = evaluation.mean, evaluation.standard_error[0]
        lines = zip(evaluation.methods, (own, *others), PALETTE, "o^sDvPX", strict=False)
        for zorder, (name, mean, color, marker) in zip(range(9, 0, -1), lines, strict=False):
            style: dict[str, Any] = {"color": color, "marker": marker, "zorder": zorder}
            ax.plot(x, mean, label=shortened(name), markersize=5, **style)
        ax.fill_between(x, own - error, own + error, color=PALETTE[0], alpha=0.18, linewidth=0)
        # Limit the axis, so that baselines with very large errors at few rows do not flatten the
        # other lines.
        top = max([own.max(), *(np.quantile(mean, 0.7) for mean in others)])
        if others:
            top = min(top, 2.5 * np.median([own, *others]))
        bottom = min((own - error).min(), *(mean.min() for mean in (own, *others)))
        margin = 0.08 * (top - bottom)
        ax.set(ylim=(bottom - margin, top + margin), ylabel=f"mean {evaluation.error_name}")
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        axes = [ax]
        if coverage_ax is not None and evaluation.has_intervals:
            axes.append(coverage_ax)
            bars = 200.0 * standard_errors(evaluation.scores["covered"][0])
            style = {"color": PALETTE[0], "marker": "o", "capsize": 3}
            label = "empirical, ± 2 standard errors"
            coverage_ax.errorbar(x, 100.0 * evaluation.covered[0], bars, label=label, **style)
            nominal: Any = {"color": "0.35", "linestyle": "--", "label": "nominal"}
            coverage_ax.axhline(100.0 * evaluation.coverage, **nominal)
            coverage_ax.set(ylim=(0.0, 102.0), ylabel="coverage of the intervals, %")
            coverage_ax.legend(loc="lower right")
        for each in axes:
            each.set_xticks(x, [f"{n:,}" for n in evaluation.supports])
            each.set_xlabel(f"support rows ({len(evaluation.labels):,} tasks)")
