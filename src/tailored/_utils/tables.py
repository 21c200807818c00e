"""`Table`: columns with a caption, which print as text in 80 columns, show as HTML, and convert to
frames.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from .frames import as_frame
from .progress import one_line, printable

#: Maximum width, in characters, of printed text, and of a cell outside the first column.
WIDTH, NAME_WIDTH = 80, 24


@dataclass(frozen=True)
class Table:
    """A table with a caption that defines its numbers."""

    title: str
    columns: Mapping[str, Sequence[Any]]  # strings or numbers
    caption: str = ""
    percent: Sequence[
        str
    ] = ()  # columns of fractions, printed as percentages; 0 is printed as "not used"
    n_printed: int = 15  # maximum number of printed rows; 0 leaves out the table
    order: Sequence[int] | None = (
        None  # rows by decreasing importance, to select those that are printed
    )
    sentences: str = ""  # name of the last column if it contains sentences, which are wrapped

    @classmethod
    def of_rows(
        cls,
        title: str,
        names: Sequence[str],
        rows: Sequence[Sequence[Any]],
        caption: str = "",
        **options: Any,
    ) -> Table:
        """Return the table with these rows; ``options`` are the further fields."""
        columns = zip(*rows, strict=True) if rows else ((),) * len(names)
        return cls(title, dict(zip(names, map(list, columns), strict=True)), caption, **options)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def frame(self) -> Any:
        """All rows as a pandas DataFrame, or as a structured array if pandas is not installed."""
        arrays = {}
        for name, values in self.columns.items():
            # Objects, because NumPy would convert numbers next to strings to strings.
            has_strings = any(isinstance(value, str) for value in values)
            arrays[name] = np.array(values, object if has_strings else None)
        return as_frame(arrays)

    def _printed(self) -> tuple[dict[str, list[str]], str]:
        """Return the printed cells by column, and the text below the table."""
        rows = sorted((range(len(self)) if self.order is None else self.order)[: self.n_printed])
        cells = {
            name: [_cell(v[i], name in self.percent) for i in rows]
            for name, v in self.columns.items()
        }
        text = self.caption
        if hidden := len(self) - len(rows):
            which = "." if self.order is None else "; the largest are shown."
            text += f" {hidden:,} more rows are in the frame{which}"
        return cells, text.strip()

    def __str__(self) -> str:
        cells, text = self._printed()
        sentences = cells.pop(self.sentences, None) if self.sentences else None
        columns = [
            _padded(name, values, is_first=not i) for i, (name, values) in enumerate(cells.items())
        ]
        lines = [self.title, ""] if self.title else []
        for block in _blocks(columns, 0 if sentences is None else 30):
            rows = ["  " + "  ".join(row) for row in zip(*block, strict=True)]
            if sentences is None:
                lines += [*map(str.rstrip, rows), ""]
                continue
            for row, sentence in zip(rows, [self.sentences, *sentences], strict=True):
                lines += wrap(sentence or "-", f"{row}  ", " " * (len(row) + 2))
            lines.append("")
        below = [line for part in text.splitlines() for line in wrap(part, "  ")]
        return printable("\n".join([*lines, *below] if text else lines[:-1]))

    __repr__ = __str__

    @property
    def html(self) -> str:
        """The printed rows as HTML."""
        cells, text = self._printed()
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = (
            "".join(f"<td>{escape(cell)}</td>" for cell in row)
            for row in zip(*cells.values(), strict=True)
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        title = f"<h4>{escape(self.title)}</h4>" if self.title else ""
        below = f"<p><small>{escape(text)}</small></p>" if text else ""
        return printable(
            f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>{below}"
        )


def wrap(text: str, indent: str = "", further: str | None = None) -> list[str]:
    """Break text into lines of at most 80 characters; ``further`` is the indentation of all lines
    but the first.
    """
    further = indent if further is None else further
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=further)


def shorten(name: str, longest: int = NAME_WIDTH) -> str:
    """Replace the middle of a long name by an ellipsis, because similar names often differ at their
    ends.
    """
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def plural(n: int, noun: str) -> str:
    """Return a number with its noun, e.g. "1 row" or "1,000 rows"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def format_number(value: float) -> str:
    """Format a number with four significant digits and all digits before the point; NaN gives an
    empty string.

    For absolute values below 1e-4, or of at least 1e6, three significant digits and an exponent are
    used.
    """
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


def _padded(name: str, cells: list[str], *, is_first: bool) -> list[str]:
    """Return the header and cells padded to equal width; numbers are right-aligned, text and the
    first column left-aligned.
    """
    is_text = is_first or any(
        c.isalpha() for cell in cells if cell not in ("not used", "inf") for c in cell
    )
    lines = [shorten(one_line(text), 36 if is_first else NAME_WIDTH) for text in (name, *cells)]
    width = max(map(len, lines))
    return [line.ljust(width) if is_text else line.rjust(width) for line in lines]


def _blocks(columns: list[list[str]], reserved: int) -> list[list[list[str]]]:
    """Break a wide table into blocks of columns that fit the width; every block starts with the
    first column, and leaves the ``reserved`` width for sentences.
    """
    blocks: list[list[list[str]]] = []
    space = 0
    for column in columns[1:]:
        width = len(column[0]) + 2
        if not blocks or width > space:
            blocks.append([columns[0]])
            space = WIDTH - 2 - reserved - len(columns[0][0])
        blocks[-1].append(column)
        space -= width
    return blocks or [columns[:1]]
