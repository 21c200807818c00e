"""`scan`: read tasks from a long table that need not fit into memory.

Tables are read in batches: parquet files, and whatever exports Arrow's C stream.  pyarrow is
imported only when such a table is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .._utils.frames import check_columns, is_dask, is_frame, other_columns, read_frame
from .._utils.records import cached_property
from .._utils.validation import name_some
from ..tasks.encoding import Encoding
from ..tasks.task_set import TaskSet

#: Number of values in a batch (8 MB); the last one may have twice as many.
BATCH_NUMBERS = 1_000_000


class Batch(NamedTuple):
    """Some rows of a table as a pyarrow table, and their position (for error messages)."""

    frame: Any
    position: str


class Table(NamedTuple):
    """A table that is read in batches, always in the same order.

    ``batches`` takes the columns to read and the number of rows of a batch.
    """

    name: str  # name in error messages
    schema: Any  # pyarrow schema
    batches: Callable[[list[str], int], Iterator[Batch]]
    once: bool = False  # whether the table can be read only once


def open_table(data: Any) -> Table:
    """Return the table for paths or an Arrow stream; raise TypeError for others."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "data: parquet files and Arrow streams are read with pyarrow; install pyarrow"
        ) from error
    paths = data if isinstance(data, list | tuple) else [data]
    if paths and all(isinstance(path, str | Path) for path in paths):
        return _parquet([file for path in paths for file in _files(Path(path))])
    if hasattr(data, "__arrow_c_stream__"):
        return _stream(data)
    advice = (
        "expected a parquet file, a folder or list of parquet files, an object with Arrow's C "
        "stream (a pyarrow table or reader, a pandas or polars frame, a DuckDB relation, the "
        "reader of an ADBC cursor), or a Dask dataframe"
    )
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
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    from pyarrow import RecordBatchReader

    try:
        return RecordBatchReader.from_stream(data)
    except Exception as error:  # an error of the library of the data
        raise ValueError(f"data: {name} cannot be read as an Arrow table ({error})") from error


def _batches(batches: Iterable[Any], name: str, columns: list[str], n_rows: int) -> Iterator[Batch]:
    """Join and split record batches into tables of ``n_rows`` rows; the last table has up to twice
    as many, because an encoding cannot be inferred from a few rows.
    """
    import pyarrow as pa

    parts: list[Any] = []
    row = n_held = 0
    try:
        for batch in batches:
            table = pa.Table.from_batches([batch.select(columns)])
            parts.append(table.cast(pa.schema([_without_views(field) for field in table.schema])))
            n_held += len(table)
            while n_held >= 2 * n_rows:
                held = pa.concat_tables(parts).unify_dictionaries()
                yield Batch(held.slice(0, n_rows), f"{name}, batch starting at row {row}")
                parts, row, n_held = [held.slice(n_rows)], row + n_rows, n_held - n_rows
        if n_held:
            held = pa.concat_tables(parts).unify_dictionaries()
            yield Batch(held, f"{name}, batch starting at row {row}")
    except (OSError, pa.ArrowException) as error:
        last = row + n_held
        raise ValueError(f"data: {name} cannot be read beyond row {last} ({error})") from error


def _without_views(field: Any) -> Any:
    """Return a field of strings in the usual layout, because pyarrow cannot compute with views."""
    from pyarrow import dictionary, large_string, types

    kind = field.type
    if types.is_string_view(kind):
        return field.with_type(large_string())
    if types.is_dictionary(kind) and types.is_string_view(kind.value_type):
        return field.with_type(dictionary(kind.index_type, large_string(), kind.ordered))
    return field


class ColumnRoles(NamedTuple):
    """Roles of the columns of a long table."""

    task: str
    target: str
    features: list[str]
    side: list[str]

    @classmethod
    def of(cls, table: Any, task: str, target: str, features: Any, side: Any) -> ColumnRoles:
        """Check the arguments of `scan`; by default, all remaining columns are features."""
        reserved = check_columns(table, "task", [task])
        reserved += check_columns(table, "target", [target], reserved)
        side = check_columns(table, "side_columns", side or (), reserved)
        if features is None:
            features = other_columns(table.columns, (*reserved, *side))
        return cls(task, target, check_columns(table, "features", features, reserved), side)

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return list(dict.fromkeys([self.task, self.target, *self.features, *self.side]))

    def read(self, batch: Batch, encoding: Encoding | None = None) -> TaskSet:
        """Read some rows; without an ``encoding``, it is inferred from these rows alone."""
        try:
            return TaskSet.from_frame(
                batch.frame,
                task=self.task,
                target=self.target,
                features=self.features if encoding is None else None,
                side_columns=self.side,
                encoding=encoding,
            )
        except ValueError as error:
            raise ValueError(f"data: {batch.position}: {error}") from error

    def read_alone(self, batch: Batch, encoding: Encoding | None) -> TaskSet:
        """Read some rows of a table that is read once; without an ``encoding``, only numbers."""
        tasks = self.read(batch, encoding)
        encoded = [] if encoding is not None or tasks.encoding is None else tasks.encoding.encoded
        if encoded:
            raise ValueError(
                f"data: column {name_some(encoded)} holds categories or dates, and the parts "
                "of this table are read only once, or by several workers. Pass encoding= to scan, "
                "such as encoding_ of a learner or encoding of a TaskSet, or convert the column to "
                "numbers."
            )
        return tasks


