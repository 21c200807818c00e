"""Write files atomically."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]


def write_atomically(path: PathLike, content: bytes) -> None:
    """Write a file under a temporary name in the same folder, flush it to the disk, and rename it.

    If the process is killed before the file is renamed, an existing file is unchanged.  Several
    processes may write the same file.  Symbolic links are followed, and the permissions of an
    existing file are kept.
    """
    target = check_target(path)
    # A random name, because the target's name with a suffix could be too long.
    temporary = target.with_name(f".tailored-{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            if target.exists():
                shutil.copymode(target, temporary)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        # After os.replace there is nothing left to remove.
        temporary.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):
        # On systems where folders can be opened, flush the new name to the disk.
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_target(path: PathLike, name: str = "path") -> Path:
    """Return the resolved path; raise an error, which starts with the ``name`` of the argument, if
    a regular file cannot be written there.
    """
    try:
        target = Path(path).resolve()
        is_unusable = target.exists() and not target.is_file()
    except (
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:  # a loop of links, or an invalid name
        raise ValueError(
            f"{name}: {path} cannot be written ({getattr(error, 'strerror', error)})"
        ) from error
    if is_unusable:
        kind = "a folder" if target.is_dir() else "not a regular file"
        raise ValueError(f"{name}: {path} is {kind}; give the name of a file")
    if not target.parent.is_dir():
        message = f"{name}: the folder {target.parent} does not exist; create it first"
        raise FileNotFoundError(message)
    return target
