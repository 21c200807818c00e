"""Concurrent downloads, damaged archives and oversized archives."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import random
import zipfile
from pathlib import Path

import pytest
from loopback import serve
from tailored.datasets._files import fetch, locate

from tailored.datasets import Source
from tailored.exceptions import DamagedFileError

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

CONTENT = random.Random(0).randbytes(400_000)


def source_of(url: str, content: bytes = CONTENT, **changes: object) -> Source:
    values: dict[str, object] = {
        "name": "toy",
        "file": "toy.bin",
        "url": url,
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "licence": "Free as in toy.",
        "citation": "Nobody (2000).",
        "folders": ("toy",),
        "layouts": (("toy.bin",),),
    }
    return Source(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAILORED_DATA", "TAILORED_DATA_HOME", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


# ------------------------------------------------------------------------------------------ fetching


def _fetch(source: Source, home: Path, ready, answers) -> None:
    ready.wait(60)
    try:
        answers.put(fetch(source, home).read_bytes() == CONTENT)
    except BaseException as error:
        answers.put(repr(error))


def test_processes_that_fetch_the_same_file_at_once_all_have_it(tmp_path):
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    ready, answers = context.Event(), context.Queue()
    with serve() as server:
        server.files["toy.bin"] = CONTENT
        server.slowly = 0.002  # a pause after each piece, so that the downloads overlap
        source = source_of(server.url("toy.bin"))
        children = [context.Process(target=_fetch, args=(source, tmp_path, ready, answers)) for _ in range(3)]
        for child in children:
            child.start()
        ready.set()
        results = [answers.get(timeout=120) for _ in children]
        for child in children:
            child.join(60)
    assert results == [True] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["toy.bin"]


# ------------------------------------------------------------------------------------------ archives


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = zipped({"toy/a.txt": b"first" * 3000, "toy/b.txt": random.Random(1).randbytes(5000)})
TOY_ZIP = {"file": "toy.zip", "layouts": (("a.txt", "b.txt"),)}


def altered(where: bytes, offset: int, value: bytes, nth: int = 0) -> bytes:
    """The archive with other bytes some places after the n-th record of a kind."""
    place = -1
    for _ in range(nth + 1):
        place = ARCHIVE.index(where, place + 1)
    return ARCHIVE[: place + offset] + value + ARCHIVE[place + offset + len(value) :]


CENTRAL, LOCAL = b"PK\x01\x02", b"PK\x03\x04"
DAMAGED = {
    "truncated": ARCHIVE[: len(ARCHIVE) // 2],
    "unknown compression": altered(CENTRAL, 10, b"\x63\x00"),
    "encrypted": altered(CENTRAL, 8, b"\x01\x00"),
    "garbled content": altered(LOCAL, 60, b"\xff" * 8),
    "another header": altered(LOCAL, 26, b"\xff\x7f"),
    "wrong sum": altered(CENTRAL, 16, b"\x00" * 4),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_archive_is_one_error_with_file_reason_and_way_out(kind, tmp_path):
    (tmp_path / "toy.zip").write_bytes(DAMAGED[kind])
    source = source_of("https://example.org/toy.zip", ARCHIVE, **TOY_ZIP)
    with pytest.raises(DamagedFileError, match=r"toy\.zip cannot be read.*https://example\.org/toy\.zip"):
        locate(source, path=tmp_path / "toy.zip")


def test_garbled_archives_never_fail_otherwise(tmp_path):
    """Bytes changed anywhere: the content, or one kind of error."""
    rng, file = random.Random(2), tmp_path / "toy.zip"
    source = source_of("https://example.org/toy.zip", ARCHIVE, **TOY_ZIP)
    refused = 0
    for _ in range(300):
        content = bytearray(ARCHIVE)
        for _ in range(rng.choice([1, 4])):
            # Mostly in the tables of the archive, where most of the meaning is.
            first = rng.choice([0, ARCHIVE.index(CENTRAL), len(ARCHIVE) - 60])
            content[rng.randrange(first, len(content))] = rng.randrange(256)
        file.write_bytes(bytes(content))
        try:
            assert set(locate(source, path=file).files) == {"a.txt", "b.txt"}
        except DamagedFileError:
            refused += 1
    assert refused > 100
