"""Read long tables in batches: parquet files, Arrow data, lazy frames, database relations and dataframes.

The library that a kind of table needs is imported only when such a table is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .._utils.frames import is_dask, is_frame, read_frame

#: Maximum number of values in a batch of more than MIN_ROWS rows (16 MB), and maximum number of rows.
BATCH_NUMBERS, MIN_ROWS, MAX_ROWS = 2_000_000, 4_096, 262_144

ACCEPTED = (
    "a parquet file, a folder or list of parquet files, Arrow batches (a table, reader or dataset), a polars LazyFrame, "
    "a DuckDB relation, a dataframe, a Dask dataframe, or an iterable of dataframes"
)
#: Methods that return the batches of a DuckDB relation; the one of newer versions of DuckDB is first.
RELATION_METHODS = ("to_arrow_reader", "fetch_record_batch")


class Batch(NamedTuple):
    """Some rows of a table as a dataframe, and their position in the table (for error messages)."""

    frame: Any
    position: str


class Table(NamedTuple):
    """A table that is read in batches, always in the same order.

    ``batches`` takes the columns to read (None: all) and the maximum number of rows of a batch.
    """

    name: str  # name in error messages
    batches: Callable[[list[str] | None, int], Iterator[Batch]]
    columns: list[str] | None  # None if they are only known from the first batch
    once: bool = False  # whether the table can be read only once
    dask_frame: Any = None


def batch_rows(n_columns: int) -> int:
    """Return the maximum number of rows of a batch with this number of columns."""
    return min(max(BATCH_NUMBERS // max(n_columns, 1), MIN_ROWS), MAX_ROWS)


def open_table(data: Any) -> Table:
    """Return the table for any of the accepted kinds of data; raise TypeError for others."""
    kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
    if isinstance(data, str | Path):
        return _parquet(_files(Path(data)))
    if (
        isinstance(data, list | tuple)
        and data
        and all(isinstance(item, str | Path) for item in data)
    ):
        return _parquet([Path(item) for item in data])
    if is_dask(data):
        return _dask(data)
    if is_frame(data):
        return _frame(data)
    if kind == "polars.LazyFrame":
        return _lazy(data)
    if any(hasattr(data, name) for name in RELATION_METHODS):
        return _relation(data)
    if kind == "pyarrow.RecordBatchReader":
        return Table(
            kind, lambda _, __: _arrow(iter(data), kind), list(data.schema.names), once=True
        )
    if hasattr(data, "to_batches") and hasattr(
        data, "schema"
    ):  # an Arrow dataset, or a scanner of one

        def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
            return _arrow(
                data.to_batches(columns=columns, batch_size=n_rows, batch_readahead=1), kind
            )

        return Table(kind, read, list(data.schema.names))
    if isinstance(data, Iterable) and not isinstance(data, dict | bytes):
        return Table(kind, lambda _, __: _iterable(data), None, once=iter(data) is data)
    raise TypeError(f"data: expected {ACCEPTED}; got {type(data).__name__}")


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"data: there is no file or folder {path}")
    if path.is_file():
        return [path]
    files = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith(("_", ".")))
    if not files:
        raise FileNotFoundError(f"data: the folder {path} does not contain a *.parquet file")
    return files


def _parquet(files: list[Path]) -> Table:
    """Return a table that reads the files in order, after checking that each has the columns of the first."""
    names = [_open_parquet(file).schema_arrow.names for file in files]
    for file, columns in zip(files, names, strict=True):
        missing = [name for name in names[0] if name not in columns]
        if missing:
            raise ValueError(f"data: {file} has no column {missing[0]!r}, which {files[0]} has")

    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        import pyarrow as pa

        for file in files:
            parquet, row = _open_parquet(file), 0
            try:
                for batch in parquet.iter_batches(
                    batch_size=n_rows, columns=columns, use_threads=False
                ):
                    yield Batch(
                        pa.Table.from_batches([batch]), f"{file}, batch starting at row {row}"
                    )
                    row += batch.num_rows
            except (OSError, pa.ArrowException) as error:
                raise ValueError(
                    f"data: {file} cannot be read beyond row {row} ({error})"
                ) from error
            finally:
                parquet.close()

    return Table(str(files[0] if len(files) == 1 else files[0].parent), read, names[0])


def _open_parquet(file: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("data: parquet files are read with pyarrow; install pyarrow") from error
    try:
        # Pre-buffering is disabled, because a row group may be as large as the file.
        return pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    except (OSError, pa.ArrowException) as error:
        advice = (
            "If it is a CSV file, pass polars.scan_csv(file). If it was truncated, write it again."
        )
        raise ValueError(
            f"data: {file} is not a complete parquet file ({error}). {advice}"
        ) from error


def _frame(data: Any) -> Table:
    frame = read_frame(data, "data")

    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        selected = frame if columns is None else frame.select(columns)
        for row in range(0, len(frame), n_rows):
            yield Batch(
                selected[row : row + n_rows].to_native(), f"data, batch starting at row {row}"
            )

    return Table(type(data).__name__, read, list(frame.columns))


def _dask(data: Any) -> Table:
    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        selected = data if columns is None else data[columns]
        parts = (selected.partitions[i].compute() for i in range(data.npartitions))
        return _with_positions(parts, "Dask dataframe")

    return Table("Dask dataframe", read, list(data.columns), dask_frame=data)


def _lazy(data: Any) -> Table:
    if not hasattr(data, "collect_batches"):
        raise ImportError(
            "data: reading a LazyFrame in batches needs polars 1.34 or later; upgrade it, or write a parquet file"
        )

    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        selected = data if columns is None else data.select(columns)
        return _with_positions(
            selected.collect_batches(chunk_size=n_rows, maintain_order=True), "LazyFrame"
        )

    return Table("LazyFrame", read, list(data.collect_schema().names()))


def _relation(data: Any) -> Table:
    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        quoted = ['"' + name.replace('"', '""') + '"' for name in columns or ()]
        selected = data if columns is None else data.project(", ".join(quoted))
        method = next(
            getattr(selected, name) for name in RELATION_METHODS if hasattr(selected, name)
        )
        return _arrow(iter(method(n_rows)), "relation")

    return Table("relation", read, list(data.columns))


def _arrow(batches: Iterator[Any], name: str) -> Iterator[Batch]:
    import pyarrow as pa

    return _with_positions((pa.Table.from_batches([batch]) for batch in batches), name)


def _iterable(frames: Iterable[Any]) -> Iterator[Batch]:
    def tables() -> Iterator[Any]:
        for i, frame in enumerate(frames):
            if type(frame).__name__ == "RecordBatch":
                import pyarrow as pa

                frame = pa.Table.from_batches([frame])
            if not is_frame(frame):
                found = f"item {i} of the iterable is a {type(frame).__name__}, not a dataframe"
                raise TypeError(f"data: {found}; expected {ACCEPTED}")
            yield frame

    return _with_positions(tables(), "data")


def _with_positions(frames: Iterator[Any], name: str) -> Iterator[Batch]:
    row = 0
    for frame in frames:
        n_rows = len(read_frame(frame, "data"))
        if n_rows:
            yield Batch(frame, f"{name}, batch starting at row {row}")
        row += n_rows
