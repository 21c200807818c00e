"""Published files: one record per file, and a download that resumes, is verified and lands atomically."""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .._utils.progress import progress_bar

#: Environment variables: a folder with local copies, and the folder that keeps downloads.
DATA_VARIABLE = "TAILORED_DATA"
HOME_VARIABLE = "TAILORED_DATA_HOME"

# Seconds to connect, and seconds without a byte: a dead host must not hang a run, a slow one may be slow.
TIMEOUT = (10.0, 60.0)
# A broken connection costs the chunk it broke in, so chunks are small.
CHUNK = 1 << 13
# Seconds after which a partial file that has not grown belongs to no process that is still writing it.
ABANDONED = 2 * TIMEOUT[1]


class DownloadError(OSError):
    """A file could not be downloaded or stored; the message says how to provide it by hand."""


class DamagedFileError(ValueError):
    """A file of a data set is not what it should be; the message names it, the member, the reason and a way out."""


class ChecksumError(DamagedFileError):
    """A file is not the one that was published: its SHA-256 differs."""


@dataclass(frozen=True)
class Source:
    """One published file and where it may be found.

    Attributes
    ----------
    name : str
        Name of the data set.
    file : str
        Name of the published file, kept in ``data_home``.
    url : str
        Its official address.
    sha256 : str
        Of the published file. There is no way to leave it out: nothing unverified is ever downloaded.
    size : int
        Of the published file, in bytes.
    licence, citation : str
        What its owners ask of its users.
    folders : tuple of str
        Sub-folders of a local data folder that are looked into, besides the folder itself.
    layouts : tuple of tuples of str
        Sets of file names, each of which is the whole data set; the first found is taken.
    mirrors : tuple of str
        Addresses tried in turn when the official one does not answer; the checksum makes them equal.
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
    def wanted(self) -> str:
        """The layouts in words, for messages."""
        return " or ".join(" + ".join(layout) for layout in self.layouts)


def get_data_home(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that keeps downloads: the argument, ``TAILORED_DATA_HOME``, or the user's cache."""
    chosen = data_home if data_home is not None else os.environ.get(HOME_VARIABLE)
    return Path(chosen or _pooch().os_cache("tailored")).expanduser()


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def fetch(source: Source, home: Path, *, download: bool = True, progress: bool = False) -> Path:
    """Return the verified published file in the folder `home`, downloading it when it is not there.

    A file with another digest is downloaded again, or refused with `ChecksumError` when `download` is
    False.
    """
    target = home / source.file
    if target.is_file() and sha256_of(target) == source.sha256:
        return target
    if download:
        return _download(source, home, progress)
    if target.is_file():
        raise _mismatch(source, target, "Delete it, or allow the download.")
    raise FileNotFoundError(f"{target} is missing and download=False. {_by_hand(source, target)}")


def _download(source: Source, home: Path, progress: bool) -> Path:
    pooch = _pooch()
    from requests import RequestException

    target = home / source.file
    fetcher = _Resumable(source, home, progress)
    failures: list[str] = []
    refused: ChecksumError | None = None
    for url in (source.url, *source.mirrors):
        try:
            home.mkdir(parents=True, exist_ok=True)
            pooch.get_logger().info("%s: %s", source.file, source.licence)
            # pooch checks the digest once more and moves the file into place in one step.
            pooch.retrieve(url, f"sha256:{source.sha256}", fname=source.file, path=home, downloader=fetcher)
            return target
        except RequestException as error:
            failures.append(f"{url}: {_reason(error)}")
        except ChecksumError as error:
            # A parked host answers with some page of its own; a mirror may still have the file.
            refused = error
        except OSError as error:
            raise DownloadError(
                f"cannot store {target}: {error.strerror or error}. Give another folder with data_home= or "
                f"{HOME_VARIABLE}."
            ) from error
        finally:
            fetcher.leave()
    if refused is not None:
        raise refused
    raise DownloadError(
        f"{source.file} could not be downloaded. {' '.join(failures)}{fetcher.kept()} "
        f"{_by_hand(source, target)}"
    )


