"""The structure of the package: layers as drawn, no circle, private names stay in their package."""

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tailored"


def test_arrows_go_down():
    """The contract in pyproject.toml."""
    program = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    found = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "Arrows go down KEPT" in found.stdout


def circles(arrows):
    """Modules from which a path leads back to themselves."""
    reach = {module: set(targets) for module, targets in arrows.items()}
    while True:
        grown = {m: found.union(*(reach[target] for target in found)) for m, found in reach.items()}
        if grown == reach:
            return {module for module, found in reach.items() if module in found}
        reach = grown


def test_no_file_knows_itself_through_others():
    graph = grimp.build_graph("tailored", cache_dir=None)
    arrows = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # A package's own page of names is no room: files import from it, and it from them.
    pages = {module for module in graph.modules if graph.find_children(module)}
    assert circles({m: found - pages for m, found in arrows.items() if m not in pages}) == set()


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == {"b", "c"}


def private_imports(path):
    """Imports of a module with a leading underscore from outside the package that it lies in."""
    here = path.relative_to(SOURCE.parent).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = here[: len(here) - node.level + 1] if node.level else ()
        target = (*base, *(node.module.split(".") if node.module else ()))
        names = [(*target, alias.name) for alias in node.names]
        for name in [target, *names] if target[0] == "tailored" else []:
            for i, part in enumerate(name):
                inside = here[:i] == name[:i]
                if part.startswith("_") and not part.startswith("__") and not inside:
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}: {'.'.join(name)}"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_private_modules_stay_at_home(path):
    assert list(private_imports(path)) == []
