"""Commands for a user's own tables: `fit`, `predict`, `evaluate`, `summary`, `report`."""

from __future__ import annotations

import csv
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .console import UsageError, note, report_user_errors, say, with_options
from .tables import (
    STANDARD,
    TABLES,
    check_columns,
    check_files,
    label_types,
    read_table,
    write_table,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from ..tasks.task_set import TaskSet

_MODEL = "Model file written by `tailored fit`."
Model = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL, show_default=False)]
_DATA = "CSV or parquet file with one row per observation; - reads standard input."
Data = Annotated[str, typer.Argument(metavar="DATA", help=_DATA, show_default=False)]
_TASK = (
    "Column with the group (task) of each row, e.g. a school or a patient, or several columns, "
    "separated by commas."
)
TaskColumn = Annotated[
    str, typer.Option("--task", metavar="COLUMN", help=_TASK, show_default=False)
]
_TARGET = "Column to predict."
Target = Annotated[
    str, typer.Option("--target", metavar="COLUMN", help=_TARGET, show_default=False)
]
_FORMULA = (
    "Formula of lme4, e.g. 'score ~ hours + (hours | school)', instead of --task, --target and "
    "--varying. It also selects the columns; without it, all other columns are features."
)
FormulaText = Annotated[str | None, typer.Option("--formula", metavar="FORMULA", help=_FORMULA)]
_SIDE_INFO = (
    "CSV or parquet file with side information (group-level features): one row per task, with the "
    "task column."
)
SideInfo = Annotated[str | None, typer.Option(metavar="FILE", help=_SIDE_INFO)]
_SIDE_COLUMNS = (
    "Comma-separated columns of DATA with side information; by default those that are constant "
    "within each task, if at least 10 tasks have two or more rows."
)
SideColumns = Annotated[str | None, typer.Option(metavar="COLUMNS", help=_SIDE_COLUMNS)]
_VARYING = (
    "Comma-separated columns with random slopes; '' fits a random intercept only. By default, fit "
    "selects them."
)
Varying = Annotated[str | None, typer.Option(metavar="COLUMNS", help=_VARYING)]
_LOSS = (
    "Predicted quantity: squared (the mean of the target) or absolute (its median); poisson or "
    "negative_binomial for the mean of counts; bernoulli for probabilities of classes, which is "
    "the "
    "default for a target of booleans or strings."
)
LossName = Annotated[
    Literal["squared", "absolute", "poisson", "negative_binomial", "bernoulli"],
    typer.Option("--loss", metavar="LOSS", help=_LOSS),
]
_EXPOSURE = (
    "Column with the exposure of counts, such as a time. Predictions are exposure times rate."
)
Exposure = Annotated[str | None, typer.Option(metavar="COLUMN", help=_EXPOSURE)]
_TIME = (
    "Feature with the times of the rows (numbers or dates): noise that is correlated in time is "
    "then "
    "a candidate."
)
Time = Annotated[str | None, typer.Option(metavar="COLUMN", help=_TIME)]
Coverage = Annotated[
    float, typer.Option(help="Nominal coverage of the prediction intervals, e.g. 0.9.")
]
_ROWS = (
    "Comma-separated numbers of support rows, such as 0,5,20, or first,0,5,20 for the first rows "
    "of "
    "a task instead of random ones. By default those of 0,1,2,5,10,20,50 that at least half of the "
    "tasks exceed."
)
Rows = Annotated[str | None, typer.Option(metavar="NUMBERS", help=_ROWS)]
_SUPPORT = (
    "CSV or parquet file with observed rows of the tasks in DATA, with the target. A task with "
    "support rows is adapted to these rows only. If it is a training task, give all of its rows."
)
Support = Annotated[str | None, typer.Option(metavar="FILE", help=_SUPPORT)]
_TOTAL_BY = (
    "Write a row for each value of this column, with the total of the target and its interval."
)
TotalBy = Annotated[str | None, typer.Option(metavar="COLUMN", help=_TOTAL_BY)]
_WEIGHTS = "Column with the number of units that each row stands for, e.g. people; with --total-by."
Weights = Annotated[str | None, typer.Option(metavar="COLUMN", help=_WEIGHTS)]
_MEAN = "Write means instead of totals; with --total-by."
_FITTED_TO = "Table that the model was fitted to, or another table with the same columns."


def _out(written: str) -> Any:
    return typer.Option("--out", "-o", metavar="FILE", help=written)


