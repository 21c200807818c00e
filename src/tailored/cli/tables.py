"""Read and write tables: CSV and parquet files, standard input and output."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._utils.files import check_target, write_atomically
from .console import READ, write_out

#: Path that means standard input or output.
STANDARD = "-"


def read_table(
    path: str, option: str, names: Sequence[str] = (), types: Mapping[str, Any] | None = None
) -> Any:
    """Read a table with columns of these ``names``; pyarrow infers the types of columns of a CSV
    file that have no ``types``.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    source = "standard input" if path == STANDARD else path
    READ.discard(option)
    try:
        if path.endswith(".parquet") or Path(path).is_dir():
            table = parquet.read_table(path)
        else:
            READ.add(option)
            convert = csv.ConvertOptions(
                column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
            )
            content = sys.stdin.buffer if path == STANDARD else path
            table = csv.read_csv(content, convert_options=convert)
    except (pa.ArrowException, OSError) as error:
        # Arrow appends the content of a row with a wrong number of columns.
        reason = re.sub(r"(got \d+): .*", r"\1", str(error).partition("\n")[0])
        advice = "Give a CSV file in UTF-8 whose first line is the header, or a parquet file."
        raise ValueError(f"{option}: {source} cannot be read ({reason}). {advice}") from error
    if any(str(kind) == "binary" for kind in table.schema.types):
        advice = "Save it as CSV UTF-8, or convert a spreadsheet with pandas.read_excel."
        raise ValueError(f"{option}: {source} is not text in UTF-8. {advice}")
    if table.num_columns == 1 and re.search(r"[;\t]", table.column_names[0]):
        advice = "Save it with commas, and with points in decimal numbers."
        raise ValueError(f"{option}: {source} has no commas between columns. {advice}")
    columns = table.column_names
    if missing := [name for name in names if name not in columns]:
        from .._utils.validation import name_some

        similar = difflib.get_close_matches(missing[0], columns, 1)
        hint = f"Did you mean {similar[0]!r}?" if similar else f"It has {name_some(columns, 12)}."
        raise ValueError(f"{option}: {source} has no column {missing[0]!r}. {hint}")
    return table


def check_files(path: str, *inputs: str | None) -> None:
    """Raise an error if an input does not exist, or ``path`` cannot be written or is an input.

    This is done before slow imports.
    """
    files = [file for file in inputs if file not in (None, STANDARD)]
    for file in files:
        if not os.path.exists(str(file)):
            raise ValueError(f"there is no file {file!r}.")
    is_old = path != STANDARD and check_target(Path(path), "--out").exists()
    if is_old and any(os.path.samefile(path, str(file)) for file in files):
        raise ValueError(
            f"--out: {path} is an input and would be overwritten. Choose another name."
        )


def with_rounded(table: Any, predicted: Any) -> Any:
    """Append predictions, rounded to the digit of the fourth figure of the smallest std; without
    std, as for probabilities, to six decimals.
    """
    import numpy as np

    columns = {name: np.asarray(predicted[name]) for name in predicted.column_names}
    std = columns.get("std", np.zeros(0))
    least = std[std > 0.0].min(initial=np.inf)
    decimals = 3 - int(np.floor(np.log10(least))) if np.isfinite(least) else 6
    for name, values in columns.items():
        table = table.append_column(name, [values.round(decimals)])
    return table


def write_table(path: str, table: Any) -> None:
    """Write a table as parquet if ``path`` ends with .parquet, otherwise as CSV."""
    from pyarrow import BufferOutputStream, csv, parquet

    buffer = BufferOutputStream()
    (parquet.write_table if path.endswith(".parquet") else csv.write_csv)(table, buffer)
    content = buffer.getvalue().to_pybytes()
    if path == STANDARD:
        write_out(content.decode())
    else:
        write_atomically(path, content)
