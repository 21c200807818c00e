"""Default fits of `EmpiricalBayesLearner` at the sizes that matter: seconds, and errors on tasks that were not seen.

    python benchmarks/fits.py
    python benchmarks/fits.py --also PYTHON [SRC]          # another version beside it, in turns
    python benchmarks/fits.py --only clusters-6 groups --repeats 3 --cap 300 --csv fits.csv

Every fit is a new process with `n_jobs=2` (``--jobs``), warmed up by a small fit, so that no compiler is in the time; one
that takes longer than the cap is ended and its time printed as a bound.  Where R has lme4, its fits of the groups stand
beside ours.  PYTHON is an interpreter and SRC the folder to import the package from, where it is not installed there.
"""

import argparse
import csv
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1] / "src"
#: New tasks that errors are measured on.
N_NEW = 100

FIT = """
import json, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
try:
    from tailored import EmpiricalBayesLearner as Learner
except ImportError:
    from tailored import ConditionalLearner as Learner
from tailored import TaskSet
from tailored.datasets import make_clusters
data, n_jobs = np.load(sys.argv[1]), int(sys.argv[2])
def tasks(name):
    n = data[name + "_sizes"]
    return TaskSet(data[name + "_X"], data[name + "_y"], np.repeat(np.arange(len(n)), n))
train, support, query = tasks("train"), tasks("support"), tasks("query")
d = train.n_features
Learner(n_jobs=n_jobs).fit(make_clusters(60, n_rows=8, n_features=min(d, 20), rank=1, random_state=0))
if d > 64:
    Learner(n_jobs=n_jobs).fit(train[:45])
learner = Learner(loss="absolute", n_jobs=n_jobs)
wall, processor = time.perf_counter(), time.process_time()
learner.fit(train)
wall, processor = time.perf_counter() - wall, time.process_time() - processor
weights = learner.adapt_many(support).weights_
X = query.X if weights.shape[1] == d else np.hstack([query.X, np.ones((len(query.X), 1))])
missed = np.abs(np.einsum("nd,nd->n", X, np.repeat(weights, query.sizes, axis=0)) - query.y)
error = float(np.mean([part.mean() for part in np.split(missed, query.offsets[1:-1])]))
print(json.dumps({"seconds": wall, "processor": processor, "error": error, "form": str(learner.structure_)}))
"""

LME4 = """
args <- commandArgs(TRUE)
suppressMessages(library(lme4))
data <- read.csv(args[1])
start <- proc.time()
fitted <- lmer(as.formula(args[2]), data)
took <- proc.time() - start
cat(took[["elapsed"]], took[["user.self"]] + took[["sys.self"]], "\\n")
"""


def clusters(n_train, n_clusters, given, **options):
    """Tasks of the paper's clusters: ``given`` rows to learn from, and to adapt on, as many as that to predict."""

    def draw(seed):
        from tailored.datasets import make_clusters

        drawn = make_clusters(
            n_train + N_NEW, n_clusters=n_clusters, n_rows=2 * given, random_state=seed, **options
        )
        X, y = drawn.X.reshape(len(drawn), 2 * given, -1), drawn.y.reshape(len(drawn), 2 * given)
        return split(X, y, n_train, given)

    return draw