def fit(
    data: Data,
    task: TaskColumn = "",
    target: Target = "",
    formula: FormulaText = None,
    out: Annotated[Path, _out("Model file to write.")] = Path("model.tailored"),
    side_info: SideInfo = None,
    side_columns: SideColumns = None,
    varying: Varying = None,
    loss: LossName = "squared",
    exposure: Exposure = None,
    time: Time = None,
) -> None:
    """Fit a model to a table with many tasks, and write it to a file.

    Example: tailored fit pupils.csv --task school --target score -o model.tailored

    Rows without a task or a target are left out, and missing features are replaced by their means.

    With --formula, rows with missing values are left out. Both are reported.
    """
    with report_user_errors():
        check_files(out, data=data, side_info=side_info)
        options = {"side_columns": side_columns, "exposure": exposure, "time": time}
        tasks = _read_tasks(data, side_info, task, target, formula, varying, **options)
        learner = _learner(tasks, loss, varying)
        from ..tasks.describing import hint_about_target

        is_number = loss in ("squared", "absolute") and not hasattr(learner, "predict_proba")
        if is_number and (hint := hint_about_target(tasks.y)):
            note(f"hint: {with_options(hint)}")
        learner.set_params(progress=sys.stderr.isatty()).fit(tasks)
        learner.save(out)
        summaries = learner.summaries() if hasattr(learner, "classes_") else {"": learner.summary()}
        for summary in summaries.values():
            say("\n".join([summary.title, *(f"  {sentence}" for sentence in summary.text)]))
        say(f"\n{tasks.describe().table}")
        option = "" if side_info is None else f" --side-info {shlex.quote(side_info)}"
        following = f"tailored predict {shlex.quote(str(out))} NEW.csv{option} -o predictions.csv"
        say(f"\nmodel: {out}\nnext: {following}")


def predict(
    model: Model,
    data: Data,
    support: Support = None,
    side_info: SideInfo = None,
    out: Annotated[
        str, _out("CSV or parquet file to write; - writes to standard output.")
    ] = STANDARD,
    coverage: Coverage = 0.9,
    total_by: TotalBy = None,
    weights: Weights = None,
    mean: Annotated[bool, typer.Option("--mean", metavar="", help=_MEAN)] = False,
) -> None:
    """Append predictions, bounds of prediction intervals and predictive std to a table.

    Example: tailored predict model.tailored new.csv --support first.csv -o predictions.csv

    Predictions are means of the target, unless fit had another --loss; for classes, probabilities.

    Training tasks are predicted with the coefficients from fit.

    New tasks are predicted from their support rows and side information, or else from the prior.

    With --total-by, the output has one row for each value of a column, with the total of its rows.

    Training tasks then need their rows as --support.
    """
    with report_user_errors():
        files = {"model": model, "data": data, "support": support, "side_info": side_info}
        check_files(out, endings=TABLES, **files)
        learner = _load(model)
        labels, known = list(learner.encoding_.task_columns), getattr(learner, "task_labels_", None)
        table = _read_by_task(data, labels, "data", known)
        rows = None if support is None else _read_by_task(support, labels, "--support", known)
        side = None if side_info is None else _read_by_task(side_info, labels, "--side-info", known)
        options: dict[str, Any] = {"side_info": side}
        if total_by is None and (mean or weights is not None):
            raise UsageError("--weights, --mean: they are for totals. Add --total-by COLUMN.")
        # Predictions of classes are probabilities without intervals, but totals of classes have
        # intervals.
        if total_by is not None or not hasattr(learner, "classes_"):
            options["coverage"] = coverage
        if total_by is not None:
            check_columns(table, [total_by], "--total-by", data)
            check_columns(table, [] if weights is None else [weights], "--weights", data)
            options |= {"weights": weights, "statistic": "mean" if mean else "total"}
            table = learner.predict_totals(table, rows, by=total_by, **options)
        else:
            table = _append_predictions(learner, table, rows, **options)
        write_table(out, table)
        if out != STANDARD:
            note(f"{table.num_rows:,} predictions: {out}")


