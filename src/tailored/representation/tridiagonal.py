"""The lowest eigenpairs of a symmetric tridiagonal matrix, compiled.

LAPACK computes them one after the other, which costs more than the reduction to this form: with `scipy.linalg.eigh`
on a subset a step of Algorithm 1 takes 15 to 25 % longer.  Here all of them advance together through every loop over
the rows: bisection with Sturm counts, then one vector each from the two factorisations that meet where the pivot is
smallest (Parlett and Dhillon's twisted factorisation).  Vectors of nearly equal eigenvalues may not be orthogonal,
which the caller has to check.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Smallest absolute value of a pivot.
_TINY = 1e-290


@njit(nogil=True, cache=True, error_model="numpy")
def counts(diagonal: Array, squares: Array, shifts: Array, pivots: Array, below: Array) -> None:
    """Count the eigenvalues below each of the shifts, by the signs of the pivots.

    ``squares`` are the squared off-diagonal entries.
    """
    for j in range(len(shifts)):
        pivots[j] = diagonal[0] - shifts[j]
        below[j] = 1.0 if pivots[j] < 0.0 else 0.0
    for i in range(1, len(diagonal)):
        a, b = diagonal[i], squares[i - 1]
        for j in range(len(shifts)):
            s = pivots[j]
            s = s if abs(s) > _TINY else -_TINY
            s = a - shifts[j] - b / s
            pivots[j] = s
            below[j] += 1.0 if s < 0.0 else 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def bisected(diagonal: Array, squares: Array, n_lowest: int, least: float, bound: float) -> Array:
    """Return the lowest eigenvalues, which lie between ``least`` and ``bound``."""
    low, high = np.full(n_lowest, least), np.full(n_lowest, bound)
    middle, pivots, below = np.empty(n_lowest), np.empty(n_lowest), np.empty(n_lowest)
    for _ in range(60):
        widest = 0.0
        for j in range(n_lowest):
            middle[j] = 0.5 * (low[j] + high[j])
            widest = max(widest, (high[j] - low[j]) / max(abs(low[j]), 1e-3 * abs(least)))
        if widest < 4e-16:
            break
        counts(diagonal, squares, middle, pivots, below)
        for j in range(n_lowest):
            if below[j] > j:
                high[j] = middle[j]
            else:
                low[j] = middle[j]
    return middle


@njit(nogil=True, cache=True, error_model="numpy")
def twisted(diagonal: Array, beside: Array, values: Array) -> Array:
    """Return unit eigenvectors (n, p), one for each eigenvalue."""
    n, p = len(diagonal), len(values)
    down, up, Z = np.empty((n, p)), np.empty((n, p)), np.empty((n, p))
    down[0], up[n - 1] = diagonal[0] - values, diagonal[n - 1] - values
    for i in range(1, n):
        a, b = diagonal[i], beside[i - 1] * beside[i - 1]
        for j in range(p):
            s = down[i - 1, j]
            down[i, j] = a - values[j] - b / (s if abs(s) > _TINY else _TINY)
    for i in range(n - 2, -1, -1):
        a, b = diagonal[i], beside[i] * beside[i]
        for j in range(p):
            s = up[i + 1, j]
            up[i, j] = a - values[j] - b / (s if abs(s) > _TINY else _TINY)
    smallest, meet = np.full(p, np.inf), np.zeros(p, np.int64)
    for i in range(n):
        for j in range(p):
            pivot = abs(down[i, j] + up[i, j] - (diagonal[i] - values[j]))
            if pivot < smallest[j]:
                smallest[j], meet[j] = pivot, i
    norms = np.zeros(p)
    for j in range(p):
        Z[meet[j], j] = 1.0
    for i in range(n - 2, -1, -1):
        for j in range(p):
            if i < meet[j]:
                s = down[i, j]
                Z[i, j] = -beside[i] / (s if abs(s) > _TINY else _TINY) * Z[i + 1, j]
    for i in range(1, n):
        for j in range(p):
            if i > meet[j]:
                s = up[i, j]
                Z[i, j] = -beside[i - 1] / (s if abs(s) > _TINY else _TINY) * Z[i - 1, j]
    for i in range(n):
        for j in range(p):
            norms[j] += Z[i, j] * Z[i, j]
    for i in range(n):
        for j in range(p):
            Z[i, j] /= np.sqrt(norms[j])
    return Z


def lowest(diagonal: Array, beside: Array, bound: float) -> tuple[Array, Array]:
    """Return the eigenvalues below ``bound``, ascending, and their unit vectors; ``beside`` (n − 1,) is off-diagonal."""
    squares, one = np.square(beside), np.empty(1)
    below = np.empty(1)
    counts(diagonal, squares, np.array([bound]), one, below)
    sizes = np.abs(np.concatenate([[0.0], beside])) + np.abs(np.concatenate([beside, [0.0]]))
    least = float((diagonal - sizes).min())  # Gershgorin
    values = bisected(diagonal, squares, int(below[0]), least, bound)
    return values, twisted(diagonal, beside, values)
