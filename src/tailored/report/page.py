"""Write a self-contained HTML page about a fitted learner, with figures by `tailored.displays`."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import PredictionErrorDisplay

from .._utils.files import write_atomically
from .._version import __version__
from ..displays import CalibrationDisplay, EffectsDisplay, RowsDisplay, TaskFitDisplay
from ..displays.base import RC, effects_of, most_varying, names_of, pyplot
from ..displays.task_fit import MAX_VALUES
from ..evaluation import Evaluation, cells, evaluate, usual_methods
from ..losses import error_name
from ..summaries.tables import Table, format_number
from ..tasks.encoding import target_positions
from ..tasks.rows import dense, standard_errors, task_means
from ..tasks.task_set import TaskSet

#: Maximum number of tasks in a caterpillar plot, of caterpillar plots, and of tasks with their own figure.
MAX_TASKS, MAX_EFFECTS, MAX_TASK_FIGURES = 150, 12, 40
#: Maximum numbers of tasks and rows in the evaluation; larger data are sampled.
MAX_EVALUATED_TASKS, MAX_EVALUATED_ROWS = 1_000, 20_000
#: Matches the start of strings that a spreadsheet would execute as a formula.
_FORMULA = re.compile(r"^(?=[=@\t\r]|[-+](?![\d.]+$))")
#: Delimiter, decimal mark and encoding of CSV files.
_CSV_FORMAT = ContextVar("csv_format", default=(",", ".", "utf-8"))
#: JavaScript that shows the figure selected in a list.  Without JavaScript the first figure is shown.
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
    csv_format: tuple[str, str, str] = (",", ".", "utf-8"),
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
    _CSV_FORMAT.set(csv_format)
    target, note = str(learner.columns_in_["target"] or "the target"), ""
    # A classifier has one learner for two classes, and one learner per class for more classes.
    models: Any = getattr(learner, "learners_", [learner])
    classes: Any = getattr(learner, "classes_", ())
    names = [*classes[1:]] if len(classes) == 2 else [*classes] or [None]
    if evaluation is None:
        sample, loss = _evaluation_sample(tasks, random_state), models[0].loss_
        methods = {**usual_methods(loss), "tailored": clone(learner)}
        options: Any = {"coverage": coverage, "random_state": random_state, "progress": progress}
        evaluation = evaluate(sample, methods, loss=loss, **options)
        if len(sample) < len(tasks):
            note = f" A random sample of {len(sample):,} of the {len(tasks):,} tasks was evaluated."
        if len(evaluation.labels) < len(sample):
            note += f" Tasks with at most {evaluation.supports[-1]} rows were only used for fitting."
    drawn = tasks[np.sort(np.random.default_rng(random_state).permutation(len(tasks))[:MAX_TASKS])]
    n_drawn = f"A random sample of {len(drawn)} of the {len(tasks):,} tasks is drawn."
    sampled = f"<p>{n_drawn}</p>" if len(drawn) < len(tasks) else ""
    sections = [("predictions", "Predictions", _predictions(evaluation))]
    axes = _axes(1 + bool(np.isfinite(evaluation.covered[0]).all()))
    RowsDisplay.from_evaluation(evaluation, ax=axes)
    if len(axes) > 1:
        sections += [("coverage", "Coverage of the intervals", _coverage(evaluation, axes[1]))]
    if len(models) == 1:
        model, shown = models[0], target
        if len(classes):
            drawn, shown = drawn.replace(y=target_positions(drawn, classes)), f"the probability of {names[0]}"
        sections += [
            ("fixed", "Fixed effects", _fixed_effects(model, drawn)),
            ("effects", "Coefficients of the tasks", _effects(model, drawn, coverage) + sampled),
            ("tasks", "Single tasks", _task_fits(model, drawn, shown, coverage)),
        ]
    sections += [
        ("accuracy", "Accuracy by number of support rows", _accuracy(evaluation)),
        ("model", "Model", "".join(_model(*each) for each in zip(models, names, strict=True))),
        ("data", "Data", f"<pre>{escape(str(tasks.describe()))}</pre>"),
    ]
    opening = _opening(evaluation, target, note, axes[0], getattr(learner, "common", "") is None)
    title = title or f"{len(tasks):,} tailored models of {target}"
    write_atomically(out, _page(title, opening, sections).encode())
    return Path(out)


def _evaluation_sample(tasks: TaskSet, seed: int) -> TaskSet:
    """Return all tasks, or a random sample of them, so that a page takes minutes and not hours."""
    order = np.random.default_rng(seed).permutation(len(tasks))[:MAX_EVALUATED_TASKS]
    n = int(np.searchsorted(np.cumsum(tasks.sizes[order]), MAX_EVALUATED_ROWS, "right"))
    n = max(n, min(10, len(order)))
    return tasks if n >= len(tasks) else tasks[np.sort(order[:n])]


def _opening(evaluation: Evaluation, target: str, note: str, ax: Any, no_common: bool) -> str:
    """Return the error on new tasks, the data it was measured on, the comparison with baselines, and a figure."""
    mean, (first, last) = evaluation.mean, _ends(evaluation)
    text = (
        f"<p><strong>The mean {error_name(evaluation.loss)} of {escape(target)} is {format_number(mean[0, -1])} with {last} "
        f"of a new task, and {format_number(mean[0, 0])} with {first}.</strong> It was measured on "
        f"{evaluation.errors.shape[2]:,} held-out tasks with {evaluation.n_query:,} query rows, by models that were fitted to the "
        f"other tasks of this table.{note}"
    )
    if len(mean) > 1:
        best = 1 + int(np.argmin(mean[1:, -1]))
        gains = (evaluation.errors[best, -1] - evaluation.errors[0, -1]) / (mean[best, -1] or 1.0)
        gain, error = 100.0 * gains.mean(), 100.0 * standard_errors(gains)
        text += (
            f" With {last}, the best of {len(mean) - 1} baselines ({escape(evaluation.methods[best])}) has "
            f"{format_number(mean[best, -1])}: tailored is {abs(gain):.1f} % {'better' if gain >= 0 else 'worse'}"
            f"{', which is within two standard errors' * bool(abs(gain) <= 2.0 * error)}."
        )
        boosting = dict(zip(evaluation.methods, mean[:, -1], strict=True)).get("pooled boosting", np.inf)
        if no_common and evaluation.loss in ("squared", "absolute") and boosting < mean[0, -1]:
            text += " Pooled boosting is better: try <code>--common</code> (<code>common='auto'</code> in Python)."
    caption = "<p><small>The band is one standard error. Errors far above the others are only in the table.</small></p>"
    return f"{text}</p>{_figure([ax], 'Error by number of support rows')}{caption}"


def _predictions(evaluation: Evaluation) -> str:
    """Return figures of observed against predicted targets, or of the calibration of class probabilities."""
    last = _ends(evaluation)[1]
    if evaluation.classes:
        axes = _axes(1)
        bins = CalibrationDisplay.from_evaluation(evaluation, ax=axes[0])
        gaps = 100.0 * np.abs(bins.prob_true - bins.prob_pred)
        return (
            f"<p>With {last}, the observed frequency of {escape(bins.label)} differs from its predicted probability by at most "
            f"{gaps.max():.1f} percentage points in bins of equal size (two standard errors of that bin: "
            f"{200.0 * bins.standard_errors[gaps.argmax()]:.1f}).</p>"
        ) + _figure(axes, "Observed frequency against predicted probability")
    axes, arrays = _axes(2), (evaluation.targets, evaluation.predictions[-1])  # type: ignore[index]
    style: Any = {"subsample": 1_000, "random_state": 0, "scatter_kwargs": {"s": 7, "alpha": 0.5}}
    for ax, kind in zip(axes, ("actual_vs_predicted", "residual_vs_predicted"), strict=True):
        PredictionErrorDisplay.from_predictions(*arrays, kind=kind, ax=ax, **style)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(pyplot().AutoLocator())
    columns = {"task": evaluation.labels[evaluation.groups], "observed": arrays[0], "predicted": arrays[1]}
    text = f"<p>Targets of held-out tasks and their residuals, with {last} of each task.</p>"
    return text + _figure(axes, "Observed against predicted", "Residuals") + _csv("Predictions", columns)


def _coverage(evaluation: Evaluation, ax: Any) -> str:
    """Return the coverage and the mean width of the intervals."""
    covered, widths, (first, last) = 100.0 * evaluation.covered[0], evaluation.widths[0], _ends(evaluation)
    percent = " to ".join(sorted({f"{share:.1f}" for share in (covered.min(), covered.max())}, key=float))
    return (
        f"<p>The {100.0 * evaluation.coverage:g} % prediction intervals contain {percent} % of "
        f"the targets; their mean width is {format_number(widths[0])} with {first} and {format_number(widths[-1])} with {last}.</p>"
    ) + _figure([ax], "Coverage by number of support rows")


def _accuracy(evaluation: Evaluation) -> str:
    """Return a table of every score."""
    records, tables = evaluation.records(), ""
    numbers = {name: [one[name] for one in records] for name in records[0]}
    for score, values in evaluation.by_name.items():
        columns = dict(zip(map(str, evaluation.supports), zip(*cells(values), strict=True), strict=True))
        rows = {"support rows": evaluation.methods, **columns}
        title = f"Mean {score} by number of support rows"
        tables += _scroll(Table(title, rows, n_printed=len(evaluation.methods)), numbers)
    return f"{tables}<p><small>{escape(evaluation.caption)}</small></p>"


def _ends(evaluation: Evaluation) -> list[str]:
    """Return the smallest and the largest number of support rows as text."""
    few = {0: "no rows", 1: "one row"}
    return [few.get(n, f"{n} rows") for n in (evaluation.supports[0], evaluation.supports[-1])]


def _model(learner: Any, name: Any) -> str:
    """Return the summary of a learner without its errors; ``name`` is its class if it belongs to a classifier."""
    summary = learner.summary()
    # Errors in `fit` are those of other tasks and other numbers of support rows than the errors of the evaluation.
    summary.tables.pop("errors", None)
    text = "".join(f"<li>{escape(each.replace('the second class', str(name)))}</li>" for each in summary.text)
    return f"<ul>{text}</ul>" + "".join(_scroll(table) for table in summary.printed_tables)


def _fixed_effects(learner: Any, tasks: TaskSet) -> str:
    """Return a forest plot of the fixed effects of the features."""
    table = learner.summary().tables["effects"].columns
    scales = dict(zip(names_of(learner), dense(tasks.X).std(axis=0), strict=False))
    scale = np.array([scales.get(name, np.nan) for name in table["column"]])
    effects, errors = (scale * table.get(name, np.nan) for name in ("fixed effect", "std. error"))
    known = np.flatnonzero(np.isfinite(effects))
    if not len(known):
        return "<p>The model has no fixed effects of features.</p>"
    names, effects, bounds = np.array(table["column"])[known], effects[known], norm.ppf(0.975) * errors[known]
    ends = effects - bounds, effects + bounds
    display = EffectsDisplay("one standard deviation", names, effects, *ends, None, 0.95).plot()
    display.ax_.axvline(0.0, color="0.35", linestyle="--", linewidth=1.0, zorder=1)
    return (
        "<p>Fixed effects times the standard deviations of their columns, so that their sizes are comparable. The "
        '<a href="#model">model</a> has them in the units of the columns.</p>'
    ) + _figure([display.ax_], "Fixed effects with intervals")


def _effects(learner: Any, tasks: TaskSet, coverage: float) -> str:
    """Return caterpillar plots and tables of the coefficients that vary most."""
    values, _, _, priors = effects_of(learner, tasks)
    differences, scale = values - priors, np.abs(values).mean(axis=0) + 1e-300
    # Coefficients without random effects are in the tables of the model.
    n_shown = np.clip((differences.std(axis=0) / scale > 1e-9).sum(), 1, MAX_EFFECTS)
    means = np.append(dense(tasks.X).mean(axis=0), 1.0)[: values.shape[1]]
    level_note = (
        " To compare tasks as a whole, use the level at the feature means, which is drawn without intervals: the intercept "
        "plus all coefficients times the means of their columns. The (intercept) is the level where all features are 0."
    ) * bool(n_shown > 1)

    def panel(display: EffectsDisplay, prior: Any, **columns: Any) -> tuple[str, str]:
        name, order = display.column, np.argsort(display.effects - prior, kind="stable")
        columns = {"task": tasks.labels.astype(str), **columns, "prior mean": prior}
        numbers = Table(name, {key: column[order] for key, column in columns.items()}, n_printed=len(tasks))
        image = _image(display.figure_, f"{name} for {len(tasks)} tasks")
        return name, f"{image}<details><summary>Numbers</summary>{_scroll(numbers)}</details>"

    def panels() -> Iterator[tuple[str, str]]:
        if n_shown > 1:  # else it is the same as the only coefficient
            level, prior, unknown = values @ means, priors @ means, np.full(len(tasks), np.nan)
            name, labels = "level at the feature means", tasks.labels
            found = EffectsDisplay(name, labels, level, unknown, unknown, None, coverage, prior).plot()
            found.ax_.set_xlabel(f"{name} minus prior mean")
            yield panel(found, prior, level=level)
        for j in most_varying(learner, differences)[:n_shown]:
            found = EffectsDisplay.from_estimator(learner, tasks, j, coverage=coverage)
            yield panel(found, priors[:, j], coefficient=found.effects, lower=found.lower, upper=found.upper)

    return (
        "<p>Coefficients that vary between tasks, after adapting to all rows of each task, from the lowest to the highest. If "
        "side information changes the prior mean of a coefficient, the figure shows differences to the prior mean of each task. "
        f"Bars are {100 * coverage:g} % intervals.{level_note}</p>"
    ) + _choice("effect", "Coefficient", panels())


def _task_fits(learner: Any, tasks: TaskSet, target: str, coverage: float) -> str:
    """Return figures of single tasks; the x-axis is the column with the largest effect among those with many values."""
    weights, X = learner.adapt_many(tasks).weights_[:, : tasks.n_features], dense(tasks.X)
    values, _, _, priors = effects_of(learner, tasks)
    columns = [*X.T, np.ones(len(X))][: values.shape[1]]
    means = np.column_stack([task_means(x, tasks.offsets) for x in columns])
    surprise = np.abs(((values - priors) * np.nan_to_num(means)).sum(axis=1))
    extreme = np.argsort(np.where(tasks.sizes > 0, -surprise, np.inf), kind="stable")[:MAX_TASK_FIGURES]
    sizes = np.sqrt((weights**2).mean(axis=0)) * X.std(axis=0)
    j = int(np.argmax(sizes * [1.0 if len(np.unique(x)) > MAX_VALUES else 1e-9 for x in X.T]))
    band = f"The band is the {100 * coverage:g} % prediction interval of a new row. "
    if not getattr(learner.loss_, "has_intervals", True):
        band = "Rows are at 0 and 1. "
    if len(tasks) > MAX_TASK_FIGURES:
        most = f"{MAX_TASK_FIGURES} tasks that differ most from their prediction without rows"
        band += f"The list has the {most}. "

    def panels() -> Iterator[tuple[str, str]]:
        for label in tasks.labels[np.sort(extreme[tasks.sizes[extreme] > 0])]:
            display = TaskFitDisplay.from_estimator(learner, tasks, label, j, coverage=coverage)
            alt = f"{display.target} against {display.column}, {display.task}"
            yield str(label), _image(display.figure_, alt)

    return (
        f"<p>The figures show {escape(target)} against {escape(names_of(learner)[j])}. The other columns are at the task's means. "
        f"{band}The dashed line or triangle is the prediction without any rows of the task.</p>"
        + _choice("task", "Task", panels())
    )


def _choice(name: str, label: str, panels: Iterator[tuple[str, str]]) -> str:
    """Return a selection list and a figure for each choice; the first figure is shown initially."""
    options, figures = [], []
    for i, (text, content) in enumerate(panels):
        options.append(f'<option value="{i}">{escape(text)}</option>')
        figures.append(f'<figure data-{name}="{i}"{" hidden" if i else ""}>{content}</figure>')
    return (
        f'<p class="choice"><label for="{name}">{label} </label><select id="{name}">{"".join(options)}</select></p>'
        + "".join(figures)
    )


def _axes(n: int) -> list[Any]:
    """Return the axes of n separate figures, because narrow screens show figures below each other."""
    with pyplot().rc_context(RC):
        return [pyplot().subplots(figsize=(3.9, 3.2), layout="constrained")[1] for _ in range(n)]


def _figure(axes: Sequence[Any], *alts: str) -> str:
    images = "".join(_image(ax.figure, alt) for ax, alt in zip(axes, alts, strict=True))
    return f'<figure><div class="pair">{images}</div></figure>'


def _image(figure: Any, alt: str) -> str:
    """Return a figure as an embedded SVG image, and close it."""
    file, plt = io.BytesIO(), pyplot()
    with plt.rc_context(RC):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(alt, quote=True)}" src="data:image/svg+xml;base64,{data}">'


def _scroll(table: Table, numbers: Mapping[str, Sequence[Any]] | None = None) -> str:
    """Return a table and a link that saves its numbers as a CSV file."""
    return f'<div class="scroll">{table.html}</div>{_csv(table.title, numbers or table.columns)}'


def _csv(title: str, columns: Mapping[str, Sequence[Any]]) -> str:
    """Return a link that saves the columns as a CSV file."""
    file, (delimiter, decimal, encoding) = io.StringIO(newline=""), _CSV_FORMAT.get()
    for row in (list(columns), *zip(*columns.values(), strict=True)):
        # A spreadsheet would read a label such as "=1+1" as a formula.
        values = [_FORMULA.sub("'", v) if isinstance(v, str) else v for v in row]
        values = [str(v).replace(".", decimal) if isinstance(v, float) else v for v in values]
        csv.writer(file, delimiter=delimiter).writerow(values)
    name = re.sub(r"\W+", "-", title.lower()).strip("-")
    data = base64.b64encode(file.getvalue().encode(encoding, "replace")).decode()
    return f'<p><a download="{name}.csv" href="data:text/csv;base64,{data}">Download {name}.csv</a></p>'


def _page(title: str, opening: str, sections: Sequence[tuple[str, str, str]]) -> str:
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    links = "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in sections)
    section = '<section id="{}"><h2>{}</h2>{}</section>'
    body = "".join(section.format(*each) for each in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<h1>{escape(title)}</h1>{opening}<p class="lead">Written by tailored {__version__}.</p>'
        f'<nav aria-label="Sections">{links}</nav><main>{body}</main><script>{_SCRIPT}</script></body></html>\n'
    )
