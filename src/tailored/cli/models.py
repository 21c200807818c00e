"""Commands for tables of one's own: learn a model, predict with it, ask how good it is and what it has learned."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .asking import Asked
from .errors import UsageError, in_one_line, telling_of_missing
from .labels import Labels
from .output import console, note, say, table
from .tables import STANDARD, Writer, column, is_large, open_large, read_table, tables

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
Varying = Annotated[
    str | None,
    typer.Option(
        help="Columns whose effects may differ between tasks, separated by commas; '' is none, and the level alone differs.",
        show_default="chosen",
    ),
]
Common = Annotated[
    bool,
    typer.Option(
        "--common",
        help="Try gradient boosting for what all tasks share; it is kept where it predicts held-out tasks better.",
    ),
]
InOrder = Annotated[
    bool, typer.Option("--in-order", help="The first rows of a task are given, and later ones asked for.")
]
Missing = Annotated[
    str, typer.Option(help="Rows without a task, target or input: error, or drop to leave them out.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
TrustRegressor = Annotated[
    bool,
    typer.Option(
        "--trust-regressor",
        help="Read the common regressor of the model, which can execute code: only for files that you trust.",
    ),
]
Jobs = Annotated[int, typer.Option(help="Processor cores to use; -1 uses all.")]


def fit(
    data: Data,
    task: TaskColumn,
    target: Target,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the model.")] = Path("model.tailored"),
    describe: Describe = None,
    side: Side = None,
    features: Features = None,
    varying: Varying = None,
    common: Common = False,
    in_order: InOrder = False,
    missing: Missing = "error",
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """Learn from a table of many tasks; write a model.

    Example: tailored fit pupils.csv --task school --target score --describe schools.csv -o model.tailored

    A table of a gigabyte or more is read in batches and never held whole.
    """
    with in_one_line():
        if not out.parent.is_dir():
            raise UsageError(f"--out: there is no folder {out.parent}")
        asked = Columns(task, target, _names(side), _names(features), _names(varying))
        learner = _learner(asked, common, in_order).set_params(n_jobs=jobs, progress=sys.stderr.isatty())
        if is_large(data):
            learner.fit(scan_tasks(data, asked, describe, missing))
        else:
            learner.fit(read_tasks(data, asked, describe, missing))
        learner.save(out)
        facts = _facts(learner, out)
        if as_json:
            say(json.dumps(facts, default=str))
            return
        say(
            f"{facts['tasks']:,} tasks, columns of inputs: {facts['inputs']:,}, of descriptions: {facts['descriptions']:,}."
        )
        for sentence in facts["text"]:
            say(sentence)
        say(f"model: {out}")
        described = "" if describe is None else f" --describe {shlex.quote(describe)}"
        say(f"next: tailored predict {shlex.quote(str(out))} NEW.csv{described} -o predictions.csv")


def predict(
    model: Annotated[str, typer.Argument(help="Model that `tailored fit` wrote.", show_default=False)],
    data: Annotated[
        str, typer.Argument(help="Rows to predict: CSV or parquet; - is standard input.", show_default=False)
    ],
    support: Annotated[
        str | None,
        typer.Option(
            help="Rows of the same tasks whose target is known. A task that has some is adapted to these alone, also if the "
            "model was learned from it: give all of its rows then."
        ),
    ] = None,
    describe: Describe = None,
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="CSV or parquet file for the predictions; - is standard output."),
    ] = STANDARD,
    coverage: Annotated[float, typer.Option(help="Probability that an interval holds the target.")] = 0.9,
    missing: Annotated[
        str, typer.Option(help="Rows without an input: error, or drop to leave their prediction empty.")
    ] = "error",
    trust_regressor: TrustRegressor = False,
    as_json: Json = False,
) -> None:
    """Predict rows of new or known tasks, with intervals: the table with four columns more.

    Example: tailored predict model.tailored new.csv --support first.csv -o predictions.csv

    A task that the model was learned from is predicted by what was learned of it.

    A new one is predicted from its rows in the support, or from what all tasks have in common and its description.
    """
    with in_one_line():
        from ..files.format import load

        learner = load(model, trust_regressor=trust_regressor)
        known = learner.columns_in_
        if known["task"] is None:
            raise UsageError(f"model: {model} was not learned from a table; use predict_tasks in Python")
        asked, n_rows = Asked.of(learner, support, describe, coverage, missing), 0
        whole = not is_large(data)
        with Writer(out, as_lines=as_json) as writer:
            for table in tables(data, "data", asked.columns):
                writer.write(asked.predict(table, data, whole=whole))
                n_rows += table.num_rows
        if out != STANDARD and not as_json:
            note(f"{n_rows:,} predictions: {out}")


def evaluate(
    data: Data,
    task: TaskColumn,
    target: Target,
    describe: Describe = None,
    side: Side = None,
    features: Features = None,
    varying: Varying = None,
    common: Common = False,
    missing: Missing = "error",
    rows: Annotated[
        str | None,
        typer.Option(
            help="Numbers of given rows, separated by commas.",
            show_default="0,1,2,5,10,20,50, as far as tasks go",
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts that the tasks are held out in.")] = 5,
    in_order: InOrder = False,
    coverage: Annotated[float, typer.Option(help="Of the intervals.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Draws held-out tasks and rows.")] = 0,
    jobs: Jobs = -1,
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

        supports = None if rows is None else _numbers(rows)
        asked = Columns(task, target, _names(side), _names(features), _names(varying))
        learner = _learner(asked, common, in_order).set_params(n_jobs=jobs)
        found = evaluation.evaluate(
            read_tasks(data, asked, describe, missing),
            {**evaluation.usual_methods(), "tailored": learner},
            supports=supports,
            n_folds=folds,
            order="given" if in_order else "random",
            coverage=coverage,
            random_state=seed,
            progress=sys.stderr.isatty(),
        )
        if out is not None:
            with Writer(out) as writer:
                writer.write(pa.Table.from_pylist(found.records()))
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
    trust_regressor: TrustRegressor = False,
    as_json: Json = False,
) -> None:
    """What a model has learned: common effects, how much they vary between tasks, what descriptions say.

    Example: tailored summary model.tailored
    """
    with in_one_line():
        from ..files.format import load

        found = load(model, trust_regressor=trust_regressor).summary()
        say(json.dumps(found.to_dict(), default=str) if as_json else str(found))


class Columns(NamedTuple):
    """Columns of a table that options name; None are the others, none, or the learner's to choose."""

    task: str | tuple[str, ...]
    target: str
    side: list[str] | None = None
    features: list[str] | None = None
    varying: list[str] | None = None

    @property
    def labels(self) -> list[str]:
        return [self.task] if isinstance(self.task, str) else list(self.task)

    def check(self, table: Any, where: str) -> None:
        """Refuse names that the table has not."""
        for names, option in (
            (self.labels, "--task"),
            ([self.target], "--target"),
            (self.side, "--side"),
            (self.features, "--features"),
            (self.varying, "--varying"),
        ):
            for name in names or ():
                column(table, name, option, where)


