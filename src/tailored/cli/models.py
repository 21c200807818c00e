"""Commands for a user's own tables: `fit`, `predict`, `evaluate`, `summary`, `report`.

Each command is a dataclass: its fields are the arguments and options, and `run` does the work.
"""

from __future__ import annotations

import csv
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from .console import note, report_errors, say, with_options
from .tables import (
    STANDARD,
    TABLES,
    check_columns,
    check_files,
    label_types,
    read_table,
    rounded,
    write_table,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from ..tasks.task_set import TaskSet

#: Maximum number of tasks in the evaluation of a report, and its number of folds.
MAX_EVALUATED, REPORT_FOLDS = 1_000, 3


def _argument(name: str, text: str) -> Any:
    return typer.Argument(metavar=name, help=text, show_default=False)


def _column(text: str, name: str = "COLUMN") -> Any:
    return typer.Option(None, metavar=name, help=text)


def _out(default: Any, text: str) -> Any:
    return typer.Option(default, "--out", "-o", metavar="FILE", help=text)


_MODEL = _argument("MODEL", "Model file written by `tailored fit`.")
_DATA = _argument(
    "DATA", "CSV or parquet file with one row per observation; - reads standard input."
)
_SIDE_INFO = _column(
    "CSV or parquet file with side information (group-level features): one row per task, with the "
    "task column.",
    "FILE",
)
_COVERAGE = typer.Option(0.9, help="Nominal coverage of the prediction intervals, e.g. 0.9.")


class Command:
    """Base of the commands: run, and report errors in one line."""

    def __post_init__(self) -> None:
        with report_errors():
            self.run()

    def run(self) -> None:
        raise NotImplementedError


@dataclass
class TableCommand(Command):
    """Base of the commands that fit a learner to a table."""

    data: str = _DATA
    task: str = _column(
        "Column with the group (task) of each row, e.g. a school or a patient, or several columns, "
        "separated by commas."
    )
    target: str = _column("Column to predict.")
    formula: str = _column(
        "Formula of lme4, e.g. 'score ~ hours + (hours | school)', instead of --task, --target and "
        "--varying. It also selects the columns; without it, all other columns are features.",
        "FORMULA",
    )
    side_info: str = _SIDE_INFO
    side_columns: str = _column(
        "Comma-separated columns of DATA with side information; by default those that are constant "
        "within each task, if at least 10 tasks have two or more rows.",
        "COLUMNS",
    )
    varying: str = _column(
        "Comma-separated columns with random slopes; '' fits a random intercept only. By default, "
        "fit selects them.",
        "COLUMNS",
    )
    loss: Literal["squared", "absolute", "poisson", "negative_binomial", "bernoulli"] = (
        typer.Option(
            "squared",
            metavar="LOSS",
            help="Predicted quantity: squared (the mean of the target) or absolute (its median); "
            "poisson or negative_binomial for the mean of counts; bernoulli for probabilities of "
            "classes, which is the default for a target of booleans or strings.",
        )
    )
    exposure: str = _column(
        "Column with the exposure of counts, such as a time. Predictions are exposure times rate."
    )
    time: str = _column(
        "Feature with the times of the rows (numbers or dates): noise that is correlated in time "
        "is then a candidate."
    )

    def read_tasks(self) -> TaskSet:
        """Read the tasks of the table, with the given columns or those of the formula."""
        from ..tasks.encoding import as_columns
        from ..tasks.parsing import parse
        from ..tasks.task_set import TaskSet

        given = {"--task": self.task, "--target": self.target, "--varying": self.varying}
        if self.formula is None and (missing := [name for name in [*given][:2] if not given[name]]):
            raise ValueError(f"Missing option '{missing[0]}', or --formula.")
        if self.formula is not None and (repeated := [name for name in given if given[name]]):
            raise ValueError(
                f"{repeated[0]}: not with --formula, which names the columns. Omit this option."
            )
        options: dict[str, Any] = {"side_columns": _names(self.side_columns), "time": self.time}
        options["exposure"] = self.exposure
        if self.formula is not None:
            labels = list(as_columns(parse(self.formula).task))
            table, options["side_info"] = _read_tables(self.data, self.side_info, labels)
            tasks = TaskSet.from_formula(self.formula, table, missing="drop", **options)
        else:
            labels = _names(self.task) or []
            table, options["side_info"] = _read_tables(self.data, self.side_info, labels)
            options |= {"task": labels if len(labels) > 1 else labels[0], "target": self.target}
            tasks = TaskSet.from_frame(table, missing="impute", **options)
        encoding: Any = tasks.encoding
        if reasons := ", ".join(f"{count:,} with {reason}" for reason, count in encoding.dropped):
            note(f"data: {table.num_rows:,} rows read, {len(tasks.y):,} used; left out: {reasons}")
        if self.formula is None:
            _note_imputed(table, encoding)
        return tasks

    def learner_for(self, tasks: TaskSet) -> Any:
        """Return a learner for the target of these tasks, a classifier if it has classes."""
        from ..learners.classifier import EmpiricalBayesClassifier
        from ..learners.empirical_bayes import EmpiricalBayesLearner

        encoding: Any = tasks.encoding
        has_intercept = encoding.formula is None or encoding.formula.has_intercept
        options: Any = {"fit_intercept": has_intercept, "n_jobs": -1}
        options["varying"] = _names(self.varying)
        if not encoding.classes and self.loss != "bernoulli":
            return EmpiricalBayesLearner(loss=self.loss, **options)
        if self.loss not in ("squared", "bernoulli") or encoding.time is not None:
            raise ValueError("--loss, --time: the target has classes. Omit these options.")
        if encoding.classes:
            note(f"target {encoding.target!r} has classes, so a classifier is fitted")
        return EmpiricalBayesClassifier(**options)


@dataclass
class Fit(TableCommand):
    """Fit a model to a table with many tasks, and write it to a file.

    Example: tailored fit pupils.csv --task school --target score -o model.tailored

    Rows without a task or a target are left out, and missing features are replaced by their means.

    With --formula, rows with missing values are left out. Both are reported.
    """

    out: str = _out("model.tailored", "Model file to write.")

    def run(self) -> None:
        check_files(self.out, data=self.data, side_info=self.side_info)
        tasks = self.read_tasks()
        learner = self.learner_for(tasks)
        from ..show.summary import summaries_of
        from ..tasks.describing import hint_about_target

        is_number = self.loss in ("squared", "absolute") and not hasattr(learner, "predict_proba")
        if is_number and (hint := hint_about_target(tasks.y)):
            note(f"hint: {with_options(hint)}")
        learner.set_params(progress=sys.stderr.isatty()).fit(tasks)
        learner.save(self.out)
        say("\n\n".join([*map(str, summaries_of(learner)), str(tasks.describe().table)]))
        option = "" if self.side_info is None else f" --side-info {shlex.quote(self.side_info)}"
        model = shlex.quote(str(self.out))
        following = f"tailored predict {model} NEW.csv{option} -o predictions.csv"
        say(f"\nmodel: {self.out}\nnext: {following}")


@dataclass
class Predict(Command):
    """Append predictions, bounds of prediction intervals and predictive std to a table.

    Example: tailored predict model.tailored new.csv --support first.csv -o predictions.csv

    Predictions are means of the target, unless fit had another --loss; for classes, probabilities.
    They are rounded to the digit of the fourth figure of the smallest std.

    Training tasks are predicted with the coefficients from fit.

    New tasks are predicted from their support rows and side information, or else from the prior.

    With --total-by, the output has one row for each value of a column, with the total of its rows.

    Training tasks then need their rows as --support.
    """

    model: str = _MODEL
    data: str = _DATA
    support: str = _column(
        "CSV or parquet file with observed rows of the tasks in DATA, with the target. A task with "
        "support rows is adapted to these rows only. If it is a training task, give all of its "
        "rows.",
        "FILE",
    )
    side_info: str = _SIDE_INFO
    out: str = _out(STANDARD, "CSV or parquet file to write; - writes to standard output.")
    coverage: float = _COVERAGE
    total_by: str = _column(
        "Write a row for each value of this column, with the total of the target and its interval."
    )
    weights: str = _column(
        "Column with the number of units that each row stands for, e.g. people; with --total-by."
    )
    mean: bool = typer.Option(
        False, "--mean", metavar="", help="Write means instead of totals; with --total-by."
    )

    def run(self) -> None:
        files = {"model": self.model, "data": self.data, "support": self.support}
        check_files(self.out, endings=TABLES, side_info=self.side_info, **files)
        learner = _load(self.model)
        labels, known = list(learner.encoding_.task_columns), getattr(learner, "task_labels_", None)
        table, side = _read_tables(self.data, self.side_info, labels, known)
        rows = None
        if self.support is not None:
            rows = _read_by_task(self.support, labels, "--support", known)
        options: dict[str, Any] = {"side_info": side}
        # Predictions of classes are probabilities without intervals, but totals of classes have
        # intervals.
        if self.total_by is not None or not hasattr(learner, "classes_"):
            options["coverage"] = self.coverage
        if self.total_by is not None:
            check_columns(table, [self.total_by], "--total-by", self.data)
            weights = [] if self.weights is None else [self.weights]
            check_columns(table, weights, "--weights", self.data)
            options |= {"weights": self.weights, "statistic": "mean" if self.mean else "total"}
            table = learner.predict_totals(table, rows, by=self.total_by, **options)
            names = table.column_names[1:]
        elif self.mean or self.weights is not None:
            raise ValueError("--weights, --mean: they are for totals. Add --total-by COLUMN.")
        else:
            _note_imputed(table, learner.encoding_)
            predicted = learner.predict_tasks(table, rows, **options)
            names = [name for name in predicted.column_names if name not in labels]
            if replaced := [name for name in names if name in table.column_names]:
                kept = "rename them to keep them"
                note(f"data: columns {', '.join(replaced)} are replaced by predictions; {kept}")
            table = table.drop_columns(replaced)
            for name in names:
                table = table.append_column(name, predicted[name])
        write_table(self.out, rounded(table, names))
        if self.out != STANDARD:
            note(f"{table.num_rows:,} predictions: {self.out}")


@dataclass
class Evaluate(TableCommand):
    """Estimate the errors of the model and of baselines on new tasks, by cross-validation.

    There is one error for each number of support rows, which are the observed rows of a new task.

    Example: tailored evaluate pupils.csv --task school --target score --side-info schools.csv
    """

    rows: str = _column(
        "Comma-separated numbers of support rows, such as 0,5,20, or first,0,5,20 for the first "
        "rows of a task instead of random ones. By default those of 0,1,2,5,10,20,50 that at least "
        "half of the tasks exceed.",
        "NUMBERS",
    )

    def run(self) -> None:
        check_files(None, data=self.data, side_info=self.side_info)
        supports: Any = self.rows
        if self.rows is not None:
            supports = [int(n) if n.isdecimal() else n for n in self.rows.split(",")]
        tasks = self.read_tasks()
        learner = self.learner_for(tasks)
        from .._utils.tables import plural
        from ..evaluation import evaluate

        result = evaluate(tasks, learner, supports=supports, progress=sys.stderr.isatty())
        say(str(result))
        if n_left := len(tasks) - len(result.labels):
            most = plural(result.supports[-1], "row")
            say(f"  Tasks with at most {most} are not evaluated: {n_left:,} of {len(tasks):,}.")


@dataclass
class Summary(Command):
    """Print what was fitted, how good it is on new tasks, and what matters.

    Example: tailored summary model.tailored
    """

    model: str = _MODEL
    details: bool = typer.Option(
        False,
        "--details",
        metavar="",
        help="Also print random effects, side information, the selection and errors, with "
        "definitions.",
    )

    def run(self) -> None:
        check_files(None, model=self.model)
        from .. import load
        from ..show.summary import summaries_of

        say("\n\n\n".join(map(str, summaries_of(load(self.model), details=self.details))))


@dataclass
class Report(Command):
    """Write an HTML page about a model and its data.

    Example: tailored report model.tailored --data pupils.csv --side-info schools.csv -o report.html
    """

    model: str = _MODEL
    data: str = typer.Option(
        ...,
        metavar="FILE",
        help="Table that the model was fitted to, or another table with the same columns.",
        show_default=False,
    )
    side_info: str = _SIDE_INFO
    out: str = _out("report.html", "HTML file to write.")
    coverage: float = _COVERAGE
    evaluation: bool = typer.Option(
        True,
        "--evaluation/--no-evaluation",
        help="Cross-validate the model and baselines over tasks, which takes longer than fit.",
    )

    def run(self) -> None:
        check_files(self.out, model=self.model, data=self.data, side_info=self.side_info)
        from ..show.report import write_report
        from ..tasks.task_set import TaskSet

        learner = _load(self.model)
        target, encoding = learner.columns_in_["target"], learner.encoding_
        task, known = list(encoding.task_columns), getattr(learner, "task_labels_", None)
        table, side = _read_tables(self.data, self.side_info, task, known)
        missing = "impute" if encoding.imputes else "error"
        options: Any = {"side_info": side, "encoding": encoding, "missing": missing}
        task = task if len(task) > 1 else task[0]
        tasks = TaskSet.from_frame(table, task=task, target=target, **options)
        result = self._evaluate(learner, tasks) if self.evaluation else None
        write_report(self.out, learner, tasks, result, coverage=self.coverage)
        say(f"page: {self.out}")

    def _evaluate(self, learner: Any, tasks: TaskSet) -> Any:
        """Evaluate all tasks, or a random sample of large data."""
        import numpy as np

        from ..evaluation import evaluate

        if len(tasks) > MAX_EVALUATED:
            note(f"a random sample of {MAX_EVALUATED:,} of the {len(tasks):,} tasks is evaluated")
            order = np.random.default_rng(0).permutation(len(tasks))
            tasks = tasks[np.sort(order[:MAX_EVALUATED])]
        options: Any = {"coverage": self.coverage, "progress": sys.stderr.isatty()}
        return evaluate(tasks, learner, n_folds=REPORT_FOLDS, **options)


def _note_imputed(table: pa.Table, encoding: Any) -> None:
    """Name the features with missing values, which are imputed."""
    names = [column.name for column in encoding.features]
    if imputed := [name for name in names if name in table.column_names and table[name].null_count]:
        note(f"data: missing values are replaced by their training means: {', '.join(imputed)}")


def _read_tables(
    data: str, side_info: str | None, task: list[str], known: np.ndarray | None = None
) -> tuple[pa.Table, pa.Table | None]:
    """Read a table and its side information, whose task labels have the type of the ``known``
    labels or of the table.
    """
    table = _read_by_task(data, task, "data", known)
    if side_info is None:
        return table, None
    if known is None:
        import numpy as np

        known = np.asarray(table[task[0]].unique().drop_null().to_pylist())
    return table, _read_by_task(side_info, task, "--side-info", known)


def _read_by_task(path: str, names: list[str], option: str, known: np.ndarray | None) -> pa.Table:
    """Read a table; labels in a single column have the type of the ``known`` labels."""
    table = read_table(path, option, label_types(names, known))
    check_columns(table, names, option, path)
    return table


def _names(text: str | None) -> list[str] | None:
    """Split comma-separated names; double quotes enclose a name that contains a comma."""
    if text is None:
        return None
    rows = csv.reader([text], skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def _load(path: str) -> Any:
    """Load a learner that was fitted to a table."""
    from .. import load

    if {".csv", ".tsv", ".parquet"} & set(Path(path).suffixes):
        raise ValueError(f"model: {path} is a table. The model comes first, then the data.")
    learner = load(path)
    if getattr(learner, "columns_in_", {}).get("task") is None:
        raise ValueError(f"model: {path} was not fitted to a table. Use it in Python.")
    return learner
