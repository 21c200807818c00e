"""Read and write tables: CSV and parquet files, standard input and output, and their task labels."""

from __future__ import annotations

import codecs
import difflib
import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import typer

from .._utils.files import check_target, write_atomically
from .console import READ, UsageError, note, write_out

#: Path that means standard input or output.
STANDARD = "-"
#: Options of the current command for CSV files.  None means that the beginning of each file determines them.
CSV: dict[str, str | None] = {"decimal": None, "encoding": None}
#: Accepted file extensions of output tables.
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
#: Size in bytes from which files are read in batches, and number of rows per batch.
LARGE, BATCH_ROWS = 1 << 30, 200_000


def set_csv_option(option: typer.CallbackParam, value: str | None) -> str | None:
    """Store ``--decimal`` or ``--encoding``.  typer calls this for both options, also when they are not given."""
    try:
        codecs.lookup(value or "utf8" if option.name == "encoding" else "utf8")
    except LookupError:
        known = "Use a name such as utf-8, latin-1 or cp1252."
        raise typer.BadParameter(f"{value!r} is not a known encoding. {known}") from None
    CSV[str(option.name)] = value
    return value


def read_table(path: str, option: str, labels: Sequence[str] = ()) -> Any:
    """Read a table as an Arrow table; ``labels`` are the columns of task labels, which are read as strings."""
    from pyarrow import ArrowException, csv, parquet

    name = "standard input" if path == STANDARD else path
    READ.pop(option, None)
    try:
        if path == STANDARD:
            content = sys.stdin.buffer.read()
            source: Any = io.BytesIO(content)
            as_parquet, head = content[:4] == b"PAR1", content[: 1 << 16]
        else:
            file = existing_file(path, option)
            source, as_parquet = path, is_parquet(file)
            head = b"" if as_parquet else _read_head(file)
        if as_parquet:
            table = parquet.read_table(source)
        else:
            options = _csv_options(head, labels, option)
            if CSV["encoding"] is None and options["read_options"].encoding == "latin-1":
                note(f"{option}: {name} is not in UTF-8, so it is read as Latin-1")
            table = csv.read_csv(source, **options)
            if any(str(kind) == "binary" for kind in table.schema.types):
                raise OSError("it is not in UTF-8. Name its encoding with --encoding")
            # Spreadsheets may append columns that have neither a name nor values.
            columns = enumerate(table.schema)
            used = [i for i, column in columns if column.name or str(column.type) != "null"]
            table = _null_missing_strings(table.select(used), labels)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        # Arrow appends the content of a row with a wrong number of columns; remove it from the message.
        reason = re.sub(r"(got \d+): .*", r"\1", str(error).splitlines()[0])
        wrong = f"{option}: {name} cannot be read ({reason})"
        raise UsageError(f"{wrong}. Give a CSV file in UTF-8 with a header, or a parquet file.") from error
    if not table.num_columns or not table.num_rows:
        raise UsageError(f"{option}: {name} has no rows below its header.")
    repeated = [column for column, count in Counter(table.column_names).items() if count > 1]
    if repeated:
        raise UsageError(f"{option}: {name} has several columns with the name {repeated[0]!r}. Rename them.")
    return table


def read_batches(path: str, option: str, labels: Sequence[str] = ()) -> Iterator[Any]:
    """Yield a small file as one table, or a large file in batches of rows."""
    if not is_large(path):
        yield read_table(path, option, labels)
        return
    import pyarrow as pa
    from pyarrow import dataset

    source = open_large(path, option, labels)
    rows = source if isinstance(source, dataset.Dataset) else dataset.dataset(source)
    for batch in rows.to_batches(batch_size=BATCH_ROWS):
        if batch.num_rows:
            yield _null_missing_strings(pa.Table.from_batches([batch]), labels)


def open_large(path: str, option: str, labels: Sequence[str] = ()) -> Any:
    """Return a path or an Arrow dataset that `tailored.scan` accepts."""
    from pyarrow import dataset

    file = existing_file(path, option)
    if is_parquet(file):
        return file
    options = _csv_options(_read_head(file), labels, option)
    return dataset.dataset(path, format=dataset.CsvFileFormat(**options))


def is_large(path: str) -> bool:
    """Return whether a file, or a folder of parquet files, is read in batches."""
    if path == STANDARD:
        return False
    file = Path(path)
    files = file.rglob("*.parquet") if file.is_dir() else [file]
    return sum(each.stat().st_size for each in files if each.is_file()) >= LARGE


def is_parquet(file: Path) -> bool:
    """Return whether a file is a parquet file, according to its name or first bytes."""
    if file.is_dir() or file.suffix.lower() in (".parquet", ".pq"):
        return True
    with file.open("rb") as content:
        return content.read(4) == b"PAR1"


