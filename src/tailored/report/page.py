"""Write a self-contained HTML page about a fitted learner; figures are drawn by `tailored.displays`."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from .._utils.files import write_atomically
from .._version import __version__
from ..baselines import class_positions
from ..displays import CalibrationDisplay, EffectsDisplay, RowsDisplay, TaskFitDisplay
from ..displays.base import RC, effects_of, names_of, pyplot
from ..evaluation import Evaluation, cells, evaluate, usual_methods
from ..losses import error_name
from ..summaries.tables import Table, format_number
from ..tasks.rows import dense
from ..tasks.task_set import TaskSet

#: Largest numbers of tasks in a caterpillar plot, of such plots, and of tasks with a figure of their own.
MAX_TASKS, MAX_EFFECTS, MAX_TASK_FIGURES = 150, 12, 40
#: Largest numbers of tasks and rows of the evaluation; they are sampled from larger data.
MAX_EVALUATED_TASKS, MAX_EVALUATED_ROWS = 1_000, 20_000
#: Shows the figure that is selected in a list; without JavaScript the first one is shown.
_SCRIPT = """
document.documentElement.classList.add("js");
for (const list of document.querySelectorAll("select")) list.addEventListener("change", () => {
  for (const panel of document.querySelectorAll(`[data-${list.id}]`)) panel.hidden = panel.getAttribute(`data-${list.id}`) !== list.value;
});
"""


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
) -> Path:
    """Write an HTML page about a fitted learner and its tasks.

    The page has the accuracy on new tasks compared with baselines, the coverage of the prediction intervals, the data,
    the summary of the model, caterpillar plots of the coefficients, and the fits of single tasks.  It needs no network.

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
        Accuracy of the learner, which is its first method.  By default clones of the learner and baselines are fitted in
        five folds of the tasks, or of a random sample of at most 1,000 tasks and 20,000 rows; the page says so.
    coverage : float, default=0.9
        Nominal coverage of the intervals.
    random_state : int, default=0
        Samples tasks where not all of them are used.
    progress : bool, default=False
        Show a progress bar of the evaluation.

    Returns
    -------
    Path
        ``out``.
    """
    target, note = str(learner.columns_in_["target"] or "the target"), ""
    # A classifier has one learner of two classes, or one for each of more.
    models: Any = getattr(learner, "learners_", [learner])
    classes: Any = getattr(learner, "classes_", ())
    names = [*classes[1:]] if len(classes) == 2 else [*classes] or [None]
    if evaluation is None:
        sample, loss = _evaluation_sample(tasks, random_state), models[0].loss_
        methods = {**usual_methods(loss), "tailored": clone(learner)}
        options: Any = {"coverage": coverage, "random_state": random_state, "progress": progress}
        evaluation = evaluate(sample, methods, loss=loss, **options)
        if len(sample) < len(tasks):
            note = f"<p>A random sample of {len(sample):,} of the {len(tasks):,} tasks was evaluated.</p>"
    drawn = tasks
    if len(tasks) > MAX_TASKS:
        drawn = tasks[np.sort(np.random.default_rng(random_state).permutation(len(tasks))[:MAX_TASKS])]
    sections = [
        ("accuracy", "Accuracy on new tasks", _accuracy(evaluation, target) + note),
        ("data", "Data", f"<pre>{escape(str(tasks.describe()))}</pre>"),
        ("model", "Model", "".join(_model(*each) for each in zip(models, names, strict=True))),
    ]
    if len(models) == 1:
        shown = target
        if len(classes):
            drawn = drawn.replace(y=class_positions(drawn, classes))
            shown = f"Probability of {names[0]}"
        sections += [
            ("effects", "Coefficients of the tasks", _effects(models[0], drawn, coverage)),
            ("tasks", "Single tasks", _task_fits(models[0], drawn, shown, coverage)),
        ]
    write_atomically(out, _page(title or f"{target}: {len(tasks):,} tailored models", sections).encode())
    return Path(out)


def _evaluation_sample(tasks: TaskSet, seed: int) -> TaskSet:
    """Return all tasks, or a random sample, so that a page takes minutes and not hours."""
    order = np.random.default_rng(seed).permutation(len(tasks))[:MAX_EVALUATED_TASKS]
    n = int(np.searchsorted(np.cumsum(tasks.sizes[order]), MAX_EVALUATED_ROWS, "right"))
    n = max(n, min(10, len(order)))
    return tasks if n >= len(tasks) else tasks[np.sort(order[:n])]


def _accuracy(evaluation: Evaluation, target: str) -> str:
    """Return the headline, the figures of error and coverage, and the table of errors."""
    mean = evaluation.mean
    first, last = (_count(n) for n in (evaluation.supports[0], evaluation.supports[-1]))
    text = (
        f"<p><strong>The mean {error_name(evaluation.loss)} of {escape(target)} is {format_number(mean[0, 0])} with {first} of a new "
        f"task, and {format_number(mean[0, -1])} with {last}.</strong>"
    )
    if len(mean) > 1:
        best = 1 + int(np.argmin(mean[1:, -1]))
        difference = evaluation.errors[best, -1] - evaluation.errors[0, -1]
        gain = 100.0 * float(difference.mean()) / mean[best, -1] if mean[best, -1] > 0 else 0.0
        text += (
            f" With {last}, the best baseline ({escape(evaluation.methods[best])}) has {format_number(mean[best, -1])}: "
            f"tailored models are {abs(gain):.1f} % {'better' if gain >= 0 else 'worse'}"
        )
        noise = 2.0 * float(difference.std(ddof=1)) / np.sqrt(len(difference))
        text += ", which is within two standard errors." if abs(difference.mean()) <= noise else "."
    if has_coverage := bool(np.isfinite(evaluation.covered[0]).all()):
        low, high = 100.0 * evaluation.covered[0].min(), 100.0 * evaluation.covered[0].max()
        text += (
            f" The {100.0 * evaluation.coverage:g} % prediction intervals contain {low:.1f} to {high:.1f} % of the targets; "
            f"their mean width is {format_number(evaluation.widths[0, 0])} with {first} and "
            f"{format_number(evaluation.widths[0, -1])} with {last}."
        )
    with pyplot().rc_context(RC):
        n_figures = 1 + (has_coverage or bool(evaluation.classes))
        axes = [pyplot().subplots(figsize=(3.9, 3.2), layout="constrained")[1] for _ in range(n_figures)]
        RowsDisplay.from_evaluation(evaluation, ax=axes[: 1 + has_coverage])
    alts = ["Error by number of support rows", "Coverage by number of support rows"]
    if evaluation.classes:
        alts[1] = "Observed frequency against predicted probability"
        bins = CalibrationDisplay.from_evaluation(evaluation, ax=axes[1])
        gaps = 100.0 * np.abs(bins.prob_true - bins.prob_pred)
        text += (
            f" With {last}, the observed frequency of {escape(bins.label)} differs from its predicted probability by at most "
            f"{gaps.max():.1f} percentage points in bins of equal size (two standard errors of that bin: "
            f"{200.0 * bins.standard_errors[gaps.argmax()]:.1f})."
        )
    text += f"</p><p>{evaluation.errors.shape[2]:,} whole tasks were held out, with {evaluation.n_query:,} query rows.</p>"
    tables = ""
    for score, values in evaluation.by_name.items():
        columns = dict(zip(map(str, evaluation.supports), zip(*cells(values), strict=True), strict=True))
        title = f"Mean {score} by number of support rows"
        rows = {"support rows": evaluation.methods, **columns}
        tables += _scroll(Table(title, rows, n_printed=len(mean)))
    images = "".join(_image(ax.figure, alt) for ax, alt in zip(axes, alts, strict=False))
    caption = (
        "<figcaption>Errors far above the others are only in the table.</figcaption>" if len(mean) > 1 else ""
    )
    return (
        f'{text}<figure><div class="pair">{images}</div>{caption}</figure>{tables}'
        f"<p><small>{escape(evaluation.caption)}</small></p>"
    )


def _count(n: int) -> str:
    return "no rows" if n == 0 else "one row" if n == 1 else f"{n} rows"


def _model(learner: Any, name: Any) -> str:
    """Return the summary of a learner, or of the learner of the class with this name."""
    summary = learner.summary()
    text = (escape(sentence.replace("the second class", str(name))) for sentence in summary.text)
    sentences = "".join(f"<li>{sentence}</li>" for sentence in text)
    return f"<ul>{sentences}</ul>" + "".join(_scroll(table) for table in summary.printed_tables)


def _effects(learner: Any, tasks: TaskSet, coverage: float) -> str:
    """Return caterpillar plots with their numbers, for the coefficients that vary most."""
    names, values = names_of(learner), effects_of(learner, tasks)[0]
    variation = values.std(axis=0) / (np.abs(values).mean(axis=0) + 1e-300)
    # Coefficients that do not vary are in the table of fixed effects.
    n_shown = np.clip((variation > 1e-9).sum(), 1, MAX_EFFECTS)
    shown = sorted(np.argsort(-variation, kind="stable")[:n_shown].tolist())

    def panels() -> Iterator[tuple[str, str]]:
        for j in shown:
            display = EffectsDisplay.from_estimator(learner, tasks, j, coverage=coverage)
            columns = {
                "task": [str(label) for label in display.labels],
                "coefficient": display.effects.tolist(),
            }
            columns |= {"lower": display.lower.tolist(), "upper": display.upper.tolist()}
            numbers = _scroll(Table(names[j], columns, n_printed=len(tasks)))
            image = _image(display.figure_, f"Coefficient of {names[j]} for {len(tasks)} tasks")
            yield names[j], f"{image}<details><summary>Numbers</summary>{numbers}</details>"

    return (
        "<p>Coefficients that vary between tasks, after adapting to all rows of each task, in increasing order. "
        f"Bars are {100 * coverage:g} % intervals. The dashed line is the fixed effect.</p>"
        + _choice("effect", "Coefficient of", panels())
    )


def _task_fits(learner: Any, tasks: TaskSet, target: str, coverage: float) -> str:
    """Return figures of single tasks over the column whose coefficient varies most, or is largest if none varies."""
    weights = learner.adapt_many(tasks).weights_[:, : tasks.n_features]
    varies = (weights.std(axis=0) > 1e-9 * np.abs(weights).mean(axis=0)).any()
    size = weights.std(axis=0) if varies else np.abs(weights).mean(axis=0)
    j = int(np.argmax(size * dense(tasks.X).std(axis=0)))
    shown = "varies most between tasks" if varies else "is largest"
    band = f"The band is the {100 * coverage:g} % prediction interval of a new row. "
    if not getattr(learner.loss_, "has_intervals", True):
        band = "Rows are at 0 and 1. "

    def panels() -> Iterator[tuple[str, str]]:
        for label in tasks.labels[tasks.sizes > 0][:MAX_TASK_FIGURES]:
            display = TaskFitDisplay.from_estimator(learner, tasks, label, j, coverage=coverage)
            alt = f"{display.target} against {display.column}, {display.task}"
            yield str(label), _image(display.figure_, alt)

    return (
        f"<p>{escape(target)} against the column whose coefficient {shown}. The other columns are at the task's means. "
        f"{band}The dashed line or triangle is the prediction without any rows of the task.</p>"
        + _choice("task", "Task", panels())
    )


def _choice(name: str, label: str, panels: Iterator[tuple[str, str]]) -> str:
    """Return a list to choose from, and a figure for each choice; the first is shown."""
    options, figures = [], []
    for i, (text, content) in enumerate(panels):
        options.append(f'<option value="{i}">{escape(text)}</option>')
        figures.append(f'<figure data-{name}="{i}"{" hidden" if i else ""}>{content}</figure>')
    return (
        f'<p class="choice"><label for="{name}">{label} </label><select id="{name}">{"".join(options)}</select></p>'
        + "".join(figures)
    )


def _image(figure: Any, alt: str) -> str:
    """Return a figure as an embedded SVG image, and close it."""
    file, plt = io.BytesIO(), pyplot()
    with plt.rc_context(RC):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(alt, quote=True)}" src="data:image/svg+xml;base64,{data}">'


def _scroll(table: Table) -> str:
    return f'<div class="scroll">{table.html}</div>'


def _page(title: str, sections: Sequence[tuple[str, str, str]]) -> str:
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    links = "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in sections)
    section = '<section id="{}"><h2>{}</h2>{}</section>'
    body = "".join(section.format(*each) for each in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<h1>{escape(title)}</h1><p class="lead">Written by tailored {__version__}.</p>'
        f'<nav aria-label="Sections">{links}</nav><main>{body}</main><script>{_SCRIPT}</script></body></html>\n'
    )
