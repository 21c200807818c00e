"""Read and write tables (CSV and parquet files, standard input and output), and convert task labels."""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .._utils.files import check_target, write_atomically
from .console import READ, UsageError, note, write_out

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

#: Path that means standard input or output.
STANDARD = "-"
#: Options of the current command for CSV files.  None means that the beginning of each file determines them.
CSV: dict[str, str | None] = {"decimal": None, "encoding": None}
#: Accepted file extensions of output tables.
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
#: Minimum size in bytes of a file that `fit` reads in batches.
LARGE = 1 << 30


def set_csv_option(option: typer.CallbackParam, value: str | None) -> str | None:
    """Store ``--decimal`` or ``--encoding``.  typer calls this for both options, even if they are not given."""
    CSV[str(option.name)] = value
    return value


def read_table(path: str, option: str, labels: Sequence[str] = ()) -> pa.Table:
    """Read a table as an Arrow table; ``labels`` are the columns of task labels, which are read as strings."""
    from pyarrow import ArrowException, input_stream, parquet

    name = "standard input" if path == STANDARD else path
    READ.pop(option, None)
    try:
        if Path(path).is_dir():
            table = parquet.read_table(path)
        else:
            with sys.stdin.buffer if path == STANDARD else input_stream(path) as file:
                content = file.read()
            is_parquet = content[:4] == b"PAR1"
            source = io.BytesIO(content)
            table = (
                parquet.read_table(source)
                if is_parquet
                else _read_csv(content, name, option, labels)
            )
    except (
        ArrowException,
        LookupError,
        OSError,
        UnicodeDecodeError,
    ) as error:  # LookupError: unknown encoding
        # Arrow appends the content of a row with a wrong number of columns; remove it from the message.
        reason = re.sub(r"(got \d+): .*", r"\1", str(error).splitlines()[0])
        wrong = f"{option}: {name} cannot be read ({reason})"
        advice = "Give a CSV file in UTF-8 whose first line is the header, or a parquet file."
        raise UsageError(f"{wrong}. {advice}") from error
    if not table.num_columns or not table.num_rows:
        raise UsageError(f"{option}: {name} has no rows below its header.")
    repeated = [column for column, count in Counter(table.column_names).items() if count > 1]
    if repeated:
        advice = (
            "Rename them." if repeated[0] else "Delete the lines above the header, such as a title."
        )
        raise UsageError(
            f"{option}: {name} has several columns with the name {repeated[0]!r}. {advice}"
        )
    return table


def _read_csv(content: bytes, name: str, option: str, labels: Sequence[str]) -> pa.Table:
    from pyarrow import csv

    options = _csv_options(content[: 1 << 16], labels, option)
    if CSV["encoding"] is None and options["read_options"].encoding == "latin-1":
        note(f"{option}: {name} is not in UTF-8, so it is read as Latin-1")
    table = csv.read_csv(io.BytesIO(content), **options)
    if any(str(kind) == "binary" for kind in table.schema.types):
        raise OSError("it is not in UTF-8. Name its encoding with --encoding")
    # Spreadsheets may append columns that have neither a name nor values.
    columns = enumerate(table.schema)
    used = [i for i, column in columns if column.name or str(column.type) != "null"]
    return _null_missing_strings(table.select(used), labels)


def is_large(path: str) -> bool:
    """Return whether a file, or a folder of parquet files, is read in batches."""
    files = [Path(path), *Path(path).rglob("*.parquet")]
    return path != STANDARD and sum(file.stat().st_size for file in files) >= LARGE


def open_large(path: str, labels: Sequence[str]) -> Any:
    """Return a path or a DuckDB relation that `tailored.scan` accepts; ``labels`` are read as strings."""
    from pyarrow import csv, input_stream

    if Path(path).is_dir():
        return path
    with input_stream(path) as file:
        head = file.read(1 << 16)
    if head[:4] == b"PAR1":
        return path
    import duckdb

    options = _csv_options(head, labels, "data")
    return duckdb.read_csv(
        path,
        header=True,
        sep=options["parse_options"].delimiter,
        decimal=options["convert_options"].decimal_point,
        encoding=options["read_options"].encoding.replace("utf8", "utf-8"),
        dtype=dict.fromkeys(labels, "VARCHAR"),
        na_values=csv.ConvertOptions().null_values,
    )


