"""Find the files of a data set: where the user points, or in the cache that `_fetch` fills.

Three places, and the first that applies decides:

1. ``path=``: a file, an archive or a folder;
2. the folder named by the environment variable ``TAILORED_DATA``;
3. ``data_home`` (default: ``TAILORED_DATA_HOME``, else the user's cache folder), filled by a download.

The first two never touch the network and are taken at the user's word; what was downloaded, now or earlier,
has to match its SHA-256. Archives are read in place: nothing is ever unpacked to disk.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ._fetch import DATA_VARIABLE, Source, fetch, get_data_home


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
                return Located(place, {name: (place / name).read_bytes() for name in layout})
    raise FileNotFoundError(
        f"{named_by} names the folder {folder}, which holds no {source.name} data. Put "
        f"{', or '.join(dict.fromkeys([source.file, source.wanted]))}, there or into its sub-folder "
        f"{' or '.join(source.folders)}."
    )


def _from_file(source: Source, file: Path) -> Located:
    if zipfile.is_zipfile(file):
        return Located(file, read_archive(file, source))
    if file.suffix.lower() == ".zip":
        raise ValueError(
            f"{file} is not a whole zip archive: it was cut short, or is something else. "
            f"The official one is {source.url} ({source.size} bytes)."
        )
    if all(len(layout) == 1 for layout in source.layouts):
        # A data set of one file may have any name; the loader judges the content.
        return Located(file, {file.name: file.read_bytes()})
    if any(file.name in layout for layout in source.layouts):
        return _from_folder(source, file.parent, "path=")
    raise ValueError(
        f"{file} is no {source.name} data: give {source.file}, or a folder with {source.wanted}."
    )


def read_archive(file: Path, source: Source) -> dict[str, bytes]:
    """Read the first layout that a zip archive holds, at any depth, writing nothing.

    An archive with a member that would land outside its folder is refused as a whole, although nothing is
    unpacked here: such an archive was made to harm, and its other members deserve no trust either.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            _refuse_escapes(file, archive)
            # The shortest path first: a file near the root is meant before a copy deeper down.
            members = sorted(archive.namelist(), key=len)
            by_name = {PurePosixPath(member).name: member for member in reversed(members)}
            for layout in source.layouts:
                if all(name in by_name for name in layout):
                    return {name: archive.read(by_name[name]) for name in layout}
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(
            f"{file} is a damaged zip archive ({error}). Fetch it again: {source.url}"
        ) from error
    raise ValueError(f"{file} holds no {source.wanted}; its members: {', '.join(members[:8]) or 'none'}.")


def _refuse_escapes(file: Path, archive: zipfile.ZipFile) -> None:
    for member in archive.infolist():
        # Back slashes and drive letters are harmless in a POSIX name, and an escape on Windows.
        name = member.filename.replace("\\", "/")
        escapes = name.startswith("/") or ".." in PurePosixPath(name).parts or name[1:2] == ":"
        if escapes or stat.S_ISLNK(member.external_attr >> 16):
            raise ValueError(
                f"{file} is refused: its member {member.filename!r} leads outside the archive's folder. "
                "Nothing was unpacked; get the archive from its official place."
            )
