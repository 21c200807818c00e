"""Small tables for people: in a terminal of 80 columns, in a notebook, and as frames."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from .._utils.frames import as_frame

#: Columns of a terminal, of a name in it, and of a few words.
WIDTH, LONGEST, LONGEST_WORDS = 80, 24, 55
#: Rows that are printed; frames have all of them.
MOST_ROWS = 15


@dataclass(frozen=True)
class Table:
    """Columns by name, and what its numbers are.

    Attributes
    ----------
    title : str
    columns : mapping of str to sequence
        Words, numbers, and shares of one, which are printed as percentages where ``percent`` names them.
    caption : str
        The definition of every number.
    percent : sequence of str
    most : int
        Rows that are printed; of a table with 0, none of it is.
    order : sequence of int, optional
        Rows from the most important on, where it is these that are printed.
    sentences : sequence of str
        Columns of several words, which are given more room than names.
    """

    title: str
    columns: Mapping[str, Sequence[Any]]
    caption: str = ""
    percent: Sequence[str] = ()
    most: int = MOST_ROWS
    order: Sequence[int] | None = None
    sentences: Sequence[str] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def frame(self) -> Any:
        """All of it as a frame."""
        return as_frame({name: _typed(values) for name, values in self.columns.items()})

    def _shown(self) -> tuple[list[list[str]], str]:
        """The cells that are printed, and what is said about the others."""
        places = list(range(len(self))) if self.order is None else list(self.order)
        shown = sorted(places[: self.most])
        cells = [
            [_cell(values[i], name in self.percent) for i in shown] for name, values in self.columns.items()
        ]
        rest = len(self) - len(shown)
        which = "" if self.order is None else "; these are the largest"
        return cells, f"{rest:,} more rows are in the frame{which}." if rest > 0 else ""

    @property
    def text(self) -> str:
        """For a terminal; a table that is too wide goes on below, with its first column again."""
        cells, rest = self._shown()
        names = list(self.columns)
        columns: list[list[str]] = []
        for name, found in zip(names, cells, strict=True):
            longest = LONGEST_WORDS if name in self.sentences else LONGEST
            columns.append(_column(name, [shortened(cell, longest) for cell in found], first=not columns))
        lines = [self.title, ""]
        for block in _blocks(columns):
            lines += ["  " + "  ".join(parts).rstrip() for parts in zip(*block, strict=True)]
            lines.append("")
        said = " ".join(part for part in (self.caption, rest) if part)
        return "\n".join([*lines, *wrapped(said, "  ")] if said else lines[:-1])

    @property
    def html(self) -> str:
        """For a notebook."""
        cells, rest = self._shown()
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in zip(*cells, strict=True)
        )
        said = " ".join(part for part in (self.caption, rest) if part)
        below = f"<p><small>{escape(said)}</small></p>" if said else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<h4>{escape(self.title)}</h4>{table}{below}"


def wrapped(text: str, indent: str = "") -> list[str]:
    """Lines of a terminal."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def shortened(name: str, longest: int = LONGEST) -> str:
    """A long name without its middle: what tells names apart is often at their ends."""
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def number(value: float) -> str:
    """Four significant digits, without exponents as long as people can read it."""
    if math.isnan(value):
        return ""
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        found = f"{value:.4g}"
        return found if "e" not in found else f"{value:,.0f}"
    return f"{value:.3g}"


def _cell(value: Any, percent: bool) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if percent:
        return (
            ""
            if math.isnan(value)
            else f"{100.0 * value:.1f} %"
            if abs(value) < 0.0995
            else f"{100.0 * value:.0f} %"
        )
    return number(float(value))


def _typed(values: Sequence[Any]) -> Any:
    """Words as objects, so that a frame keeps them whole."""
    words = any(isinstance(value, str) for value in values)
    return np.array(values, dtype=object) if words else np.asarray(values)


def _column(name: str, cells: list[str], *, first: bool) -> list[str]:
    """Header and cells of equal width: words to the left, numbers to the right."""
    words = first or any(any(c.isalpha() for c in cell) for cell in cells)
    found = [shortened(name), *cells]
    width = max(map(len, found))
    return [cell.ljust(width) if words else cell.rjust(width) for cell in found]


def _blocks(columns: list[list[str]]) -> list[list[list[str]]]:
    """Columns that fit beside each other, the first of all leading each block."""
    blocks: list[list[list[str]]] = []
    room = 0
    for column in columns[1:] or columns[:0]:
        width = len(column[0]) + 2
        if not blocks or width > room:
            blocks.append([columns[0]])
            room = WIDTH - 2 - len(columns[0][0])
        blocks[-1].append(column)
        room -= width
    return blocks or [columns[:1]]
