"""Find the files of a data set: where the user points, or in a cache that is filled by verified downloads.

The first of three locations that applies is used:

1. ``path=``: a file, an archive or a folder;
2. the folder named by the environment variable ``TAILORED_DATA``;
3. ``data_home`` (default: ``TAILORED_DATA_HOME``, else the user's cache folder), filled by a download.

The first two never use the network or compare checksums.  A downloaded file must match its SHA-256.  Archives are read
in memory; nothing is unpacked to disk.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from sklearn.utils import Bunch

from ..exceptions import ChecksumError, DamagedFileError, DownloadError
from ..tasks.task_set import TaskSet

#: Environment variables: a folder with local copies, and the folder that keeps downloads.
DATA_VARIABLE = "TAILORED_DATA"
HOME_VARIABLE = "TAILORED_DATA_HOME"
#: Seconds to connect, and seconds without a byte, after which a download fails.
TIMEOUT = (10.0, 60.0)
#: Largest file, packed or not: ten times that of any of the data sets.
MOST_BYTES = 256_000_000

PathLike = str | os.PathLike[str]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Source:
    """One published file and where it may be found.

    Attributes
    ----------
    name, file, url, sha256, size, licence, citation
        Name of the data set; name, official address, digest and size in bytes of the published file.
    folders : tuple of str
        Sub-folders of a local data folder that are searched, besides the folder itself.
    layouts : tuple of tuples of str
        Sets of file names, each of which is the complete data set; the first one present is used.
    mirrors : tuple of str
        Addresses of the same file to try in turn when the official one fails.
    """

    name: str
    file: str
    url: str
    sha256: str
    size: int
    licence: str
    citation: str
    folders: tuple[str, ...]
    layouts: tuple[tuple[str, ...], ...]
    mirrors: tuple[str, ...] = ()

    @property
    def expected_files(self) -> str:
        """The layouts as text, for messages."""
        return " or ".join(" + ".join(layout) for layout in self.layouts)


def get_data_home(data_home: PathLike | None = None) -> Path:
    """Return the folder that keeps downloads: the argument, ``TAILORED_DATA_HOME``, or the user's cache."""
    chosen = data_home if data_home is not None else os.environ.get(HOME_VARIABLE)
    return Path(chosen or _pooch().os_cache("tailored")).expanduser()


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def fetch(source: Source, home: Path, *, download: bool = True, progress: bool = False) -> Path:
    """Return the verified published file in the folder `home`, downloading it if it is missing or differs."""
    target = home / source.file
    if target.is_file() and sha256_of(target) == source.sha256:
        return target
    if download:
        return _download(source, home, progress)
    if target.is_file():
        digests = f"its SHA-256 is {sha256_of(target)}, expected {source.sha256}"
        message = f"{target} is not the published {source.file}: {digests}."
        raise ChecksumError(f"{message} Delete it, or allow the download.")
    raise FileNotFoundError(f"{target} is missing and download=False. {_by_hand(source, target)}")


def _download(source: Source, home: Path, progress: bool) -> Path:
    pooch = _pooch()
    from requests import RequestException

    target, failures, refused = home / source.file, [], False
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT, progressbar=progress)
    for url in (source.url, *source.mirrors):
        try:
            home.mkdir(parents=True, exist_ok=True)
            # pooch verifies the digest before it moves the file into place.
            options = {"fname": source.file, "path": home, "downloader": downloader}
            pooch.retrieve(url, f"sha256:{source.sha256}", **options)
            return target
        except RequestException as error:
            status = getattr(error.response, "status_code", None)
            failures.append(f"{url}: {f'status {status}' if status else f'{type(error).__name__}, {error}'}.")
        except ValueError as error:
            # A parked domain answers with a page of its own; a mirror may still have the file.
            refused = True
            failures.append(f"{url}: {error}")
        except OSError as error:
            advice = f"Pass another folder as data_home= or {HOME_VARIABLE}."
            raise DownloadError(f"cannot store {target}: {error.strerror or error}. {advice}") from error
    message = f"{source.file} could not be downloaded. {' '.join(failures)} {_by_hand(source, target)}"
    raise ChecksumError(message) if refused else DownloadError(message)


def _pooch() -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        advice = f"pip install 'tailored[data]', or give a local file with path= or {DATA_VARIABLE}"
        raise ImportError(f"downloading needs pooch: {advice}") from error
    return pooch


def _by_hand(source: Source, target: Path) -> str:
    return (
        f"To provide it yourself, save {source.url} as {target}, pass the file as path=, "
        f"or set {DATA_VARIABLE} to a folder that contains it (the network is not used then)."
    )


