"""Check the structure of the package: no import cycles, private modules used only inside their
package.

`make lint` checks the layers.
"""

import ast
import importlib.util
from pathlib import Path

import grimp
import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tailored"


def cycles(arrows):
    """Modules from which a path leads back to themselves."""
    reachable = {module: set(targets) for module, targets in arrows.items()}
    while True:
        grown = {
            m: targets.union(*(reachable[target] for target in targets))
            for m, targets in reachable.items()
        }
        if grown == reachable:
            return {module for module, targets in reachable.items() if module in targets}
        reachable = grown


def test_no_import_cycles():
    graph = grimp.build_graph("tailored", cache_dir=None, exclude_type_checking_imports=True)
    arrows = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # The __init__ of a public package re-exports names of its modules, which is not counted as a
    # cycle.
    pages = {module for module in graph.modules if graph.find_children(module)}
    assert cycles({m: targets - pages for m, targets in arrows.items() if m not in pages}) == set()


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


def test_private_modules_are_used_inside_their_package():
    assert [found for path in SOURCE.rglob("*.py") for found in private_imports(path)] == []


@pytest.mark.parametrize(
    "path", sorted((SOURCE.parents[1] / "benchmarks").glob("*.py")), ids=lambda path: path.name
)
def test_benchmarks_import_what_exists(path):
    """Most benchmarks are not run by tests, and one needs a GPU."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tailored"):
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                assert hasattr(module, name) or importlib.util.find_spec(f"{node.module}.{name}"), (
                    name
                )
