"""Run the cells of experiments in parallel, keep what is finished, and write the table."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from ..files import make_folder, write_atomically
from ..parallel import in_any_order
from .cells import Cell, CellResult, list_cells, run_cells
from .config import ExperimentConfig
from .manifest import add_session
from .protocol import data_digest
from .store import REPRESENTATION_FILE, ExperimentStore
from .table import TABLE_FILE, Row, cell_rows, merge, read_rows, write_table


@dataclass(frozen=True)
class Plan:
    """One experiment of a run: its store, all of its cells, and those that are not there yet."""

    config: ExperimentConfig
    store: ExperimentStore
    cells: list[Cell]
    missing: list[Cell]
    damaged: list[str]


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    table: Path
    computed: int
    kept: int
    seconds: float


def plan(
    configs: Sequence[ExperimentConfig], out: Path, *, data: str | None = None, resume: bool = False
) -> list[Plan]:
    """Open the results folder for every experiment, before anything is computed.

    Raises `ResultsError` when the folder holds another configuration, or cells and ``resume`` is
    False.
    """
    make_folder(out)
    plans = []
    for config in configs:
        identity = config.identity() | {"data_sha256": data_digest(config, data)}
        store = ExperimentStore(out / config.name, identity)
        store.open(resume=resume)
        cells = list_cells(config)
        plans.append(Plan(config, store, cells, *store.missing(cells)))
    return plans


def execute(
    plans: Sequence[Plan],
    out: Path,
    *,
    data: str | None = None,
    n_jobs: int | None = None,
    tick: Callable[[], None] | None = None,
) -> Summary:
    """Compute the missing cells, then write representations, table and manifest.

    ``tick`` is called after each finished cell.  An interrupt or an error keeps the finished cells.
    """
    start = time.perf_counter()
    seconds: dict[str, float] = {p.config.name: 0.0 for p in plans}
    computed = 0
    finished = False
    try:
        for cell, took in chain.from_iterable(_run(plans, data, n_jobs)):
            seconds[cell.experiment] += took
            computed += 1
            if tick is not None:
                tick()
        _write_results(plans, out)
        finished = True
    finally:
        wall = time.perf_counter() - start
        # A manifest that cannot be written must not hide why the run stopped.
        add_session(
            out,
            {p.config.name: p.store.identity | {"seeds": p.config.grid.seeds} for p in plans},
            {
                "finished": finished,
                "cells": computed,
                "jobs": joblib.effective_n_jobs(n_jobs),
                "wall_seconds": round(wall, 2),
                "cell_seconds": {name: round(value, 2) for name, value in seconds.items()},
                "commit": commit(),
                "versions": versions(),
            },
            strict=finished,
        )
    kept = sum(len(p.cells) for p in plans) - computed
    return Summary(out / TABLE_FILE, computed, kept, wall)


def _run(
    plans: Sequence[Plan], data: str | None, n_jobs: int | None
) -> Iterator[list[tuple[Cell, float]]]:
    streams = [
        (p.config, p.store, list(cells), data)
        for p in plans
        for _, cells in groupby(p.missing, key=lambda cell: (cell.seed, cell.method))
    ]
    # Long ones first: the last streams of a run are then short, and no core waits for another.
    streams.sort(
        key=lambda stream: (
            not stream[2][0].method.startswith("conditional"),
            -stream[0].tasks.train,
        )
    )
    return in_any_order(compute_and_store, streams, n_jobs)


def compute_and_store(
    config: ExperimentConfig, store: ExperimentStore, cells: list[Cell], data: str | None
) -> list[tuple[Cell, float]]:
    """What a worker does; the cells of a stream are on disk before anybody hears of them."""
    start = time.perf_counter()
    results = run_cells(config, cells, data)
    took = (time.perf_counter() - start) / len(cells)
    for cell, result in zip(cells, results, strict=True):
        store.save(cell, result, took)
    return [(cell, took) for cell in cells]


def _write_results(plans: Sequence[Plan], out: Path) -> None:
    rows: list[Row] = []
    for p in plans:
        results = {cell: p.store.load(cell)[0] for cell in p.cells}
        rows += chain.from_iterable(
            cell_rows(p.config, cell, result) for cell, result in results.items()
        )
        _write_representation(p, results)
    path = out / TABLE_FILE
    write_table(path, merge(read_rows(path) if path.exists() else [], rows))


def _write_representation(p: Plan, results: Mapping[Cell, CellResult]) -> None:
    """Keep what seed 0 learned with the step size it chose, for each method that learns."""
    arrays: dict[str, Any] = {}
    for method in p.config.learning.methods:
        candidates = [cell for cell in p.cells if cell.method == method and results[cell].arrays]
        if candidates:
            # Cells come in order of their steps: `min` gives a tie to the smaller one, as the table
            # does.
            best = min(candidates, key=lambda cell: results[cell].validation)
            assert best.step is not None
            arrays[f"{method}/step_size"] = np.array(p.config.grid.step_sizes[best.step])
            arrays |= {f"{method}/{name}": value for name, value in results[best].arrays.items()}
    if not arrays:
        return
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(p.store.folder / REPRESENTATION_FILE, buffer.getvalue())


def commit() -> str:
    """Commit of this checkout, with "-dirty" if tracked files were changed; "unknown" outside
    git.
    """
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def versions() -> dict[str, str]:
    """Versions of what the numbers come from."""
    names = ("tailored", "numpy", "scipy", "numba", "scikit-learn", "joblib")
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found | {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
    }