class _Resumable:
    """A pooch downloader that continues the ``.part`` file an interrupted download left.

    pooch's own downloader starts over each time. What arrived stays in `part`, under a name that nobody else writes to,
    until its digest is right; then it replaces pooch's temporary file. An interrupted download leaves it as `left`, and
    the first of the next ones takes it from there in one step: others at the same time start from nothing.
    """

    def __init__(self, source: Source, home: Path, progress: bool) -> None:
        self.source = source
        self.left = home / f"{source.file}.part"
        self.part = home / f"{source.file}.{os.getpid()}-{secrets.token_hex(4)}.part"
        self.progress = progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        self._take_over()
        resumed = self._have() > 0
        self._stream(url)
        if resumed and sha256_of(self.part) != self.source.sha256:
            # The first half may stem from another version of the file: once more, as a whole.
            self.part.unlink()
            self._stream(url)
        if sha256_of(self.part) != self.source.sha256:
            error = _mismatch(self.source, self.part, f"It came from {url} and was deleted; try once more.")
            self.part.unlink()
            raise error
        os.replace(self.part, output_file)

    def _take_over(self) -> None:
        """Make one's own what another download left: given up, or by a process that was killed."""
        for there in (self.left, *self.left.parent.glob(f"{glob.escape(self.source.file)}.*.part")):
            with suppress(OSError):  # somebody else was faster
                if there == self.left or time.time() - there.stat().st_mtime > ABANDONED:
                    os.rename(there, self.part)
                    return

    def leave(self) -> None:
        """Leave what arrived to the next download, if there is no more of it there."""
        with suppress(OSError):
            have, there = self._have(), self.left.stat().st_size if self.left.is_file() else 0
            if have > there:
                os.replace(self.part, self.left)
            else:
                self.part.unlink(missing_ok=True)

    def kept(self) -> str:
        """Say what a failed download left behind."""
        have = self.left.stat().st_size if self.left.is_file() else 0
        if not have:
            return ""
        return f" {have} of {self.source.size} bytes are kept in {self.left}; the next call resumes there."

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.is_file() else 0

    def _stream(self, url: str) -> None:
        import requests

        have, size = self._have(), self.source.size
        if have == size:
            return  # only the last step was missing
        # "identity": a byte range of a compressed transfer would count other bytes than the file's.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if have and response.status_code == requests.codes.requested_range_not_satisfiable:
                self.part.unlink()  # longer than the server's file
                return self._stream(url)
            response.raise_for_status()
            if response.status_code != requests.codes.partial_content:
                have = 0  # this server knows no ranges
            label = f"{self.source.file} (bytes)"
            with (
                open(self.part, "ab" if have else "wb") as out,
                progress_bar(label, size, enabled=self.progress) as advance,
            ):
                if advance is not None:
                    advance(have)
                for chunk in response.iter_content(CHUNK):
                    out.write(chunk)
                    if advance is not None:
                        advance(len(chunk))
                    if (have := have + len(chunk)) > size:
                        break  # certainly another file; the digest refuses it


def _pooch() -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "downloading needs pooch: pip install 'tailored[data]', "
            f"or give a local file with path= or {DATA_VARIABLE}"
        ) from error
    return pooch


def _reason(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"the server answered {status}." if status else f"{type(error).__name__}, {error}."


def _by_hand(source: Source, target: Path) -> str:
    return (
        f"By hand: save {source.url} as {target}, or give the file with path=, "
        f"or set {DATA_VARIABLE} to a folder that holds it (then no network is used)."
    )


def _mismatch(source: Source, file: Path, what_now: str) -> ChecksumError:
    got = file.stat().st_size
    short = " (truncated)" if got < source.size else ""
    return ChecksumError(
        f"{file} is refused: it is not the published {source.file}. SHA-256 expected {source.sha256}, got "
        f"{sha256_of(file)}; bytes expected {source.size}, got {got}{short}. {what_now} If this happens "
        "again, the file was changed or something on the way answers in its place: get "
        f"{source.url} by other means and give it with path=."
    )
