"""Numba's ``njit``, with a cache that also works if package and home directory are read-only."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from numba import config, njit
from numba.core.caching import FunctionCache

__all__ = ["njit"]


def _choose_cache() -> None:
    """Cache compiled code in a private temporary folder if Numba finds no other writable folder."""
    try:
        FunctionCache(_choose_cache)
    except RuntimeError:
        user = getattr(os, "getuid", int)()
        folder = Path(tempfile.gettempdir(), f"tailored-{user}")
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
        # Stored code is executed, so no other user may write to the folder.
        is_private = (status.st_uid, status.st_mode) == (user, 0o040700)
        config.CACHE_DIR = str(folder) if is_private else tempfile.mkdtemp()  # type: ignore[attr-defined]


_choose_cache()
