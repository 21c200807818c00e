"""Write a self-contained HTML page about a fitted learner, with figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import PredictionErrorDisplay
from sklearn.utils.validation import check_is_fitted

from .._utils.files import check_target, write_atomically
from .._utils.tables import Table, format_number
from ..evaluation import Evaluation, default_methods, evaluate
from ..gaussian.responses import Bernoulli
from ..paper.learners import PaperLearner
from ..tasks.rows import Array, dense, standard_errors
from ..tasks.task_set import TaskSet, target_positions
from .display import MAX_VALUES, RC, effects_of, most_varying, pyplot
from .html import choice, html_page, image, images
from .model import coefficient_names
from .rows_display import RowsDisplay
from .summary import Summary
from .task_displays import EffectsDisplay, TaskFitDisplay

#: Maximum number of tasks in a caterpillar plot, of caterpillar plots, and of tasks with their own
#: figure.
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
    progress: bool = False,
) -> Path:
    """Write an HTML page about a fitted learner and its tasks.

    The page starts with the accuracy on new tasks compared with baselines, and the coverage of the
    intervals.  Predictions and residuals, coefficients and fits of single tasks, the model and the
    data follow.  The page does not use the network.

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
        Evaluation whose first method is the learner.  By default, clones of the learner and
        baselines are cross-validated in five folds of tasks.  Data with more than 1,000 tasks or
        20,000 rows are sampled, which the page mentions.
    coverage : float, default=0.9
        Nominal coverage of the intervals.
    progress : bool, default=False
        Show a progress bar of the evaluation.

    Returns
    -------
    Path
        ``out``.
    """
    check_is_fitted(learner, "columns_in_")
    if isinstance(learner, PaperLearner):
        raise TypeError(f"learner: {type(learner).__name__} has no report; print its summary()")
    check_target(out)  # before the evaluation, which may take minutes
    target, note = str(learner.columns_in_["target"] or "the target"), ""
    if evaluation is None:
        evaluation, note = _evaluate(learner, tasks, coverage, progress)
    content = {"Predictions": _predictions(evaluation)}
    if not is_classifier(learner):
        content |= _coefficients(learner, tasks, target, coverage)
    elif len(learner.learners_) == 1:
        positions = tasks.replace(y=target_positions(tasks, learner.classes_))
        shown = f"the probability of {learner.classes_[1]}"
        content |= _coefficients(learner.learners_[0], positions, shown, coverage)
    tables = "".join(_scroll(table) for table in evaluation.tables)
    defined = "".join(f"<p><small>{escape(text)}</small></p>" for text in evaluation.caption)
    content["Accuracy by number of support rows"] = tables + defined
    summaries = learner.summaries().values() if is_classifier(learner) else [learner.summary()]
    content["Model"] = "".join(map(_model, summaries))
    # Notes are for those who have not fitted a model yet, such as on targets that may be counts.
    data = replace(tasks.describe(), notes=[])
    content["Data"] = f"<pre>{escape(str(data))}</pre>"
    title = title or f"{len(tasks):,} tailored models of {target}"
    page = html_page(title, _opening(evaluation, target, note), content)
    write_atomically(out, page.encode())
    return Path(out)


def _evaluate(
    learner: Any, tasks: TaskSet, coverage: float, progress: bool
) -> tuple[Evaluation, str]:
    """Return the evaluation of all tasks, or of a random sample, and a note about the sample.

    Large data are sampled, because a page should take minutes, not hours.
    """
    order = np.random.default_rng(0).permutation(len(tasks))[:MAX_EVALUATED_TASKS]
    n = int(np.searchsorted(np.cumsum(tasks.sizes[order]), MAX_EVALUATED_ROWS, "right"))
    n = max(n, min(10, len(order)))
    sample = tasks if n >= len(tasks) else tasks[np.sort(order[:n])]
    loss = Bernoulli() if is_classifier(learner) else learner.loss_
    methods = default_methods(loss, clone(learner))
    evaluation = evaluate(sample, methods, loss=loss, coverage=coverage, progress=progress)
    note = ""
    if len(sample) < len(tasks):
        note = f" A random sample of {len(sample):,} of the {len(tasks):,} tasks was evaluated."
    if len(evaluation.labels) < len(sample):
        note += f" Tasks with at most {evaluation.supports[-1]} rows were only used for fitting."
    return evaluation, note


def _model(summary: Summary) -> str:
    """Return a summary without its errors, which are those of other tasks and other numbers of
    support rows.
    """
    errors = summary.tables.get("errors")
    tables = (_scroll(table) for table in summary.printed_tables if table is not errors)
    return summary.html_text + "".join(tables)


def _scroll(table: Table) -> str:
    return f'<div class="scroll">{table.html}</div>'


def _new_axes(n: int) -> list[Any]:
    """Return the axes of n separate figures."""
    with pyplot().rc_context(RC):
        return [pyplot().subplots(figsize=(3.9, 3.2), layout="constrained")[1] for _ in range(n)]


def _rows(n: int) -> str:
    return {0: "no rows", 1: "one row"}.get(n, f"{n} rows")


def _opening(evaluation: Evaluation, target: str, note: str) -> str:
    """Return the error on new tasks, the data it was measured on, the comparison with baselines,
    and a figure.
    """
    mean, errors = evaluation.mean, evaluation.errors
    first, last = _rows(evaluation.supports[0]), _rows(evaluation.supports[-1])
    n_query = len(evaluation.predictions) // len(evaluation.supports)
    text = (
        f"<p><strong>The mean {evaluation.error_name} of {escape(target)} is "
        f"{format_number(mean[0, -1])} with {last} of a new task, and {format_number(mean[0, 0])} "
        f"with {first}.</strong> It was measured on {len(evaluation.labels):,} held-out tasks with "
        f"{n_query:,} query rows, by models that were fitted to the other tasks of this "
        f"table.{note}"
    )
    if len(mean) > 1:
        best = 1 + int(np.argmin(mean[1:, -1]))
        gains = 100.0 * (errors[best, -1] - errors[0, -1]) / (mean[best, -1] or 1.0)
        gain = gains.mean()
        is_close = abs(gain) <= 2.0 * standard_errors(gains)
        text += (
            f" With {last}, the best of {len(mean) - 1} baselines "
            f"({escape(evaluation.methods[best])}) has {format_number(mean[best, -1])}: "
            f"{escape(evaluation.methods[0])} is {abs(gain):.1f} % "
            f"{'better' if gain >= 0 else 'worse'}"
            ""
            f"{', which is within two standard errors' * bool(is_close)}."
        )
        if evaluation.methods[best] == "pooled boosting" and gain < 0:
            text += " Fit boosting first, and tailored to what it leaves (how-to “Boosting first”)."
    if evaluation.has_intervals:
        covered, widths = 100.0 * evaluation.covered[0], evaluation.scores["width"][0].mean(axis=1)
        shares = dict.fromkeys(f"{share:.1f}" for share in (covered.min(), covered.max()))
        text += (
            f" The {100.0 * evaluation.coverage:g} % prediction intervals contain "
            f"{' to '.join(shares)} % of the targets; their mean width is "
            f"{format_number(widths[0])} "
            f"with {first} and {format_number(widths[-1])} with {last}."
        )
    axes = _new_axes(1 + evaluation.has_intervals)
    RowsDisplay.from_evaluation(evaluation, ax=axes)
    alts = ("Error by number of support rows", "Coverage by number of support rows")
    figure = images(*(image(ax.figure, alt) for ax, alt in zip(axes, alts, strict=False)))
    band = "The band is one standard error. Errors far above the others are only in the table."
    return f"{text}</p>{figure}<p><small>{band}</small></p>"


def _predictions(evaluation: Evaluation) -> str:
    """Return figures of observed against predicted targets, or of the calibration of class
    probabilities.
    """
    table, last = evaluation.predictions, _rows(evaluation.supports[-1])
    rows = np.asarray(table["support"]) == evaluation.supports[-1]
    targets = np.asarray(table["target"])[rows]
    if evaluation.classes:
        (ax,) = _new_axes(1)
        for label in (
            evaluation.classes[-1:] if len(evaluation.classes) == 2 else evaluation.classes
        ):
            predicted = np.asarray(table[f"probability_{label}"])[rows]
            options: Any = {"n_bins": 10, "strategy": "quantile", "name": str(label), "ax": ax}
            CalibrationDisplay.from_predictions(targets == label, predicted, **options)
        ax.set(xlabel="predicted probability", ylabel="observed frequency")
        figure = images(image(ax.figure, "Observed frequency against predicted probability"))
        return (
            f"<p>Observed frequencies of held-out tasks in ten bins of the predicted probability, "
            f"with {last} of each task.</p>{figure}"
        )
    predicted = np.asarray(table["prediction"])[rows]
    parts = []
    for ax, kind in zip(
        _new_axes(2), ("actual_vs_predicted", "residual_vs_predicted"), strict=True
    ):
        options = {"subsample": 1_000, "random_state": 0, "scatter_kwargs": {"s": 7, "alpha": 0.5}}
        PredictionErrorDisplay.from_predictions(targets, predicted, kind=kind, ax=ax, **options)
        for axis in (ax.xaxis, ax.yaxis):  # scikit-learn fixes the ticks
            axis.set_major_locator(pyplot().AutoLocator())
        parts.append(image(ax.figure, kind.replace("_", " ")))
    text = f"Targets of held-out tasks and their residuals, with {last} of each task."
    return f"<p>{text}</p>{images(*parts)}"


def _coefficients(learner: Any, tasks: TaskSet, target: str, coverage: float) -> dict[str, str]:
    """Return sections about the coefficients and the fits of the tasks, or of a random sample of
    them.
    """
    order, sampled = np.random.default_rng(0).permutation(len(tasks)), ""
    if len(tasks) > MAX_TASKS:
        sampled = f"<p>A random sample of {MAX_TASKS} of the {len(tasks):,} tasks is drawn.</p>"
        tasks = tasks[np.sort(order[:MAX_TASKS])]
    X, names = dense(tasks.X), coefficient_names(learner)
    values, _, _, priors = effects_of(learner, tasks, coverage)
    differences = values - priors
    means = np.append(X.mean(axis=0), 1.0)[: len(names)]
    # Coefficients without random effects are in the tables of the model.
    scale = np.abs(values).mean(axis=0) + 1e-300
    n_shown = np.clip((differences.std(axis=0) / scale > 1e-9).sum(), 1, MAX_EFFECTS)

    def effects() -> Iterator[tuple[str, str]]:
        if n_shown > 1:  # else the level varies only with this coefficient
            level, unknown = "level at the feature means", np.full(len(tasks), np.nan)
            numbers = values @ means, unknown, unknown, np.nan, coverage, priors @ means
            display = EffectsDisplay(level, tasks.labels, *numbers).plot()
            display.ax_.set_xlabel(f"{level} minus prior mean")
            yield level, image(display.figure_, level)
        for j in most_varying(learner, differences)[:n_shown]:
            display = EffectsDisplay.from_estimator(learner, tasks, j, coverage=coverage)
            drawn = image(display.figure_, f"{display.column} of {len(tasks)} tasks")
            columns: dict[str, Any] = {"task": [str(label) for label in tasks.labels]}
            columns |= {
                "coefficient": display.effects.tolist(),
                "lower": display.lower.tolist(),
                "upper": display.upper.tolist(),
                "prior mean": priors[:, j].tolist(),
            }
            table = _scroll(Table("", columns, n_printed=len(tasks)))
            yield names[j], f"{drawn}<details><summary>Numbers</summary>{table}</details>"

    level_note = (
        " To compare tasks as a whole, use the level at the feature means, which is drawn without "
        "intervals: the intercept plus all coefficients times the means of their columns. The "
        "(intercept) is the level where all features are 0."
    )
    text = (
        "<p>Coefficients that vary between tasks, after adapting to all rows of each task, from "
        "the "
        "lowest to the highest. If side information changes the prior mean of a coefficient, the "
        "figure shows differences from the prior mean of each task. Bars are "
        f"{100 * coverage:g} % intervals.{level_note * bool(n_shown > 1)}</p>"
    )
    sections = {"Coefficients of the tasks": text + choice("coefficient", effects()) + sampled}
    if tasks.n_features:
        deviations = np.abs(differences @ means)
        sections["Single tasks"] = _task_fits(learner, tasks, values, deviations, target, coverage)
    return sections


def _task_fits(
    learner: Any, tasks: TaskSet, values: Array, deviations: Array, target: str, coverage: float
) -> str:
    """Return figures of single tasks against the column with the largest effect, if possible one
    with many values.
    """
    with_rows = np.flatnonzero(tasks.sizes)
    extreme = with_rows[np.argsort(-deviations[with_rows], kind="stable")][:MAX_TASK_FIGURES]
    X = dense(tasks.X)
    scales = X.std(axis=0)
    scales[[len(np.unique(x)) <= MAX_VALUES for x in X.T]] *= 1e-9
    j = int(np.argmax(np.sqrt((values[:, : tasks.n_features] ** 2).mean(axis=0)) * scales))

    def panels() -> Iterator[tuple[str, str]]:
        for label in tasks.labels[np.sort(extreme)]:
            options: Any = {"column": j, "coverage": coverage}
            display = TaskFitDisplay.from_estimator(learner, tasks, label, **options)
            alt = f"{display.target} against {display.column}, {display.task}"
            yield str(label), image(display.figure_, alt)

    rate, unit = "", ""
    if tasks.exposure is not None:
        rate, unit = " per unit of exposure", " with the task's mean exposure"
    band = f"The band is the {100 * coverage:g} % prediction interval of a new row{unit}."
    if not getattr(learner.loss_, "has_intervals", True):
        band = "Rows are at 0 and 1."
    listed = (
        f"The list has the {MAX_TASK_FIGURES} tasks whose level differs most from their prior "
        "mean. "
    )
    return (
        f"<p>The figures show {escape(target)}{rate} against "
        f"{escape(coefficient_names(learner)[j])}. The other columns are at the task's means. "
        f"{band} "
        f"{listed * (len(with_rows) > MAX_TASK_FIGURES)}The dashed line is the prediction without "
        "any rows of the task.</p>"
    ) + choice("task", panels())
