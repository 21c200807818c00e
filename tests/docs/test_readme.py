"""The README: its Python prints what it says, and its numbers are those of the pages and their
files.
"""

import csv
import re
from pathlib import Path

import pytest

from pages import blocks, run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(README)


def test_blocks_run_as_printed(tmp_path):
    assert len(BLOCKS) >= 2
    assert all(block.printed for block in BLOCKS)
    run("README.md", BLOCKS, tmp_path)


def test_its_length():
    assert len(README.splitlines()) <= 150
    assert README.count("![") == 1


def test_the_first_screen():
    """What is learned, the paper, Algorithm 1, τ(s), the table of the five experiments."""
    screen = " ".join(README.splitlines()[:46])
    for name in (
        "side information",
        "arXiv:2103.16277",
        "`ConditionalLearner.paper()`",
        "`representation`",
    ):
        assert name in screen
    table = README.split("<!-- first screen -->")[1]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert rows[2:] == ["clusters-2", "clusters-6", "lenk", "movielens", "jester"]


def test_files_that_it_names_exist():
    """Links are absolute, because relative ones break on a package index; files are named in plain
    text.
    """
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert (ROOT / picture).exists()
    links = set(re.findall(r"\]\(([^)]+)\)", README)) - {picture}
    assert all(link.startswith("https://") for link in links)
    for path in re.findall(r"docs/[\w./-]+\.md", README):
        assert (ROOT / path).exists(), path
    listed = re.search(
        r"^In docs/: (.*?)\. `CONTRIBUTING.md`", README, flags=re.MULTILINE | re.DOTALL
    )
    names = re.findall(r"`([^`]+)`", listed[1])
    assert len(names) > 5
    for name in names:
        assert (ROOT / "docs" / name).exists(), name


def test_it_names_the_two_commands():
    assert "make demo" in README
    assert "make test" in README


#: A data set's errors in a table: best other method, ours, and the difference in percent.
ERRORS = re.compile(r"\| (\d+\.\d{4}) \| (\d+\.\d{4}) \| ([-+]?\d+\.\d %) \|")
BENCHMARK = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_its_table_is_that_of_the_benchmark(name):
    """Each line of errors, with its p-value, is in one of the benchmark's first two tables."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if ERRORS.search(line)]
    assert len(table) >= 10
    for line in table:
        row = next(each for each in BENCHMARK.splitlines() if ERRORS.search(line)[0] in each)
        last = line.split("|")[-2].split(";")
        assert (last[0].strip(), last[-1].strip()) == (
            row.split("|")[3].strip(),
            row.split("|")[-2].strip(),
        )


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
