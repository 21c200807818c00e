"""Support and query rows of the same tasks, found by their labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._utils.validation import name_some, native
from ._frames import read_frame, read_labels
from ._joining import offsets_of
from ._long_frames import LongTable, task_columns
from ._task_set import TaskSet


class FrameRows(NamedTuple):
    """The rows of a frame as tasks; ``order`` are the rows of the frame, in the order of the tasks'."""

    tasks: TaskSet
    order: np.ndarray


def read_rows(frame: Any, name: str, table: LongTable) -> FrameRows:
    """Tasks from a frame that may have other columns than these, and need not have a target."""
    features = table.features or () if table.encoding is None else [c.name for c in table.encoding.features]
    wanted = [*task_columns(table.task), table.target, *features, *(table.side_columns or ())]
    check_has(frame, name, [column for column in wanted if column is not None])
    read = table.read()
    return FrameRows(TaskSet.from_grouped(*read), np.argsort(read.grouping.codes, kind="stable"))


def check_has(frame: Any, name: str, columns: Sequence[str]) -> None:
    """Refuse a frame without some of the columns."""
    present = read_frame(frame, name).columns
    lost = [column for column in columns if column not in present]
    if lost:
        raise ValueError(
            f"{name}: the frame has no column {name_some(lost)}; it has {name_some(present, 12)}."
        )


def label_list(groups: Any) -> list[Any]:
    """The labels of rows as Python objects, from anything that `TaskSet` takes for ``groups``."""
    labels = read_labels(groups, "groups")
    return native(labels) if isinstance(labels, np.ndarray) else labels


def matched(query: TaskSet, support: TaskSet | None) -> TaskSet:
    """The tasks of `query`, in its order, with their rows in `support`; those it lacks have none.

    Descriptions are those of the query, or else of the support, which must then have one for each task.
    """
    if support is None:
        return query.with_rows(np.zeros(len(query.y), dtype=bool), np.zeros(len(query), dtype=np.int64))
    at = places_in_support(query, support)
    found = at >= 0
    sizes = np.where(found, support.sizes[at], 0)
    offsets = offsets_of(sizes)
    rows = np.repeat(support.offsets[at] - offsets[:-1], sizes) + np.arange(offsets[-1])
    side, names = query.side_info, query.side_names
    if side is None and support.side_info is not None:
        if not found.all():
            lost = native(query.labels[~found])
            raise ValueError(
                f"side_info: task {name_some(lost)} of query has no support rows, and so no description; "
                "give the query side information as well."
            )
        side, names = support.side_info[at], support.side_names
    return TaskSet.from_arrays(
        support.X[rows],
        support.y[rows],
        offsets,
        query.labels,
        side,
        names,
        support.feature_names,
        support.encoding,
    )


def places_in_support(query: TaskSet, support: TaskSet) -> np.ndarray:
    """The position of each of the query's tasks in the support; −1 where it has none.  Some of them must be there."""
    at = places_of(query.labels, support.labels)
    if len(query) and len(support) and (at < 0).all():
        raise ValueError(
            f"support: none of its tasks is in query (support has {name_some(native(support.labels), 3)}, query "
            f"{name_some(native(query.labels), 3)}); labels match as Python's do, so that 7 is not '7'. Without support "
            "rows, pass support=None."
        )
    return at


def places_of(asked: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The position of each asked label among the known ones; −1 where it is none of them."""
    if np.array_equal(asked, known) and asked.dtype == known.dtype != object:
        return np.arange(len(asked))
    if asked.dtype.kind == known.dtype.kind and asked.dtype.kind in "iuU" and len(known):
        order = np.argsort(known)
        nearest = order[np.minimum(np.searchsorted(known, asked, sorter=order), len(known) - 1)]
        return np.where(known[nearest] == asked, nearest, -1)
    # labels of other types are equal as Python's are
    where = {label: t for t, label in enumerate(native(known))}
    return np.array([where.get(label, -1) for label in native(asked)], dtype=np.int64)
