"""One task, and how several become one set of flat arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .._utils.validation import canonical_csr, check_finite, check_target, name_some, native
from . import _descriptions, _frames
from ._descriptions import Side
from ._frames import Rows


class _Fields(NamedTuple):
    X: Rows
    y: np.ndarray
    side_info: np.ndarray | None
    label: Any


class Task(_Fields):
    """One task: its rows (a view of the set's), its side information (a row, or None) and its label.

    Names of the columns, where the set has some, are attributes beside the four.
    """

    feature_names: np.ndarray | None = None
    side_names: list[str] | None = None


def offsets_of(sizes: Any) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def same(a: Any, b: Any) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def read_entry(entry: Any, label: Any) -> tuple[Rows, np.ndarray, Any, np.ndarray | None]:
    if not isinstance(entry, Task) and not (isinstance(entry, list | tuple) and len(entry) in (2, 3)):
        raise TypeError(f"task {label!r} must be a tuple (X, y) or (X, y, side_info); got {entry!r}.")
    X, y, side = entry[0], entry[1], entry[2] if len(entry) > 2 else None
    try:
        rows, names = _frames.read_features(X, min_rows=0)
        names = getattr(entry, "feature_names", None) if names is None else names
        return rows, check_target(_frames.read_target(y), rows.shape[0]), side, names
    except ValueError as error:
        raise ValueError(f"Task {label!r}: {error}") from error


def join_entries(entries: list[Any], labels: Any) -> tuple[Any, ...]:
    """The flat arrays of tasks given one by one; for `TaskSet.from_tasks`."""
    if labels is None:
        labels = [e.label if isinstance(e, Task) else t for t, e in enumerate(entries)]
    unique = _frames.read_distinct(labels, len(entries))
    keys = native(unique)
    parts = [read_entry(entry, key) for entry, key in zip(entries, keys, strict=True)]
    rows, targets, sides, names = (list(part) for part in zip(*parts, strict=True))
    for key, X, columns in zip(keys, rows, names, strict=True):
        if X.shape[1] != rows[0].shape[1]:
            raise ValueError(
                f"X of task {key!r} has {X.shape[1]} features, and of task {keys[0]!r} "
                f"{rows[0].shape[1]}. All tasks need the same features."
            )
        if not same(columns, names[0]):
            raise ValueError(f"X of task {key!r} has other column names than X of task {keys[0]!r}.")
    lost = [key for key, s in zip(keys, sides, strict=True) if s is None]
    if lost and len(lost) < len(keys):
        raise ValueError(f"side information is missing for task {name_some(lost)}: give it to all or none.")
    side = Side() if lost else _descriptions.side_from_rows(sides, keys)
    described = [getattr(entry, "side_names", None) for entry in entries]
    if side.names is None and all(given == described[0] for given in described):
        side = side._replace(names=described[0])
    X, y, offsets = stack(rows), np.concatenate(targets), offsets_of([len(y) for y in targets])

    def where(row: int) -> str:
        t = int(np.searchsorted(offsets, row, "right")) - 1
        return f"task {keys[t]!r}, row {row - offsets[t]}"

    check_finite(X, "X", where, names[0])
    check_finite(y, "y", where)
    return X, y, offsets, unique, side.values, side.names, names[0]


def check_alike(sets: list[Any]) -> Any:
    """Refuse task sets that do not agree in their columns; return the first."""
    first = sets[0]
    for i, other in enumerate(sets):
        for what in ("n_features", "feature_names", "side_names"):
            mine, theirs = getattr(first, what), getattr(other, what)
            if not same(mine, theirs):
                raise ValueError(f"sets[{i}] has {what} {theirs}, and sets[0] has {mine}: they must agree.")
        widths = [None if s.side_info is None else s.side_info.shape[1] for s in (first, other)]
        if widths[0] != widths[1]:
            raise ValueError(
                f"side_info has {widths[1] or 'no'} columns in sets[{i}] and {widths[0] or 'no'} in "
                "sets[0]: give it to all or none, with the same columns."
            )
    return first


def stack(parts: list[Rows]) -> Rows:
    if any(sp.issparse(part) for part in parts):
        return canonical_csr(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)
