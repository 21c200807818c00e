"""Finding, downloading and refusing files, against a real server on the loopback interface."""

from __future__ import annotations

import hashlib
import io
import random
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loopback import Loopback, closed_port, serve
from tailored.datasets import SOURCES, Source, get_data_home
from tailored.datasets._files import fetch, locate
from tailored.exceptions import ChecksumError, DownloadError

CONTENTS = {"a.txt": b"first" * 3000, "b.txt": random.Random(0).randbytes(5000)}


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = zipped({f"toy/{name}": content for name, content in CONTENTS.items()})


def source_of(content: bytes, url: str, **changes: object) -> Source:
    toy = Source(
        name="toy",
        file="toy.zip",
        url=url,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        licence="Free as in toy.",
        citation="Nobody (2000).",
        folders=("toy",),
        layouts=(("a.txt", "b.txt"),),
    )
    return replace(toy, **changes)


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAILORED_DATA", "TAILORED_DATA_HOME", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with serve() as state:
        state.files["toy.zip"] = ARCHIVE
        yield state


@pytest.fixture
def toy(server: Loopback) -> Source:
    return source_of(ARCHIVE, server.url("toy.zip"))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr("requests.get", refuse)


def tree(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


# ------------------------------------------------------------------------------------------ the download


def test_download_once(toy: Source, server: Loopback, tmp_path: Path) -> None:
    found = locate(toy, data_home=tmp_path / "new" / "home")
    assert found.files == CONTENTS
    assert tree(tmp_path) == {"new", "new/home", "new/home/toy.zip"}
    assert locate(toy, data_home=tmp_path / "new" / "home", download=False).files == CONTENTS
    assert server.asked == [("toy.zip", None)]


def test_data_home_of_the_environment(
    toy: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None
) -> None:
    monkeypatch.setenv("TAILORED_DATA_HOME", str(tmp_path))
    (tmp_path / "toy.zip").write_bytes(ARCHIVE)
    assert get_data_home() == tmp_path
    assert locate(toy).origin == tmp_path / "toy.zip"
    monkeypatch.delenv("TAILORED_DATA_HOME")
    assert get_data_home().name == "tailored"


def test_interrupted_download(toy: Source, server: Loopback, tmp_path: Path) -> None:
    server.break_after = 7300
    with pytest.raises((DownloadError, ChecksumError), match=r"could not be downloaded.*path="):
        fetch(toy, tmp_path)
    assert tree(tmp_path) == set()
    assert fetch(toy, tmp_path).read_bytes() == ARCHIVE


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(ARCHIVE[:-1] + b"?", id="changed"),
        pytest.param(ARCHIVE[:4000], id="truncated"),
        pytest.param(ARCHIVE * 20, id="too long"),
        pytest.param(b"<html>log in first</html>", id="some page"),
    ],
)
def test_wrong_checksum(served: bytes, toy: Source, server: Loopback, tmp_path: Path) -> None:
    server.files["toy.zip"] = served
    with pytest.raises(ChecksumError) as refusal:
        fetch(toy, tmp_path)
    message = str(refusal.value)
    for part in ("toy.zip", toy.sha256, hashlib.sha256(served).hexdigest(), toy.url, "path="):
        assert part in message
    assert tree(tmp_path) == set()


def test_refused_connection(tmp_path: Path) -> None:
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}/toy.zip"
        with pytest.raises(DownloadError) as refusal:
            fetch(source_of(ARCHIVE, url), tmp_path)
    message = str(refusal.value)
    for part in (url, str(tmp_path / "toy.zip"), "path=", "TAILORED_DATA", "ConnectionError"):
        assert part in message
    assert tree(tmp_path) == set()


@pytest.mark.parametrize("status", [404, 503])
def test_http_errors(status: int, toy: Source, server: Loopback, tmp_path: Path) -> None:
    server.status = status
    with pytest.raises(DownloadError, match=f"HTTPError: {status}"):
        fetch(toy, tmp_path)
    server.status = None
    assert fetch(toy, tmp_path).read_bytes() == ARCHIVE


@pytest.mark.parametrize("official", ["refused", "another file"])
def test_mirror(official: str, toy: Source, server: Loopback, tmp_path: Path) -> None:
    server.files["parked.zip"] = b"this domain is for sale"
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}/toy.zip" if official == "refused" else server.url("parked.zip")
        assert fetch(replace(toy, url=url, mirrors=(toy.url,)), tmp_path).read_bytes() == ARCHIVE
    assert tree(tmp_path) == {"toy.zip"}


