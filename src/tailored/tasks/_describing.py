"""What a set of tasks holds and how it was read, for people."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp

from .._utils.validation import is_missing
from ._columns import ColumnEncoding, name_plainly

#: Characters of a line, and of a column's name in the table.
WIDTH, NAME_WIDTH = 80, 24
#: Columns that are listed by name.
LISTED = 40


@dataclass(frozen=True)
class Description:
    """What a `TaskSet` holds and how it was read; prints as a table.

    Attributes
    ----------
    n_tasks, n_rows : int
    rows_per_task : dict
        "min", "median" and "max".
    task, target : str
        Names of the columns, in words; "" where the tasks were not read from a frame.
    columns : list of dict
        For each column of the table "column", its "role" ("input" or "description"), its "kind", and what it was "read as".
    dropped : dict
        Why rows were left out, and how many.
    notes : list of str
        What may be worth a look.
    """

    n_tasks: int
    n_rows: int
    rows_per_task: dict[str, float]
    task: str
    target: str
    columns: list[dict[str, str]]
    dropped: dict[str, int]
    notes: list[str]

    @classmethod
    def of(cls, tasks: Any) -> Description:
        encoding, sizes = tasks.encoding, tasks.sizes
        spread = {"min": 0.0, "median": 0.0, "max": 0.0}
        if len(sizes):
            spread = {name: float(getattr(np, name)(sizes)) for name in spread}
        return cls(
            n_tasks=len(tasks),
            n_rows=len(tasks.y),
            rows_per_task=spread,
            task="" if encoding is None else " × ".join(encoding.task_columns),
            target="" if encoding is None else encoding.target or "",
            columns=[*_inputs(tasks), *_described(tasks)],
            dropped={} if encoding is None else dict(encoding.dropped),
            notes=_notes(tasks),
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it, as plain numbers, words, lists and dictionaries."""
        return dict(vars(self))

    def to_frame(self, library: str = "pandas") -> Any:
        """The columns of the table as a dataframe of a library: "pandas", "polars" or "pyarrow"."""
        names = ("column", "role", "kind", "read as")
        data = {name: [column[name] for column in self.columns] for name in names}
        return nw.from_dict(data, native_namespace=import_module(library)).to_native()

    def _head(self) -> list[str]:
        by, of = (f" ({self.task})" if self.task else ""), (f", target {self.target}" if self.target else "")
        low, middle, high = (_number(self.rows_per_task[name]) for name in ("min", "median", "max"))
        inputs = sum(column["role"] == "input" for column in self.columns)
        aside = len(self.columns) - inputs
        parts = [
            f"{self.n_tasks:,} tasks{by}, {self.n_rows:,} rows{of}",
            f"rows per task: {low} to {high}, median {middle}",
            f"columns: {inputs} of inputs, {aside or 'none'} of descriptions",
        ]
        left_out = ", ".join(f"{count:,} rows with {why}" for why, count in self.dropped.items())
        return [*parts, f"left out: {left_out or 'nothing'}"]

    def __str__(self) -> str:
        lines = [line for part in self._head() for line in textwrap.wrap(part, WIDTH, subsequent_indent="  ")]
        shown = self.columns[:LISTED]
        if shown:
            name = min(max(len(column["column"]) for column in (*shown, {"column": "column"})), NAME_WIDTH)
            lines += ["", f"{'column':{name}}  {'role':11}  {'kind':7}  read as"]
            for column in shown:
                first = f"{_cut(column['column'], name):{name}}  {column['role']:11}  {column['kind']:7}  "
                lines += textwrap.wrap(
                    column["read as"] or "-", WIDTH, initial_indent=first, subsequent_indent=" " * (name + 24)
                )
        if len(self.columns) > LISTED:
            lines.append(f"... and {len(self.columns) - LISTED} more")
        for note in self.notes:
            lines += ["", *textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names = ("column", "role", "kind", "read as")
        head = "".join(f"<th>{name}</th>" for name in names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(column[name])}</td>" for name in names) + "</tr>"
            for column in self.columns
        )
        above = "".join(f"<p>{html.escape(line)}</p>" for line in self._head())
        below = "".join(f"<p>Note: {html.escape(note)}</p>" for note in self.notes)
        return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{below}"


