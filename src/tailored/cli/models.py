"""Commands for a user's own tables: `fit`, `predict`, `evaluate`, `summary`, `report`."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from .console import READ, UsageError, flag, note, report_user_errors, say, with_options, write_out
from .tables import (
    STANDARD,
    TABLES,
    check_columns,
    check_files,
    convert_labels,
    is_large,
    open_large,
    read_table,
    set_csv_option,
    write_table,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from ..learners.classifier import EmpiricalBayesClassifier
    from ..learners.empirical_bayes import EmpiricalBayesLearner
    from ..sources.scan import TaskScan
    from ..summaries.summary import Summary
    from ..tasks.encoding import Encoding as TableEncoding
    from ..tasks.parsing import ParsedFormula
    from ..tasks.task_set import TaskSet

Loss = Literal["squared", "absolute", "poisson", "negative_binomial", "bernoulli"]
_MODEL = "Model file written by `tailored fit`."
Model = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL, show_default=False)]
_DATA = "CSV or parquet file with one row per observation; - reads standard input."
Data = Annotated[str, typer.Argument(metavar="DATA", help=_DATA, show_default=False)]
_TASK = "Column with the group (task) of each row, e.g. a school or a patient, or several columns, separated by commas."
TaskColumn = Annotated[
    str, typer.Option("--task", metavar="COLUMN", help=_TASK, show_default=False)
]
_TARGET = "Column to predict."
Target = Annotated[
    str, typer.Option("--target", metavar="COLUMN", help=_TARGET, show_default=False)
]
_FORMULA = "Formula of lme4, e.g. 'score ~ hours + (hours | school)', instead of --task, --target, --features and --varying."
FormulaText = Annotated[str | None, typer.Option("--formula", metavar="FORMULA", help=_FORMULA)]
_SIDE_INFO = "CSV or parquet file with side information (group-level features): one row per task, with the task column."
SideInfo = Annotated[str | None, typer.Option(metavar="FILE", help=_SIDE_INFO)]
_SIDE_COLUMNS = (
    "Comma-separated columns of DATA with side information; without --features, by default those that are constant within "
    "each task, if at least 10 tasks have two or more rows."
)
SideColumns = Annotated[str | None, typer.Option(metavar="COLUMNS", help=_SIDE_COLUMNS)]
_FEATURES = "Comma-separated columns of features; by default all other columns."
Features = Annotated[str | None, typer.Option(metavar="COLUMNS", help=_FEATURES)]
_VARYING = "Comma-separated columns with random slopes; '' fits a random intercept only. By default, fit selects them."
Varying = Annotated[str | None, typer.Option(metavar="COLUMNS", help=_VARYING)]
_LOSS = (
    "Predicted quantity: squared (the mean of the target) or absolute (its median); poisson or negative_binomial for the "
    "mean of counts; bernoulli for probabilities of classes, which is the default for a target of booleans or strings."
)
LossName = Annotated[Loss, typer.Option("--loss", metavar="LOSS", help=_LOSS)]
_EXPOSURE = "Column with the exposure of counts, e.g. a time or an area. Predictions are exposure times rate."
Exposure = Annotated[str | None, typer.Option(metavar="COLUMN", help=_EXPOSURE)]
_TIME = "Feature with the times of the rows (numbers or dates): noise that is correlated in time is then a candidate."
Time = Annotated[str | None, typer.Option(metavar="COLUMN", help=_TIME)]
_FIRST_ROWS = (
    "The observed rows of a task are its first rows, as in forecasting, not a random sample."
)
FirstRows = Annotated[bool, flag("--first-rows", _FIRST_ROWS)]
_MISSING = (
    "Rows with a missing task, target or feature: error (stop), drop (leave them out) or impute (replace missing features by "
    "their mean, and add an indicator if at least ten values of a feature are missing; leave out rows without a task or target)."
)
Treatment = Literal["error", "drop", "impute"]
Missing = Annotated[Treatment, typer.Option(metavar="CHOICE", help=_MISSING)]
_DECIMAL = "Decimal mark of numbers in CSV files, . or , (by default detected in each file)."
Decimal = Annotated[Literal[".", ","] | None, typer.Option(callback=set_csv_option, help=_DECIMAL)]
_ENCODING = (
    "Encoding of CSV files, e.g. cp1252; by default UTF-8, or Latin-1 if a file is not valid UTF-8."
)
Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", callback=set_csv_option, help=_ENCODING)
]
Coverage = Annotated[
    float, typer.Option(help="Nominal coverage of the prediction intervals, e.g. 0.9.")
]
Jobs = Annotated[int, typer.Option(help="Number of CPU cores; -1 uses all.")]
Json = Annotated[bool, flag("--json", "Print JSON instead of text.")]
_ROWS = "Comma-separated numbers of support rows; by default those of 0,1,2,5,10,20,50 that at least half of the tasks exceed."
Rows = Annotated[str | None, typer.Option(metavar="NUMBERS", help=_ROWS)]
_SUPPORT = (
    "CSV or parquet file with observed rows of the tasks in DATA, with the target. A task with support rows is adapted to "
    "these rows only. If it is a training task, give all of its rows."
)
Support = Annotated[str | None, typer.Option(metavar="FILE", help=_SUPPORT)]
_TOTAL_BY = (
    "Write a row for each value of this column of DATA, with the total of the target and its interval. "
    "All rows are needed, so --missing drop is refused."
)
_WEIGHTS = "Column of DATA with the number of units that each row stands for, e.g. people; with --total-by."
_MEAN = "Write means instead of totals; with --total-by."
_INCOMPLETE = (
    "Rows with a missing feature: error (stop) or drop (leave their prediction empty). A model that was fitted with "
    "--missing impute imputes missing features, unless drop is given."
)
_CHECKPOINT = "Folder for statistics, with which the same command continues an interrupted fit. Only for files of 1 GB or more."
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
    features: Features = None,
    varying: Varying = None,
    loss: LossName = "squared",
    exposure: Exposure = None,
    time: Time = None,
    first_rows: FirstRows = False,
    missing: Missing = "error",
    decimal: Decimal = None,
    encoding: Encoding = None,
    checkpoint: Annotated[Path | None, typer.Option(metavar="FOLDER", help=_CHECKPOINT)] = None,
    jobs: Jobs = -1,
) -> None:
    """Fit a model to a table with many tasks, and write it to a file.

    Example: tailored fit pupils.csv --task school --target score --side-info schools.csv -o model.tailored

    Files of 1 GB or more are read in batches.
    """
    with report_user_errors():
        check_files(out, data=data, side_info=side_info)
        labels, side, names, slopes = map(_names, (task, side_columns, features, varying))
        columns = Columns(labels or [], target, side, names, slopes, exposure, time).with_formula(
            formula
        )
        learner = _learner(columns, loss, first_rows, jobs)
        from ..tasks.describing import hint_about_target

        if checkpoint is not None and not is_large(data):
            raise UsageError(
                "--checkpoint: only files of 1 GB or more are fitted with one. Omit this option."
            )
        tasks = (scan_tasks if is_large(data) else read_tasks)(data, columns, side_info, missing)
        classes = _classes(tasks, loss)
        if classes:
            learner = _classifier(learner)
            note(f"target {columns.target!r} has {len(classes)} classes, so a classifier is fitted")
        elif loss in ("squared", "absolute") and (
            hint := hint_about_target(getattr(tasks, "y", ()))
        ):
            note(f"hint: {with_options(hint)}")
        resumed = {} if checkpoint is None else {"checkpoint": checkpoint}
        learner.set_params(progress=sys.stderr.isatty()).fit(tasks, **resumed)
        learner.save(out)
        for summary in _summaries(learner).values():
            say("\n".join([summary.title, *(f"  {sentence}" for sentence in summary.text)]))
        option = "" if side_info is None else f" --side-info {shlex.quote(side_info)}"
        following = f"tailored predict {shlex.quote(str(out))} NEW.csv{option} -o predictions.csv"
        say("\n".join([*_read_as(learner.encoding_), f"model: {out}", f"next: {following}"]))


def predict(
    model: Model,
    data: Data,
    support: Support = None,
    side_info: SideInfo = None,
    out: Annotated[
        str, _out("CSV or parquet file to write; - writes to standard output.")
    ] = STANDARD,
    coverage: Coverage = 0.9,
    total_by: Annotated[str | None, typer.Option(metavar="COLUMN", help=_TOTAL_BY)] = None,
    weights: Annotated[str | None, typer.Option(metavar="COLUMN", help=_WEIGHTS)] = None,
    mean: Annotated[bool, typer.Option("--mean", help=_MEAN)] = False,
    missing: Annotated[
        Literal["error", "drop"], typer.Option(metavar="CHOICE", help=_INCOMPLETE)
    ] = "error",
    decimal: Decimal = None,
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """Append predictions, bounds of prediction intervals (lower, upper) and predictive std to a table.

    Example: tailored predict model.tailored new.csv --support first.csv -o predictions.csv

    Predictions are means of the target by default; the option --loss of fit selects another quantity. For classes, the
    new columns are probabilities.

    Training tasks are predicted with the coefficients from fit. A model of more than 5,000 tasks that was fitted to a file of
    1 GB or more does not store them: pass rows of the tasks with --support.

    New tasks are predicted from their support rows and side information; without both, from the prior alone.

    With --total-by, the output has one row for each value of a column: the total, or the mean, of the predicted rows.
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
        if side is None:
            names = [column.name for column in learner.encoding_.side_info]
            check_columns(
                table, names if set(names) & set(table.column_names) else (), "data", data
            )
        drop, options = missing == "drop", {"side_info": side}
        if total_by is None and (mean or weights is not None):
            raise UsageError("--weights, --mean: they are for totals. Add --total-by COLUMN.")
        # Predictions of classes are probabilities without intervals, but totals of classes have intervals.
        if total_by is not None or not hasattr(learner, "classes_"):
            options["coverage"] = coverage
        if total_by is not None:
            if drop:
                raise UsageError(
                    "--missing: a total needs all rows. Omit it, or remove incomplete rows."
                )
            check_columns(table, [total_by], "--total-by", data)
            check_columns(table, [] if weights is None else [weights], "--weights", data)
            options |= {
                "by": total_by,
                "weights": weights,
                "statistic": "mean" if mean else "total",
            }
            table = learner.predict_totals(table, rows, **options)
            n_rows = table.num_rows
        else:
            n_rows, table = _append_predictions(learner, table, rows, drop, **options)
        if as_json:
            write_out("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
        if out != STANDARD or not as_json:
            write_table(out, table)
        if out != STANDARD:
            note(f"{n_rows:,} predictions: {out}")


def evaluate(
    data: Data,
    task: TaskColumn = "",
    target: Target = "",
    formula: FormulaText = None,
    side_info: SideInfo = None,
    side_columns: SideColumns = None,
    features: Features = None,
    varying: Varying = None,
    loss: LossName = "squared",
    exposure: Exposure = None,
    time: Time = None,
    missing: Missing = "error",
    decimal: Decimal = None,
    encoding: Encoding = None,
    rows: Rows = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds of whole tasks.")] = 5,
    first_rows: FirstRows = False,
    coverage: Coverage = 0.9,
    seed: Annotated[int, typer.Option(help="Seed of the folds and of the support rows.")] = 0,
    jobs: Jobs = -1,
    out: Annotated[str | None, _out("CSV or parquet file to write the errors to.")] = None,
    as_json: Json = False,
) -> None:
    """Estimate the errors of the model and of baselines on new tasks, by cross-validation.

    Support rows are the observed rows of a new task. There is one error for each number of support rows.

    Example: tailored evaluate pupils.csv --task school --target score --side-info schools.csv
    """
    with report_user_errors():
        check_files(out, data=data, side_info=side_info)
        supports: Any = None if rows is None else _integers(rows)
        labels, side, names, slopes = map(_names, (task, side_columns, features, varying))
        columns = Columns(labels or [], target, side, names, slopes, exposure, time).with_formula(
            formula
        )
        learner = _learner(columns, loss, first_rows, jobs)
        import pyarrow as pa

        from .. import evaluation
        from .._utils.tables import plural

        tasks = read_tasks(data, columns, side_info, missing)
        has_classes = bool(_classes(tasks, loss))
        methods = evaluation.usual_methods("bernoulli" if has_classes else loss)
        methods["tailored"] = _classifier(learner) if has_classes else learner
        if first_rows:
            supports = "first" if supports is None else ("first", *supports)
        options: Any = {
            "supports": supports,
            "n_folds": folds,
            "loss": loss,
        }
        options |= {"coverage": coverage, "random_state": seed, "progress": sys.stderr.isatty()}
        result = evaluation.evaluate(tasks, methods, **options)
        records = result.records()
        if out is not None:
            write_table(out, pa.Table.from_pylist(records))
        if as_json:
            say(
                json.dumps(
                    {"n_tasks": len(result.labels), "n_query": result.n_query, "errors": records}
                )
            )
            return
        say(str(result))
        if n_left := len(tasks) - len(result.labels):
            most = plural(result.supports[-1], "row")
            say(f"  Tasks with at most {most} are not evaluated: {n_left:,} of {len(tasks):,}.")


def summary(model: Model, as_json: Json = False) -> None:
    """Print a summary of a model: fixed effects, random effects, side information, errors.

    Example: tailored summary model.tailored
    """
    with report_user_errors():
        check_files(None, model=model)
        from .. import load

        learner = load(model)
        summaries = _summaries(learner)
        if as_json:
            by_class = {str(label): result.to_dict() for label, result in summaries.items()}
            say(
                json.dumps(
                    by_class if len(by_class) > 1 else next(iter(by_class.values())), default=str
                )
            )
        else:
            say("\n\n\n".join(map(str, summaries.values())))


def report(
    model: Model,
    data: Annotated[str, typer.Option(metavar="FILE", help=_FITTED_TO, show_default=False)],
    side_info: SideInfo = None,
    out: Annotated[Path, _out("HTML file to write.")] = Path("report.html"),
    missing: Missing = "error",
    decimal: Decimal = None,
    encoding: Encoding = None,
    coverage: Coverage = 0.9,
) -> None:
    """Write an HTML page about a model and its data.

    Example: tailored report model.tailored --data pupils.csv --side-info schools.csv -o report.html
    """
    with report_user_errors():
        check_files(out, model=model, data=data, side_info=side_info)
        from ..report import write_report

        learner = _load(model)
        names = learner.columns_in_
        side = names["side_info"] if side_info is None else None
        columns = Columns(
            list(learner.encoding_.task_columns), names["target"], side, _feature_columns(learner)
        )
        missing = "impute" if missing == "error" and learner.encoding_.imputes else missing
        tasks = read_tasks(data, columns, side_info, missing, learner)
        note("cross-validating the model and baselines over tasks; this takes longer than fit")
        options: Any = {"coverage": coverage, "progress": sys.stderr.isatty()}
        write_report(
            learner, tasks, out, **options, csv_format=READ.get("data", (",", ".", "utf-8"))
        )
        say(f"page: {out}")


class Columns(NamedTuple):
    """Column names by role.  None uses the default of the library."""

    task: list[str]
    target: str
    side: list[str] | None = None
    features: list[str] | None = None
    varying: list[str] | None = None
    exposure: str | None = None
    time: str | None = None
    formula: ParsedFormula | None = None

    def with_formula(self, text: str | None) -> Columns:
        """Return these columns, or those of a formula if there is one; raise `UsageError` if columns are missing or given twice."""
        required = {"--task": "".join(self.task), "--target": self.target}
        given = required | {"--features": self.features, "--varying": self.varying}
        if text is None:
            if missing := [option for option, value in required.items() if not value]:
                raise UsageError(f"Missing option '{missing[0]}', or --formula.")
            return self
        if repeated := [option for option, value in given.items() if value not in ("", None)]:
            raise UsageError(
                f"{repeated[0]}: not with --formula, which names the columns. Omit this option."
            )
        from ..tasks.encoding import as_columns
        from ..tasks.parsing import parse

        formula = parse(text)
        return self._replace(
            task=list(as_columns(formula.task)), target=formula.target, formula=formula
        )


def read_tasks(
    data: str, columns: Columns, side_info: str | None, missing: str, like: Any = None
) -> TaskSet:
    """Read the tasks of a table; ``like`` is a learner whose encoding and labels are used."""
    from ..tasks.task_set import TaskSet

    if side_info is not None and columns.side is not None:
        raise UsageError(
            "--side-columns: not together with --side-info. Give only one of these options."
        )
    labels, known = columns.task, getattr(like, "task_labels_", None)
    table = _read_by_task(data, labels, "data", known)
    if like is not None:
        check_columns(
            table, [columns.target, *(columns.features or ()), *(columns.side or ())], "data", data
        )
    if known is None:
        known = table[labels[0]].unique().to_numpy(zero_copy_only=False)
    side = None if side_info is None else _read_by_task(side_info, labels, "--side-info", known)
    options: dict[str, Any] = {"side_info": side, "side_columns": columns.side, "missing": missing}
    options["exposure"] = columns.exposure
    if columns.formula is not None:
        tasks = TaskSet.from_formula(columns.formula.text, table, **options)
    else:
        options |= {"features": columns.features} if like is None else {"encoding": like.encoding_}
        task = labels if len(labels) > 1 else labels[0]
        tasks = TaskSet.from_frame(table, task=task, target=columns.target, **options)
    _note_dropped("data", table.num_rows, tasks.encoding.dropped if tasks.encoding else ())
    return tasks


def scan_tasks(data: str, columns: Columns, side_info: str | None, missing: str) -> TaskScan:
    """Scan the tasks of a large table in batches."""
    from ..sources.scan import scan

    batches = "a file of 1 GB or more is read in batches"
    if columns.formula is not None:
        raise UsageError(f"--formula: {batches}. Use --task, --target, --features and --varying.")
    if side_info is not None:
        advice = "Join the side information to the rows, and name its columns with --side-columns."
        raise UsageError(f"--side-info: {batches}. {advice}")
    if len(columns.task) > 1:
        raise UsageError(
            f"--task: {batches}, and needs one column of labels. Join them in one column."
        )
    if missing != "error":
        raise UsageError(f"--missing: {batches} and must be complete. Filter its rows first.")
    if columns.time is not None:
        raise UsageError(
            f"--time: {batches}, and noise that is correlated in time cannot be fitted in batches. Omit this option."
        )
    if columns.exposure is not None:
        raise UsageError(
            f"--exposure: {batches}, where exposures are not supported. Use a sample of tasks."
        )
    source, task, target = open_large(data, columns.task), columns.task[0], columns.target
    return scan(
        source, task=task, target=target, features=columns.features, side_columns=columns.side
    )


def _read_by_task(path: str, names: list[str], option: str, known: np.ndarray | None) -> pa.Table:
    """Read a table; task labels in a single column are converted to the type of the ``known`` labels."""
    table = read_table(path, option, names)
    check_columns(table, names, option, path)
    return table if len(names) > 1 else convert_labels(table, names[0], option, known)


def _append_predictions(
    learner: Any, table: pa.Table, support: pa.Table | None, drop: bool, **options: Any
) -> tuple[int, pa.Table]:
    """Return the number of predictions, and the table with columns of predictions.

    With ``drop``, incomplete rows have no prediction, and incomplete support rows are not used.
    """
    import pyarrow as pa

    query, position = table, None
    if drop:
        if support is not None:
            support = support.filter(
                _complete(learner, support, "--support", learner.columns_in_["target"])
            )
        complete = _complete(learner, table, "data")
        query, position = table.filter(complete), pa.array(complete.cumsum() - 1, mask=~complete)
    predicted = learner.predict_tasks(query, support, **options)
    names = [name for name in predicted.column_names if name not in learner.encoding_.task_columns]
    replaced = [name for name in names if name in table.column_names]
    if replaced:
        note(
            f"data: its columns {', '.join(replaced)} are replaced by predictions; rename them to keep them"
        )
    table = table.drop_columns(replaced)
    for name in names:
        values = predicted[name].combine_chunks()
        table = table.append_column(name, values if position is None else values.take(position))
    return query.num_rows, table


def _complete(learner: Any, table: pa.Table, option: str, target: str | None = None) -> np.ndarray:
    """Return a mask of the rows that a learner can use, and print the number of the others by reason."""
    from .._utils.frames import read_frame
    from ..tasks.encoding import ROW_VALUES
    from ..tasks.reading import complete_rows

    encoding = learner.encoding_
    names = [
        getattr(encoding, role) for role in (ROW_VALUES if target is not None else ("exposure",))
    ]
    used = [name for name in (*names, *_feature_columns(learner)) if name in table.column_names]
    complete, dropped = complete_rows(
        read_frame(table, "data"), encoding.task_columns, target, used
    )
    _note_dropped(option, table.num_rows, dropped, "dropped" if target else "without a prediction")
    return complete


def _note_dropped(
    option: str, n_rows: int, dropped: Iterable[tuple[str, int]], then: str = "dropped"
) -> None:
    """If rows of a table were not used, print how many were read, and how many were not used for each reason."""
    if reasons := ", ".join(f"{count:,} with {reason}" for reason, count in dropped):
        used = n_rows - sum(count for _, count in dropped)
        note(f"{option}: {n_rows:,} rows read, {used:,} used; {then}: {reasons}")


def _learner(columns: Columns, loss: str, first_rows: bool, n_jobs: int) -> Any:
    if columns.exposure is not None and loss not in ("poisson", "negative_binomial"):
        raise UsageError(
            "--exposure: only for counts. Add --loss poisson or --loss negative_binomial."
        )
    from ..learners.empirical_bayes import EmpiricalBayesLearner

    return EmpiricalBayesLearner(
        loss=loss,
        varying=columns.varying,
        fit_intercept=columns.formula is None or columns.formula.has_intercept,
        n_support="first" if first_rows else None,
        n_jobs=n_jobs,
    )


def _classes(tasks: Any, loss: str) -> tuple[Any, ...]:
    """Return the classes of the target.  A numeric target has no classes unless the loss is "bernoulli"."""
    encoding = getattr(tasks, "encoding", None)
    classes = () if encoding is None else encoding.classes
    if classes or loss != "bernoulli":
        return classes
    if not hasattr(tasks, "y"):
        batches = (
            "a file of 1 GB or more is read in batches, but a classifier needs all rows in memory"
        )
        raise UsageError(f"--loss: {batches}. Fit to a sample of the tasks.")
    classes = tuple(sorted(set(tasks.y.tolist())))
    if fractions := [value for value in classes if value % 1]:
        found = f"{tasks.encoding.target!r} has fractions such as {fractions[0]:g}, which are not classes"
        raise UsageError(f"--loss bernoulli: {found}. Use --loss squared for numbers.")
    return classes


def _classifier(learner: EmpiricalBayesLearner) -> EmpiricalBayesClassifier:
    """Return a classifier with the settings of a learner."""
    from ..learners.classifier import EmpiricalBayesClassifier

    if learner.loss not in ("squared", "bernoulli"):
        raise UsageError("--loss: the target has classes. Omit this option.")
    names = ("varying", "fit_intercept", "n_support", "n_jobs")
    return EmpiricalBayesClassifier(**{name: getattr(learner, name) for name in names})


def _summaries(learner: Any) -> dict[Any, Summary]:
    """Return the summary of a learner, or those of a classifier by class."""
    return learner.summaries() if hasattr(learner, "summaries") else {"": learner.summary()}


def _read_as(encoding: TableEncoding) -> list[str]:
    """Return lines that list the columns read as numbers, categories, dates and side information."""
    kinds = dict.fromkeys(("categorical", "levels", "ordered"), "categories") | {"date": "dates"}
    lines: dict[str, str] = {}
    for column in encoding.features:
        kind = kinds.get(column.kind, "numbers")
        lines[kind] = f"{lines[kind]}, {column.name}" if kind in lines else f"{kind}: {column.name}"
    side = [f"{column.name} ({kinds.get(column.kind, 'number')})" for column in encoding.side_info]
    return [*lines.values(), f"side information: {', '.join(side)}"][: len(lines) + bool(side)]


def _names(text: str | None) -> list[str] | None:
    """Split comma-separated names; double quotes enclose a name that contains a comma."""
    if text is None:
        return None
    return [
        name.strip()
        for line in csv.reader([text], skipinitialspace=True)
        for name in line
        if name.strip()
    ]


def _integers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
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


def _feature_columns(learner: Any) -> list[str]:
    """Return the columns of a table that the learner reads."""
    return [column.name for column in learner.encoding_.features]
