"""Write a self-contained HTML page about a fitted learner, with figures by `tailored.displays`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import clone, is_classifier
from sklearn.metrics import PredictionErrorDisplay
from sklearn.utils.validation import check_is_fitted

from .._utils.files import check_target, write_atomically
from .._utils.tables import Table, format_number
from ..displays import CalibrationDisplay, EffectsDisplay, RowsDisplay, TaskFitDisplay
from ..displays.base import effects_of, most_varying, names_of, pyplot
from ..displays.tasks import MAX_VALUES
from ..evaluation import Evaluation, evaluate, usual_methods
from ..gaussian.responses import Bernoulli
from ..learners.paper import PaperLearner
from ..losses import error_name
from ..summaries.summary import Summary
from ..tasks.describing import hint_about_target
from ..tasks.rows import Array, dense, standard_errors
from ..tasks.task_set import TaskSet, target_positions
from .html import CsvFormat, choice, csv_link, figures, html_page, image, new_axes

#: Maximum number of tasks in a caterpillar plot, of caterpillar plots, and of tasks with their own figure.
MAX_TASKS, MAX_EFFECTS, MAX_TASK_FIGURES = 150, 12, 40
#: Maximum numbers of tasks and rows in the evaluation; larger data are sampled.
MAX_EVALUATED_TASKS, MAX_EVALUATED_ROWS = 1_000, 20_000


def write_report(
    learner: Any,
    tasks: TaskSet,
    out: Path | str,
    *,
    title: str | None = None,
    evaluation: Evaluation | None = None,
    coverage: float = 0.9,
    random_state: int = 0,
    progress: bool = False,
    csv_format: CsvFormat = (",", ".", "utf-8"),
) -> Path:
    """Write an HTML page about a fitted learner and its tasks.

    The page starts with the accuracy on new tasks compared with baselines.  Predictions and residuals, the coverage of
    the intervals, fixed effects, coefficients and fits of single tasks, the model and the data follow.  Tables can be
    saved as CSV files.  The page does not use the network.

    Parameters
    ----------
    learner : EmpiricalBayesLearner or EmpiricalBayesClassifier
        A fitted learner.
    tasks : TaskSet
        The training tasks, or other tasks of the same kind.
    out : path
        The HTML file.
    title : str, optional
    evaluation : Evaluation, optional
        Evaluation whose first method is the learner.  By default, clones of the learner and baselines are cross-validated
        in five folds of tasks.  Data with more than 1,000 tasks or 20,000 rows are sampled, which the page mentions.
    coverage : float, default=0.9
        Nominal coverage of the intervals.
    random_state : int, default=0
        Seed for sampling tasks where not all of them are used.
    progress : bool, default=False
        Show a progress bar of the evaluation.
    csv_format : tuple of str, default=(",", ".", "utf-8")
        Delimiter, decimal mark and encoding of the CSV files.

    Returns
    -------
    Path
        ``out``.
    """
    check_is_fitted(learner, "columns_in_")
    if isinstance(learner, PaperLearner):
        raise TypeError(f"learner: {type(learner).__name__} has no report; print its summary()")
    check_target(out)  # before the evaluation, which may take minutes
    target, note, has_classes = (
        str(learner.columns_in_["target"] or "the target"),
        "",
        is_classifier(learner),
    )
    title = title or f"{len(tasks):,} tailored models of {target}"
    if evaluation is None:
        options: dict[str, Any] = {
            "coverage": coverage,
            "random_state": random_state,
            "progress": progress,
        }
        evaluation, note = _evaluate(learner, tasks, **options)
    sections = EvaluationSections(evaluation, target, csv_format)
    content = {"Predictions": sections.predictions()}
    if evaluation.has_intervals:
        content["Coverage of the intervals"] = sections.coverage()
    summaries = list(learner.summaries().values()) if has_classes else [learner.summary()]
    if len(summaries) == 1:
        order = np.random.default_rng(random_state).permutation(len(tasks))
        model, drawn = learner, tasks[np.sort(order[:MAX_TASKS])]
        if has_classes:
            model, drawn = (
                learner.learners_[0],
                drawn.replace(y=target_positions(drawn, learner.classes_)),
            )
            target = f"the probability of {learner.classes_[1]}"
        sampled = f"<p>A random sample of {len(drawn)} of the {len(tasks):,} tasks is drawn.</p>"
        parts = ModelSections(model, drawn, target, coverage, csv_format)
        content["Fixed effects"] = parts.fixed_effects(summaries[0].tables["effects"])
        content["Coefficients of the tasks"] = parts.effects() + sampled * (len(drawn) < len(tasks))
        if tasks.n_features:
            content["Single tasks"] = parts.task_fits()
    content["Accuracy by number of support rows"] = sections.accuracy()
    content["Model"] = "".join(_model(summary, csv_format) for summary in summaries)
    data = tasks.describe()
    if evaluation.loss not in (
        "squared",
        "absolute",
    ):  # the loss is already the one that the hint recommends
        data = replace(
            data, notes=[note for note in data.notes if note != hint_about_target(tasks.y)]
        )
    content["Data"] = f"<pre>{escape(str(data))}</pre>"
    write_atomically(out, html_page(title, sections.opening(note), content).encode())
    return Path(out)


def _evaluate(
    learner: Any, tasks: TaskSet, random_state: int, **options: Any
) -> tuple[Evaluation, str]:
    """Return the evaluation of all tasks, or of a random sample, and a note about the sample.

    Large data are sampled, because a page should take minutes, not hours.
    """
    order = np.random.default_rng(random_state).permutation(len(tasks))[:MAX_EVALUATED_TASKS]
    n = int(np.searchsorted(np.cumsum(tasks.sizes[order]), MAX_EVALUATED_ROWS, "right"))
    n = max(n, min(10, len(order)))
    sample = tasks if n >= len(tasks) else tasks[np.sort(order[:n])]
    loss = Bernoulli() if is_classifier(learner) else learner.loss_
    methods = {**usual_methods(loss), "tailored": clone(learner)}
    evaluation = evaluate(sample, methods, loss=loss, random_state=random_state, **options)
    note = ""
    if len(sample) < len(tasks):
        note = f" A random sample of {len(sample):,} of the {len(tasks):,} tasks was evaluated."
    if len(evaluation.labels) < len(sample):
        note += f" Tasks with at most {evaluation.supports[-1]} rows were only used for fitting."
    return evaluation, note


def _model(summary: Summary, csv_format: CsvFormat) -> str:
    """Return a summary without its errors, which are those of other tasks and other numbers of support rows."""
    tables = (table for name, table in summary.printed_tables.items() if name != "errors")
    return summary.html_text + "".join(_saved(table, csv_format) for table in tables)


def _saved(
    table: Table, csv_format: CsvFormat, numbers: Mapping[str, Sequence[Any]] | None = None
) -> str:
    """Return a table and a link that saves its numbers as a CSV file."""
    return f'<div class="scroll">{table.html}</div>{csv_link(table.title, numbers or table.columns, csv_format)}'


@dataclass(frozen=True)
class EvaluationSections:
    """Sections about the accuracy on new tasks."""

    evaluation: Evaluation
    target: str
    csv_format: CsvFormat

    @property
    def ends(self) -> tuple[str, str]:
        """The smallest and the largest number of support rows as text."""
        few, supports = {0: "no rows", 1: "one row"}, self.evaluation.supports
        return few.get(supports[0], f"{supports[0]} rows"), few.get(
            supports[-1], f"{supports[-1]} rows"
        )

    def opening(self, note: str) -> str:
        """Return the error on new tasks, the data it was measured on, the comparison with baselines, and a figure."""
        evaluation, (first, last) = self.evaluation, self.ends
        mean, by_method = (
            evaluation.mean,
            dict(zip(evaluation.methods, evaluation.mean[:, -1], strict=True)),
        )
        text = (
            f"<p><strong>The mean {error_name(evaluation.loss)} of {escape(self.target)} is {format_number(mean[0, -1])} with "
            f"{last} of a new task, and {format_number(mean[0, 0])} with {first}.</strong> It was measured on "
            f"{evaluation.errors.shape[2]:,} held-out tasks with {evaluation.n_query:,} query rows, by models that were fitted to "
            f"the other tasks of this table.{note}"
        )
        if len(mean) > 1:
            best = 1 + int(np.argmin(mean[1:, -1]))
            gains = (evaluation.errors[best, -1] - evaluation.errors[0, -1]) / (
                mean[best, -1] or 1.0
            )
            gain, error = 100.0 * gains.mean(), 100.0 * standard_errors(gains)
            text += (
                f" With {last}, the best of {len(mean) - 1} baselines ({escape(evaluation.methods[best])}) has "
                f"{format_number(mean[best, -1])}: {escape(evaluation.methods[0])} is {abs(gain):.1f} % {'better' if gain >= 0 else 'worse'}"
                f"{', which is within two standard errors' * bool(abs(gain) <= 2.0 * error)}."
            )
            is_better = by_method.get("pooled boosting", np.inf) < mean[0, -1]
            if evaluation.loss in ("squared", "absolute") and is_better:
                text += " Pooled boosting is better: fit it first, and tailored to what it leaves (how-to “Boosting first”)."
        axes = new_axes(1)
        RowsDisplay.from_evaluation(evaluation, ax=axes)
        band = "The band is one standard error. Errors far above the others are only in the table."
        return f"{text}</p>{figures(axes, 'Error by number of support rows')}<p><small>{band}</small></p>"

    def predictions(self) -> str:
        """Return figures of observed against predicted targets, or of the calibration of class probabilities."""
        evaluation, last = self.evaluation, self.ends[1]
        if evaluation.classes:
            axes = new_axes(1)
            bins = CalibrationDisplay.from_evaluation(evaluation, ax=axes[0])
            gaps = 100.0 * np.abs(bins.prob_true - bins.prob_pred)
            return (
                f"<p>With {last}, the observed frequency of {escape(bins.label)} differs from its predicted probability by at "
                f"most {gaps.max():.1f} percentage points in bins of equal size (two standard errors of that bin: "
                f"{200.0 * bins.standard_errors[gaps.argmax()]:.1f}).</p>"
            ) + figures(axes, "Observed frequency against predicted probability")
        table = evaluation.to_frame()
        rows = np.asarray(table["support"]) == evaluation.supports[-1]
        columns = {name: np.asarray(table[name])[rows] for name in ("task", "target", "prediction")}
        axes, arrays = new_axes(2), (columns["target"], columns["prediction"])
        style: dict[str, Any] = {
            "subsample": 1_000,
            "random_state": 0,
            "scatter_kwargs": {"s": 7, "alpha": 0.5},
        }
        for ax, kind in zip(axes, ("actual_vs_predicted", "residual_vs_predicted"), strict=True):
            PredictionErrorDisplay.from_predictions(*arrays, kind=kind, ax=ax, **style)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(pyplot().AutoLocator())
        return (
            f"<p>Targets of held-out tasks and their residuals, with {last} of each task.</p>"
            + figures(axes, "Observed against predicted", "Residuals")
            + csv_link("Predictions", columns, self.csv_format)
        )

    def coverage(self) -> str:
        """Return the coverage and the mean width of the intervals."""
        evaluation, (first, last) = self.evaluation, self.ends
        covered, widths = 100.0 * evaluation.covered[0], evaluation.widths[0]
        percent = " to ".join(
            dict.fromkeys(f"{share:.1f}" for share in (covered.min(), covered.max()))
        )
        axes = new_axes(2)
        RowsDisplay.from_evaluation(evaluation, ax=axes)
        pyplot().close(axes[0].figure)  # the errors, which are in the opening
        return (
            f"<p>The {100.0 * evaluation.coverage:g} % prediction intervals contain {percent} % of the targets; their mean "
            f"width is {format_number(widths[0])} with {first} and {format_number(widths[-1])} with {last}.</p>"
        ) + figures(axes[1:], "Coverage by number of support rows")

    def accuracy(self) -> str:
        """Return a table of every score."""
        records = self.evaluation.records()
        numbers = {name: [one[name] for one in records] for name in records[0]}
        tables = "".join(
            _saved(table, self.csv_format, numbers) for table in self.evaluation.tables.values()
        )
        return tables + "".join(
            f"<p><small>{escape(text)}</small></p>" for text in self.evaluation.caption
        )


@dataclass(frozen=True)
class ModelSections:
    """Sections about the coefficients of one model, and of the tasks that are drawn."""

    learner: Any
    tasks: TaskSet
    target: str
    coverage: float
    csv_format: CsvFormat

    @cached_property
    def X(self) -> Array:
        """The rows of the tasks."""
        return dense(self.tasks.X)

    @cached_property
    def effects_and_priors(self) -> tuple[Array, Array]:
        """The coefficients of the tasks and their prior means, (T, d) each."""
        values, _, _, priors = effects_of(self.learner, self.tasks)
        return values, priors

    @cached_property
    def levels(self) -> tuple[Array, Array]:
        """The linear predictor of each task at the feature means, and that of its prior mean, (T,) each."""
        values, priors = self.effects_and_priors
        means = np.append(self.X.mean(axis=0), 1.0)[: values.shape[1]]
        return values @ means, priors @ means

    def fixed_effects(self, effects: Table) -> str:
        """Return a forest plot of the fixed effects of the features."""
        table = effects.columns
        scales = dict(zip(names_of(self.learner), self.X.std(axis=0), strict=False))
        scale = np.array([scales.get(name, np.nan) for name in table["column"]])
        sizes, errors = (scale * table.get(name, np.nan) for name in ("fixed effect", "std. error"))
        known = np.flatnonzero(np.isfinite(sizes))
        if not len(known):
            return "<p>The model has no fixed effects of features.</p>"
        sizes, margin = sizes[known], norm.ppf(0.975) * errors[known]
        names, ends = np.array(table["column"])[known], (sizes - margin, sizes + margin)
        display = EffectsDisplay("one standard deviation", names, sizes, *ends, None, 0.95).plot()
        display.ax_.axvline(0.0, color="0.35", linestyle="--", linewidth=1.0, zorder=1)
        display.ax_.set_xlabel("effect of one standard deviation, with 95 % interval")
        return (
            "<p>Fixed effects times the standard deviations of their columns in the tasks below, so that their sizes are "
            'comparable. The <a href="#model">model</a> has them in the units of the columns.</p>'
        ) + figures([display.ax_], "Fixed effects with intervals")

    def effects(self) -> str:
        """Return caterpillar plots and tables of the coefficients that vary most and, if there are several, of the level."""
        values, priors = self.effects_and_priors
        differences, scale = values - priors, np.abs(values).mean(axis=0) + 1e-300
        # Coefficients without random effects are in the tables of the model.
        n_shown = np.clip((differences.std(axis=0) / scale > 1e-9).sum(), 1, MAX_EFFECTS)

        def panels() -> Iterator[tuple[str, str]]:
            if n_shown > 1:  # else it varies only with this coefficient
                name, (level, prior) = "level at the feature means", self.levels
                unknown = np.full(len(level), np.nan)
                arrays = self.tasks.labels, level, unknown, unknown
                found = EffectsDisplay(name, *arrays, None, self.coverage, prior).plot()
                found.ax_.set_xlabel(f"{name} minus prior mean")
                yield self._effect(found, prior, level=level)
            for j in most_varying(self.learner, differences)[:n_shown]:
                found = EffectsDisplay.from_estimator(
                    self.learner, self.tasks, j, coverage=self.coverage
                )
                bounds = {"lower": found.lower, "upper": found.upper}
                yield self._effect(found, priors[:, j], coefficient=found.effects, **bounds)

        level_note = (
            " To compare tasks as a whole, use the level at the feature means, which is drawn without intervals: the "
            "intercept plus all coefficients times the means of their columns. The (intercept) is the level where all "
            "features are 0."
        )
        return (
            "<p>Coefficients that vary between tasks, after adapting to all rows of each task, from the lowest to the highest. "
            "If side information changes the prior mean of a coefficient, the figure shows differences from the prior mean of each "
            f"task. Bars are {100 * self.coverage:g} % intervals.{level_note * bool(n_shown > 1)}</p>"
        ) + choice("coefficient", panels())

    def _effect(self, display: EffectsDisplay, prior: Array, **columns: Array) -> tuple[str, str]:
        """Return the name and the figure of a coefficient, with its numbers in the order of the figure."""
        order = np.argsort(display.effects - prior, kind="stable")
        labels = np.array([str(label) for label in self.tasks.labels])
        columns = {"task": labels, **columns, "prior mean": prior}
        sorted_columns = {key: column[order].tolist() for key, column in columns.items()}
        table = _saved(Table(display.column, sorted_columns, n_printed=len(order)), self.csv_format)
        drawn = image(display.figure_, f"{display.column} for {len(order)} tasks")
        return display.column, f"{drawn}<details><summary>Numbers</summary>{table}</details>"

    def task_fits(self) -> str:
        """Return figures of single tasks; the x-axis is the column with the largest effect among those with many values."""
        tasks, (level, prior) = self.tasks, self.levels
        extreme = np.argsort(
            np.where(tasks.sizes > 0, -np.abs(level - prior), np.inf), kind="stable"
        )
        extreme = extreme[: min(MAX_TASK_FIGURES, np.count_nonzero(tasks.sizes))]
        values = self.effects_and_priors[0][:, : tasks.n_features]
        sizes = np.sqrt((values**2).mean(axis=0)) * self.X.std(axis=0)
        j = int(
            np.argmax(sizes * [1.0 if len(np.unique(x)) > MAX_VALUES else 1e-9 for x in self.X.T])
        )

        def panels() -> Iterator[tuple[str, str]]:
            for label in tasks.labels[np.sort(extreme)]:
                display = TaskFitDisplay.from_estimator(
                    self.learner, tasks, label, j, coverage=self.coverage
                )
                alt = f"{display.target} against {display.column}, {display.task}"
                yield str(label), image(display.figure_, alt)

        rates = " per unit of exposure", " with the task's mean exposure"
        rate, unit = rates if tasks.exposure is not None else ("", "")
        band = f"The band is the {100 * self.coverage:g} % prediction interval of a new row{unit}."
        if not getattr(self.learner.loss_, "has_intervals", True):
            band = "Rows are at 0 and 1."
        listed = f"The list has the {MAX_TASK_FIGURES} tasks whose level differs most from their prior mean. "
        return (
            f"<p>The figures show {escape(self.target)}{rate} against {escape(names_of(self.learner)[j])}. The other columns are at the "
            f"task's means. {band} {listed * (len(tasks) > MAX_TASK_FIGURES)}The dashed line is the prediction without any rows "
            "of the task.</p>"
        ) + choice("task", panels())
