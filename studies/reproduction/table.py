"""The tidy table of results: one row per (experiment, method, seed, step size, number of tasks,
split).

Test rows hold the error at every number of training tasks (`EmpiricalBayesLearner`: at the last),
validation rows the one at the end, which chooses the step size. The field of the step size is empty
for methods without one.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailored._utils.validation import check_choice

from ..files import ResultsError, write_atomically
from .cells import Cell, CellResult
from .config import EXPERIMENTS, METHODS, ExperimentConfig

Array = NDArray[np.float64]

TABLE_FILE = "results.csv.gz"
COLUMNS = ("experiment", "method", "seed", "step_size", "n_tasks", "split", "error")


class Row(NamedTuple):
    """A line of the table, as text: what is read is written back unchanged."""

    experiment: str
    method: str
    seed: str
    step_size: str
    n_tasks: str
    split: str
    error: str


def cell_rows(config: ExperimentConfig, cell: Cell, result: CellResult) -> Iterator[Row]:
    """Yield the rows of one cell."""
    step = "" if cell.step is None else repr(config.grid.step_sizes[cell.step])
    head = (cell.experiment, cell.method, str(cell.seed), step)
    last = config.tasks.train
    for t, error in enumerate(result.test, start=last + 1 - len(result.test)):
        yield Row(*head, str(t), "test", repr(float(error)))
    yield Row(*head, str(last), "validation", repr(result.validation))


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write the table, gzipped if the name ends so; equal rows give equal bytes (no time stamp, no
    name inside).
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    content = text.getvalue().encode()
    write_atomically(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read_rows(path: Path) -> list[Row]:
    """The rows of a table, as text."""
    try:
        with (
            gzip.open(path, "rt", newline="")
            if path.suffix == ".gz"
            else path.open(newline="") as handle
        ):
            lines = csv.reader(handle)
            header = next(lines, [])
            if tuple(header) != COLUMNS:
                raise ResultsError(
                    f"{path}: expected the columns {', '.join(COLUMNS)}; got {', '.join(header)}"
                )
            return [Row(*line) for line in lines]
    except FileNotFoundError as error:
        raise ResultsError(
            f"there is no {path}: `python -m studies reproduce` writes it when a run is complete "
            "(an interrupted run is continued with --resume)"
        ) from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, TypeError) as error:
        raise ResultsError(
            f"{path} is not a table of results ({error}); remove it, and run `reproduce` with "
            "--resume"
        ) from error


def merge(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """New rows beside those of other experiments, experiments in the paper's order."""
    new = list(new)
    replaced = {row.experiment for row in new}
    by_name: dict[str, list[Row]] = {}
    for row in [*(row for row in old if row.experiment not in replaced), *new]:
        by_name.setdefault(row.experiment, []).append(row)
    order = [name for name in EXPERIMENTS if name in by_name]
    order += sorted(name for name in by_name if name not in EXPERIMENTS)
    return [row for name in order for row in by_name[name]]


@dataclass(frozen=True)
class Curves:
    """One method of one experiment."""

    seeds: list[int]
    n_tasks: int  # number of training tasks at the end
    step_sizes: Array  # (n_steps,); empty for methods without a step size
    validation: Array  # errors at the end of training, (n_seeds, n_steps or 1)
    chosen: NDArray[
        np.int64
    ]  # position of the best validation error of each seed; the smaller step wins a tie
    test: (
        Array  # test curves of the chosen step sizes, (n_seeds, T), or the ends only, (n_seeds, 1)
    )

    @property
    def final(self) -> Array:
        """Errors at the end of the curve, (n_seeds,)."""
        return self.test[:, -1]


class Results:
    """The table, indexed for figures and reports."""

    def __init__(self, rows: Iterable[Row]) -> None:
        cells: dict[tuple[str, str], dict[tuple[int, float], dict[str, dict[int, float]]]] = {}
        for row in rows:
            step = float(row.step_size) if row.step_size else np.nan
            by_cell = cells.setdefault((row.experiment, row.method), {})
            # NaN is no key that can be found again.
            splits = by_cell.setdefault((int(row.seed), 0.0 if np.isnan(step) else step), {})
            splits.setdefault(row.split, {})[int(row.n_tasks)] = float(row.error)
        self._curves = {key: _curves(*key, by_cell) for key, by_cell in cells.items()}

    @classmethod
    def read(cls, folder: Path | str) -> Results:
        """Read the table of a results folder (or the file itself)."""
        path = Path(folder)
        return cls(read_rows(path / TABLE_FILE if path.is_dir() or not path.suffix else path))

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self._curves))

    def methods(self, experiment: str) -> list[str]:
        """Methods of an experiment, in the order of tables."""
        present = {method for name, method in self._curves if name == experiment}
        return [name for name in METHODS if name in present]

    def curves(self, experiment: str, method: str) -> Curves:
        check_choice("experiment", experiment, self.experiments)
        check_choice("method", method, self.methods(experiment))
        return self._curves[experiment, method]

    def ends(self) -> Iterator[Row]:
        """Yield the ends of the curves only, as rows without a step size: a table small enough for
        a repository.
        """
        for (experiment, method), curves in self._curves.items():
            validation = curves.validation[np.arange(len(curves.seeds)), curves.chosen]
            for seed, *errors in zip(curves.seeds, curves.final, validation, strict=True):
                for split, error in zip(("test", "validation"), errors, strict=True):
                    end = str(curves.n_tasks), split, repr(float(error))
                    yield Row(experiment, method, str(seed), "", *end)


def _curves(
    experiment: str, method: str, cells: dict[tuple[int, float], dict[str, dict[int, float]]]
) -> Curves:
    seeds = sorted({seed for seed, _ in cells})
    steps = sorted({step for _, step in cells})
    try:
        validation = np.array(
            [[max(cells[seed, step]["validation"].items())[1] for step in steps] for seed in seeds]
        )
        chosen = validation.argmin(axis=1)
        test = []
        for seed, best in zip(seeds, chosen, strict=True):
            curve = cells[seed, steps[best]]["test"]
            test.append([curve[t] for t in range(min(curve), max(curve) + 1)])
        n_tasks, sizes = max(curve), np.array([step for step in steps if step > 0])
        return Curves(seeds, n_tasks, sizes, validation, chosen, np.array(test))
    except (KeyError, ValueError) as error:
        raise ResultsError(
            f"the table is incomplete for {experiment}, {method}: {error!r}"
        ) from error
