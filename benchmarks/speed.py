"""Measure what people wait for, in CPU time, and write the tables of docs/speed.md.

    python benchmarks/speed.py --write                     # everything, about half an hour
    python benchmarks/speed.py --only start fits           # some of the tables
    python benchmarks/speed.py --also SRC --name 0.1.0     # the src/ folder of another version next
    to it, in turns

Every measurement is a process of its own with one thread.  CPU time is user plus system time, the
least of ``--repeats`` runs. The classical tables are read from TAILORED_DATA (see
`benchmarks/export_multilevel.R`); rows whose data, R or version cannot be used are marked with a
dash.
"""

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
PAGE = ROOT / "docs" / "speed.md"

IMPORTS = "import pandas, scipy, sklearn.base, sklearn.utils\n"
SHELL = "import sys\nfrom tailored.cli import app\nsys.argv = ['tailored', *{arguments}]\napp()"
FIRST_FIT = """
import warnings; warnings.simplefilter("ignore")
import tailored
from tailored.datasets import make_clusters
tailored.{learner}().fit(make_clusters(30, n_clusters=2, n_rows=12, n_features=5, rank=1, random_state=0))
"""
FIT = """
import resource, sys, time, warnings; warnings.simplefilter("ignore")
import numpy as np, tailored
from tailored.datasets import make_clusters
learner = getattr(tailored, sys.argv[2])
data = np.load(sys.argv[1], allow_pickle=False)
def tasks(n=None):
    T = len(data["sizes"]) if n is None else n
    rows = slice(data["sizes"][:T].sum())
    side = np.repeat(data["side"][:T], data["sizes"][:T], axis=0) if data["side"].size else None
    return tailored.TaskSet(data["X"][rows], data["y"][rows], np.repeat(np.arange(T), data["sizes"][:T]), side)
train = tasks()
learner().fit(tasks(min(len(train), 45)))   # compiled code is loaded before the clock starts
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
learner().fit(train)
print(time.process_time() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
LME4 = """
data <- read.csv(commandArgs(TRUE)[1])
suppressMessages(library(lme4))
xs <- grep("^x", names(data), value = TRUE); sides <- grep("^s", names(data), value = TRUE)
formula <- reformulate(c(xs, sides, sprintf("(1 + %s | g)", paste(xs, collapse = " + "))), "y")
start <- proc.time()
fitted <- suppressMessages(suppressWarnings(lmer(formula, data)))
cat(sum((proc.time() - start)[c("user.self", "sys.self")]))
"""
EXACT = """
import sys, time
import numpy as np
from tailored.datasets import make_clusters
from tailored.losses import get_loss
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows
tasks = make_clusters(1000, n_clusters=6, n_rows=40, n_features=20, random_state=0)
rows = Rows(tasks.X, tasks.y, tasks.offsets)
taus = np.ascontiguousarray(np.broadcast_to(float(sys.argv[1]) * np.eye(20), (1000, 20, 20)))
algorithm = WithinTask(get_loss("absolute"))
run = lambda: algorithm.solve(rows, taus)
run()
times = []
for _ in range(5):
    start = time.process_time(); run(); times.append(time.process_time() - start)