def existing_file(path: str, option: str) -> Path:
    file = Path(path)
    try:
        exists = bool(path) and file.exists()
    except OSError as error:  # a name that is too long
        raise UsageError(f"{option}: {path} cannot be opened ({error.strerror}).") from error
    if not exists:
        raise UsageError(f"{option}: there is no file {path or repr(path)}.")
    if file.is_dir() and not any(file.rglob("*.parquet")):
        raise UsageError(f"{option}: {path} is a folder without parquet files. Give the name of a file.")
    return file


def check_columns(table: Any, names: Iterable[str], option: str, path: str) -> None:
    """Raise an error for the first name that is not a column; suggest a similar column if there is one."""
    columns, source = table.column_names, "standard input" if path == STANDARD else path
    missing = next((name for name in names if name not in columns), None)
    if missing is not None:
        from .._utils.validation import name_some

        similar = difflib.get_close_matches(missing, columns, 1)
        hint = f"Did you mean {similar[0]!r}?" if similar else f"It has {name_some(columns, 12)}."
        raise UsageError(f"{option}: {source} has no column {missing!r}. {hint}")


def _read_head(file: Path) -> bytes:
    """Read the beginning of a text file, compressed or not."""
    from pyarrow import input_stream

    with input_stream(str(file)) as content:
        return bytes(content.read(1 << 16))


def _csv_options(head: bytes, labels: Sequence[str], option: str) -> dict[str, Any]:
    """Return options for Arrow's CSV reader: encoding, delimiter, decimal mark, and labels as strings.

    The delimiter is the most frequent candidate in the header.  Unless set by options, the encoding is Latin-1 if the file
    is not UTF-8, and the decimal mark is the comma if commas occur between digits more often than points (other than those
    of dates such as 15.04.1983), or if columns are separated by semicolons and there are no decimal numbers.
    """
    import pyarrow as pa
    from pyarrow import csv

    if head[:4] in (b"PK\3\4", b"\xd0\xcf\x11\xe0"):
        raise UsageError(f"{option}: the file is a spreadsheet, not a CSV file. Save the sheet as CSV UTF-8.")
    complete = head[: head.rfind(b"\n")].decode(errors="replace")
    encoding = CSV["encoding"] or ("latin-1" if "\N{REPLACEMENT CHARACTER}" in complete else "utf8")
    if CSV["encoding"] is None and head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    text = head.decode(encoding, "ignore")
    lines = [line.strip('\ufeff" ') for line in text.splitlines()[:2]] or [""]
    delimiter = max((",", ";", "\t"), key=lambda mark: [line.count(mark) for line in lines])
    filled = [sum(bool(cell.strip()) for cell in line.split(delimiter)) for line in lines]
    if filled[0] == 1 < filled[-1] and not lines[0].startswith(delimiter):
        title = f"line 1 does not look like a header ({lines[0][:40]!r})"
        raise UsageError(f"{option}: {title}. Delete the lines above the names of the columns.")
    commas, points = (len(re.findall(rf"(?<![\d{m}])\d+{m}\d+(?![\d{m}])", text)) for m in (",", r"\."))
    has_commas = delimiter != "," and (commas > points or (delimiter == ";" and not points))
    decimal = CSV["decimal"] or ("," if has_commas else ".")
    READ[option] = delimiter, decimal, "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else encoding
    types = {name: pa.string() for name in labels}
    return {
        "read_options": csv.ReadOptions(encoding=encoding),
        "parse_options": csv.ParseOptions(delimiter=delimiter),
        "convert_options": csv.ConvertOptions(column_types=types, decimal_point=decimal),
    }


def _null_missing_strings(table: Any, labels: Sequence[str]) -> Any:
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
        if compute.any(missing).as_py():
            values = compute.if_else(missing, pa.scalar(None, pa.string()), table.column(i))
            table = table.set_column(i, name, values)
    n_rows = table.num_rows
    while n_rows and not any(column[n_rows - 1].is_valid for column in table.columns):
        n_rows -= 1
    return table.slice(0, n_rows)


def check_files(path: Path | str | None, *, endings: Sequence[str] = (), **inputs: str | None) -> None:
    """Raise an error, before slow imports, if an input does not exist, or ``path`` cannot be written or is an input."""
    files = {option: file for option, file in inputs.items() if file is not None and file != STANDARD}
    for option, file in files.items():
        existing_file(file, option)
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
        raise UsageError(f"--out: {path} is an input and would be overwritten. Choose another name.")


def write_tables(path: str, tables: Iterable[Any]) -> int:
    """Write tables with the same columns to one parquet file, or as CSV in the format of the input; return the row count.

    The extension of ``path`` selects the format.
    """
    from pyarrow import parquet

    counts: list[int] = []

    def write(file: IO[bytes]) -> None:
        writer: Any = None
        for table in tables:
            if Path(path).suffix.lower() in TABLES[3:]:
                writer = writer or parquet.ParquetWriter(file, table.schema)
                writer.write_table(table)
            else:
                file.write(_csv_bytes(table, path, is_first=not counts))
            counts.append(table.num_rows)
        if writer is not None:
            writer.close()

    if path == STANDARD:
        for table in tables:
            write_out(_csv_bytes(table, path, is_first=not counts).decode())
            counts.append(table.num_rows)
        return sum(counts)
    try:
        write_atomically(path, write)
    except OSError as error:
        raise UsageError(f"--out: {path} cannot be written ({error}).") from error
    return sum(counts)


