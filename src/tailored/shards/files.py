"""Arrays and tasks in plain files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..tasks import TaskSet


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file aside, see it on the disk, and move it into place: whoever dies leaves the old one, or none."""
    aside = path.with_name(path.name + ".part")
    with open(aside, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    if not hasattr(os, "O_DIRECTORY"):  # where folders cannot be opened, moving is all there is
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_array(file: IO[bytes], array: np.ndarray) -> None:
    """Append an array; one of objects as JSON, which keeps numbers, words and None."""
    if array.dtype == object:
        array = np.frombuffer(json.dumps(array.tolist()).encode(), dtype=np.uint8)
        np.lib.format.write_array(file, np.array(["json"]))
    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def read_array(file: IO[bytes]) -> np.ndarray:
    """The next array that `write_array` wrote."""
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind != "U" or array.shape != (1,) or array[0] != "json":
        return array
    text = np.lib.format.read_array(file, allow_pickle=False).tobytes()
    rows = json.loads(text)
    if not rows or not isinstance(rows[0], list):
        return np.fromiter(rows, dtype=object, count=len(rows))
    table = np.empty((len(rows), len(rows[0])), dtype=object)
    table[:] = rows
    return table


def write_tasks(file: IO[bytes], tasks: TaskSet) -> None:
    """Append the rows, labels and descriptions of tasks, not the names of their columns."""
    side = np.zeros((len(tasks), 0)) if tasks.side_info is None else tasks.side_info
    for array in (tasks.labels, tasks.sizes, tasks.X, tasks.y, side):
        write_array(file, array)


def read_tasks(file: IO[bytes], like: TaskSet) -> TaskSet:
    """The next tasks; their columns have the names that those of ``like`` have."""
    labels, sizes, X, y, side = (read_array(file) for _ in range(5))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    described: Any = None if like.side_info is None else side
    return TaskSet.from_arrays(
        X, y, offsets, labels, described, like.side_names, like.feature_names, like.encoding
    )
