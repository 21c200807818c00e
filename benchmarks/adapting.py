"""One task and many: `load`, `adapt`, `predict`, `adapt_many` next to batched NumPy ridge solves,
`predict_tasks`; one thread.

    python benchmarks/adapting.py
    python benchmarks/adapting.py --also PYTHON [SRC]     # another version next to it

Times are CPU time of the thread, the shortest of several calls.  PYTHON is an interpreter and SRC
the folder to import the package from, where it is not installed there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
HERE = Path(__file__).resolve().parents[1] / "src"


def best_of(repeats, function, *args):
    """Shortest time of several calls after a first one."""
    function(*args)
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        function(*args)
        times.append(time.thread_time() - start)
    return min(times)


def serving(meta, X, y, load):
    """Microseconds to load a file, adapt to one task, and predict one row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.tailored")
        meta.save(path)
        out = {"load": best_of(5, load, path)}
    row, model = X[:1].copy(), meta.adapt(X, y)
    out |= {"adapt": best_of(2000, meta.adapt, X, y), "predict": best_of(2000, model.predict, row)}
    if not hasattr(meta, "classes_"):
        out["predict_interval"] = best_of(2000, model.predict_interval, row)
    return {name: 1e6 * value for name, value in out.items()}


def slopes(n_tasks, n_rows, n_features, seed):
    """Groups with an intercept and slopes of their own; labels, inputs and targets."""
    import numpy as np

    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_tasks), n_rows)
    X = rng.normal(size=(len(labels), n_features))
    w = rng.normal(size=(n_tasks, n_features + 1))
    y = w[labels, -1] + np.sum(X * w[labels, :-1], axis=1) + 0.5 * rng.normal(size=len(labels))
    return labels, X, y


def ridge(X, y, n_tasks):
    """All tasks with equally many rows by one call of each of matmul and solve."""
    import numpy as np

    rows = np.concatenate([X, np.ones((len(X), 1))], axis=1).reshape(n_tasks, -1, X.shape[1] + 1)
    targets, d = y.reshape(n_tasks, -1, 1), rows.shape[2]

    def solve():
        across = rows.transpose(0, 2, 1)
        systems = np.matmul(across, rows)
        systems[:, np.arange(d), np.arange(d)] += 1.0
        return np.linalg.solve(systems, np.matmul(across, targets))

    return solve


def worker():
    """Measure the version that this process imports."""
    import numpy as np

    import tailored
    from tailored import TaskSet
    from tailored.datasets import make_clusters

    learner = getattr(tailored, "EmpiricalBayesLearner", tailored.ConditionalLearner)
    out = {}
    labels, X, y = slopes(50_000, 8, 3, 1)
    cases = {
        f"{n} clusters, d = 20, 40 rows": [
            make_clusters(T, n_clusters=n, n_rows=40, random_state=seed)
            for seed, T in enumerate((800, 5000))
        ]
        for n in (2, 6)
    }
    cases |= {
        "one component, d = 3, 8 rows": (
            TaskSet(*slopes(1000, 8, 3, 0)[1:], slopes(1000, 8, 3, 0)[0]),
            TaskSet(X, y, labels),
        ),
    }
    for name, (train, tasks) in cases.items():
        meta = learner().fit(train)
        T = len(tasks)
        many = best_of(5, meta.adapt_many, tasks) / T
        solves = best_of(5, ridge(np.asarray(tasks.X), np.asarray(tasks.y), T)) / T
        one = np.array(tasks[0].X), np.array(tasks[0].y)
        sizes = {
            "components": int(meta.n_components_),
            "adapt_many": 1e6 * many,
            "ridge": 1e6 * solves,
        }
        out[name] = sizes | serving(meta, *one, tailored.load)
    if hasattr(tailored, "EmpiricalBayesClassifier"):
        binary = tasks[:500].replace(y=1.0 * (tasks[:500].y > 0.0))
        classifier = tailored.EmpiricalBayesClassifier().fit(binary)
        one = np.array(binary[0].X), np.array(binary[0].y)
        out["two classes, d = 3, 8 rows"] = serving(classifier, *one, tailored.load)
    out["predict_tasks, 100,000 tasks, d = 3, 8 + 2 rows"] = frames(learner, meta)
    print(json.dumps(out))


def frames(learner, meta):
    """Microseconds a task from frames to a frame, with intervals and without; nothing where there
    is no such method.
    """
    import pandas as pd

    if not hasattr(learner, "predict_tasks"):
        return {}
    tables = []
    for n_rows, seed in ((8, 2), (2, 3)):
        labels, X, y = slopes(100_000, n_rows, 3, seed)
        tables.append(
            pd.DataFrame({"task": labels, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
        )
    support, query = tables
    out = {}
    for kind_of_label, names in (
        ("numbers", support["task"]),
        ("strings", "task " + support["task"].astype(str)),
    ):
        given = support.assign(task=names)
        asked = query.assign(task=given["task"].drop_duplicates().repeat(2).to_numpy())
        for kind, coverage in (("predictions", None), ("intervals", 0.9)):
            taken = best_of(
                2,
                lambda c, a, g: meta.predict_tasks(a, g, coverage=c, task="task", target="y"),
                coverage,
                asked,
                given,
            )
            out[f"{kind}, labels are {kind_of_label}"] = 1e6 * taken / 100_000
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--also", nargs="+", metavar=("PYTHON", "SRC"), default=None)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker()
        return
    versions = {"here": (sys.executable, HERE)}
    if given.also:
        versions["other"] = (given.also[0], given.also[1] if len(given.also) > 1 else None)
    for version, (python, source) in versions.items():
        environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
        environment.pop("PYTHONPATH", None)
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        command = [python, str(Path(__file__).resolve()), "--worker"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for case, numbers in json.loads(done.stdout).items():
            shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
            print(f"{version}: {case}: {shown or 'not there'} (µs a task)")


if __name__ == "__main__":
    main()
