"""The command line, a thin layer over the library.

A command with many options is a dataclass: its fields are the arguments and options, and
`__post_init__` does the work.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import typer

from .console import note, report_errors, say, with_options
from .tables import (
    STANDARD,
    check_files,
    read_table,
    with_rounded,
    write_table,
)

if TYPE_CHECKING:
    from ..tasks.task_set import TaskSet

__all__ = ["app"]

#: Maximum number of tasks in the evaluation of a report.
MAX_EVALUATED = 1_000

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        from .._version import __version__

        typer.echo(f"tailored {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Fit a linear regression for each of many groups with few rows, and predict new groups."""
    # Figures are written to files, so matplotlib must not look for a window system.
    os.environ.setdefault("MPLBACKEND", "Agg")


def _option(text: str, name: str = "COLUMN") -> Any:
    return typer.Option(None, metavar=name, help=text)


def _out(default: Any, text: str) -> Any:
    return typer.Option(default, "--out", "-o", metavar="FILE", help=text)


_MODEL = typer.Argument(
    metavar="MODEL", help="Model file written by `tailored fit`.", show_default=False
)
_DATA = typer.Argument(
    metavar="DATA",
    help="CSV or parquet file with one row per observation; - reads standard input.",
    show_default=False,
)
_SIDE_INFO = _option(
    "CSV or parquet file with side information (group-level features): one row per task, with the "
    "task column.",
    "FILE",
)


