"""Read long tables in batches: parquet files, and whatever exports Arrow's C stream.

pyarrow is imported only when such a table is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .._utils.frames import is_frame

#: Maximum number of values in a batch (16 MB).
BATCH_NUMBERS = 2_000_000

ACCEPTED = (
    "a parquet file, a folder or list of parquet files, an object with Arrow's C stream (a pyarrow "
    "table or reader, a pandas or polars frame, a DuckDB relation, the reader of an ADBC cursor), "
    "or a Dask dataframe"
)


class Batch(NamedTuple):
    """Some rows of a table as a pyarrow table, and their position (for error messages)."""

    frame: Any
    position: str


class Table(NamedTuple):
    """A table that is read in batches, always in the same order.

    ``batches`` takes the columns to read and the maximum number of rows of a batch.
    """

    name: str  # name in error messages
    schema: Any  # pyarrow schema
    batches: Callable[[list[str], int], Iterator[Batch]]
    once: bool = False  # whether the table can be read only once


def batch_rows(n_columns: int) -> int:
    """Return the maximum number of rows of a batch with this number of columns."""
    return max(BATCH_NUMBERS // n_columns, 1)


def open_table(data: Any) -> Table:
    """Return the table for paths or an Arrow stream; raise TypeError for others."""
    if isinstance(data, str | Path):
        return _parquet(_files(Path(data)))
    paths = data if isinstance(data, list | tuple) else ()
    if paths and all(isinstance(path, str | Path) for path in paths):
        return _parquet([file for path in paths for file in _files(Path(path))])
    if hasattr(data, "__arrow_c_stream__"):
        return _stream(data)
    advice = f"expected {ACCEPTED}"
    if hasattr(data, "collect"):
        advice = "call .collect(), or write a parquet file with .sink_parquet(path)"
    if hasattr(data, "scanner"):
        advice = "pass dataset.scanner(batch_readahead=1).to_reader()"
    raise TypeError(f"data: a {type(data).__name__} is not a table that scan reads; {advice}")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith(("_", ".")))
    if not files:
        raise FileNotFoundError(f"data: the folder {path} does not contain a *.parquet file")
    return files


def _parquet(files: list[Path]) -> Table:
    """Return a table that reads the files in order; each must have the columns of the first."""
    schemas = [_open_parquet(file).schema_arrow for file in files]
    for file, schema in zip(files, schemas, strict=True):
        missing = [name for name in schemas[0].names if name not in schema.names]
        if missing:
            raise ValueError(f"data: {file} has no column {missing[0]!r}, which {files[0]} has")

    def read(columns: list[str], n_rows: int) -> Iterator[Batch]:
        for file in files:
            with _open_parquet(file) as parquet:
                batches = parquet.iter_batches(n_rows, columns=columns, use_threads=False)
                yield from _batches(batches, str(file), columns, n_rows)

    return Table(str(files[0] if len(files) == 1 else files[0].parent), schemas[0], read)


def _open_parquet(file: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("data: parquet files are read with pyarrow; install pyarrow") from error
    try:
        # Pre-buffering is disabled, because a row group may be as large as the file.
        return pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"data: there is no file or folder {file}") from error
    except (OSError, pa.ArrowException) as error:
        advice = (
            "If it is a CSV file, pass duckdb.read_csv(file). If it was truncated, write it again."
        )
        raise ValueError(
            f"data: {file} is not a complete parquet file ({error}). {advice}"
        ) from error


def _stream(data: Any) -> Table:
    name = type(data).__name__
    # In DuckDB before version 2, the C stream holds the whole result in memory; its readers do not.
    relation = getattr(data, "to_arrow_reader", getattr(data, "fetch_record_batch", None))
    once = relation is None and not is_frame(data)
    reader = _reader(data if relation is None else data.limit(0), name)

    def read(columns: list[str], n_rows: int) -> Iterator[Batch]:
        if relation is not None:
            return _batches(relation(n_rows), name, columns, n_rows)
        return _batches(reader if once else _reader(data, name), name, columns, n_rows)

    return Table(name, reader.schema, read, once)


def _reader(data: Any, name: str) -> Any:
    try:
        from pyarrow import RecordBatchReader
    except ImportError as error:
        raise ImportError("data: Arrow streams are read with pyarrow; install pyarrow") from error
    try:
        return RecordBatchReader.from_stream(data)
    except Exception as error:  # an error of the library of the data
        raise ValueError(f"data: {name} cannot be read as an Arrow table ({error})") from error


def _batches(batches: Iterable[Any], name: str, columns: list[str], n_rows: int) -> Iterator[Batch]:
    """Split record batches into tables of at most ``n_rows`` rows."""
    import pyarrow as pa

    row = 0
    try:
        for batch in batches:
            table = pa.Table.from_batches([batch.select(columns)])
            table = table.cast(pa.schema([_without_views(field) for field in table.schema]))
            for start in range(0, len(table), n_rows):
                part = table.slice(start, n_rows)
                yield Batch(part, f"{name}, batch starting at row {row}")
                row += len(part)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"data: {name} cannot be read beyond row {row} ({error})") from error


def _without_views(field: Any) -> Any:
    """Return a field of strings in the usual layout, because pyarrow cannot compute with views."""
    from pyarrow import dictionary, large_string, types

    kind = field.type
    if types.is_string_view(kind):
        return field.with_type(large_string())
    if types.is_dictionary(kind) and types.is_string_view(kind.value_type):
        return field.with_type(dictionary(kind.index_type, large_string(), kind.ordered))
    return field
