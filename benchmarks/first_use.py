"""From a fresh installation to the first prediction: the README's first example, compiled code and all.

    python benchmarks/first_use.py
    python benchmarks/first_use.py --also PYTHON [SRC]     # another version beside it, in turns

Each run is a new process with an empty cache of compiled code; interpreter, imports, compiler, fit, adapt and predict are
in the time.  PYTHON is an interpreter and SRC the folder to import the package from, where it is not installed there.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "src"

#: The example as it stood in commit dadfb15, whose learner of this name was the recommended one.
EXAMPLE = """
import time
start = time.perf_counter()
try:
    from tailored import EmpiricalBayesLearner as Learner
except ImportError:
    from tailored import ConditionalLearner as Learner
from tailored.datasets import make_clusters
imported = time.perf_counter()
tasks = make_clusters(200, n_clusters=6, random_state=0)
train, test = tasks.split([0.8, 0.2], random_state=0)
meta = Learner().fit(train)
fitted = time.perf_counter()
few = test[0]
model = meta.adapt(few.X[:40], few.y[:40])
prediction = model.predict(few.X[40:43])
print(f"{imported - start} {fitted - imported} {time.perf_counter() - fitted} {prediction[0]}")
"""


def run(python, source, cache):
    """Seconds of one new process, and those of its import, fit, and adapting and predicting."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": ""}
    environment.pop("PYTHONPATH", None)
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    start = time.perf_counter()
    done = subprocess.run(
        [python, "-c", EXAMPLE], env=environment, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - start, [float(word) for word in done.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--also", nargs="+", metavar=("PYTHON", "SRC"), default=None)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    versions = {"here": (sys.executable, HERE)}
    if given.also:
        versions["other"] = (given.also[0], given.also[1] if len(given.also) > 1 else None)
    found = {name: [] for name in versions}
    for _ in range(given.repeats):
        for name, (python, source) in versions.items():
            with tempfile.TemporaryDirectory() as cache:
                fresh, parts = run(python, source, cache)
                again, _ = run(python, source, cache)
            found[name].append((fresh, again, parts))
    for name, runs in found.items():
        fresh, _, (importing, fitting, adapting, prediction) = min(runs)
        print(
            f"{name}: {fresh:.1f} s to the first prediction ({importing:.1f} imports, {fitting:.1f} fit, {adapting:.1f} "
            f"adapt and predict), {min(again for _, again, _ in runs):.1f} s the second time; first prediction {prediction:.4f}"
        )


if __name__ == "__main__":
    main()
