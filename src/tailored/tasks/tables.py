"""Long tables that need not fit into memory, read batch by batch: files, Arrow, lazy frames, databases.

None of the libraries is imported before a table of theirs is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ._frames import is_dask, is_frame, read_frame

#: Numbers that one batch may hold (16 MB), and its least and most rows.
BATCH_NUMBERS, LEAST_ROWS, MOST_ROWS = 2_000_000, 4_096, 262_144

ACCEPTED = (
    "a parquet file or a folder of them, Arrow batches (a table, reader or dataset), a polars LazyFrame, a DuckDB "
    "relation, a dataframe, a Dask dataframe, or an iterable of dataframes"
)
#: A relation of DuckDB gives its batches by one of these, the newest first.
READERS = ("to_arrow_reader", "fetch_record_batch")


class Batch(NamedTuple):
    """Some rows of a table, as a dataframe, and words for where they stand in it."""

    frame: Any
    place: str


class Table(NamedTuple):
    """A table as a way to read its batches, in an order that is always the same, with a number of rows each at most.

    ``once``: it can be read a single time.  ``data`` is what it was made from, where that can sum for itself.
    """

    name: str
    batches: Callable[[list[str] | None, int], Iterator[Batch]]
    columns: list[str] | None
    once: bool = False
    data: Any = None

    @property
    def is_dask(self) -> bool:
        return is_dask(self.data)


def batch_rows(n_columns: int) -> int:
    """Rows of a batch of so many columns."""
    return min(max(BATCH_NUMBERS // max(n_columns, 1), LEAST_ROWS), MOST_ROWS)


def open_table(data: Any) -> Table:
    """The table that ``data`` is, by what it can do."""
    kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
    if isinstance(data, str | Path):
        return _parquet(_files(Path(data)))
    if isinstance(data, list | tuple) and data and all(isinstance(item, str | Path) for item in data):
        return _parquet([Path(item) for item in data])
    if is_dask(data):
        return _dask(data)
    if is_frame(data):
        return _frame(data)
    if kind == "polars.LazyFrame":
        return _lazy(data)
    if any(hasattr(data, name) for name in READERS):
        return _relation(data)
    if kind == "pyarrow.RecordBatchReader":
        return Table(kind, lambda _, __: _arrow(iter(data), kind), list(data.schema.names), once=True)
    if hasattr(data, "to_batches") and hasattr(data, "schema"):  # a dataset, or a scanner of one

        def scanned(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
            return _arrow(data.to_batches(columns=columns, batch_size=n_rows, batch_readahead=1), kind)

        return Table(kind, scanned, list(data.schema.names))
    if isinstance(data, Iterable) and not isinstance(data, dict | bytes):
        return Table(kind, lambda _, __: _any(data), None, once=iter(data) is data)
    raise TypeError(f"data: expected {ACCEPTED}; got {type(data).__name__}")


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"data: there is no file or folder {path}")
    if path.is_file():
        return [path]
    found = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith(("_", ".")))
    if not found:
        raise FileNotFoundError(f"data: the folder {path} holds no *.parquet file")
    return found


def _parquet(files: list[Path]) -> Table:
    """Files one after the other; that all of them are whole and have the columns of the first is seen before."""
    names = [_opened(file).schema_arrow.names for file in files]
    for file, found in zip(files, names, strict=True):
        lost = [name for name in names[0] if name not in found]
        if lost:
            raise ValueError(f"data: {file} has no column {lost[0]!r}, which {files[0]} has")

    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        import pyarrow as pa

        for file in files:
            opened, row = _opened(file), 0
            try:
                for batch in opened.iter_batches(batch_size=n_rows, columns=columns, use_threads=False):
                    yield Batch(
                        pa.Table.from_batches([batch]), f"{file}, in the batch that starts at row {row}"
                    )
                    row += batch.num_rows
            except (OSError, pa.ArrowException) as error:
                raise ValueError(f"data: {file} cannot be read beyond row {row} ({error})") from error
            finally:
                opened.close()

    return Table(str(files[0] if len(files) == 1 else files[0].parent), read, names[0])


def _opened(file: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("data: parquet files are read with pyarrow; install pyarrow") from error
    try:
        # Not buffered ahead: a row group may be as large as the file.
        return pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"data: {file} is no whole parquet file ({error}); write it again") from error


def _frame(data: Any) -> Table:
    frame = read_frame(data, "data")

    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        chosen = frame if columns is None else frame.select(columns)
        for row in range(0, len(frame), n_rows):
            yield Batch(
                chosen[row : row + n_rows].to_native(), f"data, in the batch that starts at row {row}"
            )

    return Table(type(data).__name__, read, list(frame.columns), data=data)


def _dask(data: Any) -> Table:
    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        chosen = data if columns is None else data[columns]
        parts = (chosen.partitions[i].compute() for i in range(data.npartitions))
        return _placed(parts, "Dask dataframe")

    return Table("Dask dataframe", read, list(data.columns), data=data)


def _lazy(data: Any) -> Table:
    if not hasattr(data, "collect_batches"):
        raise ImportError(
            "data: a LazyFrame is read in batches by polars 1.34 or later; upgrade it, or write a parquet file"
        )

    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        chosen = data if columns is None else data.select(columns)
        return _placed(chosen.collect_batches(chunk_size=n_rows, maintain_order=True), "LazyFrame")

    return Table("LazyFrame", read, list(data.collect_schema().names()), data=data)


def _relation(data: Any) -> Table:
    def read(columns: list[str] | None, n_rows: int) -> Iterator[Batch]:
        chosen = data if columns is None else data.project(", ".join(_quoted(name) for name in columns))
        reader = next(getattr(chosen, name) for name in READERS if hasattr(chosen, name))
        return _arrow(iter(reader(n_rows)), "relation")

    return Table("relation", read, list(data.columns), data=data)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _arrow(batches: Iterator[Any], name: str) -> Iterator[Batch]:
    import pyarrow as pa

    return _placed((pa.Table.from_batches([batch]) for batch in batches), name)


def _any(frames: Iterable[Any]) -> Iterator[Batch]:
    def tables() -> Iterator[Any]:
        for i, frame in enumerate(frames):
            if type(frame).__name__ == "RecordBatch":
                import pyarrow as pa

                yield pa.Table.from_batches([frame])
            elif is_frame(frame):
                yield frame
            else:
                raise TypeError(
                    f"data: item {i} of the iterable is a {type(frame).__name__} and no dataframe; expected {ACCEPTED}"
                )

    return _placed(tables(), "data")


def _placed(frames: Iterator[Any], name: str) -> Iterator[Batch]:
    row = 0
    for frame in frames:
        n_rows = len(read_frame(frame, "data"))
        if n_rows:
            yield Batch(frame, f"{name}, in the batch that starts at row {row}")
        row += n_rows
