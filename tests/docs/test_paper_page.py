"""docs/paper.md: every name can be imported, every test exists, and no number or label of the paper
is missing.
"""

from __future__ import annotations

import ast
import csv
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
#: The LaTeX source of the paper is not part of the project.
SOURCE = ROOT.parent / "shared" / "paper.tex"

#: The largest number of each counter of the typeset paper.
LAST = {"equation": 124, "statement": 12, "remark": 3, "assumption": 3, "figure": 3, "algorithm": 1}
COUNTERS = {
    "Eq.": "equation",
    "Eqs.": "equation",
    "Thm.": "statement",
    "Prop.": "statement",
    "Lemma": "statement",
    "Cor.": "statement",
    "Remark": "remark",
    "Asm.": "assumption",
    "Fig.": "figure",
    "Alg.": "algorithm",
}
NUMBER = re.compile(rf"({'|'.join(map(re.escape, COUNTERS))}) (\d+)(?:–(\d+))?")
QUOTED = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    number: str
    label: str
    what: str
    code: str
    test: str

    def covered(self) -> set[tuple[str, int]]:
        """Return the counters and numbers of the row, with all numbers of a range."""
        found = NUMBER.findall(self.number)
        return {(COUNTERS[kind], n) for kind, a, b in found for n in range(int(a), int(b or a) + 1)}


def rows() -> list[Row]:
    """Return the rows of the tables with these five columns; the table of differences has
    others.
    """
    found, inside = [], False
    for line in PAGE.splitlines():
        cells = (
            [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        )
        if cells == ["number", "label", "what it is", "code", "test"]:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(line) <= set("|-"):
            assert len(cells) == len(Row._fields), line
            found.append(Row(*cells))
    return found


ROWS = rows()


def names() -> list[str]:
    """Return every name of the package and of the studies on the page, in any table or
    paragraph.
    """
    return sorted(
        {name for name in QUOTED.findall(PAGE) if re.fullmatch(r"(tailored|studies)(\.\w+)+", name)}
    )


def references() -> list[str]:
    """Return every `tests/file.py::function` on the page."""
    return sorted(
        {name for name in QUOTED.findall(PAGE) if name.startswith("tests/") and "::" in name}
    )


def resolve(name: str) -> Any:
    """Import the longest module in a dotted name and get the rest as attributes or fields."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:n]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_every_name_can_be_imported():
    missing = []
    for name in names():
        try:
            resolve(name)
        except (AttributeError, ModuleNotFoundError):
            missing.append(name)
    assert not missing


def test_every_reference_exists():
    pairs = [reference.split("::") for reference in references()]
    assert not [f"{file}::{name}" for file, name in pairs if name not in functions(file)]


def test_every_row_names_code_and_a_test_or_a_reason():
    assert len(ROWS) > 80
    known = {*names(), *references()}
    for row in ROWS:
        if row.code.startswith("absent: "):
            if row.test == "—":
                continue
        else:
            assert known & set(QUOTED.findall(row.code)), row
        tests = QUOTED.findall(row.test)
        assert tests, row
        assert all(re.fullmatch(r"tests/.*\.py::test_\w+", test) for test in tests), row


def test_every_number_of_the_paper_is_covered():
    covered = set().union(*(row.covered() for row in ROWS))
    assert covered == {(kind, n) for kind, last in LAST.items() for n in range(1, last + 1)}


def test_differences_have_five_columns():
    section = PAGE.split("## Where text, published code and this package differ")[1]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert len(lines) > 20
    for line in lines:
        cells = line.strip("|").split("|")
        assert len(cells) == 5, line
        assert all(cell.strip() for cell in cells), line


def test_runs_that_agree_are_those_of_the_table():
    """The section names the methods of which not all published seeds agree, and the seeds that
    do.
    """
    with open(ROOT / "docs" / "figures" / "as-published.csv", encoding="utf-8") as file:
        runs = [row for row in csv.DictReader(file) if row["method"] != "conditional-kronecker"]
    agreeing: dict[tuple[str, str], list[str]] = {}
    for row in runs:
        seeds = agreeing.setdefault((row["experiment"], row["method"]), [])
        if float(row["largest_difference"]) <= 1e-10:
            seeds.append(row["seed"])
    exceptions = {key: seeds for key, seeds in agreeing.items() if len(seeds) < 5}
    assert len(agreeing) == 12
    assert exceptions == {
        ("movielens", "unconditional"): ["0"],
        ("lenk", "independent"): ["0", "3", "4"],
    }
    assert "MovieLens, unconditional: seed 0 agrees." in PAGE
    assert "Lenk, independent: seeds 0, 3 and 4 agree." in PAGE


def test_algorithm_1_on_the_published_data():
    """Errors of Algorithm 1 with and without side information, as the section on the published
    numbers states them.
    """
    with open(ROOT / "docs" / "figures" / "as-published.csv", encoding="utf-8") as file:
        errors = {
            (row["experiment"], row["method"], int(row["seed"])): float(row["algorithm_1"])
            for row in csv.DictReader(file)
            if row["algorithm_1"]
        }
    text = (ROOT / "studies" / "reproduction" / "as_published.md").read_text(encoding="utf-8")
    for name in ("clusters-2", "clusters-6"):
        both = (errors[name, method, 0] for method in ("conditional", "unconditional"))
        assert "{:.4f} against {:.4f} ({})".format(*both, name) in text
    for name, wins in (("movielens", 0), ("lenk", 5)):
        assert wins == sum(
            errors[name, "conditional", s] < errors[name, "unconditional", s] for s in range(5)
        )


# --- against the LaTeX source


ENVIRONMENT = (
    r"\\begin\{(equation|align|theorem|lemma|proposition|corollary|remark|assumption|figure|algorithm)\}"
    r"|\\begin\{restatable\}(?:\[[^]]*\])?\{(theorem|proposition)\}"
)
STATEMENTS = {"theorem", "lemma", "proposition", "corollary"}


def numbered(source: str) -> dict[str, tuple[str, int]]:
    """Count the environments; return the counter and number of each label but those of sections.

    A label in an environment without a number has the number of the statement around it, as in
    LaTeX.
    """
    counts = dict.fromkeys(LAST, 0)
    found: dict[str, tuple[str, int]] = {}
    current: list[tuple[str, int, int]] = []  # counter, number, end of the environment
    for match in re.finditer(rf"{ENVIRONMENT}|\\label\{{(.+?)\}}", source):
        name = match[1] or match[2]
        if name is None:
            inside = [c for c in current if match.start() < c[2]]
            if inside:  # labels of sections are outside of all environments
                found[match[3]] = inside[-1][:2]
            continue
        end = source.index(rf"\end{{{'restatable' if match[2] else name}}}", match.end())
        kind = "statement" if name in STATEMENTS else "equation" if name == "align" else name
        body = source[match.end() : end]
        counts[kind] += (
            body.count(r"\\") + 1 if name == "align" and r"\begin{split}" not in body else 1
        )
        current.append((kind, counts[kind], end))
    assert counts == LAST
    return found


def test_labels_and_their_numbers_are_those_of_the_source():
    if not SOURCE.exists():
        pytest.skip("the LaTeX source of the paper is not next to the checkout")
    source = re.sub(r"(?<!\\)%.*", "", SOURCE.read_text(encoding="utf-8"))
    labels = numbered(source)
    assert len(labels) > 60
    # `example` is not declared in the source, so that it has neither a counter nor a number.
    on_page = {label: row for row in ROWS for label in QUOTED.findall(row.label)}
    assert set(on_page) == {*labels, "clusters_ex"}
    for label, number in labels.items():
        assert number in on_page[label].covered(), label
