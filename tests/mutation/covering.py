"""Which tests execute a line, and how long each takes: a mutant is shown to these only, the fastest first."""

from __future__ import annotations

import ast
import json
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: Context of lines that run on import, before any test.
ALWAYS = ""


class Recorder:
    """A pytest plugin that writes the lines, the seconds and the failures of every test to a file."""

    def __init__(self, coverage: Any, target: Path, most_seconds: float):
        self.coverage, self.target, self.most_seconds = coverage, target, most_seconds
        self.seconds: dict[str, float] = {}
        self.failing: list[str] = []
        signal.signal(signal.SIGPROF, _stop)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        # Fixtures may serve other tests of the file too.
        self.coverage.switch_context(item.nodeid.split("::")[0])
        start = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - start
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, self.most_seconds)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            self.coverage.switch_context(item.nodeid.split("::")[0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failing.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {
            str(Path(path).relative_to(Path.cwd())): data.contexts_by_lineno(path)
            for path in data.measured_files()
        }
        self.target.write_text(
            json.dumps({"seconds": self.seconds, "failing": self.failing, "lines": lines})
        )


def _stop(*_: Any) -> None:
    raise TimeoutError("This test takes too long to be repeated for every mutant.")


class Selection:
    """A pytest plugin that keeps the given tests, in their order."""

    def __init__(self, names: list[str]):
        self.places = {name: i for i, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.places]
        items[:] = sorted(kept, key=lambda item: self.places[item.nodeid])


class Covering(NamedTuple):
    """What `Recorder` wrote: seconds of each test, those that failed, contexts of each line of each file."""

    seconds: dict[str, float]
    failing: list[str]
    lines: dict[str, dict[str, list[str]]]

    @classmethod
    def read(cls, path: Path) -> Covering:
        return cls(**json.loads(path.read_text()))

    def tests(self, folder: Path, path: str, line: int, *, compiled: bool) -> list[str]:
        """Tests that execute the statement in a line: by file, files and their tests with the least time first.

        For compiled functions, which are not seen, and for what runs on import, it is enough to execute something of the file.
        """
        contexts, span = self.lines.get(path, {}), _span(folder / path, line)
        found = {name for at in span for name in contexts.get(str(at), [])}
        if compiled or not span or found == {ALWAYS}:
            found = {name for names in contexts.values() for name in names}
        passing = set(self.seconds) - set(self.failing)
        kept = {name for name in passing if name in found or name.split("::")[0] in found}
        totals: dict[str, float] = defaultdict(float)
        for name in kept:
            totals[name.split("::")[0]] += self.seconds[name]
        return sorted(
            kept,
            key=lambda name: (totals[name.split("::")[0]], name.split("::")[0], self.seconds[name]),
        )


def _span(path: Path, line: int) -> range:
    """Lines of the innermost statement at a line, or of its head; all of a function for its head.

    Nothing if a function keeps its results: the first test that needs them executes it for all others.
    """
    tree = ast.parse(path.read_bytes())
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and _first(node) <= line <= (node.end_lineno or line)
    ]
    decorators = {ast.unparse(d) for node in around for d in getattr(node, "decorator_list", ())}
    if decorators & {"cache", "lru_cache"}:
        return range(0)
    inner = max(around, key=lambda node: (_first(node), -(node.end_lineno or line)))
    body = getattr(inner, "body", None)
    if not body or isinstance(inner, ast.FunctionDef) or _first(body[0]) <= line:
        return range(_first(inner), (inner.end_lineno or line) + 1)
    return range(_first(inner), _first(body[0]))


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
