"""Time and memory of fits of large tables: `python benchmarks/scans.py [--tasks 1000000]`.

A table of so many tasks of 20 rows with 10 columns, in a parquet file that is written first, in a
temporary folder:
`EmpiricalBayesLearner(n_jobs=2).fit(tailored.scan(file))`, and the same with a quarter of the
tasks.  Peak memory over the start: the largest resident set of a process of its own, less the one
it had when all was imported.
Each measurement is a process of its own; each prints one line of JSON.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

N_ROWS, N_COLUMNS = 20, 10


def environment(rng, n_tasks):
    """Weights with a common mean that differ in three directions more than in the others."""
    root = (
        np.random.default_rng(7).normal(size=(N_COLUMNS, N_COLUMNS))
        * np.r_[1, 1, 1, np.full(7, 0.2)]
    )
    return 1.0 + rng.normal(size=(n_tasks, N_COLUMNS)) @ root.T


def rows(seed, n_tasks, first=0):
    rng = np.random.default_rng([seed, first])
    task = np.repeat(np.arange(n_tasks), N_ROWS)
    X = 5.0 + rng.normal(size=(len(task), N_COLUMNS))
    y = np.einsum("ij,ij->i", X, environment(rng, n_tasks)[task]) + rng.normal(size=len(task))
    return X, y, first + task


def write_table(path, n_tasks, shuffled, block=20_000):
    """Rows of a task together, or (``shuffled``) two thirds of them in another half of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for part in range(1 + shuffled):
        for first in range(0, n_tasks, block):
            X, y, task = rows(0, min(block, n_tasks - first), first)
            if shuffled:
                chosen = np.flatnonzero((np.arange(len(y)) % 3 == 0) == (part == 0))
                chosen = np.random.default_rng([part, first]).permutation(chosen)
                X, y, task = X[chosen], y[chosen], task[chosen]
            columns = {f"x{j}": X[:, j] for j in range(N_COLUMNS)}
            table = pa.table({"task": task, **columns, "y": y})
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
    writer.close()


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit_table(path, n_tasks):
    from tailored import EmpiricalBayesLearner, TaskSet, scan

    # Compiled loops are loaded from their cache, or made, before the clock starts.
    EmpiricalBayesLearner(n_jobs=2).fit(TaskSet(*rows(1, 200)))
    start, before, processor = megabytes(), time.perf_counter(), time.process_time()
    learner = EmpiricalBayesLearner(loss="absolute", n_jobs=2).fit(
        scan(path, task="task", target="y")
    )
    seconds, peak = time.perf_counter() - before, megabytes() - start
    processor = time.process_time() - processor
    new = TaskSet(*rows(2, 500))
    error = float(np.mean(learner.task_errors(new, n_support=10)))
    return {
        "fit": n_tasks,
        "seconds": round(seconds, 1),
        "processor seconds": round(processor, 1),
        "MB over the start": round(peak),
        "form": learner.structure_,
        "tasks": learner.training_summary_.n_tasks,
        "error on new tasks": error,
    }


def in_a_process(*arguments):
    found = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    print(found.stdout.strip() or found.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1_000_000, help="of the table")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(fit_table(asked.one[0], int(asked.one[1]))))
    else:
        sizes = (asked.tasks // 4, False), (asked.tasks, False), (asked.tasks, True)
        with tempfile.TemporaryDirectory() as folder:
            for n_tasks, shuffled in sizes:
                path = Path(folder) / f"{n_tasks}-{shuffled}.parquet"
                write_table(path, n_tasks, shuffled)
                print(
                    f"{n_tasks} tasks, rows {'anywhere' if shuffled else 'of a task together'}:",
                    flush=True,
                )
                in_a_process("--one", path, n_tasks)
                path.unlink()


if __name__ == "__main__":
    main()
