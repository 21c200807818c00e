"""The command line: help texts, messages and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from tailored.cli import app
from tailored.cli.demo import OURS, DemoResult
from tailored.datasets import SOURCES

COMMANDS = ("demo", "report", "datasets")


def invoke(*arguments: str, **environment: str):
    # Wide, so that no word that a test looks for is broken over two lines.
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb", **environment})


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_help_lists_the_commands():
    result = invoke("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert command in result.output


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("demo", ["--out", "--seed", "--tasks", "--jobs"]),
        ("report", ["SOURCE", "--data", "--out"]),
        ("datasets", ["licence"]),
    ],
)
def test_help_of_each_command(command, words):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    for word in words:
        assert word.lower() in plain(result.output).lower()


def test_an_unknown_command_is_a_usage_error():
    assert invoke("reprodice").exit_code == 2


def test_demo_writes_what_it_measured(tmp_path, monkeypatch):
    errors = {OURS: np.array([0.1, 0.1]), "TaskMean": np.array([0.1, 0.3])}
    result = DemoResult(errors, 0.08, np.eye(2))
    # The package has a function of the name of the module.
    monkeypatch.setattr(sys.modules["tailored.cli.demo"], "run_demo", lambda **options: result)
    shown = invoke("demo", "--tasks", "20", "--seed", "4", "--out", str(tmp_path / "[new]"))
    assert shown.exit_code == 0, shown.output
    assert "Six clusters, 20 training tasks, 2 new tasks" in shown.stdout
    assert str(tmp_path / "[new]" / "demo.png") in shown.stdout  # no part of a path is taken for markup
    table = (tmp_path / "[new]" / "demo.csv").read_text()
    assert table.splitlines()[1:] == ["TaskMean,0.200000,0.100000", f"{OURS},0.100000,0.000000"]
    assert (tmp_path / "[new]" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_datasets_are_listed(tmp_path):
    result = invoke("datasets", TAILORED_DATA_HOME=str(tmp_path), TAILORED_DATA="")
    assert result.exit_code == 0
    for source in SOURCES.values():
        for word in (source.name, source.url, source.licence, str(tmp_path / source.file)):
            assert word in result.stdout
    assert "not downloaded yet" in result.stdout
    assert "TAILORED_DATA (a folder with local copies): not set" in result.stdout
    local = invoke("datasets", TAILORED_DATA_HOME=str(tmp_path), TAILORED_DATA="/elsewhere")
    assert "set to /elsewhere" in local.stdout


@pytest.mark.parametrize(("typed", "wanted"), [("pre", {"predict"}), ("fit --ta", {"--task", "--target"})])
def test_the_shell_completes_commands_and_options(typed, wanted):
    """As bash asks, by the function that `--show-completion` prints."""
    asked = {
        "_TAILORED_COMPLETE": "complete_bash",
        "COMP_WORDS": f"tailored {typed}",
        "COMP_CWORD": str(len(typed.split())),
    }
    command = [sys.executable, "-c", "from tailored.cli import app; app(prog_name='tailored')"]
    found = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == wanted
