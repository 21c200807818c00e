"""The code of every page runs as printed, and prints what the page says."""

import json
import os
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import sklearn

from pages import Block, blocks, check_output, run

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in DOCS.rglob("*.md")
}
WITH_CODE = sorted(
    name for name, text in PAGES.items() if blocks(text) and name != "cross-validation.md"
)
NEEDS_DATA = "<!-- needs: data -->"


@pytest.fixture
def as_before(monkeypatch):
    """Settings that a page may change are put back; figures are drawn on no screen."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    before = sklearn.get_config()
    yield
    sklearn.set_config(**before)
    if (plt := __import__("sys").modules.get("matplotlib.pyplot")) is not None:
        plt.close("all")


@pytest.mark.pages
@pytest.mark.parametrize("name", WITH_CODE)
def test_page(name, tmp_path, as_before):
    if NEEDS_DATA in PAGES[name] and not os.environ.get("TAILORED_DATA"):
        pytest.skip("reads real data: set TAILORED_DATA to the folder with them")
    run(name, blocks(PAGES[name]), tmp_path)


def test_tutorial(tmp_path, as_before):
    run("tutorial.md", blocks(PAGES["tutorial.md"], long=False), tmp_path)


def numbers(table):
    """Read the rows of a printed table, without the number of the fold."""
    return np.array(
        [[float(v) for v in line.split()[1:]] for line in table.strip().splitlines()[1:]]
    )


def test_cross_validation_gives_the_numbers_of_the_loop(capsys, few_steps):
    page, names = PAGES["cross-validation.md"], {"__name__": "page"}
    (printed,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    with sklearn.config_context(enable_metadata_routing=True):
        exec("".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)), names)
    found = numbers(capsys.readouterr().out)
    assert found.shape == (2, 4)
    np.testing.assert_allclose(found[:, [0, 2]], found[:, [1, 3]], atol=1e-4)
    np.testing.assert_array_equal(*names["scores"])
    np.testing.assert_allclose(found, numbers(printed), rtol=0.1)


HOWTOS = sorted(name for name in PAGES if name.startswith("howto/") and name != "howto/index.md")


def test_the_index_lists_every_howto():
    for name in HOWTOS:
        assert f"({name.removeprefix('howto/')})" in PAGES["howto/index.md"]


NOTEBOOKS = sorted((DOCS / "gallery").glob("*.ipynb"))
#: Number of cells whose outputs were deleted, because their code changed and the table was not at
#: hand.
NOT_RUN = {"purchases": 2}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_outputs(path):
    cells = [
        cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"
    ]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(not cell["outputs"] for cell in cells) == NOT_RUN.get(path.stem, 0)
    assert path.stat().st_size < 200_000


@pytest.mark.pages
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, as_before):
    module = runpy.run_path(str(DOCS / "notebooks.py"))
    before = json.loads(path.read_text("utf-8"))
    tables = re.findall(r'rglob\(."(\w+\.csv)', json.dumps(before))
    folder = os.environ.get("TAILORED_DATA")
    if not folder or not all(any(Path(folder).rglob(table)) for table in tables):
        pytest.skip("reads real data: set TAILORED_DATA to the folder with them")
    for old, new in zip(before["cells"], module["run"](before)["cells"], strict=True):
        for stored, output in zip(old.get("outputs", ()), new.get("outputs", ()), strict=True):
            check_output(module["text_of"](output), module["text_of"](stored), path.name)


def test_llms_txt_lists_every_page():
    listed = re.findall(
        r"^- \[.+?\]\((.+?)\): \S", (DOCS / "llms.txt").read_text("utf-8"), flags=re.MULTILINE
    )
    assert sorted(listed) == sorted([*PAGES, "gallery/index.md"])  # the gallery is made by hooks.py


@pytest.mark.parametrize("name", HOWTOS)
def test_howto_ends_in_a_number(name):
    assert any(
        block.printed and any(c.isdigit() for c in block.printed) for block in blocks(PAGES[name])
    )


def test_numbers_may_differ_in_the_last_digit():
    check_output("error 0.1234 of 300", "error 0.1235 of 301", "here")
    check_output("a\nb\nc 7", "a\n...\nc 7", "here")


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("error 0.12", "error 0.19"),
        ("error 0.12", "errors 0.12"),
        ("1 2", "1 2 3"),
        ("a b c", "a\n...\nd"),
    ],
)
def test_other_output_is_an_error(printed, expected):
    with pytest.raises(AssertionError, match="the page says"):
        check_output(printed, expected, "here")


def test_blocks_of_a_page():
    page = (
        "```python\nn = 125_000\n```\n\n```text\n1\n```\n\n<!-- not run: a cluster "
        "-->\n```python\nx\n```\n"
        "<!-- in tests: 125_000 = 3_000 -->\n```python\nm = 125_000\n```\n"
    )
    assert blocks(page) == [
        Block("python", "n = 125_000\n", 2, "1\n"),
        Block("python", "m = 3_000\n", 15, compared=False),
    ]
    assert blocks("<!-- long: a cluster -->\n```python\nx\n```\n", long=False) == []


def test_the_decision_chart_is_the_one_that_is_drawn():
    drawn = runpy.run_path(str(DOCS / "drawings" / "decision.py"))["chart"]()
    assert (DOCS / "figures" / "decision.svg").read_text(encoding="utf-8") == drawn
