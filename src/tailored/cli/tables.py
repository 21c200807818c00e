"""Tables of the command line: CSV and parquet files, standard input and output, through Arrow."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from .errors import UsageError

#: Stands for standard input or output.
STANDARD = "-"
#: Files from this size on (bytes) are read in batches, and never whole.
LARGE = 1 << 30


def read_table(path: str, name: str) -> Any:
    """A whole table, as Arrow holds it; ``name`` is the argument that gave the path."""
    from pyarrow import ArrowException, csv, parquet

    try:
        if path == STANDARD:
            content = io.BytesIO(sys.stdin.buffer.read())
            found = (
                parquet.read_table(content) if content.getvalue()[:4] == b"PAR1" else csv.read_csv(content)
            )
        elif is_parquet(existing(path, name)):
            found = parquet.read_table(path)
        else:
            found = csv.read_csv(path)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        hint = "is it a CSV file with a line of names, or a parquet file?"
        raise UsageError(f"{name}: {_shown(path)} cannot be read ({first}); {hint}") from error
    if not found.num_columns or not found.num_rows:
        raise UsageError(f"{name}: {_shown(path)} has no rows below its line of names")
    return found


def is_large(path: str) -> bool:
    """Whether a file is to be read in batches."""
    if path == STANDARD:
        return False
    place = Path(path)
    files = place.rglob("*.parquet") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file()) >= LARGE


def open_large(path: str, name: str) -> Any:
    """What `tailored.scan` reads batch by batch."""
    from pyarrow import dataset

    place = existing(path, name)
    return place if is_parquet(place) else dataset.dataset(path, format="csv")


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


def write_table(table: Any, path: str) -> None:
    """To a CSV or (by its name) parquet file, written aside and moved into place, or to standard output."""
    from pyarrow import csv, parquet

    if path == STANDARD:
        text = io.BytesIO()
        csv.write_csv(table, text)
        sys.stdout.write(text.getvalue().decode())
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise UsageError(f"--out: there is no folder {target.parent}")
    partial = target.with_name(target.name + ".part")
    write = parquet.write_table if target.suffix.lower() in (".parquet", ".pq") else csv.write_csv
    try:
        write(table, str(partial))
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"--out: {path} cannot be written ({error})") from error


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