class Located(NamedTuple):
    """The content of the files of one layout, and the file or folder that they were read from."""

    origin: Path
    files: dict[str, bytes]

    def place(self, name: str) -> str:
        """Return the location of file `name`, for messages."""
        return str(self.origin) if self.origin.name == name else f"{name} in {self.origin}"

    def bunch(self, source: Source, tasks: TaskSet, about: str, **more: Any) -> Bunch:
        """Return what the loaders of ratings return."""
        more |= {"target_name": "rating", "origin": str(self.origin), "licence": source.licence}
        citation = f"Citation: {source.citation}\nLicence: {source.licence}\nSource: {source.url}\n"
        return Bunch(tasks=tasks, DESCR=f"{source.name}\n\n{about}\n\n{citation}", **more)


def locate(
    source: Source,
    *,
    path: PathLike | None = None,
    data_home: PathLike | None = None,
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
        f"{named_by} names the folder {folder}, which does not contain the {source.name} data. Put "
        f"{', or '.join(dict.fromkeys([source.file, source.expected_files]))}, there or into its sub-folder "
        f"{' or '.join(source.folders)}."
    )


def _from_file(source: Source, file: Path) -> Located:
    if zipfile.is_zipfile(file):
        return Located(file, read_archive(file, source))
    if file.suffix.lower() == ".zip":
        official = f"The official one is {source.url} ({source.size} bytes)."
        raise DamagedFileError(f"{file} is not a complete zip archive. It may be truncated. {official}")
    if all(len(layout) == 1 for layout in source.layouts):
        # A data set of one file may have any name; the loader judges the content.
        return Located(file, {file.name: read_whole(file)})
    if any(file.name in layout for layout in source.layouts):
        return _from_folder(source, file.parent, "path=")
    expected = f"give {source.file}, or a folder with {source.expected_files}"
    raise DamagedFileError(f"{file} is not a file of the {source.name} data: {expected}.")


def read_archive(file: Path, source: Source) -> dict[str, bytes]:
    """Read the first layout that a zip archive contains, at any depth."""
    again = f"Fetch it again: {source.url}"

    def read(member: str) -> bytes:
        size = archive.getinfo(member).file_size
        if size > MOST_BYTES:
            raise too_large(f"{file}: its member {member}", f"{size} bytes when unpacked", again)
        what = f"{file} is a damaged zip archive: its member {member} cannot be read"
        return _or_damaged(what, again, lambda: archive.read(member))

    with _or_damaged(f"{file} is a damaged zip archive", again, lambda: zipfile.ZipFile(file)) as archive:
        # The shortest path wins: a file near the root, not a copy in a sub-folder.
        members = sorted(archive.namelist(), key=len)
        by_name = {PurePosixPath(member).name: member for member in reversed(members)}
        for layout in source.layouts:
            if all(name in by_name for name in layout):
                return {name: read(by_name[name]) for name in layout}
    listed = ", ".join(members[:8]) or "none"
    raise DamagedFileError(f"{file} does not contain {source.expected_files}; its members: {listed}. {again}")


def gunzip(content: bytes, where: str) -> bytes:
    """Return the content of a gzip file; more than `MOST_BYTES` raises."""
    again = "Give the complete file, or one that is not compressed."
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
        content = _or_damaged(f"{where} is a damaged gzip file", again, lambda: packed.read(MOST_BYTES + 1))
    if len(content) > MOST_BYTES:
        raise too_large(where, f"more than {MOST_BYTES} bytes when unpacked", again)
    return content


def read_whole(file: Path) -> bytes:
    """Return the content of a file; more than `MOST_BYTES` raises."""
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise too_large(str(file), f"{size} bytes", "Is it the right file?")
    return file.read_bytes()


def too_large(what: str, size: str, way_out: str, limit: int = 0) -> DamagedFileError:
    """Return the error for a file that is too large."""
    limit = limit or MOST_BYTES
    return DamagedFileError(f"{what} is refused: it has {size}, and the limit is {limit}. {way_out}")


def _or_damaged(what: str, way_out: str, read: Callable[[], Result]) -> Result:
    """Return the result of ``read``; report every exception as `DamagedFileError` with the name of the file."""
    try:
        return read()
    except Exception as error:
        # zipfile raises errors of zlib, lzma and struct, and NotImplementedError, besides its own.
        raise DamagedFileError(f"{what} ({error or type(error).__name__}). {way_out}") from error
