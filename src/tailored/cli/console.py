"""Print output, and report errors in one line with an exit code."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from .._utils.progress import printable

#: Option of the command line for each argument that a message of the library may name.
_NAMES = "task target side_info side_columns support formula varying loss exposure time coverage"
_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in [*_NAMES.split(), "weights"]}
_OPTIONS |= {"y": "--target", "supports": "--rows", "path": "file", "by": "--total-by"}
_OPTIONS |= dict.fromkeys(("frame", "query", "tasks", "X"), "data")
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
    """Print a message to standard error, where it does not mix with results in a pipe."""
    typer.echo(printable(message), err=True)


@contextmanager
def report_errors() -> Iterator[None]:
    """Report warnings, errors and interrupts in one line each, with an exit code.

    Errors are assumed to be about the user's data and files.
    """
    shown = set()

    def show_once(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        # Those for developers, such as DeprecationWarning, are no subclasses of UserWarning or
        # RuntimeWarning.
        is_for_users = issubclass(category, UserWarning | RuntimeWarning)
        if is_for_users and (text := with_options(message)) not in shown:
            shown.add(text)
            note(f"warning: {text}")

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_once  # type: ignore[assignment]
            yield
    except BrokenPipeError:  # the process that reads the pipe has ended; typer handles this
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        note(f"error: {with_options(error)}")
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        note("interrupted.")
        raise typer.Exit(130) from None  # as after SIGINT in a shell


def with_options(message: object) -> str:
    """Return a library message in one line, with names of options for arguments and line numbers
    for CSV rows.
    """
    text = re.sub(r"TaskSet\.from_frame\(\.\.\., (.*?)\)", r"\1", " ".join(str(message).split()))
    text = re.sub(r"\S+ \((--.*?)\)", r"\1", text)  # Python (--option)
    advice = "Correct the file. If they are categories, add a letter to each of them."
    text = re.sub(r"Convert it: pandas\..*? use frame\S+\.", advice, text)
    name = f"({'|'.join(_OPTIONS)})"
    for pattern in (
        rf"^{name}()(?=:| (?:has|is|must|names) )",
        rf"`{name}()`",
        rf"\b{name}=(\[.*?\]|'.*?'|)",
        r"\b(side_info|side_columns)\b()",
    ):
        text = re.sub(pattern, _option, text)
    # Row 0 is line 2 of a CSV file, because the header is line 1.
    return re.sub(r"\brow (\d+)", lambda row: f"line {int(row[1]) + 2}", text) if READ else text


def _option(argument: re.Match[str]) -> str:
    values = ",".join(re.findall("'(.*?)'", argument[2]))
    return f"{_OPTIONS[argument[1]]} {shlex.quote(values) if argument[2] else ''}".strip()