def evaluate(
    data: Data,
    task: TaskColumn = "",
    target: Target = "",
    formula: FormulaText = None,
    side_info: SideInfo = None,
    side_columns: SideColumns = None,
    varying: Varying = None,
    loss: LossName = "squared",
    exposure: Exposure = None,
    time: Time = None,
    rows: Rows = None,
) -> None:
    """Estimate the errors of the model and of baselines on new tasks, by cross-validation.

    There is one error for each number of support rows, which are the observed rows of a new task.

    Example: tailored evaluate pupils.csv --task school --target score --side-info schools.csv
    """
    with report_user_errors():
        check_files(None, data=data, side_info=side_info)
        supports = None if rows is None else _supports(rows)
        options = {"side_columns": side_columns, "exposure": exposure, "time": time}
        tasks = _read_tasks(data, side_info, task, target, formula, varying, **options)
        learner = _learner(tasks, loss, varying)
        from .. import evaluation
        from .._utils.tables import plural

        loss = "bernoulli" if hasattr(learner, "predict_proba") else loss
        methods = evaluation.default_methods(loss, learner)
        progress = sys.stderr.isatty()
        result = evaluation.evaluate(
            tasks, methods, supports=supports, loss=loss, progress=progress
        )
        say(str(result))
        if n_left := len(tasks) - len(result.labels):
            most = plural(result.supports[-1], "row")
            say(f"  Tasks with at most {most} are not evaluated: {n_left:,} of {len(tasks):,}.")


def summary(model: Model) -> None:
    """Print a summary of a model: fixed effects, random effects, side information, errors.

    Example: tailored summary model.tailored
    """
    with report_user_errors():
        check_files(None, model=model)
        from .. import load

        learner = load(model)
        summaries = learner.summaries() if hasattr(learner, "classes_") else {"": learner.summary()}
        say("\n\n\n".join(map(str, summaries.values())))


def report(
    model: Model,
    data: Annotated[str, typer.Option(metavar="FILE", help=_FITTED_TO, show_default=False)],
    side_info: SideInfo = None,
    out: Annotated[Path, _out("HTML file to write.")] = Path("report.html"),
    coverage: Coverage = 0.9,
) -> None:
    """Write an HTML page about a model and its data.

    Example: tailored report model.tailored --data pupils.csv --side-info schools.csv -o report.html
    """
    with report_user_errors():
        check_files(out, model=model, data=data, side_info=side_info)
        from ..show.report import write_report
        from ..tasks.task_set import TaskSet

        learner = _load(model)
        names, encoding = learner.columns_in_, learner.encoding_
        task = list(encoding.task_columns)
        side_columns = names["side_info"] if side_info is None else None
        table, side = _read_tables(data, side_info, task, getattr(learner, "task_labels_", None))
        features = [column.name for column in encoding.features]
        check_columns(table, [names["target"], *features, *(side_columns or ())], "data", data)
        tasks = TaskSet.from_frame(
            table,
            task=task if len(task) > 1 else task[0],
            target=names["target"],
            side_info=side,
            side_columns=side_columns,
            encoding=encoding,
            missing="impute" if encoding.imputes else "error",
        )
        note("cross-validating the model and baselines over tasks; this takes longer than fit")
        write_report(learner, tasks, out, coverage=coverage, progress=sys.stderr.isatty())
        say(f"page: {out}")


def _read_tasks(
    data: str,
    side_info: str | None,
    task: str,
    target: str,
    formula: str | None,
    varying: str | None,
    *,
    side_columns: str | None,
    exposure: str | None,
    time: str | None,
) -> TaskSet:
    """Read the tasks of a table, with these columns or with those of a formula."""
    from ..tasks.task_set import TaskSet

    given = {"--task": task, "--target": target, "--varying": varying}
    if formula is None and (
        missing := [name for name in ("--task", "--target") if not given[name]]
    ):
        raise UsageError(f"Missing option '{missing[0]}', or --formula.")
    if formula is not None and (repeated := [name for name in given if given[name]]):
        raise UsageError(
            f"{repeated[0]}: not with --formula, which names the columns. Omit this option."
        )
    if side_info is not None and side_columns is not None:
        raise UsageError(
            "--side-columns: not together with --side-info. Give only one of these options."
        )
    options: dict[str, Any] = {"side_columns": _names(side_columns), "exposure": exposure}
    if time is not None:
        options["time"] = time
    if formula is not None:
        from ..tasks.encoding import as_columns
        from ..tasks.parsing import parse

        labels = list(as_columns(parse(formula).task))
        table, side = _read_tables(data, side_info, labels)
        tasks = TaskSet.from_formula(formula, table, side_info=side, missing="drop", **options)
    else:
        labels = _names(task) or []
        table, side = _read_tables(data, side_info, labels)
        options |= {"task": labels if len(labels) > 1 else labels[0], "target": target}
        tasks = TaskSet.from_frame(table, side_info=side, missing="impute", **options)
    encoding: Any = tasks.encoding
    if reasons := ", ".join(f"{count:,} with {reason}" for reason, count in encoding.dropped):
        note(f"data: {table.num_rows:,} rows read, {len(tasks.y):,} used; left out: {reasons}")
    if formula is None:
        _note_imputed(table, encoding)
    return tasks


