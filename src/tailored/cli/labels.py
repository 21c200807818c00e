"""Labels of tasks: files say the same task in different types, and the model knows it under one of them.

A file without types is read with its labels as words.  They are whole numbers if all of them are written as such, so that
007 stays a word; and tables that go together, or with a model, have labels of one kind.
"""

from __future__ import annotations

import re
from typing import Any

from .errors import UsageError

#: Kinds of labels, as NumPy's: whole numbers, other numbers, words.
WHOLE, FLOAT, WORDS = "i", "f", "U"
_NAMES = {WHOLE: "whole numbers", FLOAT: "numbers", WORDS: "words"}
# As a person writes them, or a program that has made them floats because others were missing.
_WHOLE = re.compile(r"(0|-?[1-9]\d{0,17})(\.0+)?")


class Labels:
    """The labels that a table has to agree with: their kind, and those that there are.

    Parameters
    ----------
    known : array of labels, or None
        None where nothing is known yet.
    """

    def __init__(self, known: Any = None) -> None:
        self.kind = None if known is None else _KINDS.get(known.dtype.kind)
        self.known = frozenset() if known is None else frozenset(known.tolist())

    def read(self, table: Any, name: str, option: str) -> Any:
        """The table with such labels in its column ``name``; the first one decides where nothing is known."""
        import pyarrow as pa

        column = table[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # of an older Arrow
            column = column.chunk(0)
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        distinct = coded.dictionary.to_pylist()
        if not self.known and self.kind is None:
            self.kind = _kind(distinct)
        if self.kind is None:
            return table
        made = [self._cast(value, name, option) for value in distinct]
        if not self.known:
            self.known = frozenset(made)
        kinds = {WHOLE: pa.int64(), FLOAT: pa.float64(), WORDS: pa.string()}
        labels = pa.array(made, kinds[self.kind]).take(coded.indices)
        return table.set_column(table.column_names.index(name), name, labels)

    def _cast(self, value: Any, name: str, option: str) -> Any:
        whole = _whole(value)
        if self.kind == WORDS:
            word = str(value if whole is None or isinstance(value, str) else whole)
            if word in self.known or whole is None:
                return word
            if str(whole) in self.known:
                return str(whole)
            padded = [label for label in self.known if label.lstrip("0") == str(whole)]
            if not padded:
                return word
            raise UsageError(
                f"{option}: the task {word!r} in column {name!r} is written {padded[0]!r} elsewhere; write labels in the same way "
                "in all tables (a spreadsheet drops leading zeros of columns that are not text)"
            )
        if self.kind == WHOLE and whole is not None:
            return whole
        if self.kind == FLOAT:
            try:
                return float(value)
            except (TypeError, ValueError):
                pass
        like = f", such as {next(iter(self.known))!r}" if self.known else ""
        raise UsageError(
            f"{option}: the label {value!r} in column {name!r} is none of the kind that the tasks have, {_NAMES[str(self.kind)]}"
            f"{like}; write labels in the same way in all tables"
        )


_KINDS = {"i": WHOLE, "u": WHOLE, "f": FLOAT, "U": WORDS}


def _kind(values: list[Any]) -> str | None:
    if values and all(_whole(value) is not None for value in values):
        return WHOLE
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return FLOAT
    # What is no number is called as it is written.
    return WORDS


def _whole(value: Any) -> int | None:
    """The whole number that a label is, or is written as."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, str) and (found := _WHOLE.fullmatch(value)):
        return int(found.group(1))
    return None
