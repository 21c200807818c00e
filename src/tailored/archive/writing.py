"""Files that are written whole or not at all, by any number of writers at once."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_whole(path: Any, pieces: Iterable[bytes]) -> None:
    """Write a file beside its place under a name of its own, see it on the disk, and move it into place.

    Whoever dies leaves the old file, or none.  A link is followed: what it leads to is replaced, not the link.
    A file that is replaced hands its permissions on.
    """
    target = _target(path)
    aside, file = _fresh(target)
    try:
        with os.fdopen(file, "wb") as stream:
            if target.exists() and hasattr(os, "fchmod"):
                os.fchmod(stream.fileno(), stat.S_IMODE(target.stat().st_mode))
            for piece in pieces:
                stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, target)
    except BaseException:
        # Of a file that was moved there is nothing left to remove.
        aside.unlink(missing_ok=True)
        raise
    _sync(target.parent)


def _target(path: Any) -> Path:
    """Where the file will be."""
    try:
        target = Path(path).resolve()
        there = target.stat() if target.exists() else None
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a name that no folder can hold
        raise ValueError(f"path: {path} cannot be written to: {error}") from error
    if target.is_symlink():  # since Python 3.13 a circle is no error of resolve
        raise ValueError(f"path: {path} leads into a circle of links")
    if there is not None and not stat.S_ISREG(there.st_mode):
        kind = "a folder" if stat.S_ISDIR(there.st_mode) else "no ordinary file"
        raise ValueError(f"path: {path} is {kind}; give the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: there is no folder {target.parent}; make it first")
    return target


def _fresh(target: Path) -> tuple[Path, int]:
    """A new file in the target's folder, with the permissions that any new file of the user has."""
    for _ in range(100):
        # The target's own name may be as long as names can be.
        aside = target.with_name(f".tailored-{secrets.token_hex(8)}.part")
        try:
            return aside, os.open(
                aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666
            )
        except FileExistsError:
            continue
    raise FileExistsError(f"path: no free name for a temporary file in {target.parent}")


def _sync(folder: Path) -> None:
    """See the name on the disk, where folders can be opened."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