def test_a_damaged_file_in_the_cache(toy: Source, server: Loopback, tmp_path: Path) -> None:
    (tmp_path / "toy.zip").write_bytes(ARCHIVE[:500])
    with pytest.raises(FileNotFoundError, match="is not the published file and download=False"):
        fetch(toy, tmp_path, download=False)
    assert server.asked == []
    assert fetch(toy, tmp_path).read_bytes() == ARCHIVE


def test_download_forbidden(toy: Source, tmp_path: Path, no_network: None) -> None:
    with pytest.raises(FileNotFoundError, match=r"toy\.zip is missing and download=False.*path="):
        fetch(toy, tmp_path, download=False)


def test_home_that_cannot_be_written(toy: Source, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DownloadError, match=r"cannot store .*data_home= or TAILORED_DATA_HOME"):
        fetch(toy, tmp_path / "file" / "home")


def test_without_pooch(toy: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy.zip").write_bytes(ARCHIVE)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert locate(toy, path=tmp_path).files == CONTENTS
    with pytest.raises(ImportError, match=r"'\.\[all\]'.*path="):
        fetch(toy, tmp_path / "empty")


# --------------------------------------------------------------------------------------------- local data


@pytest.mark.parametrize("sub", [".", "toy"])
@pytest.mark.parametrize("kind", ["archive", "files"])
@pytest.mark.parametrize("by", ["path", "variable"])
def test_local_folder(
    sub: str,
    kind: str,
    by: str,
    toy: Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_network: None,
) -> None:
    place = tmp_path / sub
    place.mkdir(exist_ok=True)
    for name, content in ({"toy.zip": ARCHIVE} if kind == "archive" else CONTENTS).items():
        (place / name).write_bytes(content)
    if by == "variable":
        monkeypatch.setenv("TAILORED_DATA", str(tmp_path))
    found = locate(toy, path=tmp_path if by == "path" else None, data_home=tmp_path / "unused")
    assert found.files == CONTENTS
    assert not (tmp_path / "unused").exists()


def test_local_files(toy: Source, tmp_path: Path, no_network: None) -> None:
    (tmp_path / "renamed.zip").write_bytes(ARCHIVE)
    assert locate(toy, path=tmp_path / "renamed.zip").files == CONTENTS
    with pytest.raises(FileNotFoundError, match=r"path= names .*toy\.zip.*a\.txt \+ b\.txt"):
        locate(toy, path=tmp_path)
    for name, content in CONTENTS.items():
        (tmp_path / name).write_bytes(content)
    assert locate(toy, path=str(tmp_path)).files == CONTENTS
    (tmp_path / "c.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"c\.txt cannot be read"):
        locate(toy, path=tmp_path / "c.txt")
    with pytest.raises(FileNotFoundError, match="nowhere, which does not contain the toy data"):
        locate(toy, path=tmp_path / "nowhere")


def test_the_variable_forbids_the_network(
    toy: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None
) -> None:
    monkeypatch.setenv("TAILORED_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="TAILORED_DATA names"):
        locate(toy, data_home=tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(ARCHIVE[:-60], "BadZipFile", id="truncated"),
        pytest.param(b"hello", "BadZipFile", id="no archive"),
        pytest.param(ARCHIVE.replace(b"firstfirst", b"FIRSTfirst", 1), r"Bad CRC-32.*a\.txt", id="damaged"),
        pytest.param(zipped({"a.txt": b""}), r"does not contain a\.txt \+ b\.txt", id="others"),
    ],
)
def test_bad_archive(content: bytes, message: str, toy: Source, tmp_path: Path) -> None:
    (tmp_path / "toy.zip").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        locate(toy, path=tmp_path / "toy.zip")


@pytest.mark.parametrize("name", SOURCES)
def test_records(name: str) -> None:
    source = SOURCES[name]
    assert source.name == name
    assert all(url.startswith("https://") for url in (source.url, *source.mirrors))
    assert len(bytes.fromhex(source.sha256)) == 32
    assert source.size == {"lenk": 10_469, "movielens": 4_924_029, "jester": 4_171_628}[name]
    assert source.licence
    assert source.citation
