"""`RowsDisplay`: error and interval coverage against the number of support rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..losses import error_name
from ..tasks.rows import standard_errors
from .base import PALETTE, Array, ModelDisplay, line_style, shortened


@dataclass
class RowsDisplay(ModelDisplay):
    """Error and coverage of a learner on new tasks by number of support rows, compared with baselines.

    `from_evaluation` draws the result of `tailored.evaluation.evaluate`.

    Attributes
    ----------
    n_support : array (L,)
        Numbers of support rows.
    errors : dict of str to array (L, T)
        Mean error of each task by method; the learner is the first.
    covered : array (L,) or None
        Fraction of targets inside the prediction intervals, averaged over tasks; None for a learner without intervals.
    coverage : float
        Nominal coverage.
    loss : str
    covered_error : array (L,)
        Standard errors of ``covered``.
    """

    n_support: NDArray[np.int64]
    errors: dict[str, Array]
    covered: Array | None
    coverage: float
    loss: str
    covered_error: Array

    @classmethod
    def from_evaluation(cls, evaluation: Any, *, ax: Any = None) -> Self:
        """Draw the result of `tailored.evaluation.evaluate`; the coverage is drawn for its first method."""
        errors = dict(zip(evaluation.methods, evaluation.errors, strict=True))
        covered = evaluation.covered[0] if np.isfinite(evaluation.covered[0]).all() else None
        options = evaluation.coverage, evaluation.loss, evaluation.covered_error[0]
        return cls(np.array(evaluation.supports), errors, covered, *options).plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.4 * self._count_axes(), 3.5

    def _count_axes(self) -> int:
        return 1 if self.covered is None else 2

    def _draw(self, ax: Any, coverage_ax: Any = None) -> None:
        if coverage_ax is not None and self.covered is not None:
            self._draw_coverage(coverage_ax, self.covered)
        means = {name: values.mean(axis=1) for name, values in self.errors.items()}
        own, *others = means.values()
        error = standard_errors(next(iter(self.errors.values())))
        for i, (name, mean) in enumerate(means.items()):
            width = 1.3 if i else 2.0
            ax.plot(self._x, mean, label=shortened(name), markersize=5, linewidth=width, **line_style(i))
        ax.fill_between(self._x, own - error, own + error, color=PALETTE[0], alpha=0.18, linewidth=0)
        # Baselines with very large errors for few rows must not compress the other lines.
        top = max([own.max(), *(np.quantile(mean, 0.7) for mean in others)])
        if others:
            top = min(top, 2.5 * float(np.median(np.concatenate([own, *others]))))
        bottom = min([float((own - error).min()), *(float(mean.min()) for mean in others)])
        ax.set_ylim(bottom - 0.08 * (top - bottom), top + 0.08 * (top - bottom))
        ax.set_ylabel(f"mean {error_name(self.loss)}")
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        self._label_counts(ax)

    def _draw_coverage(self, ax: Any, covered: Array) -> None:
        ax.axhline(self.coverage, color="0.35", linestyle="--", linewidth=1.0, label="nominal")
        style: Any = {"color": PALETTE[0], "marker": "o", "markersize": 5, "capsize": 3}
        ax.errorbar(
            self._x, covered, 2.0 * self.covered_error, label="empirical, ± 2 standard errors", **style
        )
        ticks = np.linspace(0.0, 1.0, 6)
        ax.set_yticks(ticks, [f"{100.0 * tick:.0f}" for tick in ticks])
        ax.set(ylim=(0.0, 1.02), ylabel="coverage of the intervals, %")
        ax.legend(loc="lower right")
        self._label_counts(ax)

    @property
    def _x(self) -> Array:
        return np.log2(1.0 + self.n_support)

    def _label_counts(self, ax: Any) -> None:
        ax.set_xticks(self._x, [f"{n:,}" for n in self.n_support])
        ax.set_xlabel(f"support rows ({next(iter(self.errors.values())).shape[1]:,} tasks)")
