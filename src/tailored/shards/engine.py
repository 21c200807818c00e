"""Tasks whose rows stay in an engine: sums of products for each task are made there, and these come here.

Through narwhals, as products of columns and a plain grouped sum, which lazy frames and databases do well.  Columns and
targets are shifted by their means first, so that sums do not cancel.  Only the rows of a sample of whole tasks are fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .._utils.records import cached_property
from ..gaussian import TaskStatistics
from ..tasks import TaskScan, TaskSet, Units
from ..tasks.pieces import label_keys
from .disk import StatisticsOnDisk, write_block
from .reservoir import Reservoir
from .units import in_units

Array = NDArray[np.float64]

#: Numbers that one answer of the engine may hold (64 MB).
ANSWER_NUMBERS = 8_000_000


class EngineCollection:
    """The tasks of a scan whose rows stay where they are; it has what `Collection` has."""

    def __init__(self, scan: TaskScan, folder: Path, *, seed: int) -> None:
        self._scan, self._folder = scan, folder
        self._columns = scan.columns.among(scan.table.columns or [])
        frame: Any = nw.from_native(scan.table.data).lazy()
        inputs = [*(self._columns.features or ()), self._columns.target]
        _check_numbers(frame.collect_schema(), inputs)
        self._frame = frame.select(
            nw.col(self._columns.task),
            *(nw.col(name).cast(nw.Float64) for name in inputs),
            *(nw.col(name) for name in self._columns.side),
        )
        self.reservoir = self._sampled(Reservoir(seed=seed))

    @cached_property
    def target_range(self) -> tuple[float, float]:
        y = nw.col(self._columns.target)
        found = self._frame.select(low=y.min(), high=y.max()).collect()
        return float(found["low"][0]), float(found["high"][0])

    @cached_property
    def _sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels in their order, and rows of each."""
        found = self._frame.group_by(self._columns.task).agg(n=nw.len()).collect()
        found = found.sort(self._columns.task)
        labels = found[self._columns.task].to_numpy()
        return labels if labels.dtype.kind in "biuf" else np.array(labels.tolist()), found["n"].to_numpy()

    def _sampled(self, empty: Reservoir) -> Reservoir:
        """The reservoir that all rows would have led to, from the rows of its own tasks."""
        labels, sizes = self._sizes
        if not len(labels):
            raise ValueError(f"data: {self._scan.table.name} has no rows")
        order = np.argsort(label_keys(labels, empty.seed))
        held = np.cumsum(sizes[order]) * (len(self._columns.features or ()) + 1)
        # One more than there is room for: it says where the sample ends.
        n = min(int(np.searchsorted(held, empty.numbers, side="right")), empty.size) + 1
        chosen = labels[order[:n]].tolist()
        rows = self._frame.filter(nw.col(self._columns.task).is_in(chosen)).collect()
        tasks = TaskSet.from_frame(
            rows.to_native(),
            task=self._columns.task,
            target=self._columns.target,
            features=self._columns.features,
            side_columns=self._columns.side or None,
        )
        return empty.take(tasks)

    @cached_property
    def _shift(self) -> Units:
        """About the means of all rows."""
        names = [*(self._columns.features or ()), self._columns.target]
        found = self._frame.select(*(nw.col(name).mean() for name in names)).collect()
        means = np.array([float(found[name][0]) for name in names])
        if not np.isfinite(means).all():
            name = names[int(np.argmax(~np.isfinite(means)))]
            raise ValueError(
                f"data: column {name!r} has a missing or infinite value; drop those rows, or fill them in"
            )
        d = len(names) - 1
        return Units(np.ones(d + 1), 1.0, np.append(means[:d], 0.0), float(means[d]), True)

    def source(
        self,
        units: Units,
        describe: Callable[[TaskSet], Array] | None = None,
        leave: Any = None,
        *,
        name: str,
        n_threads: int = 1,
    ) -> StatisticsOnDisk:
        """Statistics of all tasks in these units, some tasks at a time."""
        if leave is not None:
            raise ValueError("common: it is fitted to rows, and these stay in their engine; leave common out")
        labels, _ = self._sizes
        d = len(self._columns.features or ())
        size = max(1, ANSWER_NUMBERS // ((d + 2) * (d + 3) // 2))
        folder = self._folder / f"blocks-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        blocks = []
        for i, first in enumerate(range(0, len(labels), size)):
            chosen = labels[first : first + size].tolist()
            statistics = in_units(self._summed(chosen[0], chosen[-1], describe), self._shift, units)
            blocks.append(folder / f"{i:04d}.block")
            write_block(blocks[-1], statistics)
        return StatisticsOnDisk(tuple(blocks), len(units.columns), n_threads)

    def _summed(self, low: Any, high: Any, describe: Callable[[TaskSet], Array] | None) -> TaskStatistics:
        """Sums of the tasks with labels from ``low`` to ``high``, in the units of `_shift`."""
        columns, shift = self._columns, self._shift
        task, names = nw.col(columns.task), [*(columns.features or ()), columns.target]
        means = np.append(shift.shift[:-1], shift.target_shift)
        some = self._frame.filter((task >= low) & (task <= high)).with_columns(
            **{
                f"c{i}": nw.col(name) - float(mean)
                for i, (name, mean) in enumerate(zip(names, means, strict=True))
            }
        )
        pairs = list(combinations_with_replacement(range(len(names)), 2))
        some = some.with_columns(**{f"p{i}_{j}": nw.col(f"c{i}") * nw.col(f"c{j}") for i, j in pairs})
        sums = [f"c{i}" for i in range(len(names))] + [f"p{i}_{j}" for i, j in pairs]
        ends = {f"low {s}": nw.col(s).min() for s in columns.side} | {
            f"high {s}": nw.col(s).max() for s in columns.side
        }
        found = (
            some.group_by(columns.task)
            .agg(n=nw.len(), **{s: nw.col(s).sum() for s in sums}, **ends)
            .collect()
        )
        found = found.sort(columns.task)
        return _statistics(found, len(names) - 1, self._described(found, describe))

    def _described(self, found: Any, describe: Callable[[TaskSet], Array] | None) -> Array | None:
        """Features of the tasks' descriptions, which must be the same in all of their rows."""
        if describe is None:
            return None
        columns = self._columns
        for name in columns.side:
            differs = (found[f"low {name}"] != found[f"high {name}"]).fill_null(False).to_numpy().astype(bool)
            if differs.any():
                row = int(np.argmax(differs))
                raise ValueError(
                    f"side information must be constant within a task, but column {name!r} of task "
                    f"{found[columns.task][row]!r} is {found[f'low {name}'][row]!r} and {found[f'high {name}'][row]!r}."
                )
        frame = found.select(
            nw.col(columns.task),
            *(nw.col(f"low {name}").alias(name) for name in columns.side),
            *(nw.lit(0.0).alias(name) for name in (*(columns.features or ()), columns.target)),
        )
        tasks = TaskSet.from_frame(
            frame.to_native(),
            task=columns.task,
            target=columns.target,
            side_columns=columns.side,
            encoding=self.reservoir.sample.encoding,
        )
        return describe(
            tasks.with_rows(np.zeros(len(tasks.y), dtype=bool), np.zeros(len(tasks), dtype=np.int64))
        )

    def forget_rows(self) -> None:
        """There are none here."""


def _check_numbers(types: Any, names: list[str]) -> None:
    for name in names:
        if not (types[name].is_numeric() or types[name] == nw.Boolean):
            raise ValueError(
                f"data: column {name!r} is {types[name]}, and rows stay in their engine; encode it as numbers there, or "
                "leave in_engine out"
            )


def _statistics(found: Any, d: int, side: Array | None) -> TaskStatistics:
    """The engine's table of sums as statistics, with the constant column last."""

    def column(name: str) -> Array:
        return np.asarray(found[name].to_numpy(), dtype=float)

    n = column("n")
    gram, cross = np.empty((len(n), d + 1, d + 1)), np.empty((len(n), d + 1))
    for i in range(d):
        for j in range(i, d):
            gram[:, i, j] = gram[:, j, i] = column(f"p{i}_{j}")
        gram[:, i, d] = gram[:, d, i] = column(f"c{i}")
        cross[:, i] = column(f"p{i}_{d}")
    gram[:, d, d], cross[:, d] = n, column(f"c{d}")
    return TaskStatistics(gram, cross, column(f"p{d}_{d}"), n, side)
