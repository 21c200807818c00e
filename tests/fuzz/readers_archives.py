"""Files of data sets, damaged and forged: one error of ours, or the right data."""

from __future__ import annotations

import gzip
import io
import random
import stat
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tailored.datasets import fetch_jester, fetch_lenk, fetch_movielens, load_multilevel
from tailored.exceptions import DamagedFileError

sys.path.append(str(Path(__file__).parents[1] / "datasets"))

from small_files import SMALL, as_csv, as_xls, jester_table, lenk_file, movielens_files, zipped

SLEEP = "".join(f'"{i}",{200 + i % 37}.5,{i % 10},"{300 + i // 10}"\n' for i in range(60))

#: Name of the file, its loader, and whether it has checksums of its own, so that damage cannot pass for data.
FILES: dict[str, tuple[str, str, bool]] = {
    "movielens zip": ("ml-100k.zip", "movielens", True),
    "jester zip": ("jester_dataset_1_1.zip", "jester", True),
    "lenk zip": ("lenk.zip", "lenk", True),
    "jester gzip": ("jester-data-1.csv.gz", "jester", True),
    "jester csv": ("jester-data-1.csv", "jester", False),
    "jester xls": ("jester-data-1.xls", "jester", False),
    "lenk mat": ("lenk_data.mat", "lenk", False),
    "movielens folder": ("u.data", "movielens", False),
    "multilevel csv": ("sleepstudy.csv", "multilevel", False),
}
LOADERS: dict[str, Callable[..., Any]] = {
    "movielens": lambda path: fetch_movielens(path=path, **SMALL["movielens"]),
    "jester": lambda path: fetch_jester(path=path, **SMALL["jester"]),
    "lenk": lambda path: fetch_lenk(path=path),
    "multilevel": lambda path: load_multilevel("sleepstudy", path),
}


@cache
def members(name: str) -> dict[str, bytes]:
    """The plain files of a data set."""
    return {
        "movielens": movielens_files(),
        "jester": {"jester-data-1.xls": as_xls(jester_table())},
        "lenk": {"lenk_data.mat": lenk_file()},
    }[name]


@cache
def good(kind: str) -> dict[str, bytes]:
    """All files that stand in the folder, the one that is damaged first."""
    file, name, _ = FILES[kind]
    if file.endswith(".zip"):
        return {file: zipped(members(name), "some folder/")}
    if kind == "jester gzip":
        return {file: gzip.compress(as_csv(jester_table()), mtime=0)}
    if kind == "jester csv":
        return {file: as_csv(jester_table())}
    if kind == "multilevel csv":
        return {file: ('"","Reaction","Days","Subject"\n' + SLEEP).encode()}
    return dict(members(name))


@cache
def right(kind: str) -> Any:
    """What the undamaged file holds."""
    with tempfile.TemporaryDirectory() as folder:
        return load(Path(folder), kind, good(kind))


def load(folder: Path, kind: str, files: dict[str, bytes]) -> Any:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return LOADERS[FILES[kind][1]](folder if kind == "movielens folder" else folder / FILES[kind][0])


# --- damage


def damaged(rng: random.Random, kind: str, seen: dict[str, str]) -> dict[str, bytes]:
    """The files with one thing wrong; ``seen`` says what."""
    files = dict(good(kind))
    first = next(iter(files))
    name = rng.choice(list(files)) if kind == "movielens folder" else first
    ways: dict[str, Callable[[], bytes]] = {
        way: (lambda way=way: BYTES[way](rng, files[name])) for way in BYTES
    }
    if first.endswith(".zip"):
        found = members(FILES[kind][1])
        ways |= {f"zip: {way}": (lambda way=way: ZIPS[way](rng, dict(found))) for way in ZIPS}
    elif name.endswith((".csv", ".data", ".user", ".item")):
        ways |= {f"text: {way}": (lambda way=way: lines(rng, files[name], TEXTS[way])) for way in TEXTS}
    way = rng.choice(list(ways))
    seen["damage"], seen["file"] = way, kind
    files[name] = ways[way]()
    return files