def read_tasks(
    data: str, asked: Columns, describe: str | None, missing: str = "error", like: Any = None
) -> Any:
    """The tasks of a table, with descriptions from another one or from columns of its own.

    ``like`` is a learner whose table this one is to be read like.
    """
    from ..tasks import TaskSet

    if describe is not None and asked.side is not None:
        raise UsageError("--side: descriptions come from --describe already; give one of them")
    if missing not in ("error", "drop"):
        raise UsageError(f"--missing: it is error or drop; got {missing!r}")
    labels = Labels(getattr(like, "task_labels_", None))

    def read(path: str, option: str, check: Any) -> Any:
        table = read_table(path, option, asked.labels)
        check(table, path)
        return labels.read(table, asked.labels[0], option) if len(asked.labels) == 1 else table

    def has_labels(table: Any, path: str) -> None:
        for name in asked.labels:
            column(table, name, "--describe", path)

    with telling_of_missing(missing == "error"):
        return TaskSet.from_frame(
            read(data, "data", asked.check),
            task=asked.task,
            target=asked.target,
            features=asked.features if like is None else None,
            side_info=None if describe is None else read(describe, "--describe", has_labels),
            side_columns=asked.side,
            encoding=None if like is None else like.encoding_,
            missing=missing,
        )


def scan_tasks(data: str, asked: Columns, describe: str | None, missing: str) -> Any:
    """The tasks of a table that is read in batches."""
    from ..sources.scan import scan

    if describe is not None:
        raise UsageError(
            "--describe: a table that is read in batches has its descriptions in columns of its own: join them to its rows, "
            "and name them with --side"
        )
    if missing != "error":
        raise UsageError(
            "--missing: a table that is read in batches has to be complete; filter its rows first"
        )
    return scan(
        open_large(data, "data", asked.labels),
        task=asked.labels[0],
        target=asked.target,
        features=asked.features,
        side_columns=asked.side,
    )


def _learner(asked: Columns, common: bool, in_order: bool) -> Any:
    from ..learners import EmpiricalBayesLearner

    return EmpiricalBayesLearner(
        common="auto" if common else None,
        varying=asked.varying,
        order="given" if in_order else "random",
    )


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
        "descriptions": int(learner.n_side_info_in_),
        "text": list(learner.summary().text),
        "form": learner.form_,
        "side_form": learner.side_form_,
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
