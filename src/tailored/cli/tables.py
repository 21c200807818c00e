"""Read and write tables: CSV and parquet files, standard input and output."""

from __future__ import annotations

import difflib
import io
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._utils.files import check_target, write_atomically
from .console import READ, UsageError, write_out

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

#: Path that means standard input or output.
STANDARD = "-"
#: Accepted file extensions of output tables.
TABLES = (".csv", ".parquet")


def read_table(path: str, option: str, types: Mapping[str, Any] | None = None) -> pa.Table:
    """Read a table; pyarrow infers the types of columns of a CSV file that have no ``types``."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    name = "standard input" if path == STANDARD else path
    READ.discard(option)
    try:
        if Path(path).is_dir():
            table = parquet.read_table(path)
        else:
            content = sys.stdin.buffer.read() if path == STANDARD else Path(path).read_bytes()
            if content.startswith(b"PAR1"):
                table = parquet.read_table(io.BytesIO(content))
            else:
                READ.add(option)
                convert = csv.ConvertOptions(
                    column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
                )
                table = csv.read_csv(io.BytesIO(content), convert_options=convert)
    except (pa.ArrowException, OSError) as error:
        # Arrow appends the content of a row with a wrong number of columns.
        reason = re.sub(r"(got \d+): .*", r"\1", str(error).splitlines()[0])
        advice = "Give a CSV file in UTF-8 whose first line is the header, or a parquet file."
        raise UsageError(f"{option}: {name} cannot be read ({reason}). {advice}") from error
    if any(str(kind) == "binary" for kind in table.schema.types):
        advice = "Save it as CSV UTF-8, or convert a spreadsheet with pandas.read_excel."
        raise UsageError(f"{option}: {name} is not text in UTF-8. {advice}")
    if table.num_columns == 1 and re.search(r"[;\t]", table.column_names[0]):
        advice = "Save it with commas, and with points in decimal numbers."
        raise UsageError(f"{option}: {name} has no commas between columns. {advice}")
    if not table.num_columns or not table.num_rows:
        raise UsageError(f"{option}: {name} has no rows below its header.")
    names = table.column_names
    if repeated := [column for column in names if names.count(column) > 1]:
        advice = "Rename them, or delete the lines above the header, such as a title."
        found = f"several columns with the name {repeated[0]!r}"
        raise UsageError(f"{option}: {name} has {found}. {advice}")
    return table


def label_types(names: Sequence[str], known: np.ndarray | None) -> dict[str, Any]:
    """Return the type of labels in a column of a CSV file: that of the ``known`` labels."""
    import pyarrow as pa

    kinds = {"i": pa.int64(), "f": pa.float64(), "U": pa.string()}
    if known is None or len(names) != 1 or known.dtype.kind not in kinds:
        return {}
    return {names[0]: kinds[known.dtype.kind]}


def check_columns(table: pa.Table, names: Iterable[str], option: str, path: str) -> None:
    """Raise an error for the first name that is not a column; suggest a similar column."""
    columns, source = table.column_names, "standard input" if path == STANDARD else path
    missing = next((name for name in names if name not in columns), None)
    if missing is not None:
        from .._utils.validation import name_some

        similar = difflib.get_close_matches(missing, columns, 1)
        hint = f"Did you mean {similar[0]!r}?" if similar else f"It has {name_some(columns, 12)}."
        raise UsageError(f"{option}: {source} has no column {missing!r}. {hint}")


def check_files(
    path: Path | str | None, *, endings: Sequence[str] = (), **inputs: str | None
) -> None:
    """Raise an error if an input does not exist, or ``path`` cannot be written or is an input.

    This is done before slow imports.
    """
    files = {name: file for name, file in inputs.items() if file not in (None, STANDARD)}
    for option, file in files.items():
        if not file or not os.path.exists(file):
            raise UsageError(f"{option}: there is no file {file or repr(file)}.")
        if os.path.isdir(file) and not any(Path(file).rglob("*.parquet")):
            found = f"{file} is a folder without parquet files"
            raise UsageError(f"{option}: {found}. Give the name of a file.")
    if path is None or path == STANDARD:
        return
    try:
        folder = check_target(Path(path)).parent
    except (OSError, ValueError) as error:
        raise UsageError(str(error).replace("path:", "--out:", 1)) from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--out: the folder {folder} is not writable.")
    if endings and Path(path).suffix.lower() not in endings:
        raise UsageError(f"--out: {path} must end with {' or '.join(endings)}.")
    if os.path.exists(path) and any(os.path.samefile(path, str(file)) for file in files.values()):
        raise UsageError(
            f"--out: {path} is an input and would be overwritten. Choose another name."
        )


def write_table(path: str, table: pa.Table) -> None:
    """Write a table as parquet if ``path`` ends with .parquet, otherwise as CSV."""
    from pyarrow import BufferOutputStream, csv, parquet

    buffer = BufferOutputStream()
    is_parquet = Path(path).suffix.lower() == ".parquet"
    (parquet.write_table if is_parquet else csv.write_csv)(table, buffer)
    content = buffer.getvalue().to_pybytes()
    if path == STANDARD:
        write_out(content.decode())
        return
    try:
        write_atomically(path, content)
    except OSError as error:
        raise UsageError(f"--out: {path} cannot be written ({error}).") from error
