"""Print output, and report errors in one line with an exit code."""

from __future__ import annotations

import logging
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from .._utils.progress import printable

#: Exit code after Ctrl-C, and exit code for arguments or files that cannot be used.
INTERRUPTED, MISUSED = 130, 2
#: Option of the command line for each argument that a message of the library may name.
_OPTIONS = dict.fromkeys(("frame", "query", "tasks", "X"), "data")
_OPTIONS |= {"y": "--target", "supports": "--rows"}
_NAMES = "task target side_info side_columns support formula varying loss exposure time coverage"
_OPTIONS |= {name: f"--{name.replace('_', '-')}" for name in _NAMES.split()}
#: Options whose tables are CSV files, in which rows have line numbers.
READ: set[str] = set()


def write_out(text: str) -> None:
    """Write all of a text to standard output.

    An unbuffered stream may write only a part of it without an error.
    """
    sys.stdout.flush()
    stream: Any = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    rest = memoryview(text.encode(sys.stdout.encoding, "backslashreplace"))
    while rest:
        rest = rest[stream.write(rest) :]


def say(message: str) -> None:
    """Print a result without markup and without wrapping, which would split a path."""
    write_out(printable(message) + "\n")


def note(message: str) -> None:
    """Print a message to standard error, where it does not mix with results in a pipe; shorten long
    messages.
    """
    message = message if len(message) < 1_000 else f"{message[:500]} … {message[-400:]}"
    typer.echo(printable(message), err=True)


class UsageError(ValueError):
    """Error for an argument or a file that cannot be used.

    The message names it and, if possible, the remedy.
    """


class OneLineErrors(TyperGroup):
    """Command group that reports invalid options in one line."""

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except Exception as error:
            # typer may have its own copy of click, so its exceptions are recognised by their
            # attributes.
            if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()  # type: ignore[attr-defined]
            else:
                context = getattr(error, "ctx", None)
                see = f" (see {context.command_path} --help)" if context is not None else ""
                message = " ".join(error.format_message().split()).replace("Value error, ", "")
                note(f"error: {message}{see}")
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def report_errors(hint: str = "") -> Iterator[None]:
    """Report errors of files, missing packages and interrupts in one message with an exit code.

    ``hint`` is appended to the message about an interrupt.
    """
    try:
        yield
    except BrokenPipeError:  # the process that reads the pipe has ended; typer handles this
        raise
    except OSError as error:
        note(f"error: {error}")
        raise typer.Exit(1) from error
    except ImportError as error:
        note(
            f"error: {error}\nInstall all optional packages with python -m pip install '.[all]' "
            "in a checkout."
        )
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        note(f"interrupted.{hint}")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def report_user_errors() -> Iterator[None]:
    """Report warnings and errors of the library in one line each.

    Errors are assumed to be about the user's data.
    """
    shown = set()

    def show_once(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        # Those for developers, such as DeprecationWarning, are no subclasses of UserWarning or
        # RuntimeWarning.
        is_for_users = issubclass(category, UserWarning | RuntimeWarning)
        if is_for_users and (text := with_options(message)) not in shown:
            shown.add(text)
            note(f"warning: {text}")

    with report_errors(), _log_to_stderr(), warnings.catch_warnings():
        warnings.showwarning = show_once  # type: ignore[assignment]
        try:
            yield
        except (ValueError, TypeError) as error:
            note(f"error: {with_options(error)}")
            raise typer.Exit(MISUSED) from error


def with_options(message: object) -> str:
    """Return a library message in one line, with names of options for arguments and line numbers
    for CSV rows.
    """
    text = re.sub(r"TaskSet\.from_frame\(\.\.\., (.*?)\)", r"\1", " ".join(str(message).split()))
    text = re.sub(r"\S+ \((--.*?)\)", r"\1", text)  # Python (--option)
    name = f"({'|'.join(_OPTIONS)})"
    for pattern in (
        rf"^{name}()(?=:| (?:has|is|must|names) )",
        rf"`{name}()`",
        rf"\b{name}=(\[.*?\]|'.*?'|)",
    ):
        text = re.sub(pattern, _option, text)
    # Row 0 is line 2 of a CSV file, because the header is line 1.
    return re.sub(r"\brow (\d+)", lambda row: f"line {int(row[1]) + 2}", text) if READ else text


def _option(argument: re.Match[str]) -> str:
    values = ",".join(re.findall("'(.*?)'", argument[2]))
    return f"{_OPTIONS[argument[1]]} {shlex.quote(values) if values else ''}".strip()


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Log the stages of a long computation with the time of day, unless a terminal shows a progress
    bar.
    """
    if sys.stderr.isatty():
        yield
        return
    log, handler = logging.getLogger("tailored"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
