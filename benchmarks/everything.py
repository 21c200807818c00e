"""All measurements of docs/speed.md in one run: `python benchmarks/everything.py --before PYTHON [SRC] --data FOLDER`.

Another version, PYTHON with the package installed or SRC to import it from, stands beside this one where there is
something to compare.  Scripts that use one thread run two at a time, each on a core of its own where the system can say so;
the others have the machine to themselves.  What they print goes to the terminal and, script by script, to ``--log``.
Allow an hour, and leave the machine alone.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent


def machine():
    """The processor and the commit, in a line."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line),
            cpu,
        )
    commit = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return f"{cpu}, {os.cpu_count()} cores; {platform.python_version()}; commit {commit}; load {load:.2f} at the start"


def measure(log, core, script, *arguments):
    """Run one script, on one core or on all; keep what it prints."""
    command = [sys.executable, str(HERE / script), *arguments]
    if core is not None and shutil.which("taskset"):
        command = ["taskset", "-c", str(core), *command]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    failed = f"\nended with status {done.returncode}\n{done.stderr[-3000:]}" if done.returncode else ""
    text = (
        f"## {script} {' '.join(arguments)}\n\n{done.stdout}{failed}\n({time.perf_counter() - start:.0f} s)\n"
    )
    print(text, flush=True)
    with log.open("a") as file:
        file.write(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--before", nargs="+", metavar=("PYTHON", "SRC"), required=True)
    parser.add_argument("--data", required=True, help="folder with the real data")
    parser.add_argument("--seed", default="201", help="of the fits")
    parser.add_argument("--cap", default="150", help="seconds that a fit of either version may take")
    parser.add_argument("--seeds", default="5", help="of the reproductions, of both versions")
    parser.add_argument("--log", type=Path, default=Path("speed.log"))
    given = parser.parse_args()
    os.environ["TAILORED_DATA"] = given.data
    also = ("--also", *given.before)
    given.log.write_text(machine() + "\n\n")
    lanes = (
        [("adapting.py", *also), ("first_use.py", *also, "--repeats", "2")],
        [
            ("training_step.py",),
            ("streams.py", "--tasks", "0"),
            ("streams.py", "--tasks", "0", "--piece", "100"),
        ],
    )
    with ThreadPoolExecutor(2) as pool:
        for core, lane in enumerate(lanes):
            pool.submit(lambda core=core, lane=lane: [measure(given.log, core, *work) for work in lane])
    for work in (
        ("fits.py", *also, "--seed", given.seed, "--cap", given.cap),
        ("streams.py", "--pieces", "0"),
        ("scaling.py",),
        ("reproductions.py", "--data", given.data, "--seeds", given.seeds, *also),
        ("ratings.py", "--step"),
        ("ratings.py", "--data", "movielens", "--seeds", "0", "1", "2"),
    ):
        measure(given.log, None, *work)


if __name__ == "__main__":
    main()
