"""Write a self-contained HTML page about a fitted learner, with figures."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.calibration import CalibrationDisplay

from .._utils.files import check_target, write_atomically
from .._utils.progress import printable
from .._utils.tables import Table, format_number, plural
from .._version import __version__
from ..tasks.rows import dense
from ..tasks.task_set import TaskSet, check_task_set, target_positions
from .displays import (
    RC,
    EffectsDisplay,
    TaskFitDisplay,
    effects_of,
    most_varying,
    new_axes,
    pyplot,
)
from .model import FittedModel, compare_errors
from .sentences import describe_difference
from .summary import Summaries

#: Maximum number of tasks in a caterpillar plot, and of tasks with their own figure.
MAX_TASKS, MAX_TASK_FIGURES = 150, 8
#: Width and height of figures that are next to each other, in inches.
SIZE = 3.9, 3.2


def write_report(path: Path | str, learner: Any, tasks: TaskSet, evaluation: Any = None) -> Path:
    """Write an HTML page about a fitted learner and its tasks.

    It has the summary, the evaluation, coefficients and fits of single tasks, and does not use the
    network.

    Parameters
    ----------
    path : path
        The HTML file.
    learner
        A fitted learner.
    tasks : TaskSet
        The training tasks, or other tasks of the same kind.
    evaluation : Evaluation, optional
        ``tailored.evaluate(tasks, learner)``. It takes longer than the rest, and is left out by
        default.
    """
    check_task_set(tasks)
    summary = learner.summary(details=True)
    summaries = list(summary.values()) if isinstance(summary, Summaries) else [summary]
    check_target(path)
    target = str(learner.columns_in_["target"] or "the target")
    title = f"{len(tasks):,} tailored models of {target}"
    lines = [summaries[0].title, *(line for each in summaries for line in each.verdict)]
    opening = f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
    sections = {}
    if evaluation is not None:
        sections["Accuracy on new tasks"] = _accuracy(evaluation, target)
    # Notes are for those who have not fitted a model yet, such as on targets that may be counts.
    data = replace(tasks.describe(), caption="")
    if is_classifier(learner):
        target = f"the probability of {learner.classes_[1]}"
        tasks = tasks.replace(y=target_positions(tasks, learner.classes_))
        learner = learner.learners_[0]
    if len(summaries) == 1:
        sections |= _coefficients(learner, tasks, target)
    model = (replace(each, verdict=()).html for each in summaries)
    sections |= {"Model": "".join(model), "Data": f"<pre>{escape(str(data))}</pre>"}
    write_atomically(path, _page(title, opening, sections).encode())
    return Path(path)


def _page(title: str, opening: str, sections: Mapping[str, str]) -> str:
    """Return a page with an opening, links to the sections, and the sections by heading."""
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    links, body = "", ""
    for heading, content in sections.items():
        anchor = re.sub(r"\W+", "-", heading.lower())
        links += f'<a href="#{anchor}">{heading}</a>'
        body += f'<section id="{anchor}"><h2>{heading}</h2>{content}</section>'
    return printable(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<h1>{escape(title)}</h1><p class="lead">Written by tailored {__version__}.</p>{opening}'
        f'<nav aria-label="Sections">{links}</nav><main>{body}</main></body></html>\n'
    )


def _image(figure: Any, alt: str) -> str:
    """Return a figure as an embedded SVG image with this alternative text, and close it."""
    file, plt = io.BytesIO(), pyplot()
    figure.set_layout_engine("none")  # takes longer than all else; the tight box replaces it
    options = {"transparent": True, "bbox_inches": "tight", "metadata": {"Date": None}}
    with plt.rc_context(RC):
        figure.savefig(file, format="svg", **options)
    plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(alt, quote=True)}" src="data:image/svg+xml;base64,{data}">'


def _row(axes: Mapping[str, Any]) -> str:
    """Return figures, given by their alternative texts and axes, next to each other; narrow screens
    show them below each other.
    """
    images = "".join(_image(ax.figure, alt) for alt, ax in axes.items())
    return f'<figure class="row">{images}</figure>'


def _accuracy(evaluation: Any, target: str) -> str:
    """Return the error on new tasks, the data it was measured on, the comparison with baselines,
    and figures.
    """
    mean, methods = evaluation.mean, evaluation.methods
    errors = dict(zip(methods, evaluation.errors[:, -1], strict=True))
    first, last = (plural(evaluation.supports[i], "row") for i in (0, -1))
    n_query = len(evaluation.predictions) // len(evaluation.supports)
    text = (
        f"<strong>The mean {evaluation.error_name} of {escape(target)} is "
        f"{format_number(mean[0, -1])} with {last} of a new task, and {format_number(mean[0, 0])} "
        f"with {first}.</strong> It was measured on {len(evaluation.labels):,} held-out tasks with "
        f"{n_query:,} query rows, by models that were fitted to other tasks of this table."
    )
    _, *others = compare_errors(errors, methods[0])
    if others:
        text += (
            f" With {last}, the error is {escape(describe_difference(*others[0]))}, which is the "
            f"best of {plural(len(others), 'baseline')}."
        )
    figures = {"Error by number of support rows": evaluation.plot(new_axes(*SIZE))}
    if evaluation.has_intervals:
        widths = evaluation.scores["width"][0].mean(axis=1)
        text += (
            f" The {100.0 * evaluation.coverage:g} % prediction intervals contain "
            f"{100.0 * evaluation.covered[0, -1]:.1f} % of the targets with {last}; their mean "
            f"width is {format_number(widths[-1])}, and {format_number(widths[0])} with {first}."
        )
    tables = "".join(table.html for table in evaluation.tables)
    figures |= _predictions(evaluation)
    return f"<p>{text}</p>{_row(figures)}{tables}"


def _predictions(evaluation: Any) -> dict[str, Any]:
    """Return the axes of observed against predicted targets, or of the calibration of class
    probabilities, by their alternative text.
    """
    table, ax = evaluation.predictions, new_axes(*SIZE)
    rows = np.asarray(table["support"]) == evaluation.supports[-1]
    targets = np.asarray(table["target"])[rows]
    for label in evaluation.classes[len(evaluation.classes) == 2 :]:
        predicted = np.asarray(table[f"probability_{label}"])[rows]
        CalibrationDisplay.from_predictions(
            targets == label, predicted, n_bins=10, strategy="quantile", name=str(label), ax=ax
        )
    if not evaluation.classes:
        predicted = np.asarray(table["prediction"])[rows]
        ax.plot(predicted[:1000], targets[:1000], "o", alpha=0.5)
        ax.axline((targets[0], targets[0]), slope=1.0, color="0.35", linestyle="--")
    text = f"with {plural(evaluation.supports[-1], 'row')} of each new task"
    ax.set(xlabel=f"predicted, {text}", ylabel="observed")
    return {f"Observed against predicted, {text}": ax}


def _coefficients(learner: Any, tasks: TaskSet, target: str) -> dict[str, str]:
    """Return sections about the coefficients and the fits of the tasks, or of a random sample of
    them.
    """
    text = (
        "Coefficients that vary between tasks, after adapting to all rows of each task, from the "
        "lowest to the highest. If side information changes the prior mean of a coefficient, the "
        "figure shows differences from the prior mean of each task. Bars are 90 % intervals. The "
        "level at the feature means, without intervals, compares tasks as a whole: it is the "
        "intercept plus all coefficients times the means of their columns. The (intercept) is the "
        "level where all features are 0."
    )
    if len(tasks) > MAX_TASKS:
        text += f" The first {MAX_TASKS} of the {len(tasks):,} tasks are drawn."
        tasks = tasks[:MAX_TASKS]
    values, _, _, priors = effects_of(learner, tasks)
    differences = values - priors
    levels = differences @ np.append(dense(tasks.X).mean(axis=0), 1.0)[: values.shape[1]]
    unknown, level = np.full(len(tasks), np.nan), "level at the feature means"
    arrays = levels, unknown, unknown, np.zeros(len(tasks))
    displays = [EffectsDisplay(level, tasks.labels, *arrays, np.nan).plot()]
    displays[0].ax_.set_xlabel(f"{level} minus prior mean")
    # Coefficients without random effects are in the tables of the model.
    n_varying = np.sum(differences.std(axis=0) > 1e-9 * np.abs(values).mean(axis=0))
    for column in most_varying(FittedModel(learner), differences)[: np.clip(n_varying, 1, 12)]:
        displays.append(EffectsDisplay.from_estimator(learner, tasks, column))
    content = f"<p>{text}</p>"
    for display in displays:
        image = _image(display.figure_, f"{display.column} of {len(tasks)} tasks")
        summary = f"<summary>{escape(display.column)}</summary>"
        content += f"<details{' open' * (display is displays[0])}>{summary}{image}</details>"
    table = learner.effects(tasks)
    columns: dict[str, Any] = {"task": [*map(str, table["task"])]}
    columns |= {name: np.asarray(table[name]) for name in ("column", "effect", "lower", "upper")}
    numbers = Table("", columns, n_printed=len(table)).html
    content += f"<details><summary>Numbers</summary>{numbers}</details>"
    sections = {"Coefficients of the tasks": content}
    with_rows = np.flatnonzero(tasks.sizes)
    extreme = with_rows[np.argsort(-np.abs(levels[with_rows]), kind="stable")[:MAX_TASK_FIGURES]]
    if tasks.n_features and len(extreme):
        sections["Single tasks"] = _task_fits(learner, tasks[np.sort(extreme)], target)
    return sections


def _task_fits(learner: Any, tasks: TaskSet, target: str) -> str:
    """Return figures of tasks, all against the same column."""
    figures, column = {}, None
    for label in tasks.labels:
        ax = new_axes(*SIZE)
        display = TaskFitDisplay.from_estimator(learner, tasks, label, column, ax=ax)
        column = display.column
        ax.get_legend().remove()
        figures[f"{display.target} against {column}, {display.task}"] = ax
    unit = " per unit of exposure" * (tasks.exposure is not None)
    band = " and the band the 90 % prediction interval of a new row"
    return (
        f"<p>The tasks whose level differs most from their prior mean: {escape(target)}{unit} "
        f"against {escape(str(column))}, with the other columns at the task's means. The line is "
        f"the tailored fit{band * bool(learner.prior_.has_intervals)}. The dashed line is the "
        f"prediction without any rows of the task.</p>{_row(figures)}"
    )
