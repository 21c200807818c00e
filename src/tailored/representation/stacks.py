"""Products over a stack of small matrices, compiled: NumPy's own leave BLAS where one of the factors is transposed."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]


@njit(nogil=True, cache=True, error_model="numpy")
def subtract_squares(V: Array, weights: Array, taus: Array) -> None:
    """``taus[t] -= V[t]ᵀ diag(weights) V[t]`` for V (T, m, d)."""
    n_tasks, m, d = V.shape
    scaled, product = np.empty((d, m)), np.empty((d, d))
    for t in range(n_tasks):
        for q in range(m):
            for i in range(d):
                scaled[i, q] = weights[q] * V[t, q, i]
        np.dot(scaled, V[t], product)
        for i in range(d):
            for j in range(d):
                taus[t, i, j] -= product[i, j]
