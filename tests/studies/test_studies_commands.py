"""The commands of the studies: help texts, messages and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from studies.__main__ import app
from tiny import TINY

COMMANDS = ("reproduce", "plot", "report", "theory", "benchmark")


def invoke(*arguments: str, **environment: str):
    # Wide, so that no word that a test looks for is broken over two lines.
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb", **environment})


def test_help_lists_the_commands():
    result = invoke("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert command in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["reproduce", "lenc"],
            "experiment must be one of 'clusters-2', 'clusters-6', 'lenk', 'movielens'",
        ),
        (
            ["reproduce", "lenk", "--method", "bayes"],
            "method must be one of 'independent', 'unconditional'",
        ),
        (["reproduce", "lenk", "--rank", "some"], "rank must be an integer >= 1 or 'exact'"),
        (["reproduce", "nowhere.toml"], "nowhere.toml: No such file"),
        (["reproduce", "lenk", "--data", "nowhere"], "lenk_data.mat was not found in nowhere"),
        (
            ["benchmark", "lenk", "--method", "task mean", "--data", "nowhere"],
            "lenk_data.mat was not found in nowhere",
        ),
        (["plot", "nowhere"], "there is no"),
    ],
)
def test_mistakes_are_one_message(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    # A file that is missing is an error of use, as in the package.
    assert result.exit_code == (2 if "not found" in message else 1)
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
    first = invoke(
        "reproduce", str(config), "--jobs", "1", "--out", str(out), "--seeds", "1", "--no-figures"
    )
    assert first.exit_code == 0, first.output
    assert "5 cells to compute" in first.stderr
    assert "conditional" in first.stdout
    assert not (out / "figures").exists()
    drawn = invoke("plot", str(out), "--out", str(tmp_path / "drawn"))
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "drawn" / "curves.svg").exists()
    page = invoke("report", str(out), "--out", str(tmp_path / "docs" / "page.md"))
    assert page.exit_code == 0, page.output
    text = (tmp_path / "docs" / "page.md").read_text()
    assert "figures/curves.png" in text
    assert str(tmp_path) not in text


def test_interrupt_before_anything_is_computed(tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("studies.reproduction.runner.plan", interrupt)
    arguments = ["reproduce", "clusters-2", "--quick", "--out", str(tmp_path / "my out")]
    monkeypatch.setattr("sys.argv", ["studies", *arguments])
    result = invoke(*arguments)
    assert result.exit_code == 130
    wanted = (
        f"python -m studies reproduce clusters-2 --quick --out '{tmp_path / 'my out'}' --resume"
    )
    assert wanted in result.stderr
