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

#: Rows that are multiplied at a time.
_TILE = 64


@njit(**OPTIONS)
def second_moments(
    X: Array,
    y: Array,
    offsets: NDArray[np.int64],
    shift: Array,
    scale: Array,
    target_shift: float,
    target_scale: float,
    gram: Array,
    cross: Array,
    square: Array,
) -> None:
    """XᵀX, Xᵀy and yᵀy of every task for the inputs ``(x − shift) scale``, with a last column of ones where d is larger.

    Written into ``gram`` (T, d, d), ``cross`` (T, d) and ``square`` (T,).
    """
    T, d, _ = gram.shape
    given = X.shape[1]
    # Columns as rows, the targets as the last of them, and then zeros: pairs and fours come out even.
    columns = np.zeros(((d + 4) // 4 * 4, _TILE))
    products = np.empty((len(columns), len(columns)))
    if d > given:
        for i in range(_TILE):
            columns[given, i] = 1.0
    for t in range(T):
        first, stop = offsets[t], offsets[t + 1]
        for a in range(len(columns)):
            for c in range(len(columns)):
                products[a, c] = 0.0
        while first < stop:
            m = min(_TILE, stop - first)
            for i in range(m):
                x = X[first + i]
                for j in range(given):
                    columns[j, i] = (x[j] - shift[j]) * scale[j]
                columns[d, i] = (y[first + i] - target_shift) * target_scale
            _add_products(columns, m, d, products)
            first += m
        for a in range(d):
            for c in range(a + 1):
                gram[t, a, c] = products[a, c]
                gram[t, c, a] = products[a, c]
            cross[t, a] = products[d, a]
        square[t] = products[d, d]


@njit(**PART)
def _add_products(columns: Array, m: int, d: int, products: Array) -> None:
    """Inner products of the first d + 1 rows of ``columns`` over m entries, eight at a time; those below the diagonal."""
    for a in range(0, d + 1, 2):
        left, right = columns[a], columns[a + 1]
        for c in range(0, a + 2, 4):
            z0, z1, z2, z3 = columns[c], columns[c + 1], columns[c + 2], columns[c + 3]
            s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
            for i in range(m):
                u, v = left[i], right[i]
                s0 += u * z0[i]
                s1 += u * z1[i]
                s2 += u * z2[i]
                s3 += u * z3[i]
                s4 += v * z0[i]
                s5 += v * z1[i]
                s6 += v * z2[i]
                s7 += v * z3[i]
            above, below = products[a], products[a + 1]
            above[c] += s0
            above[c + 1] += s1
            above[c + 2] += s2
            above[c + 3] += s3
            below[c] += s4
            below[c + 1] += s5
            below[c + 2] += s6
            below[c + 3] += s7


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
