"""Tables of the command line: CSV and parquet files, standard input and output, through Arrow."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .errors import UsageError

#: Stands for standard input or output.
STANDARD = "-"
#: Files from this size on (bytes) are read in batches, and never whole.
LARGE = 1 << 30
#: Rows of such a file that are predicted at a time.
BATCH = 200_000


def read_table(path: str, name: str, labels: Sequence[str] = ()) -> Any:
    """A whole table, as Arrow holds it; ``name`` is the argument that gave the path, ``labels`` columns read as words."""
    from pyarrow import ArrowException, csv, parquet

    try:
        if path == STANDARD:
            content = sys.stdin.buffer.read()
            source: Any = io.BytesIO(content)
            as_parquet, head = content[:4] == b"PAR1", content[: 1 << 16]
        else:
            place = existing(path, name)
            source, as_parquet, head = path, is_parquet(place), b""
            if not as_parquet:
                head = _head(place)
        if as_parquet:
            found = parquet.read_table(source)
        else:
            parse, convert = _csv_options(head, labels)
            found = _with_missing_words(
                csv.read_csv(source, parse_options=parse, convert_options=convert), labels
            )
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        hint = "is it a CSV file in UTF-8 with a line of names, or a parquet file?"
        raise UsageError(f"{name}: {_shown(path)} cannot be read ({first}); {hint}") from error
    if not found.num_columns or not found.num_rows:
        raise UsageError(f"{name}: {_shown(path)} has no rows below its line of names")
    return found


def _head(place: Path) -> bytes:
    """The beginning of a file of text, compressed or not."""
    from pyarrow import input_stream

    with input_stream(str(place)) as file:
        return bytes(file.read(1 << 16))


def _csv_options(head: bytes, labels: Sequence[str]) -> tuple[Any, Any]:
    """Fields end at commas, or at semicolons or tabs where the line of names has more of these; labels are words."""
    import pyarrow as pa
    from pyarrow import csv

    line = head.splitlines()[0] if head else b""
    delimiter = max((",", ";", "\t"), key=lambda mark: line.count(mark.encode()))
    types = {name: pa.string() for name in labels}
    return csv.ParseOptions(delimiter=delimiter), csv.ConvertOptions(column_types=types)


def _with_missing_words(table: Any, labels: Sequence[str]) -> Any:
    """The table with what stands for no value in columns of words missing there, as it is in columns of numbers.

    A label may be any word, NA of Namibia among them.
    """
    import pyarrow as pa
    from pyarrow import compute, csv

    for place, name in enumerate(table.column_names):
        if not pa.types.is_string(table.schema.field(place).type):
            continue
        words = [""] if name in labels else csv.ConvertOptions().null_values
        lost = compute.is_in(table.column(place), value_set=pa.array(words))
        if compute.any(lost).as_py():
            kept = compute.if_else(lost, pa.scalar(None, pa.string()), table.column(place))
            table = table.set_column(place, name, kept)
    return table


def is_large(path: str) -> bool:
    """Whether a file is to be read in batches."""
    if path == STANDARD:
        return False
    place = Path(path)
    files = place.rglob("*.parquet") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file()) >= LARGE


def open_large(path: str, name: str, labels: Sequence[str] = ()) -> Any:
    """What `tailored.scan` reads batch by batch."""
    from pyarrow import dataset

    place = existing(path, name)
    if is_parquet(place):
        return place
    parse, convert = _csv_options(_head(place), labels)
    return dataset.dataset(path, format=dataset.CsvFileFormat(parse_options=parse, convert_options=convert))


def existing(path: str, name: str) -> Path:
    place = Path(path)
    if not place.exists():
        raise UsageError(f"{name}: there is no file {path}")
    return place


def is_parquet(place: Path) -> bool:
    """By its name, or by its first bytes."""
    if place.is_dir() or place.suffix.lower() in (".parquet", ".pq"):
        return True
    with place.open("rb") as file:
        return file.read(4) == b"PAR1"


def tables(path: str, name: str, labels: Sequence[str] = ()) -> Iterator[Any]:
    """The table of a file; of a large one, so many rows at a time."""
    if not is_large(path):
        yield read_table(path, name, labels)
        return
    import pyarrow as pa
    from pyarrow import dataset

    found = open_large(path, name, labels)
    rows = found if isinstance(found, dataset.Dataset) else dataset.dataset(found)
    for batch in rows.to_batches(batch_size=BATCH):
        if batch.num_rows:
            yield _with_missing_words(pa.Table.from_batches([batch]), labels)


class Writer:
    """Tables of the same columns, one after another, to one CSV or (by its name) parquet file or standard output.

    A file is written aside and moved into place when all is there.  ``as_lines`` prints a line of JSON for each row instead.
    """

    def __init__(self, path: str, *, as_lines: bool = False) -> None:
        self.path, self.as_lines = Path(path), as_lines
        self.printed = as_lines or path == STANDARD
        self._file: Any = None
        if not self.printed and not self.path.parent.is_dir():
            raise UsageError(f"--out: there is no folder {self.path.parent}")

    @property
    def _partial(self) -> Path:
        return self.path.with_name(self.path.name + ".part")

    def __enter__(self) -> Writer:
        return self

    def write(self, table: Any) -> None:
        from pyarrow import csv, parquet

        if self.as_lines:
            for line in table.to_pylist():
                sys.stdout.write(json.dumps(line, default=str) + "\n")
        elif self.printed:
            text = io.BytesIO()
            csv.write_csv(table, text, csv.WriteOptions(include_header=self._file is None))
            self._file = sys.stdout
            sys.stdout.write(text.getvalue().decode())
        else:
            try:
                if self._file is None:
                    as_parquet = self.path.suffix.lower() in (".parquet", ".pq")
                    kind = parquet.ParquetWriter if as_parquet else csv.CSVWriter
                    self._file = kind(str(self._partial), table.schema)
                self._file.write_table(table)
            except OSError as error:
                raise UsageError(f"--out: {self.path} cannot be written ({error})") from error

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.printed or self._file is None:
            return
        self._file.close()
        if kind is None:
            self._partial.replace(self.path)
        else:
            self._partial.unlink(missing_ok=True)


def column(table: Any, name: str, option: str, where: str) -> str:
    """The name, if the table has such a column; a hint at the nearest one otherwise."""
    import difflib

    names = table.column_names
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, names[:12]))}"
    raise UsageError(f"{option}: {_shown(where)} has no column {name!r}; {hint}")


def _shown(path: str) -> str:
    return "standard input" if path == STANDARD else path
