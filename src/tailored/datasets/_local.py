"""Find the files of a data set: where the user points, or in the cache that `_fetch` fills.

Three places, and the first that applies decides:

1. ``path=``: a file, an archive or a folder;
2. the folder named by the environment variable ``TAILORED_DATA``;
3. ``data_home`` (default: ``TAILORED_DATA_HOME``, else the user's cache folder), filled by a download.

The first two never touch the network and are taken at the user's word; what was downloaded, now or earlier,
has to match its SHA-256. Archives are read in place: nothing is ever unpacked to disk.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from ._fetch import DATA_VARIABLE, DamagedFileError, Source, fetch, get_data_home

#: Bytes of a file, packed or not, and members of an archive: ten times what any of the data sets has.
MOST_BYTES, MOST_MEMBERS = 256_000_000, 10_000

Result = TypeVar("Result")


class Located(NamedTuple):
    """The files of one layout, read whole, and the file or folder they were read from."""

    origin: Path
    files: dict[str, bytes]

    def place(self, name: str) -> str:
        """Say which file `name` is, for messages."""
        return str(self.origin) if self.origin.name == name else f"{name} in {self.origin}"


def locate(
    source: Source,
    *,
    path: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = False,
) -> Located:
    """Find and read the files of `source`, downloading them where that is needed and allowed."""
    if path is not None:
        place = Path(path).expanduser()
        if place.is_dir():
            return _from_folder(source, place, "path=")
        if not place.is_file():
            raise FileNotFoundError(f"path={os.fspath(path)!r}: there is no such file or folder")
        return _from_file(source, place)
    if folder := os.environ.get(DATA_VARIABLE):
        return _from_folder(source, Path(folder).expanduser(), DATA_VARIABLE)
    return _from_file(source, fetch(source, get_data_home(data_home), download=download, progress=progress))


def _from_folder(source: Source, folder: Path, named_by: str) -> Located:
    for place in (folder, *(folder / name for name in source.folders)):
        if (place / source.file).is_file():
            return _from_file(source, place / source.file)
        for layout in source.layouts:
            if all((place / name).is_file() for name in layout):
                return Located(place, {name: read_whole(place / name) for name in layout})
    raise FileNotFoundError(
        f"{named_by} names the folder {folder}, which holds no {source.name} data. Put "
        f"{', or '.join(dict.fromkeys([source.file, source.wanted]))}, there or into its sub-folder "
        f"{' or '.join(source.folders)}."
    )


def _from_file(source: Source, file: Path) -> Located:
    if zipfile.is_zipfile(file):
        return Located(file, read_archive(file, source))
    if file.suffix.lower() == ".zip":
        raise DamagedFileError(
            f"{file} is not a whole zip archive: it was cut short, or is something else. "
            f"The official one is {source.url} ({source.size} bytes)."
        )
    if all(len(layout) == 1 for layout in source.layouts):
        # A data set of one file may have any name; the loader judges the content.
        return Located(file, {file.name: read_whole(file)})
    if any(file.name in layout for layout in source.layouts):
        return _from_folder(source, file.parent, "path=")
    raise DamagedFileError(
        f"{file} is no {source.name} data: give {source.file}, or a folder with {source.wanted}."
    )


def read_archive(file: Path, source: Source) -> dict[str, bytes]:
    """Read the first layout that a zip archive holds, at any depth, writing nothing.

    An archive with a member that would land outside its folder is refused as a whole, although nothing is
    unpacked here: such an archive was made to harm, and its other members deserve no trust either.
    """
    again = f"Fetch it again: {source.url}"
    with _told(f"{file} is a damaged zip archive", again, lambda: zipfile.ZipFile(file)) as archive:
        _refuse_escapes(file, archive)
        # The shortest path first: a file near the root is meant before a copy deeper down.
        members = sorted(archive.namelist(), key=len)
        by_name = {PurePosixPath(member).name: member for member in reversed(members)}
        for layout in source.layouts:
            if all(name in by_name for name in layout):
                return {name: _member(file, archive, by_name[name], again) for name in layout}
    raise DamagedFileError(
        f"{file} holds no {source.wanted}; its members: {', '.join(members[:8]) or 'none'}. {again}"
    )


def _member(file: Path, archive: zipfile.ZipFile, name: str, again: str) -> bytes:
    declared = archive.getinfo(name).file_size
    if declared > MOST_BYTES:
        raise too_large(f"{file}: its member {name}", f"{declared} bytes when unpacked", again)
    # Not more than it declares is ever unpacked.
    what = f"{file} is a damaged zip archive: its member {name} cannot be read"
    return _told(what, again, lambda: archive.read(name))


def unzipped(content: bytes, where: str) -> bytes:
    """What is in a gzip file, not more than `MOST_BYTES` of it."""
    again = "Give the whole file, or a plain one."
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
        found = _told(f"{where} is a damaged gzip file", again, lambda: packed.read(MOST_BYTES + 1))
    if len(found) > MOST_BYTES:
        raise too_large(where, f"more than {MOST_BYTES} bytes when unpacked", again)
    return found


def read_whole(file: Path) -> bytes:
    """The content of a file that is not too large."""
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise too_large(str(file), f"{size} bytes", "Is it the right file?")
    return file.read_bytes()


def too_large(what: str, size: str, way_out: str) -> DamagedFileError:
    """The error for what would fill the memory."""
    return DamagedFileError(
        f"{what} is refused: it has {size}, and no file of these data sets has more than {MOST_BYTES}. {way_out}"
    )


def _told(what: str, way_out: str, read: Callable[[], Result]) -> Result:
    """What ``read`` returns; whatever it meets in a damaged file is one error that says which file."""
    try:
        return read()
    except Exception as error:
        # zipfile lets through errors of zlib, lzma and struct, of flags it does not know, and of sizes beyond memory.
        raise DamagedFileError(f"{what} ({error or type(error).__name__}). {way_out}") from error


def _refuse_escapes(file: Path, archive: zipfile.ZipFile) -> None:
    if len(archive.infolist()) > MOST_MEMBERS:
        raise DamagedFileError(
            f"{file} is refused: it has {len(archive.infolist())} members, more than {MOST_MEMBERS}. Get it from its official place."
        )
    for member in archive.infolist():
        # Back slashes and drive letters are harmless in a POSIX name, and an escape on Windows.
        name = member.filename.replace("\\", "/")
        escapes = name.startswith("/") or ".." in PurePosixPath(name).parts or name[1:2] == ":"
        if escapes or stat.S_ISLNK(member.external_attr >> 16):
            raise DamagedFileError(
                f"{file} is refused: its member {member.filename!r} leads outside the archive's folder. "
                "Nothing was unpacked; get the archive from its official place."
            )
