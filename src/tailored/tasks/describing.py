"""Describe a task set: its size, its columns and how they were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .._utils.progress import printable
from .._utils.tables import Table, plural, wrap
from .._utils.validation import is_missing
from .encoding import ColumnEncoding, Encoding, list_some

#: Largest number of columns that are listed.
MAX_LISTED = 40
#: A hint that integer targets are binary or counts needs at least this fraction of zeros; for counts, a smaller
#: fraction must equal the maximum.
MANY_ZEROS = 0.1
#: Number of rows that are searched first for columns that vary within tasks, or are not tiny.
FIRST_ROWS = 1_000
#: A column whose absolute values are all below this limit is left out of the model.
LEAST_SCALE = 1e-70

_HEADER = ("column", "role", "kind", "read as")


class Tasks(Protocol):
    """Attributes of a `TaskSet` that are described here; a protocol, because the module of `TaskSet` imports this one."""

    X: Any
    y: NDArray[np.float64]
    side_info: np.ndarray | None
    side_names: list[str] | None
    feature_names: np.ndarray | None
    encoding: Encoding | None

    @property
    def sizes(self) -> np.ndarray: ...

    @property
    def task_of_row(self) -> np.ndarray: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Description:
    """Content of a `TaskSet` and how it was read; prints as text with a table."""

    numbers: list[str]  # sentences about the numbers of tasks, rows, columns and dropped rows
    table: Table  # a row for each column: its name, "feature" or "side info", its kind, and how it was read
    notes: list[
        str
    ]  # on few tasks, tiny or constant columns, binary targets or counts, and task columns

    @classmethod
    def of(cls, tasks: Tasks) -> Description:
        sizes = tasks.sizes if len(tasks) else np.zeros(1)
        encoding = Encoding(None, None) if tasks.encoding is None else tasks.encoding
        task = f" ({' × '.join(encoding.task_columns)})" if encoding.task_columns else ""
        target = f", target {encoding.target}" if encoding.target else ""
        features, side = list(_features(tasks)), list(_side_info(tasks))
        dropped = ", ".join(
            f"{plural(count, 'row')} with {reason}" for reason, count in encoding.dropped
        )
        numbers = [
            f"{plural(len(tasks), 'task')}{task}, {plural(len(tasks.y), 'row')}{target}",
            f"rows per task: {_range(sizes)}, median {_number(np.median(sizes))}",
            f"columns: {plural(len(features), 'feature')}, {len(side)} of side information",
            f"dropped: {dropped or 'nothing'}",
        ]
        rows = [*features, *side]
        table = Table.of_rows("", _HEADER, rows, n_printed=MAX_LISTED, sentences=_HEADER[-1])
        return cls(numbers, table, [*data_notes(tasks), *_notes(tasks)])

    def to_frame(self) -> Any:
        """Return the table of columns as a pandas DataFrame, or as a structured array if pandas is not installed."""
        return self.table.frame

    def __str__(self) -> str:
        lines = [line for part in self.numbers for line in wrap(part, further="  ")]
        if len(self.table):
            lines += ["", str(self.table)]
        for note in self.notes:
            lines += ["", *wrap(f"note: {note}", further="  ")]
        return printable("\n".join(lines))

    __repr__ = __str__


def _names(tasks: Tasks) -> list[str]:
    names = range(tasks.X.shape[1]) if tasks.feature_names is None else tasks.feature_names
    return [str(name) for name in names]


def _features(tasks: Tasks) -> Iterator[tuple[str, ...]]:
    """Yield a row of the description for each feature of the table; with a formula or an array, for each column of X."""
    encoding = tasks.encoding
    if encoding is None or encoding.formula is not None:
        columns: Iterable[ColumnEncoding] = map(ColumnEncoding, _names(tasks))
    else:
        columns = encoding.features
    j = 0
    for column in columns:
        text = column.text()
        if column.kind == "number":
            text = text.replace("a number", _range(tasks.X[:, [j]]), 1)
        yield column.name, "feature", column.kind, text
        j += len(column.names)


def _side_info(tasks: Tasks) -> Iterator[tuple[str, ...]]:
    """Yield an entry for each column of side information."""
    table = np.zeros((0, 0)) if tasks.side_info is None else tasks.side_info
    names = tasks.side_names or [str(j) for j in range(table.shape[1])]
    encodings = {} if tasks.encoding is None else {c.name: c for c in tasks.encoding.side_info}
    for name, values in zip(names, table.T, strict=True):
        present = [value for value in values.tolist() if not is_missing(value)]
        column = encodings.get(name, ColumnEncoding(name))
        if column.kind == "number" and not all(
            isinstance(v, int | float | np.number) for v in present
        ):
            column = ColumnEncoding(name, "categorical", tuple(sorted(set(map(str, present)))))
        text = _range(np.array(present, dtype=float)) if column.kind == "number" else column.text()
        if column.kind == "categorical":
            text = f"{len(column.categories)} categories: {list_some(column.categories)}"
        if len(present) < len(values):
            text += f"; missing in {len(values) - len(present):,} tasks"
        yield name, "side info", column.kind, text


def data_notes(
    tasks: Tasks, names: Sequence[str] | np.ndarray | None = None, *, may_vary: bool = True
) -> list[str]:
    """Return notes on few tasks, tiny targets and columns that are tiny, constant or, if slopes ``may_vary``, constant in tasks."""
    notes = []
    if len(tasks) == 1:
        notes.append("differences between tasks cannot be estimated from one task")
    elif len(tasks) == 2:
        notes.append(
            "differences between tasks are estimated from two tasks only, so they are very uncertain"
        )
    if tasks.y.any() and np.abs(tasks.y).max() < LEAST_SCALE:
        found = f"absolute targets below {LEAST_SCALE:g} in all rows"
        notes.append(f"{found} are not fitted well: multiply them by a constant")
    if len(tasks.y) > 1 and not sp.issparse(tasks.X):
        titles, X, encoding = (
            _names(tasks) if names is None else list(names),
            tasks.X,
            tasks.encoding,
        )
        in_task = np.diff(tasks.task_of_row) == 0
        # Most columns vary within the first tasks, so few columns are compared in all rows.
        first = slice(FIRST_ROWS)
        varies = ((X[1:][first] != X[:-1][first]) & in_task[first, None]).any(axis=0)
        fixed = [j for j in np.flatnonzero(~varies) if not np.diff(X[:, j])[in_task].any()]
        constant = [j for j in fixed if (X[:, j] == X[0, j]).all()]
        if constant:
            found = "constant in all rows, so without effect if there is an intercept"
            notes.append(f"{found}: {list_some(titles[j] for j in constant)}")
        # Most columns exceed LEAST_SCALE in the first rows.
        small = np.flatnonzero((np.abs(X[first]) < LEAST_SCALE).all(axis=0))
        tiny = [j for j in small if j not in constant and (np.abs(X[:, j]) < LEAST_SCALE).all()]
        if tiny:
            found = f"absolute values below {LEAST_SCALE:g} in all rows, so left out unless multiplied by a constant"
            notes.append(f"{found}: {list_some(titles[j] for j in tiny)}")
        read = (
            {}
            if encoding is None
            else {name: c.name for c in encoding.features for name in c.names}
        )
        parts = () if encoding is None else encoding.task_columns
        chosen = [int(j) for j in fixed if j not in constant and read.get(titles[j]) not in parts]
        has_formula = encoding is not None and encoding.formula is not None
        if may_vary and not has_formula and chosen and in_task.any():
            columns = list(dict.fromkeys(read.get(titles[j], titles[j]) for j in chosen))
            advice = f"pass side_info=X[{f':, {chosen}' if names is None else columns}], and X without them"
            if encoding is not None and encoding.task_columns:
                advice = f"use side_columns={columns}"
            of_X = (
                " (columns of the X that reached fit)" if names is None and encoding is None else ""
            )
            some = f"{list_some(columns)}{of_X}. To make them side information, {advice}"
            notes.append(f"constant within every task: {some}")
    return notes


def _notes(tasks: Tasks) -> list[str]:
    """Return notes about the target and about the task columns."""
    notes: list[str] = []
    if tasks.encoding is None or not tasks.encoding.classes:
        notes += filter(None, [hint_about_target(tasks.y)])
    if tasks.encoding is not None and len(tasks.encoding.task_columns) > 1:
        columns, used = (
            tasks.encoding.task_columns,
            (*tasks.encoding.features, *tasks.encoding.side_info),
        )
        ignored = f"; similarity between tasks with the same {columns[0]} is not modelled"
        ignored *= columns[0] not in {column.name for column in used}
        notes.append(f"each combination of {' and '.join(columns)} is one task{ignored}")
    return notes


def hint_about_target(y: ArrayLike) -> str:
    """Return a hint if the targets are 0 and 1 or look like counts, otherwise "".  Targets with few zeros get no hint."""
    y = np.asarray(y)
    if not y.size or y.min() != 0 or (y != np.round(y)).any() or np.mean(y == 0) < MANY_ZEROS:
        return ""
    if y.max() == 1:
        return "all targets are 0 or 1: EmpiricalBayesClassifier (--loss bernoulli) predicts probabilities"
    values, numbers = np.unique(np.minimum(y, 1e9).astype(int), return_counts=True)
    if np.gcd.reduce(values) > 1 or numbers[-1] >= MANY_ZEROS * len(y):
        return ""  # grades
    return "targets may be counts: EmpiricalBayesLearner(loss='poisson') (--loss poisson) models counts"


def _range(values: Any) -> str:
    values = values.toarray() if sp.issparse(values) else values
    return f"{_number(values.min())} to {_number(values.max())}" if values.size else "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"
