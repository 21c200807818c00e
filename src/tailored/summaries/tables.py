"""`Table` and `Summary`, which print as text in 80 columns, show as HTML in a notebook, and convert to frames."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from .._utils.frames import as_frame
from .._utils.progress import printable
from .._utils.validation import check_choice

#: Maximum width, in characters, of printed text, of a name, and of a table cell that contains a sentence.
WIDTH, NAME_WIDTH, SENTENCE_WIDTH = 80, 24, 55
#: Maximum number of printed rows; frames have all rows.
MAX_ROWS = 15


@dataclass(frozen=True)
class Table:
    """A table with a caption that defines its numbers."""

    title: str
    columns: Mapping[str, Sequence[Any]]  # strings or numbers
    caption: str = ""
    percent: Sequence[str] = ()  # columns of fractions that are printed as percentages
    n_printed: int = MAX_ROWS  # maximum number of printed rows; 0 leaves out the table
    order: Sequence[int] | None = None  # rows by decreasing importance, to select those that are printed
    sentences: Sequence[str] = ()  # columns that contain sentences, which may be wider than names

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def frame(self) -> Any:
        """Return all rows as a frame."""
        # Strings are stored as objects so that a frame does not truncate them.
        has_strings = {name: any(isinstance(v, str) for v in values) for name, values in self.columns.items()}
        return as_frame(
            {name: np.array(v, object if has_strings[name] else None) for name, v in self.columns.items()}
        )

    def _printed(self) -> tuple[list[list[str]], str]:
        """Return the printed cells by column, and the text below the table."""
        rows = sorted((range(len(self)) if self.order is None else self.order)[: self.n_printed])
        cells = [[_cell(v[i], name in self.percent) for i in rows] for name, v in self.columns.items()]
        hidden, text = len(self) - len(rows), self.caption
        if hidden > 0:
            text += f" {hidden:,} more rows are in the frame" + ("." if self.order is None else "; the largest are shown.")  # fmt: skip
        return cells, text.strip()

    def __str__(self) -> str:
        cells, text = self._printed()
        columns: list[list[str]] = []
        for name, values in zip(self.columns, cells, strict=True):
            width = SENTENCE_WIDTH if name in self.sentences else NAME_WIDTH
            columns.append(_padded(name, [shorten(cell, width) for cell in values], first=not columns))
        lines = [self.title, ""]
        for block in _blocks(columns):
            lines += ["  " + "  ".join(row).rstrip() for row in zip(*block, strict=True)]
            lines.append("")
        return "\n".join([*lines, *wrap(text, "  ")] if text else lines[:-1])

    @property
    def html(self) -> str:
        """Return the printed rows as HTML."""
        cells, text = self._printed()
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in zip(*cells, strict=True))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        below = f"<p><small>{escape(text)}</small></p>" if text else ""
        return f"<h4>{escape(self.title)}</h4>{table}{below}"


@dataclass(frozen=True)
class Summary:
    """Summary of a fitted learner.  ``print(summary)`` shows text, and a notebook shows HTML tables.

    ``tables`` contains, where available: "effects" (fixed effects with standard errors, random-effect standard deviations,
    and the R² of the side information), "ratios" (odds ratios or rate ratios with intervals), "correlations", "noise",
    "levels" (effects of the values of categorical columns with more than 20 values), "components", "component_effects",
    "side_information", "side_effects", "selection" (the best structure of each kind) and "errors".  The caption of a
    table defines its numbers.
    """

    title: str  # the learner, and the number of tasks, rows and features it was fitted to
    text: tuple[str, ...]  # sentences about the selected model
    tables: Mapping[str, Table]

    @property
    def frames(self) -> dict[str, Any]:
        """Return all tables with all rows, as data frames if pandas is installed, else as structured arrays."""
        return {name: table.frame for name, table in self.tables.items()}

    def to_frame(self, table: str = "effects") -> Any:
        """Return one of the ``frames``."""
        return self.tables[check_choice("table", table, self.tables)].frame

    def to_dict(self) -> dict[str, Any]:
        """Return text and numbers for JSON; unknown numbers are None."""
        tables = {
            name: {column: [json_value(v) for v in values] for column, values in table.columns.items()}
            for name, table in self.tables.items()
        }
        captions = {name: table.caption for name, table in self.tables.items() if table.caption}
        return {"title": self.title, "text": list(self.text), **tables, "captions": captions}

    @property
    def printed_tables(self) -> list[Table]:
        """Return the tables that are part of the printed summary."""
        return [table for table in self.tables.values() if table.n_printed]

    def __str__(self) -> str:
        parts = ["\n".join(wrap(self.title))]
        parts.append("\n".join(line for sentence in self.text for line in wrap(sentence, "  ")))
        parts += [str(table) for table in self.printed_tables]
        return printable("\n\n".join(part for part in parts if part))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        text = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.text)
        tables = "".join(table.html for table in self.printed_tables)
        return f"<div><h3>{escape(self.title)}</h3><ul>{text}</ul>{tables}</div>"


def wrap(text: str, indent: str = "") -> list[str]:
    """Break text into lines of at most 80 characters."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def shorten(name: str, longest: int = NAME_WIDTH) -> str:
    """Replace the middle of a long name by an ellipsis, because similar names often differ at their ends."""
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def format_number(value: float) -> str:
    """Format a number with four significant digits, without an exponent between 1e-4 and 1e6."""
    if math.isnan(value):
        return ""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    text = f"{value + 0.0:.4g}"  # adding 0.0 turns -0.0 into 0.0
    return text if "e" not in text else f"{value:,.0f}"


def _cell(value: Any, percent: bool) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if not percent:
        return format_number(float(value))
    if math.isnan(value) or value == 0:
        return "not used" if value == 0 else ""
    return f"{100.0 * value:.1f} %" if abs(value) < 0.0995 else f"{100.0 * value:.0f} %"


def json_value(value: Any) -> Any:
    """Return a number for JSON, None if it is not finite."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _padded(name: str, cells: list[str], *, first: bool) -> list[str]:
    """Return the header and cells padded to equal width; text is left-aligned and numbers are right-aligned."""
    is_text = first or any(c.isalpha() for cell in cells if cell not in ("not used", "inf") for c in cell)
    lines = [shorten(name), *cells]
    width = max(map(len, lines))
    return [line.ljust(width) if is_text else line.rjust(width) for line in lines]


def _blocks(columns: list[list[str]]) -> list[list[list[str]]]:
    """Break a wide table into blocks of columns that fit the width; every block starts with the first column."""
    blocks: list[list[list[str]]] = []
    space = 0
    for column in columns[1:]:
        width = len(column[0]) + 2
        if not blocks or width > space:
            blocks.append([columns[0]])
            space = WIDTH - 2 - len(columns[0][0])
        blocks[-1].append(column)
        space -= width
    return blocks or [columns[:1]]
