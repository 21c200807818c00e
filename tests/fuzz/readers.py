"""Odd tables for `TaskSet.from_frame` and `scan`: `python tests/fuzz/readers.py --count 20000
--seed 0`.

Every input is drawn from (seed, number), so that a failure is repeated by `--only NUMBER`.  The
tables are of pandas, polars and pyarrow.  The rows that are read are those of the table, and
dropped rows are reported; or a ValueError or TypeError names the column or argument.
"""

from __future__ import annotations

import argparse
import datetime
import math
import random
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import tailored
from tailored import TaskSet, scan

DAY, ZONE = datetime.date(2024, 2, 28), ZoneInfo("America/New_York")
SOURCE = Path(tailored.__file__).parent


def _some(rng: random.Random, n: int, *values: Any) -> list[Any]:
    return [rng.choice(values) for _ in range(n)]


def _times(rng: random.Random, n: int, zone: Any = None) -> list[Any]:
    start = datetime.datetime(2024, 3, 9, 22, 30, tzinfo=zone)
    return [start + datetime.timedelta(hours=rng.randrange(100)) for _ in range(n)]


#: What a column may hold, as Python's own values; the plain numbers among them are compared with
#: what is read.
NUMBERS: dict[str, Callable[[random.Random, int], list[Any]]] = {
    "floats": lambda rng, n: [rng.gauss(0, 1) for _ in range(n)],
    "whole numbers": lambda rng, n: [rng.randrange(-5, 6) for _ in range(n)],
    "booleans": lambda rng, n: _some(rng, n, True, False),
    "huge whole numbers": lambda rng, n: _some(rng, n, 2**53 + 1, 2**62, -(2**61)),
    "above 2^63": lambda rng, n: _some(rng, n, 2**63 + 5, 2**64 - 1, 3),
    "tiny": lambda rng, n: _some(rng, n, 5e-324, 1e-310, 0.0, -0.0),
    "constant": lambda rng, n: [7] * n,
}
OTHERS: dict[str, Callable[[random.Random, int], list[Any]]] = {
    "floats with NaN": lambda rng, n: _some(rng, n, 1.5, float("nan"), -2.0),
    "with infinity": lambda rng, n: _some(rng, n, 1.5, float("inf"), -2.0),
    "large": lambda rng, n: _some(rng, n, 1e300, -1e308, 1.0),
    "numbers with None": lambda rng, n: _some(rng, n, 1, None, 3),
    "booleans with None": lambda rng, n: _some(rng, n, True, None, False),
    "beyond 64 bits": lambda rng, n: _some(rng, n, 2**70, 1, -(2**80)),
    "beyond floats": lambda rng, n: _some(rng, n, 10**400, 1),
    "words": lambda rng, n: _some(rng, n, "red", "green", "blue"),
    "words with None": lambda rng, n: _some(rng, n, "red", None, ""),
    "numbers as words": lambda rng, n: _some(rng, n, "1", "2.5", " 3"),
    "names of rows": lambda rng, n: [f"row {i}" for i in range(n)],
    "dates as words": lambda rng, n: _some(rng, n, "2024-02-28", "2024-03-01"),
    "bad dates as words": lambda rng, n: _some(rng, n, "2024-02-30", "2024-03-01"),
    "dates": lambda rng, n: [DAY + datetime.timedelta(days=rng.randrange(9)) for _ in range(n)],
    "dates with None": lambda rng, n: _some(rng, n, DAY, None),
    "first and last dates": lambda rng, n: _some(rng, n, datetime.date.min, datetime.date.max),
    "times": _times,
    "times with a zone": lambda rng, n: _times(rng, n, ZONE),
    "times of two kinds": lambda rng, n: [*_times(rng, n - n // 2, ZONE), *_times(rng, n // 2)],
    "durations": lambda rng, n: [datetime.timedelta(hours=rng.randrange(9)) for _ in range(n)],
    "clock times": lambda rng, n: _some(rng, n, datetime.time(1, 2), datetime.time(23, 59)),
    "decimals": lambda rng, n: _some(rng, n, Decimal("1.5"), Decimal("2.25")),
    "bytes": lambda rng, n: _some(rng, n, b"a", b"\xff"),
    "lists": lambda rng, n: _some(rng, n, [1, 2], [3], []),
    "records": lambda rng, n: _some(rng, n, {"a": 1}, {"a": 2}),
    "all missing": lambda rng, n: [None] * n,
    "mixed": lambda rng, n: _some(rng, n, 1, "a", None, 2.5),
    "tuples": lambda rng, n: _some(rng, n, (1, "a"), (2, "b")),
    "tuples with NaN": lambda rng, n: _some(rng, n, (1, float("nan")), (2, 1.0)),
    "complex": lambda rng, n: _some(rng, n, 1 + 2j, 3 + 0j),
    "objects": lambda rng, n: [object() for _ in range(n)],
    "categories": lambda rng, n: _some(rng, n, "low", "high"),
    "ordered categories": lambda rng, n: _some(rng, n, "low", "high"),
    "periods": lambda rng, n: _some(rng, n, pd.Period("2024-01"), pd.Period("2024-02")),
    "intervals": lambda rng, n: _some(rng, n, pd.Interval(0, 1), pd.Interval(1, 2)),
}
KINDS = NUMBERS | OTHERS
#: Where a kind is drawn for the target and the task: mostly such as make sense.
TARGETS = (*["floats"] * 60, *KINDS)
TASKS = (*["whole numbers"] * 40, *["words"] * 20, *KINDS)
NAMES = (
    "a",
    "b b",
    "",
    "=",
    "é",
    "x=1",
    "a" * 300,
    "task",
    "nan",
    "{0}",
    "%s",
    "\n",
    "🙂",
    "target",
)


class Table:
    """A table as lists, and as a frame of some library."""

    def __init__(self, rng: random.Random, seen: dict[str, str]):
        n = rng.choice((0, 1, 2, 5, 12, 30, 30))
        names: list[Any] = rng.sample(NAMES, rng.choice((2, 3, 3, 4, 5)))
        self.library = rng.choice(("pandas", "polars", "pyarrow"))
        if self.library == "pandas" and rng.random() < 0.15:
            odd = rng.choice((0, ("a", 1), None, 2.5, names[0], b"b"))
            names[rng.randrange(len(names))] = odd
        self.names = names
        mostly = tuple(NUMBERS) * rng.choice((1, 1, 10))
        self.kinds = [rng.choice((*mostly, *KINDS)) for _ in names]
        self.kinds[0], self.kinds[1] = rng.choice(TASKS), rng.choice(TARGETS)
        self.values = [KINDS[kind](rng, n) for kind in self.kinds]
        self.n_rows = n
        seen["library"], seen["rows"] = self.library, str(n)
        seen["inputs"], seen["target"], seen["task"] = self.kinds[-1], self.kinds[1], self.kinds[0]
        self.frame = getattr(self, f"_{self.library}")()

    def column(self, name: Any) -> list[Any]:
        return self.values[self.names.index(name)]

    def kind(self, name: Any) -> str:
        return self.kinds[self.names.index(name)]

    def _pandas(self) -> Any:
        columns = []
        for kind, values in zip(self.kinds, self.values, strict=True):
            if "categories" in kind:
                levels = ["never", "low", "high"]
                made: Any = pd.Series(
                    pd.Categorical(values, levels, ordered=kind.startswith("ordered"))
                )
            elif kind == "objects" or kind == "lists":
                made = pd.Series(values, dtype=object)
            else:
                made = pd.Series(values)
            columns.append(made)
        frame = pd.concat(columns, axis=1)
        frame.columns = pd.Index(self.names, dtype=object)
        return frame

    def _polars(self) -> Any:
        columns = []
        for name, kind, values in zip(self.names, self.kinds, self.values, strict=True):
            if "categories" in kind:
                levels = (
                    pl.Enum(["never", "low", "high"])
                    if kind.startswith("ordered")
                    else pl.Categorical
                )
                columns.append(pl.Series(name, values, dtype=levels))
            else:
                columns.append(pl.Series(name, values, strict=False))
        return pl.DataFrame(columns)

    def _pyarrow(self) -> Any:
        columns = []
        for kind, values in zip(self.kinds, self.values, strict=True):
            made = pa.array(values)
            columns.append(made.dictionary_encode() if "categories" in kind else made)
        return pa.Table.from_arrays(columns, names=list(self.names))


def one_frame(rng: random.Random, seen: dict[str, str]) -> str:
    """Draw a table and read it: "read", "refused", or "no frame" where its library will not hold
    it.
    """
    try:
        table = Table(rng, seen)
    except (
        pl.exceptions.PolarsError,
        pa.ArrowException,
        TypeError,
        OverflowError,
        ValueError,
    ) as error:
        if SOURCE in Path(traceback.extract_tb(error.__traceback__)[-1].filename).parents:
            raise
        return "no frame"
    given = {"task": table.names[0], "target": table.names[1]}
    others = table.names[2:]
    if others and rng.random() < 0.3:
        given["features"] = rng.sample(others, rng.randrange(1, len(others) + 1))
    if others and rng.random() < 0.2:
        given["side_columns"] = [others[-1]]
    if rng.random() < 0.05:
        given[rng.choice(list(given))] = rng.choice(("no such column", 3, ["a", "a"]))
    reader = rng.choice((_from_frame, _from_frame, _dropping, _scanning))
    seen["reader"] = reader.__name__.strip("_")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tasks = reader(table, given)
        except (ValueError, TypeError) as error:
            _check_refusal(table, error)
            return "refused"
        _check_read(table, given, tasks)
    return "read"


def _from_frame(table: Table, given: dict[str, Any]) -> TaskSet:
    return TaskSet.from_frame(table.frame, **given)


def _dropping(table: Table, given: dict[str, Any]) -> TaskSet:
    return TaskSet.from_frame(table.frame, **given, missing="drop")


def _scanning(table: Table, given: dict[str, Any]) -> TaskSet:
    pieces = list(scan(table.frame, **given).batches())
    if not pieces:
        assert not table.n_rows
        return TaskSet.from_frame(table.frame, **given)
    return pieces[0][0]


def _check_refusal(table: Table, error: Exception) -> None:
    """Ours: raised by the package itself, with the argument or the column in the message."""
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    assert SOURCE in last.parents, f"from {last.name}: {type(error).__name__}: {error}"
    words = str(error)
    named = [repr(name) for name in table.names]
    arguments = (
        "task",
        "target",
        "features",
        "side_columns",
        "groups",
        "frame",
        "data",
        "missing",
        "X",
        "y ",
    )
    assert any(word in words for word in (*named, *arguments)), (
        f"a message that names nothing: {words}"
    )


def _check_read(table: Table, given: dict[str, Any], tasks: TaskSet) -> None:
    """Finite arrays of matching shapes, every row told of, and plain numbers as they stood in the
    table.
    """
    assert np.isfinite(tasks.X).all(), "inputs that are no numbers"
    assert np.isfinite(tasks.y).all(), "targets that are no numbers"
    n = len(tasks.y)
    assert tasks.X.shape[0] == n == tasks.sizes.sum() == tasks.offsets[-1]
    assert len(tasks.labels) == len(tasks.sizes) == len(set(tasks.labels.tolist()))
    assert f"{n:,} row{'s' * (n != 1)}" in " ".join(str(tasks.describe()).split())
    dropped = dict(tasks.encoding.dropped)
    assert n + sum(dropped.values()) == table.n_rows, f"{n} and {dropped} of {table.n_rows} rows"
    if n == table.n_rows and table.kind(given["task"]) in (*NUMBERS, "words"):
        _check_values(table, given, tasks)


def _check_values(table: Table, given: dict[str, Any], tasks: TaskSet) -> None:
    groups = table.column(given["task"])
    order = [
        i for label in dict.fromkeys(groups) for i, found in enumerate(groups) if found == label
    ]
    assert tasks.labels.tolist() == list(dict.fromkeys(groups)), "other labels"
    names = list(tasks.feature_names)
    # Columns that are constant within tasks are side information as well.
    aside = tasks.side_names or []
    wanted = given.get("features", [name for name in table.names[2:] if name not in aside])
    # Classes are read as their positions; without a target there are none.
    targets = [] if tasks.encoding.classes or given["target"] is None else [given["target"]]
    for name in [*targets, *wanted]:
        if table.kind(name) not in NUMBERS or (name != given["target"] and name not in names):
            continue
        found = tasks.y if name == given["target"] else tasks.X[:, names.index(name)]
        for value, i in zip(found, order, strict=True):
            assert value == float(table.column(name)[i]), (
                f"{name!r}: {table.column(name)[i]!r} is read as {value!r}"
            )
    for name in wanted:
        if (
            table.kind(name) == "words" and table.n_rows and isinstance(name, str) and name
        ):  # polars renames ""
            levels = sorted(set(table.column(name)))
            for level in levels[1:]:
                found = tasks.X[:, names.index(f"{name}={level}")]
                assert [bool(v) for v in found] == [table.column(name)[i] == level for i in order]
    assert not any(math.isnan(float(size)) for size in tasks.sizes)


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