def _csv_bytes(table: Any, path: str, *, is_first: bool) -> bytes:
    """Return a table as CSV in the format of the input (Arrow cannot write decimal commas); UTF-8 for standard output."""
    import pyarrow as pa
    from pyarrow import compute

    delimiter, decimal, encoding = READ.get("data", (",", ".", "utf8"))
    delimiter = "\t" if path.lower().endswith(".tsv") else delimiter
    columns = []
    for column in table.columns:
        text = column.cast(pa.string())
        if pa.types.is_floating(column.type):
            text = compute.replace_substring(text, ".", decimal)
        elif pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
            text = compute.binary_join_element_wise('"', compute.replace_substring(text, '"', '""'), '"', "")
        columns.append(text)
    nulls: Any = {"null_handling": "replace", "null_replacement": ""}
    lines = compute.binary_join_element_wise(*columns, delimiter, **nulls)
    header = delimiter.join('"' + name.replace('"', '""') + '"' for name in table.column_names)
    result = "".join(f"{line}\n" for line in [header] * is_first + lines.to_pylist())
    encoder = codecs.getincrementalencoder("utf8" if path == STANDARD else encoding)()
    encoder.setstate(int(is_first))  # only the first table has a byte-order mark
    return encoder.encode(result)


def print_json_lines(tables: Iterable[Any]) -> int:
    """Print a line of JSON for each row; return the number of rows."""
    n_rows = 0
    for table in tables:
        n_rows += table.num_rows
        write_out("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
    return n_rows


#: Kind of labels for each NumPy ``dtype.kind``.
_KINDS = {"i": "integers", "u": "integers", "f": "numbers", "U": "strings"}
_SAME_WAY = "Write labels in the same way in all tables."
#: An integer, or an integer that a program converted to float because other values were missing.
_INTEGER = re.compile(r"(0|-?[1-9]\d{0,17})(\.0+)?")


class TaskLabels:
    """Convert the task labels of several tables to the type of the model's labels.

    CSV files have no types, so their labels are read as strings.  They become integers if all of them are written as
    integers; "007" stays a string.  Without ``known`` labels of a model, the first table determines the type.
    """

    def __init__(self, known: Any = None) -> None:
        self.kind = None if known is None else _KINDS.get(known.dtype.kind)
        self.known = frozenset() if known is None else frozenset(known.tolist())

    def convert(self, table: Any, names: list[str], option: str) -> Any:
        """Return the table with converted labels.  Labels in several columns are not converted."""
        import pyarrow as pa

        if len(names) > 1:
            return table
        name = names[0]
        column = table[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # older versions of Arrow
            column = column.chunk(0)
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        distinct = coded.dictionary.to_pylist()
        if not self.known and self.kind is None:
            self.kind = _kind_of(distinct)
        if self.kind is None:
            return table
        self._unpadded = {str(label).lstrip("0"): label for label in self.known}
        converted = [self._convert(value, name, option) for value in distinct]
        self.known = self.known or frozenset(converted)
        types = {"integers": pa.int64(), "numbers": pa.float64(), "strings": pa.string()}
        labels = pa.array(converted, types[self.kind]).take(coded.indices)
        return table.set_column(table.column_names.index(name), name, labels)

    def _convert(self, value: Any, name: str, option: str) -> Any:
        integer = _as_integer(value)
        if self.kind == "strings":
            text = str(value if integer is None or isinstance(value, str) else integer)
            if text not in self.known and str(integer) in self.known:
                return str(integer)
            other = self._unpadded.get(text.lstrip("0")) if text.isdecimal() else None
            if other is None or text in self.known:
                return text
            elsewhere = f"task {text!r} in column {name!r} is written {other!r} elsewhere. {_SAME_WAY}"
            zeros = "A spreadsheet drops leading zeros of columns that are not text."
            raise UsageError(f"{option}: {elsewhere} {zeros}")
        if self.kind == "integers" and integer is not None:
            return integer
        if self.kind == "numbers":
            with suppress(TypeError, ValueError):
                return float(value)
        example = f", such as {next(iter(self.known))!r}" if self.known else ""
        others = f"the other labels are {self.kind}{example}, but {value!r} in column {name!r} is not"
        raise UsageError(f"{option}: {others}. {_SAME_WAY} A new task gets a new number.")


def _kind_of(values: list[Any]) -> str:
    if values and all(_as_integer(value) is not None for value in values):
        return "integers"
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return "numbers"
    return "strings"


def _as_integer(value: Any) -> int | None:
    """Return a label as an integer if it is one or is written as one, else None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, str) and (match := _INTEGER.fullmatch(value)):
        return int(match.group(1))
    return None