def _note_imputed(table: pa.Table, encoding: Any) -> None:
    """Name the features with missing values, which are imputed."""
    names = [column.name for column in encoding.features]
    if imputed := [name for name in names if table[name].null_count]:
        note(f"data: missing values are replaced by their training means: {', '.join(imputed)}")


def _read_tables(
    data: str, side_info: str | None, task: list[str], known: np.ndarray | None = None
) -> tuple[pa.Table, pa.Table | None]:
    """Read a table and its side information, whose task labels have the type of the ``known``
    labels or of the table.
    """
    table = _read_by_task(data, task, "data", known)
    if known is None:
        import numpy as np

        known = np.asarray(table[task[0]].unique().drop_null().to_pylist())
    if side_info is None:
        return table, None
    return table, _read_by_task(side_info, task, "--side-info", known)


def _read_by_task(path: str, names: list[str], option: str, known: np.ndarray | None) -> pa.Table:
    """Read a table; labels in a single column have the type of the ``known`` labels."""
    table = read_table(path, option, label_types(names, known))
    check_columns(table, names, option, path)
    return table


def _append_predictions(
    learner: Any, table: pa.Table, support: pa.Table | None, **options: Any
) -> pa.Table:
    """Return the table with columns of predictions."""
    predicted = learner.predict_tasks(table, support, **options)
    _note_imputed(table, learner.encoding_)
    names = [name for name in predicted.column_names if name not in learner.encoding_.task_columns]
    replaced = [name for name in names if name in table.column_names]
    if replaced:
        kept = "rename them to keep them"
        note(f"data: its columns {', '.join(replaced)} are replaced by predictions; {kept}")
    table = table.drop_columns(replaced)
    for name in names:
        table = table.append_column(name, predicted[name])
    return table


def _learner(tasks: TaskSet, loss: str, varying: str | None) -> Any:
    """Return a learner for the target of these tasks, a classifier if it has classes."""
    from ..learners.classifier import EmpiricalBayesClassifier
    from ..learners.empirical_bayes import EmpiricalBayesLearner

    encoding: Any = tasks.encoding
    if tasks.exposure is not None and loss not in ("poisson", "negative_binomial"):
        raise UsageError(
            "--exposure: only for counts. Add --loss poisson or --loss negative_binomial."
        )
    has_intercept = encoding.formula is None or encoding.formula.has_intercept
    options: Any = {"varying": _names(varying), "fit_intercept": has_intercept, "n_jobs": -1}
    n_classes = len(encoding.classes)
    if loss == "bernoulli" and not n_classes:
        classes = set(tasks.y.tolist())
        if fractions := sorted(value for value in classes if value % 1):
            found = f"{encoding.target!r} has fractions such as {fractions[0]:g}"
            raise UsageError(
                f"--loss bernoulli: {found}, which are not classes. Use --loss squared for numbers."
            )
        n_classes = len(classes)
    if not n_classes:
        return EmpiricalBayesLearner(loss=loss, **options)
    if loss not in ("squared", "bernoulli") or encoding.time is not None:
        raise UsageError("--loss, --time: the target has classes. Omit these options.")
    note(f"target {encoding.target!r} has {n_classes} classes, so a classifier is fitted")
    return EmpiricalBayesClassifier(**options)


def _names(text: str | None) -> list[str] | None:
    """Split comma-separated names; double quotes enclose a name that contains a comma."""
    if text is None:
        return None
    rows = csv.reader([text], skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def _supports(text: str) -> list[int | str]:
    try:
        return [word if word == "first" else int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--rows: expected comma-separated integers such as 0,5,10; got {text!r}."
        ) from None


def _load(path: str) -> Any:
    """Load a learner that was fitted to a table."""
    from .. import load

    if {".csv", ".tsv", ".parquet"} & set(Path(path).suffixes):
        raise UsageError(f"model: {path} is a table. The model comes first, then the data.")
    learner = load(path)
    if getattr(learner, "columns_in_", {}).get("task") is None:
        raise UsageError(f"model: {path} was not fitted to a table. Use it in Python.")
    return learner
