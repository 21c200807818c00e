"""Compare the exported names with docs/api.md."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = ["datasets", "evaluation", "exceptions", "losses", "paper", "paper.theory"]
PUBLIC = ["tailored", *(f"tailored.{name}" for name in PUBLIC)]


def test_every_exported_name_has_a_line():
    listed = set(
        re.findall(r"^\| `(tailored[\w.]*)` \|", (ROOT / "docs/api.md").read_text(), flags=re.M)
    )
    exported = {
        f"{module}.{name}" for module in PUBLIC for name in importlib.import_module(module).__all__
    }
    assert listed == exported - {"tailored.__version__"}


def test_every_name_is_on_the_page_that_its_line_links_to():
    lines = re.findall(
        r"^\| `(tailored[\w.]*)` \| \[.*\]\((api/.*\.md)\) \|",
        (ROOT / "docs/api.md").read_text(),
        flags=re.M,
    )
    pages = {page: (ROOT / "docs" / page).read_text() for _, page in lines}
    assert pages.keys() == {f"api/{page.name}" for page in (ROOT / "docs/api").glob("*.md")}
    missing = [name for name, page in lines if not re.search(rf"{name}\b", pages[page])]
    assert missing == []


@pytest.mark.parametrize("module", PUBLIC)
def test_exported_names_exist_and_have_a_docstring(module):
    module = importlib.import_module(module)
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value):
            assert value.__doc__, name


def test_internal_packages_export_nothing():
    for path in (ROOT / "src/tailored").glob("*/__init__.py"):
        if f"tailored.{path.parent.name}" not in PUBLIC and path.parent.name != "cli":
            assert path.read_text() == "", path
