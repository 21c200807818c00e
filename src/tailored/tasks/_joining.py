"""One task, and how several become one set of flat arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .._validation import canonical_csr, check_target
from . import _frames
from ._frames import Rows


class Task(NamedTuple):
    """One task: its rows (a view of the set's), its side information (a row, or None) and its label."""

    X: Rows
    y: np.ndarray
    side_info: np.ndarray | None
    label: Any


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
        return rows, check_target(_frames.read_target(y), rows.shape[0]), side, names
    except ValueError as error:
        raise ValueError(f"Task {label!r}: {error}") from error


def stack(parts: list[Rows]) -> Rows:
    if any(sp.issparse(part) for part in parts):
        return canonical_csr(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)
