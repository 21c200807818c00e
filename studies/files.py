"""Files of the studies: written whole or not at all, with one error for what goes wrong."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from tailored._utils.files import write_atomically as write

#: Ending of the temporary file of `write_atomically`.
ASIDE = ".part"


class ResultsError(Exception):
    """The results folder cannot be used; the message says why and what to do."""


class WriteError(ResultsError):
    """A file of a study could not be written."""


class WorkerError(ResultsError):
    """The workers of a cluster could not finish a cell."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file, so that a reader or a killed process sees the old file or the new one."""
    try:
        write(path, content)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise WriteError(f"cannot write {path}: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file, and the folder it lies in."""
    make_folder(path.parent)
    write_atomically(path, text.encode())


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot make the folder {path}: {error.strerror or error}") from error


def save_figure(figure: Any, *paths: Path) -> None:
    """Write a figure as PNG or SVG, as the names end, and close it."""
    import matplotlib.pyplot as plt

    # No date and no version inside: the same table gives the same bytes.
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