def groups(slopes):
    """125,000 groups of 8 rows of 3 columns, whose slopes differ, or whose level alone does."""

    def draw(seed, T=125_000, n=16, d=3):
        rng = np.random.default_rng(seed)
        X, noise = rng.normal(size=(T + N_NEW, n, d)), rng.normal(size=(T + N_NEW, n))
        weights = np.broadcast_to([1.0, 2.0, 3.0], (T + N_NEW, d))
        if slopes:
            weights = weights + rng.normal(size=weights.shape) * [1.0, 0.5, 0.2]
        level = rng.normal(size=T + N_NEW)
        return split(X, np.einsum("tnd,td->tn", X, weights) + level[:, None] + noise, T, n // 2)

    return draw


def split(X, y, n_train, given):
    """Rows to learn from, and of the other tasks rows to adapt on and to predict."""
    parts = {
        "train": (X[:n_train, :given], y[:n_train, :given]),
        "support": (X[n_train:, :given], y[n_train:, :given]),
        "query": (X[n_train:, given:], y[n_train:, given:]),
    }
    out = {}
    for name, (inputs, targets) in parts.items():
        out[f"{name}_X"] = inputs.reshape(-1, inputs.shape[2])
        out[f"{name}_y"] = targets.ravel()
        out[f"{name}_sizes"] = np.full(len(inputs), inputs.shape[1])
    return out


WIDE = {"n_clusters": 1, "given": 20, "rank": 5}
SIZES = {
    "clusters-6": clusters(800, 6, 40),
    "clusters-12": clusters(800, 12, 40, n_features=40, rank=3),
    "20,000 x 20, d = 20": clusters(20_000, 6, 20),
    "60 x 20, d = 100": clusters(60, n_features=100, **WIDE),
    "60 x 20, d = 200": clusters(60, n_features=200, **WIDE),
    "groups, slopes": groups(slopes=True),
    "groups, intercept": groups(slopes=False),
}
FORMULAS = {
    "groups, slopes": "y ~ x1 + x2 + x3 + (1 + x1 + x2 + x3 | g)",
    "groups, intercept": "y ~ x1 + x2 + x3 + (1 | g)",
}


def run(command, cap, **options):
    """The last line that a process prints, or None where it takes too long."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            printed, _ = process.communicate(timeout=cap)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with status {process.returncode}")
    return printed.strip().splitlines()[-1]


def fit(version, path, given):
    """Seconds, processor seconds and error of one fit."""
    python, source = version
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    # What comes before the fit (interpreter, imports, compiler) is not the fit's.
    line = run([python, "-c", FIT, str(path), str(given.jobs)], given.cap + 120.0, env=environment)
    return {"seconds": np.inf, "cap": given.cap} if line is None else json.loads(line)


def fit_lme4(name, data, folder, cap):
    """Seconds of lme4 for the same rows."""
    path = folder / "groups.csv"
    columns = [np.repeat(np.arange(len(data["train_sizes"])), data["train_sizes"]), data["train_y"]]
    table = np.column_stack([*columns, data["train_X"]])
    np.savetxt(path, table, delimiter=",", header="g,y,x1,x2,x3", comments="", fmt="%.10g")
    line = run(["Rscript", "-e", LME4, str(path), FORMULAS[name]], cap + 60.0, stderr=subprocess.DEVNULL)
    if line is None:
        return {"seconds": np.inf, "cap": cap}
    seconds, processor = map(float, line.split())
    return {"seconds": seconds, "processor": processor}


def measure(name, versions, given, folder):
    """All repeats of all versions at one size, in turns."""
    data = SIZES[name](given.seed)
    path = folder / "tasks.npz"
    np.savez(path, **data)
    found = []
    for repeat in range(given.repeats):
        for version, where in versions.items():
            found.append({"size": name, "version": version, "repeat": repeat, **fit(where, path, given)})
            print(found[-1], file=sys.stderr, flush=True)
    if name in FORMULAS and shutil.which("Rscript") and not given.without_lme4:
        found.append(
            {"size": name, "version": "lme4", "repeat": 0, **fit_lme4(name, data, folder, given.cap)}
        )
        print(found[-1], file=sys.stderr, flush=True)
    return found


def table(rows, versions):
    """Medians, and ratios to the version here, in Markdown."""

    def median(name, version, key):
        values = [
            row[key] for row in rows if row["size"] == name and row["version"] == version and key in row
        ]
        return statistics.median(values) if values else None

    def seconds(name, version):
        value = median(name, version, "seconds")
        if value is None:
            return "–"
        return f"{value:.1f} s" if np.isfinite(value) else f"> {median(name, version, 'cap'):.0f} s"

    others = [version for version in (*versions, "lme4") if version != "here"]
    head = ["size", *others, "here", *(f"{other} / here" for other in others if other != "lme4"), "error"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in dict.fromkeys(row["size"] for row in rows):
        cells = [name, *(seconds(name, version) for version in (*others, "here"))]
        for other in others[:-1]:
            ratio = (median(name, other, "seconds") or np.nan) / (median(name, "here", "seconds") or np.nan)
            cells.append(f"{ratio:.1f}")
        errors = [median(name, version, "error") for version in (*others[:-1], "here")]
        cells.append(" → ".join("–" if error is None else f"{error:.5f}" for error in errors))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--also", nargs="+", metavar=("PYTHON", "SRC"), default=None)
    parser.add_argument("--only", nargs="+", default=list(SIZES), help="beginnings of the sizes' names")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cap", type=float, default=300.0, help="seconds that a fit may take")
    parser.add_argument("--without-lme4", action="store_true")
    parser.add_argument("--csv", type=Path, default=None)
    given = parser.parse_args()
    versions = {"here": (sys.executable, HERE)}
    if given.also:
        versions = {"before": (given.also[0], given.also[1] if len(given.also) > 1 else None), **versions}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in SIZES:
            if any(name.startswith(beginning) for beginning in given.only):
                rows += measure(name, versions, given, Path(folder))
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, n_jobs={given.jobs}, seed {given.seed}\n"
    )
    print(table(rows, versions))
    if given.csv is not None:
        with given.csv.open("w", newline="") as file:
            keys = ("size", "version", "repeat", "seconds", "processor", "error", "form", "cap")
            writer = csv.DictWriter(file, keys)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
