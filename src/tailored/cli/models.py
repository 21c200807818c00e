"""Commands for tables of one's own: learn a model, predict with it, ask how good it is and what it has learned."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import UsageError, in_one_line
from .output import console, note, say, table
from .tables import STANDARD, column, is_large, open_large, read_table, write_table

if TYPE_CHECKING:
    from ..evaluation import Evaluation

Data = Annotated[
    str,
    typer.Argument(
        help="CSV or parquet file, a row per observation; - is standard input.", show_default=False
    ),
]
TaskColumn = Annotated[
    str, typer.Option("--task", help="Column with the label of each row's task.", show_default=False)
]
Target = Annotated[str, typer.Option("--target", help="Column to predict.", show_default=False)]
Describe = Annotated[
    str | None,
    typer.Option(help="Table with a row per task that describes it, with the same column of labels."),
]
Features = Annotated[
    str | None,
    typer.Option(help="Columns of inputs, separated by commas.", show_default="all others"),
]
Side = Annotated[
    str | None,
    typer.Option(
        help="Columns of DATA that describe the task, the same in all of its rows; separated by commas.",
        show_default="none",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Jobs = Annotated[int, typer.Option(help="Processor cores to use; -1 uses all.")]


def fit(
    data: Data,
    task: TaskColumn,
    target: Target,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the model.")] = Path("model.tailored"),
    describe: Describe = None,
    side: Side = None,
    features: Features = None,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Learn from a table of many tasks; write a model.

    Example: tailored fit pupils.csv --task school --target score --describe schools.csv -o model.tailored

    A table of a gigabyte or more is read in batches and never held whole.
    """
    with in_one_line():
        from ..learners import EmpiricalBayesLearner

        if not out.parent.is_dir():
            raise UsageError(f"--out: there is no folder {out.parent}")
        learner = EmpiricalBayesLearner(n_jobs=jobs, progress=sys.stderr.isatty())
        read = scan_tasks if is_large(data) else read_tasks
        learner.fit(read(data, task, target, describe, _names(side), _names(features)))
        learner.save(out)
        if as_json:
            say(json.dumps(_facts(learner, out)))
        else:
            facts = _facts(learner, out)
            say(f"{facts['tasks']} tasks, {facts['inputs']} columns of inputs: {facts['form']}")
            say(f"model: {out}")


def predict(
    model: Annotated[str, typer.Argument(help="Model that `tailored fit` wrote.", show_default=False)],
    data: Annotated[
        str, typer.Argument(help="Rows to predict: CSV or parquet; - is standard input.", show_default=False)
    ],
    support: Annotated[
        str | None,
        typer.Option(help="Rows of the same tasks whose target is known: each task is adapted to its own."),
    ] = None,
    describe: Describe = None,
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="CSV or parquet file for the predictions; - is standard output."),
    ] = STANDARD,
    coverage: Annotated[float, typer.Option(help="Probability that an interval holds the target.")] = 0.9,
    as_json: Json = False,
) -> None:
    """Predict rows of new or known tasks, with intervals: the table with four columns more.

    Example: tailored predict model.tailored new.csv --support first.csv -o predictions.csv

    A task that is not in the support is predicted from what all tasks have in common, and its description.
    """
    with in_one_line():
        import pyarrow as pa

        from ..persistence import load

        learner = load(model)
        query = read_table(data, "data")
        known = learner.columns_in_
        if known["task"] is None:
            raise UsageError(f"model: {model} was not learned from a table; use predict_tasks in Python")
        column(query, known["task"], "data", data)
        given = None if support is None else read_table(support, "--support")
        side = None if describe is None else read_table(describe, "--describe")
        found = learner.predict_tasks(query, given, coverage=coverage, side_info=side)
        kept = query.drop_columns(
            [name for name in ("prediction", "lower", "upper", "std") if name in query.column_names]
        )
        for name in ("prediction", "lower", "upper", "std"):
            kept = kept.append_column(name, found[name])
        assert isinstance(kept, pa.Table)
        if as_json:
            for line in kept.to_pylist():
                say(json.dumps(line, default=str))
        else:
            write_table(kept, out)
            if out != STANDARD:
                note(f"{kept.num_rows} predictions: {out}")


