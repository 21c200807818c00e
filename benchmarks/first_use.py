"""CPU seconds of the README's first example in a new process, with an empty cache of compiled code and with a full one.

    python benchmarks/first_use.py
    python benchmarks/first_use.py --also PYTHON [SRC]     # another version next to it, in turns

Importing scikit-learn, SciPy and pandas is measured apart.  PYTHON is an interpreter and SRC the folder to import the package
from, where it is not installed there.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMED = """
import sys, time
import pandas, scipy, sklearn.base, sklearn.utils
imported = time.process_time()
import tailored
package = time.process_time()
from tailored import *
names = time.process_time()
{example}
parts = package - imported, names - package, time.process_time() - imported
print("cpu", imported, *parts, file=sys.stderr)
"""


def run(python, source, cache):
    """CPU seconds of the other packages' imports, of `import tailored`, of its names, and of all but the first."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": ""}
    environment.pop("PYTHONPATH", None)
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    command = [python, "-c", TIMED.replace("{example}", example[1])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stderr.rpartition("cpu")[2].split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--also", nargs="+", metavar=("PYTHON", "SRC"), default=None)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    versions = {"here": (sys.executable, ROOT / "src")}
    if given.also:
        versions["other"] = (given.also[0], given.also[1] if len(given.also) > 1 else None)
    found = {name: [] for name in versions}
    for _ in range(given.repeats):
        for name, (python, source) in versions.items():
            with tempfile.TemporaryDirectory() as cache:
                found[name].append([run(python, source, cache) for _ in ("empty", "full")])
    for name, runs in found.items():
        fresh, (imports, package, names, again) = (
            [min(numbers) for numbers in zip(*part, strict=True)] for part in zip(*runs, strict=True)
        )
        print(
            f"{name}: {fresh[-1]:.2f} s beyond other imports ({imports:.2f} s), {again:.2f} s the second time; "
            f"of these `import tailored` {package:.2f} s, all its names {names:.2f} s (CPU)"
        )


if __name__ == "__main__":
    main()