def _check_input(path: str, option: str) -> None:
    file = Path(path)
    try:
        exists = bool(path) and file.exists()
    except OSError as error:  # a name that is too long
        raise UsageError(f"{option}: {path} cannot be opened ({error.strerror}).") from error
    if not exists:
        raise UsageError(f"{option}: there is no file {path or repr(path)}.")
    if file.is_dir() and not any(file.rglob("*.parquet")):
        raise UsageError(
            f"{option}: {path} is a folder without parquet files. Give the name of a file."
        )


def check_columns(table: pa.Table, names: Iterable[str], option: str, path: str) -> None:
    """Raise an error for the first name that is not a column; suggest a similar column if there is one."""
    columns, source = table.column_names, "standard input" if path == STANDARD else path
    missing = next((name for name in names if name not in columns), None)
    if missing is not None:
        from .._utils.validation import name_some

        similar = difflib.get_close_matches(missing, columns, 1)
        hint = f"Did you mean {similar[0]!r}?" if similar else f"It has {name_some(columns, 12)}."
        raise UsageError(f"{option}: {source} has no column {missing!r}. {hint}")


def _csv_options(head: bytes, labels: Sequence[str], option: str) -> dict[str, Any]:
    """Return options for Arrow's CSV reader: encoding, delimiter, decimal mark, and labels as strings.

    The delimiter is the most frequent candidate in the header.  Without options, the encoding is UTF-8, UTF-16 if the file
    begins with its mark, or Latin-1 if the file is not valid UTF-8.  The decimal mark is the comma if commas occur between
    digits more often than points, other than points of dates such as 15.04.1983.  It is also the comma if semicolons separate
    columns and there are no decimals.
    """
    import pyarrow as pa
    from pyarrow import csv

    if head[:4] in (b"PK\3\4", b"\xd0\xcf\x11\xe0"):
        raise UsageError(
            f"{option}: the file is a spreadsheet, not a CSV file. Save the sheet as CSV UTF-8."
        )
    complete = head[: head.rfind(b"\n")].decode(errors="replace")
    encoding = CSV["encoding"] or ("latin-1" if "\N{REPLACEMENT CHARACTER}" in complete else "utf8")
    if CSV["encoding"] is None and head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    text = head.decode(encoding, "ignore")
    lines = [line.strip('\ufeff" ') for line in text.splitlines()[:2]] or [""]
    delimiter = max((",", ";", "\t"), key=lambda mark: [line.count(mark) for line in lines])
    commas, points = (
        len(re.findall(rf"(?<![\d{m}])\d+{m}\d+(?![\d{m}])", text)) for m in (",", r"\.")
    )
    has_commas = delimiter != "," and (commas > points or (delimiter == ";" and not points))
    decimal = CSV["decimal"] or ("," if has_commas else ".")
    READ[option] = delimiter, decimal, "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else encoding
    types = {name: pa.string() for name in labels}
    return {
        "read_options": csv.ReadOptions(encoding=encoding),
        "parse_options": csv.ParseOptions(delimiter=delimiter),
        "convert_options": csv.ConvertOptions(column_types=types, decimal_point=decimal),
    }


