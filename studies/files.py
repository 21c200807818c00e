"""Files of the studies: written atomically, with one error for all that can go wrong."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from tailored._utils import files


class ResultsError(Exception):
    """A results folder cannot be used; the message says why and what to do."""


class WriteError(ResultsError):
    """A file of a study could not be written."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    try:
        files.write_atomically(path, content)
    except (OSError, ValueError) as error:
        raise WriteError(
            f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file and make its folder."""
    make_folder(path.parent)
    write_atomically(path, text.encode())


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot make the folder {path}: {error.strerror or error}") from error


def save_figure(figure: Any, *paths: Path) -> None:
    """Write a figure as PNG or SVG, by the ending of each path, and close it."""
    import matplotlib.pyplot as plt

    # Without date and version, the same table gives the same bytes.
    options: dict[str, dict[str, Any]] = {
        ".png": {"dpi": 150, "metadata": {"Software": None}},
        ".svg": {"metadata": {"Date": None, "Creator": None}},
    }
    for path in paths:
        make_folder(path.parent)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=path.suffix[1:], **options[path.suffix])
        write_atomically(path, buffer.getvalue())
    plt.close(figure)
