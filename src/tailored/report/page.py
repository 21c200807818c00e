"""The page: one file without a network, readable without a script, with what a person asks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._version import __version__
from ..evaluation import Evaluation, evaluate, usual_methods
from ..tasks import TaskSet
from ..tasks.rows import dense
from .charts import Curve, Line, caterpillar, errors_by_rows, number, one_task

Array = NDArray[np.float64]

#: Tasks and effects that are drawn, rows of a task in its drawing, points of a curve.
MOST_TASKS, MOST_EFFECTS, MOST_ROWS, POINTS = 150, 12, 200, 25
#: Tasks that an evaluation fits to, and rows that these have together, drawn at random from more.
EVALUATED, EVALUATED_ROWS = 1_000, 20_000


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
    """Write a page about a fitted learner and the tasks it is for.

    Parameters
    ----------
    learner : EmpiricalBayesLearner
        Fitted.
    tasks : TaskSet
        Those it was fitted to, or others like them.
    out : path
        The HTML file.
    title : str, optional
    evaluation : Evaluation, optional
        How good such a learner is; by default clones of it and of simple methods are fitted in five folds of the tasks,
        or of some at random, 1,000 with 20,000 rows at most; the page says so.
    coverage : float, default=0.9
        Of the intervals.
    random_state : int, default=0
        Draws tasks where not all are used.

    Returns
    -------
    Path
        ``out``.
    """
    target, sampled = _target(learner), ""
    if evaluation is None:
        methods = {**usual_methods(), "tailored": clone(learner)}
        some = _evaluated(tasks, random_state)
        evaluation = evaluate(some, methods, coverage=coverage, random_state=random_state, progress=progress)
        if len(some) < len(tasks):
            sampled = f"<p>Of the {len(tasks):,} tasks, {len(some):,} were drawn at random for this.</p>"
    drawn = _drawn(tasks, random_state)
    sections = [
        ("data", "The data", _data(tasks)),
        ("learned", "What was learned", _learned(learner)),
        ("good", "How good it is", sampled + _good(evaluation, target)),
        ("effects", "Effects of tasks", _effects(learner, drawn, coverage)),
        ("one", "One task", _one_task(learner, drawn, target, coverage)),
    ]
    page = _page(title or f"{target}: a model for each of {len(tasks):,} tasks", sections)
    place = Path(out)
    place.write_text(page, encoding="utf-8")
    return place


def _target(learner: Any) -> str:
    return str(learner.columns_in_["target"] or "the target")


def _evaluated(tasks: TaskSet, seed: int) -> TaskSet:
    """Tasks that are evaluated on: all, or some at random, so that a page takes a minute and not an hour."""
    order = np.random.default_rng(seed).permutation(len(tasks))[:EVALUATED]
    few = max(
        int(np.searchsorted(np.cumsum(tasks.sizes[order]), EVALUATED_ROWS, "right")), min(10, len(order))
    )
    return tasks if few >= len(tasks) else tasks[np.sort(order[:few])]


def _drawn(tasks: TaskSet, seed: int) -> TaskSet:
    """Tasks that charts show: all, or some at random in their order."""
    if len(tasks) <= MOST_TASKS:
        return tasks
    return tasks[np.sort(np.random.default_rng(seed).permutation(len(tasks))[:MOST_TASKS])]


def _data(tasks: TaskSet) -> str:
    sizes = tasks.sizes
    words = (
        f"<p>{len(tasks):,} tasks with {len(tasks.y):,} rows: between {sizes.min():,} and {sizes.max():,} rows a task, half of "
        f"them with {np.median(sizes):g} or fewer. {tasks.n_features:,} columns of inputs"
    )
    words += (
        f", and {len(tasks.side_info[0]):,} of descriptions.</p>" if tasks.side_info is not None else ".</p>"
    )
    return words + f"<pre>{escape(str(tasks.describe()))}</pre>"


def _learned(learner: Any) -> str:
    summary = learner.summary()
    words = "".join(f"<li>{escape(sentence)}</li>" for sentence in summary.text)
    tables = "".join(f'<div class="scroll">{table.html}</div>' for table in summary.tables.values())
    return f"<ul>{words}</ul>{tables}"


def _good(found: Evaluation, target: str) -> str:
    mean, spread, ours = found.mean, found.standard_error, 0
    best = int(np.argmin(np.where(np.arange(len(found.methods)) == ours, np.inf, mean[:, -1])))
    less = found.errors[best, -1] - found.errors[ours, -1]
    chance = 2.0 * float(less.std(ddof=1)) / np.sqrt(len(less))
    gain = 100.0 * float(less.mean()) / mean[best, -1] if mean[best, -1] > 0 else 0.0
    verdict = f"tailored models are {abs(gain):.1f} % {'better' if gain >= 0 else 'worse'}"
    if abs(less.mean()) <= chance:
        verdict += ", no more than chance would make"
    first, last = found.supports[0], found.supports[-1]
    words = (
        f"<p>Whole tasks were held out, {found.errors.shape[2]:,} in all, and {found.n_query:,} of their rows predicted. With "
        f"{_rows(first)} of a new task the prediction of {escape(target)} is off by {number(mean[ours, 0])} on average, with "
        f"{_rows(last)} by {number(mean[ours, -1])}. The best of the other methods, {found.methods[best]}, has "
        f"{number(mean[best, -1])} then: {verdict}.</p>"
    )
    head = "".join(f"<th>{rows}</th>" for rows in found.supports)
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{number(m)} ± {s:.2g}</td>" for m, s in zip(mean[i], spread[i], strict=True))
        + "</tr>"
        for i, name in enumerate(found.methods)
    )
    table = f'<div class="scroll"><table><thead><tr><th>rows given</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    lines = [Line(name, mean[i], spread[i]) for i, name in enumerate(found.methods)]
    label = f"mean {found.loss} error"
    chart = errors_by_rows(
        found.supports, _readable(lines), label, f"{label} of {target} against the rows given"
    )
    note = "± is the standard error over tasks. Every column predicts the same rows."
    left = (
        ""
        if len(_readable(lines)) == len(lines)
        and all(np.isfinite(line.values).all() for line in _readable(lines))
        else " Errors far above the others are in the table alone."
    )
    return f"{words}<figure>{chart}<figcaption>{note}{left}</figcaption></figure>{table}{_covered(found)}"


def _readable(lines: Sequence[Line]) -> list[Line]:
    """Lines without errors so large that the others would lie flat."""
    limit = 2.5 * float(np.median(np.concatenate([line.values for line in lines])))
    return [line._replace(values=np.where(line.values > limit, np.nan, line.values)) for line in lines]


def _covered(found: Evaluation) -> str:
    if not np.isfinite(found.covered[0]).all():
        return ""
    share = 100.0 * found.coverage
    words = (
        f"<h4>Intervals</h4><p>An interval that should hold a new value with probability {share:g} % did so for "
        f"{100.0 * found.covered[0].min():.1f} to {100.0 * found.covered[0].max():.1f} % of the rows, averaged over tasks; "
        f"it was {number(found.widths[0, 0])} wide with {_rows(found.supports[0])} and {number(found.widths[0, -1])} with "
        f"{_rows(found.supports[-1])}.</p>"
    )
    asked = np.full(len(found.supports), share)
    lines = [
        Line("held", 100.0 * found.covered[0], np.full(len(asked), np.nan)),
        Line("asked for", asked, np.full(len(asked), np.nan)),
    ]
    chart = errors_by_rows(found.supports, lines, "% of rows inside", "share of rows inside their intervals")
    return f"{words}<figure>{chart}</figure>"


def _rows(n: int) -> str:
    return "no row" if n == 0 else "one row" if n == 1 else f"{n} rows"


def _effects(learner: Any, tasks: TaskSet, coverage: float) -> str:
    frame = learner.effects(tasks, coverage=coverage)
    columns = list(dict.fromkeys(frame["column"]))
    values = {
        key: np.asarray(frame[key], dtype=float).reshape(len(tasks), len(columns))
        for key in ("effect", "lower", "upper")
    }
    # Those that tasks differ in most, in their own order.
    spread = values["effect"].std(axis=0) / (np.abs(values["effect"]).mean(axis=0) + 1e-300)
    shown = sorted(np.argsort(-spread, kind="stable")[:MOST_EFFECTS].tolist())
    names = [str(label) for label in tasks.labels]
    panels, options = [], []
    for place, j in enumerate(shown):
        effect, low, high = (values[key][:, j] for key in ("effect", "lower", "upper"))
        chart = caterpillar(names, effect, low, high, float(effect.mean()), str(columns[j]))
        hidden = " hidden" if place else ""
        panels.append(f'<figure data-effect-panel="{j}"{hidden}>{chart}</figure>')
        options.append(f'<option value="{j}">{escape(str(columns[j]))}</option>')
    return (
        "<p>What one unit more of a column adds to the target, for each task, after all of its rows; the intercept is the level. "
        f"Bars are {100 * coverage:g} % intervals, the dashed line is the mean of the tasks shown.</p>"
        f'<p class="choice"><label for="effect">Effect of </label><select id="effect">{"".join(options)}</select></p>'
        + "".join(panels)
    )


def _one_task(learner: Any, tasks: TaskSet, target: str, coverage: float) -> str:
    j = _column(learner, tasks)
    names = getattr(learner, "feature_names_in_", None)
    label = f"x{j}" if names is None else str(names[j])
    panels: list[str] = []
    options: list[str] = []
    for t, task in enumerate(tasks):
        X, y = dense(task.X)[:MOST_ROWS], task.y[:MOST_ROWS]
        if not len(y):
            continue
        curve = _curve(learner, task, j, coverage)
        hidden = " hidden" if panels else ""
        chart = one_task(X[:, j], y, curve, label, target, str(task.label))
        panels.append(f'<figure data-task-panel="{t}"{hidden}>{chart}</figure>')
        options.append(f'<option value="{t}">{escape(str(task.label))}</option>')
    return (
        f"<p>{escape(target)} against {escape(label)}, the column in which tasks differ most; the other columns are at the task's "
        f"means. The band holds {100 * coverage:g} % of new rows. The dashed line is what the model expects of such a task "
        "before it has seen a row.</p>"
        f'<p class="choice"><label for="task">Task </label><select id="task">{"".join(options)}</select></p>'
        + "".join(panels)
    )


def _column(learner: Any, tasks: TaskSet) -> int:
    """The column whose differing weights move predictions most."""
    weights = learner.adapt_many(tasks)[:, : tasks.n_features]
    return int(np.argmax(weights.std(axis=0) * dense(tasks.X).std(axis=0)))


def _curve(learner: Any, task: Any, j: int, coverage: float) -> Curve:
    X = dense(task.X)
    low, high = float(X[:, j].min()), float(X[:, j].max())
    room = 0.05 * (high - low) or 0.5
    grid = np.repeat(X.mean(axis=0)[None], POINTS, axis=0)
    grid[:, j] = np.linspace(low - room, high + room, POINTS)
    tailored = learner.adapt(X, task.y, side_info=task.side_info)
    expected = learner.adapt(side_info=task.side_info)
    ends = np.full((POINTS, 2), np.nan)
    if learner.prior_.calibration is not None:
        ends = tailored.predict_interval(grid, coverage)
    return Curve(grid[:, j], tailored.predict(grid), ends[:, 0], ends[:, 1], expected.predict(grid))


def _page(title: str, sections: Sequence[tuple[str, str, str]]) -> str:
    style, script = (
        resources.files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    links = "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{heading}</h2>{text}</section>' for name, heading, text in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<h1>{escape(title)}</h1><p class="lead">Made by tailored {__version__}.</p><nav aria-label="Sections">{links}</nav>'
        f'<main>{body}</main><div id="tip" role="status" hidden></div><script>{script}</script></body></html>\n'
    )
