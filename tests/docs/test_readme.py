"""The README: its Python prints what it says, and its numbers are those of the pages and their
files.
"""

import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from pages import blocks, run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(README)
#: Columns of the table of the experiments, and the methods of docs/figures/reproduction.csv.
METHODS = {
    "independent": "independent",
    "unconditional": "unconditional",
    "Algorithm 1": "conditional",
    "φ scaled": "conditional-scaled",
    "mixed model": "mixed-model",
    "EmpiricalBayesLearner": "empirical-bayes",
    "Bayes limit": "bayes",
}


def test_blocks_run_as_printed(tmp_path):
    assert len(BLOCKS) >= 2
    assert all(block.printed for block in BLOCKS)
    run("README.md", BLOCKS, tmp_path)


def test_its_length():
    assert len(README.splitlines()) <= 150
    before_code = README.split("```")[0]
    assert len(re.sub(r"!\[.*?\)", "", before_code).split()) <= 150


def test_its_table_of_the_experiments():
    """Our errors are the means over seeds of the files of the page, to three digits."""
    rows = [line.split("|")[1:-1] for line in README.splitlines() if line.startswith("| ")]
    start = next(i for i, row in enumerate(rows) if row[0].strip() == "experiment")
    errors = defaultdict(list)
    with open(ROOT / "docs" / "figures" / "reproduction.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["split"] == "test":
                errors[row["experiment"], row["method"]].append(float(row["error"]))
    names = [METHODS.get(name.strip(" `")) for name in rows[start]]
    for row in rows[start + 2 : start + 7]:
        for method, cell in zip(names, row, strict=True):
            if method and cell.strip() != "—":
                mean = np.mean(errors[row[0].strip(), method])
                assert float(cell) == pytest.approx(mean, rel=6e-3), (row[0], method)


def test_files_that_it_names_exist():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 15
    for link in links:
        assert link.startswith(("https://", "#")) or (ROOT / link.split("#")[0]).exists(), link


def test_it_names_the_two_commands():
    assert "make demo" in README
    assert "make test" in README


#: A data set's errors in a table: best other method, ours, and the difference in percent.
ERRORS = re.compile(r"\| (\d+\.\d{4}) \| (\d+\.\d{4}) \| ([-+]?\d+\.\d %) \|")
BENCHMARK = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")


def test_the_benchmark_page_is_that_of_its_files():
    """Errors, differences and corrected p-values are those of results.csv, on the seeds that both
    methods have.
    """
    with open(ROOT / "docs" / "benchmark" / "results.csv", encoding="utf-8") as file:
        rows = {
            (r["data_set"], r["method"]): r
            for r in csv.DictReader(file)
            if r["predictions"] == "raw"
        }
    table = [line for line in BENCHMARK.splitlines() if ERRORS.search(line)]
    assert len(table) == 18
    for line in table:
        what, seeds, method, best, ours, difference, p = (
            cell.strip() for cell in line.split("|")[1:-1]
        )
        name = re.split(r"[,:]", what)[0]
        mine, other = rows[name, "tailored"], rows[name, method]
        assert mine["best_baseline"] == method
        assert int(seeds) == min(int(mine["seeds"]), int(other["seeds"]))
        error, percent = float(other["mae"]), float(mine["difference_percent"])
        assert float(best) == pytest.approx(error, abs=6e-5)
        assert float(ours) == pytest.approx(error * (1 + percent / 100), abs=6e-5)
        assert float(difference.removesuffix(" %")) == pytest.approx(percent, abs=0.051)
        exact = float(mine["corrected_p"])
        assert float(p) == pytest.approx(exact, abs=0.0051 if exact > 0.01 else 0.5 * exact)