def _null_missing_strings(table: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Replace "NA", "null" and similar strings by nulls in string columns, as Arrow does in numeric columns.

    In task labels only the empty string counts as missing, because "NA" may stand for Namibia.  Empty rows at the end, which
    spreadsheets write, are removed.
    """
    import pyarrow as pa
    from pyarrow import compute, csv

    for i, name in enumerate(table.column_names):
        if not pa.types.is_string(table.schema.field(i).type):
            continue
        nulls = [""] if name in labels else csv.ConvertOptions().null_values
        missing = compute.is_in(table.column(i), value_set=pa.array(nulls))
        values = compute.if_else(missing, pa.scalar(None, pa.string()), table.column(i))
        table = table.set_column(i, name, values)
    n_rows = table.num_rows
    while n_rows and not any(column[n_rows - 1].is_valid for column in table.columns):
        n_rows -= 1
    return table.slice(0, n_rows)


def check_files(
    path: Path | str | None, *, endings: Sequence[str] = (), **inputs: str | None
) -> None:
    """Raise an error, before slow imports, if an input does not exist, or ``path`` cannot be written or is an input."""
    files = {
        option: file for option, file in inputs.items() if file is not None and file != STANDARD
    }
    for option, file in files.items():
        _check_input(file, option)
    if path is None or path == STANDARD:
        return
    try:
        folder = check_target(Path(path)).parent
    except (OSError, ValueError) as error:
        raise UsageError(str(error).replace("path:", "--out:", 1)) from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--out: the folder {folder} is not writable.")
    if endings and Path(path).suffix.lower() not in endings:
        raise UsageError(f"--out: {path} must end with {', '.join(endings[:-1])} or {endings[-1]}.")
    if os.path.exists(path) and any(os.path.samefile(path, file) for file in files.values()):
        raise UsageError(
            f"--out: {path} is an input and would be overwritten. Choose another name."
        )


def write_table(path: str, table: pa.Table) -> None:
    """Write a table as parquet, or as CSV in the format of the input; the extension of ``path`` selects the format."""
    from pyarrow import parquet

    delimiter, decimal, encoding = READ.get("data", (",", ".", "utf8"))
    suffix = Path(path).suffix.lower()
    if path == STANDARD:
        write_out(_as_csv(table, delimiter, decimal))
        return
    try:
        if suffix in (".parquet", ".pq"):
            write_atomically(path, lambda file: parquet.write_table(table, file))
        else:
            text = _as_csv(table, "\t" if suffix == ".tsv" else delimiter, decimal)
            write_atomically(path, text.encode(encoding))
    except OSError as error:
        raise UsageError(f"--out: {path} cannot be written ({error}).") from error


def _as_csv(table: pa.Table, delimiter: str, decimal: str) -> str:
    """Return a table as CSV (Arrow cannot write decimal commas)."""
    import pyarrow as pa
    from pyarrow import compute

    columns = []
    for column in table.columns:
        text = column.cast(pa.string())
        if pa.types.is_floating(column.type):
            text = compute.replace_substring(text, ".", decimal)
        elif pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
            text = compute.binary_join_element_wise(
                '"', compute.replace_substring(text, '"', '""'), '"', ""
            )
        columns.append(text.fill_null(""))
    lines = compute.binary_join_element_wise(*columns, delimiter)
    header = delimiter.join('"' + name.replace('"', '""') + '"' for name in table.column_names)
    return "".join(f"{line}\n" for line in [header, *lines.to_pylist()])


_INTEGER = re.compile(r"(0|-?[1-9]\d{0,17})(\.0+)?")


def convert_labels(table: pa.Table, name: str, option: str, known: np.ndarray | None) -> pa.Table:
    """Return a table whose task labels have the type of ``known`` labels, those of a model or of another table.

    CSV files have no types, so their labels are read as strings.  Without known labels, they become integers if all of them
    are written as integers, such as 7 or 7.0; "007" stays a string.
    """
    import pyarrow as pa
    from pyarrow import compute

    text = table[name].cast(pa.string())
    distinct = text.unique().drop_null().to_pylist()
    other = next((label for label in distinct if not _INTEGER.fullmatch(label)), None)
    in_integers = other is None if known is None else known.dtype.kind in "iu"
    same_way = "Write labels in the same way in all tables."
    if in_integers and other is not None:
        found = f"the other labels are integers, but {other!r} in column {name!r} is not"
        raise UsageError(f"{option}: {found}. {same_way} Give a new task a new number.")
    padded = (
        {} if known is None or in_integers else {str(each).lstrip("0"): str(each) for each in known}
    )
    spelled = set(padded.values())
    for label in distinct:
        if label.isdecimal() and label not in spelled and label.lstrip("0") in padded:
            found = f"task {label!r} in column {name!r} is written {padded[label.lstrip('0')]!r} elsewhere"
            zeros = "A spreadsheet drops leading zeros of columns that are not text."
            raise UsageError(f"{option}: {found}. {same_way} {zeros}")
    if in_integers:
        text = compute.replace_substring_regex(text, r"\.0+$", "").cast(pa.int64())
    elif known is not None and known.dtype.kind == "f":
        text = text.cast(pa.float64())
    return table.set_column(table.column_names.index(name), name, text)
