"""Tasks whose rows come in several pieces, in any order: a number for each label, and pieces put together by label."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import is_missing, native
from ._columns import ColumnEncoding as ColumnEncoding
from ._descriptions import Side as Side
from ._descriptions import side_column as side_column
from ._frames import Grouping, group_rows
from ._frames import is_dask as is_dask
from ._frames import is_frame as is_frame
from ._frames import read_frame as read_frame
from ._frames import remaining as remaining
from ._joining import check_alike as check_alike
from ._joining import offsets_of, stack
from ._task_set import TaskSet

Keys = NDArray[np.uint64]


def label_keys(labels: np.ndarray, seed: int = 0) -> Keys:
    """A number for each label that looks random, the same in every process and next to whichever other labels.

    Labels that are equal have equal keys, as 7 and 7.0 do; different ones nearly always different keys.
    """
    with np.errstate(over="ignore"):
        start = np.uint64(seed % 2**64) * np.uint64(0x9E3779B97F4A7C15)
        return _mixed(_mixed(_numbers(labels) + start) + start)


def _mixed(numbers: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _numbers(labels: np.ndarray) -> Keys:
    kind = labels.dtype.kind
    if kind in "biu":
        return labels.astype(np.uint64 if kind == "u" else np.int64).view(np.uint64)
    if kind in "mM":
        return labels.astype(f"{kind}8[ns]").view(np.uint64)
    if kind == "f":
        values = labels.astype(np.float64)
        whole = (values == np.round(values)) & (np.abs(values) < 2.0**63)
        return np.where(
            whole, np.where(whole, values, 0.0).astype(np.int64).view(np.uint64), values.view(np.uint64)
        )
    return np.fromiter((_number(label) for label in native(labels)), dtype=np.uint64, count=len(labels))


def _number(label: Any) -> int:
    if isinstance(label, int) or (isinstance(label, float) and label.is_integer() and abs(label) < 2.0**63):
        return int(label) % 2**64
    if isinstance(label, float):
        return int(np.float64(label).view(np.uint64))
    return int.from_bytes(blake2b(repr(label).encode(), digest_size=8).digest(), "little")


def in_label_order(tasks: TaskSet, seed: int = 0) -> TaskSet:
    """The tasks in the order of their labels' keys, which looks random and is the same whatever order they came in.

    What is learned from them in this order, with draws and sums by position, only depends on which tasks there are.
    """
    keys = label_keys(tasks.labels, seed)
    if (keys[1:] >= keys[:-1]).all():
        return tasks
    return tasks[np.argsort(keys, kind="stable")]


def merged(sets: Iterable[TaskSet]) -> TaskSet:
    """The tasks of all sets, in the order in which their labels first appear, each with its rows from all of them.

    Rows of a task stand in the order of the sets.  Its description must be the same in each.
    """
    sets = list(sets)
    if len(sets) == 1:
        return sets[0]
    check_alike(sets)
    grouping = grouped([one.labels for one in sets])
    sizes = np.concatenate([one.sizes for one in sets])
    side = _descriptions([one.side_info for one in sets], grouping, sets[0].side_names)
    X, y = stack([one.X for one in sets]), np.concatenate([one.y for one in sets])
    if len(grouping.labels) < len(sizes):
        order = np.argsort(np.repeat(grouping.codes, sizes), kind="stable")
        X, y = X[order], y[order]
        sizes = np.bincount(grouping.codes, weights=sizes).astype(np.int64)
    return TaskSet.from_arrays(
        X,
        y,
        offsets_of(sizes),
        grouping.labels,
        side,
        sets[0].side_names,
        sets[0].feature_names,
        sets[0].encoding if all(one.encoding == sets[0].encoding for one in sets) else None,
    )


def grouped(labels: list[np.ndarray]) -> Grouping:
    """The tasks that labels of several sets name; those of different kinds as Python's own, which parts 1 and "1"."""
    if len({array.dtype.kind for array in labels}) == 1:
        together: Any = np.concatenate(labels)
    else:
        together = [label for array in labels for label in native(array)]
    return group_rows(together, len(together))


def _descriptions(tables: list[Any], grouping: Grouping, names: list[str] | None) -> np.ndarray | None:
    """The tasks' rows of all tables, which must say the same of a task wherever it appears."""
    if tables[0] is None:
        return None
    mixed = any(table.dtype == object for table in tables)
    table: np.ndarray = np.concatenate([table.astype(object) if mixed else table for table in tables])
    if len(grouping.first) == len(table):
        return table
    expected = table[grouping.first][grouping.codes]
    differs = np.asarray(table != expected, dtype=bool)
    if differs.any():
        both = zip(table[differs], expected[differs], strict=True)
        # What is missing on both sides is the same, though NaN is unequal to itself.
        differs[differs] = [not (is_missing(here) and is_missing(there)) for here, there in both]
    if differs.any():
        row, column = (int(i) for i in np.argwhere(differs)[0])
        name = repr(names[column]) if names else str(column)
        label = native(grouping.labels)[grouping.codes[row]]
        there, here = native(np.array([expected[row, column], table[row, column]], dtype=table.dtype))
        raise ValueError(
            f"side information must be constant within a task, but column {name} of task {label!r} is {there!r} in one "
            f"piece and {here!r} in a later one."
        )
    return table[grouping.first]
