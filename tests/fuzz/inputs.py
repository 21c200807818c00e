"""Odd inputs for every public call: `python tests/fuzz/inputs.py --count 100000 --fits 20000 --seed 0 --jobs 2`.

Every input is drawn from (seed, number), so that a failure is repeated by `--only NUMBER`.  What counts as a failure
stands in `inputs_verdict`; the classes that were tried are counted and printed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from inputs_fits import fit_one, fit_two_units, stream_one
from inputs_questions import ask_one, part_alone
from inputs_verdict import FAILURES, OUTCOMES, Failure, Terminal


class Found(NamedTuple):
    """Counts of classes, and failures with the number of their input."""

    tried: Counter[tuple[str, str]]
    failed: list[tuple[int, str, dict[str, str]]]


def one_input(seed: int, number: int, n_fits: int) -> dict[str, str]:
    """Input ``number``: the first ``n_fits`` are fitted to, the others are put to fitted learners."""
    rng = np.random.default_rng([seed, number])
    seen: dict[str, str] = {}
    kind = rng.random()
    try:
        if number < n_fits:
            if kind < 0.02:
                fit_two_units(rng, seen)
            elif kind < 0.07:
                stream_one(rng, seen)
            else:
                fit_one(rng, seen)
        elif kind < 0.8:
            ask_one(rng, seen)
        else:
            part_alone(rng, seen)
    except Failure as failure:
        failure.seen = seen  # type: ignore[attr-defined]
        raise
    except Exception as error:
        text = "".join(traceback.format_exception(error))[-600:]
        unexpected = Failure(f"outside a call: {text}")
        unexpected.seen = seen  # type: ignore[attr-defined]
        raise unexpected from error
    return seen


def run(seed: int, numbers: range, n_fits: int) -> Found:
    """Many inputs in this process."""
    found, terminal = Found(Counter(), []), Terminal()
    OUTCOMES.clear()
    with terminal.watched():
        for number in numbers:
            try:
                seen = one_input(seed, number, n_fits)
                words = terminal.written()
                if words:
                    found.failed.append((number, f"on the terminal: {words[:200]!r}", seen))
            except Failure as failure:
                terminal.written()
                seen = failure.seen  # type: ignore[attr-defined]
                found.failed.append((number, str(failure), seen))
            found.tried.update(seen.items())
    terminal.close()
    found.tried.update({("outcome of a call", name): n for name, n in OUTCOMES.items()})
    return found


def run_in_parts(seed: int, count: int, n_fits: int, jobs: int) -> Found:
    """All inputs, in several processes; every part has its share of fits."""
    total = Found(Counter(), [])
    parts = max(jobs * 40, 1)
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run, seed, range(p, count, parts), n_fits) for p in range(parts)]
        for job in waiting:
            part = job.result()
            total.tried.update(part.tried)
            total.failed.extend(part.failed)
            for number, text, _ in part.failed:
                print(f"--fits {n_fits} --only {number}: {text}", file=sys.stderr, flush=True)
    total.failed.sort()
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--fits", type=int, default=400, help="how many of them are fitted to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, help="repeat this input, with the whole traceback")
    parser.add_argument("--show", type=int, default=40, help="kinds of failures to show")
    given = parser.parse_args()
    if given.only is not None:
        print(one_input(given.seed, given.only, given.fits))
        return 0
    start = time.perf_counter()
    found = run_in_parts(given.seed, given.count, given.fits, given.jobs)
    print(f"A failure is {' '.join(FAILURES.split())}.\n")
    bad = Counter(item for _, _, seen in found.failed for item in seen.items())
    print("| | class | inputs | failures |\n|---|---|---|---|")
    for (kind, name), n in sorted(found.tried.items()):
        print(f"| {kind} | {name} | {n} | {bad[kind, name]} |")
    kinds = Counter(text for _, text, _ in found.failed)
    for text, n in kinds.most_common(given.show):
        first = next((number, seen) for number, words, seen in found.failed if words == text)
        print(f"\n{n} x {text}\n    first: --fits {given.fits} --only {first[0]}: {first[1]}")
    took = time.perf_counter() - start
    print(
        f"\n{given.count} inputs, {given.fits} of them fitted to, seed {given.seed}: {len(found.failed)} failures in {took:.0f} s"
    )
    return 1 if found.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
