"""Read and write tables: CSV and parquet files, standard input and output."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._utils.files import check_target, write_atomically
from .console import READ, write_out

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
        if path.endswith(".parquet") or Path(path).is_dir():
            table = parquet.read_table(path)
        else:
            READ.add(option)
            convert = csv.ConvertOptions(
                column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
            )
            source = sys.stdin.buffer if path == STANDARD else path
            table = csv.read_csv(source, convert_options=convert)
    except (pa.ArrowException, OSError) as error:
        # Arrow appends the content of a row with a wrong number of columns.
        reason = re.sub(r"(got \d+): .*", r"\1", str(error).splitlines()[0])
        advice = "Give a CSV file in UTF-8 whose first line is the header, or a parquet file."
        raise ValueError(f"{option}: {name} cannot be read ({reason}). {advice}") from error
    if any(str(kind) == "binary" for kind in table.schema.types):
        advice = "Save it as CSV UTF-8, or convert a spreadsheet with pandas.read_excel."
        raise ValueError(f"{option}: {name} is not text in UTF-8. {advice}")
    if table.num_columns == 1 and re.search(r"[;\t]", table.column_names[0]):
        advice = "Save it with commas, and with points in decimal numbers."
        raise ValueError(f"{option}: {name} has no commas between columns. {advice}")
    return table


def label_types(names: Sequence[str], known: np.ndarray | None) -> dict[str, Any]:
    """Return the type of labels in a column of a CSV file: strings, if the ``known`` labels are."""
    import pyarrow as pa

    is_string = known is not None and len(names) == 1 and known.dtype.kind == "U"
    return {names[0]: pa.string()} if is_string else {}


def check_columns(table: pa.Table, names: Iterable[str], option: str, path: str) -> None:
    """Raise an error for the first name that is not a column; suggest a similar column."""
    columns, source = table.column_names, "standard input" if path == STANDARD else path
    missing = next((name for name in names if name not in columns), None)
    if missing is not None:
        from .._utils.validation import name_some

        similar = difflib.get_close_matches(missing, columns, 1)
        hint = f"Did you mean {similar[0]!r}?" if similar else f"It has {name_some(columns, 12)}."
        raise ValueError(f"{option}: {source} has no column {missing!r}. {hint}")


def check_files(
    path: Path | str | None, *, endings: Sequence[str] = (), **inputs: str | None
) -> None:
    """Raise an error if an input does not exist, or ``path`` cannot be written or is an input.

    This is done before slow imports.
    """
    files = {name: file for name, file in inputs.items() if file not in (None, STANDARD)}
    for option, file in files.items():
        if not file or not os.path.exists(file):
            raise ValueError(f"{option}: there is no file {file or repr(file)}.")
    if path is None or path == STANDARD:
        return
    folder = check_target(Path(path)).parent
    if not os.access(folder, os.W_OK):
        raise ValueError(f"--out: the folder {folder} is not writable.")
    if endings and Path(path).suffix.lower() not in endings:
        raise ValueError(f"--out: {path} must end with {' or '.join(endings)}.")
    if os.path.exists(path) and any(os.path.samefile(path, str(file)) for file in files.values()):
        raise ValueError(
            f"--out: {path} is an input and would be overwritten. Choose another name."
        )


def rounded(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Round columns of predictions to the digit of the fourth figure of the smallest std.

    Without std, as for probabilities, to six decimals.
    """
    import numpy as np

    std = np.asarray(table["std"]) if "std" in names else np.zeros(0)
    std = std[std > 0.0]
    decimals = 3 - int(np.floor(np.log10(std.min()))) if len(std) else 6
    for name in names:
        if str(table[name].type) == "double":
            values = np.asarray(table[name]).round(decimals)
            table = table.set_column(table.column_names.index(name), name, [values])
    return table


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
    write_atomically(path, content)