print(1e3 * min(times))
"""


class Failure(Exception):
    """A measurement that cannot be made here."""


def call(source, *arguments, cache=None, cwd=None):
    """Run Python with the package in ``source``; return its CPU seconds and what it printed."""
    environment = {
        **os.environ,
        **dict.fromkeys(THREADS, "1"),
        "PYTHONPATH": f"{source}{os.pathsep}{ROOT}",
    }
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=cwd,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Failure(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def twice(source, code, cwd=None):
    """CPU seconds of one program with an empty cache of compiled code, and again with the cache it
    wrote.
    """
    with tempfile.TemporaryDirectory() as cache:
        return [call(source, "-c", code, cache=cache, cwd=cwd)[0] for _ in range(2)]


def start(source):
    """Yield the rows of the first command and the first fit, in CPU seconds."""
    call(
        source, "-c", IMPORTS + "import tailored"
    )  # bytecode is written before anything is measured
    imports = min(call(source, "-c", IMPORTS)[0] for _ in range(3))
    yield "`tailored --help`", lambda: call(source, "-c", SHELL.format(arguments=["--help"]))[0]
    yield (
        "`import tailored`, beyond scikit-learn, SciPy and pandas",
        lambda: max(call(source, "-c", IMPORTS + "import tailored")[0] - imports, 0.0),
    )
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    example = "\n".join(blocks)
    yield (
        "README's example beyond the same imports: empty cache / second time",
        lambda: [seconds - imports for seconds in twice(source, IMPORTS + example)],
    )
    for learner in (
        "EmpiricalBayesLearner",
        "IndependentLearner",
        "UnconditionalLearner",
        "ConditionalLearner",
    ):

        def compiling(learner=learner):
            first, second = twice(source, FIRST_FIT.format(learner=learner))
            return first - second

        yield f"compilation in the first fit of `{learner}`", compiling


def clusters(n_tasks, n_rows, **options):
    from tailored.datasets import make_clusters

    tasks = make_clusters(n_tasks, n_rows=n_rows, random_state=0, **options)
    return {"X": tasks.X, "y": tasks.y, "sizes": tasks.sizes, "side": np.zeros(0)}


def groups(n_tasks, binary=False):
    """Draw groups of 8 rows of 3 columns, whose intercepts and slopes differ."""
    rng = np.random.default_rng(0)
    X, w = (
        rng.normal(size=(n_tasks, 8, 3)),
        rng.normal(size=(n_tasks, 4)) * [1.0, 0.5, 0.2, 1.0] + [1, 2, 3, 0],
    )
    y = np.einsum("tnd,td->tn", X, w[:, :3]) + w[:, 3:] + rng.normal(size=(n_tasks, 8))
    y = 1.0 * (y > 0) if binary else y
    return {
        "X": X.reshape(-1, 3),
        "y": y.ravel(),
        "sizes": np.full(n_tasks, 8),
        "side": np.zeros(0),
    }


def classical(name):
    """Return the training tasks of the first split of the benchmark."""
    from studies.benchmark.suites import SUITES

    try:
        tasks = SUITES[name].load(0, os.environ.get("TAILORED_DATA")).train
    except FileNotFoundError as error:
        raise Failure(str(error)) from error
    side = np.zeros(0) if tasks.side_info is None else np.asarray(tasks.side_info)
    return {"X": tasks.X, "y": tasks.y, "sizes": tasks.sizes, "side": side}


TABLES = {
    "Exam, 49 schools": lambda: classical("exam"),
    "Hsb82, 120 schools": lambda: classical("hsb82"),
    "egsingle, 1,291 children": lambda: classical("egsingle"),
    "40 groups x 20 rows, 300 columns": lambda: clusters(
        40, 20, n_clusters=1, n_features=300, rank=5
    ),
    "400 groups x 20 rows, 100 columns": lambda: clusters(
        400, 20, n_clusters=1, n_features=100, rank=5
    ),
    "six clusters, 800 groups x 40 rows, 20 columns": lambda: clusters(800, 40, n_clusters=6),
    "125,000 groups x 8 rows, 3 columns": lambda: groups(125_000),
}
WITH_LME4 = list(TABLES)[:3]


def fit(source, draw, learner="EmpiricalBayesLearner"):
    """Return CPU seconds and megabytes over the start of one fit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks.npz")
        np.savez(path, **draw())
        return [float(word) for word in call(source, "-c", FIT, path, learner)[1].split()]


def fits(source):
    """Yield the rows of default fits, in CPU seconds."""
    for name, draw in TABLES.items():
        yield name, lambda draw=draw: fit(source, draw)[0]


def fit_lme4(name):
    """Return CPU seconds of lme4 with a random intercept and random slopes of all columns."""
    if name not in WITH_LME4 or not shutil.which("Rscript"):
        raise Failure("not compared")
    data = TABLES[name]()
    columns = {f"x{j}": column for j, column in enumerate(np.asarray(data["X"]).T)}
    sides = np.repeat(data["side"], data["sizes"], axis=0).T if data["side"].size else []
    columns |= {f"s{j}": column for j, column in enumerate(sides)}
    columns |= {"y": data["y"], "g": np.repeat(np.arange(len(data["sizes"])), data["sizes"])}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        np.savetxt(
            path,
            np.column_stack(list(columns.values())),
            delimiter=",",
            header=",".join(columns),
            comments="",
        )
        done = subprocess.run(
            ["Rscript", "-e", LME4, path], capture_output=True, text=True, check=True
        )
    return float(done.stdout)


