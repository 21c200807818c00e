"""The manifest beside the table: configurations, and one record per session that added to the
folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import ResultsError, write_atomically
from .store import FORMAT

MANIFEST_FILE = "manifest.json"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a results folder; an empty one when there is none, or none that can be read.

    Numbers never depend on it, so a damaged one is no reason to lose a run.
    """
    empty: dict[str, Any] = {"format": FORMAT, "experiments": {}, "sessions": []}
    try:
        stored = json.loads((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValueError):
        return empty
    return stored if isinstance(stored, dict) and stored.keys() >= empty.keys() else empty


def add_session(
    folder: Path, identities: Mapping[str, Any], session: Mapping[str, Any], *, strict: bool
) -> None:
    """Record a session and the configurations it ran under; failing quietly unless ``strict``."""
    manifest = read_manifest(folder)
    manifest["experiments"].update(identities)
    manifest["sessions"].append(dict(session))
    try:
        write_atomically(folder / MANIFEST_FILE, (json.dumps(manifest, indent=1) + "\n").encode())
    except ResultsError:
        if strict:
            raise
