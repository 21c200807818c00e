"""The README fits two screens, and its Python prints what it says."""

import re
from pathlib import Path

import pytest

from pages import blocks, run

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(README)


def test_blocks_run_as_printed(tmp_path):
    assert len(BLOCKS) >= 2
    assert all(block.printed for block in BLOCKS)
    run("README.md", BLOCKS, tmp_path)


def test_it_fits_two_screens():
    assert len(README.splitlines()) <= 120
    assert README.count("![") == 1


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        path, _, anchor = target.partition("#")
        assert (ROOT / path).exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads], (
                target
            )


def test_it_names_the_two_commands():
    assert "make demo" in README
    assert "make test" in README


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_its_table_is_that_of_the_benchmark(name):
    """Each line of errors is in one of the benchmark's first two tables."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    table = [line.split("|") for line in lines if re.search(r"\| \d+\.\d{4} \|", line)]
    summary = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8").split("## How does it compare")[0]
    assert len(table) >= 7
    for _, _, best, ours, difference, *_ in table:
        change = difference.split(",")[0].strip()
        assert re.search(rf"\| {best.strip()} \| {ours.strip()} \| {re.escape(change)} \|", summary), ours
