"""Foreseeable failures of a command: one message and an exit code."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from .output import note

#: What a shell reports for a program ended by Ctrl-C.
INTERRUPTED = 130
#: What a command ends with whose arguments or files cannot be used, as command lines have it.
MISUSED = 2


class UsageError(ValueError):
    """An argument or a file of the user's that cannot be used: one line that names it, with a hint."""


class OneLineErrors(TyperGroup):
    """Options that cannot be used are answered in one line as well."""

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except Exception as error:
            # Those of click, or of the copy of it that typer may bring; no command at all is answered by the help.
            if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()  # type: ignore[attr-defined]
            else:
                context = getattr(error, "ctx", None)
                where = f" (see {context.command_path} --help)" if context is not None else ""
                note(f"error: {' '.join(error.format_message().split())}{where}")
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def explained(hint: str = "") -> Iterator[None]:
    """Report errors that a user can cause in one message with an exit code; others keep their traceback.

    ``hint`` is appended to the message about an interrupt.
    """
    try:
        # Imported here, so that an interrupt during the slow imports is explained as well.
        from ..exceptions import DamagedFileError, DownloadError

        try:
            yield
        except (DamagedFileError, DownloadError, FileNotFoundError) as error:
            note(f"error: {error}")
            raise typer.Exit(1) from error
        except ImportError as error:
            note(
                f"error: {error}\nFigures, data sets and clusters need extras: pip install 'tailored[plot,cli,data,cluster]'"
            )
            raise typer.Exit(1) from error
    except KeyboardInterrupt:
        note(f"interrupted.{hint}")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def telling_of_missing(asked: bool) -> Iterator[None]:
    """Name the option that leaves incomplete rows out, where they are an error; ``asked``: the user has not given it."""
    try:
        yield
    except ValueError as error:
        if asked and "contains NaN" in str(error):
            raise UsageError(f"{error} --missing drop leaves such rows out.") from error
        raise


@contextmanager
def logged() -> Iterator[None]:
    """Where no terminal shows a bar, stages of a long computation are lines on standard error, with the time of day."""
    if sys.stderr.isatty():
        yield
        return
    log, handler = logging.getLogger("tailored"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextmanager
def in_one_line() -> Iterator[None]:
    """Errors of the library are about the user's data here: one line and exit code 2; warnings are one line, too."""
    with explained(), logged(), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            yield
        except (ValueError, TypeError, FileNotFoundError, IsADirectoryError, PermissionError) as error:
            note(f"error: {_for_the_shell(' '.join(str(error).split()))}")
            raise typer.Exit(MISUSED) from error


#: What arguments of the library are called here.
_OPTIONS = {
    "side_info": "--describe",
    "frame": "data",
    "query": "data",
    "support": "--support",
    "features": "--features",
    "varying": "--varying",
    "coverage": "--coverage",
    "supports": "--rows",
    "n_folds": "--folds",
    "tasks": "data",
}


def _for_the_shell(message: str) -> str:
    name, rest = re.fullmatch(r"(\w*)(.*)", message, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{_OPTIONS[name]}{rest}" if name in _OPTIONS and rest[:1] in (":", " ") else message


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if not issubclass(
        category, DeprecationWarning | PendingDeprecationWarning | ImportWarning | ResourceWarning
    ):
        note(f"warning: {' '.join(str(message).split())}")
