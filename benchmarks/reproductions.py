"""The paper's five experiments on two cores: the clock's seconds (processor seconds), and how far the errors of two versions are apart.

    python benchmarks/reproductions.py --data FOLDER [--seeds 5]
    python benchmarks/reproductions.py --data FOLDER --seeds 1 --also PYTHON [SRC]     # another version beside it, in turns

Each experiment is a new process of `tailored reproduce`; compiled code is in its cache by a run of a tenth of the size
before.  PYTHON is an interpreter and SRC the folder to import the package from, where it is not installed there.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1] / "src"
EXPERIMENTS = ("clusters-2", "clusters-6", "lenk", "movielens", "jester")


def reproduce(version, experiment, folder, *options):
    """The clock's seconds and processor seconds of one experiment, whose results are in ``folder`` then."""
    python, source = version
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    # Not every version can be run as a module.
    command = [python, "-c", "from tailored.cli import app; app()", "reproduce", experiment]
    start, before = time.perf_counter(), processor_seconds()
    subprocess.run(
        [*command, "--jobs", "2", "--no-figures", "--out", str(folder), *options],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return np.array([time.perf_counter() - start, processor_seconds() - before])


def processor_seconds():
    """Of all processes that were waited for, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def curves(folder):
    """Test errors after each task, of every cell under a folder."""
    found = {}
    for path in Path(folder).rglob("cells/*.npz"):
        with np.load(path) as cell:
            found[path.stem] = cell["test"]
    return found


def near(one, other):
    """How many numbers of the two versions' curves are within 0.2 % of each other."""
    pairs = [(one[cell], other[cell]) for cell in one.keys() & other.keys()]
    close = sum(int(np.isclose(a, b, rtol=0.002, atol=0.0).sum()) for a, b in pairs)
    return f"{close} of {sum(len(a) for a, _ in pairs)}"


def shown(seconds):
    return f"{seconds[0]:.0f} s ({seconds[1]:.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--also", nargs="+", metavar=("PYTHON", "SRC"), default=None)
    parser.add_argument("--data", required=True, help="folder with the real data")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    versions = {"here": (sys.executable, HERE)}
    if given.also:
        versions = {"before": (given.also[0], given.also[1] if len(given.also) > 1 else None), **versions}
    print(
        "| experiment | "
        + " | ".join(versions)
        + " | errors within 0.2 % |\n"
        + "|---" * (len(versions) + 2)
        + "|"
    )
    total = dict.fromkeys(versions, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        for name, version in versions.items():
            reproduce(version, "clusters-2", Path(folder, name, "warm"), "--quick")
        for experiment in EXPERIMENTS:
            took, found = [], []
            for name, version in versions.items():
                place = Path(folder, name, experiment)
                options = ("--data", given.data, "--seeds", str(given.seeds))
                took.append(reproduce(version, experiment, place, *options))
                total[name] += took[-1]
                found.append(curves(place))
            same = near(*found) if len(found) > 1 else "–"
            print(f"| {experiment} | " + " | ".join(map(shown, took)) + f" | {same} |", flush=True)
    print("| all | " + " | ".join(map(shown, total.values())) + " | |")


if __name__ == "__main__":
    main()
