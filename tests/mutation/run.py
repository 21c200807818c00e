"""Mutation testing of the numerical core and of model files: `python tests/mutation/run.py`.

One mutant at a time stands in a copy of the tree; the tests that execute its line run, fastest first, until one fails.
A mutant that all of them pass survives. `--sample 55` draws that many of each package by `--seed`; `--name` repeats one
and shows what it says; `--tests` takes the tests of another commit. Tests that fail without any mutant are left out.

Why a script of its own: mutmut puts all mutants of a function into one file behind a switch, which compiled functions
do not go through; cosmic-ray starts Python, scikit-learn and Numba anew for every mutant, and knows nothing of Numba's
cache, which keeps what other files were compiled into. Here tests run in forks of a process that has imported what they
need, and a mutant of a compiled function does not see the cache of functions that contain it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from covering import Covering, Recorder, Selection
from mutants import Mutant, is_compiled, mutants
from packages import COMPILED_WITH, PACKAGES, files

ROOT = Path(__file__).resolve().parents[2]
QUIET = "ignore::pytest.PytestAssertRewriteWarning"
PLUGINS = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "hypothesispytest")]
OPTIONS = ["-x", "-q", "-W", QUIET, *PLUGINS, "--no-header", "--tb=line"]


class Copy:
    """A copy of the tree, in which one mutant stands at a time, with Numba's cache of the tree without any."""

    def __init__(self, folder: Path, tests: Path):
        folder = folder.resolve()  # tests run in another folder
        self.folder, self.cache = folder, folder.parent / "numba"
        self.cache.mkdir(parents=True, exist_ok=True)
        for name in ("src", "benchmarks", "docs"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copytree(tests, folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, folder / name)

    @contextlib.contextmanager
    def holding(self, mutant: Mutant) -> Iterator[Path]:
        """The mutant in its place, and a cache that knows nothing compiled from it."""
        path = self.folder / mutant.path
        source, times = path.read_bytes(), path.stat()
        path.write_bytes(mutant.apply(source))
        cache = self._cache_without(mutant)
        try:
            yield cache
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if cache != self.cache:
                shutil.rmtree(cache, ignore_errors=True)

    def _cache_without(self, mutant: Mutant) -> Path:
        """Numba looks at the file of the function only, and at that by size and time: neither is enough here."""
        stale = COMPILED_WITH.get(mutant.path)
        if stale is None or not is_compiled(self.folder / mutant.path, mutant.line):
            return self.cache
        cache = self.folder.parent / "numba-of-mutant"
        shutil.rmtree(cache, ignore_errors=True)  # of a run that was ended
        shutil.copytree(self.cache, cache)
        for folder, stem in (name.rsplit("/", 2)[-2:] for name in stale):
            for old in cache.glob(f"{folder}_*/{stem.removesuffix('.py')}.*"):
                old.unlink()
        return cache


def in_a_fork(
    copy: Copy,
    cache: Path,
    arguments: list[str],
    log: Path,
    limit: float,
    uncompiled: bool,
    plugin: Any,
) -> int | None:
    """Exit status of pytest in a child of its own session, or None where it took longer than so many CPU seconds."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 10))
            target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(target, 1)
            os.dup2(target, 2)
            status = _pytest(copy.folder, cache, arguments, uncompiled, plugin)
            sys.stdout.flush()
            os._exit(status)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(99)
    deadline = time.monotonic() + 20.0 * limit
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code == -signal.SIGXCPU else code
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _pytest(
    folder: Path, cache: Path, arguments: list[str], uncompiled: bool, make_plugin: Any
) -> int:
    import hypothesis
    import numba
    import pytest
    from numba.core import caching

    os.chdir(folder)
    plugin = make_plugin()
    if uncompiled:
        import_module("uncompiled")
        arguments = [
            "-W",
            "ignore::RuntimeWarning",
            *arguments,
        ]  # Python's numbers warn, compiled ones do not
    numba.config.CACHE_DIR = str(cache)
    # `Copy` removes what a mutant changes.
    caching._SourceFileBackedLocatorMixin.get_source_stamp = lambda self: None
    os.environ.update(
        NUMBA_CACHE_DIR=str(cache), PYTHONPATH=str(folder / "src"), PYTHONDONTWRITEBYTECODE="1"
    )
    sys.dont_write_bytecode = not isinstance(plugin, Recorder)
    sys.path[:0] = [str(folder / "src")]
    # a failure is enough: nobody reads the smallest example
    generate = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "mutants", phases=generate, derandomize=True, database=None, deadline=None
    )
    hypothesis.settings.load_profile("mutants")
    return int(pytest.main(arguments, plugins=[plugin]))


def preload() -> None:
    """What the tests import of others, once for all forks."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import hypothesis  # noqa: F401
    import joblib  # noqa: F401
    import narwhals  # noqa: F401
    import numba.extending  # noqa: F401
    import pandas  # noqa: F401
    import pytest  # noqa: F401
    import scipy.linalg
    import scipy.optimize
    import scipy.sparse.linalg
    import scipy.stats  # noqa: F401
    import sklearn.linear_model
    import sklearn.utils.estimator_checks  # noqa: F401

    assert "tailored" not in sys.modules
    gc.freeze()  # pytest collects garbage at its end: not all of this in every fork


class Judge:
    """Runs the tests of one package on mutants."""

    def __init__(self, copy: Copy, package: str, log: Path, *, again: bool):
        self.copy, self.package, self.log = copy, package, log
        recorded = copy.folder.parent / f"recorded-{package}.json"
        if again or not recorded.exists():
            self._record(recorded)
        self.covering = Covering.read(recorded)

    def _record(self, target: Path) -> None:
        """Run all tests without a mutant."""
        copy, package, log = self.copy, self.package, self.log
        tests = [name for name in PACKAGES[package].tests if (copy.folder / name).exists()]
        status = self._run(
            [*OPTIONS[1:], "-k", PACKAGES[package].keyword, *tests],
            copy.cache,
            3600.0,
            lambda: self._recorder(target),
        )
        if status not in {0, 1}:
            raise SystemExit(f"The tests of {package} could not be run:\n{log.read_text()[-3000:]}")

    def _recorder(self, target: Path) -> Recorder:
        import coverage

        sources = [str(self.copy.folder / path) for path in files(ROOT, self.package)]
        measured = coverage.Coverage(data_file=None, include=sources, config_file=False)
        measured.start()
        return Recorder(measured, target, PACKAGES[self.package].most_seconds)

    def verdict(self, mutant: Mutant) -> tuple[str, int]:
        """``killed``, ``timeout`` (killed too) or ``survived``, and the number of tests that execute the line."""
        compiled = mutant.path in COMPILED_WITH and is_compiled(
            self.copy.folder / mutant.path, mutant.line
        )
        names = self.covering.tests(
            self.copy.folder,
            mutant.path,
            mutant.line,
            compiled=compiled and not PACKAGES[self.package].uncompiled,
        )
        if not names:
            return "survived", 0
        seconds = sum(self.covering.seconds[name] for name in names)
        paths = dict.fromkeys(name.split("::")[0] for name in names)
        with self.copy.holding(mutant) as cache:
            limit = 30.0 + 3.0 * seconds + 240.0 * (cache != self.copy.cache)
            status = self._run([*OPTIONS, *paths], cache, limit, lambda: Selection(names))
        if status == 5:
            raise SystemExit(f"No test was run on {mutant.name}.")
        verdict = "timeout" if status is None else "killed" if status else "survived"
        return verdict, len(names)

    def _run(self, arguments: list[str], cache: Path, limit: float, plugin: Any) -> int | None:
        uncompiled = PACKAGES[self.package].uncompiled
        return in_a_fork(self.copy, cache, arguments, self.log, limit, uncompiled, plugin)


def drawn(package: str, sample: int, seed: int) -> tuple[list[Mutant], int]:
    """A sample of a package's mutants, and how many there are."""
    every = [mutant for path in files(ROOT, package) for mutant in mutants(ROOT, path)]
    if sample >= len(every):
        return every, len(every)
    return random.Random(f"{seed} {package}").sample(every, sample), len(every)


def survivors(log: Path) -> set[str]:
    """Names of those that an earlier run left."""
    found = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return {line["name"] for line in found if line.get("verdict") == "survived"}


def run(package: str, options: argparse.Namespace) -> None:
    """Try the mutants of one package; a line of JSON for each, and one for all."""
    folder = Path(options.scratch) / "tree"
    shutil.rmtree(folder, ignore_errors=True)
    copy = Copy(folder, Path(options.tests).resolve())
    start = time.monotonic()
    judge = Judge(copy, package, folder / "log", again=not options.recorded)
    ready = time.monotonic() - start
    chosen, total = drawn(package, options.sample, options.seed)
    chosen = chosen[: options.first]
    if options.again or options.name:
        names = set(options.name) or survivors(Path(options.again))
        chosen = [
            m for path in files(ROOT, package) for m in mutants(ROOT, path) if m.name in names
        ]
    counts: Counter[str] = Counter()
    for mutant in chosen:
        start = time.monotonic()
        verdict, n_tests = judge.verdict(mutant)
        counts[verdict] += 1
        old = (ROOT / mutant.path).read_bytes()[mutant.start : mutant.stop].decode()
        seconds = time.monotonic() - start
        line = {
            "name": mutant.name,
            "verdict": verdict,
            "old": old,
            "new": mutant.new,
            "tests": n_tests,
            "s": round(seconds, 1),
        }
        print(json.dumps(line), flush=True)
        if options.name:
            print(judge.log.read_text()[-4000:])
    found = {
        "mutants": total,
        "tried": len(chosen),
        **counts,
        "tests": len(judge.covering.seconds),
        "left out": sorted(set(judge.covering.failing)),
        "ready": round(ready),
    }
    print(json.dumps({"package": package, **found}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--package", choices=[*PACKAGES], action="append", help="one or more; all by default"
    )
    parser.add_argument("--sample", type=int, default=60, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", default=str(ROOT / "tests"), help="folder of the tests")
    parser.add_argument("--first", type=int, help="so many of the sample only")
    parser.add_argument("--again", help="the survivors in the output of an earlier run only")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        help="repeat mutants, by the names that a run printed",
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="trust what an earlier run found out about the tests",
    )
    parser.add_argument(
        "--scratch", default=".mutation", help="folder for the copy of the tree and Numba's cache"
    )
    options = parser.parse_args()
    preload()
    for package in options.package or PACKAGES:
        run(package, options)


if __name__ == "__main__":
    main()
