"""Displays of an `Evaluation`: errors and coverage by number of support rows, and the calibration of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier

from .._utils.validation import check_int
from ..baselines import class_probabilities
from ..losses import error_name
from ..tasks.episodes import SupportLike, SupportSampling
from ..tasks.task_set import TaskSet, target_positions
from .base import LEGEND, PALETTE, Array, AxesLike, ModelDisplay, line_style, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class RowsDisplay(ModelDisplay):
    """Error and coverage of a learner on new tasks by number of support rows, compared with baselines.

    Attributes
    ----------
    evaluation : Evaluation
        Result of `tailored.evaluation.evaluate`, whose first method is the learner.
    """

    evaluation: Any

    @classmethod
    def from_evaluation(cls, evaluation: Any, *, ax: AxesLike = None) -> Self:
        """Draw the result of `tailored.evaluation.evaluate`; the coverage is drawn for its first method."""
        return cls(evaluation).plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.4 * self.n_axes, 3.5

    @property
    def n_axes(self) -> int:
        return 1 + self.evaluation.has_intervals

    def _draw(self, ax: Axes, coverage_ax: Axes | None = None) -> None:
        if coverage_ax is not None and self.evaluation.has_intervals:
            self._draw_coverage(coverage_ax)
        (own, *others), error = self.evaluation.mean, self.evaluation.standard_error[0]
        for i, (name, mean) in enumerate(zip(self.evaluation.methods, (own, *others), strict=True)):
            width = 1.3 if i else 2.0
            ax.plot(
                self._x, mean, label=shortened(name), markersize=5, linewidth=width, **line_style(i)
            )
        ax.fill_between(
            self._x, own - error, own + error, color=PALETTE[0], alpha=0.18, linewidth=0
        )
        # Limit the axis, so that baselines with very large errors at few rows do not flatten the other lines.
        top = max([own.max(), *(np.quantile(mean, 0.7) for mean in others)])
        if others:
            top = min(top, 2.5 * np.median([own, *others]))
        bottom = min((own - error).min(), *(mean.min() for mean in (own, *others)))
        ax.set_ylim(bottom - 0.08 * (top - bottom), top + 0.08 * (top - bottom))
        ax.set_ylabel(f"mean {error_name(self.evaluation.loss)}")
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        self._label_counts(ax)

    def _draw_coverage(self, ax: Axes) -> None:
        ax.axhline(
            self.evaluation.coverage, color="0.35", linestyle="--", linewidth=1.0, label="nominal"
        )
        style: dict[str, Any] = {"color": PALETTE[0], "marker": "o", "markersize": 5, "capsize": 3}
        style["label"] = "empirical, ± 2 standard errors"
        ax.errorbar(
            self._x, self.evaluation.covered[0], 2.0 * self.evaluation.covered_error[0], **style
        )
        ticks = np.linspace(0.0, 1.0, 6)
        ax.set_yticks(ticks, [f"{100.0 * tick:.0f}" for tick in ticks])
        ax.set(ylim=(0.0, 1.02), ylabel="coverage of the intervals, %")
        ax.legend(loc="lower right")
        self._label_counts(ax)

    @property
    def _x(self) -> Array:
        return np.log2(1.0 + np.array(self.evaluation.supports))

    def _label_counts(self, ax: Axes) -> None:
        ax.set_xticks(self._x, [f"{n:,}" for n in self.evaluation.supports])
        ax.set_xlabel(f"support rows ({len(self.evaluation.labels):,} tasks)")


@dataclass
class CalibrationDisplay(ModelDisplay):
    """Reliability diagram: the observed frequency of a class in bins of its predicted probability.

    The bins have about equal numbers of rows; equal probabilities are never split between bins.

    Attributes
    ----------
    prob_true, prob_pred : arrays (n_bins,)
        Observed frequency and mean predicted probability of each bin, as in scikit-learn.
    standard_errors : array (n_bins,)
        Standard errors of ``prob_true`` as a ratio of sums over tasks; rows of a task may be correlated.
    counts : array (n_bins,)
        Number of rows of each bin.
    label : str
        Name of the class, for the axis.
    """

    prob_true: Array
    prob_pred: Array
    standard_errors: Array
    counts: NDArray[np.int64]
    label: str

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        n_support: SupportLike = None,
        *,
        n_bins: int = 10,
        random_state: int = 0,
        ax: AxesLike = None,
    ) -> Self:
        """Adapt a fitted classifier to some rows of each of the new ``tasks``; predict their other rows and draw the diagram.

        Parameters
        ----------
        n_support : optional
            The support rows of each task, as in `EmpiricalBayesClassifier`; of a range, its middle.
            By default the learner's ``n_support``, or one half of the rows.
        n_bins : int, default=10
        random_state : int, default=0
            Seed for sampling the support rows; not used if these are the first rows.
        """
        if not is_classifier(learner):
            raise TypeError(f"learner: expected a classifier, got {type(learner).__name__}")
        sampling = SupportSampling.of(learner.n_support if n_support is None else n_support)
        support, query = sampling.split(tasks, random_state)
        P = class_probabilities(learner.predict_tasks(query, support))
        y = target_positions(query, learner.classes_)
        groups = np.repeat(np.arange(len(query)), query.sizes)
        return cls._of_classes(P, y, groups, learner.classes_, n_bins=n_bins, ax=ax)

    @classmethod
    def from_evaluation(cls, evaluation: Any, *, n_bins: int = 10, ax: AxesLike = None) -> Self:
        """Draw the first method of `tailored.evaluation.evaluate`, with the largest number of support rows."""
        P, y, groups = evaluation.predictions[-1], evaluation.targets, evaluation.groups
        return cls._of_classes(P, y, groups, evaluation.classes, n_bins=n_bins, ax=ax)

    @classmethod
    def _of_classes(
        cls, P: Array, y: Array, groups: NDArray[np.intp], classes: Sequence[Any], **options: Any
    ) -> Self:
        """Draw the second class if there are two, or all classes together."""
        if len(classes) == 2:
            return cls.from_predictions(
                y == 1, P[:, 1], groups=groups, label=str(classes[1]), **options
            )
        observed, groups = y[:, None] == np.arange(P.shape[1]), np.repeat(groups, P.shape[1])
        return cls.from_predictions(
            observed.ravel(), P.ravel(), groups=groups, label="each class", **options
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        n_bins: int = 10,
        label: str = "the class",
        ax: AxesLike = None,
    ) -> Self:
        """Draw the diagram of predicted probabilities and binary targets.

        Parameters
        ----------
        y_true : array (n,)
            Targets 0 and 1, or booleans.
        y_prob : array (n,)
            Predicted probabilities of 1.
        groups : array (n,), optional
            Task of each row; by default every row is a task.
        n_bins : int, default=10
        label : str
            Name of the class, for the axis.
        """
        y, p = (np.asarray(values, dtype=float) for values in (y_true, y_prob))
        valid = y.ndim == 1 and y.shape == p.shape and len(y) > 0
        if not valid or not np.isin(y, (0, 1)).all() or not ((p >= 0) & (p <= 1)).all():
            raise ValueError("y_true, y_prob: expected targets 0 and 1, and a probability for each")
        edges = np.quantile(
            p, np.linspace(0.0, 1.0, check_int("n_bins", n_bins, minimum=1) + 1)[1:-1]
        )
        bins = np.unique(np.searchsorted(edges, p), return_inverse=True)[1]
        tasks = (
            np.arange(len(y))
            if groups is None
            else np.unique(np.asarray(groups), return_inverse=True)[1]
        )
        counts = np.bincount(bins)
        prob_true, prob_pred = (np.bincount(bins, values) / counts for values in (y, p))
        # Rows of a task are not independent: linearise the ratio and sum the residuals of each task first.
        residuals = np.zeros((tasks.max() + 1, len(counts)))
        np.add.at(residuals, (tasks, bins), y - prob_true[bins])
        errors = np.sqrt((residuals**2).sum(axis=0)) / counts
        # With equal targets, or one task, this error is 0: use one with two more targets of each kind (Agresti and Coull).
        smoothed = (counts * prob_true + 2.0) / (counts + 4.0)
        errors = np.where(
            errors > 1e-9, errors, np.sqrt(smoothed * (1.0 - smoothed) / (counts + 4.0))
        )
        return cls(prob_true, prob_pred, errors, counts, label).plot(ax)

    def _draw(self, ax: Axes) -> None:
        ax.plot(
            [0, 1],
            [0, 1],
            color="0.35",
            linestyle="--",
            linewidth=1.0,
            label="perfectly calibrated",
        )
        low, high = (
            np.clip(self.prob_true + side * self.standard_errors, 0, 1) for side in (-2.0, 2.0)
        )
        bars = [self.prob_true - low, high - self.prob_true]
        style: dict[str, Any] = {"color": PALETTE[0], "marker": "o", "markersize": 5, "capsize": 2}
        ax.errorbar(
            self.prob_pred, self.prob_true, bars, label="observed, ± 2 standard errors", **style
        )
        ends = np.concatenate([self.prob_pred, low, high])
        limits = max(float(ends.min()) - 0.03, -0.02), min(float(ends.max()) + 0.03, 1.02)
        ax.set(xlim=limits, ylim=limits)
        ax.set_xlabel(f"predicted probability of {shortened(self.label)}")
        ax.set_ylabel("observed frequency")
        ax.legend(loc="best", **LEGEND)
