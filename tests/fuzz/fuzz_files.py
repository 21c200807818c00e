"""A seeded fuzzer of model files.

    python tests/fuzz/fuzz_files.py --count 100000 --seed 0 --jobs 2

takes the golden files, damages or forges them in the ways of `files_damage`, and loads what comes out.
A failure is
- any exception but `ModelFileError`, or one that only the last gate of the reader caught;
- code that ran: the audit hook of the process saw a call of another program, or the opening of another file;
- a damaged file, one without a right checksum, that loads;
- a forged file, with a right checksum, whose model neither answers with numbers of the right shape nor with a
  ValueError;
- memory beyond a bound, or files that are left behind.

A forged file that is consistent is a model, not a failure.
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

from files_damage import Corpus, damaged
from tailored import TaskRegressor, load
from tailored.exceptions import ModelFileError

#: Bytes that a load may take beside those of the process: twice the largest golden file would fit many times.
MEMORY = 256 * 2**20

SEEN, LOADING = [], []


def watch(event, arguments):
    """What code from a file would do while it is loaded: start programs, look up what a pickle names, connect."""
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
    """The answer of a model that was loaded, or the ValueError that it gives instead."""
    d = model.n_features_in_
    settings = (
        model if isinstance(model, TaskRegressor) and model._one is None else getattr(model, "prior_", None)
    )
    settings = model._one.prior if settings is None else settings
    if d > 1000 or settings.max_iter > 10_000:
        return "a model of many columns or steps"
    X = np.round(np.random.default_rng(0).normal(size=(3, d)), 3)
    try:
        with np.errstate(all="ignore"):
            one = model
            if not isinstance(model, TaskRegressor):
                side = {"side_info": np.zeros(model.n_side_info_in_)} if model.n_side_info_in_ else {}
                one = model.adapt(X, X[:, 0], **side)
            found = one.predict(X)
            if one._one is not None and one._one.prior.calibration is not None:
                one.predict_interval(X, 0.5)
    except ValueError:
        return "a ValueError of the model"
    if found.shape != (3,):
        return f"FAILURE: shape {found.shape}"
    return "a model" if np.isfinite(found).all() else "a model beyond the range of numbers"


def try_file(path, content, right):
    """What becomes of one file."""
    path.write_bytes(content)
    LOADING.append(True)
    try:
        model = load(path)
    except ModelFileError as error:
        if "cannot be read:" in error.reason:
            return f"FAILURE: {error.reason[:200]}"
        return "refused"
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


def run(count, seed, extra=()):
    """Counts of (class, outcome), and the numbers of files that failed."""
    warnings.simplefilter("ignore")
    corpus, counts, failures = Corpus(extra), Counter(), []
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
    """`run` in a process of its own, whose memory is bounded once it is warm."""
    sys.addaudithook(watch)
    run(20, f"warm {arguments[1]}")
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
    parts = [
        (given.count // given.jobs + (i < given.count % given.jobs), f"{given.seed}-{i}")
        for i in range(given.jobs)
    ]
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