def _inputs(tasks: Any) -> list[dict[str, str]]:
    """The columns of inputs, as they stood in the table."""
    names = tasks.feature_names
    if tasks.encoding is None:
        names = [str(j) for j in range(tasks.n_features)] if names is None else [str(name) for name in names]
        return [_entry(name, "input", "number", _range(tasks.X[:, [j]])) for j, name in enumerate(names)]
    found, j = [], 0
    for column in tasks.encoding.features:
        words = _range(tasks.X[:, [j]]) if column.kind == "number" else column.words()
        found.append(_entry(column.name, "input", column.kind, words))
        j += len(column.names)
    return found


def _described(tasks: Any) -> list[dict[str, str]]:
    """The columns of descriptions."""
    table = tasks.side_info
    if table is None:
        return []
    names = tasks.side_names or [str(j) for j in range(table.shape[1])]
    known = {} if tasks.encoding is None else {column.name: column for column in tasks.encoding.side}
    found = []
    for j, name in enumerate(names):
        missing = np.array([is_missing(value) for value in table[:, j]], dtype=bool)
        values = table[~missing, j]
        column = known.get(name, ColumnEncoding(name))
        if column.kind == "number":
            column = _guessed(name, values)
        if column.kind == "words":
            words = f"{len(column.levels)} words: {name_plainly(column.levels)}"
        else:
            words = _range(values[:, None].astype(float)) if column.kind == "number" else column.words()
        if missing.any():
            words += f"; missing in {int(missing.sum()):,} tasks"
        found.append(_entry(name, "description", column.kind, words))
    return found


def _guessed(name: str, values: np.ndarray) -> ColumnEncoding:
    if all(isinstance(value, int | float | np.number) for value in values):
        return ColumnEncoding(name)
    return ColumnEncoding(name, "words", tuple(sorted({str(value) for value in values})))


def _entry(name: str, role: str, kind: str, words: str) -> dict[str, str]:
    return {"column": name, "role": role, "kind": kind, "read as": words}


def _notes(tasks: Any) -> list[str]:
    """Columns that do not vary at all, or not within any task."""
    if len(tasks.y) < 2 or tasks.is_sparse:
        return []
    X = tasks.X
    names = (
        [str(j) for j in range(tasks.n_features)]
        if tasks.feature_names is None
        else list(tasks.feature_names)
    )
    constant = (X[0] == X).all(axis=0)
    firsts = np.repeat(tasks.offsets[:-1], tasks.sizes)
    within = (X[firsts] == X).all(axis=0) & ~constant
    notes = []
    if constant.any():
        listed = name_plainly([str(name) for name, is_so in zip(names, constant, strict=True) if is_so])
        notes.append(f"the same in all rows, and so of no use: {listed}")
    if within.any() and (tasks.sizes > 1).any():
        listed = name_plainly([str(name) for name, is_so in zip(names, within, strict=True) if is_so])
        notes.append(
            f"the same in all rows of each task: {listed}; what describes a task can be given as side_columns or side_info"
        )
    if tasks.encoding is not None and len(tasks.encoding.task_columns) > 1:
        notes.append(
            f"each combination of {' and '.join(tasks.encoding.task_columns)} is a task of its own, and what tasks of one "
            f"{tasks.encoding.task_columns[0]} have in common is not modelled"
        )
    return notes


def _range(values: Any) -> str:
    values = values.toarray() if sp.issparse(values) else values
    if not values.size:
        return "-"
    return f"{_number(values.min())} to {_number(values.max())}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"
