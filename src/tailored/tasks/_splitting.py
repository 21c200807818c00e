"""How tasks and rows are drawn: numbers of tasks from sizes, and random keys of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import check_fraction, check_int, check_real, is_integer

#: Rows of a task: their number, or a fraction of all.
Share = int | float


def check_share(name: str, value: Any) -> Share:
    """A number of rows (0 or more) or a fraction strictly between 0 and 1."""
    if is_integer(value):
        return check_int(name, value, minimum=0)
    return check_fraction(name, value)


def row_counts(share: Share, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows of each task are given: never all and, under a fraction, one if there are two (half rounds up)."""
    most = np.maximum(sizes - 1, 0)
    if is_integer(share):
        return np.minimum(int(share), most)
    # the last term keeps products such as 0.29 * 50 on their side of the half
    part = np.floor(share * sizes + 0.5 + 1e-9).astype(np.int64)
    return np.clip(part, np.minimum(1, most), most)


def support_rows(offsets: np.ndarray, wanted: np.ndarray, rng: Any) -> NDArray[np.bool_]:
    """A mask of so many rows of each task: random ones, or the first ones without ``rng``."""
    sizes = np.diff(offsets)
    task = np.repeat(np.arange(len(sizes)), sizes)
    rank = within = np.arange(len(task)) - offsets[task]
    if rng is not None:
        # one lexsort over all rows: inside each task, order of its random keys
        order = np.lexsort((row_keys(rng, task, within), task))
        rank = np.empty_like(within)
        rank[order] = within
    return np.asarray(rank < wanted[task])


def row_keys(rng: Any, task: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Random keys that are functions of (seed, task, row) alone: SplitMix64, all rows in one go.

    A generator per task would cost a Python loop, and one stream for all rows would make the draw of a task
    depend on the sizes of the tasks before it.
    """

    def mix(z: np.ndarray) -> np.ndarray:
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    seed = np.frombuffer(rng.bytes(8), dtype="<u8")
    golden = np.uint64(0x9E3779B97F4A7C15)
    return mix(mix(seed + task.astype(np.uint64) * golden) + row.astype(np.uint64) * golden)


def task_counts(sizes: Any, n_tasks: int) -> list[int]:
    """Numbers of tasks for `split`; fractions are rounded so that the largest remainders gain."""
    values = list(sizes) if np.ndim(sizes) == 1 else []
    if not values:
        raise ValueError(
            f"sizes must be a list of numbers or fractions of tasks, as [0.8, 0.2]; got {sizes!r}."
        )
    if all(is_integer(v) for v in values):
        counts = [check_int(f"sizes[{i}]", v) for i, v in enumerate(values)]
        if sum(counts) > n_tasks:
            raise ValueError(f"sizes={values} asks for {sum(counts)} tasks, but there are {n_tasks}.")
        return counts
    if any(is_integer(v) for v in values):
        raise ValueError(f"sizes={values} mixes numbers and fractions of tasks; use one of them.")
    shares = np.array([check_real(f"sizes[{i}]", v, 0.0, 1.0) for i, v in enumerate(values)])
    if shares.sum() > 1 + 1e-9:
        raise ValueError(f"sizes={values} sums to {shares.sum():g}; fractions of tasks sum to at most 1.")
    exact = shares * n_tasks
    floors = np.floor(exact + 1e-9).astype(np.int64)
    spare = int(np.floor(exact.sum() + 0.5)) - int(floors.sum())
    floors[np.argsort(floors - exact, kind="stable")[:spare]] += 1
    if (floors == 0).any():
        part = int(np.argmin(floors))
        raise ValueError(f"sizes={values} leaves sizes[{part}] without a task: there are only {n_tasks}.")
    return floors.tolist()
