"""Odd tables for `TaskSet.from_frame` and `scan`: `python tests/fuzz/readers.py --count 20000
--seed 0`.

Every input is drawn from (seed, number), so that a failure is repeated by `--only NUMBER`.  The
tables are of pandas, polars and pyarrow.  The rows that are read are those of the table, and
dropped rows are reported; or a ValueError or TypeError names the column or argument.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from readers_frames import one_frame


class Found(NamedTuple):
    """Counts of classes and outcomes, and failures with the number of their input."""

    tried: Counter[tuple[str, str]]
    failed: list[tuple[int, str, dict[str, str]]]


def run(seed: int, numbers: Iterable[int]) -> Found:
    """So many inputs in this process."""
    found = Found(Counter(), [])
    for number in numbers:
        rng, seen = random.Random(f"{seed} {number}"), dict[str, str]()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seen["outcome"] = one_frame(rng, seen)
        except Exception as error:
            words = "".join(traceback.format_exception(error)[-2:])[-600:]
            found.failed.append((number, words, dict(seen)))
        found.tried.update(seen.items())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="repeat one input")
    options = parser.parse_args()
    start = time.monotonic()
    found = run(options.seed, range(options.count) if options.only is None else [options.only])
    for (name, value), times in sorted(found.tried.items()):
        print(f"  {name}: {value}, {times}")
    for number, words, seen in found.failed[:40]:
        print(f"\nFAILED {number} {seen}\n{words}")
    print(
        f"{sum(found.tried.values())} marks; {len(found.failed)} failures; "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if found.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
