"""Describe a task set: its size, its columns and how they were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from .._utils.tables import Table, format_number, plural, wrap
from .._utils.validation import is_missing, list_some
from .encoding import CategoryEncoding, ColumnEncoding, Encoding

if TYPE_CHECKING:
    from .task_set import TaskSet


def describe(tasks: TaskSet) -> Table:
    """Tabulate the columns of tasks and how they were read; the title has numbers of tasks, rows
    and columns, and the caption has notes.
    """
    encoding = tasks.encoding or Encoding(None, None)
    task = f" ({' × '.join(encoding.task_columns)})" if encoding.task_columns else ""
    target = f", target {encoding.target}" if encoding.target else ""
    rows = list(_columns(tasks))
    dropped = [f"{plural(count, 'row')} with {reason}" for reason, count in encoding.dropped]
    dropped += [f"{column.name} (constant)" for column in encoding.features if not column.names]
    n_features = len(rows) - tasks.n_side_info
    sizes = tasks.sizes if len(tasks) else np.zeros(1)
    numbers = [
        f"{plural(len(tasks), 'task')}{task}, {plural(len(tasks.y), 'row')}{target}",
        f"rows per task: {_range(sizes)}, median {format_number(np.median(sizes))}",
        f"columns: {plural(n_features, 'feature')}, {tasks.n_side_info} of side information",
        f"dropped: {', '.join(dropped) or 'nothing'}",
    ]
    notes = data_notes(tasks)
    if not encoding.classes and (hint := hint_about_target(tasks.y)):
        notes.append(hint)
    if len(encoding.task_columns) > 1:
        notes.append(f"each combination of {' and '.join(encoding.task_columns)} is one task")
    return Table.of_rows(
        "\n".join(line for part in numbers for line in wrap(part, further="  ")),
        ("column", "role", "kind", "read as"),
        rows,
        "\n".join(f"note: {note}" for note in notes),
        n_printed=40,
        sentences="read as",
    )


def _columns(tasks: TaskSet) -> Iterator[tuple[str, ...]]:
    """Yield an entry for each column of features and of side information.

    With a formula or an array, features are the columns of X.
    """
    encoding, j = tasks.encoding, 0
    if encoding is None or encoding.formula is not None:
        features = [ColumnEncoding(name) for name in _names(tasks)]
    else:
        features = list(encoding.features)
    for column in features:
        yield column.name, "feature", column.kind, _text(column, tasks.X[:, j : j + 1])
        j += len(column.names)
    if tasks.side_info is None:
        return
    names = tasks.side_names or list(map(str, range(tasks.n_side_info)))
    known = {} if encoding is None else {column.name: column for column in encoding.side_info}
    for name, values in zip(names, tasks.side_info.T, strict=True):
        present = [value for value in values.tolist() if not is_missing(value)]
        column = known.get(name, ColumnEncoding(name))
        if all(isinstance(value, int | float) for value in present):
            text = _text(column, np.array(present))
        else:
            column = CategoryEncoding(name, tuple(sorted(set(map(str, present)))))
            text = f"{len(column.categories)} categories: {list_some(column.categories)}"
        n_missing = len(values) - len(present)
        text += f"; missing in {n_missing:,} tasks" * bool(n_missing)
        yield name, "side info", column.kind, text


def _text(column: ColumnEncoding, values: Any) -> str:
    """Describe how a column was read, with the range of the values if it is numeric."""
    if column.kind != "number":
        return column.text()
    return column.text().replace("a number", _range(values), 1)


def _names(tasks: TaskSet) -> list[str]:
    names = range(tasks.X.shape[1]) if tasks.feature_names is None else tasks.feature_names
    return [str(name) for name in names]


def data_notes(
    tasks: TaskSet, names: Sequence[str] | np.ndarray | None = None, *, may_vary: bool = True
) -> list[str]:
    """Return notes on a single task and on columns that are constant.

    Columns that are constant within tasks are noted if slopes ``may_vary``.
    """
    notes = []
    if len(tasks) == 1:
        notes.append("differences between tasks cannot be estimated from one task")
    X, encoding = tasks.X, tasks.encoding or Encoding(None, None)
    in_task = np.diff(tasks.task_of_row) == 0
    if sp.issparse(X) or not len(in_task):
        return notes
    titles = _names(tasks) if names is None else list(names)
    # Most columns vary within the first tasks, so few columns are compared in all rows.
    varies = ((np.diff(X[:1_000], axis=0) != 0) & in_task[:999, None]).any(axis=0)
    fixed = [j for j in np.flatnonzero(~varies) if not np.diff(X[:, j])[in_task].any()]
    constant = [j for j in fixed if (X[:, j] == X[0, j]).all()]
    same = [titles[j] for j in constant]
    same += [column.name for column in encoding.features if not column.names]
    if same:
        notes.append(
            f"constant in all rows, so without effect if there is an intercept: {list_some(same)}"
        )
    source = {name: column.name for column in encoding.features for name in column.names}
    of_task = [source.get(titles[j], titles[j]) for j in fixed if j not in constant]
    of_task = [name for name in dict.fromkeys(of_task) if name not in encoding.task_columns]
    if may_vary and encoding.formula is None and of_task and in_task.any():
        advice = "pass them as side_info, and X without them"
        if encoding.task_columns:
            advice = f"use side_columns={of_task}"
        notes.append(
            f"constant within every task: {list_some(of_task)}. To make them side information, "
            f"{advice}"
        )
    return notes


def hint_about_target(y: ArrayLike) -> str:
    """Return a hint if the targets are 0 and 1 or look like counts, otherwise "".

    At least a tenth of the targets must be zero, and for counts a smaller part equal to the
    maximum.
    """
    y = np.asarray(y)
    if not y.size or y.min() != 0 or (y != np.round(y)).any() or np.mean(y == 0) < 0.1:
        return ""
    if y.max() == 1:
        advice = "EmpiricalBayesClassifier (--loss bernoulli) predicts probabilities"
        return f"all targets are 0 or 1: {advice}"
    values, numbers = np.unique(np.minimum(y, 1e9).astype(int), return_counts=True)
    if np.gcd.reduce(values) > 1 or numbers[-1] >= 0.1 * len(y):
        return ""  # grades
    advice = "EmpiricalBayesLearner(loss='poisson') (--loss poisson) models counts"
    return f"targets may be counts: {advice}"


def _range(values: Any) -> str:
    values = values.toarray() if sp.issparse(values) else values
    if not values.size:
        return "-"
    return f"{format_number(values.min())} to {format_number(values.max())}"
