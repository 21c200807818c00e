"""The command line: help texts, messages and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tailored.cli import app
from tailored.datasets import SOURCES
from tailored.studies.demo import DemoResult, MethodResult
from tiny import TINY

COMMANDS = ("demo", "reproduce", "plot", "report", "theory", "benchmark", "datasets")


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
        (
            "reproduce",
            [
                "--seeds",
                "--step-sizes",
                "--jobs",
                "--quick",
                "--preset",
                "--out",
                "--resume",
                "--data",
                "--method",
                "--rank",
                "clusters-2",
                "clusters-6",
                "lenk",
                "movielens",
                "jester",
                "all",
            ],
        ),
        ("plot", ["RESULTS", "--out"]),
        ("report", ["RESULTS", "--out", "--published", "--limited", "--more-seeds"]),
        ("datasets", ["licence"]),
    ],
)
def test_help_of_each_command(command, words):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    for word in words:
        assert word.lower() in plain(result.output).lower()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["reproduce", "lenc"],
            "experiment must be one of 'clusters-2', 'clusters-6', 'lenk', 'movielens', 'jester'",
        ),
        (["reproduce", "lenk", "--preset", "fast"], "preset must be one of 'paper', 'practical'"),
        (
            ["reproduce", "lenk", "--preset", "practical", "--rank", "8"],
            "rank: the practical preset has none",
        ),
        (["reproduce", "lenk", "--method", "bayes"], "method must be one of 'independent', 'unconditional'"),
        (["reproduce", "lenk", "--rank", "some"], "rank must be an integer >= 1 or 'exact'"),
        (["reproduce", "nowhere.toml"], "nowhere.toml: No such file"),
        (["reproduce", "lenk", "--data", "nowhere"], "there is no such file or folder"),
        (
            ["benchmark", "lenk", "--method", "task mean", "--seeds", "1", "--data", "nowhere"],
            "there is no such file or folder",
        ),
        (["plot", "nowhere"], "there is no"),
    ],
)
def test_mistakes_are_one_message(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce"],
        ["reproduce", "lenk", "--seeds", "0"],
        ["reprodice"],
        ["theory", "speed"],
        ["benchmark", "lenc"],
        ["benchmark", "lenk", "--method", "mixed modal"],
    ],
)
def test_usage_errors(arguments):
    assert invoke(*arguments).exit_code == 2


def test_reproduce_then_plot_then_report(tmp_path: Path):
    config, out = tmp_path / "tiny.toml", tmp_path / "out"
    config.write_bytes(TINY)
    first = invoke("reproduce", str(config), "--jobs", "1", "--out", str(out), "--seeds", "1", "--no-figures")
    assert first.exit_code == 0, first.output
    assert "5 cells to compute" in first.stderr
    assert "conditional" in first.stdout
    assert not (out / "figures").exists()
    drawn = invoke("plot", str(out), "--out", str(tmp_path / "drawn"))
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "drawn" / "curves.svg").exists()
    page = invoke("report", str(out), "--out", str(tmp_path / "docs" / "page.md"), "--limited", str(out))
    assert page.exit_code == 0, page.output
    text = (tmp_path / "docs" / "page.md").read_text()
    assert "figures/curves.png" in text
    assert str(tmp_path) not in text


def test_demo_writes_what_it_measured(tmp_path, monkeypatch):
    methods = [MethodResult("ridge, tuned", np.array([0.1, 0.3]), 0.5)]
    result = DemoResult(methods, np.eye(2), n_train=20, n_test=2, seed=4)
    monkeypatch.setattr("tailored.studies.demo.run_demo", lambda **options: result)
    shown = invoke("demo", "--tasks", "20", "--seed", "4", "--out", str(tmp_path / "[new]"))
    assert shown.exit_code == 0, shown.output
    assert "Six clusters, 20 training tasks, 2 new tasks" in shown.stdout
    assert str(tmp_path / "[new]" / "demo.png") in shown.stdout  # no part of a path is taken for markup
    table = (tmp_path / "[new]" / "demo.csv").read_text()
    assert table.splitlines()[1] == "ridge tuned,0.200000,0.100000,0.50"
    assert "| ridge, tuned | 0.2000 | 0.1000 |" in (tmp_path / "[new]" / "demo.md").read_text()
    assert (tmp_path / "[new]" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_interrupt_before_anything_is_computed(tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("tailored.studies.reproduction.runner.plan", interrupt)
    result = invoke("reproduce", "clusters-2", "--quick", "--seeds", "1", "--out", str(tmp_path / "my out"))
    assert result.exit_code == 130
    wanted = f"tailored reproduce clusters-2 --seeds 1 --quick --out '{tmp_path / 'my out'}' --resume"
    assert wanted in result.stderr


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
