"""The environments for the choice of a model: cells end to end, and the paired comparison of two
labels.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from studies.__main__ import app
from studies.selection import cells
from studies.selection.cells import FILE, Measured, append, compare, read
from studies.selection.environments import ENVIRONMENTS, Environment, mixed_model

TINY = Environment("a test", mixed_model(12, 4, 1, full=True), (0, 4))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "tiny", TINY)


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["environments", *map(str, arguments)], env={"COLUMNS": "200"})


def test_a_cell_is_measured_once_and_compared_with_itself(tiny, tmp_path: Path, monkeypatch):
    result = invoke("tiny", "--label", "old", "--seeds", 2, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    table = read(tmp_path)
    measured = list(zip(table["seed"], table["rows"], strict=True))
    assert measured == [(5000, "0"), (5000, "4"), (5001, "0"), (5001, "4")]
    assert (table["error"] > 0.9).all()
    assert np.isfinite(table[["reference", "log_density", "seconds"]]).all(axis=None)
    assert table["structure"].str.contains("mixed model").all()

    monkeypatch.setattr(cells, "run_cell", None)  # nothing is left to run
    assert invoke("tiny", "--label", "old", "--seeds", 2, "--out", tmp_path).exit_code == 0
    with (tmp_path / FILE).open() as file:
        lines = [dict(line, label="new") for line in csv.DictReader(file)]
    append(tmp_path / FILE, [Measured(*line.values()) for line in lines])
    result = invoke("tiny", "--compare", "old", "new", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "geometric means over 1 environments: error 1.0000, CPU 1.000" in result.output
    assert (tmp_path / "old-new.csv").exists()


def made_up(tmp_path: Path, name: str, old: list[float], new: list[float]) -> None:
    for seed, (before, after) in enumerate(zip(old, new, strict=True)):
        common = {"environment": name, "seed": seed, "rows": "3"}
        first = Measured("old", **common, error=before, coverage=0.8, seconds=2.0, structure="full")
        second = Measured(
            "new", **common, error=after, coverage=0.9, seconds=1.0, structure="intercept"
        )
        append(
            tmp_path / FILE,
            [first, second._replace(failure="ValueError: x" if np.isnan(after) else "")],
        )


def test_comparison_of_known_errors(tmp_path: Path):
    old, factors = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.9, 1.1, 0.8, 1.0])
    made_up(tmp_path, "made up", [*old, 1.0], [*(old * factors), np.nan])
    made_up(tmp_path, "sleepstudy", [*old], [*(old * factors)])
    found = compare(read(tmp_path), "old", "new")

    line, logs = found.loc["made up", "3"], np.log(factors)
    assert line["seeds"] == 4
    assert (line["failed_old"], line["failed_new"]) == (0, 1)
    assert line["ratio"] == pytest.approx(np.prod(factors) ** 0.25)
    assert line["ratio_error"] == pytest.approx(line["ratio"] * stats.sem(logs))
    assert line["p"] == pytest.approx(stats.ttest_1samp(logs, 0.0).pvalue)
    assert line["change"] == pytest.approx((old * (factors - 1.0)).mean())
    assert line["cpu_ratio"] == 0.5
    assert (line["coverage_old"], line["coverage_new"]) == pytest.approx((0.8, 0.9))
    assert (line["structures_old"], line["structures_new"]) == ("5 x [full]", "5 x [intercept]")
    # Splits of one table: the variance is multiplied by 1/n + 1/3 instead of 1/n.
    assert found.loc["sleepstudy", "3"]["ratio_error"] == pytest.approx(
        line["ratio_error"] * np.sqrt(1 + 4 / 3)
    )
