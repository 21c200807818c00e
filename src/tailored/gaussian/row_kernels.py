"""Compiled loops over the rows of many tasks: into their second moments, and from weights to what intervals need.

Nothing depends on the other tasks of a call, so that neither their order nor the number of threads changes a bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Reassociation lets dot products use vector registers; NaN and infinity keep their meaning.
OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}

#: The same for functions that only compiled ones call: they are kept in what these are compiled to.
PART: dict[str, Any] = {**OPTIONS, "cache": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(**OPTIONS)
def spreads(
    X: Array,
    y: Array,
    offsets: NDArray[np.int64],
    asked: Array,
    asked_offsets: NDArray[np.int64],
    shift: Array,
    scale: Array,
    target_shift: float,
    target_scale: float,
    weights: Array,
    roots: Array,
    ranks: NDArray[np.int64],
    squares: Array,
    centre: Array,
    variance: Array,
) -> None:
    """What intervals need: ‖y − Xw‖² of each task, and at each asked row ``<x, w>`` and its variance ``‖J x‖²``."""
    T, d = weights.shape
    given = X.shape[1]
    x = np.ones(d)
    for t in range(T):
        w, root = weights[t], roots[t]
        total = 0.0
        for i in range(offsets[t], offsets[t + 1]):
            row = X[i]
            left = (y[i] - target_shift) * target_scale
            for j in range(given):
                left -= (row[j] - shift[j]) * scale[j] * w[j]
            if d > given:
                left -= w[given]
            total += left * left
        squares[t] = total
        for i in range(asked_offsets[t], asked_offsets[t + 1]):
            row = asked[i]
            for j in range(given):
                x[j] = (row[j] - shift[j]) * scale[j]
            left = 0.0
            for j in range(d):
                left += x[j] * w[j]
            centre[i] = left
            total = 0.0
            for k in range(ranks[t]):
                value = 0.0
                for j in range(d):
                    value += root[k, j] * x[j]
                total += value * value
            variance[i] = total
