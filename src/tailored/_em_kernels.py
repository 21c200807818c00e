"""Compiled loops of the EM algorithm: many small Cholesky factorisations, and sums of their inverses.

A batch of 20 × 20 systems spends its time in calls when it goes through LAPACK one by one; these loops
take the whole batch and stay in the first cache.  Factors are stored with the reciprocals of their
pivots on the diagonal, so that every later use multiplies where it would divide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Reassociation lets dot products use vector registers; NaN and infinity keep their meaning.
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}


@njit(**_OPTIONS)
def factor_and_solve(systems: Array, right: Array) -> tuple[Array, Array]:
    """Cholesky of each positive definite system (T, p, p), in place, and ``system⁻¹ right``.

    Returns
    -------
    log_determinants : array (T,)
    solutions : array (T, p)
    """
    T, p, _ = systems.shape
    log_determinants = np.zeros(T)
    solutions = np.empty((T, p))
    for t in range(T):
        factor = systems[t]
        solution = solutions[t]
        half = 0.0
        for i in range(p):
            for j in range(i):
                value = factor[i, j]
                for k in range(j):
                    value -= factor[i, k] * factor[j, k]
                factor[i, j] = value * factor[j, j]
            value = factor[i, i]
            for k in range(i):
                value -= factor[i, k] * factor[i, k]
            pivot = np.sqrt(value)
            half += np.log(pivot)
            factor[i, i] = 1.0 / pivot
        log_determinants[t] = 2.0 * half
        for i in range(p):
            value = right[t, i]
            for k in range(i):
                value -= factor[i, k] * solution[k]
            solution[i] = value * factor[i, i]
        for i in range(p - 1, -1, -1):
            solution[i] *= factor[i, i]
            value = solution[i]
            for k in range(i):
                solution[k] -= factor[i, k] * value
    return log_determinants, solutions


@njit(**_OPTIONS)
def sum_inverses(factors: Array, weights: Array, floor: float) -> tuple[Array, Array]:
    """``Σ_t weight_t F_t⁻¹`` and the traces of ``F_t⁻¹``, from the factors of `factor_and_solve`.

    Tasks whose weight is at most ``floor`` are skipped (their trace is 0): most tasks have left most
    components of a mixture after a few iterations.
    """
    T, p, _ = factors.shape
    total = np.zeros((p, p))
    traces = np.zeros(T)
    inverse = np.zeros((p, p))
    for t in range(T):
        if weights[t] <= floor:
            continue
        factor = factors[t]
        trace = 0.0
        # Row i of the factor's inverse J needs the rows above it only; F⁻¹ = JᵀJ is summed as rows come.
        for i in range(p):
            row = inverse[i]
            for j in range(i):
                row[j] = 0.0
            for k in range(i):
                value = factor[i, k]
                above = inverse[k]
                for j in range(k + 1):
                    row[j] -= value * above[j]
            for j in range(i):
                row[j] *= factor[i, i]
            row[i] = factor[i, i]
            for a in range(i + 1):
                trace += row[a] * row[a]
                value = weights[t] * row[a]
                target = total[a]
                for c in range(a + 1):
                    target[c] += value * row[c]
        traces[t] = trace
    for i in range(p):
        for j in range(i):
            total[j, i] = total[i, j]
    return total, traces
