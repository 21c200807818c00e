"""Numba's decorator, with a cache of compiled code also where package and home directory are read-only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache


def _has_cache() -> bool:
    """Return whether compiled code can be stored; as a last resort, in a private folder of temporary files."""
    try:
        FunctionCache(_has_cache)
    except (
        RuntimeError
    ):  # neither NUMBA_CACHE_DIR nor the folders of the package and the user can be written to
        try:
            user = getattr(os, "getuid", int)()
            folder = Path(tempfile.gettempdir(), f"tailored-{user}")
            folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.lstat()
        except OSError:
            return False
        # What is stored is executed, so that no other user may write to it.
        if (status.st_uid, status.st_mode) != (user, 0o040700):
            return False
        numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    return True


_HAS_CACHE = _has_cache()


def njit(*, cache: bool = False, **options: Any) -> Any:
    """Decorate a function to be compiled when it is first called, and stored if ``cache``."""
    return numba.njit(cache=cache and _HAS_CACHE, **options)
