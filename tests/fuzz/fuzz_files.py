"""Fuzz model files with a seed.

    python tests/fuzz/fuzz_files.py --count 100000 --seed 0 --jobs 2

saves small models, damages their files in the ways of `files_damage`, and loads the result.  A failure is
- any exception but `ModelFileError`;
- executed code: the audit hook of the process saw a new process, a pickle or a connection;
- a file without a right checksum that loads;
- a file with a right checksum whose model raises anything but a ValueError, or predicts an array of another shape;
- memory beyond a limit, or files that are left behind.

A crafted file that is consistent is a model, not a failure.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "model_files")]
import small_models
from files_damage import Corpus, damaged
from tailored import TaskRegressor, load
from tailored.exceptions import ModelFileError

#: Bytes that the process may allocate beyond those in use before the run.
MEMORY = 512 * 2**20

SEEN, LOADING = [], []


def watch(event, arguments):
    """Record what code from a file could do while it is loaded: start programs, unpickle, connect."""
    if LOADING and event in (
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "pickle.find_class",
        "socket.connect",
    ):
        SEEN.append((event, str(arguments)[:200]))


def ask(model):
    """Predict with a model that was loaded, and return what happened."""
    d = model.n_features_in_
    settings = getattr(model, "prior_", model)
    if d > 2000 or getattr(settings, "max_iter", 0) > 10_000:
        return "a model of many columns or steps"
    X = np.round(np.random.default_rng(0).normal(size=(3, d)), 3)
    try:
        with np.errstate(all="ignore"):
            one = model
            if not isinstance(model, TaskRegressor):
                side = {"side_info": np.zeros(model.n_side_info_in_)} if model.n_side_info_in_ else {}
                one = model.adapt(X, X[:, 0], **side)
            found = one.predict(X)
            one.predict_interval(X, 0.5)
    except ValueError as error:
        if "no calibration" not in str(error):
            return "a ValueError of the model"
    if found.shape != (3,):
        return f"FAILURE: shape {found.shape}"
    return "a model" if np.isfinite(found).all() else "a model that overflows"


def try_file(path, content, right):
    """Load one file, and return what happened."""
    path.write_bytes(content)
    LOADING.append(True)
    try:
        model = load(path)
    except ModelFileError as error:
        return "refused by the last handler" if "cannot be read:" in error.reason else "refused"
    except BaseException as error:
        return f"FAILURE: {type(error).__name__}: {error}"[:200]
    finally:
        LOADING.clear()
    if not right:
        return "FAILURE: a damaged file was loaded"
    try:
        return ask(model)
    except Exception as error:
        return f"FAILURE: {type(error).__name__} of a model: {error}"[:200]


def run(count, seed, models):
    """Return counts of (class, outcome), and the files that failed."""
    warnings.simplefilter("ignore")
    corpus, counts, failures = Corpus(Path(models)), Counter(), []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        path = Path(folder) / "model"
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            kind, content, right = damaged(rng, corpus)
            outcome = try_file(path, content, right)
            if SEEN:
                outcome = f"FAILURE: code ran: {SEEN.pop()}"
            if os.listdir(folder) != ["model"]:
                outcome = f"FAILURE: files were left behind: {os.listdir(folder)}"
            if outcome.startswith("FAILURE"):
                failures.append((seed, number, kind, outcome))
                outcome = "FAILURE"
            counts[kind, outcome] += 1
    return counts, failures


def limited(arguments):
    """Run in a process whose memory is limited after some files."""
    sys.addaudithook(watch)
    run(20, f"warm {arguments[1]}", arguments[2])
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    return run(*arguments)


def table(counts):
    outcomes = sorted({outcome for _, outcome in counts})
    lines = ["| class | " + " | ".join(outcomes) + " |", "|---" * (1 + len(outcomes)) + "|"]
    for kind in sorted({kind for kind, _ in counts}):
        lines.append(f"| {kind} | " + " | ".join(str(counts[kind, outcome]) for outcome in outcomes) + " |")
    total = [str(sum(n for (_, found), n in counts.items() if found == outcome)) for outcome in outcomes]
    return "\n".join([*lines, f"| all {sum(counts.values())} | " + " | ".join(total) + " |"])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    start, counts, failures = time.perf_counter(), Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        small_models.save_all(Path(folder))
        sizes = [given.count // given.jobs + (i < given.count % given.jobs) for i in range(given.jobs)]
        parts = [(size, f"{given.seed}-{i}", folder) for i, size in enumerate(sizes)]
        with get_context("spawn").Pool(given.jobs) as pool:
            for found, failed in pool.imap_unordered(limited, parts):
                counts.update(found)
                failures += failed
    seconds = time.perf_counter() - start
    print(table(counts))
    print(
        f"{given.count} files in {seconds:.0f} s, {given.count / seconds:.0f} a second; {len(failures)} failures"
    )
    for failure in failures[:20]:
        print(*failure)
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
