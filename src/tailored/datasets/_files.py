"""Find the files of a data set in a local folder, or in a cache of verified downloads.

The first of these locations that is given is used:

1. ``path=``: a file, an archive or a folder;
2. the folder named by the environment variable ``TAILORED_DATA``;
3. the cache folder ``data_home`` (default: ``TAILORED_DATA_HOME``, else the user's cache folder), filled by downloads.

Files in the first two locations are used without network access and without checksums.  A downloaded file must match its
SHA-256.  Archives are read in memory and not unpacked to disk.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, NamedTuple

from sklearn.utils import Bunch

from ..exceptions import ChecksumError, DamagedFileError, DownloadError
from ..tasks.task_set import TaskSet

#: Environment variable that names a folder with local copies.
DATA_VARIABLE = "TAILORED_DATA"
#: Environment variable that names the folder for downloads.
HOME_VARIABLE = "TAILORED_DATA_HOME"
#: Timeouts of a download, in seconds: to connect, and between two received bytes.
TIMEOUT = (10.0, 60.0)

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """A published file and the locations where it may be found."""

    name: str  # name of the data set
    file: str
    url: str  # official address
    sha256: str
    size: int  # in bytes
    licence: str
    citation: str
    folders: tuple[str, ...]  # sub-folders of a local data folder that are also searched
    #: Sets of file names that each form a complete data set; the first set that is present is used.
    layouts: tuple[tuple[str, ...], ...]
    mirrors: tuple[str, ...] = ()  # further addresses of the file, tried in turn if the official one fails

    @property
    def expected_files(self) -> str:
        """The layouts as text, for error messages."""
        return " or ".join(" + ".join(layout) for layout in self.layouts)


def get_data_home(data_home: PathLike | None = None) -> Path:
    """Return the folder for downloads: ``data_home``, else ``TAILORED_DATA_HOME``, else the user's cache folder."""
    chosen = data_home if data_home is not None else os.environ.get(HOME_VARIABLE)
    return Path(chosen or _pooch().os_cache("tailored")).expanduser()


def fetch(source: Source, home: Path, *, download: bool = True) -> Path:
    """Return the published file in the folder `home`; download it if it is missing or its checksum differs."""
    target = home / source.file
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == source.sha256:
        return target
    by_hand = (
        f"To provide it yourself, save {source.url} as {target}, pass the file as path=, "
        f"or set {DATA_VARIABLE} to a folder that contains it (the network is not used then)."
    )
    if not download:
        state = "is not the published file" if target.is_file() else "is missing"
        raise FileNotFoundError(f"{target} {state} and download=False. {by_hand}")
    pooch = _pooch()
    from requests import RequestException

    options = {"fname": source.file, "path": home, "downloader": pooch.HTTPDownloader(timeout=TIMEOUT)}
    failures, differs = [], False
    for url in (source.url, *source.mirrors):
        try:
            home.mkdir(parents=True, exist_ok=True)
            # pooch verifies the digest before it moves the file into place.
            pooch.retrieve(url, f"sha256:{source.sha256}", **options)
            return target
        except (RequestException, ValueError) as error:
            # A wrong checksum is not final: a parked domain returns its own page, and a mirror may have the file.
            differs |= not isinstance(error, RequestException)
            failures.append(f"{url}: {type(error).__name__}: {error}.")
        except OSError as error:
            advice = f"Pass another folder as data_home= or {HOME_VARIABLE}."
            raise DownloadError(f"cannot store {target}: {error.strerror or error}. {advice}") from error
    message = f"{source.file} could not be downloaded. {' '.join(failures)} {by_hand}"
    raise ChecksumError(message) if differs else DownloadError(message)


def _pooch() -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        advice = f"python -m pip install '.[all]' in a checkout, or give a local file with path= or {DATA_VARIABLE}"
        raise ImportError(f"downloading needs pooch: {advice}") from error
    return pooch


@contextmanager
def reading(where: str, advice: str) -> Iterator[None]:
    """Convert every exception to a `DamagedFileError` that names the file."""
    try:
        yield
    except Exception as error:
        # Readers of zip, gzip, Excel and MATLAB files raise many types of exceptions for damaged files.
        message = f"{where} cannot be read. It is damaged, or another file ({type(error).__name__}: {error})."
        raise DamagedFileError(f"{message} {advice}") from error


class Located(NamedTuple):
    """The content of the files of one layout, and the file or folder that they were read from."""

    source: Source
    origin: Path
    files: dict[str, bytes]

    def reading(self, name: str) -> AbstractContextManager[None]:
        """Return a context that converts exceptions to a `DamagedFileError` for the file `name`."""
        where = str(self.origin) if self.origin.name == name else f"{name} in {self.origin}"
        return reading(where, f"The published file is {self.source.url}")

    def bunch(self, tasks: TaskSet, about: str, **more: Any) -> Bunch:
        """Return the Bunch of a loader whose target is a rating."""
        source = self.source
        more |= {"target_name": "rating", "origin": str(self.origin), "licence": source.licence}
        citation = f"Citation: {source.citation}\nLicence: {source.licence}\nSource: {source.url}\n"
        return Bunch(tasks=tasks, DESCR=f"{source.name}\n\n{about}\n\n{citation}", **more)


def locate(
    source: Source, *, path: PathLike | None = None, data_home: PathLike | None = None, download: bool = True
) -> Located:
    """Find and read the files of `source`; download them if needed and allowed."""
    given = path if path is not None else os.environ.get(DATA_VARIABLE)
    if not given:
        return _from_file(source, fetch(source, get_data_home(data_home), download=download))
    place = Path(given).expanduser()
    if place.is_file():
        return _from_file(source, place)
    for folder in (place, *(place / name for name in source.folders)):
        if (folder / source.file).is_file():
            return _from_file(source, folder / source.file)
        for layout in source.layouts:
            if all((folder / name).is_file() for name in layout):
                return Located(source, folder, {name: (folder / name).read_bytes() for name in layout})
    raise FileNotFoundError(
        f"{DATA_VARIABLE if path is None else 'path='} names {place}, which does not contain the {source.name} data. Put "
        f"{', or '.join(dict.fromkeys([source.file, source.expected_files]))}, there or into its sub-folder "
        f"{' or '.join(source.folders)}."
    )


def _from_file(source: Source, file: Path) -> Located:
    """Read the first layout found in a zip archive, at any depth, or a data set that is a single file."""
    if not zipfile.is_zipfile(file) and len(source.layouts[0]) == 1:
        # The file may have any name.
        return Located(source, file, {file.name: file.read_bytes()})
    with reading(str(file), f"The published file is {source.url}"), zipfile.ZipFile(file) as archive:
        # If a name occurs several times, take the shortest path: the file near the root, not a copy in a sub-folder.
        members = sorted(archive.namelist(), key=len)
        by_name = {PurePosixPath(member).name: member for member in reversed(members)}
        for layout in source.layouts:
            if all(name in by_name for name in layout):
                return Located(source, file, {name: archive.read(by_name[name]) for name in layout})
        raise ValueError(f"it does not contain {source.expected_files}")
