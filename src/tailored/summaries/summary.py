"""`Summary`: what was learned, as a text, as a page of a notebook, and as frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from .._utils.validation import check_choice
from .tables import Table, wrapped


@dataclass(frozen=True)
class Summary:
    """What a learner has learned.  Printing it gives a text of 80 columns; a notebook shows tables.

    Attributes
    ----------
    title : str
        The learner, and what it was fitted to.
    words : tuple of str
        The chosen form, a sentence each.
    tables : dict of str to Table
        Of "effects" (common effects with standard errors, how much each varies between tasks, and the share of that which
        side information explains), "correlations", "noise", "components", "component_effects", "side_information",
        "side_effects" and "errors", those that there are.  The caption of a table defines its numbers.
    """

    title: str
    words: tuple[str, ...]
    tables: Mapping[str, Table]

    @property
    def frames(self) -> dict[str, Any]:
        """Every table with all its rows: frames of pandas where it is installed, structured arrays otherwise."""
        return {name: table.frame for name, table in self.tables.items()}

    def to_frame(self, table: str = "effects") -> Any:
        """One of the ``frames``."""
        return self.tables[check_choice("table", table, self.tables)].frame

    def to_dict(self) -> dict[str, Any]:
        """Words and numbers for JSON; what is not known is None."""
        tables = {
            name: {column: [_plain(value) for value in values] for column, values in table.columns.items()}
            for name, table in self.tables.items()
        }
        captions = {name: table.caption for name, table in self.tables.items() if table.caption}
        return {"title": self.title, "form": list(self.words), **tables, "captions": captions}

    @property
    def _printed(self) -> list[Table]:
        return [table for table in self.tables.values() if table.most]

    def __str__(self) -> str:
        parts = ["\n".join(wrapped(self.title))]
        parts.append("\n".join(line for sentence in self.words for line in wrapped(sentence, "  ")))
        parts += [table.text for table in self._printed]
        return "\n\n".join(part for part in parts if part)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        words = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.words)
        tables = "".join(table.html for table in self._printed)
        return f"<div><h3>{escape(self.title)}</h3><ul>{words}</ul>{tables}</div>"


def _plain(value: Any) -> Any:
    """A number or word of JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
