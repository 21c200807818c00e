"""Reading and running the code of pages in Markdown.

- Blocks of ``python`` run in the order of the page, in one namespace and one folder.  A block of
  ``text`` that follows one is what it prints.
- In a block of ``console`` every line after ``$ `` is run by a shell in the same folder; the lines
  below are what it prints, where there are any; lines of a log are left out (a terminal has a bar
  instead).
- ``<!-- not run: why -->`` before a block leaves it out, ``<!-- needs: data -->`` in a page asks
  for the folder that TAILORED_DATA names, and ``<!-- in tests: 125_000 = 3_000 -->`` puts another
  number in the next block.
- ``<!-- long: why -->`` before a block leaves it out of `make test`; nothing later may need what it
  makes.

What is printed must agree word for word, and in its numbers to five per cent or a unit of the last
digit shown: other processors round differently.  A line of three dots stands for any lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\s*$", flags=re.DOTALL | re.MULTILINE)
NOTE = re.compile(r"<!--\s*(not run|in tests|long):\s*(.*?)\s*-->")
NUMBER = re.compile(r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
LOG_LINE = re.compile(r"^\d\d:\d\d:\d\d .*\n", flags=re.MULTILINE)
TOLERANCE = 0.05


@dataclass(frozen=True)
class Block:
    """``language`` is python or console, ``printed`` what the page says about the output of
    Python.
    """

    language: str
    code: str
    line: int
    printed: str | None = None
    compared: bool = True


def blocks(text: str, long: bool = True) -> list[Block]:
    """What is to be run, in order; with or without what takes long."""
    found: list[Block] = []
    end = 0
    for fence in FENCE.finditer(text):
        between = text[end : fence.start()]
        language, code, line = fence[1], fence[2], text.count("\n", 0, fence.start()) + 2
        notes = dict(NOTE.findall(between))
        end = fence.end()
        if "not run" in notes or ("long" in notes and not long):
            continue
        compared = True
        if "in tests" in notes:
            old, new = (side.strip() for side in notes["in tests"].split("="))
            assert old in code, f"line {line}: the block has no {old!r}"
            code, compared = code.replace(old, new), False
        if language in ("python", "console"):
            found.append(Block(language, code, line, compared=compared))
        elif (
            language == "text"
            and found
            and found[-1].language == "python"
            and not _is_apart(between)
        ):
            found[-1] = replace(found[-1], printed=code)
    return found


def _is_apart(between: str) -> bool:
    """Whether more than a short line stands between code and output: the output is something else
    then.
    """
    return len([line for line in between.splitlines() if line.strip()]) > 1


def run(page: str, found: list[Block], folder: Path) -> str:
    """Run a page's blocks in a folder; all that Python printed."""
    namespace: dict[str, object] = {"__name__": "page"}
    said, compared = "", True
    with contextlib.chdir(folder):
        for block in found:
            compared = compared and block.compared
            where = f"{page}, line {block.line}"
            if block.language == "console":
                run_console(block, where, compared)
                continue
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), namespace)
            said += output.getvalue()
            if block.printed is not None and compared:
                check_output(output.getvalue(), block.printed, where)
    return said


def run_console(block: Block, where: str, compared: bool) -> None:
    """Run each command of a block and compare what it prints."""
    commands = re.split(r"^\$ ", block.code, flags=re.MULTILINE)
    assert not commands[0].strip(), f"{where}: a block of console starts with '$ '"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "80",
    }
    for command in commands[1:]:
        lines = command.split("\n")
        n = 1
        while lines[n - 1].endswith("\\"):
            n += 1
        line, expected = "\n".join(lines[:n]), "\n".join(lines[n:])
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, env=environment, timeout=300
        )
        assert done.returncode == 0, f"{where}: $ {line}\n{done.stdout}\n{done.stderr}"
        if expected.strip() and compared:
            check_output(
                done.stdout + LOG_LINE.sub("", done.stderr), expected, f"{where}: $ {line}"
            )


def check_output(printed: str, expected: str, where: str) -> None:
    """Words must be the same, numbers nearly."""
    pattern = r"^\s*\.\.\.\s*$"
    start = 0
    found = _tokens(printed)
    parts = [_tokens(part) for part in re.split(pattern, expected, flags=re.MULTILINE)]
    for i, part in enumerate(parts):
        fits = [
            k
            for k in range(start, len(found) - len(part) + 1)
            if _agree(found[k : k + len(part)], part)
        ]
        if i == 0:
            fits = [k for k in fits if k == 0]
        if i == len(parts) - 1:
            fits = [k for k in fits if k + len(part) == len(found)]
        assert fits, f"{where}: the page says\n{expected}\nand this was printed:\n{printed}"
        start = fits[0] + len(part)


def _tokens(text: str) -> list[str]:
    # Rules of tables are as wide as their columns.
    return [word for word in re.sub(r"[─━═│┃|]+|-{4,}", " ", text).split() if word]


def _agree(found: list[str], expected: list[str]) -> bool:
    return len(found) == len(expected) and all(map(_same, found, expected))


def _same(found: str, expected: str) -> bool:
    if found == expected:
        return True
    if NUMBER.sub("#", found) != NUMBER.sub("#", expected):
        return False
    pairs = zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True)
    return all(_near(a, b) for a, b in pairs)


def _near(found: str, expected: str) -> bool:
    a, b = (float(number.replace(",", "").replace("−", "-")) for number in (found, expected))
    mantissa = expected.split("e")[0]
    power = float("1" + expected[len(mantissa) :])
    unit = power * 10.0 ** -len(mantissa.partition(".")[2])
    return abs(a - b) <= max(TOLERANCE * max(abs(a), abs(b)), 1.01 * unit * ("." in mantissa))
