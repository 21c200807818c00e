"""Describe the registered tables, print the order in which tables were drawn, or run the
benchmark.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .definitions import TABLES
from .draw import FIRST, KNOWN, PASSED, UNITS, candidates, is_candidate, order
from .run import print_scores, run
from .tables import describe


def main(what: str = "tables", *rest: str) -> None:
    """Print one line per registered table, per table of the order, or per table that was looked
    at; run the benchmark, or print its scores.
    """
    if what == "order":
        for pair in order():
            print("/".join(pair), "candidate" if is_candidate(*pair) else "", flush=True)
    elif what == "passed":
        names = list(candidates())
        for number, name in enumerate(names, 1):
            known = name.split("/")[1] in KNOWN
            told = (
                "registered"
                if name in TABLES
                else "used before"
                if known
                else PASSED.get(name, UNITS)
            )
            if number <= FIRST or name in PASSED or name in TABLES:
                print(f"{number} {name}: {told}")
    elif what == "tables":
        for table in TABLES.values():
            print(describe(table), flush=True)
    elif what == "run":
        run(Path(rest[0]), list(rest[1:]))
    elif what == "scores":
        print_scores(Path(rest[0]))
    else:
        raise SystemExit(f"{what!r} is not one of tables, order, passed, run, scores")


if __name__ == "__main__":
    main(*sys.argv[1:])