@dataclass
class TableCommand:
    """Base of the commands that fit a learner to a table."""

    data: str = _DATA
    task: str = _option(
        "Column with the group (task) of each row, e.g. a school or a patient, or several columns, "
        "separated by commas."
    )
    target: str = _option("Column to predict.")
    formula: str = _option(
        "Formula of lme4, e.g. 'score ~ hours + (hours | school)', instead of --task, --target and "
        "--varying. It also selects the columns; without it, all other columns are features.",
        "FORMULA",
    )
    side_info: str = _SIDE_INFO
    side_columns: str = _option(
        "Comma-separated columns of DATA with side information; by default those that are constant "
        "within each task, if at least 10 tasks have two or more rows.",
        "COLUMNS",
    )
    varying: str = _option(
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
    exposure: str = _option(
        "Column with the exposure of counts, such as a time. Predictions are exposure times rate."
    )
    time: str = _option(
        "Feature with the times of the rows (numbers or dates): noise that is correlated in time "
        "is then a candidate."
    )

    def read_tasks(self) -> TaskSet:
        """Read the tasks of the table, with the given columns or those of the formula."""
        import pyarrow as pa

        from ..tasks.encoding import as_columns
        from ..tasks.formula import parse
        from ..tasks.task_set import TaskSet

        if self.formula is None and not (self.task and self.target):
            raise ValueError("--task, --target: name these columns, or give a --formula.")
        if self.formula is not None and (self.task, self.target, self.varying) != (None,) * 3:
            names = "--task, --target, --varying"
            raise ValueError(f"{names}: not with --formula, which names the columns. Omit them.")
        options: Any = {"exposure": self.exposure, "time": self.time}
        options["side_columns"] = _names(self.side_columns)
        labels = _names(self.task) or list(as_columns(parse(self.formula).task))
        # Identifiers such as 00308 must not become numbers.
        types = dict.fromkeys(labels, pa.string())
        table, options["side_info"] = _read_tables(self.data, self.side_info, labels, types)
        if self.formula is not None:
            tasks = TaskSet.from_formula(self.formula, table, missing="drop", **options)
        else:
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


@app.command()
@dataclass
class Fit(TableCommand):
    """Fit a model to a table with many tasks, and write it to a file.

    \b
    Example:
    tailored fit pupils.csv --task school --target score -o model.tailored

    Rows without a task or a target are left out, and missing features are replaced by their means.

    With --formula, rows with missing values are left out. Both are reported.
    """

    out: str = _out("model.tailored", "Model file to write.")

    @report_errors()
    def __post_init__(self) -> None:
        check_files(self.out, self.data, self.side_info)
        tasks = self.read_tasks()
        learner = self.learner_for(tasks)
        from ..tasks.describing import hint_about_target

        is_number = self.loss in ("squared", "absolute") and not hasattr(learner, "predict_proba")
        if is_number and (hint := hint_about_target(tasks.y)):
            note(f"hint: {with_options(hint)}")
        learner.set_params(progress=sys.stderr.isatty()).fit(tasks)
        learner.save(self.out)
        columns = replace(tasks.describe(), title="", caption="")
        say(f"{learner.summary()}\n\n{columns}")
        option = "" if self.side_info is None else f" --side-info {shlex.quote(self.side_info)}"
        model = shlex.quote(str(self.out))
        following = f"tailored predict {model} NEW.csv{option} -o predictions.csv"
        say(f"\nmodel: {self.out}\nnext: {following}")


@app.command()
@dataclass
class Predict:
    """Append predictions with intervals and std to a table.

    \b
    Example:
    tailored predict model.tailored new.csv --support first.csv -o predictions.csv

    Predictions are means of the target, unless fit had another --loss; for classes, probabilities.
    They are rounded to the digit of the fourth figure of the smallest std.

    Training tasks are predicted with the coefficients from fit.

    New tasks are predicted from their support rows and side information, or else from the prior.

    With --total-by, the output has one row for each value of a column, with the total of its rows.

    Training tasks then need their rows as --support.
    """

    model: str = _MODEL
    data: str = _DATA
    support: str = _option(
        "CSV or parquet file with observed rows of the tasks in DATA, with the target. A task with "
        "support rows is adapted to these rows only. If it is a training task, give all of its "
        "rows.",
        "FILE",
    )
    side_info: str = _SIDE_INFO
    out: str = _out(STANDARD, "CSV or parquet file to write; - writes to standard output.")
    coverage: float = typer.Option(
        0.9, help="Nominal coverage of the prediction intervals, e.g. 0.9."
    )
    total_by: str = _option(
        "Write a row for each value of this column, with the total of the target and its interval."
    )
    weights: str = _option(
        "Column with the number of units that each row stands for, e.g. people; with --total-by."
    )
    mean: bool = typer.Option(
        False, "--mean", metavar="", help="Write means instead of totals; with --total-by."
    )

    @report_errors()
    def __post_init__(self) -> None:
        check_files(self.out, self.model, self.data, self.support, self.side_info)
        if self.out != STANDARD and not self.out.endswith((".csv", ".parquet")):
            raise ValueError(f"--out: {self.out} must end with .csv or .parquet.")
        learner = _load(self.model)
        labels, types = list(learner.encoding_.task_columns), _label_types(learner)
        table, side = _read_tables(self.data, self.side_info, labels, types)
        rows = None
        if self.support is not None:
            rows = read_table(self.support, "--support", labels, types)
            target = learner.columns_in_["target"]
            if target in rows.column_names and (n_missing := rows[target].null_count):
                rows = rows.filter(rows[target].is_valid())
                note(f"--support: {n_missing:,} rows left out, with no {target!r}, the target")
        options: dict[str, Any] = {"side_info": side}
        # Predictions of classes are probabilities without intervals, but totals of classes have
        # intervals.
        if self.total_by is not None or not hasattr(learner, "classes_"):
            options["coverage"] = self.coverage
        if self.total_by is not None:
            options |= {"weights": self.weights, "statistic": "mean" if self.mean else "total"}
            found = learner.predict_totals(table, rows, by=self.total_by, **options)
            table, names = found.select([0]), found.column_names[1:]
        elif self.mean or self.weights is not None:
            raise ValueError("--weights, --mean: they are for totals. Add --total-by COLUMN.")
        else:
            found = learner.predict_tasks(table, rows, **options)
            _note_imputed(table, learner.encoding_)
            names = [name for name in found.column_names if name not in labels]
            table = table.drop_columns([name for name in names if name in table.column_names])
        write_table(self.out, with_rounded(table, found.select(names)))
        if self.out != STANDARD:
            note(f"{table.num_rows:,} predictions: {self.out}")


@app.command()
@dataclass
class Evaluate(TableCommand):
    """Cross-validate the model and baselines on new tasks.

    There is one error for each number of support rows, which are the observed rows of a new task.

    \b
    Example:
    tailored evaluate pupils.csv --task school --target score --side-info schools.csv
    """

    rows: str = _option(
        "Comma-separated numbers of support rows, such as 0,5,20, or first,0,5,20 for the first "
        "rows of a task instead of random ones. By default those of 0,1,2,5,10,20,50 that at least "
        "half of the tasks exceed.",
        "NUMBERS",
    )

    @report_errors()
    def __post_init__(self) -> None:
        check_files(STANDARD, self.data, self.side_info)
        supports = [int(n) if n.isdecimal() else n for n in _names(self.rows) or ()]
        tasks = self.read_tasks()
        learner = self.learner_for(tasks)
        from .._utils.tables import plural
        from ..evaluation import evaluate

        result = evaluate(tasks, learner, supports=supports or None, progress=sys.stderr.isatty())
        say(str(result))
        if n_left := len(tasks) - len(result.labels):
            most = plural(result.supports[-1], "row")
            say(f"  Tasks with at most {most} are not evaluated: {n_left:,} of {len(tasks):,}.")


@app.command()
@report_errors()
def summary(
    model: str = _MODEL,
    details: bool = typer.Option(
        False,
        "--details",
        metavar="",
        help="Also print random effects, side information, the selection and errors, with "
        "definitions.",
    ),
) -> None:
    """Print what was fitted, how good it is, and what matters.

    \b
    Example:
    tailored summary model.tailored
    """
    check_files(STANDARD, model)
    from .. import load

    say(str(load(model).summary(details=details)))


@app.command()
@report_errors()
def report(
    model: str = _MODEL,
    data: str = typer.Option(
        ...,
        metavar="FILE",
        help="Table that the model was fitted to, or another table with the same columns.",
        show_default=False,
    ),
    side_info: str = _SIDE_INFO,
    out: str = _out("report.html", "HTML file to write."),
    evaluation: bool = typer.Option(
        True,
        "--evaluation/--no-evaluation",
        help="Cross-validate the model and baselines over tasks, which takes longer than fit.",
    ),
) -> None:
    """Write an HTML page about a model and its data.

    \b
    Example:
    tailored report model.tailored --data pupils.csv --side-info schools.csv -o report.html
    """
    check_files(out, model, data, side_info)
    from ..evaluation import evaluate
    from ..show.report import write_report
    from ..tasks.task_set import TaskSet

    learner = _load(model)
    encoding, columns = learner.encoding_, list(learner.encoding_.task_columns)
    if side_info is None:
        columns += learner.columns_in_["side_info"] or []
    table, side = _read_tables(data, side_info, columns, _label_types(learner))
    tasks = TaskSet.from_frame(
        table,
        task=encoding.task,
        target=encoding.target,
        side_info=side,
        encoding=encoding,
        missing="impute" if encoding.imputes else "drop",
    )
    result = None
    if evaluation:
        sample = tasks
        if len(tasks) > MAX_EVALUATED:
            note(f"a random sample of {MAX_EVALUATED:,} of the {len(tasks):,} tasks is evaluated")
            (sample,) = tasks.split([MAX_EVALUATED], random_state=0)
        result = evaluate(sample, learner, n_folds=3, progress=sys.stderr.isatty())
    write_report(out, learner, tasks, result)
    say(f"page: {out}")


def _note_imputed(table: Any, encoding: Any) -> None:
    """Name the features with missing values, which are imputed."""
    names = [column.name for column in encoding.features]
    if imputed := [name for name in names if name in table.column_names and table[name].null_count]:
        note(f"data: missing values are replaced by their training means: {', '.join(imputed)}")


def _read_tables(
    data: str, side_info: str | None, task: list[str], types: dict[str, Any] | None = None
) -> tuple[Any, Any]:
    """Read a table and its side information, whose task labels have the type of those of the
    table.
    """
    table = read_table(data, "data", task, types)
    if side_info is None:
        return table, None
    types = {name: table.schema.field(name).type for name in task}
    return table, read_table(side_info, "--side-info", task, types)


def _label_types(learner: Any) -> dict[str, Any]:
    """Return the types of task labels in CSV files: strings if those of the model are strings."""
    import pyarrow as pa

    labels: Any = getattr(learner, "task_labels_", ())
    names = learner.encoding_.task_columns
    parts = labels[0] if len(names) > 1 and len(labels) else labels[:1]
    is_text = len(parts) > 0 and all(isinstance(part, str) for part in parts)
    return dict.fromkeys(names, pa.string()) if is_text else {}


def _names(text: str | None) -> list[str] | None:
    """Split comma-separated names."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]


def _load(path: str) -> Any:
    """Load a learner that was fitted to a table."""
    from .. import load

    if path.endswith((".csv", ".parquet")):
        raise ValueError(f"model: {path} is a table. The model comes first, then the data.")
    learner = load(path)
    if getattr(learner, "columns_in_", {}).get("task") is None:
        raise ValueError(f"model: {path} was not fitted to a table. Use it in Python.")
    return learner
