"""Foreseeable failures of a command: one message and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from .output import note

#: What a shell reports for a program ended by Ctrl-C.
INTERRUPTED = 130


@contextmanager
def explained(resume_command: str | None = None) -> Iterator[None]:
    """Turn foreseeable failures into one message and an exit code; everything else keeps its traceback."""
    again = f"\nFinished cells are kept. Continue with:\n  {resume_command}" if resume_command else ""
    try:
        # Imported here, so that an interrupt during the slow imports is explained as well.
        from ..datasets import DamagedFileError, DownloadError
        from ..studies.files import ResultsError, WorkerError, WriteError
        from ..studies.reproduction.config import ConfigError

        try:
            yield
        except (WriteError, WorkerError, ConnectionError) as error:
            note(f"error: {error}{again}")
            raise typer.Exit(1) from error
        except (ConfigError, ResultsError, DamagedFileError, DownloadError, FileNotFoundError) as error:
            note(f"error: {error}")
            raise typer.Exit(1) from error
        except ImportError as error:
            note(
                f"error: {error}\nFigures, data sets and clusters need extras: pip install 'tailored[plot,cli,data,cluster]'"
            )
            raise typer.Exit(1) from error
    except KeyboardInterrupt:
        note(f"interrupted.{again}")
        raise typer.Exit(INTERRUPTED) from None