def adapting(source):
    """Yield the rows of one task and of many, in microseconds."""
    _, printed = call(source, HERE / "adapting.py", "--worker")
    for case, numbers in json.loads(printed).items():
        for name, value in numbers.items():
            if name == "components":
                continue
            yield f"{case}: {name}", lambda value=value: value


def paper(source):
    """Yield the rows of the paper's algorithms."""
    for factor in (0.01, 1.0, 100.0, 1e4):
        yield (
            f"1,000 exact solves, absolute loss, 40 rows, 20 columns, θ = {factor:g} I, ms",
            lambda factor=factor: float(call(source, "-c", EXACT, factor)[1]),
        )
    _, printed = call(source, HERE / "training_step.py", "--seeds", 1)
    for line in printed.splitlines():
        inner, ratio = re.search(r"seed 0, (\w+):.* = (\d+); X τ", line).groups()
        yield (
            f"step of Algorithm 1 and 400 held-out tasks, {inner}: times as fast as the "
            "transcription",
            lambda ratio=ratio: float(ratio),
        )


def memory(source):
    """Yield the rows of peak memory over the start, in megabytes."""

    def scan():
        _, printed = call(source, HERE / "scans.py", "--tasks", 1_000_000)
        return [
            json.loads(line)["MB over the start"]
            for line in printed.splitlines()
            if line.startswith("{")
        ]

    yield "`scan` of a parquet file: 250,000 tasks / 1,000,000 / 1,000,000 with rows anywhere", scan
    yield (
        "`EmpiricalBayesClassifier`, 125,000 groups x 8 rows, 3 columns",
        lambda: fit(source, lambda: groups(125_000, binary=True), "EmpiricalBayesClassifier")[1],
    )


PARTS = {
    "start": (start, "Start: CPU seconds"),
    "fits": (fits, "Default fits: CPU seconds"),
    "adapting": (adapting, "One task and many: microseconds a task"),
    "paper": (paper, "The paper's algorithms"),
    "memory": (memory, "Peak memory over the start: MB"),
}


def measure(function, repeats):
    """Return the least of several measurements, or a dash."""
    try:
        found = [np.atleast_1d(function()) for _ in range(repeats)]
    except (Failure, subprocess.CalledProcessError) as problem:
        print(f"  not measured: {problem}", file=sys.stderr)
        return None
    return np.min(found, axis=0)


def shown(values):
    return (
        "–"
        if values is None
        else " / ".join(f"{value:.3g}" if value < 1000 else f"{value:.0f}" for value in values)
    )


def table(part, versions, repeats):
    """Measure one part for all versions in turns; return a table in Markdown."""
    function, title = PARTS[part]
    found = {}
    for name, source in versions.items():
        try:
            for row, run in function(source):
                values = measure(run, repeats if part in ("start", "fits") else 1)
                found.setdefault(row, {})[name] = values
                print(f"{name}: {row}: {shown(values)}", file=sys.stderr, flush=True)
        except Failure as problem:
            print(f"{name}: {part} not measured: {problem}", file=sys.stderr)
    head = ["", *versions]
    if part == "fits":
        head.append("lme4")
        for row, cells in found.items():
            cells["lme4"] = measure(lambda row=row: fit_lme4(row), repeats)
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [
        f"| {row} | " + " | ".join(shown(cells.get(name)) for name in head[1:]) + " |"
        for row, cells in found.items()
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--also", type=Path, help="src/ folder of another version")
    parser.add_argument("--name", default="other version", help="name of the other version")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the tables to docs/speed.md")
    given = parser.parse_args()
    versions = ({given.name: given.also.resolve()} if given.also else {}) | {"now": ROOT / "src"}
    machine = f"Measured by `python benchmarks/speed.py` on {os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}."
    text = "\n\n".join([*(table(part, versions, given.repeats) for part in given.only), machine])
    print(text)
    if given.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition("<!-- tables -->\n")
        _, _, after = rest.partition("<!-- end of tables -->\n")
        PAGE.write_text(
            f"{before}<!-- tables -->\n{text}\n<!-- end of tables -->\n{after}", encoding="utf-8"
        )


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    main()