def evaluate(
    data: Data,
    task: TaskColumn,
    target: Target,
    describe: Describe = None,
    side: Side = None,
    features: Features = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Numbers of given rows, separated by commas.",
            show_default="0,1,2,5,10,20,50, as far as tasks go",
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts that the tasks are held out in.")] = 5,
    in_order: Annotated[
        bool, typer.Option("--in-order", help="The first rows of a task are given, and later ones asked for.")
    ] = False,
    coverage: Annotated[float, typer.Option(help="Of the intervals.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Draws held-out tasks and rows.")] = 0,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="CSV or parquet file for the table, too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Errors on held-out tasks against the number of their rows that are given, beside simple methods.

    Example: tailored evaluate pupils.csv --task school --target score --describe schools.csv
    """
    with in_one_line():
        import pyarrow as pa

        from .. import evaluation

        tasks = read_tasks(data, task, target, describe, _names(side), _names(features))
        found = evaluation.evaluate(
            tasks,
            supports=None if rows is None else _numbers(rows),
            n_folds=folds,
            order="given" if in_order else "random",
            coverage=coverage,
            random_state=seed,
            progress=sys.stderr.isatty(),
        )
        if out is not None:
            write_table(pa.Table.from_pylist(found.records()), out)
        if as_json:
            say(
                json.dumps(
                    {"n_tasks": found.errors.shape[2], "n_query": found.n_query, "errors": found.records()}
                )
            )
        else:
            _print(found, target)


def summary(
    model: Annotated[str, typer.Argument(help="Model that `tailored fit` wrote.", show_default=False)],
    as_json: Json = False,
) -> None:
    """What a model has learned: common effects, how much they vary between tasks, what descriptions say.

    Example: tailored summary model.tailored
    """
    with in_one_line():
        from ..persistence import load

        found = load(model).summary()
        say(json.dumps(found.to_dict(), default=str) if as_json else str(found))


def read_tasks(
    data: str,
    task: str,
    target: str,
    describe: str | None,
    side: list[str] | None = None,
    features: list[str] | None = None,
) -> Any:
    """The tasks of a table, with descriptions from another one or from columns of its own."""
    from ..tasks import TaskSet

    if describe is not None and side is not None:
        raise UsageError("--side: descriptions come from --describe already; give one of them")
    frame = read_table(data, "data")
    named = (
        ((task,), "--task"),
        ((target,), "--target"),
        (side or (), "--side"),
        (features or (), "--features"),
    )
    for names, option in named:
        for name in names:
            column(frame, name, option, data)
    described = None
    if describe is not None:
        described = read_table(describe, "--describe")
        column(described, task, "--describe", describe)
    return TaskSet.from_frame(
        frame, task=task, target=target, features=features, side_info=described, side_columns=side
    )


def scan_tasks(
    data: str,
    task: str,
    target: str,
    describe: str | None,
    side: list[str] | None = None,
    features: list[str] | None = None,
) -> Any:
    """The tasks of a table that is read in batches."""
    from ..tasks import scan

    if describe is not None:
        raise UsageError(
            "--describe: a table that is read in batches has its descriptions in columns of its own: join them to its rows, "
            "and name them with --side"
        )
    return scan(open_large(data, "data"), task=task, target=target, features=features, side_columns=side)


def _names(listed: str | None) -> list[str] | None:
    return None if listed is None else [name.strip() for name in listed.split(",") if name.strip()]


def _numbers(listed: str) -> list[int]:
    try:
        return [int(word) for word in listed.split(",")]
    except ValueError:
        raise UsageError(
            f"--rows: expected numbers separated by commas, such as 0,5,10; got {listed!r}"
        ) from None


def _facts(learner: Any, out: Path) -> dict[str, Any]:
    return {
        "model": str(out),
        "tasks": int(learner.n_tasks_seen_),
        "inputs": int(learner.n_features_in_),
        "form": str(learner.form_),
        "side_form": None if learner.side_form_ is None else str(learner.side_form_),
    }


def _print(found: Evaluation, target: str) -> None:
    n_tasks = found.errors.shape[2]
    title = f"Mean absolute error of {target} on {n_tasks} tasks that were not learned from, by rows given"
    shown = table(title, ["method"], [str(rows) for rows in found.supports])
    mean, error = found.mean, found.standard_error
    for i, name in enumerate(found.methods):
        shown.add_row(name, *(f"{m:.4g} ± {s:.2g}" for m, s in zip(mean[i], error[i], strict=True)))
    covered = [f"{100 * share:.1f} %" for share in found.covered[0]]
    if not any("nan" in share for share in covered):
        shown.add_section()
        shown.add_row(f"{100 * found.coverage:g} % intervals of {found.methods[0]} hold", *covered)
    console.print(shown)
    say("± is the standard error over tasks; each column predicts the same rows.")