@dataclass(frozen=True)
class TaskScan:
    """Tasks in a long table, as returned by `scan` and read by `EmpiricalBayesLearner.fit`."""

    table: Any  # a `Table` or a Dask dataframe
    roles: ColumnRoles
    given_encoding: Encoding | None = None  # the ``encoding`` passed to `scan`

    def __repr__(self) -> str:
        return f"TaskScan(task={self.roles.task!r}, target={self.roles.target!r})"

    @cached_property
    def encoding(self) -> Encoding | None:
        """The encoding passed to `scan`, or inferred by a pass over columns that are not numbers.

        None for a table that can be read only once.
        """
        if self.given_encoding is not None or self.table.once:
            return self.given_encoding
        first = next(self._read(self.roles.names), None)
        encoding = None if first is None else self.roles.read(first).encoding
        if encoding is None or not encoding.encoded:
            return encoding
        # Read only the columns whose encoding depends on the whole table.
        features, side = (
            [name for name in names if name in encoding.encoded]
            for names in (self.roles.features, self.roles.side)
        )
        roles = self.roles._replace(features=features, side=side)
        whole: Encoding | None = None
        for batch in self._read(roles.names):
            part = roles.read(batch).encoding
            assert part is not None
            whole = part if whole is None else whole.merged(part)
        return encoding if whole is None else encoding.with_columns(whole)

    def _read(self, names: list[str]) -> Iterator[Batch]:
        table: Table = self.table
        return table.batches(names, max(BATCH_NUMBERS // len(self.roles.names), 1))

    def batches(self) -> Iterator[tuple[TaskSet, str]]:
        """Yield the tasks and the position of each batch; a task may be in several batches."""
        encoding, kinds = self.encoding, set()
        for batch in self._read(self.roles.names):
            tasks = self.roles.read_alone(batch, encoding)
            encoding = tasks.encoding
            kinds.add(tasks.labels.dtype.kind)
            if len(kinds) > 1 and not kinds <= set("biuf"):
                raise ValueError(
                    f"data: {batch.position}: the labels have another type ({tasks.labels.dtype}) "
                    "than in earlier batches; a number does not match a string, so 7 is not '7'. "
                    "Convert them to one type."
                )
            yield tasks, batch.position


def scan(
    data: Any,
    *,
    task: str,
    target: str,
    features: Sequence[str] | None = None,
    side_columns: Sequence[str] | None = None,
    encoding: Encoding | None = None,
) -> TaskScan:
    """Describe tasks in a long table, with a row per observation, that is read in batches.

    The rows of a task may be anywhere in the table.  The memory of a fit does not grow with the
    table.

    Parameters
    ----------
    data : path, object with Arrow's C stream, or Dask dataframe
        A parquet file, a folder of them, or a list of paths; or anything with the method
        ``__arrow_c_stream__``: pyarrow tables and readers, pandas and polars frames, DuckDB
        relations, ADBC cursors.  Streams other than frames and DuckDB relations are read only once.
    task, target : str
        Columns of the task labels and of the target.
    features : sequence of str, optional
        Columns of the features; by default all remaining columns, encoded as in
        `TaskSet.from_frame`. Those of a Dask dataframe and of a stream that is read only once must
        be numeric, or have an ``encoding``.
    side_columns : sequence of str, optional
        Columns with side information, constant within each task.
    encoding : Encoding, optional
        ``encoding`` of a `TaskSet`, or ``encoding_`` of a learner, to encode this table in the same
        way.

    Returns
    -------
    TaskScan
        Input of `EmpiricalBayesLearner.fit`.
    """
    for name, column in {"task": task, "target": target}.items():
        if not isinstance(column, str):
            raise TypeError(
                f"{name} must be the name of one column; got {column!r}. Join several columns in "
                "one column first."
            )
    if encoding is not None:
        if features is not None:
            raise ValueError(
                "features: the encoding determines the features; leave out features or encoding"
            )
        features = [column.name for column in encoding.features]
    table = data if is_dask(data) else open_table(data)
    columns = table if is_dask(data) else read_frame(table.schema.empty_table(), "data")
    return TaskScan(table, ColumnRoles.of(columns, task, target, features, side_columns), encoding)