def _flip(rng: random.Random, content: bytes) -> bytes:
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _spread(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    stop = min(len(content), start + rng.choice((1, 4, 64, 4096)))
    return content[:start] + rng.randbytes(stop - start) + content[stop:]


def _twice(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    stop = rng.randrange(start, len(content) + 1)
    return content[:stop] + content[start:]


OTHERS = (b"<html>404</html>", b"PK\x05\x06" + bytes(18), b"\x1f\x8b", b"\n\n", "é,1\n".encode())
BYTES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flip": _flip,
    "cut": lambda rng, content: content[: rng.randrange(len(content))],
    "cut at the front": lambda rng, content: content[rng.randrange(1, len(content)) :],
    "noise": _spread,
    "zeros": lambda rng, content: (
        content[: (i := rng.randrange(len(content)))] + bytes(16) + content[i + 16 :]
    ),
    "twice": _twice,
    "longer": lambda rng, content: content + rng.randbytes(rng.choice((1, 30, 70_000))),
    "empty": lambda rng, content: b"",
    "other file": lambda rng, content: rng.choice(OTHERS),
}


def _zip(entries: list[tuple[Any, bytes]], way: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", way) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def _headers(rng: random.Random, found: dict[str, bytes]) -> bytes:
    """A central directory with one field of one member changed."""
    content = bytearray(_zip(list(found.items())))
    places = [i for i in range(len(content) - 4) if content[i : i + 4] == b"PK\x01\x02"]
    place = rng.choice(places)
    offset, size = rng.choice(
        [(8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (38, 4), (42, 4)]
    )
    number = rng.choice([0, 1, 8, 12, 14, 99, 2**16 - 1, 2**31, 2**32 - 1]) % 256**size
    content[place + offset : place + offset + size] = struct.pack("<I", number)[:size]
    return bytes(content)


def _link(rng: random.Random, found: dict[str, bytes]) -> bytes:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return _zip([*found.items(), (info, b"/etc/passwd")])


def _without(rng: random.Random, found: dict[str, bytes]) -> bytes:
    found.pop(rng.choice(list(found)))
    return _zip([*found.items(), ("README", b"hello")])


ESCAPES = ("../x", "/x", "a/../../x", "..\\x", "C:/x", "\\\\host\\x")
ZIPS: dict[str, Callable[[random.Random, dict[str, bytes]], bytes]] = {
    "member missing": _without,
    "member twice": lambda rng, found: _zip([*found.items(), (rng.choice(list(found)), b"1\t1\t1\t1\n")]),
    "member in two folders": lambda rng, found: _zip([*found.items(), *((f"b/{k}", b"") for k in found)]),
    "path outside": lambda rng, found: _zip([*found.items(), (rng.choice(ESCAPES), b"x")]),
    "link": _link,
    "headers": _headers,
    "other compression": lambda rng, found: _zip(list(found.items()), rng.choice([0, 12, 14])),
    "zip in a zip": lambda rng, found: _zip([("inner.zip", _zip(list(found.items())))]),
}

TEXTS: dict[str, Callable[[random.Random, list[bytes]], None]] = {
    "field": lambda rng, row: row.__setitem__(rng.randrange(len(row)), rng.choice(FIELDS)),
    "fewer fields": lambda rng, row: row.pop(),
    "more fields": lambda rng, row: row.append(b"7"),
    "no line": lambda rng, row: row.clear(),
}
FIELDS = (
    b"",
    b"nan",
    b"inf",
    b"-1e400",
    b"1e308",
    b"9" * 30,
    b"x",
    b"\xff",
    b'"',
    b"0x10",
    b"1_0",
    b"-1",
    b"0",
    b"2.5",
    b" ",
)


def lines(rng: random.Random, content: bytes, change: Callable[[random.Random, list[bytes]], None]) -> bytes:
    """One line of a table changed."""
    found = content.split(b"\n")
    i = rng.randrange(len(found))
    mark = next((mark for mark in (b"\t", b"|", b",") if mark in found[i]), b",")
    row = found[i].split(mark)
    change(rng, row)
    found[i] = mark.join(row)
    return b"\n".join(found)


# --- verdict


def check(kind: str, seen: dict[str, str], bunch: Any) -> None:
    """What was read is the right data where the file has checksums, and sound data of its kind otherwise."""
    tasks, name = bunch.tasks, FILES[kind][1]
    assert np.isfinite(tasks.X).all(), "inputs that are no numbers"
    assert np.isfinite(tasks.y).all(), "targets that are no numbers"
    if name in ("movielens", "jester"):
        low, high = bunch.target_range
        assert ((tasks.y >= low) & (tasks.y <= high)).all(), "ratings outside their range"
        assert (tasks.X.sum(axis=1) == 1.0).all(), "rows that are not of one item"
    if FILES[kind][2]:
        expected = right(kind).tasks
        for one, other in ((tasks.X, expected.X), (tasks.y, expected.y), (tasks.offsets, expected.offsets)):
            assert np.array_equal(one, other), "other data than the file's"


def _refusal(is_so: bool, outcome: str, error: Exception) -> str:
    assert is_so, f"not in our words, or without the file: {error!r}"
    return outcome


def one_archive(rng: random.Random, seen: dict[str, str]) -> str:
    """Damage one file and load it: "refused" or "read"; anything else is raised."""
    kind = rng.choice(list(FILES))
    right(kind)
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = damaged(rng, kind, seen)
            bunch = load(Path(folder), kind, files)
        except DamagedFileError as error:
            return _refusal(folder in str(error), "refused", error)
        except ValueError as error:
            # what is left of a cut file is sound, and too little for what is asked for
            return _refusal(str(error).startswith(("n_items=", "no user of")), "too little is left", error)
        finally:
            left = {path.name for path in Path(folder).iterdir()} - set(good(kind))
            assert not left, f"files left behind: {left}"
    check(kind, seen, bunch)
    return "read"
